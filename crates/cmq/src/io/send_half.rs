//! Pushes. Messages are encoded under one lock. The thread that fills a batch sends it, or the background
//! thread once the batch is old enough. One thread sends at a time, without the lock: messages that other threads
//! push during a send leave next.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::event_queue::EventQueue;
use super::lock;
use super::socket::Socket;
use super::wake::Waker;
use crate::config::Config;
use crate::error::PushError;
use crate::event::{Event, Stats};
use crate::key::Key;
use crate::proto::batcher::{Batcher, Environment};
use crate::proto::outgoing::Outgoing;

/// How often a pushing thread sends the batches of other threads, before it leaves the rest to the
/// background thread.
const MAX_ROUNDS: usize = 4;
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
    background: Background,
    /// A thread is sending the batches that it took out.
    sending: bool,
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
}

/// The sending half of a queue.
pub(crate) struct SendHalf {
    socket: Arc<Socket>,
    /// The configured limit of a datagram.
    max_datagram: usize,
    state: Mutex<State>,
    waker: Arc<Waker>,
    events: Arc<EventQueue>,
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
    ) -> SendHalf {
        let batcher = Batcher::new(config, epoch);
        let background = Background::Awake;
        let state =
            State { batcher, background, sending: false, blocked: None, sent: 0, datagrams: 0, failed: 0 };
        let max_datagram = config.max_datagram.unwrap_or(usize::MAX);
        SendHalf { socket, max_datagram, state: Mutex::new(state), waker, events }
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
        let mut state = lock(&self.state);
        let pushed = push(&mut state.batcher, &SocketEnvironment(&self.socket, self.max_datagram));
        if !matches!(pushed, Ok(false)) {
            self.send_and_wake(state);
        }
        pushed.map(drop)
    }

    /// Sends all pending messages.
    pub fn flush(&self) {
        let mut state = lock(&self.state);
        state.batcher.flush(Instant::now());
        self.send_and_wake(state);
    }

    /// Sends all pending messages and closes all streams.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.batcher.close_all(Instant::now());
        self.send_and_wake(state);
    }

    #[inline]
    fn send_and_wake<'s>(&'s self, mut state: MutexGuard<'s, State>) {
        if state.has_due() {
            state = self.send_due(state, MAX_ROUNDS);
        }
        let Background::Asleep(until, watches_socket) = state.background else { return };
        let sooner = match (state.batcher.next_deadline(), until) {
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

    /// Sends the ready batches, for at most this many rounds, until the socket takes no more. The lock is
    /// free during system calls, so no thread waits for the system call of another one. Batches that become
    /// ready during a call leave after these.
    fn send_due<'s>(&'s self, mut state: MutexGuard<'s, State>, rounds: usize) -> MutexGuard<'s, State> {
        for _ in 0..rounds {
            if !state.has_due() {
                break;
            }
            state.sending = true;
            let mut outgoing = state.batcher.take_ready();
            drop(state);
            let mut result = SendResult::default();
            self.send(&mut outgoing, &mut result);
            state = lock(&self.state);
            state.sending = false;
            state.record(outgoing, &result);
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
        self.events.push(Event::SendFailed { to, messages, errno });
    }

    /// A turn of the background thread, which sends batches that are old enough. Returns its next deadline, and
    /// whether it waits for the socket. Other threads wake it for an earlier deadline, and for batches that
    /// they leave to it.
    pub fn turn(&self, writable: bool) -> (Option<Instant>, bool) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        state.batcher.expire(now);
        if state.blocked.is_some_and(|blocked| blocked.is_over(writable, now)) {
            state.blocked = None;
        }
        state = self.send_due(state, usize::MAX);
        let mut deadline = state.batcher.next_deadline();
        if let Some(Blocked::Device(until)) = state.blocked {
            deadline = Some(deadline.map_or(until, |deadline| deadline.min(until)));
        }
        state.background = Background::Asleep(deadline, state.blocked.is_some());
        (deadline, state.blocked == Some(Blocked::Socket))
    }

    /// Bytes that wait to be sent.
    pub fn pending(&self) -> usize {
        lock(&self.state).batcher.pending()
    }

    pub fn count(&self, stats: &mut Stats) {
        let state = lock(&self.state);
        stats.sent = state.sent;
        stats.sent_datagrams = state.datagrams;
        stats.send_failed = state.failed;
        stats.pending_bytes = state.batcher.pending() as u64;
    }
}

impl State {
    /// True if there is something to send, and nothing prevents it.
    fn has_due(&self) -> bool {
        !self.batcher.ready().is_empty() && !self.sending && self.blocked.is_none()
    }

    /// Accounts for sent and failed batches.
    fn record(&mut self, outgoing: Outgoing, result: &SendResult) {
        self.sent += outgoing.sent_messages;
        self.datagrams += result.datagrams;
        self.failed += result.failed;
        self.blocked = result.blocked;
        self.batcher.give_back(outgoing);
        result.too_large.iter().for_each(|&to| self.batcher.path_changed(to));
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
        let sending = SendHalf::new(&config, 1, from, waker, events);
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
