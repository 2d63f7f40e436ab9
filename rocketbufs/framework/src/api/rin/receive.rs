//! Receiving from the queue of an rIn.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use crate::api::context::Context;
use crate::ground::lock::lock;
use crate::proto::Item;
use crate::state::error::RecvError;
use crate::state::in_event::{InEvent, event_of};
use crate::state::view::InView;
use crate::state::{Queue, RInShared, SubscriptionOwner, SubscriptionShared, may_wait};
use crate::worker::Waiting;

/// The receiving end for buffers of one [`ROut`](crate::ROut). A clone is another handle.
///
/// Data is received by callback ([`RIn::set_data_in_cb`]) or synchronously ([`RIn::recv`]). Either way the
/// application reads the bytes where they landed, and their space is used again once they are released
/// ([`RIn::data_consumed`], [`InView::consume`]).
///
/// The connection keeps its subscriptions alive: dropping the last handle ends none of them.
/// [`RIn::unsubscribe`] does, and so does closing the connection.
///
/// ```
/// use std::time::Duration;
/// use rocketbufs::{Config, Conn, Context, InEvent, Listener, RIn, ROut};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ctx = Context::new(Config::default())?;
/// let out = ROut::new(&ctx);
/// out.create_buffer(7, 1 << 20)?;
/// let listener = Listener::bind(&ctx, "127.0.0.1:0")?;
/// let subscribers = out.clone();
/// listener.set_conn_cb(move |conn| subscribers.add_conn(&conn));
///
/// let input = RIn::new(&Conn::connect(&ctx, &listener.local_addr(), b"")?);
/// input.subscribe(7, 1 << 20)?;
/// let wait = Some(Duration::from_secs(5));
/// assert!(matches!(input.recv(wait)?, Some(InEvent::Subscribed { bid: 7, .. })));
///
/// let mut segment = out.get_output_segment(7, 5, false)?;
/// segment.bytes_mut().copy_from_slice(b"hello");
/// out.deliver(segment, 5, None)?;
/// let Some(InEvent::Data(view)) = input.recv(wait)? else { panic!("nothing came") };
/// assert_eq!(view.as_slice(), Some(&b"hello"[..]));
/// view.consume();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RIn {
    pub(crate) shared: Arc<RInShared>,
    pub(super) context: Context,
}

impl RIn {
    pub(super) fn receive(&self, timeout: Option<Duration>) -> Result<Option<InEvent>, RecvError> {
        may_wait(timeout)?;
        let mut deadline = Deadline::new(timeout);
        let shared = &self.shared;
        let mut queue = lock(&shared.queue);
        loop {
            if let Some(notice) = queue.next_notice() {
                shared.settle(&queue);
                return Ok(Some(notice));
            }
            if let Some(subscription) = queue.ready.pop_front() {
                shared.settle(&queue);
                drop(queue);
                if let Some(received) = self.take_from(&subscription) {
                    return Ok(Some(received));
                }
                queue = lock(&shared.queue);
                continue;
            }
            if std::mem::take(&mut queue.woken) {
                shared.settle(&queue);
                return Ok(None);
            }
            let waits = timeout != Some(Duration::ZERO);
            if if waits { self.may_poll(&queue.polled) } else { self.looks() } {
                let polled = queue.polled.clone();
                drop(queue);
                if let Some(received) = if waits { self.poll(&polled) } else { self.look(&polled) } {
                    return Ok(Some(received));
                }
                queue = lock(&shared.queue);
                if !queue.is_empty() {
                    continue;
                }
            }
            if shared.inner.is_over() {
                return Err(RecvError::ShutDown);
            }
            let left = deadline.left();
            if left.is_zero() {
                return Ok(None);
            }
            queue = self.wait(queue, left, &|queue| !queue.is_empty(), true);
        }
    }

    /// Waits for news in the queue at most for the given time, or does the worker's work until there may be
    /// news. With `polls` the call returns when it is better to poll the rings.
    pub(super) fn wait<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        left: Duration,
        news: &dyn Fn(&Queue) -> bool,
        polls: bool,
    ) -> MutexGuard<'a, Queue> {
        let shared = &self.shared;
        // Looked up each time, since the rIn may resume over a connection of another worker.
        let waiting = shared.worker_to_run().map(|worker| Waiting::new(&shared.inner, worker));
        if let Some(waiting) = waiting.as_ref().filter(|waiting| waiting.is_alone()) {
            queue.run_by_caller |= waiting.bit();
            let polled = queue.polled.clone();
            drop(queue);
            let drove = waiting.run(left, &|| news(&lock(&shared.queue)) || polls && self.may_poll(&polled));
            queue = lock(&shared.queue);
            queue.run_by_caller &= !waiting.bit();
            if drove || news(&queue) || shared.inner.is_over() {
                return queue;
            }
            waiting.want(shared);
        }
        queue.waiting += 1;
        queue = shared.arrived.wait_timeout(queue, left).unwrap_or_else(|p| p.into_inner()).0;
        queue.waiting -= 1;
        queue
    }

    pub(crate) fn has_reader(&self) -> bool {
        self.shared.has_reader.load(Ordering::Relaxed)
    }

    pub(super) fn take_from(&self, subscription: &Arc<SubscriptionShared>) -> Option<InEvent> {
        // Cleared before the look: later news queues the subscription again. Both sides take the state's lock
        // between the flag and the data, so that one of them sees the other.
        subscription.queued.store(false, Ordering::Relaxed);
        let item = subscription.next_item(true)?;
        // Buffers take turns: a buffer with more data goes to the end of the queue.
        self.shared.enqueue(subscription);
        let (from, to, pin, end) = match item {
            Item::Data(from, to) => (from, to, Some(from), to),
            Item::Payload { from, to, next } => (from, to, None, next),
            other => {
                self.shared.forget_if_over(subscription);
                return Some(event_of(subscription.bid, other));
            }
        };
        let (view, epoch) = subscription.view(from, to)?;
        Some(InEvent::Data(InView::new(view, subscription.clone(), epoch, pin, end)))
    }
}

/// The end of a call's time. The clock is first read when the time is first asked for, so data that is
/// already there costs no read of the clock.
pub(super) struct Deadline {
    timeout: Option<Duration>,
    at: Option<Instant>,
}

impl Deadline {
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, at: None }
    }

    /// Returns the remaining time.
    pub(super) fn left(&mut self) -> Duration {
        const EVER: Duration = Duration::from_secs(3600);
        let Some(timeout) = self.timeout.filter(|timeout| !timeout.is_zero()) else {
            return self.timeout.unwrap_or(EVER);
        };
        let now = Instant::now();
        match self.at {
            Some(at) => at.saturating_duration_since(now),
            None => {
                self.at = now.checked_add(timeout);
                if self.at.is_some() { timeout } else { EVER }
            }
        }
    }
}
