//! CMQ's events and counters as Python objects.

use cmq::{ReceiveCounts, ReliableCounts, SecurityCounts, SenderInfo, Stats};
use pyo3::prelude::*;

use super::key::{Key, address};
use super::keys::PublicKey;
use crate::errors::variant;
use crate::event::{Event, event, fields};

/// An event of a queue.
pub fn of(py: Python<'_>, event: cmq::Event) -> PyResult<Event> {
    let counted =
        |kind, from, count: u64| -> PyResult<Event> { Ok(event!(py, kind; sender = address(from), count)) };
    Ok(match event {
        cmq::Event::Joined { from, missed, restarted } => {
            event!(py, "Joined"; sender = address(from), missed, restarted)
        }
        cmq::Event::Lost { from, first, count } => fields!(py, counted("Lost", from, count)?; first),
        cmq::Event::Late { from, count } => counted("Late", from, count)?,
        cmq::Event::Duplicated { from, count } => counted("Duplicated", from, count)?,
        cmq::Event::Reordered { from, count } => counted("Reordered", from, count)?,
        cmq::Event::Closed { from, sent } => event!(py, "Closed"; sender = address(from), sent),
        cmq::Event::Evicted { from } => event!(py, "Evicted"; sender = address(from)),
        cmq::Event::Overflowed { from, id, count } => fields!(py, counted("Overflowed", from, count)?; id),
        cmq::Event::Undecodable { from, count } => counted("Undecodable", from, count)?,
        cmq::Event::Malformed { from, why } => {
            event!(py, "Malformed"; sender = address(from), reason = format!("{why:?}"))
        }
        cmq::Event::SendFailed { to, messages, errno } => {
            event!(py, "SendFailed"; to = address(to), messages, errno)
        }
        cmq::Event::Undelivered { to, first, count, why } => {
            event!(py, "Undelivered"; to = Key(to), first, count, reason = variant(&why))
        }
        cmq::Event::PeerRestarted { to } => event!(py, "PeerRestarted"; to = address(to)),
        secure => of_security(py, secure)?,
    })
}

/// An event of encryption.
fn of_security(py: Python<'_>, event: cmq::Event) -> PyResult<Event> {
    Ok(match event {
        cmq::Event::Secured { peer, key, renewed } => {
            event!(py, "Secured"; peer = address(peer), key = PublicKey(key), renewed)
        }
        cmq::Event::HandshakeFailed { to, messages, why } => {
            event!(py, "HandshakeFailed"; to = address(to), messages, reason = variant(&why))
        }
        cmq::Event::Refused { from, why } => {
            let event = event!(py, "Refused"; sender = address(from), reason = variant(&why));
            match why {
                cmq::Refusal::Stranger(key) => fields!(py, event; key = PublicKey(key)),
                _ => event,
            }
        }
        cmq::Event::EncryptionRequired { by } => event!(py, "EncryptionRequired"; peer = address(by)),
        other => event!(py, "Other"; text = format!("{other:?}")),
    })
}

fn with_counts(py: Python<'_>, event: Event, counts: &ReceiveCounts) -> PyResult<Event> {
    Ok(
        fields!(py, event; of counts: received, lost, missed, duplicated, reordered, late, overflowed, undecodable),
    )
}

fn security(py: Python<'_>, counts: &SecurityCounts) -> PyResult<Event> {
    Ok(
        event!(py, "SecurityCounts"; of counts: handshakes, renewals, failed, sessions, evicted, plain, forged, replayed,
        unknown_sessions, strangers, crowded, cookies, resets, malformed),
    )
}

fn reliable(py: Python<'_>, counts: &ReliableCounts) -> PyResult<Event> {
    Ok(
        event!(py, "ReliableCounts"; of counts: pushed, confirmed, failed, segments, repeated, timeouts, postponed,
        unconfirmed_bytes, received, duplicated, refused, acks, strange, waiting_bytes, links),
    )
}

/// The counters of a queue, with those of encryption (`security`) and of the reliable mode (`reliable`).
pub fn stats(py: Python<'_>, stats: &Stats) -> PyResult<Event> {
    let event = event!(py, "Stats"; of stats: sent, sent_datagrams, send_failed, datagrams, malformed, incomplete,
        events_dropped, pending_bytes, senders;
        security = security(py, &stats.security)?, reliable = reliable(py, &stats.reliable)?);
    with_counts(py, event, &stats.counts)
}

/// A stream that a queue receives.
pub fn sender(py: Python<'_>, info: &SenderInfo) -> PyResult<Event> {
    let event = event!(py, "SenderInfo"; sender = address(info.from); of info: epoch, stream, closed, reliable, bytes);
    with_counts(py, event, &info.counts)
}
