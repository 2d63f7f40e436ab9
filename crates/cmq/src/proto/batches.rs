//! The sending machine: one queue for each key, which leaves as a batch when it is large or old enough.
//!
//! ```text
//!   push(key, message)
//!      │   by_key: key ──▶ slot
//!      ▼
//!   queue of the key: one buffer, as it will travel         timeline: the oldest queue first
//!   ┌────────┬────┬─────┬────┬─────┬───┬────────┬────┬─
//!   │ header │ n  │ msg │ n  │ msg │ 0 │ header │ n  │ …   a second datagram begins where the first is full
//!   └────────┴────┴─────┴────┴─────┴───┴────────┴────┴─
//!      │ qthresh bytes, or `timeout` old
//!      ▼
//!   ready: batches with their numbers, in the order in which they leave
//! ```
//!
//! Messages are encoded into the buffer that is sent, so nothing is copied after that, but for one of a serde type that turns
//! out to begin another datagram. A queue exists only while it has messages: memory follows what is pending, not how many
//! keys there ever were.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::destinations::{Destination, Destinations};
use super::due::{Batch, Due};
use super::queue::{Queue, at_once};
use super::timeline::Timeline;
use super::{Slots, after};
use crate::config::{Config, Large, MIN_DATAGRAM};
use crate::error::PushError;
use crate::key::Key;
use crate::wire::{HEADER_BYTES, Header, Kind, MAX_DATAGRAM, RECORD_BYTES, ends, is_spare};

/// Datagrams of one batch: the kernel cuts at most 64 at once.
pub(crate) const MAX_SEGMENTS: usize = 64;
/// How often the end of a stream is told, as each may be lost.
pub(crate) const CLOSE_COPIES: usize = 3;
/// Buffers that are kept for the next queues.
const SPARE_BUFFERS: usize = 64;
/// The largest of them: what one has grown to for as much as leaves in one call.
const SPARE_BYTES: usize = 1 << 17;

/// What the machine asks its surroundings for.
pub(crate) trait Outside {
    /// The time.
    fn now(&self) -> Instant;
    /// The largest datagram on the path to an address, in bytes of UDP payload.
    fn path(&self, to: SocketAddr) -> usize;
}

/// A message that is being encoded at the end of a queue: taken back if it does not become whole, with the queue if that
/// has no other, also where the application's `Serialize` panics.
struct Attempt<'a> {
    batches: &'a mut Batches,
    slot: u32,
    at: usize,
    whole: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.whole {
            if let Some(queue) = self.batches.queues.get_mut(self.slot) {
                queue.bytes.truncate(self.at);
            }
            self.batches.drop_if_empty(self.slot);
        }
    }
}

pub(crate) struct Batches {
    qthresh: usize,
    qmessages: u64,
    timeout: Duration,
    pending_limit: usize,
    large: Large,
    spare_pieces: bool,
    max_message: usize,
    epoch: u64,
    queues: Slots<Queue>,
    by_key: HashMap<Key, u32>,
    last: Option<(Key, u32)>,
    timeline: Timeline,
    pending: usize,
    ready: VecDeque<Batch>,
    spare: Vec<Vec<u8>>,
    /// Where a message is that was encoded and has to go elsewhere.
    encoded: Vec<u8>,
    destinations: Destinations,
}

impl Batches {
    pub fn new(config: &Config, epoch: u64) -> Batches {
        Batches {
            qthresh: config.qthresh,
            qmessages: config.qmessages as u64,
            timeout: config.timeout,
            pending_limit: config.pending_bytes,
            large: config.large,
            spare_pieces: config.spare_pieces,
            max_message: config.max_message,
            epoch,
            queues: Slots::new(),
            by_key: HashMap::new(),
            last: None,
            timeline: Timeline::new(),
            pending: 0,
            ready: VecDeque::new(),
            spare: Vec::new(),
            encoded: Vec::new(),
            destinations: Destinations::new(config.max_destinations),
        }
    }

    /// Takes a message that `encode` appends; whether [`Batches::ready`] may have something now, or the next deadline be
    /// another one.
    #[inline]
    pub fn push(
        &mut self,
        key: Key,
        outside: &impl Outside,
        encode: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> Result<bool, PushError> {
        if self.pending >= self.pending_limit {
            return Err(PushError::Full);
        }
        let slot = self.slot(key, outside);
        let queue = self.queues.get_mut(slot).expect("the slot was just found");
        let at = queue.bytes.len();
        queue.bytes.extend_from_slice(&[0; RECORD_BYTES]);
        let mut attempt = Attempt { batches: self, slot, at, whole: false };
        let queue = attempt.batches.queues.get_mut(slot).expect("the slot was just found");
        attempt.whole = encode(&mut queue.bytes);
        if !attempt.whole {
            return Err(PushError::Encode);
        }
        drop(attempt);
        let queue = self.queues.get_mut(slot).expect("the slot was just found");
        let Some(taken) = queue.take(at) else {
            let mut message = std::mem::take(&mut self.encoded);
            message.clear();
            message.extend_from_slice(&queue.bytes[at + RECORD_BYTES..]);
            queue.bytes.truncate(at);
            let placed = self.place(slot, &message, outside);
            self.encoded = message;
            self.encoded.shrink_to(SPARE_BYTES);
            return placed;
        };
        Ok(self.pushed(slot, taken, outside))
    }

    /// As [`Batches::push`], for bytes that are what travels.
    #[inline]
    pub fn push_bytes(
        &mut self,
        key: Key,
        outside: &impl Outside,
        message: &[u8],
    ) -> Result<bool, PushError> {
        if self.pending >= self.pending_limit {
            return Err(PushError::Full);
        }
        let slot = self.slot(key, outside);
        let queue = self.queues.get_mut(slot).expect("the slot was just found");
        match queue.append(message) {
            Some(taken) => Ok(self.pushed(slot, taken, outside)),
            None => self.place(slot, message, outside),
        }
    }

    /// A message of so many bytes was added to a queue; as [`Batches::push`] says it.
    #[inline]
    fn pushed(&mut self, slot: u32, bytes: usize, outside: &impl Outside) -> bool {
        self.pending += bytes;
        let queue = self.queues.get_mut(slot).expect("it has the message");
        if queue.messages > 1 && !queue.is_full(self.qthresh, self.qmessages) {
            return false;
        }
        self.leave_if_full(slot, outside);
        true
    }

    /// The queue of a key.
    fn slot(&mut self, key: Key, outside: &impl Outside) -> u32 {
        if let Some((last, slot)) = self.last
            && last == key
        {
            return slot;
        }
        // With no timeout every queue leaves at once: nobody looks for it, or asks for its age.
        let found = if self.timeout.is_zero() { None } else { self.by_key.get(&key).copied() };
        let slot = match found {
            Some(slot) => slot,
            None => {
                let mut bytes = self.spare.pop().unwrap_or_default();
                bytes.resize(HEADER_BYTES, 0);
                let queue = Queue::new(key, bytes);
                let slot = self.queues.insert(queue);
                if !self.timeout.is_zero() {
                    self.by_key.insert(key, slot);
                    self.timeline.push_back(slot, outside.now());
                }
                slot
            }
        };
        self.last = Some((key, slot));
        slot
    }

    fn leave_if_full(&mut self, slot: u32, outside: &impl Outside) {
        let Some(queue) = self.queues.get_mut(slot) else { return };
        if queue.is_full(self.qthresh, self.qmessages) || self.timeout.is_zero() {
            self.seal(slot, outside.now());
        }
    }

    /// A message does not fit into what is surely free: finds out what is, and where it goes.
    fn place(&mut self, slot: u32, message: &[u8], outside: &impl Outside) -> Result<bool, PushError> {
        let &mut Queue { key, limit, .. } = self.queues.get_mut(slot).expect("the caller found it");
        let limit = limit.unwrap_or_else(|| self.limit(key.addr, outside));
        let large = HEADER_BYTES + RECORD_BYTES + message.len() > limit;
        if large && let Err(error) = self.check_size(message.len(), limit) {
            self.drop_if_empty(slot);
            return Err(error);
        }
        let spare = self.spare_pieces;
        let put = |queue: &mut Queue| {
            queue.limit = Some(limit);
            if large { queue.cut(message, limit, spare) } else { queue.fit(message, limit) }
        };
        let (mut slot, mut taken) = (slot, put(self.queues.get_mut(slot).expect("the caller found it")));
        if taken.is_none() {
            self.seal(slot, outside.now());
            slot = self.slot(key, outside);
            taken = put(self.queues.get_mut(slot).expect("it was just made"));
        }
        self.pending += taken.expect("it has nothing else");
        self.leave_if_full(slot, outside);
        Ok(true)
    }

    fn check_size(&self, size: usize, limit: usize) -> Result<(), PushError> {
        let one = limit - HEADER_BYTES - RECORD_BYTES;
        let most = if self.large == Large::Refuse { one.min(self.max_message) } else { self.max_message };
        if size > most { Err(PushError::TooLarge { size, limit: most }) } else { Ok(()) }
    }

    /// The largest datagram to an address.
    fn limit(&mut self, to: SocketAddr, outside: &impl Outside) -> usize {
        if let Some(limit) = self.destinations.find(to).and_then(|known| known.limit) {
            return limit;
        }
        let (destination, given_up) = self.destinations.get(to, outside.now());
        let limit = outside.path(to).clamp(MIN_DATAGRAM, MAX_DATAGRAM);
        destination.limit = Some(limit);
        if let Some(gone) = given_up {
            self.close(&gone);
        }
        limit
    }

    /// The path to an address carries less than was believed: asks again when it matters.
    pub fn path_changed(&mut self, to: SocketAddr) {
        if let Some(destination) = self.destinations.find(to) {
            destination.limit = None;
        }
    }

    /// A queue leaves: it gets its numbers, and its key has none any more.
    fn seal(&mut self, slot: u32, now: Instant) {
        let Some(queue) = self.queues.remove(slot) else { return };
        self.forget(slot, &queue.key);
        if queue.messages == 0 {
            return self.keep(queue.bytes);
        }
        let Queue { key, mut bytes, start, count, segment, cut, payload, messages, .. } = queue;
        if !cut {
            bytes[start + 2..start + 4].copy_from_slice(&count.to_le_bytes());
        }
        let segment = segment.unwrap_or(bytes.len());
        let (destination, given_up) = self.destinations.get(key.addr, now);
        for datagram in bytes.chunks_mut(segment) {
            let header = Header {
                kind: if cut { Kind::Fragment } else { Kind::Batch },
                count: u16::from_le_bytes([datagram[2], datagram[3]]),
                stream: destination.stream,
                epoch: self.epoch,
                // What is spare follows the last piece of its message.
                first: destination.next - u64::from(cut && is_spare(datagram)),
                mailbox: key.id,
            };
            datagram[..HEADER_BYTES].copy_from_slice(&header.encode());
            destination.next += ends(datagram);
        }
        if let Some(gone) = given_up {
            self.close(&gone);
        }
        // Headers and padding count too from here on: they are memory that waits.
        self.pending += bytes.len() - payload;
        let most = at_once(segment) * segment;
        if bytes.len() <= most {
            return self.ready.push_back(Batch { to: key.addr, bytes, segment, messages, left: 0 });
        }
        // A single message that is larger than what leaves in one call.
        for part in bytes.chunks(most) {
            let messages = part.chunks(segment).map(ends).sum();
            let (bytes, segment) = (part.to_vec(), segment.min(part.len()));
            self.ready.push_back(Batch { to: key.addr, bytes, segment, messages, left: 0 });
        }
    }

    /// Tells the receivers of a stream how many messages it had.
    fn close(&mut self, gone: &Destination) {
        if gone.next == 0 {
            return;
        }
        let header = Header {
            kind: Kind::Close,
            count: 0,
            stream: gone.stream,
            epoch: self.epoch,
            first: gone.next,
            mailbox: 0,
        };
        for _ in 0..CLOSE_COPIES {
            self.pending += HEADER_BYTES;
            let bytes = header.encode().to_vec();
            let (to, segment) = (gone.to, HEADER_BYTES);
            self.ready.push_back(Batch { to, bytes, segment, messages: 0, left: 0 });
        }
    }

    fn drop_if_empty(&mut self, slot: u32) {
        if self.queues.get_mut(slot).is_some_and(|queue| queue.messages == 0) {
            let queue = self.queues.remove(slot).expect("it was just seen");
            self.forget(slot, &queue.key);
            self.keep(queue.bytes);
        }
    }

    /// A queue is no more.
    fn forget(&mut self, slot: u32, key: &Key) {
        if !self.timeout.is_zero() {
            self.by_key.remove(key);
            self.timeline.remove(slot);
        }
        self.last = None;
    }

    /// When the oldest queue must leave.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timeline.first().map(|(_, since)| after(since, self.timeout))
    }

    /// Queues that are old enough leave.
    pub fn expire(&mut self, now: Instant) {
        while let Some((slot, since)) = self.timeline.first()
            && after(since, self.timeout) <= now
        {
            self.seal(slot, now);
        }
    }

    /// All queues leave now.
    pub fn flush(&mut self, now: Instant) {
        while let Some((slot, _)) = self.timeline.first() {
            self.seal(slot, now);
        }
    }

    /// All queues leave, and all streams end.
    pub fn close_all(&mut self, now: Instant) {
        self.flush(now);
        for gone in self.destinations.drain() {
            self.close(&gone);
        }
    }

    /// What leaves next.
    pub fn ready(&self) -> &VecDeque<Batch> {
        &self.ready
    }

    /// Takes out everything that is ready. Nothing else may be taken before it is [given back](Batches::back).
    pub fn take(&mut self) -> Due {
        Due::new(std::mem::take(&mut self.ready))
    }

    /// What was taken out: what was not done with leaves before everything else.
    pub fn back(&mut self, due: Due) {
        for batch in due.back(&mut self.ready) {
            self.pending -= batch.bytes.len();
            self.keep(batch.bytes);
        }
    }

    /// Bytes that wait.
    pub fn pending(&self) -> usize {
        self.pending
    }

    fn keep(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS && bytes.capacity() <= SPARE_BYTES {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    struct World;

    impl Outside for World {
        fn now(&self) -> Instant {
            Instant::now()
        }

        fn path(&self, _: SocketAddr) -> usize {
            MIN_DATAGRAM
        }
    }

    /// Whatever becomes of a message that is not taken, no queue is kept for it.
    #[test]
    fn a_push_that_fails_leaves_no_queue() {
        let to = |port| Key::new(SocketAddr::from(([127, 0, 0, 1], port)), 0);
        let good = |out: &mut Vec<u8>| {
            out.push(7);
            true
        };
        let panics = |_: &mut Vec<u8>| -> bool { panic!("this panic is part of the test") };
        for timeout in [Duration::ZERO, Duration::MAX] {
            let mut batches = Batches::new(&Config::default().batches(512, timeout), 1);
            let mut fails = |port, encode: fn(&mut Vec<u8>) -> bool| {
                let push = || batches.push(to(port), &World, encode);
                assert!(!matches!(catch_unwind(AssertUnwindSafe(push)), Ok(Ok(_))));
                let left = (batches.queues.len(), batches.by_key.len(), batches.timeline.first());
                assert_eq!((left, batches.last), ((0, 0, None), None), "{timeout:?}");
            };
            fails(1, panics);
            fails(2, |_| false);
            fails(3, |out| {
                out.resize(2 << 20, 0);
                true
            });
            batches.push(to(4), &World, good).expect("room");
            assert_eq!(batches.ready().len(), usize::from(timeout.is_zero()));
        }
    }
}
