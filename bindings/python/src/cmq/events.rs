//! CMQ's events and counters as Python objects.

use cmq::{ReceiveCounts, ReliableCounts, SecurityCounts, SenderInfo, Stats};
use pyo3::prelude::*;

use super::key::{Key, address};
use super::keys::PublicKey;
use crate::errors::variant;
use crate::event::Event;

/// An event of a queue.
pub fn of(py: Python<'_>, event: cmq::Event) -> PyResult<Event> {
    let counted = |kind, from, count: u64| {
        Event::new(py, kind).with(py, "sender", address(from))?.with(py, "count", count)
    };
    match event {
        cmq::Event::Joined { from, missed, restarted } => Event::new(py, "Joined")
            .with(py, "sender", address(from))?
            .with(py, "missed", missed)?
            .with(py, "restarted", restarted),
        cmq::Event::Lost { from, first, count } => counted("Lost", from, count)?.with(py, "first", first),
        cmq::Event::Late { from, count } => counted("Late", from, count),
        cmq::Event::Duplicated { from, count } => counted("Duplicated", from, count),
        cmq::Event::Reordered { from, count } => counted("Reordered", from, count),
        cmq::Event::Closed { from, sent } => {
            Event::new(py, "Closed").with(py, "sender", address(from))?.with(py, "sent", sent)
        }
        cmq::Event::Evicted { from } => Event::new(py, "Evicted").with(py, "sender", address(from)),
        cmq::Event::Overflowed { from, id, count } => counted("Overflowed", from, count)?.with(py, "id", id),
        cmq::Event::Undecodable { from, count } => counted("Undecodable", from, count),
        cmq::Event::Malformed { from, why } => Event::new(py, "Malformed")
            .with(py, "sender", address(from))?
            .with(py, "reason", format!("{why:?}")),
        cmq::Event::SendFailed { to, messages, errno } => Event::new(py, "SendFailed")
            .with(py, "to", address(to))?
            .with(py, "messages", messages)?
            .with(py, "errno", errno),
        cmq::Event::Undelivered { to, first, count, why } => Event::new(py, "Undelivered")
            .with(py, "to", Key(to))?
            .with(py, "first", first)?
            .with(py, "count", count)?
            .with(py, "reason", variant(&why)),
        cmq::Event::PeerRestarted { to } => Event::new(py, "PeerRestarted").with(py, "to", address(to)),
        secure => of_security(py, secure),
    }
}

/// An event of encryption.
fn of_security(py: Python<'_>, event: cmq::Event) -> PyResult<Event> {
    match event {
        cmq::Event::Secured { peer, key, renewed } => Event::new(py, "Secured")
            .with(py, "peer", address(peer))?
            .with(py, "key", PublicKey(key))?
            .with(py, "renewed", renewed),
        cmq::Event::HandshakeFailed { to, messages, why } => Event::new(py, "HandshakeFailed")
            .with(py, "to", address(to))?
            .with(py, "messages", messages)?
            .with(py, "reason", variant(&why)),
        cmq::Event::Refused { from, why } => {
            let event = Event::new(py, "Refused").with(py, "sender", address(from))?;
            let event = event.with(py, "reason", variant(&why))?;
            match why {
                cmq::Refusal::Stranger(key) => event.with(py, "key", PublicKey(key)),
                _ => Ok(event),
            }
        }
        cmq::Event::EncryptionRequired { by } => {
            Event::new(py, "EncryptionRequired").with(py, "peer", address(by))
        }
        other => Event::new(py, "Other").with(py, "text", format!("{other:?}")),
    }
}

fn with_counts(py: Python<'_>, event: Event, counts: &ReceiveCounts) -> PyResult<Event> {
    event
        .with(py, "received", counts.received)?
        .with(py, "lost", counts.lost)?
        .with(py, "missed", counts.missed)?
        .with(py, "duplicated", counts.duplicated)?
        .with(py, "reordered", counts.reordered)?
        .with(py, "late", counts.late)?
        .with(py, "overflowed", counts.overflowed)?
        .with(py, "undecodable", counts.undecodable)
}

fn security(py: Python<'_>, counts: &SecurityCounts) -> PyResult<Event> {
    Event::new(py, "SecurityCounts")
        .with(py, "handshakes", counts.handshakes)?
        .with(py, "renewals", counts.renewals)?
        .with(py, "failed", counts.failed)?
        .with(py, "sessions", counts.sessions)?
        .with(py, "evicted", counts.evicted)?
        .with(py, "plain", counts.plain)?
        .with(py, "forged", counts.forged)?
        .with(py, "replayed", counts.replayed)?
        .with(py, "unknown_sessions", counts.unknown_sessions)?
        .with(py, "strangers", counts.strangers)?
        .with(py, "crowded", counts.crowded)?
        .with(py, "cookies", counts.cookies)?
        .with(py, "resets", counts.resets)?
        .with(py, "malformed", counts.malformed)
}

fn reliable(py: Python<'_>, counts: &ReliableCounts) -> PyResult<Event> {
    Event::new(py, "ReliableCounts")
        .with(py, "pushed", counts.pushed)?
        .with(py, "confirmed", counts.confirmed)?
        .with(py, "failed", counts.failed)?
        .with(py, "segments", counts.segments)?
        .with(py, "repeated", counts.repeated)?
        .with(py, "timeouts", counts.timeouts)?
        .with(py, "postponed", counts.postponed)?
        .with(py, "unconfirmed_bytes", counts.unconfirmed_bytes)?
        .with(py, "received", counts.received)?
        .with(py, "duplicated", counts.duplicated)?
        .with(py, "refused", counts.refused)?
        .with(py, "acks", counts.acks)?
        .with(py, "strange", counts.strange)?
        .with(py, "waiting_bytes", counts.waiting_bytes)?
        .with(py, "links", counts.links)
}

/// The counters of a queue, with those of encryption (`security`) and of the reliable mode (`reliable`).
pub fn stats(py: Python<'_>, stats: &Stats) -> PyResult<Event> {
    let event = Event::new(py, "Stats")
        .with(py, "sent", stats.sent)?
        .with(py, "sent_datagrams", stats.sent_datagrams)?
        .with(py, "send_failed", stats.send_failed)?
        .with(py, "datagrams", stats.datagrams)?
        .with(py, "malformed", stats.malformed)?
        .with(py, "incomplete", stats.incomplete)?
        .with(py, "events_dropped", stats.events_dropped)?
        .with(py, "pending_bytes", stats.pending_bytes)?
        .with(py, "senders", stats.senders)?
        .with(py, "security", security(py, &stats.security)?)?
        .with(py, "reliable", reliable(py, &stats.reliable)?)?;
    with_counts(py, event, &stats.counts)
}

/// A stream that a queue receives.
pub fn sender(py: Python<'_>, info: &SenderInfo) -> PyResult<Event> {
    let event = Event::new(py, "SenderInfo")
        .with(py, "sender", address(info.from))?
        .with(py, "epoch", info.epoch)?
        .with(py, "stream", info.stream)?
        .with(py, "closed", info.closed)?
        .with(py, "reliable", info.reliable)?
        .with(py, "bytes", info.bytes)?;
    with_counts(py, event, &info.counts)
}
