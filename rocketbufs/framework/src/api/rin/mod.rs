//! The receiving end (paper 1, section 3.2, Listing 2).

mod direct;
mod reader;
mod receive;
mod subscription;

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::api::conn::Conn;
use crate::ground::lock::lock;
use crate::ground::types::{Bid, Policy};
use crate::proto::{CloseCode, MAX_NAME_BYTES};
use crate::state::error::{ControlError, RecvError, SubscribeError};
use crate::state::in_event::InEvent;
use crate::state::options::SubscribeOptions;
use crate::state::view::{BufSeg, InView};
use crate::state::{Command, EndsWithContext, RInShared, Role, SubscriptionOwner, SubscriptionShared};

pub use reader::{InRead, InReader};
pub use receive::RIn;
pub use subscription::{Subscription, SubscriptionInfo};

impl RIn {
    /// Creates the receiving end of this connection, which may already be up or not.
    pub fn new(conn: &Conn) -> Self {
        let shared = Arc::new(RInShared::new(&conn.shared));
        conn.context.shared().add_dependent(Arc::downgrade(&shared) as Weak<dyn EndsWithContext>);
        conn.attach(Role::In(shared.clone()));
        Self { shared, context: conn.context.clone() }
    }

    /// Resumes over another connection: every subscription continues where it stopped, or reports its loss.
    pub fn resume(&self, conn: &Conn) {
        let old = std::mem::replace(&mut *lock(&self.shared.conn), conn.shared.clone());
        if old.id != conn.shared.id {
            old.close(CloseCode::TakenOver, "resumed over another connection");
        }
        conn.attach(Role::In(self.shared.clone()));
    }

    /// Returns the present connection.
    pub fn conn(&self) -> Conn {
        Conn { shared: self.shared.conn(), context: self.context.clone() }
    }

    /// Subscribes to a buffer, from now on, into a ring of `size_bytes`, and returns a handle of the
    /// subscription. Returns at once; the sender's answer is an event.
    ///
    /// # Errors
    /// The buffer is subscribed to already, or a limit is reached. A refusal by the sender is reported as
    /// [`InEvent::Refused`].
    pub fn subscribe(&self, bid: Bid, size_bytes: u64) -> Result<Subscription, SubscribeError> {
        self.subscribe_with(bid, SubscribeOptions::new().size_bytes(size_bytes))
    }

    /// Subscribes with options.
    ///
    /// # Errors
    /// As [`RIn::subscribe`].
    pub fn subscribe_with(
        &self,
        bid: Bid,
        options: SubscribeOptions,
    ) -> Result<Subscription, SubscribeError> {
        self.begin(self.new_subscription(bid, options)?)
    }

    /// Creates a subscription that is not registered yet.
    pub(crate) fn new_subscription(
        &self,
        bid: Bid,
        mut options: SubscribeOptions,
    ) -> Result<Arc<SubscriptionShared>, SubscribeError> {
        let inner = &self.shared.inner;
        let size = *options.size_bytes.get_or_insert(inner.config.buffers.size_bytes);
        if options.name.len() > MAX_NAME_BYTES {
            return Err(SubscribeError::NameTooLong { size: options.name.len(), max: MAX_NAME_BYTES });
        }
        let max = inner.config.buffers.max_ring_bytes;
        if size > max {
            return Err(SubscribeError::TooLarge { size, max });
        }
        let rin = Arc::downgrade(&self.shared) as Weak<dyn SubscriptionOwner>;
        let slot = inner.take_slot().ok_or(SubscribeError::TooMany(inner.config.limits.max_buffers))?;
        Ok(Arc::new(SubscriptionShared::new(bid, slot, rin, inner, options)))
    }

    /// Registers a subscription, and asks the sender for it.
    pub(crate) fn begin(
        &self,
        subscription: Arc<SubscriptionShared>,
    ) -> Result<Subscription, SubscribeError> {
        let mut map = self.shared.subscriptions.write().unwrap_or_else(|p| p.into_inner());
        if map.get(&subscription.bid).is_some_and(|known| !known.is_over()) {
            return Err(SubscribeError::Exists(subscription.bid));
        }
        if subscription.options.policy != Policy::Block {
            self.shared.inner.note_lossy();
        }
        let over = map.insert(subscription.bid, subscription.clone());
        over.iter().for_each(|over| self.shared.keep_unsettled(over));
        drop(map);
        // A durable subscription takes over the position of an earlier one with its name.
        let name = &subscription.options.name;
        let replaced =
            |known: &SubscriptionShared| known.bid == subscription.bid && known.options.name == *name;
        self.shared.retain_unsettled(|known| name.is_empty() || !replaced(known));
        self.request(&subscription);
        Ok(Subscription::new(self, subscription))
    }

    /// Asks the sender for a subscription, or for its rest.
    pub(crate) fn request(&self, subscription: &Arc<SubscriptionShared>) {
        let conn = self.shared.conn().id;
        self.context.shared().send(conn, Command::Subscribe { conn, subscription: subscription.clone() });
    }

    /// Ends the subscription of this buffer; see [`Subscription::unsubscribe`].
    pub fn unsubscribe(&self, bid: Bid) {
        match self.subscription(bid) {
            Some(subscription) => subscription.unsubscribe(),
            // A subscription that is over is already removed, but its end may not have been received.
            None => self.shared.withdraw(bid),
        }
    }

    /// Returns the subscription of this buffer.
    pub fn subscription(&self, bid: Bid) -> Option<Subscription> {
        self.shared.subscription(bid).map(|subscription| Subscription::new(self, subscription))
    }

    /// Returns the subscriptions, ordered by id.
    pub fn subscriptions(&self) -> Vec<Subscription> {
        let all = self.shared.all_subscriptions().into_iter();
        all.map(|subscription| Subscription::new(self, subscription)).collect()
    }

    /// Calls `callback` on a worker thread whenever new complete deliveries arrive: one or several, never
    /// part of one. Set it before subscribing. Data stays until [`RIn::data_consumed`] releases it; the
    /// segment's bytes do not change until the callback returns.
    pub fn set_data_in_cb(&self, callback: impl FnMut(Bid, &BufSeg<'_>) + Send + 'static) {
        self.shared.inner.set_callback(&self.shared.data_cb, Box::new(callback));
    }

    /// Removes the callback of [`RIn::set_data_in_cb`]. Later data waits for [`RIn::recv`]. When this call
    /// has returned, no call of the callback runs, so everything that the callback uses can be freed. The
    /// exception is a call of this function inside the callback itself.
    pub fn unset_data_in_cb(&self) {
        self.shared.inner.unset_callback(&self.shared.data_cb);
        self.shared.all_subscriptions().iter().for_each(|subscription| self.shared.enqueue(subscription));
    }

    /// Calls `callback` on a worker thread for every event that is not data, including unreceived events from
    /// before it was set. With a data callback the newest 256 such events wait; further holes in a buffer's
    /// data are merged into one range.
    pub fn set_event_cb(&self, callback: impl FnMut(InEvent) + Send + 'static) {
        self.shared.inner.set_callback(&self.shared.event_cb, Box::new(callback));
        self.shared.run_backlog();
    }

    /// Removes the callback of [`RIn::set_event_cb`], as [`RIn::unset_data_in_cb`] does. Later events wait
    /// for [`RIn::recv`].
    pub fn unset_event_cb(&self) {
        self.shared.inner.unset_callback(&self.shared.event_cb);
    }

    /// Calls `callback` on a worker thread for every control message of the peer's application, including
    /// unread messages from before it was set.
    pub fn set_control_msg_cb(&self, mut callback: impl FnMut(&RIn, &[u8]) + Send + 'static) {
        // The rIn owns the callback, so the callback must not keep the rIn alive.
        let (shared, context) = (Arc::downgrade(&self.shared), self.context.downgrade());
        let callback = move |message: &[u8]| {
            if let (Some(shared), Some(context)) = (shared.upgrade(), context.upgrade()) {
                callback(&RIn { shared, context }, message);
            }
        };
        self.shared.inner.set_callback(&self.shared.control_cb, Box::new(callback));
        self.shared.run_backlog();
    }

    /// Removes the callback of [`RIn::set_control_msg_cb`], as [`RIn::unset_data_in_cb`] does. Later messages
    /// wait for [`RIn::recv`].
    pub fn unset_control_msg_cb(&self) {
        self.shared.inner.unset_callback(&self.shared.control_cb);
    }

    fn subscribed(&self, bid: Bid) -> Result<Subscription, RecvError> {
        self.subscription(bid).ok_or(RecvError::NotSubscribed(bid))
    }

    /// Releases the oldest `size_bytes` of a buffer, so that the writer may use their space again (paper 1,
    /// section 3.3).
    ///
    /// # Errors
    /// More bytes than were received, or no such subscription.
    pub fn data_consumed(&self, bid: Bid, size_bytes: u64) -> Result<(), RecvError> {
        self.subscribed(bid)?.consume(size_bytes)
    }

    /// Returns a view of all received bytes of a buffer that were not released; see
    /// [`Subscription::buf_ref`].
    ///
    /// # Errors
    /// The rIn has no such subscription, or see [`Subscription::buf_ref`].
    pub fn get_buf_ref(&self, bid: Bid) -> Result<InView, RecvError> {
        self.subscribed(bid)?.buf_ref()
    }

    /// Returns the next data or event of any subscription, and waits for it at most `timeout` (`None`: no
    /// limit; zero: does not wait). Returns `None` if nothing arrived in time. Control messages are returned
    /// here while no [`RIn::set_control_msg_cb`] is set. Not to be combined with a data callback.
    ///
    /// # Errors
    /// The call is made inside a callback, which must not wait, with a time-out other than zero; or there is
    /// an [`InReader`].
    pub fn recv(&self, timeout: Option<Duration>) -> Result<Option<InEvent>, RecvError> {
        if self.has_reader() {
            return Err(RecvError::ReaderTaken);
        }
        self.receive(timeout)
    }

    /// Ends the call of [`RIn::recv`] that waits, or the next one that finds nothing, as if its time were over.
    #[doc(hidden)]
    pub fn wake(&self) {
        let mut queue = lock(&self.shared.queue);
        queue.woken = true;
        self.shared.signal(&queue);
    }

    /// Returns the exclusive reader of this rIn, which takes no lock for each delivery. While it exists
    /// [`RIn::recv`] fails.
    ///
    /// # Errors
    /// The rIn has an exclusive reader already.
    pub fn reader(&self) -> Result<InReader, RecvError> {
        InReader::new(self)
    }

    /// Returns a descriptor that is readable while [`RIn::recv`] would return something, for the
    /// application's own event loop, which must only poll it. The descriptor lives as long as the rIn's last
    /// handle.
    ///
    /// # Errors
    /// The process has no free descriptor.
    pub fn pollable(&self) -> std::io::Result<BorrowedFd<'_>> {
        let queue = lock(&self.shared.queue);
        self.shared.readable.descriptor(self.shared.has_something(&queue))
    }

    /// Sends an application control message to the peer, in order with the data.
    ///
    /// # Errors
    /// The message is too large, too many messages wait, or the connection is down.
    pub fn send_control(&self, message: &[u8]) -> Result<(), ControlError> {
        self.shared.conn().send_control(message)
    }
}

impl std::fmt::Debug for RIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RIn").field("conn", &self.shared.conn().id).finish()
    }
}
