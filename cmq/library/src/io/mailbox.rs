//! Messages that wait to be popped. A mailbox is bounded, and has two halves, so that a popping and a
//! receiving thread seldom contend.
//!
//! ```text
//!   receive ──▶ staged ──▶ inbox (its lock: once for each receiving call)
//!                            │  taken as a whole when `ready` is empty
//!                            ▼
//!                          ready (its lock: once for each pop) ──▶ pop, pop_all
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use super::lock;
use crate::codec::{Codec, CopyArena, Payload};
use crate::config::{Config, OverflowPolicy};
use crate::key::Key;
use crate::proto::shared_buffer::SharedBuffer;
use crate::proto::sink::{Dropped, Room};
use crate::wire::Messages;

struct Queued<T> {
    message: T,
    from: Key,
    bytes: u32,
}

struct Inbox<T> {
    items: VecDeque<Queued<T>>,
    /// Threads that sleep until a message arrives.
    sleepers: usize,
    /// Tasks that wait for a message.
    wakers: Vec<Waker>,
}

/// Messages of one receive call for one mailbox, until they are committed together.
pub(crate) struct Staged<T> {
    items: VecDeque<Queued<T>>,
    bytes: usize,
    copies: CopyArena,
}

impl<T> Staged<T> {
    pub fn new() -> Staged<T> {
        Staged { items: VecDeque::new(), bytes: 0, copies: CopyArena::default() }
    }
}

/// The most messages that are staged.
const MAX_STAGED: usize = 4096;

/// Messages that were popped together, as an iterator. The iterator starts empty; [`Cmq::pop_all`](crate::Cmq::pop_all)
/// fills it again and again.
pub struct Popped<T> {
    items: VecDeque<Queued<T>>,
}

impl<T> Default for Popped<T> {
    fn default() -> Popped<T> {
        Popped { items: VecDeque::new() }
    }
}

impl<T> std::fmt::Debug for Popped<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Popped").field("len", &self.items.len()).finish()
    }
}

impl<T> Iterator for Popped<T> {
    type Item = (T, Key);

    #[inline]
    fn next(&mut self) -> Option<(T, Key)> {
        self.items.pop_front().map(|item| (item.message, item.from))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.items.len(), Some(self.items.len()))
    }
}

impl<T> ExactSizeIterator for Popped<T> {}

/// How many pops share one update of the counters that the receiving thread reads.
const SETTLE_EVERY: usize = 64;

struct Ready<T> {
    items: VecDeque<Queued<T>>,
    /// Popped messages that the counters still include.
    popped: usize,
    popped_bytes: usize,
}

/// The messages of one mailbox.
pub(crate) struct MailboxQueue<T> {
    inbox: Mutex<Inbox<T>>,
    ready: Mutex<Ready<T>>,
    arrived: Condvar,
    /// Counts the commits.
    commits: AtomicU64,
    /// Messages in both halves and their bytes, as encoded. They may exceed the truth by [`SETTLE_EVERY`]
    /// messages.
    messages: AtomicUsize,
    bytes: AtomicUsize,
    max_messages: usize,
    max_bytes: usize,
    overflow: OverflowPolicy,
    /// True once a selective pop was made, which leaves other messages in place.
    selective: AtomicBool,
}

impl<T> MailboxQueue<T> {
    pub fn new(config: &Config) -> MailboxQueue<T> {
        MailboxQueue {
            inbox: Mutex::new(Inbox { items: VecDeque::new(), sleepers: 0, wakers: Vec::new() }),
            ready: Mutex::new(Ready { items: VecDeque::new(), popped: 0, popped_bytes: 0 }),
            arrived: Condvar::new(),
            commits: AtomicU64::new(0),
            messages: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            max_messages: config.mailbox_messages,
            max_bytes: config.mailbox_bytes,
            overflow: config.overflow,
            selective: AtomicBool::new(false),
        }
    }

    /// Decodes received messages and stages them. They can be popped once they are
    /// [committed](MailboxQueue::commit).
    pub fn stage(
        &self,
        staged: &mut Staged<T>,
        from: Key,
        messages: Messages<'_>,
        buffer: Option<&SharedBuffer>,
        codec: Codec<T>,
    ) -> Dropped {
        let more = staged.items.len() + messages.len();
        if self.messages.load(Ordering::Relaxed) + more > self.max_messages {
            self.len();
        }
        let mut dropped = Dropped::default();
        let mut had = self.messages.load(Ordering::Relaxed) + staged.items.len();
        let mut had_bytes = self.bytes.load(Ordering::Relaxed) + staged.bytes;
        let fits = self.fits(had, had_bytes, &messages);
        // With selective pops a message may stay for long. Copies are then not shared, so that it pins no
        // other datagram.
        let shares = !self.selective.load(Ordering::Relaxed);
        let (buffer, copies) = if shares { (buffer, Some(&mut staged.copies)) } else { (None, None) };
        let mut shared = Payload::new(messages.as_bytes(), fits, buffer, copies);
        for message in messages.iter() {
            let bytes = message.len();
            let full = had >= self.max_messages || had_bytes + bytes > self.max_bytes;
            if full && self.overflow == OverflowPolicy::DropNewest {
                dropped.overflowed += 1;
                continue;
            }
            let Some(message) = (codec.decode)(message, &mut shared) else {
                dropped.undecodable += 1;
                continue;
            };
            staged.items.push_back(Queued { message, from, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
            (had, had_bytes) = (had + 1, had_bytes + bytes);
            staged.bytes += bytes;
        }
        if self.overflow == OverflowPolicy::DropOldest {
            self.commit(staged);
            dropped.overflowed += self.drop_oldest();
        } else if staged.items.len() >= MAX_STAGED {
            self.commit(staged);
        }
        dropped
    }

    /// Makes the staged messages available.
    pub fn commit(&self, staged: &mut Staged<T>) {
        staged.copies = CopyArena::default();
        let (added, added_bytes) = (staged.items.len(), std::mem::take(&mut staged.bytes));
        if added == 0 {
            return;
        }
        let mut inbox = lock(&self.inbox);
        if inbox.items.is_empty() {
            std::mem::swap(&mut inbox.items, &mut staged.items);
        } else {
            inbox.items.append(&mut staged.items);
        }
        self.messages.fetch_add(added, Ordering::Relaxed);
        self.bytes.fetch_add(added_bytes, Ordering::Relaxed);
        // Pairs with the acquire in `commits`: a thread that sees this count finds the messages.
        self.commits.fetch_add(1, Ordering::Release);
        let (wakers, sleepers) = (std::mem::take(&mut inbox.wakers), inbox.sleepers);
        drop(inbox);
        // Outside the lock: wakers run code of the async runtime.
        wakers.into_iter().for_each(Waker::wake);
        match sleepers {
            0 => {}
            1 => self.arrived.notify_one(),
            _ => self.arrived.notify_all(),
        }
    }

    /// True if all these messages will be kept. The buffer they lie in is then no larger than the mailbox may
    /// hold.
    fn fits(&self, had: usize, had_bytes: usize, messages: &Messages<'_>) -> bool {
        // Dropping the oldest messages makes room for as many as the mailbox may hold.
        let (had, had_bytes) = match self.overflow {
            OverflowPolicy::DropNewest => (had, had_bytes),
            OverflowPolicy::DropOldest => (0, 0),
        };
        had + messages.len() <= self.max_messages && had_bytes + messages.as_bytes().len() <= self.max_bytes
    }

    /// Drops the oldest messages until the mailbox is within its limits. Returns how many.
    fn drop_oldest(&self) -> u64 {
        let over = || {
            self.messages.load(Ordering::Relaxed) > self.max_messages
                || self.bytes.load(Ordering::Relaxed) > self.max_bytes
        };
        let mut count = 0;
        self.len();
        while over() && self.pop().is_some() {
            self.len();
            count += 1;
        }
        count
    }

    /// The oldest message.
    #[inline]
    pub fn pop(&self) -> Option<(T, Key)> {
        let mut ready = self.lock_ready()?;
        let item = ready.items.pop_front()?;
        Some(self.count_popped(&mut ready, item))
    }

    /// Locks the half that is popped from, refilled from the inbox if it was empty. `None` if the mailbox is
    /// empty.
    #[inline]
    fn lock_ready(&self) -> Option<MutexGuard<'_, Ready<T>>> {
        let mut ready = lock(&self.ready);
        if ready.items.is_empty() {
            self.settle(&mut ready);
            // The receiving thread updates the count before it releases the inbox.
            if self.messages.load(Ordering::Relaxed) == 0 {
                return None;
            }
            std::mem::swap(&mut ready.items, &mut lock(&self.inbox).items);
        }
        Some(ready)
    }

    /// Takes all messages of the `ready` half, refilled if it was empty. `None` if the mailbox is empty.
    /// `into` is empty, and its memory is reused.
    pub fn pop_all(&self, into: &mut Popped<T>) -> Option<()> {
        let mut ready = self.lock_ready()?;
        std::mem::swap(&mut ready.items, &mut into.items);
        ready.popped += into.items.len();
        ready.popped_bytes += into.items.iter().map(|item| item.bytes as usize).sum::<usize>();
        self.settle(&mut ready);
        (!into.items.is_empty()).then_some(())
    }

    /// The oldest message that `wanted` accepts.
    pub fn pop_where(&self, wanted: &mut dyn FnMut(&T, &Key) -> bool) -> Option<(T, Key)> {
        self.selective.store(true, Ordering::Relaxed);
        let mut ready = lock(&self.ready);
        ready.items.append(&mut lock(&self.inbox).items);
        let at = ready.items.iter().position(|item| wanted(&item.message, &item.from))?;
        let item = ready.items.remove(at)?;
        Some(self.count_popped(&mut ready, item))
    }

    #[inline]
    fn count_popped(&self, ready: &mut Ready<T>, item: Queued<T>) -> (T, Key) {
        ready.popped += 1;
        ready.popped_bytes += item.bytes as usize;
        if ready.popped == SETTLE_EVERY {
            self.settle(ready);
        }
        (item.message, item.from)
    }

    /// Subtracts popped messages from the counters.
    fn settle(&self, ready: &mut Ready<T>) {
        self.messages.fetch_sub(std::mem::take(&mut ready.popped), Ordering::Relaxed);
        self.bytes.fetch_sub(std::mem::take(&mut ready.popped_bytes), Ordering::Relaxed);
    }

    /// The room that is left, beside the staged messages.
    pub fn room(&self, staged: Option<&Staged<T>>) -> Room {
        let (messages, bytes) = staged.map_or((0, 0), |staged| (staged.items.len(), staged.bytes));
        let had = self.messages.load(Ordering::Relaxed) + messages;
        if had + SETTLE_EVERY > self.max_messages || self.bytes.load(Ordering::Relaxed) > self.max_bytes / 2 {
            self.len();
        }
        let had = self.messages.load(Ordering::Relaxed) + messages;
        let had_bytes = self.bytes.load(Ordering::Relaxed) + bytes;
        // A message that is larger than an empty mailbox would wait for ever: it is dropped as every other one.
        let bytes = if had == 0 { usize::MAX } else { self.max_bytes.saturating_sub(had_bytes) };
        Room { messages: self.max_messages.saturating_sub(had), bytes }
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.settle(&mut lock(&self.ready));
        self.messages.load(Ordering::Relaxed)
    }

    /// The number of commits. Read it before the last look at the mailbox ahead of [`MailboxQueue::sleep`].
    pub fn commits(&self) -> u64 {
        // Pairs with the release in `commit`.
        self.commits.load(Ordering::Acquire)
    }

    /// Sleeps until the number of commits differs from `seen`, or until then. Messages committed in between
    /// may be in either half: another pop may have taken the whole inbox.
    pub fn sleep(&self, seen: u64, until: Option<Instant>) {
        let mut inbox = lock(&self.inbox);
        if self.commits.load(Ordering::Relaxed) != seen {
            return;
        }
        inbox.sleepers += 1;
        inbox = match until.map(|until| until.saturating_duration_since(Instant::now())) {
            None => self.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner),
            Some(time) => self.arrived.wait_timeout(inbox, time).unwrap_or_else(PoisonError::into_inner).0,
        };
        inbox.sleepers -= 1;
    }

    /// Wakes the task when the next message arrives.
    #[cfg(feature = "stream")]
    pub fn register_waker(&self, waker: &Waker) {
        let mut inbox = lock(&self.inbox);
        if !inbox.items.is_empty() {
            waker.wake_by_ref();
        } else if !inbox.wakers.iter().any(|known| known.will_wake(waker)) {
            inbox.wakers.push(waker.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;
    use crate::codec;
    use crate::wire::{Body, Datagram, HEADER_BYTES, Header, Kind};

    /// A datagram with these messages.
    fn datagram(messages: &[&[u8]]) -> Vec<u8> {
        let count = u16::try_from(messages.len()).expect("a few messages");
        let header = Header { kind: Kind::Batch, count, stream: 0, epoch: 0, first: 0, mailbox: 0 };
        let mut bytes = header.encode().to_vec();
        for message in messages {
            bytes.extend_from_slice(&(message.len() as u16).to_le_bytes());
            bytes.extend_from_slice(message);
        }
        bytes
    }

    fn put<T>(queue: &MailboxQueue<T>, codec: Codec<T>, messages: &[&[u8]]) -> Dropped {
        let bytes = datagram(messages);
        let Ok(Datagram { body: Body::Batch(messages), .. }) = Datagram::parse(&bytes) else {
            panic!("{} bytes of header and messages", HEADER_BYTES);
        };
        let from = Key::new(SocketAddr::from(([127, 0, 0, 1], 1)), 0);
        let mut staged = Staged::new();
        let dropped = queue.stage(&mut staged, from, messages, None, codec);
        queue.commit(&mut staged);
        dropped
    }

    /// A kept message does not pin the memory of the dropped rest of its datagram.
    #[test]
    fn dropped_messages_cost_no_memory() {
        let big: &[u8] = &[7; 1000];
        for overflow in [OverflowPolicy::DropNewest, OverflowPolicy::DropOldest] {
            let config = Config { mailbox_bytes: 2500, overflow, ..Config::default() };
            let apart = |messages: &[&[u8]]| {
                let queue = MailboxQueue::new(&config);
                put(&queue, codec::raw(), messages);
                let [one, other] = [0, 1].map(|_| queue.pop().expect("there is room for two").0);
                other.as_ptr().addr().abs_diff(one.as_ptr().addr())
            };
            // A message and the two bytes of the next length.
            assert_eq!(apart(&[big; 2]), 1002, "they share a copy");
            assert_ne!(apart(&[big; 60]), 1002, "60 kB are kept for 2");
        }
    }

    /// Messages in a shared buffer stay there if all of them are kept.
    #[test]
    fn messages_stay_in_shared_buffers() {
        let all = SharedBuffer::new(datagram(&[&[7; 1000], &[8; 1000]]));
        let Ok(Datagram { body: Body::Batch(messages), .. }) = Datagram::parse(all.as_bytes()) else {
            panic!()
        };
        let from = Key::new(SocketAddr::from(([127, 0, 0, 1], 1)), 0);
        for (mailbox_bytes, stays) in [(3000, true), (1500, false)] {
            let queue = MailboxQueue::new(&Config { mailbox_bytes, ..Config::default() });
            let mut staged = Staged::new();
            queue.stage(&mut staged, from, messages, Some(&all), codec::raw());
            queue.commit(&mut staged);
            let (message, _) = queue.pop().expect("there is room for one");
            assert_eq!(message, [7; 1000][..]);
            assert_eq!(all.as_bytes().as_ptr_range().contains(&message.as_ptr()), stays);
        }
    }

    /// A pop finds nothing; then two messages arrive, of which another pop takes the first. A sleep sees the
    /// second one.
    #[test]
    fn a_sleep_sees_messages_of_both_halves() {
        let queue = Arc::new(MailboxQueue::new(&Config::default()));
        let seen = queue.commits();
        assert!(queue.pop().is_none());
        put(&queue, codec::raw(), &[b"one", b"two"]);
        assert!(queue.pop().is_some());
        let (woken, wakes) = mpsc::sync_channel(1);
        let sleeper = Arc::clone(&queue);
        std::thread::spawn(move || {
            sleeper.sleep(seen, None);
            woken.send(sleeper.pop().is_some())
        });
        assert_eq!(
            wakes.recv_timeout(Duration::from_secs(20)),
            Ok(true),
            "the pop sleeps although a message is here"
        );
    }

    /// `pop_all` takes all messages at once, in order, and makes room.
    #[test]
    fn pop_all_takes_everything() {
        let queue = MailboxQueue::new(&Config { mailbox_messages: 4, ..Config::default() });
        let mut popped = Popped::default();
        assert_eq!((queue.pop_all(&mut popped), popped.len()), (None, 0));
        for _ in 0..3 {
            put(&queue, codec::raw(), &[b"one", b"two"]);
            assert_eq!(queue.pop().expect("a message is here").0, b"one"[..]);
            put(&queue, codec::raw(), &[b"three", b"four"]);
            assert_eq!(put(&queue, codec::raw(), &[b"five", b"six"]).overflowed, 1);
            let mut arrived = Vec::new();
            while queue.pop_all(&mut popped).is_some() {
                arrived.extend(popped.by_ref().map(|(message, _)| message));
            }
            assert_eq!(arrived, [&b"two"[..], b"three", b"four", b"five"]);
            assert_eq!(queue.len(), 0);
        }
    }

    /// With selective pops messages share no memory with other datagrams.
    #[test]
    fn selective_pops_share_nothing() {
        for selective in [false, true] {
            let queue = MailboxQueue::new(&Config::default());
            if selective {
                assert!(queue.pop_where(&mut |_, _| true).is_none());
            }
            let mut staged = Staged::new();
            let bytes = datagram(&[&[7; 1000]]);
            let Ok(Datagram { body: Body::Batch(messages), .. }) = Datagram::parse(&bytes) else { panic!() };
            let from = Key::new(SocketAddr::from(([127, 0, 0, 1], 1)), 0);
            for _ in 0..8 {
                queue.stage(&mut staged, from, messages, None, codec::raw());
            }
            queue.commit(&mut staged);
            let arrived: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(message, _)| message).collect();
            let behind =
                arrived.windows(2).filter(|pair| pair[0].as_ptr().addr() + 1002 == pair[1].as_ptr().addr());
            assert_eq!((arrived.len(), behind.count() > 0), (8, !selective));
        }
    }
}
