//! The sending end (paper 1, section 3.2, Listing 2).

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rocketring::RingConfig;

use crate::api::conn::Conn;
use crate::api::context::Context;
use crate::api::out_buffer::OutBuffer;
use crate::api::rin::RIn;
use crate::ground::limits::{Admitted, Asking};
use crate::ground::lock::lock;
use crate::ground::out_segment::OutSegment;
use crate::ground::types::{Bid, Epoch, Position, ProgressLevel};
use crate::proto::End;
use crate::state::error::{BufferError, ControlError, DeliverError, RecvError, SegmentError, WaitError};
use crate::state::events::OutEvent;
use crate::state::options::{BufferOptions, SubscribeOptions};
use crate::state::{
    Buffer, BufferOwner, Command, ConnShared, Log, ROutShared, Request, Role, SubscriberProgress,
    SubscriptionShared, Upstream, may_wait,
};

/// Makes buffers and sends them to any number of [`RIn`]s. Cloning gives another handle.
///
/// A delivery has two steps: get a segment of the buffer, fill it in place, deliver it. See [`RIn`] for an example of
/// both ends.
#[derive(Clone)]
pub struct ROut {
    pub(crate) shared: Arc<ROutShared>,
    context: Context,
}

impl ROut {
    /// An rOut without buffers and connections.
    pub fn new(context: &Context) -> Self {
        let shared = Arc::new(ROutShared::new(context.inner()));
        let mut routs = lock(&context.shared().routs);
        // The workers forget dropped ones at their ticks, of which a context without connections has none.
        if routs.len() == routs.capacity() {
            routs.retain(|rout| rout.strong_count() > 0);
        }
        routs.push(Arc::downgrade(&shared));
        drop(routs);
        Self { shared, context: context.clone() }
    }

    /// Asks the application about each subscription of a peer before it is accepted. `decide` returns the policies that the peer may
    /// ask for, besides those of [`OutBuffer::set_limits`], and the owner of the subscription's name ([`Admitted`]); or none: the
    /// buffer looks to the peer as if it did not exist. `decide` runs on a worker thread, one call at a time, and must not
    /// wait. A panic refuses the subscription and closes its connection. Without this call everything is allowed. Existing
    /// subscriptions stay until [`ROut::review_admissions`].
    ///
    /// A callback in place of an earlier one leaves no moment without either; a call of the earlier one on another thread has
    /// returned when this returns.
    ///
    /// ```
    /// # use rocketbufs::{Config, Context, PolicySet, ROut};
    /// # let out = ROut::new(&Context::new(Config::default())?);
    /// // Buffers from 1,000 on are for nobody.
    /// out.set_admission(|asking| (asking.bid < 1000).then_some(PolicySet::ALL));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_admission<A: Into<Admitted>>(
        &self,
        mut decide: impl FnMut(&Asking<'_>) -> Option<A> + Send + 'static,
    ) {
        let decide = move |asking: &Asking<'_>| decide(asking).map(Into::into);
        self.shared.inner.replace_callback(&self.shared.admission, Box::new(decide));
    }

    /// Removes the callback of [`ROut::set_admission`], as [`ROut::unset_data_out_cb`] does: everything is allowed again.
    pub fn unset_admission(&self) {
        self.shared.inner.unset_callback(&self.shared.admission);
    }

    /// Asks the application again about all subscriptions, because its decisions may have changed. A subscription that is not
    /// allowed any more ends, and its peer is told; its position is not kept. Everything else on the connection goes on. The call
    /// returns at once.
    pub fn review_admissions(&self) {
        for worker in &self.context.shared().workers {
            worker.send(Command::Review(self.shared.clone()));
        }
    }

    /// Lets the other end of this connection subscribe to the buffers here.
    pub fn add_conn(&self, conn: &Conn) {
        lock(&self.shared.conns).insert(conn.id());
        conn.attach(Role::Out(self.shared.clone()));
    }

    /// Makes a buffer whose ring has `size_bytes`, and returns a handle of it.
    ///
    /// # Errors
    /// The id is taken, or there is no memory.
    pub fn create_buffer(&self, bid: Bid, size_bytes: u64) -> Result<OutBuffer, BufferError> {
        self.create_buffer_with(bid, BufferOptions::new().size_bytes(size_bytes))
    }

    /// Makes a buffer with options.
    ///
    /// # Errors
    /// As [`ROut::create_buffer`].
    pub fn create_buffer_with(&self, bid: Bid, options: BufferOptions) -> Result<OutBuffer, BufferError> {
        let inner = &self.shared.inner;
        if self.shared.buffer(bid).is_some() {
            return Err(BufferError::Exists(bid));
        }
        let ring = RingConfig {
            capacity_bytes: options.size_bytes.unwrap_or(inner.config.buffers.size_bytes),
            retain_bytes: options.retain_bytes.or(inner.config.buffers.retain_bytes),
            max_delivery_bytes: options.max_delivery_bytes,
            flow_control: options.flow_control,
            start: options.start,
        };
        let ring = match options.mapped_locally {
            true => inner.ring_for_local_peers(ring)?,
            false => inner.ring_for_others(ring)?,
        };
        let (start, max_delivery) = (options.start, ring.max_delivery());
        if start > Position::MAX - max_delivery {
            return Err(BufferError::NoPositions { start, max_delivery });
        }
        let buffer = self.make(bid, None, options.keep_until_delivered && options.flow_control)?;
        *lock(&buffer.writer) = ring.writer();
        let trims =
            inner.config.buffers.idle_trim_ms > 0 && ring.flow_control() && ring.descriptor().is_none();
        if !trims {
            buffer.idle_state.disable();
        }
        let epoch = options.epoch.unwrap_or_else(|| Epoch(inner.random()));
        let _ = buffer.log.set(Log { ring, epoch });
        if trims {
            // Before any thread can find the buffer and write it.
            let worker = &self.context.shared().workers[buffer.trimming_worker()];
            worker.send(Command::Trim(Arc::downgrade(&buffer)));
        }
        self.shared.insert(buffer.clone())?;
        // An end of the context that comes after this finds the buffer.
        if inner.is_over() {
            buffer.close();
        }
        Ok(self.handle(buffer))
    }

    fn handle(&self, buffer: Arc<Buffer>) -> OutBuffer {
        OutBuffer::new(buffer, &self.shared, &self.context)
    }

    /// The buffer of this id.
    pub fn buffer(&self, bid: Bid) -> Option<OutBuffer> {
        self.shared.buffer(bid).map(|buffer| self.handle(buffer))
    }

    /// The buffers of this rOut, in no order.
    pub fn buffers(&self) -> Vec<OutBuffer> {
        self.shared.all_buffers().into_iter().map(|buffer| self.handle(buffer)).collect()
    }

    fn make(
        &self,
        bid: Bid,
        source: Option<Weak<dyn Upstream>>,
        keep: bool,
    ) -> Result<Arc<Buffer>, BufferError> {
        let inner = &self.shared.inner;
        let out = Arc::downgrade(&self.shared) as Weak<dyn BufferOwner>;
        let slot = inner.take_slot().ok_or(BufferError::TooMany(inner.config.limits.max_buffers))?;
        Ok(Arc::new(Buffer::new(bid, slot, out, inner, source, keep)))
    }

    /// Ends the buffer of this id; see [`OutBuffer::destroy`].
    ///
    /// # Errors
    /// The rOut has no such buffer.
    pub fn destroy_buffer(&self, bid: Bid) -> Result<Position, BufferError> {
        Ok(self.buffer(bid).ok_or(BufferError::NoSuchBuffer(bid))?.destroy())
    }

    /// Takes the rIn's ring of buffer `bid` as a buffer of this rOut, with the same id: bytes that arrive there go out
    /// here without a copy (paper 1, section 3.4). For a subscription that is begun to be spliced use
    /// [`ROut::splice_with`]: a ring that exists before it is spliced keeps no history for subscribers that join later, and
    /// those on this machine cannot map it and are sent copies, unless it was subscribed to with `retain_bytes`.
    ///
    /// # Errors
    /// The id is taken here, or the rIn has no such subscription (or it is spliced already, shares a budget, or is an [`InReader`](crate::InReader)'s).
    pub fn splice(&self, input: &RIn, bid: Bid) -> Result<OutBuffer, BufferError> {
        self.splice_as(input, bid, bid)
    }

    /// As [`ROut::splice`], under another id, as a broker with many publishers does.
    ///
    /// # Errors
    /// As [`ROut::splice`].
    pub fn splice_as(&self, input: &RIn, bid: Bid, out_bid: Bid) -> Result<OutBuffer, BufferError> {
        let subscription = input.shared.subscription(bid).ok_or(BufferError::NoSuchBuffer(bid))?;
        self.splice_subscription(input, &subscription, out_bid).map(|buffer| self.handle(buffer))
    }

    /// Subscribes the rIn to the sender's buffer `bid` and splices it to a buffer `out_bid` of this rOut, in one step: the
    /// ring is made for the subscribers of this rOut, whenever the sender answers. Subscribers on this machine can map the
    /// ring. Its history is the one that [`SubscribeOptions::retain_bytes`] says, half of the ring by default.
    ///
    /// ```
    /// use rocketbufs::{Config, Conn, Context, Listener, RIn, ROut, SubscribeOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let source = Context::new(Config::default())?;
    /// # let writes = ROut::new(&source);
    /// # writes.create_buffer(7, 1 << 20)?;
    /// # let listener = Listener::bind(&source, "127.0.0.1:0")?;
    /// # let to = writes.clone();
    /// # listener.set_conn_cb(move |conn| to.add_conn(&conn));
    /// # let addr = listener.local_addr();
    /// let broker = Context::new(Config::default())?;
    /// let out = ROut::new(&broker);
    /// let input = RIn::new(&Conn::connect(&broker, &addr, b"")?);
    /// out.splice_with(&input, 7, 70, SubscribeOptions::new().size_bytes(1 << 20))?;
    /// assert_eq!(out.buffers()[0].bid(), 70); // Its subscribers get what is written into 7.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`BufferError::NotSubscribed`], or as [`ROut::splice`]; nothing is subscribed to or made then. A refusal of the
    /// sender comes as [`InEvent::Refused`](crate::InEvent::Refused).
    pub fn splice_with(
        &self,
        input: &RIn,
        bid: Bid,
        out_bid: Bid,
        options: SubscribeOptions,
    ) -> Result<OutBuffer, BufferError> {
        let subscription = input.new_subscription(bid, options)?;
        let buffer = self.splice_subscription(input, &subscription, out_bid)?;
        match input.begin(subscription) {
            Ok(_) => Ok(self.handle(buffer)),
            Err(error) => {
                self.remove_unused(&buffer);
                Err(error.into())
            }
        }
    }

    fn splice_subscription(
        &self,
        input: &RIn,
        subscription: &Arc<SubscriptionShared>,
        out_bid: Bid,
    ) -> Result<Arc<Buffer>, BufferError> {
        let bid = subscription.bid;
        if subscription.options.budget.is_some() {
            return Err(BufferError::Budgeted(bid));
        }
        if input.has_reader() {
            return Err(BufferError::HasReader(bid));
        }
        let buffer = self.make(out_bid, Some(Arc::downgrade(subscription) as Weak<dyn Upstream>), false)?;
        self.shared.insert(buffer.clone())?;
        if !subscription.splice_to(&buffer) {
            self.remove_unused(&buffer);
            return Err(match lock(&subscription.state).sub.is_left() {
                true => BufferError::NoSuchBuffer(bid),
                false if input.has_reader() => BufferError::HasReader(bid),
                false => BufferError::Spliced(bid),
            });
        }
        let known = input.shared.subscription(bid).is_some_and(|known| Arc::ptr_eq(&known, subscription));
        if known && lock(&subscription.state).sub.wire().is_none() {
            // The connection may have gone while the subscription was not spliced; the writer's absence starts
            // now.
            input.request(subscription);
        }
        Ok(buffer)
    }

    /// Takes back a buffer into which nothing will come.
    fn remove_unused(&self, buffer: &Arc<Buffer>) {
        self.shared.remove(buffer);
        // Somebody may have found it already.
        buffer.set_end(End::Closed(0));
    }

    /// A free segment of exactly `size` bytes: fill it and [`ROut::deliver`] it. With `blocking` it waits for room.
    ///
    /// # Errors
    /// [`SegmentError::Full`] where the papers return `vec_count = -1`. [`OutBuffer::segment`] waits for a limited time.
    pub fn get_output_segment(
        &self,
        bid: Bid,
        size: u64,
        blocking: bool,
    ) -> Result<OutSegment, SegmentError> {
        let timeout = if blocking { None } else { Some(Duration::ZERO) };
        self.buffer(bid).ok_or(SegmentError::NoSuchBuffer(bid))?.segment(size, timeout)
    }

    /// Makes the first `size` bytes of a segment one delivery; see [`OutBuffer::deliver`].
    ///
    /// # Errors
    /// [`DeliverError`]: the segment comes back where it can be delivered otherwise.
    pub fn deliver(
        &self,
        segment: OutSegment,
        size: u64,
        context: Option<u64>,
    ) -> Result<Position, DeliverError> {
        self.buffer(segment.bid()).ok_or(DeliverError::Closed)?.deliver(segment, size, context)
    }

    /// Calls `callback(bid, context)` on a worker thread when a delivery that was given a context has landed with every
    /// subscriber that was there.
    pub fn set_data_out_cb(&self, callback: impl FnMut(Bid, u64) + Send + 'static) {
        self.shared.inner.set_callback(&self.shared.data_out_cb, Box::new(callback));
    }

    /// Removes the callback of [`ROut::set_data_out_cb`]. The callback's state can be freed when this call has returned: no
    /// call of the callback runs then, unless this call is made inside the callback.
    pub fn unset_data_out_cb(&self) {
        self.shared.inner.unset_callback(&self.shared.data_out_cb);
    }

    /// Calls `callback` on a worker thread whenever a subscriber has told how far it is.
    pub fn set_subscriber_progress_cb(&self, callback: impl FnMut(SubscriberProgress) + Send + 'static) {
        self.shared.inner.set_callback(&self.shared.progress_cb, Box::new(callback));
    }

    /// Removes the callback of [`ROut::set_subscriber_progress_cb`], as [`ROut::unset_data_out_cb`] does.
    pub fn unset_subscriber_progress_cb(&self) {
        self.shared.inner.unset_callback(&self.shared.progress_cb);
    }

    /// Calls `callback` on a worker thread for every control message of the application at another end, also for those that
    /// came before it was set and were not received. Of these, 64 of the largest size wait at most; later ones are dropped.
    pub fn set_control_msg_cb(&self, mut callback: impl FnMut(&Conn, &[u8]) + Send + 'static) {
        let context = self.context.downgrade();
        let callback = move |conn: &Arc<ConnShared>, message: &[u8]| {
            if let Some(context) = context.upgrade() {
                callback(&Conn { shared: conn.clone(), context }, message);
            }
        };
        self.shared.inner.set_callback(&self.shared.control_cb, Box::new(callback));
        for worker in &self.shared.inner.workers {
            let (out, index) = (self.shared.clone(), worker.index);
            worker.request(Request::Run(Box::new(move || out.run_control_backlog(index))));
        }
    }

    /// Removes the callback of [`ROut::set_control_msg_cb`], as [`ROut::unset_data_out_cb`] does.
    pub fn unset_control_msg_cb(&self) {
        self.shared.inner.unset_callback(&self.shared.control_cb);
    }

    /// Calls `callback` on a worker thread for every event; for the events that wait already, on this thread.
    pub fn set_event_cb(&self, callback: impl FnMut(OutEvent) + Send + 'static) {
        self.shared.inner.set_callback(&self.shared.event_cb, Box::new(callback));
        self.shared.run_event_backlog();
    }

    /// Removes the callback of [`ROut::set_event_cb`], as [`ROut::unset_data_out_cb`] does: events wait for
    /// [`ROut::recv_event`].
    pub fn unset_event_cb(&self) {
        self.shared.inner.unset_callback(&self.shared.event_cb);
    }

    /// The synchronous way: the next event, waiting at most `timeout` (`None`: no limit; zero: only looks); none if nothing
    /// happened in time. Events with a callback of their own do not come here. [`OutEvent::DataOut`],
    /// [`OutEvent::SubscriberProgress`] and [`OutEvent::Control`] come from the first call of this or of
    /// [`ROut::pollable`] on. The others always wait, at most 4,096 events: then the oldest event is dropped, and
    /// [`OutEvent::Missed`] tells how many were.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rocketbufs::{Config, Conn, Context, Listener, OutEvent, RIn, ROut};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let ctx = Context::new(Config::default())?;
    /// let out = ROut::new(&ctx);
    /// out.create_buffer(7, 1 << 20)?;
    /// # let listener = Listener::bind(&ctx, "127.0.0.1:0")?;
    /// # let to = out.clone();
    /// # listener.set_conn_cb(move |conn| to.add_conn(&conn));
    /// # let input = RIn::new(&Conn::connect(&ctx, &listener.local_addr(), b"")?);
    /// # input.subscribe(7, 1 << 20)?;
    /// let event = out.recv_event(Some(Duration::from_secs(5)))?;
    /// assert!(matches!(event, Some(OutEvent::Subscribed { bid: 7, .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// From a callback, which must not wait, with a time-out other than zero. [`RecvError::ShutDown`] after the end of the context.
    pub fn recv_event(&self, timeout: Option<Duration>) -> Result<Option<OutEvent>, RecvError> {
        may_wait(timeout)?;
        self.shared.read_events();
        self.shared.inner.or_shut_down(self.shared.take_event(timeout))
    }

    /// A descriptor that is readable while [`ROut::recv_event`] would return an event: for the application's own event loop,
    /// which must only poll it. The descriptor lives as long as the rOut's last handle.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn pollable(&self) -> std::io::Result<BorrowedFd<'_>> {
        self.shared.read_events();
        self.shared.events.pollable()
    }

    /// As [`OutBuffer::drain`] for all buffers: their subscribers are asked at the same time how far they are.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] says how far the first buffer that was not in time is confirmed.
    pub fn drain(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.drain_by(timeout, OutBuffer::drain)
    }

    /// Asks the subscribers of all buffers, and waits for one buffer after the other.
    pub(crate) fn drain_by(
        &self,
        timeout: Option<Duration>,
        drain: impl Fn(&OutBuffer, Option<Duration>) -> Result<(), WaitError>,
    ) -> Result<(), WaitError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let buffers = self.buffers();
        for buffer in &buffers {
            buffer.request_confirm(ProgressLevel::Landed, buffer.boundary());
        }
        let left = || deadline.map(|at| at.saturating_duration_since(Instant::now()));
        buffers.iter().map(|buffer| drain(buffer, left())).fold(Ok(()), Result::and)
    }

    /// Sends one of the application's own control messages over a connection given to this rOut.
    ///
    /// # Errors
    /// Too large, too many waiting, or not a connection of this rOut.
    pub fn send_control(&self, conn: &Conn, message: &[u8]) -> Result<(), ControlError> {
        if !lock(&self.shared.conns).contains(&conn.id()) {
            return Err(ControlError::Down);
        }
        conn.send_control(message)
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Context {
        &self.context
    }
}

impl std::fmt::Debug for ROut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ROut").field("buffers", &self.shared.all_buffers().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Listener};

    #[test]
    fn dropped_routs_take_no_memory() {
        let ctx = Context::new(Config::default()).unwrap();
        let kept = ROut::new(&ctx);
        (0..1000).for_each(|_| drop(ROut::new(&ctx)));
        let routs = lock(&ctx.shared().routs);
        assert!(routs.len() < 10, "{} are known", routs.len());
        assert!(
            routs.iter().any(|rout| std::ptr::eq(rout.as_ptr(), &raw const *kept.shared)),
            "one is there"
        );
    }

    #[test]
    fn a_buffer_left_before_its_splice_is_refused() {
        let ctx = Context::new(Config::default()).unwrap();
        let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
        let conn = Conn::connect_start(&ctx, &listener.local_addr(), b"").unwrap();
        let (input, out) = (RIn::new(&conn), ROut::new(&ctx));
        input.subscribe(7, 1 << 16).unwrap();
        // Found, and then left by another thread.
        let subscription = input.shared.subscription(7).unwrap();
        input.unsubscribe(7);
        let spliced = out.splice_subscription(&input, &subscription, 70);
        assert!(matches!(spliced, Err(BufferError::NoSuchBuffer(7))));
        assert!(out.buffers().is_empty());
    }
}
