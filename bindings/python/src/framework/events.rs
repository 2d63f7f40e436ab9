//! The framework's events as Python objects.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rocketbufs::{ConnEvent, DownReason, OutEvent, PeerIdentity, SubscriberProgress};

use crate::errors;
use crate::event::Event;

/// Why a connection is down: `text` for people; `kind` and `code` for programs.
pub fn down_reason(py: Python<'_>, reason: &DownReason) -> PyResult<Event> {
    let kind = match reason {
        DownReason::Local { .. } => "Local",
        DownReason::Peer { .. } => "Peer",
        DownReason::Transport(_) => "Transport",
        _ => "NotStarted",
    };
    let code = reason.code().map(|code| errors::variant(&code));
    Event::new(py, kind).with(py, "text", reason.to_string())?.with(py, "code", code)
}

/// The verified identity of a peer.
pub fn identity(py: Python<'_>, known: &PeerIdentity) -> PyResult<Event> {
    let process = known.unix.map(|peer| {
        let process = Event::new(py, "Process").with(py, "pid", peer.pid)?.with(py, "uid", peer.uid)?;
        process.with(py, "gid", peer.gid)
    });
    let certificate = known.certificate.as_ref().map(|der| PyBytes::new(py, der));
    Event::new(py, "PeerIdentity")
        .with(py, "encrypted", known.encrypted)?
        .with(py, "process", process.transpose()?)?
        .with(py, "certificate", certificate)
}

/// An event of a connection.
pub fn of_conn(py: Python<'_>, event: &ConnEvent) -> PyResult<Event> {
    match event {
        ConnEvent::Up => Ok(Event::new(py, "Up")),
        ConnEvent::Down { reason } => Event::new(py, "Down").with(py, "reason", down_reason(py, reason)?),
        other => Event::new(py, "Other").with(py, "text", format!("{other:?}")),
    }
}

/// The positions that a subscriber has confirmed.
pub fn progress(py: Python<'_>, progress: &SubscriberProgress) -> PyResult<Event> {
    Event::new(py, "SubscriberProgress")
        .with(py, "bid", progress.bid)?
        .with(py, "conn", progress.conn)?
        .with(py, "landed", progress.landed)?
        .with(py, "delivered", progress.delivered)?
        .with(py, "consumed", progress.consumed)
}

/// An event of an rOut.
pub fn of_out(py: Python<'_>, event: OutEvent) -> PyResult<Event> {
    let of = |kind, conn: u64, bid: rocketbufs::Bid| {
        Event::new(py, kind).with(py, "conn", conn)?.with(py, "bid", bid)
    };
    match event {
        OutEvent::Subscribed { conn, bid, name, start, resumed } => of("Subscribed", conn, bid)?
            .with(py, "name", PyBytes::new(py, &name))?
            .with(py, "start", start)?
            .with(py, "resumed", resumed),
        OutEvent::Unsubscribed { conn, bid, name, why } => {
            of("Unsubscribed", conn, bid)?.with(py, "name", PyBytes::new(py, &name))?.with(py, "reason", why)
        }
        OutEvent::Dropped { conn, bid, from, to, policy } => of("Dropped", conn, bid)?
            .with(py, "start", from)?
            .with(py, "end", to)?
            .with(py, "policy", policy.as_str()),
        OutEvent::TooSlow { conn, bid, policy, lag_bytes } => {
            of("TooSlow", conn, bid)?.with(py, "policy", policy.as_str())?.with(py, "lag_bytes", lag_bytes)
        }
        OutEvent::DurableExpired { bid } => Event::new(py, "DurableExpired").with(py, "bid", bid),
        OutEvent::ConnDown { conn, reason } => {
            Event::new(py, "ConnDown").with(py, "conn", conn)?.with(py, "reason", down_reason(py, &reason)?)
        }
        OutEvent::Progress { bid } => Event::new(py, "Progress").with(py, "bid", bid),
        OutEvent::DataOut { bid, context } => {
            Event::new(py, "DataOut").with(py, "bid", bid)?.with(py, "context", context)
        }
        OutEvent::SubscriberProgress(told) => progress(py, &told),
        OutEvent::Control { conn, message } => {
            Event::new(py, "Control").with(py, "conn", conn)?.with(py, "message", PyBytes::new(py, &message))
        }
        OutEvent::Missed { events } => Event::new(py, "Missed").with(py, "events", events),
        OutEvent::Ended { bid } => Event::new(py, "Ended").with(py, "bid", bid),
        other => Event::new(py, "Other").with(py, "text", format!("{other:?}")),
    }
}
