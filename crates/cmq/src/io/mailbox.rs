//! Messages that wait to be popped: bounded, in two halves, so that who pops and who receives seldom meet.
//!
//! ```text
//!   receive ──▶ inbox (its lock: once for each datagram)
//!                 │  taken as a whole when `ready` is empty
//!                 ▼
//!               ready (its lock: once for each pop) ──▶ pop
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Instant;

use super::lock;
use crate::codec::{Codec, Shared};
use crate::config::{Config, WhenFull};
use crate::key::Key;
use crate::proto::receiver::Taken;
use crate::wire::Messages;

struct Item<T> {
    message: T,
    from: Key,
    bytes: u32,
}

struct Inbox<T> {
    items: VecDeque<Item<T>>,
    /// Threads that sleep until something comes.
    sleepers: usize,
    /// Tasks that do.
    wakers: Vec<Waker>,
}

/// Pops between two looks at the counters that receiving shares.
const SETTLE: usize = 64;

struct Ready<T> {
    items: VecDeque<Item<T>>,
    /// Popped, and not yet taken off the counters.
    popped: usize,
    popped_bytes: usize,
}

/// The messages of one mailbox.
pub(crate) struct Queue<T> {
    inbox: Mutex<Inbox<T>>,
    ready: Mutex<Ready<T>>,
    came: Condvar,
    /// How often something came.
    puts: AtomicU64,
    /// Messages in both halves, and their bytes as they travelled: [`SETTLE`] more than there are at most.
    messages: AtomicUsize,
    bytes: AtomicUsize,
    max_messages: usize,
    max_bytes: usize,
    when_full: WhenFull,
}

impl<T> Queue<T> {
    pub fn new(config: &Config) -> Queue<T> {
        Queue {
            inbox: Mutex::new(Inbox { items: VecDeque::new(), sleepers: 0, wakers: Vec::new() }),
            ready: Mutex::new(Ready { items: VecDeque::new(), popped: 0, popped_bytes: 0 }),
            came: Condvar::new(),
            puts: AtomicU64::new(0),
            messages: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            max_messages: config.mailbox_messages,
            max_bytes: config.mailbox_bytes,
            when_full: config.when_full,
        }
    }

    /// Puts decoded messages in.
    pub fn put(&self, from: Key, messages: Messages<'_>, codec: Codec<T>) -> Taken {
        if self.messages.load(Ordering::Relaxed) + messages.len() > self.max_messages {
            self.len();
        }
        let mut taken = Taken::default();
        let (mut added, mut added_bytes) = (0, 0);
        let mut inbox = lock(&self.inbox);
        let (had, had_bytes) = (self.messages.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let mut shared = Shared::new(messages.as_bytes(), self.fits(had, had_bytes, &messages));
        for message in messages.iter() {
            let bytes = message.len();
            let full = had + added >= self.max_messages || had_bytes + added_bytes + bytes > self.max_bytes;
            if full && self.when_full == WhenFull::DropNewest {
                taken.overflowed += 1;
                continue;
            }
            let Some(message) = (codec.decode)(message, &mut shared) else {
                taken.undecodable += 1;
                continue;
            };
            inbox.items.push_back(Item { message, from, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
            (added, added_bytes) = (added + 1, added_bytes + bytes);
        }
        self.messages.fetch_add(added, Ordering::Relaxed);
        self.bytes.fetch_add(added_bytes, Ordering::Relaxed);
        if added > 0 {
            // Pairs with the acquire in `puts`: whoever sees it finds the messages.
            self.puts.fetch_add(1, Ordering::Release);
        }
        let wakers = if added > 0 { std::mem::take(&mut inbox.wakers) } else { Vec::new() };
        let sleepers = if added > 0 { inbox.sleepers } else { 0 };
        drop(inbox);
        // Without the lock: what a waker does is the runtime's affair.
        wakers.into_iter().for_each(Waker::wake);
        match sleepers {
            0 => {}
            1 => self.came.notify_one(),
            _ => self.came.notify_all(),
        }
        if self.when_full == WhenFull::DropOldest {
            taken.overflowed += self.drop_oldest();
        }
        taken
    }

    /// Whether all of these will be kept: then what they lie in is no more than the mailbox may hold.
    fn fits(&self, had: usize, had_bytes: usize, messages: &Messages<'_>) -> bool {
        // What is dropped from the front makes room for all that may be at once.
        let (had, had_bytes) = match self.when_full {
            WhenFull::DropNewest => (had, had_bytes),
            WhenFull::DropOldest => (0, 0),
        };
        had + messages.len() <= self.max_messages && had_bytes + messages.as_bytes().len() <= self.max_bytes
    }

    /// Drops from the front until it is no more than may be; how many.
    fn drop_oldest(&self) -> u64 {
        let over = || {
            self.messages.load(Ordering::Relaxed) > self.max_messages
                || self.bytes.load(Ordering::Relaxed) > self.max_bytes
        };
        let mut dropped = 0;
        self.len();
        while over() && self.pop().is_some() {
            self.len();
            dropped += 1;
        }
        dropped
    }

    /// The oldest message.
    #[inline]
    pub fn pop(&self) -> Option<(T, Key)> {
        let mut ready = lock(&self.ready);
        if ready.items.is_empty() {
            self.settle(&mut ready);
            // Who receives adds to the count before it lets go of the inbox.
            if self.messages.load(Ordering::Relaxed) == 0 {
                return None;
            }
            std::mem::swap(&mut ready.items, &mut lock(&self.inbox).items);
        }
        let item = ready.items.pop_front()?;
        Some(self.taken(&mut ready, item))
    }

    /// The oldest message that is wanted.
    pub fn pop_where(&self, wanted: &mut dyn FnMut(&T, &Key) -> bool) -> Option<(T, Key)> {
        let mut ready = lock(&self.ready);
        ready.items.append(&mut lock(&self.inbox).items);
        let at = ready.items.iter().position(|item| wanted(&item.message, &item.from))?;
        let item = ready.items.remove(at)?;
        Some(self.taken(&mut ready, item))
    }

    #[inline]
    fn taken(&self, ready: &mut Ready<T>, item: Item<T>) -> (T, Key) {
        ready.popped += 1;
        ready.popped_bytes += item.bytes as usize;
        if ready.popped == SETTLE {
            self.settle(ready);
        }
        (item.message, item.from)
    }

    /// Takes what was popped off the counters.
    fn settle(&self, ready: &mut Ready<T>) {
        self.messages.fetch_sub(std::mem::take(&mut ready.popped), Ordering::Relaxed);
        self.bytes.fetch_sub(std::mem::take(&mut ready.popped_bytes), Ordering::Relaxed);
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.settle(&mut lock(&self.ready));
        self.messages.load(Ordering::Relaxed)
    }

    /// How often something came; to be read before the look after which a thread sleeps.
    pub fn puts(&self) -> u64 {
        // Pairs with the release in `put`.
        self.puts.load(Ordering::Acquire)
    }

    /// Sleeps until something comes that came not yet when `puts` was `seen`, or until then. What came in between may be
    /// in either half by now, as another pop takes all that is in the inbox.
    pub fn sleep(&self, seen: u64, until: Option<Instant>) {
        let mut inbox = lock(&self.inbox);
        if self.puts.load(Ordering::Relaxed) != seen {
            return;
        }
        inbox.sleepers += 1;
        inbox = match until.map(|until| until.saturating_duration_since(Instant::now())) {
            None => self.came.wait(inbox).unwrap_or_else(PoisonError::into_inner),
            Some(time) => self.came.wait_timeout(inbox, time).unwrap_or_else(PoisonError::into_inner).0,
        };
        inbox.sleepers -= 1;
    }

    /// Wakes this task once something new comes.
    #[cfg(feature = "stream")]
    pub fn wake_later(&self, waker: &Waker) {
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

    /// A datagram with messages of these bytes.
    fn datagram(messages: &[&[u8]]) -> Vec<u8> {
        let count = u16::try_from(messages.len()).expect("few");
        let header = Header { kind: Kind::Batch, count, stream: 0, epoch: 0, first: 0, mailbox: 0 };
        let mut bytes = header.encode().to_vec();
        for message in messages {
            bytes.extend_from_slice(&(message.len() as u16).to_le_bytes());
            bytes.extend_from_slice(message);
        }
        bytes
    }

    fn put<T>(queue: &Queue<T>, codec: Codec<T>, messages: &[&[u8]]) -> Taken {
        let bytes = datagram(messages);
        let Ok(Datagram { body: Body::Batch(messages), .. }) = Datagram::parse(&bytes) else {
            panic!("{} bytes of header and messages", HEADER_BYTES);
        };
        let from = Key::new(SocketAddr::from(([127, 0, 0, 1], 1)), 0);
        queue.put(from, messages, codec)
    }

    /// A datagram of which a message or two are kept is not kept with them.
    #[test]
    fn what_is_dropped_costs_no_memory() {
        let big: &[u8] = &[7; 1000];
        for when_full in [WhenFull::DropNewest, WhenFull::DropOldest] {
            let config = Config { mailbox_bytes: 2500, when_full, ..Config::default() };
            let apart = |messages: &[&[u8]]| {
                let queue = Queue::new(&config);
                put(&queue, codec::raw(), messages);
                let [one, other] = [0, 1].map(|_| queue.pop().expect("there is room for two").0);
                other.as_ptr().addr().abs_diff(one.as_ptr().addr())
            };
            // A message and the two bytes before the next.
            assert_eq!(apart(&[big; 2]), 1002, "they lie in one copy");
            assert_ne!(apart(&[big; 60]), 1002, "60 kB are kept for 2");
        }
    }

    /// A pop that found nothing, and then two messages of which another one takes the first: the second is there.
    #[test]
    fn nobody_sleeps_while_there_is_something() {
        let queue = Arc::new(Queue::new(&Config::default()));
        let seen = queue.puts();
        assert!(queue.pop().is_none());
        put(&queue, codec::raw(), &[b"one", b"two"]);
        assert!(queue.pop().is_some());
        let (woken, wakes) = mpsc::sync_channel(1);
        let sleeper = Arc::clone(&queue);
        std::thread::spawn(move || {
            sleeper.sleep(seen, None);
            woken.send(sleeper.pop().is_some())
        });
        assert_eq!(wakes.recv_timeout(Duration::from_secs(20)), Ok(true), "it sleeps beside a message");
    }
}
