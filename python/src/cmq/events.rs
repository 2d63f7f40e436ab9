//! CMQ's events and counters as Python objects.

use cmq::{ReceiveCounts, SenderInfo, Stats};
use pyo3::prelude::*;

use super::key::address;
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

/// The counters of a queue.
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
        .with(py, "senders", stats.senders)?;
    with_counts(py, event, &stats.counts)
}

/// A stream that a queue receives.
pub fn sender(py: Python<'_>, info: &SenderInfo) -> PyResult<Event> {
    let event = Event::new(py, "SenderInfo")
        .with(py, "sender", address(info.from))?
        .with(py, "epoch", info.epoch)?
        .with(py, "stream", info.stream)?
        .with(py, "closed", info.closed)?
        .with(py, "bytes", info.bytes)?;
    with_counts(py, event, &info.counts)
}
