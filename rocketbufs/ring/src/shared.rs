//! The state that all handles of one ring share, and the three protocols over it: publishing, granting, announcing.
//!
//! The writing end (a [`Writer`](crate::Writer) or a [`RingReceiver`](crate::RingReceiver)) publishes `head` and `boundary`
//! without a lock. The horizon moves, and holds come and go, under the control lock. So a hold is registered before the
//! horizon is computed, and counts, or after, and is refused if its position is already below the tail.
//!
//! A writer without room and an advancing hold meet without a lock on the hold's side ([`crate::NotifyFlag`]):
//!
//! ```text
//!   writer (lock held)              hold
//!   waits = armed                   cursor = to
//!   ── full ──                      ── full ──
//!   read cursors → enough?          waits? → take the lock, grant, wake
//! ```

use crate::Position;
use crate::backing::Memory;
use crate::barrier;
use crate::control::{Control, Gap, Growth};
use crate::handshake::NotifyFlag;
use crate::index::{BoundaryIndex, Known};
use crate::layout::Layout;
use crate::page_access::PageAccess;
use crate::planted;
use crate::shape::Shape;
use crate::sync::{AtomicBool, AtomicU64, CachePadded, Condvar, Mutex, MutexGuard, Ordering, fence, lock};

/// How far the log is written, as the one writing end publishes it. Readers of this process load these words; other
/// processes load the head page of the ring's [`Region`](crate::region::Region).
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) head: AtomicU64,
    pub(crate) boundary: AtomicU64,
    /// Where the last complete delivery begins; the boundary if there was none.
    pub(crate) last: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// The memory that the ring began with. It is replaced when the ring grows.
    pub(crate) layout: Layout,
    /// The largest delivery for which the ring was made or has grown. It has room for larger ones where it has grown.
    largest: AtomicU64,
    control: Mutex<Control>,
    /// Notified with the control lock held.
    pub(crate) granted: Condvar,
    /// The writer or the receiver was handed out.
    pub(crate) end_taken: AtomicBool,
    /// Where the last hole ends; 0 without one.
    pub(crate) last_gap_to: AtomicU64,
    /// Written by the writing end alone.
    pub(crate) published: CachePadded<Published>,
    pub(crate) horizon: CachePadded<AtomicU64>,
    /// Armed while a writer was refused room and waits for a hold to advance.
    pub(crate) waits: CachePadded<NotifyFlag>,
    /// Claims that were dropped without being delivered: a bit each, by number modulo 64 (see [`crate::Writer`]).
    pub(crate) lost_claims: AtomicU64,
    /// Landed bytes are forwarded, in pieces that must end at boundaries.
    pub(crate) relayed: AtomicBool,
    /// The ring no longer follows the peer's writer.
    pub(crate) stopped: AtomicBool,
    pub(crate) access: PageAccess,
    #[cfg(not(loom))]
    pub(crate) watchers: crate::watch::Watchers,
    /// How far a local writer may write without asking, which may be below the horizon: see `trim`. None without such a
    /// writer, or where it waits for no reader.
    pub(crate) reach: Mutex<Option<Position>>,
    /// Held by the thread that lands the bytes of another process.
    pub(crate) landing: Mutex<()>,
}

impl Shared {
    pub(crate) fn new(memory: Memory, shape: Shape) -> Shared {
        let ahead = if shape.flow_control { shape.capacity - shape.retain } else { 0 };
        let horizon = shape.start.saturating_add(ahead);
        let shared = Shared {
            layout: Layout::new(memory, shape, shape.start),
            largest: AtomicU64::new(shape.max_delivery),
            control: Mutex::new(Control::new()),
            granted: Condvar::new(),
            end_taken: AtomicBool::new(false),
            last_gap_to: AtomicU64::new(0),
            published: CachePadded(Published {
                head: AtomicU64::new(shape.start),
                boundary: AtomicU64::new(shape.start),
                last: AtomicU64::new(shape.start),
            }),
            horizon: CachePadded(AtomicU64::new(horizon)),
            waits: CachePadded::default(),
            lost_claims: AtomicU64::new(0),
            relayed: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            access: PageAccess::new(),
            #[cfg(not(loom))]
            watchers: Default::default(),
            reach: Mutex::new(None),
            landing: Mutex::new(()),
        };
        shared.publish_head(shape.start);
        shared.publish_boundary(shape.start);
        shared.publish_horizon(horizon);
        shared
    }

    /// The sizes of the ring as it is now. Positions that were loaded before are in the memory that belongs to them.
    #[inline]
    pub(crate) fn shape(&self) -> &Shape {
        &self.layout.newest().shape
    }

    /// Whether holds keep the writer from overwriting: growing does not change that, and only such rings grow.
    #[inline]
    pub(crate) fn flow_control(&self) -> bool {
        self.layout.shape.flow_control
    }

    /// The sizes of the ring at first, and for ever if it does not grow: without flow control, or in memory of another process.
    #[inline]
    pub(crate) fn first_shape(&self) -> &Shape {
        &self.layout.shape
    }

    /// The largest delivery. A thread that loads a head sees the one that belongs to it.
    #[inline]
    pub(crate) fn max_delivery(&self) -> u64 {
        self.largest.load(Ordering::Acquire)
    }

    /// Allows larger deliveries from the last boundary on. Called by the writing end when there is room for them.
    pub(crate) fn allow(&self, max_delivery: u64) {
        let mut control = self.control();
        let gone = self.tail_of(self.horizon.load(Ordering::Acquire));
        let from = self.published.boundary.load(Ordering::Acquire);
        control.add_growth(Growth { from, max_delivery }, gone);
        // Release pairs with the Acquire in `max_delivery`: who sees it finds the growth.
        self.largest.store(max_delivery, Ordering::Release);
    }

    /// Whether so many bytes are no longer than the ring. Costs most rings one comparison.
    #[inline]
    pub(crate) fn has_capacity(&self, bytes: u64) -> bool {
        bytes <= self.layout.shape.capacity || bytes <= self.shape().capacity
    }

    /// The bytes of the ring as it is now.
    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        &self.layout.newest().memory
    }

    /// The memory that the ring began with. Whose it is does not change, and only memory of a pool is replaced.
    #[inline]
    pub(crate) fn origin(&self) -> &Memory {
        &self.layout.memory
    }

    /// The ends of deliveries, for the ring as it is now.
    #[inline]
    pub(crate) fn index(&self) -> &BoundaryIndex {
        &self.layout.newest().index
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        lock(&self.control)
    }

    /// The lowest stable position under this horizon.
    pub(crate) fn tail_of(&self, horizon: Position) -> Position {
        self.layout.newest().tail_of(horizon)
    }

    /// The range in which boundaries are looked up.
    pub(crate) fn known(&self) -> Known {
        // The boundary first: the index has everything up to it. A tail read later is only stricter.
        let boundary = self.published.boundary.load(Ordering::Acquire);
        let tail = self.tail_of(self.horizon.load(Ordering::Acquire)).max(self.peer_tail());
        Known { start: self.layout.shape.start, tail, boundary }
    }
}

/// Publishing, by the one writing end.
impl Shared {
    /// Publishes that the log is written up to `head`, in whole deliveries, the last of which begins at `last`. The index
    /// must have them.
    #[inline]
    pub(crate) fn publish(&self, last: Position, head: Position) {
        // The head first: a reader that loads the boundary and then the head never sees the boundary above it.
        self.publish_head(head);
        self.publish_boundary(head);
        self.publish_last(last);
    }

    /// After the boundary, which then is never below the beginning of the last delivery.
    #[inline]
    pub(crate) fn publish_last(&self, last: Position) {
        // Pairs with the Acquire in `Ring::last_delivery`.
        self.published.last.store(last, Ordering::Release);
    }

    /// Where the last complete delivery begins, for the writing end itself.
    pub(crate) fn last(&self) -> Position {
        self.published.last.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn publish_head(&self, head: Position) {
        // Pairs with the Acquire in `Ring::head`: the bytes below were written before.
        self.published.head.store(head, Ordering::Release);
        #[cfg(not(loom))]
        if let Some(region) = self.origin().own_region() {
            region.publish_head(head);
        }
    }

    #[inline]
    pub(crate) fn publish_boundary(&self, boundary: Position) {
        // Pairs with the Acquire in `Ring::boundary`: head, index and holes were written before.
        self.published.boundary.store(boundary, Ordering::Release);
        #[cfg(not(loom))]
        if let Some(region) = self.origin().own_region() {
            region.publish_boundary(boundary);
        }
    }

    /// Before the delivery that ends at `to`, `parts`, is published: other processes find its bytes beside the head.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn publish_small_payload(&self, to: Position, parts: &[&[u8]]) {
        if let Some(region) = self.origin().own_region() {
            region.publish_small_payload(to, parts);
        }
    }

    /// Publishes to other processes which bytes are about to be overwritten. False if no other process maps the ring.
    #[cfg(not(loom))]
    fn publish_horizon(&self, horizon: Position) -> bool {
        let region = self.origin().own_region();
        region.inspect(|region| region.publish_horizon(horizon)).is_some()
    }

    #[cfg(loom)]
    fn publish_horizon(&self, _horizon: Position) -> bool {
        false
    }

    /// Remembers that the positions of `gap` never arrived, and lets the horizon follow.
    pub(crate) fn add_gap(&self, gap: Gap) -> Gap {
        let mut control = self.control();
        let before = self.horizon.load(Ordering::Relaxed);
        let gone = self.tail_of(before).min(control.slowest_hold().unwrap_or(u64::MAX));
        let gap = control.add_gap(gap, gone);
        // Release pairs with the Acquire in `Ring::gap_after`. A reader that needs this hole has also seen a boundary that
        // is published after it.
        self.last_gap_to.store(gap.to, Ordering::Release);
        #[cfg(not(loom))]
        if let Some(region) = self.origin().own_region() {
            region.publish_gap(gap.to);
        }
        if gap.to > before && self.flow_control() {
            // Nothing is overwritten before the next grant, which other processes see.
            self.horizon.store(gap.to, Ordering::Release);
        } else if gap.to > before {
            self.announce(gap.to);
        }
        gap
    }
}

/// Granting, in rings with flow control.
impl Shared {
    /// Recomputes the horizon, publishes it and wakes the writers that wait for it.
    pub(crate) fn grant(&self, control: &mut Control) -> Position {
        let before = self.horizon.load(Ordering::Relaxed);
        if !self.flow_control() {
            return before;
        }
        let Shape { capacity, retain, .. } = *self.shape();
        let by_history = self.published.head.load(Ordering::Acquire).saturating_add(capacity - retain);
        let window = capacity + u64::from(planted::is(1));
        let by_holds = control.slowest_hold().map_or(u64::MAX, |slowest| slowest.saturating_add(window));
        let horizon = before.max(by_history.min(by_holds));
        // Other processes first: a writer that loads the ring's horizon without the lock may write at once. After a hole
        // the horizon is further ahead, and held bytes are still whole.
        if self.publish_horizon(horizon.min(by_holds)) {
            // Pairs with the Acquire fence in `lapped_by` of another process, as in `announce`.
            fence(Ordering::Release);
        }
        // Pairs with the Acquire in `Ring::horizon`: a writer that writes up to here has seen the cursors.
        self.horizon.store(horizon, Ordering::Release);
        if self.waits.peek() && control.satisfied(horizon) {
            self.waits.disarm();
            // A writer may make its own room while it is awake: then no thread sleeps here.
            if control.sleepers > 0 {
                self.granted.notify_all();
            }
        }
        horizon
    }

    /// Grants, and if the horizon stays below `until` arms `waits`, for the next hold to advance.
    pub(crate) fn grant_or_wait(&self, control: &mut Control, until: Position) -> Position {
        let horizon = self.grant(control);
        if horizon >= until || !self.flow_control() {
            return horizon;
        }
        control.want(until);
        self.waits.arm();
        self.grant(control)
    }

    /// The slow path of a writer that needs room up to `until`.
    pub(crate) fn request(&self, until: Position) -> Position {
        self.grant_or_wait(&mut self.control(), until)
    }

    /// Grants room to a waiting writer, after a hold has moved.
    pub(crate) fn after_advance(&self) {
        if self.waits.is_armed(barrier::full()) {
            self.grant(&mut self.control());
        }
    }
}

/// Announcing overwrites, and checking that bytes were not overwritten while they were read.
impl Shared {
    /// Overwritable rings: announces that everything below `horizon − capacity` is about to be overwritten. Called by the
    /// one writing end before it writes there.
    pub(crate) fn announce(&self, horizon: Position) {
        self.horizon.store(horizon, Ordering::Relaxed);
        self.publish_horizon(horizon);
        // Pairs with the Acquire fence in `lapped_by`: a reader of one of the bytes written from now on sees this horizon,
        // as in a sequence lock.
        fence(Ordering::Release);
    }

    /// The horizon to announce for writing `[from, end)` in an overwritable ring.
    pub(crate) fn ahead(&self, from: Position, end: Position) -> Position {
        end.max(from.saturating_add(self.first_shape().chunk()))
    }

    /// By how many bytes `from` is below the stable range; None if it is not. Call it after the bytes were read.
    pub(crate) fn lapped_by(&self, from: Position) -> Option<u64> {
        // Pairs with the Release fence in `announce`.
        fence(Ordering::Acquire);
        let peer_tail = self.peer_tail();
        if from < peer_tail {
            return Some(peer_tail - from);
        }
        let tail = self.tail_of(self.horizon.load(Ordering::Relaxed));
        if from >= tail {
            return None;
        }
        // After a hole the horizon can lie further ahead of a hold than the capacity. Nothing is written there before the
        // hold has moved, so held bytes are still whole.
        let held = self.flow_control() && self.control().slowest_hold().is_some_and(|hold| hold <= from);
        (!held).then_some(tail - from)
    }
}

/// Rings that another process writes: what its head page says.
#[cfg(not(loom))]
impl Shared {
    /// The position below which the peer overwrites. 0 for a ring of this process.
    pub(crate) fn peer_tail(&self) -> Position {
        let region = self.origin().peer_region();
        region.map_or(0, |region| region.horizon().saturating_sub(self.first_shape().capacity))
    }

    /// The position up to which a receiver at `head` can land whole deliveries without an announcement: not across a hole.
    pub(crate) fn peer_boundary(&self, head: Position) -> Option<Position> {
        let region = self.origin().peer_region()?;
        let (boundary, _) = region.ends();
        let goes_on = boundary > head && region.last_gap() <= head && !self.stopped.load(Ordering::Relaxed);
        goes_on.then_some(boundary)
    }

    /// Copies the range that ends at `to`, if it is the small delivery beside the peer's head.
    #[inline]
    pub(crate) fn read_small_payload(&self, to: Position, dst: &mut [u8]) -> bool {
        self.origin().peer_region().is_some_and(|region| region.read_small_payload(to, dst))
    }
}

/// A model has one process.
#[cfg(loom)]
impl Shared {
    pub(crate) fn peer_tail(&self) -> Position {
        0
    }

    pub(crate) fn peer_boundary(&self, _head: Position) -> Option<Position> {
        None
    }

    pub(crate) fn read_small_payload(&self, _to: Position, _dst: &mut [u8]) -> bool {
        false
    }
}
