//! Outlets in memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::{ConnId, Outlets, Range};

/// Outlets that keep what they are given.
#[derive(Debug, Default)]
pub(crate) struct MemoryOutlets {
    /// What each connection was sent and nobody has taken yet.
    pub(super) sent: BTreeMap<ConnId, Vec<u8>>,
    /// The log of frames.
    log: Vec<u8>,
    /// The number of frames in the log.
    pub(crate) frames: usize,
    /// Connections that were closed, with the reason.
    pub(crate) closed: BTreeMap<ConnId, String>,
    /// Connections that are to be read again.
    pub(super) resumed: BTreeSet<ConnId>,
    /// Connections that are no strangers any more.
    pub(crate) known: BTreeSet<ConnId>,
    /// Connections that take no more ranges.
    pub(crate) slow: BTreeSet<ConnId>,
    /// What `room` says; none: enough.
    pub(crate) room: Option<usize>,
    /// What `queued_bytes` says.
    pub(crate) queued: u64,
    /// Messages that were delivered and dropped, and faults.
    pub(crate) counted: [u64; 3],
}

impl MemoryOutlets {
    /// The number of bytes in the log of frames.
    pub(crate) fn framed_bytes(&self) -> usize {
        self.log.len()
    }
}

impl Outlets for MemoryOutlets {
    fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        self.sent.entry(conn).or_default().extend_from_slice(bytes);
    }

    fn frame(&mut self, pieces: &[&[u8]]) -> Range {
        let position = self.log.len() as u64;
        pieces.iter().for_each(|piece| self.log.extend_from_slice(piece));
        self.frames += 1;
        Range { position, len: (self.log.len() as u64 - position).try_into().expect("frames are small") }
    }

    fn push(&mut self, conn: ConnId, range: Range) -> bool {
        self.push_with(conn, &[], range)
    }

    fn push_with(&mut self, conn: ConnId, head: &[u8], range: Range) -> bool {
        if self.slow.contains(&conn) {
            return false;
        }
        let begin = usize::try_from(range.position).expect("the log is in memory");
        let sent = self.sent.entry(conn).or_default();
        sent.extend_from_slice(head);
        sent.extend_from_slice(&self.log[begin..begin + range.len as usize]);
        true
    }

    fn close(&mut self, conn: ConnId, reason: &str) {
        self.closed.entry(conn).or_insert_with(|| reason.to_owned());
    }

    fn resume(&mut self, conn: ConnId) {
        self.resumed.insert(conn);
    }

    fn known(&mut self, conn: ConnId) {
        self.known.insert(conn);
    }

    fn queued_bytes(&self, _conn: ConnId) -> u64 {
        self.queued
    }

    fn room(&self) -> usize {
        self.room.unwrap_or(usize::MAX)
    }

    fn is_there(&self, _range: Range) -> bool {
        true
    }

    fn delivered(&mut self, messages: u64) {
        self.counted[0] += messages;
    }

    fn dropped(&mut self, messages: u64) {
        self.counted[1] += messages;
    }

    fn fault(&mut self) {
        self.counted[2] += 1;
    }
}
