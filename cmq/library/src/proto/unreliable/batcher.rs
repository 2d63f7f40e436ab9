//! The sending machine: a batch for each key, which leaves when it is large or old enough.
//!
//! ```text
//!   push(key, message)
//!      │   by_key: key ──▶ slot
//!      ▼
//!   open batch of the key: one buffer, as sent              timeline: the oldest open batch first
//!   ┌────────┬────┬─────┬────┬─────┬───┬────────┬────┬─
//!   │ header │ n  │ msg │ n  │ msg │ 0 │ header │ n  │ …   a second datagram begins where the first is full
//!   └────────┴────┴─────┴────┴─────┴───┴────────┴────┴─
//!      │ qthresh bytes, or `timeout` old
//!      ▼
//!   outgoing queue: numbered batches, in the order in which they leave
//! ```
//!
//! Messages are encoded into the buffer that is sent, so they are not copied again. The exception is a
//! message of a serde type that turns out to begin the next datagram. A key has a batch only while it has
//! pending messages: memory follows the pending messages, not the number of keys.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::destinations::{Destination, Destinations};
use super::open_batch::OpenBatch;
use crate::config::{Config, MIN_DATAGRAM, Oversize};
use crate::error::PushError;
use crate::key::Key;
use crate::proto::outgoing::{Batch, Frame, OutgoingQueue, POOLED_BUFFER_BYTES, segments_per_call};
use crate::proto::timeline::Timeline;
use crate::proto::{SlotTable, after};
use crate::wire::{HEADER_BYTES, Header, Kind, MAX_DATAGRAM, RECORD_BYTES, is_parity, messages_ending_in};

/// Copies of each close datagram, since each may be lost.
pub(crate) const CLOSE_COPIES: usize = 3;

/// The environment of the machine.
pub(crate) trait Environment {
    /// The time.
    fn now(&self) -> Instant;
    /// The largest datagram on the path to an address, in bytes of UDP payload.
    fn path(&self, to: SocketAddr) -> usize;
}

/// A message that is being encoded at the end of a batch. Dropping the guard removes the message unless it
/// was committed, and the batch if it has no other message. This covers a panic in the application's
/// `Serialize`.
struct EncodeGuard<'a> {
    batcher: &'a mut Batcher,
    slot: u32,
    at: usize,
    committed: bool,
}

impl Drop for EncodeGuard<'_> {
    fn drop(&mut self) {
        if !self.committed {
            if let Some(batch) = self.batcher.open.get_mut(self.slot) {
                batch.bytes.truncate(self.at);
            }
            self.batcher.drop_if_empty(self.slot);
        }
    }
}

pub(crate) struct Batcher {
    qthresh: usize,
    qmessages: u64,
    timeout: Duration,
    max_pending: usize,
    oversize: Oversize,
    parity_fragments: bool,
    max_message: usize,
    epoch: u64,
    open: SlotTable<OpenBatch>,
    by_key: HashMap<Key, u32>,
    last: Option<(Key, u32)>,
    timeline: Timeline,
    /// Where batches go when they leave.
    pub queue: OutgoingQueue,
    /// A message that does not fit behind the batch it was encoded into.
    scratch: Vec<u8>,
    destinations: Destinations,
}

impl Batcher {
    pub fn new(config: &Config, epoch: u64) -> Batcher {
        Batcher {
            qthresh: config.qthresh,
            qmessages: config.qmessages.map_or(u64::MAX, |messages| messages as u64),
            timeout: config.timeout,
            max_pending: config.pending_bytes,
            oversize: config.oversize,
            parity_fragments: config.parity_fragments,
            max_message: config.max_message,
            epoch,
            open: SlotTable::new(),
            by_key: HashMap::new(),
            last: None,
            timeline: Timeline::new(),
            queue: OutgoingQueue::new(Frame::new(config.security.is_some())),
            scratch: Vec::new(),
            destinations: Destinations::new(config.max_destinations),
        }
    }

    /// Adds a message that `encode` appends to the buffer.
    ///
    /// Returns false if neither the outgoing queue nor the next deadline can have changed.
    #[inline]
    pub fn push(
        &mut self,
        key: Key,
        env: &impl Environment,
        encode: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> Result<bool, PushError> {
        if self.queue.pending >= self.max_pending {
            return Err(PushError::Full);
        }
        let slot = self.slot_for(key, env);
        let batch = self.open.get_mut(slot).expect("the slot was just found");
        let at = batch.bytes.len();
        batch.bytes.extend_from_slice(&[0; RECORD_BYTES]);
        let mut guard = EncodeGuard { batcher: self, slot, at, committed: false };
        let batch = guard.batcher.open.get_mut(slot).expect("the slot was just found");
        guard.committed = encode(&mut batch.bytes);
        if !guard.committed {
            return Err(PushError::Encode);
        }
        drop(guard);
        let batch = self.open.get_mut(slot).expect("the slot was just found");
        let Some(taken) = batch.commit(at) else {
            let mut message = std::mem::take(&mut self.scratch);
            message.clear();
            message.extend_from_slice(&batch.bytes[at + RECORD_BYTES..]);
            batch.bytes.truncate(at);
            let placed = self.push_slow(slot, &message, env);
            self.scratch = message;
            self.scratch.shrink_to(POOLED_BUFFER_BYTES);
            return placed;
        };
        Ok(self.after_push(slot, taken, env))
    }

    /// As [`Batcher::push`], for a message that is sent as it is.
    #[inline]
    pub fn push_bytes(
        &mut self,
        key: Key,
        env: &impl Environment,
        message: &[u8],
    ) -> Result<bool, PushError> {
        if self.queue.pending >= self.max_pending {
            return Err(PushError::Full);
        }
        let slot = self.slot_for(key, env);
        let batch = self.open.get_mut(slot).expect("the slot was just found");
        match batch.append(message) {
            Some(taken) => Ok(self.after_push(slot, taken, env)),
            None => self.push_slow(slot, message, env),
        }
    }

    /// Accounts for a message of this size in an open batch, with the result of [`Batcher::push`].
    #[inline]
    fn after_push(&mut self, slot: u32, bytes: usize, env: &impl Environment) -> bool {
        self.queue.pending += bytes;
        let batch = self.open.get_mut(slot).expect("the batch has the message");
        if batch.messages > 1 && !batch.is_full(self.qthresh, self.qmessages) {
            return false;
        }
        self.seal_if_full(slot, env);
        true
    }

    /// The open batch of a key, opened if there is none.
    fn slot_for(&mut self, key: Key, env: &impl Environment) -> u32 {
        if let Some((last, slot)) = self.last
            && last == key
        {
            return slot;
        }
        // With no timeout each batch leaves at once: neither its key nor its age is ever looked up.
        let found = if self.timeout.is_zero() { None } else { self.by_key.get(&key).copied() };
        let slot = match found {
            Some(slot) => slot,
            None => {
                let batch = OpenBatch::new(key, self.queue.frame, self.queue.buffer());
                let slot = self.open.insert(batch);
                if !self.timeout.is_zero() {
                    self.by_key.insert(key, slot);
                    self.timeline.push_back(slot, env.now());
                }
                slot
            }
        };
        self.last = Some((key, slot));
        slot
    }

    fn seal_if_full(&mut self, slot: u32, env: &impl Environment) {
        let Some(batch) = self.open.get_mut(slot) else { return };
        if batch.is_full(self.qthresh, self.qmessages) || self.timeout.is_zero() {
            self.seal(slot, env.now());
        }
    }

    /// The slow path of a push: the message may not fit into the last datagram. Asks for the path's limit,
    /// then appends to this batch or to a new one.
    fn push_slow(&mut self, slot: u32, message: &[u8], env: &impl Environment) -> Result<bool, PushError> {
        let &mut OpenBatch { key, path_limit, .. } =
            self.open.get_mut(slot).expect("the caller has found the slot");
        let limit = path_limit.unwrap_or_else(|| self.path_limit(key.addr, env));
        let large = self.queue.frame.bytes() + HEADER_BYTES + RECORD_BYTES + message.len() > limit;
        if large && let Err(error) = self.check_size(message.len(), limit) {
            self.drop_if_empty(slot);
            return Err(error);
        }
        let parity = self.parity_fragments;
        let put = |batch: &mut OpenBatch| {
            batch.path_limit = Some(limit);
            if large {
                batch.append_fragments(message, limit, parity)
            } else {
                batch.append_within(message, limit)
            }
        };
        let (mut slot, mut taken) =
            (slot, put(self.open.get_mut(slot).expect("the caller has found the slot")));
        if taken.is_none() {
            self.seal(slot, env.now());
            slot = self.slot_for(key, env);
            taken = put(self.open.get_mut(slot).expect("the batch was just opened"));
        }
        self.queue.pending += taken.expect("an empty batch takes every message");
        self.seal_if_full(slot, env);
        Ok(true)
    }

    fn check_size(&self, size: usize, limit: usize) -> Result<(), PushError> {
        let one = limit - self.queue.frame.bytes() - HEADER_BYTES - RECORD_BYTES;
        let max =
            if self.oversize == Oversize::Reject { one.min(self.max_message) } else { self.max_message };
        if size > max { Err(PushError::TooLarge { size, limit: max }) } else { Ok(()) }
    }

    /// The largest datagram to an address, from the cache or from the environment.
    fn path_limit(&mut self, to: SocketAddr, env: &impl Environment) -> usize {
        if let Some(limit) = self.destinations.find(to).and_then(|known| known.datagram_limit) {
            return limit;
        }
        let (destination, evicted) = self.destinations.get_or_begin(to, env.now());
        let limit = env.path(to).clamp(MIN_DATAGRAM, MAX_DATAGRAM);
        destination.datagram_limit = Some(limit);
        if let Some(ended) = evicted {
            self.push_close(&ended);
        }
        limit
    }

    /// A datagram was too large for the path: forget the cached limit.
    pub fn path_changed(&mut self, to: SocketAddr) {
        if let Some(destination) = self.destinations.find(to) {
            destination.datagram_limit = None;
        }
    }

    /// Closes an open batch: numbers its messages and moves it to the outgoing queue.
    fn seal(&mut self, slot: u32, now: Instant) {
        let Some(mut batch) = self.open.remove(slot) else { return };
        self.unlink(slot, &batch.key);
        if batch.messages == 0 {
            return self.queue.recycle(batch.bytes);
        }
        batch.finish();
        let head = self.queue.frame.head;
        let OpenBatch { key, mut bytes, segment, fragmented, payload, messages, .. } = batch;
        let segment = segment.unwrap_or(bytes.len());
        let (destination, evicted) = self.destinations.get_or_begin(key.addr, now);
        for framed in bytes.chunks_mut(segment) {
            let datagram = &mut framed[head..];
            let header = Header {
                kind: if fragmented { Kind::Fragment } else { Kind::Batch },
                count: u16::from_le_bytes([datagram[2], datagram[3]]),
                stream: destination.stream,
                epoch: self.epoch,
                // A parity fragment follows the last fragment of its message, whose number is already used.
                first: destination.next_number - u64::from(fragmented && is_parity(datagram)),
                mailbox: key.id,
            };
            datagram[..HEADER_BYTES].copy_from_slice(&header.encode());
            destination.next_number += messages_ending_in(datagram);
        }
        if let Some(ended) = evicted {
            self.push_close(&ended);
        }
        // From here on headers and padding count as pending memory too.
        self.queue.pending += bytes.len() - payload;
        let max_bytes = segments_per_call(segment) * segment;
        if bytes.len() <= max_bytes {
            return self.queue.push(Batch::new(key.addr, self.queue.frame, bytes, segment, messages));
        }
        // A single message larger than one call can send.
        for part in bytes.chunks(max_bytes) {
            let messages = part.chunks(segment).map(|framed| messages_ending_in(&framed[head..])).sum();
            let (bytes, segment) = (part.to_vec(), segment.min(part.len()));
            self.queue.push(Batch::new(key.addr, self.queue.frame, bytes, segment, messages));
        }
    }

    /// Reports to the receivers of a stream how many messages it had.
    fn push_close(&mut self, ended: &Destination) {
        if ended.next_number == 0 {
            return;
        }
        let header = Header {
            kind: Kind::Close,
            count: 0,
            stream: ended.stream,
            epoch: self.epoch,
            first: ended.next_number,
            mailbox: 0,
        };
        for _ in 0..CLOSE_COPIES {
            self.queue.push_plain(ended.to, &header.encode());
        }
    }

    fn drop_if_empty(&mut self, slot: u32) {
        if self.open.get_mut(slot).is_some_and(|batch| batch.messages == 0) {
            let batch = self.open.remove(slot).expect("the batch was just found");
            self.unlink(slot, &batch.key);
            self.queue.recycle(batch.bytes);
        }
    }

    /// Removes the references to an open batch.
    fn unlink(&mut self, slot: u32, key: &Key) {
        if !self.timeout.is_zero() {
            self.by_key.remove(key);
            self.timeline.remove(slot);
        }
        self.last = None;
    }

    /// When the oldest open batch must leave.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timeline.first().map(|(_, since)| after(since, self.timeout))
    }

    /// Seals the batches that are old enough.
    pub fn expire(&mut self, now: Instant) {
        while let Some((slot, since)) = self.timeline.first()
            && after(since, self.timeout) <= now
        {
            self.seal(slot, now);
        }
    }

    /// Seals all open batches.
    pub fn flush(&mut self, now: Instant) {
        while let Some((slot, _)) = self.timeline.first() {
            self.seal(slot, now);
        }
    }

    /// Seals all open batches and closes all streams.
    pub fn close_all(&mut self, now: Instant) {
        self.flush(now);
        for ended in self.destinations.drain() {
            self.push_close(&ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    struct World;

    impl Environment for World {
        fn now(&self) -> Instant {
            Instant::now()
        }

        fn path(&self, _: SocketAddr) -> usize {
            MIN_DATAGRAM
        }
    }

    /// No failed push leaves an open batch behind.
    #[test]
    fn a_push_that_fails_leaves_no_queue() {
        let to = |port| Key::new(SocketAddr::from(([127, 0, 0, 1], port)), 0);
        let good = |out: &mut Vec<u8>| {
            out.push(7);
            true
        };
        let panics = |_: &mut Vec<u8>| -> bool { panic!("this panic is part of the test") };
        for timeout in [Duration::ZERO, Duration::MAX] {
            let mut batcher = Batcher::new(&Config::default().qthresh(512).timeout(timeout), 1);
            let mut fails = |port, encode: fn(&mut Vec<u8>) -> bool| {
                let push = || batcher.push(to(port), &World, encode);
                assert!(!matches!(catch_unwind(AssertUnwindSafe(push)), Ok(Ok(_))));
                let left = (batcher.open.len(), batcher.by_key.len(), batcher.timeline.first());
                assert_eq!((left, batcher.last), ((0, 0, None), None), "{timeout:?}");
            };
            fails(1, panics);
            fails(2, |_| false);
            fails(3, |out| {
                out.resize(2 << 20, 0);
                true
            });
            batcher.push(to(4), &World, good).expect("room");
            assert_eq!(batcher.queue.ready().len(), usize::from(timeout.is_zero()));
        }
    }
}
