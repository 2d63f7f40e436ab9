//! The interface for RBMQ's broker and client, which other applications do not need.
//!
//! The interface is not part of the documented one and may change in any version. It has the parts that a chain of brokers
//! needs beyond a splice:
//!
//! - *relayed confirmations*: a broker that merges logs reports the confirmations of its own subscribers upstream
//!   ([`Subscription::confirm`], [`ConfirmMode::Relayed`](crate::ConfirmMode), [`CoverageParts`]);
//! - *a minimum number of receivers* ([`SubscribeOptions::min_receivers`], [`OutBuffer::min_receivers`]);
//! - *brokers that end and begin again*: [`ROut::drain_connected`], [`OutBuffer::forget_former`];
//! - *path migration*: a log continues in another buffer of the same rOut, by another path;
//! - *looks at bytes that nothing holds* ([`OutBuffer::glance`]), for people who want to see messages;
//! - *logs that begin below*: a broker writes what another store has kept, under the name that the log had before a restart
//!   ([`BufferOptions::epoch`]), and with holes where that store was overwritten ([`OutWriter::skip`]).
//!
//! ```text
//!   old buffer  ───────────────┤ end: GONE, once a receiver has everything up to here
//!   new buffer       ───────────┼───────────▶ head
//!                               └ retained from here on, for receivers that subscribe here at their positions
//! ```

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rocketring::{Hold, Lapped, Ring};

use crate::api::conn::Conn;
use crate::api::out_buffer::{OutBuffer, OutWriter};
use crate::api::rin::{RIn, Subscription};
use crate::api::rout::ROut;
use crate::ground::lock::lock;
use crate::ground::types::{Bid, Epoch, Position};
use crate::proto::{Coverage, End};
pub use crate::proto::{CoveragePart, CoverageParts, MAX_COVERAGE_PARTS};
use crate::state::error::{BufferError, RecvError, SegmentError, WaitError};
use crate::state::options::{BufferOptions, SubscribeOptions};
use crate::state::view::InView;
use crate::state::{Buffer, DurableCursor, OwnedName};

option_setters::setters! {
    #[doc(hidden)]
    SubscribeOptions:
    /// With [`Start::Position`](crate::Start::Position): an earlier subscription of this end received everything from this
    /// position up to the start, and this subscription confirms it too. `None`: nothing below the start was received.
    covered_from(position: Option<Position>);
    /// The number of receivers that a spliced subscription needs to confirm data: receivers at the ends of all chains, durable
    /// offline ones that block included. While there are fewer, nothing more is confirmed as delivered or consumed, the ring
    /// retains everything for receivers that come, and the writer waits for room. With flow control only. Default: 0.
    min_receivers(receivers: u32);
    /// The id of the buffer at the sender; `None`: the same id as here. For applications that receive from several processes in
    /// turn; see [`RIn::resume_elsewhere`].
    remote_id(bid: Option<Bid>);
}

option_setters::setters! {
    #[doc(hidden)]
    BufferOptions:
    /// The name of the log; `None`: a new random one. For a log whose bytes and positions outlive the process. Two logs must not have
    /// the same name.
    epoch(epoch: Option<Epoch>);
}

#[doc(hidden)]
impl OutWriter {
    /// The bytes from the head to `to` are lost before they came here: subscribers get [`InEvent::Lost`](crate::InEvent::Lost) for
    /// them, and the log continues at `to`. Without effect for a position up to the head.
    ///
    /// # Errors
    /// [`SegmentError::Full`] while a subscriber holds bytes before the hole, [`SegmentError::TooManyOpen`] while segments are open,
    /// and [`SegmentError::Closed`].
    pub fn skip(&mut self, to: Position) -> Result<(), SegmentError> {
        self.leave_hole(to)
    }
}

/// A hold that retains the bytes of a buffer from a position on, until it is dropped. The writer waits for room, as it does for
/// a subscriber that reads nothing.
pub struct RetentionHold {
    hold: Option<Hold>,
    buffer: Arc<Buffer>,
}

impl RetentionHold {
    /// The first retained position.
    pub fn position(&self) -> Position {
        self.hold.as_ref().map_or(0, Hold::position)
    }

    /// Releases the bytes below `to`. A hold never goes back.
    pub fn advance(&self, to: Position) {
        if let Some(hold) = &self.hold {
            hold.advance(to);
        }
        self.buffer.on_progress();
    }
}

impl Drop for RetentionHold {
    fn drop(&mut self) {
        drop(self.hold.take());
        self.buffer.on_progress();
        // A worker may wait to write into the buffer.
        self.buffer.notify();
    }
}

impl std::fmt::Debug for RetentionHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RetentionHold").field("position", &self.position()).finish()
    }
}

/// The bytes of a buffer for a look that holds nothing: it is no subscription, counts as no receiver, and its writer never waits for it. A
/// writer that needs the space overwrites the bytes, and a read that is too late says so.
///
/// ```
/// use rocketbufs::{Config, Context, ROut};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let buffer = ROut::new(&Context::new(Config::default())?).create_buffer(7, 1 << 16)?;
/// let end = buffer.writer()?.append(&[b"hello"])?;
/// let glance = buffer.glance().ok_or("an empty log")?;
/// let mut bytes = [0; 5];
/// glance.copy_to(glance.first(), &mut bytes)?;
/// assert_eq!((&bytes, glance.end(), buffer.info().map(|info| info.subscribers)), (b"hello", end, Some(0)));
/// # Ok(())
/// # }
/// ```
pub struct Glance {
    ring: Ring,
    epoch: Epoch,
    end: Position,
}

impl Glance {
    /// The name of the log.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The end of the last complete delivery that was there when the look began.
    pub fn end(&self) -> Position {
        self.end
    }

    /// The start of the oldest delivery that the ring has now, as far as it is known.
    pub fn first(&self) -> Position {
        self.ring.boundary_at_or_after(self.ring.tail()).map_or(self.end, |at| at.min(self.end))
    }

    /// The end of a delivery, or the start of the first, at or behind a position.
    pub fn boundary_at_or_after(&self, at: Position) -> Option<Position> {
        self.ring.boundary_at_or_after(at).filter(|boundary| *boundary <= self.end)
    }

    /// The same at or before a position. None: the ring has none any more.
    pub fn boundary_at_or_before(&self, at: Position) -> Option<Position> {
        self.ring.boundary_at_or_before(at.min(self.end))
    }

    /// The first range without bytes that ends behind a position.
    pub fn hole_after(&self, at: Position) -> Option<Range<Position>> {
        self.ring.gap_after(at).map(|gap| gap.from..gap.to)
    }

    /// Copies bytes from a position on, and then checks that they were not overwritten during the copy.
    ///
    /// # Errors
    /// They were, or they are not below [`Glance::end`]. The content of `to` is then meaningless.
    pub fn copy_to(&self, at: Position, to: &mut [u8]) -> Result<(), Lapped> {
        let lapped = |by| Err(Lapped { by });
        let Some(end) = at.checked_add(to.len() as u64).filter(|end| *end <= self.end) else {
            return lapped(0);
        };
        if to.len() as u64 > self.ring.capacity() {
            return lapped(to.len() as u64 - self.ring.capacity());
        }
        self.ring.view(at, end).copy_to(0, to)
    }
}

impl std::fmt::Debug for Glance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Glance").field("epoch", &self.epoch).field("end", &self.end).finish_non_exhaustive()
    }
}

#[doc(hidden)]
impl OutBuffer {
    /// Begins a look at the bytes. None: the buffer is spliced, and its upstream subscription was not answered yet; or it has no flow control,
    /// and its deliveries have marks around them.
    pub fn glance(&self) -> Option<Glance> {
        let log = self.buffer.log().filter(|log| log.ring.flow_control())?;
        Some(Glance { ring: log.ring.clone(), epoch: log.epoch, end: log.ring.boundary() })
    }

    /// Retains the bytes of the buffer from `from` on, or from the first byte that the ring still has.
    ///
    /// # Errors
    /// The buffer is spliced, and its upstream subscription was not answered yet.
    pub fn hold_from(&self, from: Position) -> Result<RetentionHold, BufferError> {
        let buffer = self.buffer.clone();
        let ring = &buffer.log().ok_or(BufferError::NotAnswered(buffer.bid))?.ring;
        let mut at = from;
        loop {
            match ring.hold(at) {
                Ok(hold) => return Ok(RetentionHold { hold: Some(hold), buffer }),
                // The tail moves on only when the writer does.
                Err(overwritten) => at = overwritten.tail,
            }
        }
    }

    /// Ends a buffer that this process writes, whose log goes on elsewhere: its subscribers get the complete deliveries and then GONE, and may
    /// continue with the same log in another buffer. Its bytes stay until [`OutBuffer::destroy`]. Returns the end of the log here.
    pub fn leave(&self) -> Position {
        // As for `destroy`.
        let _writer = lock(&self.buffer.writer);
        self.buffer.leave()
    }

    /// Ends a spliced buffer although more bytes may arrive, as if its writer was gone: its subscribers get the complete
    /// deliveries and then GONE, and may continue with the same log in another buffer. The upstream subscription goes on, and its
    /// bytes are held, until [`OutBuffer::destroy`] or the end of that subscription. Returns the end of the log.
    ///
    /// # Errors
    /// The buffer is not spliced.
    pub fn end_as_gone(&self) -> Result<Position, BufferError> {
        let buffer = &self.buffer;
        if buffer.source.is_none() {
            return Err(BufferError::NotSpliced(buffer.bid));
        }
        let end = self.boundary();
        buffer.set_end(End::Gone(end));
        Ok(buffer.end().map_or(end, |end| end.position()))
    }

    /// The number of receivers that a confirmation needs, and the first position that fewer have. The ring retains everything
    /// from there on. Zero and none without that requirement, and for a buffer that is not spliced.
    pub fn min_receivers(&self) -> (u32, Option<Position>) {
        self.buffer.min_receivers()
    }

    /// Drops durable cursors of which `is_former` says, by their names, that earlier processes of a subscriber left them. That one has
    /// subscribed over the connection `conn` by now, under another name; cursors of other owners stay. Returns the number of those that
    /// were dropped.
    pub fn forget_former(&self, conn: u64, is_former: impl Fn(&[u8]) -> bool) -> usize {
        let Some(own) = self.buffer.name_of(conn) else { return 0 };
        let stays = |name: &OwnedName, _: &DurableCursor| {
            name.owner != own.owner || name.name == own.name || !is_former(&name.name)
        };
        let (count, _) = self.buffer.drop_held(stays);
        if count > 0 {
            self.buffer.out.upgrade().iter().for_each(|out| out.durable_slots().expired(count));
            let buffer = self.buffer.clone();
            self.buffer.inner.run_on_worker(move || {
                buffer.report_landed_contexts();
                buffer.reap();
            });
        }
        count
    }
}

#[doc(hidden)]
impl ROut {
    /// As [`ROut::drain`], for a process that ends: durable subscriptions whose connections are gone come back to the next process, and
    /// are not waited for.
    ///
    /// # Errors
    /// As [`ROut::drain`].
    pub fn drain_connected(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.drain_by(timeout, |buffer, left| {
            buffer.drain_until(left, Buffer::connected_landed, Buffer::connected_received_end)
        })
    }
}

#[doc(hidden)]
impl InView {
    /// Whether complete deliveries are behind the view already. The view has not all of them where its subscription cuts it
    /// ([`SubscribeOptions::max_view_bytes`]).
    pub fn has_more(&self) -> bool {
        self.ring().boundary() > self.end()
    }
}

#[doc(hidden)]
impl Subscription {
    /// Reports how far received and forwarded data is confirmed, in positions of the buffer, and for which receivers. For
    /// subscriptions with [`ConfirmMode::Relayed`](crate::ConfirmMode). The sender learns of it when it asked, or after a
    /// quarter of the window. At most the released data is confirmed.
    ///
    /// # Errors
    /// The subscription is not accepted yet, has ended, or does not relay.
    pub fn confirm(
        &self,
        delivered: Position,
        consumed: Position,
        coverage: Coverage,
    ) -> Result<(), RecvError> {
        let subscription = self.live()?;
        let relays = subscription.confirm(delivered, consumed, coverage);
        relays.then_some(()).ok_or(RecvError::NotSubscribed(subscription.bid))
    }

    /// Sets the id of the buffer at the new peer, after [`RIn::resume_elsewhere`]. The subscription continues where it stopped,
    /// or reports its loss. A spliced subscription whose ring is another process's memory cannot continue, and ends with
    /// `Gone`.
    pub fn continue_as(&self, remote_id: Bid) {
        lock(&self.subscription.state).sub.set_remote_id(Some(remote_id));
        self.rin.request(&self.subscription);
    }
}

#[doc(hidden)]
impl RIn {
    /// Like [`RIn::resume`], for a peer that is another process than before and has other ids for its buffers. A subscription
    /// continues once [`Subscription::continue_as`] has set its id there; until then it has no connection.
    pub fn resume_elsewhere(&self, conn: &Conn) {
        // Another process has no position of a closed log.
        self.shared.retain_unsettled(|_| false);
        for subscription in self.shared.all_subscriptions() {
            lock(&subscription.state).sub.set_remote_id(None);
        }
        self.resume(conn);
    }
}
