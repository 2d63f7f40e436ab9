//! The thread behind a queue: sleeps until the exact time of the next batch or gap, on the socket when nobody else reads
//! it, and otherwise not at all: an idle queue costs nothing.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::lock;
use super::mailbox::{Popped, Queue};
use super::receiving::Receiving;
use super::sending::Sending;
use super::socket::Socket;
use crate::codec::Codec;
use crate::config::Config;
use crate::error::OpenError;
use crate::event::{Event, Stats};

/// How long it waits at most before it looks again.
const TURN: Duration = Duration::from_millis(1);
/// How long a queue that ends waits for the network to take what was pushed.
const LINGER: Duration = Duration::from_secs(1);

/// Wakes the thread behind.
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub fn new() -> Result<Waker, OpenError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        fd.map(Waker).map_err(|e| OpenError::System(e.into()))
    }

    pub fn wake(&self) {
        // It fails only if the counter is full, and then the thread is being woken.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn rest(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

/// Events until somebody reads them.
pub(crate) struct Events {
    waiting: Mutex<VecDeque<Event>>,
    limit: usize,
    dropped: AtomicU64,
}

impl Events {
    pub fn new(limit: usize) -> Events {
        Events { waiting: Mutex::new(VecDeque::new()), limit, dropped: AtomicU64::new(0) }
    }

    pub fn push(&self, event: Event) {
        let mut waiting = lock(&self.waiting);
        if waiting.len() < self.limit {
            waiting.push_back(event);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn pop(&self) -> Option<Event> {
        lock(&self.waiting).pop_front()
    }
}

/// Sleeps until there is something to read, or until then; whether there is.
pub(crate) fn sleep_on(socket: &Socket, until: Option<Instant>, now: Instant) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket.fd(), PollFlags::IN)];
    matches!(poll(&mut fds, timespec(until, now).as_ref()), Ok(count) if count > 0)
}

fn timespec(until: Option<Instant>, now: Instant) -> Option<Timespec> {
    let time = until?.saturating_duration_since(now);
    Timespec::try_from(time).ok()
}

/// Both halves of a queue and what they share.
pub(crate) struct Engine<T> {
    pub socket: Arc<Socket>,
    pub sending: Sending,
    pub receiving: Receiving<T>,
    pub events: Arc<Events>,
    pub config: Config,
    pub codec: Codec<T>,
    pub epoch: u64,
    waker: Arc<Waker>,
    stop: AtomicBool,
}

impl<T: Send + 'static> Engine<T> {
    pub fn start(
        socket: Socket,
        codec: Codec<T>,
        config: Config,
    ) -> Result<(Arc<Engine<T>>, JoinHandle<()>), OpenError> {
        let epoch = getrandom::u64().map_err(|e| OpenError::System(std::io::Error::other(e)))?;
        let socket = Arc::new(socket);
        let waker = Arc::new(Waker::new()?);
        let events = Arc::new(Events::new(config.max_events));
        let engine = Arc::new(Engine {
            sending: Sending::new(
                &config,
                epoch,
                Arc::clone(&socket),
                Arc::clone(&waker),
                Arc::clone(&events),
            ),
            receiving: Receiving::new(
                &config,
                Arc::clone(&socket),
                codec,
                Arc::clone(&waker),
                Arc::clone(&events),
            ),
            socket,
            events,
            config,
            codec,
            epoch,
            waker,
            stop: AtomicBool::new(false),
        });
        let behind = Arc::clone(&engine);
        let thread = std::thread::Builder::new()
            .name("cmq".to_owned())
            .spawn(move || behind.run())
            .map_err(OpenError::System)?;
        Ok((engine, thread))
    }

    fn run(&self) {
        let (mut readable, mut writable) = (false, false);
        // Pairs with the release in `stop`: what was done before it is seen.
        while !self.stop.load(Ordering::Acquire) {
            let (due, blocked) = self.sending.turn(writable);
            let (look, on_socket) = self.receiving.turn(readable);
            let until = [due, look].into_iter().flatten().min();
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, on_socket);
            flags.set(PollFlags::OUT, blocked);
            let mut fds = [
                PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(&self.waker.0), PollFlags::IN),
                PollFd::from_borrowed_fd(self.socket.fd(), flags),
            ];
            // Without flags it must not be there at all: errors would be reported for ever.
            let watched = if flags.is_empty() { 1 } else { 2 };
            let slept = poll(&mut fds[..watched], timespec(until, Instant::now()).as_ref());
            let (woken, socket) = (fds[0].revents(), fds[1].revents());
            if slept.is_ok() && woken.contains(PollFlags::IN) {
                self.waker.rest();
            }
            let error = socket.intersects(PollFlags::ERR | PollFlags::HUP);
            readable = slept.is_ok() && (socket.contains(PollFlags::IN) || error);
            writable = slept.is_ok() && (socket.contains(PollFlags::OUT) || error);
        }
    }

    /// What `take` finds, waiting at most so long for something to come into the mailbox.
    pub fn wait<M>(
        &self,
        queue: &Queue<T>,
        timeout: Option<Duration>,
        mut take: impl FnMut() -> Option<M>,
    ) -> Option<M> {
        // A message that is there costs no look at the clock.
        if let Some(message) = take() {
            return Some(message);
        }
        if self.config.flush_on_wait {
            self.sending.flush();
        }
        // A time too far away to be a time is none.
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.receiving.wait(queue, until, take)
    }

    /// Takes everything that is there, waiting at most so long for something; whether there is.
    pub fn pop_all(&self, queue: &Queue<T>, into: &mut Popped<T>, timeout: Duration) -> bool {
        into.len() > 0 || self.wait(queue, Some(timeout), || queue.pop_all(into)).is_some()
    }

    /// Ends the thread, after everything pushed has left, or [`LINGER`] has passed.
    pub fn stop(&self, thread: JoinHandle<()>) {
        self.sending.close();
        let end = Instant::now() + LINGER;
        while self.sending.pending() > 0 && Instant::now() < end {
            let (again, on_socket) = self.sending.turn(true);
            if self.sending.pending() == 0 {
                break;
            }
            let mut fds = [PollFd::from_borrowed_fd(self.socket.fd(), PollFlags::OUT)];
            // Where another thread is sending nothing tells that it is done.
            let until = again.unwrap_or(end).min(end).min(Instant::now() + TURN);
            let _ = poll(&mut fds[..usize::from(on_socket)], timespec(Some(until), Instant::now()).as_ref());
        }
        // Pairs with the acquire in `run`.
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        // It does not panic unless the application's types do, and then there is nobody to tell.
        let _ = thread.join();
    }

    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.sending.count(&mut stats);
        self.receiving.count(&mut stats);
        stats.events_dropped = self.events.dropped.load(Ordering::Relaxed);
        stats
    }
}
