//! The background thread of a queue. The thread sleeps until the exact deadline of the next batch or gap, on the
//! socket when no application thread reads it, and without a deadline when nothing is pending: an idle queue
//! costs nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::event_queue::EventQueue;
use super::mailbox::{MailboxQueue, Popped};
use super::receive_half::ReceiveHalf;
use super::send_half::SendHalf;
use super::socket::Socket;
use super::wake::{Waker, timespec};
use crate::codec::Codec;
use crate::config::Config;
use crate::error::OpenError;
use crate::event::Stats;
use crate::proto::secure::Sessions;

/// The longest sleep of a queue that ends, where another thread is sending.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// How long a queue that ends waits for the network to take its pending messages.
const LINGER: Duration = Duration::from_secs(1);

/// Both halves of a queue and the state that they share.
pub(crate) struct Engine<T> {
    pub socket: Arc<Socket>,
    pub send_half: Arc<SendHalf>,
    pub receive_half: ReceiveHalf<T>,
    pub events: Arc<EventQueue>,
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
        // An epoch of 0 stands for one that is not known yet.
        let epoch = epoch.max(1);
        let socket = Arc::new(socket);
        let waker = Arc::new(Waker::new()?);
        let events = Arc::new(EventQueue::new(config.max_events));
        let sessions = config.security.clone().map(|security| {
            let random =
                |bytes: &mut [u8]| getrandom::fill(bytes).expect("the system had random bytes before");
            Sessions::new(security, Instant::now(), Box::new(random))
        });
        let send_half = Arc::new(SendHalf::new(
            &config,
            epoch,
            Arc::clone(&socket),
            Arc::clone(&waker),
            Arc::clone(&events),
            sessions,
        ));
        let engine = Arc::new(Engine {
            send_half: Arc::clone(&send_half),
            receive_half: ReceiveHalf::new(
                &config,
                epoch,
                Arc::clone(&socket),
                codec,
                Arc::clone(&waker),
                Arc::clone(&events),
                send_half,
            ),
            socket,
            events,
            config,
            codec,
            epoch,
            waker,
            stop: AtomicBool::new(false),
        });
        let background = Arc::clone(&engine);
        let thread = threads::spawn("cmq", move || background.run()).map_err(OpenError::System)?;
        Ok((engine, thread))
    }

    fn run(&self) {
        let (mut readable, mut writable) = (false, false);
        // Pairs with the release in `stop`: everything before the stop is visible.
        while !self.stop.load(Ordering::Acquire) {
            let (due, blocked) = self.send_half.turn(writable);
            let (look, on_socket) = self.receive_half.turn(readable);
            let until = [due, look].into_iter().flatten().min();
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, on_socket);
            flags.set(PollFlags::OUT, blocked);
            let mut fds = [
                PollFd::from_borrowed_fd(self.waker.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.socket.fd(), flags),
            ];
            // Without flags the socket must not be in the set: poll would report its errors for ever.
            let watched = if flags.is_empty() { 1 } else { 2 };
            let slept = poll(&mut fds[..watched], timespec(until, Instant::now()).as_ref());
            let (woken, socket) = (fds[0].revents(), fds[1].revents());
            if slept.is_ok() && woken.contains(PollFlags::IN) {
                self.waker.drain();
            }
            let error = socket.intersects(PollFlags::ERR | PollFlags::HUP);
            readable = slept.is_ok() && (socket.contains(PollFlags::IN) || error);
            writable = slept.is_ok() && (socket.contains(PollFlags::OUT) || error);
        }
    }

    /// Waits until `take` finds something in the mailbox, at most this long. `None` has no limit.
    pub fn wait<M>(
        &self,
        queue: &MailboxQueue<T>,
        timeout: Option<Duration>,
        mut take: impl FnMut() -> Option<M>,
    ) -> Option<M> {
        // A message that is here costs no look at the clock.
        if let Some(message) = take() {
            return Some(message);
        }
        if self.config.flush_on_wait {
            self.send_half.flush();
        }
        self.receive_half.wait(queue, Self::until(timeout), take)
    }

    /// Takes all messages, and waits for one at most this long. False if there is none.
    pub fn pop_all(&self, queue: &MailboxQueue<T>, into: &mut Popped<T>, timeout: Option<Duration>) -> bool {
        into.len() > 0 || self.wait(queue, timeout, || queue.pop_all(into)).is_some()
    }

    /// Ends the thread once all pending messages are sent, or after [`LINGER`].
    pub fn stop(&self, thread: JoinHandle<()>) {
        self.send_half.close();
        let end = Instant::now() + LINGER;
        while self.send_half.pending() > 0 && Instant::now() < end {
            let (again, on_socket) = self.send_half.turn(true);
            if self.send_half.pending() == 0 {
                break;
            }
            let mut fds = [PollFd::from_borrowed_fd(self.socket.fd(), PollFlags::OUT)];
            // Nothing signals the end of another thread's system call.
            let until = again.unwrap_or(end).min(end).min(Instant::now() + POLL_INTERVAL);
            let _ = poll(&mut fds[..usize::from(on_socket)], timespec(Some(until), Instant::now()).as_ref());
        }
        // Pairs with the acquire in `run`.
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        // The thread panics only if the application's types do. No caller is left to report it to.
        let _ = thread.join();
    }

    /// The moment after this time. A time that overflows is no limit.
    pub fn until(timeout: Option<Duration>) -> Option<Instant> {
        timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.send_half.count(&mut stats);
        self.receive_half.count(&mut stats);
        stats.events_dropped = self.events.dropped();
        stats
    }
}
