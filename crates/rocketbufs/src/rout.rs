//! The sending end (paper 1, section 3.2, Listing 2).

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketring::RingConfig;

use crate::conn::Conn;
use crate::context::Context;
use crate::error::{BufferError, ControlError, DeliverError, SegmentError, WaitError};
use crate::events::OutEvent;
use crate::limits::SubscriptionLimits;
use crate::lock::lock;
use crate::options::{BufferOptions, SubscribeOptions};
use crate::proto::End;
use crate::rin::RIn;
use crate::segment::{self, Blocking, OutSegment, OutWriter};
use crate::state::{Buffer, Command, ConnShared, InboundShared, Log, ROutShared, Role, is_worker};
use crate::types::{Bid, ConfirmLevel, Epoch, Position};

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
        lock(&context.inner().routs).push(Arc::downgrade(&shared));
        Self { shared, context: context.clone() }
    }

    /// Lets the other end of this connection subscribe to the buffers here.
    pub fn add_conn(&self, conn: &Conn) {
        lock(&self.shared.conns).insert(conn.id());
        conn.attach(Role::Out(self.shared.clone()));
    }

    /// Makes a buffer whose ring has `size_bytes`.
    ///
    /// # Errors
    /// The id is taken, or there is no memory.
    pub fn create_buffer(&self, bid: Bid, size_bytes: u64) -> Result<(), BufferError> {
        self.create_buffer_with(bid, BufferOptions::new().size_bytes(size_bytes))
    }

    /// Makes a buffer with options.
    ///
    /// # Errors
    /// As [`ROut::create_buffer`].
    pub fn create_buffer_with(&self, bid: Bid, options: BufferOptions) -> Result<(), BufferError> {
        let inner = &self.shared.inner;
        if self.shared.buffer(bid).is_some() {
            return Err(BufferError::Exists(bid));
        }
        let ring = inner.ring_for_others(RingConfig {
            capacity_bytes: options.size_bytes.unwrap_or(inner.config.buffers.size_bytes),
            retain_bytes: options.retain_bytes.or(inner.config.buffers.retain_bytes),
            max_delivery_bytes: options.max_delivery_bytes,
            flow_control: options.flow_control,
            start: options.start,
        })?;
        let (start, max_delivery) = (options.start, ring.max_delivery());
        if start > Position::MAX - max_delivery {
            return Err(BufferError::NoPositions { start, max_delivery });
        }
        let buffer = self.make(bid, None, options.keep_until_delivered && options.flow_control)?;
        *lock(&buffer.writer) = ring.writer();
        if inner.config.buffers.idle_trim_ms == 0 || !ring.flow_control() || ring.descriptor().is_some() {
            buffer.rest.never();
        }
        let _ = buffer.log.set(Log { ring, epoch: Epoch(inner.random()) });
        self.shared.insert(buffer)
    }

    fn make(
        &self,
        bid: Bid,
        source: Option<std::sync::Weak<InboundShared>>,
        keep: bool,
    ) -> Result<Arc<Buffer>, BufferError> {
        let inner = &self.shared.inner;
        let slot = inner.take_slot().ok_or(BufferError::TooMany(inner.config.limits.max_buffers))?;
        Ok(Arc::new(Buffer::new(bid, slot, &self.shared, inner, source, keep)))
    }

    /// Ends a buffer: its subscribers get what is there and then CLOSED. Returns where its log ends. The id is free
    /// again when the last subscriber has gone or taken everything; a spliced buffer goes at once.
    ///
    /// # Errors
    /// No such buffer.
    pub fn destroy_buffer(&self, bid: Bid) -> Result<Position, BufferError> {
        let buffer = self.shared.buffer(bid).ok_or(BufferError::NoSuchBuffer(bid))?;
        // Between two deliveries of `deliver`; an `OutWriter` does not ask for this lock, and looks at the end itself.
        let writer = lock(&buffer.writer);
        let end = buffer.close();
        drop(writer);
        if buffer.source.is_some() {
            self.shared.remove(&buffer);
        } else {
            self.shared.reap(&buffer);
        }
        Ok(end)
    }

    /// Takes the rIn's ring of buffer `bid` as a buffer of this rOut, with the same id: what arrives there goes out
    /// here without a copy (paper 1, section 3.4). For a subscription that is begun to be spliced use
    /// [`ROut::splice_with`]: a ring that exists before it is spliced keeps no history for subscribers that join later, and
    /// those on this machine cannot map it and are sent copies, unless it was subscribed to with `retain_bytes`.
    ///
    /// # Errors
    /// The id is taken here, or the rIn has no such subscription (or it is spliced already, shares a budget, or is an [`InReader`](crate::InReader)'s).
    pub fn splice(&self, input: &RIn, bid: Bid) -> Result<(), BufferError> {
        self.splice_as(input, bid, bid)
    }

    /// As [`ROut::splice`], under another id: what a broker with many publishers does.
    ///
    /// # Errors
    /// As [`ROut::splice`].
    pub fn splice_as(&self, input: &RIn, bid: Bid, out_bid: Bid) -> Result<(), BufferError> {
        let inbound = input.shared.inbound(bid).ok_or(BufferError::NoSuchBuffer(bid))?;
        self.splice_inbound(input, &inbound, out_bid).map(drop)
    }

    /// Subscribes the rIn to the sender's buffer `bid` and splices it to a buffer `out_bid` of this rOut, in one step: the
    /// ring is made for those who subscribe here, whenever the sender answers. It can be mapped by those on this machine,
    /// and has the history that [`SubscribeOptions::retain_bytes`] says, half of it by default.
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
    /// assert_eq!(out.buffers(), [70]); // Whoever subscribes to it gets what is written into 7.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`BufferError::NotSubscribed`], or as [`ROut::splice`]; nothing is subscribed to or made then. What the sender says
    /// comes as [`InEvent::Refused`](crate::InEvent::Refused).
    pub fn splice_with(
        &self,
        input: &RIn,
        bid: Bid,
        out_bid: Bid,
        options: SubscribeOptions,
    ) -> Result<(), BufferError> {
        let inbound = input.subscription(bid, options)?;
        let buffer = self.splice_inbound(input, &inbound, out_bid)?;
        let asked = input.ask(inbound);
        if asked.is_err() {
            self.remove_unused(&buffer);
        }
        Ok(asked?)
    }

    fn splice_inbound(
        &self,
        input: &RIn,
        inbound: &Arc<InboundShared>,
        out_bid: Bid,
    ) -> Result<Arc<Buffer>, BufferError> {
        let bid = inbound.bid;
        if inbound.options.budget.is_some() {
            return Err(BufferError::Budgeted(bid));
        }
        if input.has_reader() {
            return Err(BufferError::HasReader(bid));
        }
        let buffer = self.make(out_bid, Some(Arc::downgrade(inbound)), false)?;
        self.shared.insert(buffer.clone())?;
        if !inbound.splice_to(&buffer) {
            self.remove_unused(&buffer);
            return Err(match lock(&inbound.state).done {
                true => BufferError::NoSuchBuffer(bid),
                false if input.has_reader() => BufferError::HasReader(bid),
                false => BufferError::Spliced(bid),
            });
        }
        Ok(buffer)
    }

    /// Takes back a buffer into which nothing will come.
    fn remove_unused(&self, buffer: &Arc<Buffer>) {
        self.shared.remove(buffer);
        // Somebody may have found it already.
        buffer.set_end(End::Closed(0));
    }

    /// What subscriptions of a buffer may ask for from now on; those that exist go on as they are. A policy that is not
    /// allowed is refused with those that are, other wishes are lowered. Set it before a receiver can know of the
    /// buffer: one that subscribes earlier gets what it asks for.
    ///
    /// # Errors
    /// No such buffer.
    pub fn set_limits(&self, bid: Bid, terms: SubscriptionLimits) -> Result<(), BufferError> {
        let buffer = self.shared.buffer(bid).ok_or(BufferError::NoSuchBuffer(bid))?;
        *lock(&buffer.terms) = terms;
        Ok(())
    }

    /// A free segment of exactly `size` bytes: fill it and [`ROut::deliver`] it.
    ///
    /// # Errors
    /// [`SegmentError::Full`] where the papers return `vec_count = -1`; with [`Blocking::Yes`] or
    /// [`Blocking::For`] it waits for room instead.
    pub fn get_output_segment(
        &self,
        bid: Bid,
        size: u64,
        blocking: Blocking,
    ) -> Result<OutSegment, SegmentError> {
        let buffer = self.shared.buffer(bid).ok_or(SegmentError::NoSuchBuffer(bid))?;
        segment::with_room(&buffer, size, blocking, |size| {
            if buffer.ended() {
                return Err(SegmentError::Closed);
            }
            let mut writer = lock(&buffer.writer);
            let writer = writer.as_mut().ok_or(match buffer.source {
                Some(_) => SegmentError::Spliced(bid),
                None => SegmentError::WriterTaken(bid),
            })?;
            writer.claim(size).map_err(segment::claim_error)
        })
    }

    /// Makes the first `size` bytes of a segment one delivery; size 0 gives the segment back. `context` comes back in
    /// [`ROut::set_data_out_cb`] when every subscriber has it. Returns where the delivery ends. Never waits.
    ///
    /// # Errors
    /// [`DeliverError`]: the segment comes back where it can be delivered otherwise.
    pub fn deliver(
        &self,
        segment: OutSegment,
        size: u64,
        context: Option<u64>,
    ) -> Result<Position, DeliverError> {
        let Some(buffer) = self.shared.buffer(segment.bid) else { return Err(DeliverError::Closed) };
        let mut writer = lock(&buffer.writer);
        match writer.as_mut() {
            Some(writer) => segment::deliver(&buffer, writer, segment, size, context),
            None => Err(DeliverError::Foreign(segment)),
        }
    }

    /// The exclusive writer of a buffer, without lookup and lock for each message. Meanwhile
    /// [`ROut::get_output_segment`] of this buffer fails.
    ///
    /// # Errors
    /// No such buffer, spliced, or taken.
    pub fn writer(&self, bid: Bid) -> Result<OutWriter, BufferError> {
        let buffer = self.shared.buffer(bid).ok_or(BufferError::NoSuchBuffer(bid))?;
        let writer = lock(&buffer.writer).take();
        match (writer, &buffer.source) {
            (Some(writer), _) => Ok(OutWriter::new(writer, buffer)),
            (None, Some(_)) => Err(BufferError::Spliced(bid)),
            (None, None) => Err(BufferError::WriterTaken(bid)),
        }
    }

    /// Calls `callback(bid, context)` on a worker thread when a delivery that was given a context has landed with every
    /// subscriber that was there.
    pub fn set_data_out_cb(&self, callback: impl FnMut(Bid, u64) + Send + 'static) {
        self.shared.inner.set_callback(&self.shared.data_out_cb, Box::new(callback));
    }

    /// Removes the callback of [`ROut::set_data_out_cb`]. What the callback uses can be freed when this has returned: no call
    /// runs then, unless this is called inside the callback.
    pub fn unset_data_out_cb(&self) {
        self.shared.inner.unset_callback(&self.shared.data_out_cb);
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
            worker.send(Command::OutBacklog(self.shared.clone()));
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

    /// The synchronous way: the next event, waiting at most `timeout` (none: no limit); none if nothing happened in that time.
    /// Events with a callback of their own do not come here. [`OutEvent::DataOut`], [`OutEvent::SubscriberProgress`] and
    /// [`OutEvent::Control`] come from the first call of this or of [`ROut::pollable`] on; the others always wait, 4,096 at
    /// most: then the oldest is dropped, and [`OutEvent::Missed`] tells how many were. In a callback, which must not wait, this
    /// returns at once.
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
    /// let event = out.recv_event(Some(Duration::from_secs(5)));
    /// assert!(matches!(event, Some(OutEvent::Subscribed { bid: 7, .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn recv_event(&self, timeout: Option<Duration>) -> Option<OutEvent> {
        self.shared.read_events();
        self.shared.take_event(if is_worker() { Some(Duration::ZERO) } else { timeout })
    }

    /// A descriptor that is readable while [`ROut::recv_event`] would return an event: for the application's own event loop,
    /// which must only poll it. It lives as long as the rOut's last handle.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn pollable(&self) -> std::io::Result<BorrowedFd<'_>> {
        self.shared.read_events();
        self.shared.events.pollable()
    }

    /// Waits until every subscriber present has everything that was delivered, and of a destroyed buffer has heard that
    /// this was all. With no subscriber it returns at once.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] says how far it is confirmed.
    pub fn drain(&self, bid: Bid, timeout: Duration) -> Result<(), WaitError> {
        if is_worker() {
            return Err(WaitError::CalledFromWorker);
        }
        // Destroyed and gone: everybody had it.
        let Some(buffer) = self.shared.buffer(bid) else { return Ok(()) };
        let boundary = segment::ring_of(&buffer).map_or(0, |ring| ring.boundary());
        let done = |buffer: &Buffer| match buffer.ended() {
            true => buffer.everybody_heard_the_end(),
            false => buffer.min_landed() >= boundary,
        };
        if buffer.wait_until((ConfirmLevel::Landed, boundary), timeout, done) {
            return Ok(());
        }
        Err(WaitError::TimedOut { confirmed: buffer.min_landed() })
    }

    /// As [`ROut::drain`] for all buffers here: their subscribers are asked at the same time how far they are.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] says how far the first that was not in time is confirmed.
    pub fn drain_all(&self, timeout: Duration) -> Result<(), WaitError> {
        let deadline = Instant::now().checked_add(timeout);
        let buffers = self.shared.all_buffers();
        for buffer in &buffers {
            self.ask(
                buffer.bid,
                ConfirmLevel::Landed,
                segment::ring_of(buffer).map_or(0, |ring| ring.boundary()),
            );
        }
        let left = || deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
        buffers.into_iter().map(|buffer| self.drain(buffer.bid, left())).fold(Ok(()), Result::and)
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

    /// The buffers here.
    pub fn buffers(&self) -> Vec<Bid> {
        self.shared.buffers.read().unwrap_or_else(|p| p.into_inner()).keys().copied().collect()
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Context {
        &self.context
    }
}

impl std::fmt::Debug for ROut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ROut").field("buffers", &self.buffers().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Listener};

    #[test]
    fn what_was_left_before_it_is_spliced_is_refused() {
        let ctx = Context::new(Config::default()).unwrap();
        let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
        let conn = Conn::connect_start(&ctx, &listener.local_addr(), b"").unwrap();
        let (input, out) = (RIn::new(&conn), ROut::new(&ctx));
        input.subscribe(7, 1 << 16).unwrap();
        // Found, and then left by another thread.
        let inbound = input.shared.inbound(7).unwrap();
        input.unsubscribe(7);
        let spliced = out.splice_inbound(&input, &inbound, 70);
        assert!(matches!(spliced, Err(BufferError::NoSuchBuffer(7))));
        assert!(out.buffers().is_empty());
    }
}
