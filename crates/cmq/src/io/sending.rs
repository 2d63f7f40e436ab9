//! Pushes: encoded under one lock, sent by whoever fills a batch, or by the thread behind when it is old enough.

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
    /// The thread behind waits until this is over.
    blocked: Option<Blocked>,
    sent: u64,
    datagrams: u64,
    failed: u64,
}

/// The sending half of a queue.
pub(crate) struct Sending {
    socket: Arc<Socket>,
    state: Mutex<State>,
    waker: Arc<Waker>,
    events: Arc<Events>,
}

impl Outside for Socket {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn path(&self, to: SocketAddr) -> usize {
        Socket::path(self, to)
    }
}

/// A socket whose path is set by the configuration.
struct Fixed<'a>(&'a Socket, usize);

impl Outside for Fixed<'_> {
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
        let state = State { batches, watch: Watch::Awake, blocked: None, sent: 0, datagrams: 0, failed: 0 };
        Sending { socket, state: Mutex::new(state), waker, events }
    }

    /// Takes a message; sends if its batch is full.
    #[inline]
    pub fn push(
        &self,
        key: Key,
        max_datagram: Option<usize>,
        encode: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> Result<(), PushError> {
        if !self.socket.reaches(key.addr) {
            return Err(PushError::Address);
        }
        let mut state = lock(&self.state);
        let pushed = match max_datagram {
            None => state.batches.push(key, &*self.socket, encode),
            Some(most) => state.batches.push(key, &Fixed(&self.socket, most), encode),
        };
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
    fn send_and_wake(&self, mut state: MutexGuard<'_, State>) {
        if !state.batches.ready().is_empty() && state.blocked.is_none() {
            self.send_ready(&mut state);
        }
        let Watch::Asleep(until, knows) = state.watch else { return };
        let sooner = match (state.batches.next_deadline(), until) {
            (Some(deadline), Some(until)) => deadline < until,
            (deadline, None) => deadline.is_some(),
            (None, Some(_)) => false,
        };
        if sooner || (state.blocked.is_some() && !knows) {
            // Once is enough: it is awake from here on.
            state.watch = Watch::Awake;
            drop(state);
            self.waker.wake();
        }
    }

    /// Sends what is ready, until the socket takes no more.
    fn send_ready(&self, state: &mut State) {
        while !state.batches.ready().is_empty() {
            match self.socket.send(state.batches.ready().iter()) {
                Ok(datagrams) => state.left(datagrams),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    state.blocked = Blocked::by(&error, Instant::now());
                    if state.blocked.is_some() {
                        return;
                    }
                    if let Some(event) = state.failed(&error) {
                        self.events.push(event);
                    }
                }
            }
        }
        state.blocked = None;
    }

    /// What the thread behind does: sends what is old enough. It says when it has to do so again, and whether it should
    /// wait for the socket; it is woken if either comes sooner.
    pub fn turn(&self, writable: bool) -> (Option<Instant>, bool) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        state.batches.expire(now);
        if state.blocked.is_none_or(|blocked| blocked.is_over(writable, now)) {
            self.send_ready(&mut state);
        }
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
    /// So many datagrams are with the network.
    fn left(&mut self, datagrams: usize) {
        self.datagrams += datagrams as u64;
        self.sent += self.batches.left(datagrams);
    }

    /// The system does not send the first batch: it is given up, also where some of its datagrams have left.
    fn failed(&mut self, error: &io::Error) -> Option<Event> {
        let (to, messages) = self.batches.give_up()?;
        let errno = error.raw_os_error().unwrap_or(0);
        if errno == rustix::io::Errno::MSGSIZE.raw_os_error() {
            self.batches.path_changed(to);
        }
        self.failed += messages;
        Some(Event::SendFailed { to, messages, errno })
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

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
