//! Handles of the subscriptions of an rIn.

use std::sync::Arc;
use std::time::Duration;

use super::receive::{Deadline, RIn};
use crate::ground::lock::lock;
use crate::ground::types::{Bid, Epoch, Position};
use crate::state::error::RecvError;
use crate::state::in_event::InEvent;
use crate::state::view::InView;
use crate::state::{Command, Queue, SubscriptionOwner, SubscriptionShared, may_wait};

/// A subscription of an [`RIn`]. [`RIn::subscribe`] and [`RIn::subscription`] return one. A clone is another
/// handle of the same subscription; no call looks the subscription up.
///
/// Dropping a handle ends nothing: the subscription lives until [`Subscription::unsubscribe`], until its log
/// has ended, or until its rIn is gone. A handle keeps its rIn alive. After the end, calls fail with
/// [`RecvError::NotSubscribed`].
///
/// ```
/// use std::time::Duration;
/// use rocketbufs::{Config, Conn, Context, InEvent, Listener, RIn, ROut};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let ctx = Context::new(Config::default())?;
/// # let out = ROut::new(&ctx);
/// let mut writer = out.create_buffer(7, 1 << 20)?.writer()?;
/// # let listener = Listener::bind(&ctx, "127.0.0.1:0")?;
/// # let subscribers = out.clone();
/// # listener.set_conn_cb(move |conn| subscribers.add_conn(&conn));
/// let input = RIn::new(&Conn::connect(&ctx, &listener.local_addr(), b"")?);
/// let subscription = input.subscribe(7, 1 << 20)?;
/// let wait = Some(Duration::from_secs(5));
/// assert!(matches!(subscription.recv(wait)?, Some(InEvent::Subscribed { .. })));
/// writer.append(&[b"hello"])?;
/// let Some(InEvent::Data(view)) = subscription.recv(wait)? else { panic!("nothing came") };
/// assert_eq!(view.to_vec()?, b"hello");
/// view.consume();
/// subscription.unsubscribe();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Subscription {
    pub(crate) rin: RIn,
    pub(crate) subscription: Arc<SubscriptionShared>,
}

/// The state of a subscription, from [`Subscription::info`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriptionInfo {
    /// The writer's log.
    pub epoch: Epoch,
    /// The end of the complete data received so far.
    pub boundary: Position,
    /// The bytes of the ring into which data is received.
    pub capacity_bytes: u64,
    /// Bytes that were copied into the ring: none if the ring is the sender's memory (transport `shm`) or an
    /// adapter writes it (`rdma`), otherwise all bytes since the log began here, including its holes. Bytes
    /// that an application copies out of a view do not count.
    pub copied_bytes: u64,
}

impl Subscription {
    pub(super) fn new(rin: &RIn, subscription: Arc<SubscriptionShared>) -> Self {
        Self { rin: rin.clone(), subscription }
    }

    /// Returns the id of the buffer.
    pub fn bid(&self) -> Bid {
        self.subscription.bid
    }

    /// Returns the subscription, unless the application has unsubscribed.
    pub(crate) fn live(&self) -> Result<&Arc<SubscriptionShared>, RecvError> {
        match lock(&self.subscription.state).sub.is_left() {
            true => Err(RecvError::NotSubscribed(self.subscription.bid)),
            false => Ok(&self.subscription),
        }
    }

    /// Checks that this is the buffer's current subscription: the events of a buffer belong to the current
    /// one, not to one that is over.
    fn is_current(&self) -> Result<(), RecvError> {
        let current = self.rin.shared.subscription(self.subscription.bid);
        match current.is_none_or(|current| Arc::ptr_eq(&current, &self.subscription)) {
            true => Ok(()),
            false => Err(RecvError::NotSubscribed(self.subscription.bid)),
        }
    }

    /// Returns the next data or event of this subscription, and waits for it at most `timeout` (`None`: no
    /// limit). Returns `None` if nothing arrived in time. Data of other subscriptions, events of the
    /// connection and control messages wait for their own [`Subscription::recv`] or for [`RIn::recv`]. Not to
    /// be combined with a data callback.
    ///
    /// # Errors
    /// [`RecvError::NotSubscribed`] after the end of the subscription was received. Otherwise see
    /// [`RIn::recv`].
    pub fn recv(&self, timeout: Option<Duration>) -> Result<Option<InEvent>, RecvError> {
        if self.rin.has_reader() {
            return Err(RecvError::ReaderTaken);
        }
        may_wait(timeout)?;
        let shared = &self.rin.shared;
        let of_this = |queue: &Queue| {
            queue.ready.iter().any(|ready| Arc::ptr_eq(ready, &self.subscription))
                || queue.notices.iter().any(|notice| notice.bid() == Some(self.subscription.bid))
        };
        let mut deadline = Deadline::new(timeout);
        loop {
            let subscription = self.live()?;
            let mut queue = lock(&shared.queue);
            if let Some(at) = queue.notices.iter().position(|notice| notice.bid() == Some(subscription.bid)) {
                self.is_current()?;
                let notice = queue.notices.remove(at);
                shared.settle(&queue);
                return Ok(notice);
            }
            queue.ready.retain(|ready| !Arc::ptr_eq(ready, subscription));
            shared.settle(&queue);
            drop(queue);
            if let Some(event) = self.rin.take_from(subscription) {
                return Ok(Some(event));
            }
            if subscription.is_over() {
                return Err(RecvError::NotSubscribed(subscription.bid));
            }
            let left = deadline.left();
            let queue = lock(&shared.queue);
            if !of_this(&queue) {
                if shared.inner.is_over() {
                    return Err(RecvError::ShutDown);
                }
                if left.is_zero() {
                    return Ok(None);
                }
                drop(self.rin.wait(queue, left, &of_this, false));
            }
        }
    }

    /// Releases the oldest `size_bytes`, so that the writer may use their space again.
    ///
    /// # Errors
    /// More bytes than were received, or the subscription has ended.
    pub fn consume(&self, size_bytes: u64) -> Result<(), RecvError> {
        self.live()?.consume(size_bytes)
    }

    /// Returns a view of all received bytes that were not released, in whole deliveries.
    ///
    /// # Errors
    /// The subscription is not accepted yet, has ended, or is spliced, so that its data belongs to its
    /// subscribers.
    pub fn buf_ref(&self) -> Result<InView, RecvError> {
        let subscription = self.live()?;
        let (view, epoch, pin) = subscription.buf_ref().ok_or(RecvError::NotSubscribed(subscription.bid))?;
        let end = view.to();
        Ok(InView::new(view, subscription.clone(), epoch, Some(pin), end))
    }

    /// Returns the log and the end of the complete data received so far, with which
    /// [`Start::Position`](crate::Start::Position) continues elsewhere. `None` before the subscription is
    /// accepted.
    pub fn position(&self) -> Option<(Epoch, Position)> {
        let state = lock(&self.subscription.state);
        let log = &state.memory.as_ref()?.log;
        Some((log.epoch, log.ring.boundary()))
    }

    /// Returns the state of the subscription. `None` before it is accepted.
    pub fn info(&self) -> Option<SubscriptionInfo> {
        let state = lock(&self.subscription.state);
        let log = &state.memory.as_ref()?.log;
        let ring = &log.ring;
        let copies = !ring.is_peer_written() && !ring.is_exposed();
        Some(SubscriptionInfo {
            epoch: log.epoch,
            boundary: ring.boundary(),
            capacity_bytes: ring.capacity(),
            copied_bytes: if copies { ring.head().saturating_sub(ring.start()) } else { 0 },
        })
    }

    /// Ends the subscription. Unread data and unreceived events are dropped: [`RIn::recv`] returns only those
    /// of the buffer's next subscription from now on. A buffer spliced from this subscription ends with
    /// `Gone`. A second call changes nothing.
    pub fn unsubscribe(&self) {
        let (shared, is_current) = (&self.rin.shared, self.is_current().is_ok());
        shared.forget(&self.subscription);
        // From here on no event of the subscription is reported.
        let mut state = lock(&self.subscription.state);
        let left_before = state.sub.leave();
        if let Some(ring) = state.ring() {
            ring.stop_following();
        }
        drop(state);
        shared.on_settled(&self.subscription);
        if left_before {
            return;
        }
        if is_current {
            // Also for a subscription that is over: it is already removed, but its end may not have been
            // received.
            shared.withdraw(self.subscription.bid);
        }
        let conn = shared.conn().id;
        let command = Command::Unsubscribe { conn, subscription: self.subscription.clone() };
        self.rin.context.shared().send(conn, command);
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").field("bid", &self.subscription.bid).finish()
    }
}
