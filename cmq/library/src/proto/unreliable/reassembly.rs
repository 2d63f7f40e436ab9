//! Reassembly of fragmented messages, bounded in memory and in time.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::open_batch::xor_into;
use crate::config::{Config, FRAGMENT_OVERHEAD};
use crate::proto::after;
use crate::proto::recent_map::RecentMap;
use crate::proto::shared_buffer::SharedBuffer;
use crate::proto::timeline::Timeline;
use crate::wire::{Fragment, parity_count};

/// Buffers that are kept for later messages, and the largest of them.
const POOLED_BUFFERS: usize = 32;
const POOLED_BUFFER_BYTES: usize = 64 << 10;
/// A kept buffer is reused for a message of at least half its capacity: a message never pins much more memory
/// than it needs.
const SLACK: usize = 2;

/// The name of a message: sender, epoch, stream and number.
pub(crate) type MessageKey = (SocketAddr, u64, u32, u64);

struct Partial {
    key: MessageKey,
    total: u32,
    /// The length of every fragment but the last.
    size: u16,
    fragments: u32,
    /// The contiguous fragments before `next`.
    bytes: Vec<u8>,
    next: u32,
    /// Fragments that arrived out of order, and parity fragments.
    out_of_order: BTreeMap<u32, Box<[u8]>>,
    charged_bytes: usize,
}

impl Partial {
    fn has(&self, index: u32) -> bool {
        index < self.next || self.out_of_order.contains_key(&index)
    }

    /// Adds a fragment that is not there yet.
    fn insert(&mut self, index: u32, bytes: &[u8]) {
        if index > self.next {
            self.out_of_order.insert(index, bytes.into());
            return;
        }
        self.bytes.extend_from_slice(bytes);
        self.next += 1;
        while self.next < self.fragments
            && let Some(bytes) = self.out_of_order.remove(&self.next)
        {
            self.bytes.extend_from_slice(&bytes);
            self.next += 1;
        }
    }

    /// Recovers the one missing fragment of the parity group of this fragment, if its parity fragment is
    /// here.
    fn recover(&mut self, index: u32) {
        let (fragments, parities) = (self.fragments, parity_count(self.fragments));
        let group = index.checked_sub(fragments).unwrap_or(index % parities);
        if !self.out_of_order.contains_key(&(fragments + group)) {
            return;
        }
        let group_of = || (group..fragments).step_by(parities as usize);
        let mut missing = group_of().filter(|&index| !self.has(index));
        let (Some(missing), None) = (missing.next(), missing.next()) else { return };
        let Some(mut bytes) = self.out_of_order.remove(&(fragments + group)) else { return };
        let size = usize::from(self.size);
        for index in group_of().filter(|&index| index != missing) {
            let at = index as usize * size;
            let here = self.bytes.get(at..).filter(|_| index < self.next);
            let part = here.or_else(|| self.out_of_order.get(&index).map(|bytes| &bytes[..]));
            xor_into(&mut bytes, part.unwrap_or_default());
        }
        let length = size.min(self.total as usize - missing as usize * size);
        self.insert(missing, &bytes[..length]);
    }
}

/// All incomplete messages.
pub(crate) struct Reassembly {
    /// The message begun last, and when. Fragments mostly arrive in a row: such a message is never entered
    /// into the table.
    newest: Option<(Partial, Instant)>,
    partials: RecentMap<MessageKey, Partial>,
    /// Buffers of delivered messages, which the application may still hold. The oldest is first.
    pool: VecDeque<SharedBuffer>,
    started: Timeline,
    bytes: usize,
    max_bytes: usize,
    timeout: Duration,
    max_message: usize,
    /// Messages that were dropped incomplete.
    pub incomplete: u64,
}

/// The result of adding a fragment.
pub(crate) enum Added {
    /// More fragments are missing.
    Incomplete,
    /// The message is complete.
    Complete(SharedBuffer),
    /// The fragment contradicts earlier ones, or its message is too large.
    Rejected,
}

impl Reassembly {
    pub fn new(config: &Config) -> Reassembly {
        Reassembly {
            newest: None,
            partials: RecentMap::new(),
            pool: VecDeque::new(),
            started: Timeline::new(),
            bytes: 0,
            max_bytes: config.fragment_bytes,
            timeout: config.fragment_timeout,
            max_message: config.max_message,
            incomplete: 0,
        }
    }

    /// Adds a fragment of a message whose fragments have `size` bytes.
    pub fn add(&mut self, now: Instant, key: MessageKey, size: u16, fragment: Fragment<'_>) -> Added {
        if fragment.total as usize > self.max_message {
            return Added::Rejected;
        }
        let cost = fragment.bytes.len() + FRAGMENT_OVERHEAD;
        while self.bytes + cost > self.max_bytes {
            if !self.evict_oldest() {
                return Added::Rejected;
            }
        }
        let at = self.find(now, key, size, fragment);
        let partial = self.partial(at);
        if partial.total != fragment.total || partial.size != size {
            return Added::Rejected;
        }
        if partial.has(fragment.index) {
            return Added::Incomplete;
        }
        partial.insert(fragment.index, fragment.bytes);
        partial.charged_bytes += cost;
        if !partial.out_of_order.is_empty() {
            partial.recover(fragment.index);
        }
        let complete = partial.next == fragment.count;
        self.bytes += cost;
        if !complete {
            return Added::Incomplete;
        }
        self.remove(at).map_or(Added::Rejected, |partial| Added::Complete(SharedBuffer::new(partial.bytes)))
    }

    /// The place of the fragment's message, begun if it is new. `None` is `newest`.
    fn find(&mut self, now: Instant, key: MessageKey, size: u16, fragment: Fragment<'_>) -> Option<u32> {
        if self.newest.as_ref().is_some_and(|(newest, _)| newest.key == key) {
            return None;
        }
        if let Some(slot) = self.partials.find(key) {
            return Some(slot);
        }
        if let Some((before, since)) = self.newest.take() {
            let slot = self.partials.insert(before.key, before);
            self.started.push_back(slot, since);
        }
        let Fragment { total, count: fragments, .. } = fragment;
        let (bytes, out_of_order) = (self.buffer(total as usize), BTreeMap::new());
        self.newest = Some((
            Partial { key, total, size, fragments, bytes, next: 0, out_of_order, charged_bytes: 0 },
            now,
        ));
        None
    }

    /// The message at a place that `find` returned.
    fn partial(&mut self, at: Option<u32>) -> &mut Partial {
        let newest = self.newest.as_mut().map(|(newest, _)| newest);
        at.map_or(newest, |slot| self.partials.at(slot).map(|(_, partial)| partial))
            .expect("the slot was just found")
    }

    fn remove(&mut self, at: Option<u32>) -> Option<Partial> {
        let Some(slot) = at else {
            let (partial, _) = self.newest.take()?;
            self.bytes -= partial.charged_bytes;
            return Some(partial);
        };
        let (_, partial) = self.partials.remove_at(slot)?;
        self.started.remove(slot);
        self.bytes -= partial.charged_bytes;
        Some(partial)
    }

    /// The message is lost: frees its fragments.
    pub fn discard(&mut self, key: MessageKey) {
        let newest = self.newest.as_ref().is_some_and(|(newest, _)| newest.key == key);
        let at = if newest { None } else { self.partials.slot(key) };
        if newest || at.is_some() {
            self.incomplete += u64::from(self.remove(at).is_some());
        }
    }

    /// Returns whether there was a message to drop.
    fn evict_oldest(&mut self) -> bool {
        let oldest = self.started.first().map(|(slot, _)| slot);
        let evicted = self.remove(oldest).is_some();
        self.incomplete += u64::from(evicted);
        evicted
    }

    /// A buffer for a message of this size.
    fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let fits =
            |pooled: &mut SharedBuffer| pooled.capacity() <= SLACK * bytes && pooled.get_mut().is_some();
        let at = self.pool.iter_mut().position(fits);
        let pooled = at.and_then(|at| self.pool.remove(at)).and_then(SharedBuffer::into_vec);
        let mut buffer = pooled.unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Keeps the buffer of a delivered message, to be reused once the application has dropped it.
    pub fn recycle(&mut self, message: SharedBuffer) {
        if message.capacity() <= POOLED_BUFFER_BYTES {
            if self.pool.len() == POOLED_BUFFERS {
                self.pool.pop_front();
            }
            self.pool.push_back(message);
        }
    }

    /// Bytes of all fragments, including the overhead of each.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest incomplete message times out.
    pub fn next_deadline(&self) -> Option<Instant> {
        let newest = self.newest.as_ref().map(|&(_, since)| since);
        let oldest = self.started.first().map(|(_, since)| since);
        oldest.or(newest).map(|since| after(since, self.timeout))
    }

    /// Drops the messages that are incomplete for too long.
    pub fn expire(&mut self, now: Instant) {
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.evict_oldest();
        }
    }
}
