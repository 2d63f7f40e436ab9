//! The framework's events as Python objects.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rocketbufs::{ConnEvent, DownReason, OutEvent, PeerIdentity, SubscriberProgress};

use crate::errors;
use crate::event::{Event, event};

/// Why a connection is down: `text` for people; `kind` and `code` for programs.
pub fn down_reason(py: Python<'_>, reason: &DownReason) -> PyResult<Event> {
    let kind = match reason {
        DownReason::Local { .. } => "Local",
        DownReason::Peer { .. } => "Peer",
        DownReason::Transport(_) => "Transport",
        _ => "NotStarted",
    };
    let code = reason.code().map(|code| errors::variant(&code));
    Ok(event!(py, kind; text = reason.to_string(), code))
}

/// The verified identity of a peer.
pub fn identity(py: Python<'_>, known: &PeerIdentity) -> PyResult<Event> {
    let process = match known.unix {
        Some(peer) => Some(event!(py, "Process"; of peer: pid, uid, gid)),
        None => None,
    };
    let certificate = known.certificate.as_ref().map(|der| PyBytes::new(py, der));
    Ok(event!(py, "PeerIdentity"; encrypted = known.encrypted, process, certificate))
}

/// An event of a connection.
pub fn of_conn(py: Python<'_>, event: &ConnEvent) -> PyResult<Event> {
    Ok(match event {
        ConnEvent::Up => event!(py, "Up"),
        ConnEvent::Down { reason } => event!(py, "Down"; reason = down_reason(py, reason)?),
        other => event!(py, "Other"; text = format!("{other:?}")),
    })
}

/// The positions that a subscriber has confirmed.
pub fn progress(py: Python<'_>, progress: &SubscriberProgress) -> PyResult<Event> {
    Ok(event!(py, "SubscriberProgress"; of progress: bid, conn, landed, delivered, consumed))
}

/// An event of an rOut.
pub fn of_out(py: Python<'_>, event: OutEvent) -> PyResult<Event> {
    Ok(match event {
        OutEvent::Subscribed { conn, bid, name, start, resumed } => {
            event!(py, "Subscribed"; conn, bid, name = PyBytes::new(py, &name), start, resumed)
        }
        OutEvent::Unsubscribed { conn, bid, name, why } => {
            event!(py, "Unsubscribed"; conn, bid, name = PyBytes::new(py, &name), reason = why)
        }
        OutEvent::Dropped { conn, bid, from, to, policy } => {
            event!(py, "Dropped"; conn, bid, start = from, end = to, policy = policy.as_str())
        }
        OutEvent::TooSlow { conn, bid, policy, lag_bytes } => {
            event!(py, "TooSlow"; conn, bid, policy = policy.as_str(), lag_bytes)
        }
        OutEvent::DurableExpired { bid } => event!(py, "DurableExpired"; bid),
        OutEvent::ConnDown { conn, reason } => {
            event!(py, "ConnDown"; conn, reason = down_reason(py, &reason)?)
        }
        OutEvent::Progress { bid } => event!(py, "Progress"; bid),
        OutEvent::DataOut { bid, context } => event!(py, "DataOut"; bid, context),
        OutEvent::SubscriberProgress(told) => progress(py, &told)?,
        OutEvent::Control { conn, message } => {
            event!(py, "Control"; conn, message = PyBytes::new(py, &message))
        }
        OutEvent::Missed { events } => event!(py, "Missed"; events),
        OutEvent::Ended { bid } => event!(py, "Ended"; bid),
        other => event!(py, "Other"; text = format!("{other:?}")),
    })
}
