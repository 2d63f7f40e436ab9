//! Counters of the server.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a server.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Requests by the class of their status: 1xx to 5xx.
    pub requests: [AtomicU64; 5],
    pub connections: AtomicU64,
    pub open: AtomicU64,
    pub refused: AtomicU64,
    /// Connections that had asked for nothing, and were closed to make room for others.
    pub made_room: AtomicU64,
    pub handshakes_failed: AtomicU64,
    pub too_slow: AtomicU64,
    /// Connections of HTTP/2 whose client sent too many frames.
    pub floods: AtomicU64,
    /// Responses that ended because new data overwrote the bytes that were being sent.
    pub overtaken: AtomicU64,
    pub media_bytes: AtomicU64,
}

impl Counters {
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn answered(&self, status: u16) {
        if let Some(counter) = self.requests.get(usize::from(status / 100).saturating_sub(1)) {
            Self::add(counter);
        }
    }
}
