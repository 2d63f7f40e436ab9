//! A server's report about itself, as JSON.

use std::time::Instant;

use multimqc::{Counters, Level, ProgressReport, Repair, Server, ServiceReport, TopicId};
use serde_json::{Value, json};

use super::interface::Interface;

/// The report of a running server.
pub fn report(server: &Server, started: Instant, interface: Option<&Interface>) -> Value {
    let stack = server.stack();
    let topics: Vec<Value> = stack.topics().into_iter().map(|topic| topic_report(server, topic)).collect();
    let pairs = stack.levels().windows(2).zip(server.transfers());
    let transfers: Vec<Value> =
        pairs.map(|(pair, progress)| transfer(&*pair[0], &*pair[1], &progress)).collect();
    json!({
        "uptime_s": started.elapsed().as_secs_f64(),
        "header_address": server.addresses().header.map(|address| address.to_string()),
        "kernel": interface.map(Interface::report),
        "topics": topics,
        "transfers": transfers,
        "repairs": stack.repairs().iter().map(repair).collect::<Vec<_>>(),
        "service": service(&server.report()),
    })
}

fn topic_report(server: &Server, topic: TopicId) -> Value {
    let stack = server.stack();
    let plain = server.addresses().topics.iter().find(|(id, _, _)| *id == topic);
    let address = |address: Option<std::net::SocketAddr>| address.map(|address| address.to_string());
    let levels: Vec<Value> = stack.levels().iter().map(|level| level_report(&**level, topic)).collect();
    json!({
        "id": topic.0,
        "epoch": stack.epoch(topic).map(|epoch| epoch.0),
        "head": stack.head(topic),
        "push_address": plain.and_then(|(_, push, _)| address(*push)),
        "pull_address": plain.and_then(|(_, _, pull)| address(*pull)),
        "levels": levels,
    })
}

fn level_report(level: &dyn Level, topic: TopicId) -> Value {
    let window = level.window(topic);
    let Counters {
        messages,
        batches,
        bytes,
        hits,
        misses,
        overwritten_bytes,
        holes,
        hole_bytes,
        repeated_bytes,
        refused,
        damaged,
    } = level.counters(topic);
    json!({
        "level": level.kind().name(),
        "number": level.kind() as u8,
        "first": window.map(|window| window.first),
        "head": window.map(|window| window.head),
        "capacity_bytes": level.capacity_bytes(),
        "messages": messages,
        "batches": batches,
        "bytes": bytes,
        "hits": hits,
        "misses": misses,
        "overwritten_bytes": overwritten_bytes,
        "holes": holes,
        "hole_bytes": hole_bytes,
        "repeated_bytes": repeated_bytes,
        "refused": refused,
        "damaged": damaged,
    })
}

fn transfer(lower: &dyn Level, upper: &dyn Level, progress: &ProgressReport) -> Value {
    json!({
        "from": lower.kind().name(),
        "to": upper.kind().name(),
        "batches": progress.batches,
        "holes": progress.holes,
        "hole_bytes": progress.hole_bytes,
        "failures": progress.failures,
        "longest_us": progress.longest.as_micros() as u64,
        "last_error": progress.last_error,
    })
}

fn repair(repair: &Repair) -> Value {
    json!({
        "topic": repair.topic.0,
        "lower": repair.lower.name(),
        "upper": repair.upper.name(),
        "from": repair.from,
        "to": repair.to,
        "bytes": repair.bytes,
        "lost_bytes": repair.lost_bytes,
    })
}

fn service(report: &ServiceReport) -> Value {
    json!({
        "pushes": report.pushes,
        "refused": report.refused,
        "filtered": report.filtered,
        "pulls": report.pulls,
        "replies": report.replies,
        "unsent": report.unsent,
        "batches": report.batches,
        "foreign": report.foreign,
        "version": report.version,
        "broken": report.broken,
        "senders": report.senders.tracked,
        "senders_untracked": report.senders.untracked,
        "lost": report.senders.lost,
        "late": report.senders.late,
    })
}
