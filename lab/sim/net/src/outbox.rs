//! The send queue of one end of a connection. Bounded by bytes, by writes and, apart from them, by control messages.

use std::collections::VecDeque;

use rocketring::{Position, Ring};

use crate::config::{SimConfig, planted};
use rocketnet::contract::{SourceRange, WireId};
use rocketnet::wire::{CONTROL_WIRE, HEADER_BYTES, Header};

/// The location of an item's bytes.
enum Source {
    /// In the ring, at `from` and after: read when the network takes them, not before.
    Ring(Ring),
    /// Copied: a control message, or the rest of a range that was detached. Begins at this offset of the item.
    Owned(u64, Vec<u8>),
}

/// A range or a control message.
pub(crate) struct Item {
    pub(crate) wire: WireId,
    pub(crate) more: bool,
    pub(crate) from: Position,
    pub(crate) len: u64,
    /// Bytes of header and body that a stream has taken.
    taken: u64,
    source: Source,
    /// The ring is no longer needed.
    detached: bool,
}

impl Item {
    fn range(wire: WireId, source: SourceRange, more: bool) -> Self {
        let len = source.to - source.from;
        Self {
            wire,
            more,
            from: source.from,
            len,
            taken: 0,
            source: Source::Ring(source.ring),
            detached: false,
        }
    }

    fn control(message: &[u8]) -> Self {
        let source = Source::Owned(0, message.to_vec());
        let len = message.len() as u64;
        Self { wire: CONTROL_WIRE, more: false, from: 0, len, taken: 0, source, detached: false }
    }

    pub(crate) fn is_control(&self) -> bool {
        self.wire == CONTROL_WIRE
    }

    pub(crate) fn to(&self) -> Position {
        self.from + self.len
    }

    /// Body bytes that a stream has taken.
    pub(crate) fn body_taken(&self) -> u64 {
        self.taken.saturating_sub(HEADER_BYTES as u64)
    }

    fn untaken(&self) -> u64 {
        HEADER_BYTES as u64 + self.len - self.taken
    }

    /// Appends body bytes from `offset` on to `out`. A range that was overwritten in its ring yields its present content, as it
    /// would for a network adapter; the marks of such rings reveal it to the reader.
    fn read(&self, offset: u64, size: usize, out: &mut Vec<u8>) {
        match &self.source {
            Source::Ring(ring) => {
                let start = out.len();
                out.resize(start + size, 0);
                let from = self.from + offset;
                let _lapped = ring.view(from, from + size as u64).copy_to(0, &mut out[start..]);
            }
            Source::Owned(base, bytes) => {
                let at = (offset - base) as usize;
                out.extend_from_slice(&bytes[at..at + size]);
            }
        }
    }

    /// The whole body, for a one-sided write.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len as usize);
        self.read(0, self.len as usize, &mut out);
        out
    }

    /// Copies the untaken bytes out of the ring, which is then no longer needed. Returns how many.
    pub(crate) fn detach(&mut self) -> u64 {
        if self.detached || self.is_control() {
            return 0;
        }
        self.detached = true;
        let done = self.body_taken();
        let left = self.len - done;
        if !planted(9) {
            let mut bytes = Vec::with_capacity(left as usize);
            self.read(done, left as usize, &mut bytes);
            self.source = Source::Owned(done, bytes);
        }
        left
    }
}

/// The queue.
#[derive(Default)]
pub(crate) struct Outbox {
    items: VecDeque<Item>,
    /// The first `ready` items were flushed and may leave.
    ready: usize,
    writes: usize,
    controls: usize,
    bytes: u64,
    /// The caller was refused room for this many bytes, and waits for Writable.
    wanted: Option<u64>,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether an item may leave now.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready > 0
    }

    fn free(&self, config: &SimConfig) -> u64 {
        if self.writes >= config.queue_writes { 0 } else { config.queue_bytes.saturating_sub(self.bytes) }
    }

    /// Bytes that a write may have now. After 0 the caller waits for Writable.
    pub(crate) fn room(&mut self, config: &SimConfig) -> u64 {
        let free = self.free(config);
        if free == 0 {
            self.wanted = Some(self.wanted.unwrap_or(0).max(1));
        }
        free
    }

    pub(crate) fn write(
        &mut self,
        config: &SimConfig,
        wire: WireId,
        source: SourceRange,
        more: bool,
    ) -> bool {
        let item = Item::range(wire, source, more);
        if self.writes >= config.queue_writes || item.len > self.free(config) {
            self.wanted = Some(self.wanted.unwrap_or(0).max(item.len.max(1)));
            return false;
        }
        self.writes += 1;
        self.bytes += item.len;
        self.items.push_back(item);
        true
    }

    pub(crate) fn control(&mut self, config: &SimConfig, message: &[u8]) -> bool {
        if self.controls >= config.queue_controls {
            return false;
        }
        self.controls += 1;
        self.items.push_back(Item::control(message));
        true
    }

    /// Everything queued may leave from now on.
    pub(crate) fn flush(&mut self) {
        self.ready = self.items.len();
    }

    /// Whether Writable is due: once half the queue is free, and the write that was refused fits.
    pub(crate) fn becomes_writable(&mut self, config: &SimConfig) -> bool {
        let Some(wanted) = self.wanted else { return false };
        let due = self.free(config) >= wanted.max(config.queue_bytes / 2);
        if due {
            self.wanted = None;
        }
        due
    }

    /// Takes the oldest ready item, whole.
    pub(crate) fn pop(&mut self) -> Option<Item> {
        if self.ready == 0 {
            return None;
        }
        let item = self.items.pop_front()?;
        self.ready -= 1;
        if item.is_control() {
            self.controls -= 1;
        } else {
            self.writes -= 1;
            self.bytes -= item.len;
        }
        Some(item)
    }

    /// Bytes of headers and bodies that may leave now.
    pub(crate) fn ready_bytes(&self) -> u64 {
        self.items.iter().take(self.ready).map(Item::untaken).sum()
    }

    /// Takes up to `size` bytes of headers and bodies, as a socket does.
    pub(crate) fn take(&mut self, mut size: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(size);
        while size > 0 && self.ready > 0 {
            let Some(item) = self.items.front_mut() else { break };
            if item.taken < HEADER_BYTES as u64 {
                let header = Header { wire: item.wire, more: item.more, size: item.len as u32 }.encode();
                let rest = &header[item.taken as usize..];
                let n = rest.len().min(size);
                out.extend_from_slice(&rest[..n]);
                item.taken += n as u64;
                size -= n;
            }
            if item.taken >= HEADER_BYTES as u64 {
                let n = item.untaken().min(size as u64);
                item.read(item.body_taken(), n as usize, &mut out);
                item.taken += n;
                size -= n as usize;
                if item.untaken() == 0 {
                    self.pop();
                }
            }
        }
        out
    }

    /// Copies the queued ranges of `wire` out of their ring.
    pub(crate) fn detach(&mut self, wire: WireId) -> u64 {
        self.items.iter_mut().filter(|item| item.wire == wire).map(Item::detach).sum()
    }

    /// Releases everything: the connection is down.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
