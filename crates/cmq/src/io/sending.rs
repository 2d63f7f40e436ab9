//! Pushes: encoded under one lock, sent by whoever fills a batch, or by the thread behind when it is old enough. One thread
//! sends at a time, and without that lock: what others push meanwhile leaves next.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::engine::{Events, Waker};
use super::lock;
use super::socket::Socket;
use crate::config::Config;
use crate::error::PushError;
use crate::event::{Event, Stats};
use crate::key::Key;
use crate::proto::batches::{Batches, Outside};
use crate::proto::due::Due;

/// How often a thread that pushes looks whether others pushed meanwhile, before it leaves that to the thread behind.
const ROUNDS: usize = 4;
/// How long a device has to make room before it is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// When the thread behind looks next.
#[derive(Clone, Copy)]
enum Watch {
    /// It is about to.
    Awake,
    /// At this time, or never, unless it is woken; and when what holds up sending is over, if something did when it looked
    /// last.
    Asleep(Option<Instant>, bool),
}

/// What holds up sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocked {
    /// The socket's buffer is full; it tells when it is not.
    Socket,
    /// The device's queue is full, of which nobody tells the end: until it is tried again.
    Device(Instant),
}

impl Blocked {
    /// What an error of a call means, if it is only for now.
    fn by(error: &io::Error, now: Instant) -> Option<Blocked> {
        if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) {
            return Some(Blocked::Device(now + TRY_AGAIN));
        }
        (error.kind() == io::ErrorKind::WouldBlock).then_some(Blocked::Socket)
    }

    /// Whether it is worth another try.
    fn is_over(self, writable: bool, now: Instant) -> bool {
        match self {
            Blocked::Socket => writable,
            Blocked::Device(until) => until <= now,
        }
    }
}

struct State {
    batches: Batches,
    watch: Watch,
    /// Somebody is in a system call with what was due.
    sending: bool,
    /// The thread behind waits until this is over.
    blocked: Option<Blocked>,
    sent: u64,
    datagrams: u64,
    failed: u64,
}

/// What became of batches in one go.
#[derive(Default)]
struct Sent {
    datagrams: u64,
    /// Messages that the system did not send.
    failed: u64,
    blocked: Option<Blocked>,
    /// Addresses on the path to which less fits than was believed.
    too_large: Vec<SocketAddr>,
}

/// The sending half of a queue.
pub(crate) struct Sending {
    socket: Arc<Socket>,
    /// No datagram is longer, whatever the path carries.
    max_datagram: usize,
    state: Mutex<State>,
    waker: Arc<Waker>,
    events: Arc<Events>,
}

/// The path as the socket knows it, or less if the configuration says so.
struct Path<'a>(&'a Socket, usize);

impl Outside for Path<'_> {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn path(&self, to: SocketAddr) -> usize {
        self.0.path(to).min(self.1)
    }
}

impl Sending {
    pub fn new(
        config: &Config,
        epoch: u64,
        socket: Arc<Socket>,
        waker: Arc<Waker>,
        events: Arc<Events>,
    ) -> Sending {
        let batches = Batches::new(config, epoch);
        let watch = Watch::Awake;
        let state = State { batches, watch, sending: false, blocked: None, sent: 0, datagrams: 0, failed: 0 };
        let max_datagram = config.max_datagram.unwrap_or(usize::MAX);
        Sending { socket, max_datagram, state: Mutex::new(state), waker, events }
    }

    /// Takes a message that `encode` appends; sends if its batch is full.
    #[inline]
    pub fn push(&self, key: Key, encode: impl FnOnce(&mut Vec<u8>) -> bool) -> Result<(), PushError> {
        self.with(key, |batches, outside| batches.push(key, outside, encode))
    }

    /// As [`Sending::push`], for bytes that are what travels.
    #[inline]
    pub fn push_bytes(&self, key: Key, message: &[u8]) -> Result<(), PushError> {
        self.with(key, |batches, outside| batches.push_bytes(key, outside, message))
    }

    #[inline]
    fn with(
        &self,
        key: Key,
        push: impl FnOnce(&mut Batches, &Path<'_>) -> Result<bool, PushError>,
    ) -> Result<(), PushError> {
        if !self.socket.reaches(key.addr) {
            return Err(PushError::Address);
        }
        let mut state = lock(&self.state);
        let pushed = push(&mut state.batches, &Path(&self.socket, self.max_datagram));
        if !matches!(pushed, Ok(false)) {
            self.send_and_wake(state);
        }
        pushed.map(drop)
    }

    /// Everything that waits leaves now.
    pub fn flush(&self) {
        let mut state = lock(&self.state);
        state.batches.flush(Instant::now());
        self.send_and_wake(state);
    }

    /// Everything leaves, and all streams end.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.batches.close_all(Instant::now());
        self.send_and_wake(state);
    }

    #[inline]
    fn send_and_wake<'s>(&'s self, mut state: MutexGuard<'s, State>) {
        if state.has_due() {
            state = self.send_due(state, ROUNDS);
        }
        let Watch::Asleep(until, knows) = state.watch else { return };
        let sooner = match (state.batches.next_deadline(), until) {
            (Some(deadline), Some(until)) => deadline < until,
            (deadline, None) => deadline.is_some(),
            (None, Some(_)) => false,
        };
        if sooner || state.has_due() || (state.blocked.is_some() && !knows) {
            // Once is enough: it is awake from here on.
            state.watch = Watch::Awake;
            drop(state);
            self.waker.wake();
        }
    }

    /// Sends what is due, and so many times what became due meanwhile, until the socket takes no more. Nobody waits for it:
    /// the lock is free during system calls, and what others push leaves after what was there before.
    fn send_due<'s>(&'s self, mut state: MutexGuard<'s, State>, rounds: usize) -> MutexGuard<'s, State> {
        for _ in 0..rounds {
            if !state.has_due() {
                break;
            }
            state.sending = true;
            let mut due = state.batches.take();
            drop(state);
            let mut sent = Sent::default();
            self.send(&mut due, &mut sent);
            state = lock(&self.state);
            state.sending = false;
            state.account(due, &sent);
        }
        state
    }

    /// Sends these, until the socket takes no more.
    fn send(&self, due: &mut Due, sent: &mut Sent) {
        while due.first().is_some() {
            match self.socket.send(due.rest()) {
                Ok(datagrams) => {
                    sent.datagrams += datagrams as u64;
                    due.left(datagrams);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    sent.blocked = Blocked::by(&error, Instant::now());
                    if sent.blocked.is_some() {
                        return;
                    }
                    self.give_up(due, sent, &error);
                }
            }
        }
    }

    /// The system does not send the next batch, nor what is left of it.
    fn give_up(&self, due: &mut Due, sent: &mut Sent, error: &io::Error) {
        let Some((to, messages)) = due.give_up() else { return };
        let errno = error.raw_os_error().unwrap_or(0);
        if errno == rustix::io::Errno::MSGSIZE.raw_os_error() {
            sent.too_large.push(to);
        }
        sent.failed += messages;
        self.events.push(Event::SendFailed { to, messages, errno });
    }

    /// What the thread behind does: sends what is old enough. It says when it has to do so again, and whether it should
    /// wait for the socket; it is woken if either comes sooner, and if something is left to it.
    pub fn turn(&self, writable: bool) -> (Option<Instant>, bool) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        state.batches.expire(now);
        if state.blocked.is_some_and(|blocked| blocked.is_over(writable, now)) {
            state.blocked = None;
        }
        state = self.send_due(state, usize::MAX);
        let mut deadline = state.batches.next_deadline();
        if let Some(Blocked::Device(until)) = state.blocked {
            deadline = Some(deadline.map_or(until, |deadline| deadline.min(until)));
        }
        state.watch = Watch::Asleep(deadline, state.blocked.is_some());
        (deadline, state.blocked == Some(Blocked::Socket))
    }

    /// Bytes that wait, and whether it is for the socket.
    pub fn pending(&self) -> usize {
        lock(&self.state).batches.pending()
    }

    pub fn count(&self, stats: &mut Stats) {
        let state = lock(&self.state);
        stats.sent = state.sent;
        stats.sent_datagrams = state.datagrams;
        stats.send_failed = state.failed;
        stats.pending_bytes = state.batches.pending() as u64;
    }
}

impl State {
    /// Whether there is something to send, and nobody sends and nothing holds it up.
    fn has_due(&self) -> bool {
        !self.batches.ready().is_empty() && !self.sending && self.blocked.is_none()
    }

    /// What became of that which was due.
    fn account(&mut self, due: Due, sent: &Sent) {
        self.sent += due.messages;
        self.datagrams += sent.datagrams;
        self.failed += sent.failed;
        self.blocked = sent.blocked;
        self.batches.back(due);
        sent.too_large.iter().for_each(|&to| self.batches.path_changed(to));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::io::Errno;

    use super::*;

    /// A thread that pushes waits for no other's system call, and what it pushes is sent all the same.
    #[test]
    fn the_lock_is_free_while_somebody_sends() {
        let config = Config { timeout: Duration::from_secs(3600), ..Config::default() };
        let [from, to] = [(); 2].map(|()| {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            Arc::new(Socket::bind(any, &config).expect("a socket"))
        });
        let events = Arc::new(Events::new(0));
        let waker = Arc::new(Waker::new().expect("an event"));
        let sending = Sending::new(&config, 1, from, waker, events);
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
            // The lock is had while the other one is in its call.
            while !lock(&sending.state).sending {
                assert!(Instant::now() < end, "whoever sends has the lock");
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
    fn a_full_device_is_left_alone_for_a_while() {
        let now = Instant::now();
        let by = |error: Errno| Blocked::by(&error.into(), now);
        assert_eq!((by(Errno::AGAIN), by(Errno::MSGSIZE)), (Some(Blocked::Socket), None));
        assert!(Blocked::Socket.is_over(true, now) && !Blocked::Socket.is_over(false, now + TRY_AGAIN));
        let device = by(Errno::NOBUFS).expect("it is only for now");
        // Its socket is writable all the time.
        assert!(!device.is_over(true, now) && device.is_over(false, now + TRY_AGAIN));
    }
}
