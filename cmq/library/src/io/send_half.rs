//! Pushes. Messages are encoded under one lock. The thread that fills a batch sends it, or the background
//! thread once the batch is old enough. One thread sends at a time, without the lock: messages that other threads
//! push during a send leave next.
//!
//! With a key the sending thread seals batches on their way, in place. Batches for an address without a session wait for its
//! handshake.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::event_queue::EventQueue;
use super::lock;
use super::socket::Socket;
use super::wake::Waker;
use crate::config::Config;
use crate::error::PushError;
use crate::event::{Event, HandshakeError, Stats};
use crate::key::Key;
use crate::proto::outgoing::{Batch, Outgoing};
use crate::proto::reliable::outbound::Outbound;
use crate::proto::reliable::{Fate, Flight};
use crate::proto::secure::{Output, Route, Sessions};
use crate::proto::unreliable::batcher::{Batcher, Environment};
use crate::wire::Header;
use crate::wire::reliable::Ack;

/// How often a pushing thread sends the batches of other threads, before it leaves the rest to the
/// background thread.
const MAX_ROUNDS: usize = 4;
/// The longest sleep of a thread that waits for a confirmation without a limit.
const MAX_SLEEP: Duration = Duration::from_secs(3600);
/// How long after a full device queue sending is tried again.
const DEVICE_RETRY: Duration = Duration::from_millis(1);

/// Whether the background thread sleeps.
#[derive(Clone, Copy)]
enum Background {
    /// The thread will look at the batches soon.
    Awake,
    /// The thread sleeps until this deadline, or without one. The flag says whether it knows that sending is blocked.
    Asleep(Option<Instant>, bool),
}

/// Why sending is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocked {
    /// The socket's buffer is full. The socket becomes writable when it has room.
    Socket,
    /// The device's queue is full, and nothing signals its end. Sending is tried again at this time.
    Device(Instant),
}

impl Blocked {
    /// The reason behind an error of a call, if the error is temporary.
    fn from_error(error: &io::Error, now: Instant) -> Option<Blocked> {
        if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) {
            return Some(Blocked::Device(now + DEVICE_RETRY));
        }
        (error.kind() == io::ErrorKind::WouldBlock).then_some(Blocked::Socket)
    }

    /// True if sending may be tried again.
    fn is_over(self, writable: bool, now: Instant) -> bool {
        match self {
            Blocked::Socket => writable,
            Blocked::Device(until) => until <= now,
        }
    }
}

struct State {
    batcher: Batcher,
    /// The sending half of the reliable mode, if it is on.
    outbound: Option<Outbound>,
    /// Threads that wait for confirmations.
    waiters: usize,
    background: Background,
    /// A thread is sending the batches that it took out.
    sending: bool,
    /// Batches wait at the sessions for the end of a send: their handshakes are done.
    released: bool,
    /// The reason why the background thread waits before it sends again.
    blocked: Option<Blocked>,
    sent: u64,
    datagrams: u64,
    failed: u64,
}

/// The result of sending batches.
#[derive(Default)]
struct SendResult {
    datagrams: u64,
    /// Messages that the system did not send.
    failed: u64,
    blocked: Option<Blocked>,
    /// Destinations whose path turned out to carry smaller datagrams only.
    too_large: Vec<SocketAddr>,
    /// The actions that the sessions want.
    outputs: Vec<Output<Batch>>,
}

/// The sending half of a queue.
pub(crate) struct SendHalf {
    socket: Arc<Socket>,
    /// The configured limit of a datagram.
    max_datagram: usize,
    state: Mutex<State>,
    waker: Arc<Waker>,
    events: Arc<EventQueue>,
    /// The sessions, with the batches that wait for a handshake: these count as pending. Locked after `state`, if both are.
    sessions: Option<Mutex<Sessions<Batch>>>,
    /// Messages of the reliable mode were confirmed or given up.
    confirmed: Condvar,
}

/// The clock and the path MTU, within the configured limit.
struct SocketEnvironment<'a>(&'a Socket, usize);

impl Environment for SocketEnvironment<'_> {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn path(&self, to: SocketAddr) -> usize {
        self.0.path(to).min(self.1)
    }
}

impl SendHalf {
    pub fn new(
        config: &Config,
        epoch: u64,
        socket: Arc<Socket>,
        waker: Arc<Waker>,
        events: Arc<EventQueue>,
        sessions: Option<Sessions<Batch>>,
    ) -> SendHalf {
        let batcher = Batcher::new(config, epoch);
        let state = State {
            batcher,
            outbound: config.reliable.clone().map(|reliable| Outbound::new(config, reliable, epoch)),
            waiters: 0,
            background: Background::Awake,
            sending: false,
            released: false,
            blocked: None,
            sent: 0,
            datagrams: 0,
            failed: 0,
        };
        let max_datagram = config.max_datagram.unwrap_or(usize::MAX);
        SendHalf {
            socket,
            max_datagram,
            state: Mutex::new(state),
            waker,
            events,
            sessions: sessions.map(Mutex::new),
            confirmed: Condvar::new(),
        }
    }

    /// Pushes a message that `encode` appends, and sends its batch if that is full.
    #[inline]
    pub fn push(&self, key: Key, encode: impl FnOnce(&mut Vec<u8>) -> bool) -> Result<(), PushError> {
        self.with(key, |batcher, env| batcher.push(key, env, encode))
    }

    /// As [`SendHalf::push`], for a message that is sent as it is.
    #[inline]
    pub fn push_bytes(&self, key: Key, message: &[u8]) -> Result<(), PushError> {
        self.with(key, |batcher, env| batcher.push_bytes(key, env, message))
    }

    #[inline]
    fn with(
        &self,
        key: Key,
        push: impl FnOnce(&mut Batcher, &SocketEnvironment<'_>) -> Result<bool, PushError>,
    ) -> Result<(), PushError> {
        if !self.socket.reaches(key.addr) {
            return Err(PushError::Address);
        }
        if self.sessions.is_some() && key.addr.ip().is_multicast() {
            return Err(PushError::Multicast);
        }
        let mut state = lock(&self.state);
        let pushed = push(&mut state.batcher, &SocketEnvironment(&self.socket, self.max_datagram));
        if !matches!(pushed, Ok(false)) {
            self.send_and_wake(state);
        }
        pushed.map(drop)
    }

    /// Pushes a message of the reliable mode. Returns its number among those of its key.
    pub fn push_reliable(&self, key: Key, message: &[u8]) -> Result<u64, PushError> {
        if !self.socket.reaches(key.addr) {
            return Err(PushError::Address);
        }
        if key.addr.ip().is_multicast() {
            return Err(PushError::Multicast);
        }
        let mut state = lock(&self.state);
        let outbound = state.outbound.as_mut().ok_or(PushError::ReliableOff)?;
        let environment = SocketEnvironment(&self.socket, self.max_datagram);
        let (number, is_news) =
            outbound.push(|| environment.now(), key, message, || environment.path(key.addr))?;
        if is_news {
            if outbound.is_sendable() {
                state.transmit(environment.now(), &self.events, |_, _| {});
            }
            self.send_and_wake(state);
        }
        Ok(number)
    }

    /// Handles an acknowledgement of the reliable mode. [`SendHalf::transmit`] then sends the segments that it allows.
    pub fn acknowledge(&self, now: Instant, from: SocketAddr, header: &Header, ack: &Ack<'_>) {
        let mut state = lock(&self.state);
        if let Some(outbound) = &mut state.outbound {
            outbound.acknowledge(now, from, header.link(), ack);
        }
    }

    /// Sends acknowledgements, and the segments that received ones allow.
    pub fn transmit(&self, now: Instant, acks: &[(SocketAddr, Vec<u8>)]) {
        let mut state = lock(&self.state);
        for (to, ack) in acks {
            state.batcher.queue.push_plain(*to, ack);
        }
        state.transmit(now, &self.events, |_, _| {});
        if state.waiters > 0 {
            self.confirmed.notify_all();
        }
        self.send_and_wake(state);
    }

    /// Waits until `done` finds something, at most until then.
    fn wait_for<M>(&self, until: Option<Instant>, mut done: impl FnMut(&Outbound) -> Option<M>) -> Option<M> {
        let mut state = lock(&self.state);
        loop {
            if let Some(found) = done(state.outbound.as_ref()?) {
                return Some(found);
            }
            let now = Instant::now();
            let time = match until {
                Some(until) if until <= now => return None,
                Some(until) => until - now,
                None => MAX_SLEEP,
            };
            state.waiters += 1;
            let waited = self.confirmed.wait_timeout(state, time);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiters -= 1;
        }
    }

    /// The fate of a message of the reliable mode, at the latest at this time.
    pub fn wait_confirmed(&self, key: Key, number: u64, until: Option<Instant>) -> Option<Fate> {
        let decided = |outbound: &Outbound| match outbound.fate(key, number) {
            Some(Fate::Pending) => None,
            decided => Some(decided),
        };
        self.wait_for(until, decided).unwrap_or_else(|| self.fate(key, number))
    }

    /// Waits until no message of the reliable mode is undecided.
    pub fn wait_all_confirmed(&self, until: Option<Instant>) -> bool {
        let decided = self.wait_for(until, |outbound| (outbound.buffered() == 0).then_some(()));
        decided.is_some() || lock(&self.state).outbound.is_none()
    }

    /// The fate of a message of the reliable mode.
    pub fn fate(&self, key: Key, number: u64) -> Option<Fate> {
        lock(&self.state).outbound.as_ref()?.fate(key, number)
    }

    /// Sends all pending messages.
    pub fn flush(&self) {
        let (mut state, now) = (lock(&self.state), Instant::now());
        state.batcher.flush(now);
        state.transmit(now, &self.events, |outbound, _| outbound.flush());
        self.send_and_wake(state);
    }

    /// Sends all pending messages and closes all streams.
    pub fn close(&self) {
        let (mut state, now) = (lock(&self.state), Instant::now());
        state.batcher.close_all(now);
        state.transmit(now, &self.events, |outbound, _| outbound.finish());
        self.send_and_wake(state);
    }

    #[inline]
    fn send_and_wake<'s>(&'s self, mut state: MutexGuard<'s, State>) {
        if state.has_due() {
            state = self.send_due(state, MAX_ROUNDS);
        }
        let Background::Asleep(until, watches_socket) = state.background else { return };
        let sooner = match (self.next_deadline(&state), until) {
            (Some(deadline), Some(until)) => deadline < until,
            (deadline, None) => deadline.is_some(),
            (None, Some(_)) => false,
        };
        if sooner || state.has_due() || (state.blocked.is_some() && !watches_socket) {
            // A single wake-up is enough: the thread is awake from here on.
            state.background = Background::Awake;
            drop(state);
            self.waker.wake();
        }
    }

    /// When the background thread has something to do.
    fn next_deadline(&self, state: &State) -> Option<Instant> {
        let handshakes = self.sessions.as_ref().and_then(|sessions| lock(sessions).next_deadline());
        let reliable = state.outbound.as_ref().and_then(Outbound::next_deadline);
        [state.batcher.next_deadline(), handshakes, reliable].into_iter().flatten().min()
    }

    /// The sessions, if this queue encrypts.
    pub fn sessions(&self) -> Option<&Mutex<Sessions<Batch>>> {
        self.sessions.as_ref()
    }

    /// Executes the outputs of the sessions.
    fn execute(&self, state: &mut State, outputs: Vec<Output<Batch>>) {
        for output in outputs {
            match output {
                Output::Send(to, bytes) => state.batcher.queue.push_raw(to, bytes),
                Output::Ready => state.released = true,
                Output::Failed(to, why, batches) => {
                    let messages = batches.iter().map(|batch| batch.messages).sum();
                    batches.into_iter().for_each(|batch| state.batcher.queue.discard(batch));
                    state.failed += messages;
                    self.events.push(Event::HandshakeFailed { to, messages, why });
                }
                Output::Event(event) => self.events.push(event),
            }
        }
        // A thread that sends may have later batches, which must find these waiting.
        if !state.sending
            && std::mem::take(&mut state.released)
            && let Some(sessions) = &self.sessions
        {
            state
                .batcher
                .queue
                .push_waiting(lock(sessions).take_released().map(|(_, batch)| batch).collect());
        }
    }

    /// The same, and sends what they want to be sent.
    pub fn apply(&self, outputs: Vec<Output<Batch>>) {
        if !outputs.is_empty() {
            let mut state = lock(&self.state);
            self.execute(&mut state, outputs);
            self.send_and_wake(state);
        }
    }

    /// Seals the batches. Those that must wait for a handshake stay with the sessions, and those that have none to wait for fail.
    fn seal(&self, sessions: &Mutex<Sessions<Batch>>, outgoing: &mut Outgoing, result: &mut SendResult) {
        let now = Instant::now();
        let mut unreachable: HashMap<SocketAddr, (HandshakeError, Vec<Batch>)> = HashMap::new();
        outgoing.filter(|mut batch| {
            if !batch.is_plain() {
                return Some(batch);
            }
            let (to, mut sessions) = (batch.to, lock(sessions));
            match sessions.route(now, to, batch.datagrams() as u64, batch.len() as u64) {
                Route::Sealed(key, first) => {
                    drop(sessions);
                    batch.seal(|number, datagram| key.seal(first + number as u64, datagram));
                    return Some(batch);
                }
                Route::Wait => sessions.wait(to, batch),
                Route::Failed(why) => {
                    unreachable.entry(to).or_insert_with(|| (why, Vec::new())).1.push(batch);
                }
            }
            None
        });
        result.outputs = lock(sessions).take_outputs();
        let failed = unreachable.into_iter().map(|(to, (why, batches))| Output::Failed(to, why, batches));
        result.outputs.extend(failed);
    }

    /// Sends the ready batches, for at most this many rounds, until the socket takes no more. The lock is
    /// free during system calls, so no thread waits for the system call of another one. Batches that become
    /// ready during a call leave after these.
    fn send_due<'s>(&'s self, mut state: MutexGuard<'s, State>, rounds: usize) -> MutexGuard<'s, State> {
        for _ in 0..rounds {
            if !state.has_due() {
                break;
            }
            state.sending = true;
            let mut outgoing = state.batcher.queue.take_ready();
            drop(state);
            let mut result = SendResult::default();
            if let Some(sessions) = &self.sessions {
                self.seal(sessions, &mut outgoing, &mut result);
            }
            self.send(&mut outgoing, &mut result);
            state = lock(&self.state);
            state.sending = false;
            let outputs = std::mem::take(&mut result.outputs);
            state.record(outgoing, result);
            self.execute(&mut state, outputs);
        }
        state
    }

    /// Sends batches until the socket takes no more.
    fn send(&self, outgoing: &mut Outgoing, result: &mut SendResult) {
        while outgoing.first().is_some() {
            match self.socket.send(outgoing.unsent()) {
                Ok(datagrams) => {
                    result.datagrams += datagrams as u64;
                    outgoing.mark_sent(datagrams);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    result.blocked = Blocked::from_error(&error, Instant::now());
                    if result.blocked.is_some() {
                        return;
                    }
                    self.fail_first(outgoing, result, &error);
                }
            }
        }
    }

    /// Reports the rest of the next batch as failed.
    fn fail_first(&self, outgoing: &mut Outgoing, result: &mut SendResult, error: &io::Error) {
        let Some((to, messages)) = outgoing.fail_first() else { return };
        let errno = error.raw_os_error().unwrap_or(0);
        if errno == rustix::io::Errno::MSGSIZE.raw_os_error() {
            result.too_large.push(to);
        }
        result.failed += messages;
        // Segments of the reliable mode are no messages, and are sent again.
        if messages > 0 {
            self.events.push(Event::SendFailed { to, messages, errno });
        }
    }

    /// A turn of the background thread, which sends batches that are old enough. Returns its next deadline, and
    /// whether it waits for the socket. Other threads wake it for an earlier deadline, and for batches that
    /// they leave to it.
    pub fn turn(&self, writable: bool) -> (Option<Instant>, bool) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        state.batcher.expire(now);
        if let Some(sessions) = &self.sessions {
            let mut sessions = lock(sessions);
            sessions.expire(now);
            let outputs = sessions.take_outputs();
            drop(sessions);
            self.execute(&mut state, outputs);
        }
        state.transmit(now, &self.events, |outbound, flights| outbound.expire(now, flights));
        if state.waiters > 0 {
            self.confirmed.notify_all();
        }
        if state.blocked.is_some_and(|blocked| blocked.is_over(writable, now)) {
            state.blocked = None;
        }
        state = self.send_due(state, usize::MAX);
        let mut deadline = self.next_deadline(&state);
        if let Some(Blocked::Device(until)) = state.blocked {
            deadline = Some(deadline.map_or(until, |deadline| deadline.min(until)));
        }
        state.background = Background::Asleep(deadline, state.blocked.is_some());
        (deadline, state.blocked == Some(Blocked::Socket))
    }

    /// Bytes that wait to be sent, or to be confirmed, and links whose end is to be told.
    pub fn pending(&self) -> usize {
        let state = lock(&self.state);
        let unconfirmed = |outbound: &Outbound| outbound.buffered() + outbound.ending();
        state.batcher.queue.pending + state.outbound.as_ref().map_or(0, unconfirmed)
    }

    pub fn count(&self, stats: &mut Stats) {
        let state = lock(&self.state);
        stats.sent = state.sent;
        stats.sent_datagrams = state.datagrams;
        stats.send_failed = state.failed;
        stats.pending_bytes = state.batcher.queue.pending as u64;
        if let Some(outbound) = &state.outbound {
            stats.reliable = outbound.counts();
        }
        drop(state);
        if let Some(sessions) = &self.sessions {
            stats.security = lock(sessions).counts();
        }
    }
}

impl State {
    /// True if there is something to send, and nothing prevents it.
    fn has_due(&self) -> bool {
        !self.batcher.queue.ready().is_empty() && !self.sending && self.blocked.is_none()
    }

    /// Accounts for sent and failed batches.
    fn record(&mut self, outgoing: Outgoing, result: SendResult) {
        self.sent += outgoing.sent_messages;
        self.datagrams += result.datagrams;
        self.failed += result.failed;
        self.blocked = result.blocked;
        self.batcher.queue.give_back(outgoing);
        result.too_large.iter().for_each(|&to| self.batcher.path_changed(to));
        if let Some(outbound) = &mut self.outbound {
            result.too_large.iter().for_each(|&to| outbound.path_changed(to));
        }
    }

    /// Hands over the segments that the reliable mode may send, once `prepare` was called.
    fn transmit(
        &mut self,
        now: Instant,
        events: &EventQueue,
        prepare: impl FnOnce(&mut Outbound, &mut Vec<Flight>),
    ) {
        let Some(outbound) = &mut self.outbound else { return };
        let mut flights = Vec::new();
        prepare(outbound, &mut flights);
        outbound.transmit(now, &mut flights);
        for Flight { to, bytes, segment } in flights {
            self.batcher.queue.push_flight(to, bytes, segment);
        }
        outbound.take_events().into_iter().for_each(|event| events.push(event));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::io::Errno;

    use super::*;

    /// A push does not wait for the system call of another thread, and its message is sent all the same.
    #[test]
    fn the_lock_is_free_during_a_send() {
        let config = Config { timeout: Duration::from_secs(3600), ..Config::default() };
        let [from, to] = [(); 2].map(|()| {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            Arc::new(Socket::bind(any, &config).expect("a socket"))
        });
        let events = Arc::new(EventQueue::new(0));
        let waker = Arc::new(Waker::new().expect("an event"));
        let sending = SendHalf::new(&config, 1, from, waker, events, None);
        let over = AtomicBool::new(false);
        let push = |id: u32| {
            let key = Key::new(to.local_addr(), id);
            sending.push_bytes(key, &[7; 400])
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    push(0).expect("room");
                }
            });
            let end = Instant::now() + Duration::from_secs(60);
            // The lock is free while the other thread is in its system call.
            while !lock(&sending.state).sending {
                assert!(Instant::now() < end, "the sender holds the lock");
            }
            push(1).expect("room");
            over.store(true, Ordering::Relaxed);
        });
        sending.flush();
        let mut stats = Stats::default();
        sending.count(&mut stats);
        assert_eq!((stats.pending_bytes, stats.send_failed), (0, 0));
    }

    #[test]
    fn a_full_device_queue_is_retried_later() {
        let now = Instant::now();
        let blocked = |error: Errno| Blocked::from_error(&error.into(), now);
        assert_eq!((blocked(Errno::AGAIN), blocked(Errno::MSGSIZE)), (Some(Blocked::Socket), None));
        assert!(Blocked::Socket.is_over(true, now) && !Blocked::Socket.is_over(false, now + DEVICE_RETRY));
        let device = blocked(Errno::NOBUFS).expect("the error is temporary");
        // The socket stays writable while the device queue is full.
        assert!(!device.is_over(true, now) && device.is_over(false, now + DEVICE_RETRY));
    }
}
