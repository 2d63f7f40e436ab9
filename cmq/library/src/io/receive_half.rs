//! Pops, and which thread reads the socket.
//!
//! An application thread that waits for a message reads the socket itself: a hand-over from another thread
//! costs more than the rest of a small message. The background thread reads the socket when no application
//! thread does, so that messages reach their mailboxes while the application is busy:
//!
//! ```text
//!                    ┌───────────── pop, nothing there ─────────────┐
//!                    │                                              ▼
//!             Background (the thread sleeps on the socket)      Application (a pop sleeps on it)
//!                    ▲                                              │ has its message
//!                    └── LEASE passed, or much arrived ── Leased ◀──┘
//! ```
//!
//! During a lease no thread sleeps on the socket: the next pop is expected before the lease ends.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::event_queue::EventQueue;
use super::lock;
use super::mailbox::{MailboxQueue, Staged};
use super::receive_buffers::ReceiveBuffers;
use super::send_half::SendHalf;
use super::socket::Socket;
use super::wake::{Waker, sleep_on};
use crate::codec::Codec;
use crate::config::Config;
use crate::event::{Event, SenderInfo, Stats};
use crate::key::Key;
use crate::proto::reliable::inbound::{Arrival, Inbound};
use crate::proto::shared_buffer::SharedBuffer;
use crate::proto::sink::{Dropped, Room, Sink};
use crate::proto::unreliable::receiver::{AmplificationBudget, Receiver};
use crate::wire::reliable::is_reliable;
use crate::wire::{Body, Datagram, Messages};

/// How often a full mailbox is looked at, while messages of the reliable mode wait for it. A pop that finds the mailbox empty looks at
/// once; until then the application has messages.
const STALLED: Duration = Duration::from_millis(20);
/// The length of a lease: the next pop is expected to read the socket within it.
const LEASE: Duration = Duration::from_millis(1);
/// A wait spins if the last one took at most this many times [`Config::spin`](field@Config::spin). A wait
/// that slept took longer.
const SHORT_WAIT_FACTOR: u32 = 4;
/// A shorter wait did not sleep: its message was here already.
const IMMEDIATE: Duration = Duration::from_micros(5);
/// A longer pause between two polls of a spinning wait means that other threads use the core.
const PREEMPTED: Duration = Duration::from_micros(100);
/// No wait spins for this long after other threads used the core. A thread that slept gets a busy core sooner
/// than a thread that used up its share.
const SPIN_PAUSE: Duration = Duration::from_millis(200);
/// The most receive calls in one turn of the background thread.
const MAX_CALLS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Background,
    Leased(Instant),
    Application,
}

/// How the background thread sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BackgroundSleep {
    Awake,
    OnSocket,
    /// Until the lease ends, or another deadline.
    Timed,
    /// Until another thread wakes it.
    Indefinite,
}

struct State<T> {
    receiver: Receiver,
    /// The receiving half of the reliable mode, if it is on.
    inbound: Option<Inbound>,
    buffers: ReceiveBuffers,
    staged: Staged<T>,
    reader: Reader,
    background: BackgroundSleep,
    /// More arrives than one call takes: the background thread reads beside the application. Less traffic is
    /// not worth waking it.
    busy: bool,
    /// Pops that sleep while another pop or the background thread reads.
    followers: usize,
    /// The last wait was short, so the next one may spin.
    last_wait_short: bool,
    /// The last wait ended at once, so there may be more datagrams already.
    may_have_more: bool,
    /// Other threads use this core: no wait spins until then.
    no_spin_until: Option<Instant>,
    /// The number of waits that ended.
    waits_ended: u64,
    /// `waits_ended` at the last turn of the background thread.
    waits_seen: u64,
}

/// The receiving half of a queue.
pub(crate) struct ReceiveHalf<T> {
    config: Config,
    socket: Arc<Socket>,
    codec: Codec<T>,
    state: Mutex<State<T>>,
    /// The common mailbox, for integers without a mailbox of their own.
    pub common: Arc<MailboxQueue<T>>,
    named: RwLock<HashMap<u32, Arc<MailboxQueue<T>>>>,
    any_named: AtomicBool,
    waker: Arc<Waker>,
    events: Arc<EventQueue>,
    send_half: Arc<SendHalf>,
}

/// Delivers the machine's messages. Consecutive messages for the same mailbox are staged together.
struct MailboxSink<'a, T> {
    receive_half: &'a ReceiveHalf<T>,
    staged: &'a mut Staged<T>,
    /// The mailbox of the staged messages. `None` is the common one.
    named: Option<Arc<MailboxQueue<T>>>,
}

impl<T> MailboxSink<'_, T> {
    /// Commits the staged messages.
    fn commit(&mut self) {
        self.named.as_deref().unwrap_or(&self.receive_half.common).commit(self.staged);
    }
}

impl<T> Sink for MailboxSink<'_, T> {
    fn deliver(&mut self, from: Key, messages: Messages<'_>, buffer: Option<&SharedBuffer>) -> Dropped {
        let named = self.receive_half.find(from.id);
        if self.named.as_ref().map(Arc::as_ptr) != named.as_ref().map(Arc::as_ptr) {
            self.commit();
            self.named = named;
        }
        let queue = self.named.as_deref().unwrap_or(&self.receive_half.common);
        queue.stage(self.staged, from, messages, buffer, self.receive_half.codec)
    }

    fn event(&mut self, event: Event) {
        self.receive_half.events.push(event);
    }

    fn room(&mut self, id: u32) -> Room {
        let named = self.receive_half.find(id);
        let queue = named.as_deref().unwrap_or(&self.receive_half.common);
        let is_staged = self.named.as_ref().map(Arc::as_ptr) == named.as_ref().map(Arc::as_ptr);
        queue.room(is_staged.then_some(&*self.staged))
    }
}

impl<T> Drop for MailboxSink<'_, T> {
    fn drop(&mut self) {
        self.commit();
    }
}

impl<T> ReceiveHalf<T> {
    pub fn new(
        config: &Config,
        epoch: u64,
        socket: Arc<Socket>,
        codec: Codec<T>,
        waker: Arc<Waker>,
        events: Arc<EventQueue>,
        send_half: Arc<SendHalf>,
    ) -> ReceiveHalf<T> {
        let state = State {
            receiver: Receiver::new(config),
            inbound: config.reliable.clone().map(|reliable| Inbound::new(config, reliable, epoch)),
            buffers: ReceiveBuffers::new(),
            staged: Staged::new(),
            reader: Reader::Background,
            background: BackgroundSleep::Awake,
            busy: false,
            followers: 0,
            last_wait_short: false,
            may_have_more: false,
            no_spin_until: None,
            waits_ended: 0,
            waits_seen: 0,
        };
        ReceiveHalf {
            config: config.clone(),
            socket,
            codec,
            state: Mutex::new(state),
            common: Arc::new(MailboxQueue::new(config)),
            named: RwLock::new(HashMap::new()),
            any_named: AtomicBool::new(false),
            waker,
            events,
            send_half,
        }
    }

    /// The mailbox of an integer, if it has one of its own.
    #[inline]
    fn find(&self, id: u32) -> Option<Arc<MailboxQueue<T>>> {
        if !self.any_named.load(Ordering::Acquire) {
            return None;
        }
        self.named.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// The mailbox of an integer, opened if necessary.
    pub fn open(&self, id: u32) -> Arc<MailboxQueue<T>> {
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        let queue = named.entry(id).or_insert_with(|| Arc::new(MailboxQueue::new(&self.config)));
        // Pairs with the acquire in `find`, which looks for mailboxes only if there is one.
        self.any_named.store(true, Ordering::Release);
        Arc::clone(queue)
    }

    /// Closes a mailbox. Later messages for it go to the common one.
    pub fn close(&self, id: u32) {
        // Under this lock no thread that found the mailbox before commits to it.
        let _state = lock(&self.state);
        self.named.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// The next message, if there is one.
    #[inline]
    pub fn pop(&self, queue: &MailboxQueue<T>) -> Option<(T, Key)> {
        queue.pop().or_else(|| {
            self.read_now();
            queue.pop()
        })
    }

    /// Reads the socket from an application thread, unless another thread does.
    pub fn read_now(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        self.resume(&mut state);
        if state.reader == Reader::Application || state.busy {
            return;
        }
        let now = Instant::now();
        self.receive(&mut state, now);
        self.lease(state, now);
    }

    /// An application thread has read the socket, and starts a lease. Wakes the background thread if that
    /// changes how it must sleep.
    fn lease(&self, mut state: MutexGuard<'_, State<T>>, now: Instant) {
        let mut wake = matches!(state.background, BackgroundSleep::OnSocket | BackgroundSleep::Indefinite);
        if state.busy || state.followers > 0 {
            wake = state.background != BackgroundSleep::OnSocket;
            state.reader = Reader::Background;
        } else {
            state.reader = Reader::Leased(now + LEASE);
        }
        if wake {
            state.background = BackgroundSleep::Awake;
            drop(state);
            self.waker.wake();
        }
    }

    /// Waits until `take` finds a message, or until then.
    pub fn wait<M>(
        &self,
        queue: &MailboxQueue<T>,
        until: Option<Instant>,
        mut take: impl FnMut() -> Option<M>,
    ) -> Option<M> {
        loop {
            let seen = queue.commits();
            if let Some(message) = take() {
                return Some(message);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return None;
            }
            let mut state = lock(&self.state);
            self.resume(&mut state);
            if state.reader == Reader::Application || state.busy {
                state.followers += 1;
                drop(state);
                queue.sleep(seen, until);
                lock(&self.state).followers -= 1;
                continue;
            }
            if let Some(message) = self.read_until(state, until, &mut take) {
                return Some(message);
            }
        }
    }

    /// Reads the socket, and sleeps on it, until `take` finds a message.
    fn read_until<'s, M>(
        &'s self,
        mut state: MutexGuard<'s, State<T>>,
        until: Option<Instant>,
        take: &mut impl FnMut() -> Option<M>,
    ) -> Option<M> {
        // Another thread may have read since the last look. From here on none does.
        let mut found = take();
        if found.is_none() {
            state.reader = Reader::Application;
            if state.background == BackgroundSleep::OnSocket {
                state.background = BackgroundSleep::Awake;
                self.waker.wake();
            }
        }
        let began = Instant::now();
        state.no_spin_until = state.no_spin_until.filter(|&until| began < until);
        let (mut now, mut spins, mut preempted) =
            (began, state.last_wait_short && state.no_spin_until.is_none(), false);
        let mut may_have_more = state.may_have_more;
        while found.is_none() && !state.busy && until.is_none_or(|until| now < until) {
            let deadline = [Self::deadline(&state, now), until].into_iter().flatten().min();
            drop(state);
            let readable = std::mem::take(&mut may_have_more)
                || std::mem::take(&mut spins) && self.spin(deadline, &mut now, &mut preempted)
                || sleep_on(&self.socket, deadline, now);
            now = Instant::now();
            state = lock(&self.state);
            if readable {
                self.receive(&mut state, now);
            }
            self.expire(&mut state, now);
            found = take();
        }
        state.last_wait_short = now - began < SHORT_WAIT_FACTOR * self.config.spin;
        state.may_have_more = now - began < IMMEDIATE;
        if preempted {
            state.no_spin_until = Some(now + SPIN_PAUSE);
        }
        state.waits_ended += 1;
        self.lease(state, now);
        found
    }

    /// Polls the socket for [`Config::spin`](field@Config::spin). Returns whether it is readable, and records
    /// whether other threads used the core during that time.
    fn spin(&self, until: Option<Instant>, now: &mut Instant, preempted: &mut bool) -> bool {
        let end = *now + self.config.spin;
        let end = until.map_or(end, |until| until.min(end));
        loop {
            let readable = sleep_on(&self.socket, Some(*now), *now);
            let looked = std::mem::replace(now, Instant::now());
            *preempted |= *now - looked > PREEMPTED;
            if readable || *now >= end {
                return readable;
            }
            // No yield: on a busy core a thread that yields returns much later than a thread that is woken.
            std::hint::spin_loop();
        }
    }

    /// Makes one receive call and delivers its datagrams.
    fn receive(&self, state: &mut State<T>, now: Instant) -> bool {
        let State { receiver, inbound, buffers, staged, .. } = state;
        match self.socket.receive(buffers) {
            Ok(true) => {}
            // An error here belongs to an earlier send. The error was counted then, or the receiver reports a loss.
            Ok(false) | Err(_) => {
                state.busy = false;
                return false;
            }
        }
        if let Some(sessions) = self.send_half.sessions() {
            let mut sessions = lock(sessions);
            buffers.open(|from, datagram| sessions.receive(now, from, datagram));
            let outputs = sessions.take_outputs();
            drop(sessions);
            self.send_half.apply(outputs);
            self.handle(now, receiver, inbound.as_mut(), staged, buffers.opened());
        } else {
            self.handle(now, receiver, inbound.as_mut(), staged, buffers.iter());
        }
        state.busy = buffers.is_full();
        true
    }

    /// Delivers plain datagrams.
    fn handle<'a>(
        &self,
        now: Instant,
        receiver: &mut Receiver,
        inbound: Option<&mut Inbound>,
        staged: &mut Staged<T>,
        datagrams: impl Iterator<Item = (SocketAddr, &'a [u8], Option<&'a SharedBuffer>)>,
    ) {
        let mut sink = self.mailbox_sink(staged);
        let Some(inbound) = inbound else {
            for (from, bytes, buffer) in datagrams {
                receiver.datagram_in_buffer(now, from, bytes, buffer, &mut sink);
            }
            return;
        };
        // Messages that wait for a mailbox come before those that arrive now.
        inbound.resume(&mut sink);
        let mut acknowledged = false;
        for (from, bytes, buffer) in datagrams {
            let parsed = is_reliable(bytes).then(|| Datagram::parse(bytes).ok()).flatten();
            match parsed.map(|Datagram { header, body }| (header, body)) {
                Some((header, Body::Segment(segment))) => {
                    let arrival = Arrival { header, segment, datagram_bytes: bytes.len() };
                    inbound.segment(now, from, arrival, &mut sink);
                }
                Some((header, Body::Ack(ack))) => {
                    self.send_half.acknowledge(now, from, &header, &ack);
                    acknowledged = true;
                }
                Some((header, Body::End(end))) => inbound.end(from, header, end, &mut sink),
                _ => receiver.datagram_in_buffer(now, from, bytes, buffer, &mut sink),
            }
        }
        inbound.resume(&mut sink);
        drop(sink);
        let acks = inbound.take_acks();
        if acknowledged || !acks.is_empty() {
            self.send_half.transmit(now, &acks);
        }
    }

    fn expire(&self, state: &mut State<T>, now: Instant) {
        if state.receiver.next_deadline().is_some_and(|deadline| deadline <= now) {
            let State { receiver, staged, .. } = state;
            receiver.expire(now, &mut self.mailbox_sink(staged));
        }
        if let Some(inbound) = &mut state.inbound {
            inbound.expire(now);
        }
        self.resume(state);
    }

    /// Delivers messages that wait for room in a mailbox.
    fn resume(&self, state: &mut State<T>) {
        let State { inbound: Some(inbound), staged, .. } = state else { return };
        if inbound.is_stalled() {
            inbound.resume(&mut self.mailbox_sink(staged));
            let acks = inbound.take_acks();
            if !acks.is_empty() {
                self.send_half.transmit(Instant::now(), &acks);
            }
        }
    }

    /// Delivers messages that wait for room, for a task that found its mailbox empty.
    #[cfg(feature = "stream")]
    pub fn refill(&self) {
        // No wait: a runtime may poll the task inside of its waker, which the thread with this lock calls.
        if let Ok(mut state) = self.state.try_lock() {
            self.resume(&mut state);
        }
    }

    /// When a turn has something to do. A full mailbox is looked at after [`STALLED`]: its pops tell nobody that it has room.
    fn deadline(state: &State<T>, now: Instant) -> Option<Instant> {
        let stalled = state.inbound.as_ref().is_some_and(Inbound::is_stalled).then(|| now + STALLED);
        let idle = state.inbound.as_ref().and_then(Inbound::next_deadline);
        [state.receiver.next_deadline(), stalled, idle].into_iter().flatten().min()
    }

    fn mailbox_sink<'a>(&'a self, staged: &'a mut Staged<T>) -> MailboxSink<'a, T> {
        MailboxSink { receive_half: self, staged, named: None }
    }

    /// A turn of the background thread, which reads the socket if no application thread does. Returns its
    /// next deadline, and whether it sleeps on the socket.
    pub fn turn(&self, readable: bool) -> (Option<Instant>, bool) {
        let mut state = lock(&self.state);
        if readable && state.reader == Reader::Background {
            let mut calls = 0;
            while calls < MAX_CALLS && self.receive(&mut state, Instant::now()) {
                calls += 1;
            }
        }
        let now = Instant::now();
        if state.reader != Reader::Application {
            self.expire(&mut state, now);
        }
        if matches!(state.reader, Reader::Leased(until) if until <= now) {
            state.reader = Reader::Background;
        }
        let deadline = Self::deadline(&state, now);
        let (background, until) = match state.reader {
            Reader::Background => (BackgroundSleep::OnSocket, deadline),
            Reader::Leased(lease) => (BackgroundSleep::Timed, Some(deadline.map_or(lease, |d| d.min(lease)))),
            Reader::Application if state.waits_ended != state.waits_seen => {
                (BackgroundSleep::Timed, Some(now + LEASE))
            }
            Reader::Application => (BackgroundSleep::Indefinite, None),
        };
        state.waits_seen = state.waits_ended;
        state.background = background;
        (until, background == BackgroundSleep::OnSocket)
    }

    pub fn senders(&self) -> Vec<SenderInfo> {
        let state = lock(&self.state);
        let mut senders = state.receiver.senders();
        senders.extend(state.inbound.iter().flat_map(Inbound::senders));
        senders
    }

    pub fn sender(&self, from: SocketAddr) -> Vec<SenderInfo> {
        let state = lock(&self.state);
        let mut senders = state.receiver.sender(from);
        senders.extend(state.inbound.iter().flat_map(|inbound| inbound.sender(from)));
        senders
    }

    /// Calls `with` for the anti-amplification limit of an address, if the address is known.
    pub fn amplification_budget<M>(
        &self,
        of: SocketAddr,
        with: impl FnOnce(&mut AmplificationBudget) -> M,
    ) -> Option<M> {
        lock(&self.state).receiver.amplification_budget(of).map(with)
    }

    pub fn count(&self, stats: &mut Stats) {
        let totals = lock(&self.state).receiver.totals();
        stats.counts = totals.counts;
        stats.datagrams = totals.datagrams;
        stats.malformed = totals.malformed;
        stats.incomplete = totals.incomplete;
        stats.senders = totals.senders;
        if let Some(inbound) = &lock(&self.state).inbound {
            inbound.count(&mut stats.reliable);
        }
    }
}
