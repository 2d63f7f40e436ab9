//! The exclusive reader of an rIn: what followed rings bring is handed out by reference and given back without a queue, a
//! lock of a subscription, or a count of references for each delivery.
//!
//! ```text
//!   recv    rings that it reads alone ── news: land it, hand it out, note how far it is
//!             │ nothing for a moment, it is time for a turn of the worker, or there is none that it reads alone
//!             ▼
//!           gives them back, receives as `RIn::recv` does, and takes again those that can be read so
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketring::LazyCursor;

use super::receive::RIn;
use crate::error::RecvError;
use crate::events::InEvent;
use crate::lock::lock;
use crate::state::{InboundShared, Readable, Sights, TAKEN, WorkerShared};
use crate::types::{Bid, Position};
use crate::view::{BufSeg, InView};

/// What [`InReader::recv`] did.
#[derive(Debug)]
#[non_exhaustive]
pub enum InRead {
    /// Data was handed out.
    Data,
    /// Something else happened, which comes behind everything that was handed out before.
    Event(InEvent),
    /// Nothing came in the time given.
    TimedOut,
}

/// Receives everything of one rIn, alone: the counterpart of an [`OutWriter`](crate::OutWriter). Taken with
/// [`RIn::reader`]; dropping it gives the rIn back.
///
/// Over shared memory with `shm.busy_poll_us` a delivery costs less than with [`RIn::recv`]: a round trip of two processes takes
/// three quarters of the time. Elsewhere it does what that does. What it handed out counts as given back when the call
/// returns. The sender is told after a sixteenth of the window, as soon as it waits for it, and at the latest when the ring
/// rests.
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
    /// Those of the rIn, when they were looked up.
    sights: Sights,
    rings: Vec<Sight>,
}

/// A subscription that is followed.
struct Sight {
    inbound: Arc<InboundShared>,
    reader: Arc<LazyCursor>,
    /// While it is read alone.
    reads: Option<Reads>,
}

struct Reads {
    view: InView,
    /// How far it told that it is.
    told: Position,
    step: u64,
}

/// What a look at a ring found.
enum Look {
    Nothing,
    /// So many bytes were handed out.
    Bytes(usize),
    /// Something that is not to be handed out so.
    Other,
}

impl InReader {
    pub(super) fn new(rin: &RIn) -> Result<Self, RecvError> {
        if rin.shared.has_reader.swap(true, Ordering::Acquire) {
            return Err(RecvError::ReaderTaken);
        }
        Ok(Self { rin: rin.clone(), sights: Sights::default(), rings: Vec::new() })
    }

    /// Hands what comes next from any buffer to `each`: one or several whole deliveries, which are given back when it returns.
    /// Waits for that at most `timeout` (none: for ever). To spin, give it time, and `shm.busy_poll_us`: with a timeout of zero
    /// it takes what is there, and somebody else has to bring it.
    ///
    /// If `each` panics, what it was shown is not given back; a reader that goes on has it behind itself.
    ///
    /// # Errors
    /// From a callback, which must not wait, with a timeout other than zero.
    #[inline]
    pub fn recv(
        &mut self,
        timeout: Option<Duration>,
        mut each: impl FnMut(Bid, &BufSeg<'_>),
    ) -> Result<InRead, RecvError> {
        if self.look(timeout != Some(Duration::ZERO), &mut each) {
            return Ok(InRead::Data);
        }
        self.receive(timeout, &mut each)
    }

    /// Looks at the rings that it reads alone, until one has something or it is time for the worker's turn.
    #[inline]
    fn look(&mut self, waits: bool, each: &mut impl FnMut(Bid, &BufSeg<'_>)) -> bool {
        if self.rings.is_empty() || !self.rin.may_look(&self.sights) {
            return false;
        }
        let inner = &self.rin.shared.inner;
        let worker = &*inner.workers[self.sights.worker()];
        let now = || inner.now();
        if !worker.looks.spend(TAKEN, now) {
            return false;
        }
        if waits {
            (0..worker.looks.pauses()).for_each(|_| std::hint::spin_loop());
        }
        let mut first = true;
        loop {
            for sight in &mut self.rings {
                match sight.look(worker, each) {
                    Look::Nothing => {}
                    Look::Bytes(bytes) => {
                        worker.looks.pace(first.then_some(bytes));
                        return true;
                    }
                    Look::Other => return false,
                }
            }
            first = false;
            if !waits || !worker.looks.spend(1, now) || worker.has_work() {
                worker.looks.pace(None);
                return false;
            }
            std::hint::spin_loop();
        }
    }

    /// As [`RIn::recv`].
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

    /// Reads alone what can be read so.
    fn begin_reading(&mut self) {
        let sights = lock(&self.rin.shared.queue).sights.clone();
        if !sights.are(&self.sights) {
            self.rings = sights.inbounds().iter().map(Sight::new).collect();
            self.sights = sights;
        }
        self.rings.iter_mut().for_each(Sight::begin_reading);
    }

    /// Others may look: nothing of it is behind this reader.
    fn end_reading(&mut self) {
        for sight in &mut self.rings {
            if let Some(Reads { view, .. }) = sight.reads.take() {
                sight.inbound.end_reading(&sight.reader, view.end());
                // What came meanwhile.
                self.rin.shared.enqueue(&sight.inbound);
            }
        }
    }
}

impl Sight {
    fn new(inbound: &Arc<InboundShared>) -> Self {
        Self { inbound: inbound.clone(), reader: Arc::new(LazyCursor::new(0)), reads: None }
    }

    fn begin_reading(&mut self) {
        let Some(Readable { ring, epoch, at, step }) = self.inbound.begin_reading(&self.reader) else {
            return;
        };
        let view = InView::of_reader(ring.view(at, at), self.inbound.clone(), epoch);
        self.reads = Some(Reads { view, told: at, step });
    }

    #[inline]
    fn look(&mut self, worker: &WorkerShared, each: &mut impl FnMut(Bid, &BufSeg<'_>)) -> Look {
        let Some(Reads { view, told, step }) = &mut self.reads else { return Look::Other };
        if !view.ring().has_new_data() {
            return Look::Nothing;
        }
        let from = view.end();
        let Some(to) = view.ring().follow_from(from) else { return Look::Other };
        if !view.ring().is_stable(from) {
            return Look::Other;
        }
        worker.looks.took();
        worker.token.note_visit();
        view.go_on(to);
        each(self.inbound.bid, &BufSeg::of(view));
        if self.reader.advance_to(to) || to - *told >= *step {
            *told = to;
            self.inbound.tell_read(&self.reader);
        }
        Look::Bytes((to - from) as usize)
    }
}

impl Drop for InReader {
    fn drop(&mut self) {
        self.end_reading();
        // Pairs with the Acquire in `new`: the next reader finds what this one left.
        self.rin.shared.has_reader.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for InReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InReader").field("rin", &self.rin).finish()
    }
}
