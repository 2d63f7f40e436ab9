//! Messages that wait to be popped: bounded, in two halves, so that who pops and who receives seldom meet.
//!
//! ```text
//!   receive ──▶ run ──▶ inbox (its lock: once for each call that receives)
//!                         │  taken as a whole when `ready` is empty
//!                         ▼
//!                       ready (its lock: once for each pop) ──▶ pop, pop_all
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use super::lock;
use crate::codec::{Codec, Copies, Shared};
use crate::config::{Config, WhenFull};
use crate::key::Key;
use crate::proto::lent::Lent;
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

/// Messages of one call to the socket for one mailbox, until they are put there together.
pub(crate) struct Run<T> {
    items: VecDeque<Item<T>>,
    bytes: usize,
    copies: Copies,
}

impl<T> Run<T> {
    pub fn new() -> Run<T> {
        Run { items: VecDeque::new(), bytes: 0, copies: Copies::default() }
    }
}

/// The most that a run waits for.
const RUN: usize = 4096;

/// Messages that were popped together: an iterator over them. Made empty, filled by [`Cmq::pop_all`](crate::Cmq::pop_all) again
/// and again.
pub struct Popped<T> {
    items: VecDeque<Item<T>>,
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
    /// Somebody pops what it wants, and leaves the rest.
    selective: AtomicBool,
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
            selective: AtomicBool::new(false),
        }
    }

    /// Decodes messages that came with those of the run; they can be popped once that was [put](Queue::put).
    pub fn add(
        &self,
        run: &mut Run<T>,
        from: Key,
        (messages, lent): (Messages<'_>, Option<&Lent>),
        codec: Codec<T>,
    ) -> Taken {
        let more = run.items.len() + messages.len();
        if self.messages.load(Ordering::Relaxed) + more > self.max_messages {
            self.len();
        }
        let mut taken = Taken::default();
        let mut had = self.messages.load(Ordering::Relaxed) + run.items.len();
        let mut had_bytes = self.bytes.load(Ordering::Relaxed) + run.bytes;
        let fits = self.fits(had, had_bytes, &messages);
        // Who pops what it wants and leaves the rest keeps no other datagrams with that.
        let shares = !self.selective.load(Ordering::Relaxed);
        let (lent, copies) = if shares { (lent, Some(&mut run.copies)) } else { (None, None) };
        let mut shared = Shared::new(messages.as_bytes(), fits, lent, copies);
        for message in messages.iter() {
            let bytes = message.len();
            let full = had >= self.max_messages || had_bytes + bytes > self.max_bytes;
            if full && self.when_full == WhenFull::DropNewest {
                taken.overflowed += 1;
                continue;
            }
            let Some(message) = (codec.decode)(message, &mut shared) else {
                taken.undecodable += 1;
                continue;
            };
            run.items.push_back(Item { message, from, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
            (had, had_bytes) = (had + 1, had_bytes + bytes);
            run.bytes += bytes;
        }
        if self.when_full == WhenFull::DropOldest {
            self.put(run);
            taken.overflowed += self.drop_oldest();
        } else if run.items.len() >= RUN {
            self.put(run);
        }
        taken
    }

    /// Puts the messages of a run in.
    pub fn put(&self, run: &mut Run<T>) {
        run.copies = Copies::default();
        let (added, added_bytes) = (run.items.len(), std::mem::take(&mut run.bytes));
        if added == 0 {
            return;
        }
        let mut inbox = lock(&self.inbox);
        if inbox.items.is_empty() {
            std::mem::swap(&mut inbox.items, &mut run.items);
        } else {
            inbox.items.append(&mut run.items);
        }
        self.messages.fetch_add(added, Ordering::Relaxed);
        self.bytes.fetch_add(added_bytes, Ordering::Relaxed);
        // Pairs with the acquire in `puts`: whoever sees it finds the messages.
        self.puts.fetch_add(1, Ordering::Release);
        let (wakers, sleepers) = (std::mem::take(&mut inbox.wakers), inbox.sleepers);
        drop(inbox);
        // Without the lock: what a waker does is the runtime's affair.
        wakers.into_iter().for_each(Waker::wake);
        match sleepers {
            0 => {}
            1 => self.came.notify_one(),
            _ => self.came.notify_all(),
        }
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
        let mut ready = self.filled()?;
        let item = ready.items.pop_front()?;
        Some(self.taken(&mut ready, item))
    }

    /// The half that is popped from, with what came if nothing was there; nothing if nothing came either.
    #[inline]
    fn filled(&self) -> Option<MutexGuard<'_, Ready<T>>> {
        let mut ready = lock(&self.ready);
        if ready.items.is_empty() {
            self.settle(&mut ready);
            // Who receives adds to the count before it lets go of the inbox.
            if self.messages.load(Ordering::Relaxed) == 0 {
                return None;
            }
            std::mem::swap(&mut ready.items, &mut lock(&self.inbox).items);
        }
        Some(ready)
    }

    /// Everything that is there, or all that came before the last pop and was not popped yet; nothing if that is nothing.
    /// `into` is empty, and its room is used.
    pub fn pop_all(&self, into: &mut Popped<T>) -> Option<()> {
        let mut ready = self.filled()?;
        std::mem::swap(&mut ready.items, &mut into.items);
        ready.popped += into.items.len();
        ready.popped_bytes += into.items.iter().map(|item| item.bytes as usize).sum::<usize>();
        self.settle(&mut ready);
        (!into.items.is_empty()).then_some(())
    }

    /// The oldest message that is wanted.
    pub fn pop_where(&self, wanted: &mut dyn FnMut(&T, &Key) -> bool) -> Option<(T, Key)> {
        self.selective.store(true, Ordering::Relaxed);
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
        let mut run = Run::new();
        let taken = queue.add(&mut run, from, (messages, None), codec);
        queue.put(&mut run);
        taken
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

    /// What lies in memory that may be kept stays there, if all of it is kept.
    #[test]
    fn messages_stay_where_they_came() {
        let all = Lent::new(datagram(&[&[7; 1000], &[8; 1000]]));
        let Ok(Datagram { body: Body::Batch(messages), .. }) = Datagram::parse(all.as_bytes()) else {
            panic!()
        };
        let from = Key::new(SocketAddr::from(([127, 0, 0, 1], 1)), 0);
        for (mailbox_bytes, stays) in [(3000, true), (1500, false)] {
            let queue = Queue::new(&Config { mailbox_bytes, ..Config::default() });
            let mut run = Run::new();
            queue.add(&mut run, from, (messages, Some(&all)), codec::raw());
            queue.put(&mut run);
            let (message, _) = queue.pop().expect("there is room for one");
            assert_eq!(message, [7; 1000][..]);
            assert_eq!(all.as_bytes().as_ptr_range().contains(&message.as_ptr()), stays);
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

    /// All that came is taken at once, in its order, and makes room.
    #[test]
    fn everything_is_taken_together() {
        let queue = Queue::new(&Config { mailbox_messages: 4, ..Config::default() });
        let mut popped = Popped::default();
        assert_eq!((queue.pop_all(&mut popped), popped.len()), (None, 0));
        for _ in 0..3 {
            put(&queue, codec::raw(), &[b"one", b"two"]);
            assert_eq!(queue.pop().expect("it is there").0, b"one"[..]);
            put(&queue, codec::raw(), &[b"three", b"four"]);
            assert_eq!(put(&queue, codec::raw(), &[b"five", b"six"]).overflowed, 1);
            let mut came = Vec::new();
            while queue.pop_all(&mut popped).is_some() {
                came.extend(popped.by_ref().map(|(message, _)| message));
            }
            assert_eq!(came, [&b"two"[..], b"three", b"four", b"five"]);
            assert_eq!(queue.len(), 0);
        }
    }

    /// What is left by whoever takes only what it wants keeps no other datagrams.
    #[test]
    fn selective_pops_share_nothing() {
        for selective in [false, true] {
            let queue = Queue::new(&Config::default());
            if selective {
                assert!(queue.pop_where(&mut |_, _| true).is_none());
            }
            let mut run = Run::new();
            let bytes = datagram(&[&[7; 1000]]);
            let Ok(Datagram { body: Body::Batch(messages), .. }) = Datagram::parse(&bytes) else { panic!() };
            let from = Key::new(SocketAddr::from(([127, 0, 0, 1], 1)), 0);
            for _ in 0..8 {
                queue.add(&mut run, from, (messages, None), codec::raw());
            }
            queue.put(&mut run);
            let came: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(message, _)| message).collect();
            let behind =
                came.windows(2).filter(|pair| pair[0].as_ptr().addr() + 1002 == pair[1].as_ptr().addr());
            assert_eq!((came.len(), behind.count() > 0), (8, !selective));
        }
    }
}
