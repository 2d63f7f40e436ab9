//! The state of a node as JSON.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use rblive::RsManager;
use rblive_ingest::{Ingest, IngestAddresses, IngestCounters};
use serde_json::{Value, json};

/// The streams that the node sends and receives, its nodes, and its encoders.
pub fn of(rs: &RsManager, ingest: Option<&Ingest>) -> Value {
    let sends: Vec<_> = rs
        .outbound()
        .into_iter()
        .map(|stream| {
            json!({ "id": stream.id.to_string(), "name": &*stream.name, "created_here": stream.created_here,
            "nodes": stream.nodes, "chunks": stream.chunks, "bytes": stream.bytes, "age_ms": ms(stream.age),
            "capacity_bytes": stream.capacity_bytes })
        })
        .collect();
    let receives: Vec<_> = rs.inbound().into_iter().map(|stream| {
        json!({ "id": stream.id.to_string(), "name": &*stream.name, "from": stream.from,
            "connected": stream.connected, "chunks": stream.chunks, "bytes": stream.bytes, "age_ms": ms(stream.age),
            "lost_bytes": stream.lost_bytes })
    }).collect();
    let peers: Vec<_> = rs.peers().into_iter().map(|peer| {
        json!({ "node": peer.node, "name": peer.name, "connected": peer.connected, "carrier": peer.carrier })
    }).collect();
    let nodes: Vec<_> = rs.config().nodes.iter().map(|node| {
        json!({ "id": node.id, "name": node.name, "disseminates": node.role.disseminates(), "delivers": node.role.delivers(),
            "takes_streams": !node.address.is_empty() })
    }).collect();
    let node = rs.node();
    json!({ "node": { "id": node.id, "name": node.name, "disseminates": node.role.disseminates(),
            "delivers": node.role.delivers() },
        "sends": sends, "receives": receives, "peers": peers, "nodes": nodes, "ring_bytes": rs.memory_in_use(),
        "encoders": ingest.map(|ingest| encoders(ingest.counters(), ingest.addresses())) })
}

fn ms(age: Option<Duration>) -> Option<u64> {
    age.map(|age| age.as_millis() as u64)
}

fn encoders(counters: &IngestCounters, addresses: IngestAddresses) -> Value {
    let [publishers, refused, failed, bytes] =
        [&counters.publishers, &counters.refused, &counters.failed, &counters.bytes]
            .map(|own| own.load(Ordering::Relaxed));
    let remarks = counters.remarks.list().into_iter();
    let remarks: Vec<_> =
        remarks.map(|(stream, kind, text)| json!({ "stream": stream, "kind": kind, "text": text })).collect();
    let failures = counters.failures.list().into_iter().map(|own| {
        let unix_ms = own.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        json!({ "unix_ms": unix_ms, "address": own.address.to_canonical().to_string(), "protocol": own.protocol,
            "reason": own.reason, "times": own.times })
    });
    let ports = |address: Option<SocketAddr>| address.map(|own| own.port());
    json!({ "publishers": publishers, "refused": refused, "failed": failed, "bytes": bytes, "remarks": remarks,
        "failures": failures.collect::<Vec<_>>(),
        "ports": { "rtmp": ports(addresses.rtmp), "rtmps": ports(addresses.rtmps), "http": ports(addresses.http),
            "https": ports(addresses.https) } })
}
