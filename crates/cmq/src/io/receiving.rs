//! Pops, and who reads the socket.
//!
//! An application thread that waits for a message reads the socket itself: a hand-over from another thread costs more
//! than all the rest of a small message. The thread behind reads it when no application thread does, so that messages
//! reach their mailboxes and are counted whatever the application is doing:
//!
//! ```text
//!                    ┌───────────── pop, nothing there ─────────────┐
//!                    │                                              ▼
//!             Behind (the thread sleeps on the socket)          Waiting (a pop sleeps on it)
//!                    ▲                                              │ has its message
//!                    └── LEASE passed, or much arrived ── Leased ◀──┘
//! ```
//!
//! While leased nobody sleeps on the socket: the next pop is expected to come before the lease ends.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::engine::{Events, Waker, sleep_on};
use super::lock;
use super::mailbox::{Queue, Run};
use super::received::Received;
use super::socket::Socket;
use crate::codec::Codec;
use crate::config::Config;
use crate::event::{Event, Sender, Stats};
use crate::key::Key;
use crate::proto::lent::Lent;
use crate::proto::receiver::{Account, Receiver, Sink, Taken};
use crate::wire::Messages;

/// How long after a pop the next one is expected to read the socket.
const LEASE: Duration = Duration::from_millis(1);
/// As many times [`Config::spin`] a wait may have taken for the next one to spin: one that slept took longer for it.
const SHORT: u32 = 4;
/// A wait that took less did not sleep: what it waited for was there.
const AT_ONCE: Duration = Duration::from_micros(5);
/// Between two looks of a wait that spins others had the core, if it is so long.
const TAKEN: Duration = Duration::from_micros(100);
/// Where others want the core, nobody spins for so long: who sleeps and is woken gets it sooner than who used it up.
const CROWDED: Duration = Duration::from_millis(200);
/// Calls in one turn of the thread behind.
const CALLS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Behind,
    Leased(Instant),
    Waiting,
}

/// How the thread behind sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
    Awake,
    OnSocket,
    /// Until the lease ends, or some other time.
    Until,
    /// Until it is woken.
    WithoutEnd,
}

struct State<T> {
    receiver: Receiver,
    received: Received,
    run: Run<T>,
    reader: Reader,
    behind: Behind,
    /// More arrives than a call takes: the thread behind reads, beside the application. Less is not worth waking it.
    busy: bool,
    /// Pops that sleep while another one, or the thread behind, reads.
    followers: usize,
    /// The last wait was so short that the next one need not sleep.
    short: bool,
    /// The last wait ended at once, so there may be more already.
    streaming: bool,
    /// Others want this core; until then nobody spins.
    crowded: Option<Instant>,
    /// Pops that stopped waiting, ever.
    leaves: u64,
    /// `leaves` when the thread behind last looked.
    leaves_seen: u64,
}

/// The receiving half of a queue.
pub(crate) struct Receiving<T> {
    config: Config,
    socket: Arc<Socket>,
    codec: Codec<T>,
    state: Mutex<State<T>>,
    /// Messages for mailboxes that nobody opened.
    pub common: Arc<Queue<T>>,
    named: RwLock<HashMap<u32, Arc<Queue<T>>>>,
    any_named: AtomicBool,
    waker: Arc<Waker>,
    events: Arc<Events>,
}

/// Where the machine's messages go: into a run for as long as they are for the same mailbox.
struct Boxes<'a, T> {
    receiving: &'a Receiving<T>,
    run: &'a mut Run<T>,
    /// Whose run it is: an opened mailbox, or the common one.
    named: Option<Arc<Queue<T>>>,
}

impl<T> Boxes<'_, T> {
    /// Puts what came so far where it can be popped.
    fn put(&mut self) {
        self.named.as_deref().unwrap_or(&self.receiving.common).put(self.run);
    }
}

impl<T> Sink for Boxes<'_, T> {
    fn deliver(&mut self, from: Key, messages: Messages<'_>, lent: Option<&Lent>) -> Taken {
        let any = self.receiving.any_named.load(Ordering::Acquire);
        let named = if any { self.receiving.find(from.id) } else { None };
        if self.named.as_ref().map(Arc::as_ptr) != named.as_ref().map(Arc::as_ptr) {
            self.put();
            self.named = named;
        }
        let queue = self.named.as_deref().unwrap_or(&self.receiving.common);
        queue.add(self.run, from, (messages, lent), self.receiving.codec)
    }

    fn event(&mut self, event: Event) {
        self.receiving.events.push(event);
    }
}

impl<T> Drop for Boxes<'_, T> {
    fn drop(&mut self) {
        self.put();
    }
}

impl<T> Receiving<T> {
    pub fn new(
        config: &Config,
        socket: Arc<Socket>,
        codec: Codec<T>,
        waker: Arc<Waker>,
        events: Arc<Events>,
    ) -> Receiving<T> {
        let state = State {
            receiver: Receiver::new(config),
            received: Received::new(),
            run: Run::new(),
            reader: Reader::Behind,
            behind: Behind::Awake,
            busy: false,
            followers: 0,
            short: false,
            streaming: false,
            crowded: None,
            leaves: 0,
            leaves_seen: 0,
        };
        Receiving {
            config: config.clone(),
            socket,
            codec,
            state: Mutex::new(state),
            common: Arc::new(Queue::new(config)),
            named: RwLock::new(HashMap::new()),
            any_named: AtomicBool::new(false),
            waker,
            events,
        }
    }

    fn find(&self, id: u32) -> Option<Arc<Queue<T>>> {
        self.named.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// The mailbox of an integer, opened if it was not.
    pub fn open(&self, id: u32) -> Arc<Queue<T>> {
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        let queue = named.entry(id).or_insert_with(|| Arc::new(Queue::new(&self.config)));
        // Pairs with the acquire in `deliver`, which looks for mailboxes only if there is one.
        self.any_named.store(true, Ordering::Release);
        Arc::clone(queue)
    }

    /// Nobody wants this mailbox any more; what comes for it goes to the common one.
    pub fn close(&self, id: u32) {
        // Nobody puts anything in who found it before.
        let _state = lock(&self.state);
        self.named.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// The next message, if there is one.
    #[inline]
    pub fn pop(&self, queue: &Queue<T>) -> Option<(T, Key)> {
        queue.pop().or_else(|| {
            self.read_now();
            queue.pop()
        })
    }

    /// Reads the socket from an application thread, unless somebody does so already.
    pub fn read_now(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        if state.reader == Reader::Waiting || state.busy {
            return;
        }
        let now = Instant::now();
        self.receive(&mut state, now);
        self.lease(state, now);
    }

    /// An application thread has read, and will again soon; the thread behind is told what that means for it.
    fn lease(&self, mut state: MutexGuard<'_, State<T>>, now: Instant) {
        let mut wake = matches!(state.behind, Behind::OnSocket | Behind::WithoutEnd);
        if state.busy || state.followers > 0 {
            wake = state.behind != Behind::OnSocket;
            state.reader = Reader::Behind;
        } else {
            state.reader = Reader::Leased(now + LEASE);
        }
        if wake {
            state.behind = Behind::Awake;
            drop(state);
            self.waker.wake();
        }
    }

    /// The next message that `take` finds, waiting for it until then.
    pub fn wait<M>(
        &self,
        queue: &Queue<T>,
        until: Option<Instant>,
        mut take: impl FnMut() -> Option<M>,
    ) -> Option<M> {
        loop {
            let seen = queue.puts();
            if let Some(message) = take() {
                return Some(message);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return None;
            }
            let mut state = lock(&self.state);
            if state.reader == Reader::Waiting || state.busy {
                state.followers += 1;
                drop(state);
                queue.sleep(seen, until);
                lock(&self.state).followers -= 1;
                continue;
            }
            if let Some(message) = self.lead(state, until, &mut take) {
                return Some(message);
            }
        }
    }

    /// Sleeps on the socket and reads it, until `take` finds something.
    fn lead<'s, M>(
        &'s self,
        mut state: MutexGuard<'s, State<T>>,
        until: Option<Instant>,
        take: &mut impl FnMut() -> Option<M>,
    ) -> Option<M> {
        // Somebody may have read since the last look; from here on nobody else does.
        let mut found = take();
        if found.is_none() {
            state.reader = Reader::Waiting;
            if state.behind == Behind::OnSocket {
                state.behind = Behind::Awake;
                self.waker.wake();
            }
        }
        let began = Instant::now();
        state.crowded = state.crowded.filter(|&until| began < until);
        let (mut now, mut spins, mut taken) = (began, state.short && state.crowded.is_none(), false);
        let mut streaming = state.streaming;
        while found.is_none() && !state.busy && until.is_none_or(|until| now < until) {
            let deadline = [state.receiver.next_deadline(), until].into_iter().flatten().min();
            drop(state);
            let readable = std::mem::take(&mut streaming)
                || std::mem::take(&mut spins) && self.spin(deadline, &mut now, &mut taken)
                || sleep_on(&self.socket, deadline, now);
            now = Instant::now();
            state = lock(&self.state);
            if readable {
                self.receive(&mut state, now);
            }
            self.expire(&mut state, now);
            found = take();
        }
        state.short = now - began < SHORT * self.config.spin;
        state.streaming = now - began < AT_ONCE;
        if taken {
            state.crowded = Some(now + CROWDED);
        }
        state.leaves += 1;
        self.lease(state, now);
        found
    }

    /// Looks at the socket again and again for a little while; whether there is something to read. Notes if others had the
    /// core in between.
    fn spin(&self, until: Option<Instant>, now: &mut Instant, taken: &mut bool) -> bool {
        let end = *now + self.config.spin;
        let end = until.map_or(end, |until| until.min(end));
        loop {
            let readable = sleep_on(&self.socket, Some(*now), *now);
            let looked = std::mem::replace(now, Instant::now());
            *taken |= *now - looked > TAKEN;
            if readable || *now >= end {
                return readable;
            }
            // No yield: whoever yields on a busy core comes back much later than whoever sleeps and is woken.
            std::hint::spin_loop();
        }
    }

    /// One call to the socket, and what it brought to its mailboxes.
    fn receive(&self, state: &mut State<T>, now: Instant) -> bool {
        let State { receiver, received, run, .. } = state;
        match self.socket.receive(received) {
            Ok(true) => {}
            // What the system reports here belongs to something sent earlier, and was counted then or is lost.
            Ok(false) | Err(_) => {
                state.busy = false;
                return false;
            }
        }
        let mut boxes = self.boxes(run);
        for (from, bytes, lent) in received.iter() {
            receiver.datagram_in(now, from, bytes, lent, &mut boxes);
        }
        drop(boxes);
        state.busy = received.is_all();
        true
    }

    fn expire(&self, state: &mut State<T>, now: Instant) {
        if state.receiver.next_deadline().is_some_and(|deadline| deadline <= now) {
            let State { receiver, run, .. } = state;
            receiver.expire(now, &mut self.boxes(run));
        }
    }

    fn boxes<'a>(&'a self, run: &'a mut Run<T>) -> Boxes<'a, T> {
        Boxes { receiving: self, run, named: None }
    }

    /// What the thread behind does: reads if it is its turn. It says when it has to look again, and whether it should
    /// sleep on the socket.
    pub fn turn(&self, readable: bool) -> (Option<Instant>, bool) {
        let mut state = lock(&self.state);
        if readable && state.reader == Reader::Behind {
            let mut calls = 0;
            while calls < CALLS && self.receive(&mut state, Instant::now()) {
                calls += 1;
            }
        }
        let now = Instant::now();
        if state.reader != Reader::Waiting {
            self.expire(&mut state, now);
        }
        if matches!(state.reader, Reader::Leased(until) if until <= now) {
            state.reader = Reader::Behind;
        }
        let deadline = state.receiver.next_deadline();
        let (behind, until) = match state.reader {
            Reader::Behind => (Behind::OnSocket, deadline),
            Reader::Leased(lease) => (Behind::Until, Some(deadline.map_or(lease, |d| d.min(lease)))),
            Reader::Waiting if state.leaves != state.leaves_seen => (Behind::Until, Some(now + LEASE)),
            Reader::Waiting => (Behind::WithoutEnd, None),
        };
        state.leaves_seen = state.leaves;
        state.behind = behind;
        (until, behind == Behind::OnSocket)
    }

    pub fn senders(&self) -> Vec<Sender> {
        lock(&self.state).receiver.senders()
    }

    pub fn sender(&self, from: SocketAddr) -> Vec<Sender> {
        lock(&self.state).receiver.sender(from)
    }

    /// What `with` does with the account of an address, if it is known.
    pub fn account<M>(&self, of: SocketAddr, with: impl FnOnce(&mut Account) -> M) -> Option<M> {
        lock(&self.state).receiver.account(of).map(with)
    }

    pub fn count(&self, stats: &mut Stats) {
        let totals = lock(&self.state).receiver.totals();
        stats.counts = totals.counts;
        stats.datagrams = totals.datagrams;
        stats.malformed = totals.malformed;
        stats.incomplete = totals.incomplete;
        stats.senders = totals.senders;
    }
}
