//! The exclusive reader of an rIn: data of followed rings is handed out by reference and released without a
//! queue, a subscription's lock, or a reference count for each delivery.
//!
//! ```text
//!   recv    rings that it reads alone ── news: land it, hand it out, move the cursor
//!             │ no news for a moment, a turn of the worker is due, or there is no ring that it reads alone
//!             ▼
//!           gives the rings back, receives like `RIn::recv`, and takes the readable rings again
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketring::LazyCursor;

use super::receive::RIn;
use crate::ground::lock::lock;
use crate::ground::types::{Bid, Position};
use crate::state::error::RecvError;
use crate::state::in_event::InEvent;
use crate::state::view::{BufSeg, InView};
use crate::state::{POLLS_PER_DELIVERY, PolledRings, Readable, SubscriptionShared, WorkerShared};

/// The result of [`InReader::recv`].
#[derive(Debug)]
#[non_exhaustive]
pub enum InRead {
    /// Data was handed out.
    Data,
    /// Another event, which follows all data that was handed out before.
    Event(InEvent),
    /// Nothing arrived in time.
    TimedOut,
}

/// The exclusive receiver of one rIn: the counterpart of an [`OutWriter`](crate::OutWriter). Created with
/// [`RIn::reader`]; dropping it gives the rIn back.
///
/// Over shared memory with `shm.busy_poll_us` a delivery costs less than with [`RIn::recv`]: a round trip
/// between two processes takes three quarters of the time. Elsewhere the reader works as [`RIn::recv`].
/// Data that was handed out counts as released when the call returns. The sender learns of it after a
/// sixteenth of the window, as soon as the sender waits for it, and at the latest when the ring rests.
///
/// ```
/// use std::time::Duration;
/// use rocketbufs::{Config, Conn, Context, InEvent, Listener, RIn, ROut, InRead};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let ctx = Context::new(Config::default())?;
/// # let out = ROut::new(&ctx);
/// # out.create_buffer(7, 1 << 20)?;
/// # let listener = Listener::bind(&ctx, "127.0.0.1:0")?;
/// # let subscribers = out.clone();
/// # listener.set_conn_cb(move |conn| subscribers.add_conn(&conn));
/// let input = RIn::new(&Conn::connect(&ctx, &listener.local_addr(), b"")?);
/// input.subscribe(7, 1 << 20)?;
/// let mut reader = input.reader()?;
/// let wait = Some(Duration::from_secs(5));
/// assert!(matches!(reader.recv(wait, |_, _| {})?, InRead::Event(InEvent::Subscribed { bid: 7, .. })));
///
/// out.buffer(7).unwrap().writer()?.append(&[b"hello"])?;
/// let mut copy = [0; 5];
/// let read = reader.recv(wait, |bid, seg| {
///     assert_eq!((bid, seg.len()), (7, 5));
///     seg.copy_to(0, &mut copy).expect("it is held");
/// })?;
/// assert!(matches!(read, InRead::Data) && copy == *b"hello");
/// # Ok(())
/// # }
/// ```
pub struct InReader {
    rin: RIn,
    /// The rIn's polled rings, when they were last looked up.
    polled: PolledRings,
    rings: Vec<PolledRing>,
}

/// A subscription whose ring is followed.
struct PolledRing {
    subscription: Arc<SubscriptionShared>,
    reader: Arc<LazyCursor>,
    /// Set while the subscription is read alone.
    reads: Option<Reads>,
}

struct Reads {
    view: InView,
    /// The last position that was reported to the subscription.
    reported: Position,
    step: u64,
}

/// The result of one poll of a ring.
enum Polled {
    Nothing,
    /// So many bytes were handed out.
    Bytes(usize),
    /// Anything that this reader does not hand out by reference.
    Other,
}

impl InReader {
    pub(super) fn new(rin: &RIn) -> Result<Self, RecvError> {
        if rin.shared.has_reader.swap(true, Ordering::Acquire) {
            return Err(RecvError::ReaderTaken);
        }
        Ok(Self { rin: rin.clone(), polled: PolledRings::default(), rings: Vec::new() })
    }

    /// Hands the next data of any buffer to `each`: one or several whole deliveries, which are released when
    /// `each` returns. Waits at most `timeout` (`None`: no limit). To busy-poll, use a time-out together with
    /// `shm.busy_poll_us`: with a time-out of zero the call only takes bytes that have arrived, and another thread
    /// has to make it arrive.
    ///
    /// If `each` panics, its data is not released; a reader that continues is past that data.
    ///
    /// # Errors
    /// The call is made inside a callback, which must not wait, with a time-out other than zero.
    #[inline]
    pub fn recv(
        &mut self,
        timeout: Option<Duration>,
        mut each: impl FnMut(Bid, &BufSeg<'_>),
    ) -> Result<InRead, RecvError> {
        if self.poll(timeout != Some(Duration::ZERO), &mut each) {
            return Ok(InRead::Data);
        }
        self.receive(timeout, &mut each)
    }

    /// Polls the rings that this reader reads alone, until one has news or the worker's turn is due.
    #[inline]
    fn poll(&mut self, waits: bool, each: &mut impl FnMut(Bid, &BufSeg<'_>)) -> bool {
        if self.rings.is_empty() || !self.rin.may_poll(&self.polled) {
            return false;
        }
        let inner = &self.rin.shared.inner;
        let worker = &*inner.workers[self.polled.worker()];
        let now = || inner.now();
        if !worker.busy_polls.spend(POLLS_PER_DELIVERY, now) {
            return false;
        }
        if waits {
            (0..worker.busy_polls.pauses()).for_each(|_| std::hint::spin_loop());
        }
        let mut first = true;
        loop {
            for polled_ring in &mut self.rings {
                match polled_ring.poll(worker, each) {
                    Polled::Nothing => {}
                    Polled::Bytes(bytes) => {
                        worker.busy_polls.pace(first.then_some(bytes));
                        return true;
                    }
                    Polled::Other => return false,
                }
            }
            first = false;
            if !waits || !worker.busy_polls.spend(1, now) || worker.has_work() {
                worker.busy_polls.pace(None);
                return false;
            }
            std::hint::spin_loop();
        }
    }

    /// Receives like [`RIn::recv`].
    fn receive(
        &mut self,
        timeout: Option<Duration>,
        each: &mut dyn FnMut(Bid, &BufSeg<'_>),
    ) -> Result<InRead, RecvError> {
        self.end_reading();
        match self.rin.receive(timeout)? {
            None => Ok(InRead::TimedOut),
            Some(InEvent::Data(view)) => {
                each(view.bid(), &BufSeg::of(&view));
                view.consume();
                self.begin_reading();
                Ok(InRead::Data)
            }
            Some(event) => Ok(InRead::Event(event)),
        }
    }

    /// Takes every ring that can be read alone.
    fn begin_reading(&mut self) {
        let polled = lock(&self.rin.shared.queue).polled.clone();
        if !polled.are(&self.polled) {
            self.rings = polled.subscriptions().iter().map(PolledRing::new).collect();
            self.polled = polled;
        }
        self.rings.iter_mut().for_each(PolledRing::begin_reading);
    }

    /// Gives the rings back. Other readers continue after this reader's data.
    fn end_reading(&mut self) {
        for polled_ring in &mut self.rings {
            if let Some(Reads { view, .. }) = polled_ring.reads.take() {
                polled_ring.subscription.end_reading(&polled_ring.reader, view.end());
                // Data may have arrived meanwhile.
                self.rin.shared.enqueue(&polled_ring.subscription);
            }
        }
    }
}

impl PolledRing {
    fn new(subscription: &Arc<SubscriptionShared>) -> Self {
        Self { subscription: subscription.clone(), reader: Arc::new(LazyCursor::new(0)), reads: None }
    }

    fn begin_reading(&mut self) {
        let Some(Readable { ring, epoch, at, step }) = self.subscription.begin_reading(&self.reader) else {
            return;
        };
        let view = InView::of_reader(ring.view(at, at), self.subscription.clone(), epoch);
        self.reads = Some(Reads { view, reported: at, step });
    }

    #[inline]
    fn poll(&mut self, worker: &WorkerShared, each: &mut impl FnMut(Bid, &BufSeg<'_>)) -> Polled {
        let Some(Reads { view, reported, step }) = &mut self.reads else { return Polled::Other };
        if !view.ring().has_new_data() {
            return Polled::Nothing;
        }
        let from = view.end();
        let Some(to) = view.ring().follow_from(from) else { return Polled::Other };
        if !view.ring().is_stable(from) {
            return Polled::Other;
        }
        worker.busy_polls.took();
        worker.token.note_visit();
        view.go_on(to);
        each(self.subscription.bid, &BufSeg::of(view));
        if self.reader.advance_to(to) || to - *reported >= *step {
            *reported = to;
            self.subscription.report_read(&self.reader);
        }
        Polled::Bytes((to - from) as usize)
    }
}

impl Drop for InReader {
    fn drop(&mut self) {
        self.end_reading();
        // Pairs with the Acquire in `new`: the next reader finds the state that this one left.
        self.rin.shared.has_reader.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for InReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InReader").field("rin", &self.rin).finish()
    }
}
