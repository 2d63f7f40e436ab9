//! What waits for clients: its memory, and its place in the log of frames.

use std::time::Instant;

use tracing::warn;

use super::{Connections, DEEP_BYTES, Slow, index};
use crate::protocol::{ConnId, Range};

impl Connections {
    /// Counts the memory of a connection, and ends those that have most where all of them have too much.
    pub(crate) fn count_memory(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(index(id)).filter(|conn| conn.id == id) else { return };
        let charge = conn.outbox.memory() + conn.input.len() + conn.socket.memory();
        self.memory = self.memory - std::mem::replace(&mut conn.charge, charge) + charge;
        while self.memory > self.limits.frames_bytes * 2 {
            let most =
                self.conns.iter().max_by_key(|(_, conn)| conn.charge).map(|(_, conn)| (conn.id, conn.charge));
            let Some((id, charge)) = most else { return };
            self.counts.slow_closed += 1;
            if let Some(more) = self.lines.allow(Instant::now()) {
                warn!(
                    more,
                    "a client is disconnected: {charge} bytes wait for it, the most of all, and all together have 2 × frames_bytes"
                );
            }
            self.end(id, "what waits for all clients exceeds 2 × frames_bytes, and most is for this one");
        }
    }

    /// Makes room in the log of frames: what connections still need of it is copied.
    pub(super) fn make_room(&mut self, len: usize) {
        if self.frames.tail_after(len) <= self.oldest {
            return;
        }
        // A step further, so that this is rare.
        let tail = self.frames.tail_after(len) + (self.limits.frames_bytes / 16) as u64;
        let mut oldest = u64::MAX;
        for id in self.ids() {
            let Some(conn) = self.conns.get_mut(index(id)).filter(|conn| conn.id == id) else { continue };
            if conn.outbox.shared_below(tail) > 0 {
                conn.outbox.keep(tail, &self.frames);
                oldest = oldest.min(conn.outbox.oldest().unwrap_or(u64::MAX));
                self.count_memory(id);
            } else {
                oldest = oldest.min(conn.outbox.oldest().unwrap_or(u64::MAX));
            }
        }
        self.oldest = oldest;
    }

    /// Whether a connection takes so many bytes more. Its policy acts if not.
    fn admits(&mut self, id: ConnId, len: u64) -> bool {
        let limits = self.limits;
        let Some(conn) = self.get_mut(id).filter(|conn| !conn.is_closing()) else { return false };
        if !conn.is_slow(&limits, len) {
            return true;
        }
        match limits.slow {
            Slow::Drop => self.counts.dropped += 1,
            Slow::Disconnect => {
                let (waiting, peer) = (conn.outbox.bytes(), conn.address);
                self.counts.slow_closed += 1;
                if let Some(more) = self.lines.allow(Instant::now()) {
                    warn!(%peer, more, "a client reads too slowly and is disconnected: {waiting} bytes wait (max_lag_bytes)");
                }
                self.end(id, &format!("its client reads too slowly: {waiting} bytes wait (max_lag_bytes)"));
            }
        }
        false
    }

    /// Something was queued for a connection.
    pub(super) fn queued(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id) {
            conn.is_deep |= conn.outbox.bytes() >= DEEP_BYTES;
            if !std::mem::replace(&mut conn.is_pending, true) {
                self.pending += 1;
            }
        }
        self.mark(id);
    }

    pub(super) fn enqueue(&mut self, id: ConnId, head: &[u8], range: Range) -> bool {
        if !self.frames.has(range) || !self.admits(id, head.len() as u64 + u64::from(range.len)) {
            return false;
        }
        if let Some(conn) = self.conns.get_mut(index(id)) {
            conn.outbox.send(head);
            conn.outbox.push(range, &self.frames);
            self.oldest = self.oldest.min(range.position);
            self.pushes += 1;
        }
        self.queued(id);
        true
    }
}
