//! The connections as a protocol sees them.

use std::time::Instant;

use super::Connections;
use crate::protocol::{ConnId, Outlets, Range};

impl Outlets for Connections {
    fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        if let Some(found) = self.get_mut(conn).filter(|found| !found.is_closing()) {
            found.outbox.send(bytes);
            self.queued(conn);
        }
    }

    fn frame(&mut self, pieces: &[&[u8]]) -> Range {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        self.make_room(len);
        self.frames.append(pieces)
    }

    fn push(&mut self, conn: ConnId, range: Range) -> bool {
        self.enqueue(conn, &[], range)
    }

    fn push_with(&mut self, conn: ConnId, head: &[u8], range: Range) -> bool {
        self.enqueue(conn, head, range)
    }

    fn close(&mut self, conn: ConnId, reason: &str) {
        if let Some(found) = self.get_mut(conn) {
            found.closing.get_or_insert_with(|| (Instant::now(), reason.to_owned()));
            // Nothing more of it is executed.
            found.blocked = None;
            self.has_closed = true;
            self.mark(conn);
        }
    }

    fn resume(&mut self, conn: ConnId) {
        if let Some(found) = self.get_mut(conn)
            && found.blocked.take().is_some()
        {
            self.resumed.push(conn);
            self.mark(conn);
        }
    }

    fn known(&mut self, conn: ConnId) {
        if let Some(found) = self.get(conn) {
            found.place.known();
        }
    }

    fn is_there(&self, range: Range) -> bool {
        self.frames.has(range)
    }

    fn room(&self) -> usize {
        (self.limits.frames_bytes * 2).saturating_sub(self.memory)
    }

    fn delivered(&mut self, messages: u64) {
        self.counts.messages += messages;
    }

    fn dropped(&mut self, messages: u64) {
        self.counts.dropped += messages;
    }

    fn fault(&mut self) {
        self.counts.faults += 1;
    }

    fn queued_bytes(&self, conn: ConnId) -> u64 {
        self.get(conn).map_or(0, |found| found.outbox.bytes())
    }
}
