//! The ring itself: its positions, its horizon, who holds it, and who waits for room.
//!
//! The writing end ([`Writer`] or [`RingReceiver`]) publishes `head` and `boundary`; under the control lock the horizon
//! moves and holds come and go. A hold is therefore either there before the horizon is computed, and counts, or
//! comes after, and is refused if what it asks for is gone.
//!
//! A full writer and an advancing hold find each other without a lock on the hold's side ([`crate::NotifyFlag`]):
//!
//! ```text
//!   writer (lock held)              hold
//!   waits = armed                   cursor = to
//!   ── full ──                      ── full ──
//!   read cursors → enough?          waits? → take the lock, grant, wake
//! ```

use crate::Position;
use crate::barrier;
use crate::control::{Control, Cursor};
use crate::ends::Ends;
use crate::handshake::NotifyFlag;
use crate::index::{BoundaryIndex, Known};
use crate::pin::Pins;
use crate::planted;
use crate::pool::Memory;
use crate::receiver::RingReceiver;
use crate::shape::Shape;
use crate::sync::{
    Arc, AtomicBool, AtomicU64, CachePadded, Condvar, Mutex, MutexGuard, Ordering, fence, lock,
};
use crate::view::View;
use crate::writer::Writer;

/// Memory that holds the last `capacity` bytes of a log. A handle: clones are the same ring.
#[derive(Clone, Debug)]
pub struct Ring(Arc<Shared>);

/// A hole in the log: the positions `[from, to)` never arrived in this ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first position that is missing; a boundary.
    pub from: Position,
    /// The first position after it that is not; a boundary.
    pub to: Position,
}

/// The position asked for is no longer in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes there are gone: the ring begins at position {tail} now")]
pub struct Overwritten {
    /// The lowest position that can still be read.
    pub tail: Position,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) shape: Shape,
    pub(crate) memory: Memory,
    pub(crate) index: BoundaryIndex,
    control: Mutex<Control>,
    /// Woken with the control lock held.
    pub(crate) granted: Condvar,
    end_taken: AtomicBool,
    /// Where the last hole ends; 0 if there was none.
    last_gap_to: AtomicU64,
    /// Written by the writing end alone.
    pub(crate) ends: CachePadded<Ends>,
    pub(crate) horizon: CachePadded<AtomicU64>,
    /// Whether a writer was refused and waits for a hold to advance.
    pub(crate) waits: CachePadded<NotifyFlag>,
    /// Claims dropped without being delivered: a bit each, by number modulo 64 (see [`Writer`]).
    pub(crate) lost_claims: AtomicU64,
    /// What lands is sent on, in pieces that must end where deliveries do.
    pub(crate) handed_on: AtomicBool,
    /// What the peer goes on to write is not followed.
    pub(crate) over: AtomicBool,
    pub(crate) pins: Pins,
    #[cfg(not(loom))]
    pub(crate) watchers: crate::watch::Watchers,
    /// How far a local writer may write without asking, which may be less than the horizon: see `trim`. None where there is
    /// no such writer, or it waits for nobody.
    pub(crate) reach: Mutex<Option<Position>>,
    /// Whoever lands what another process has written has this.
    pub(crate) lands: Mutex<()>,
}

impl Shared {
    /// Overwritable rings: says that everything below `horizon − capacity` is about to be overwritten. Called by
    /// the one writing end before it writes there.
    pub(crate) fn announce(&self, horizon: Position) {
        self.horizon.store(horizon, Ordering::Relaxed);
        self.publish_horizon(horizon);
        // Pairs with the Acquire fence in `Ring::is_stable`: who has read one of the bytes written from now on
        // sees this horizon, as in a sequence lock.
        fence(Ordering::Release);
    }

    /// How far an overwritable ring's end may be announced to write `[from, end)`.
    pub(crate) fn ahead(&self, from: Position, end: Position) -> Position {
        end.max(from.saturating_add(self.shape.chunk()))
    }

    /// Recomputes the horizon, publishes it and wakes who was waiting for it.
    fn grant(&self, control: &mut Control) -> Position {
        let before = self.horizon.load(Ordering::Relaxed);
        if !self.shape.flow_control {
            return before;
        }
        let Shape { capacity, retain, .. } = self.shape;
        let by_history = self.ends.head.load(Ordering::Acquire).saturating_add(capacity - retain);
        let window = capacity + u64::from(planted::is(1));
        let by_holds = control.slowest_hold().map_or(u64::MAX, |slowest| slowest.saturating_add(window));
        let horizon = before.max(by_history.min(by_holds));
        // Other processes first: who reads the ring's horizon without the lock may write at once. After a hole it lies
        // further ahead, and what is held is still whole.
        if self.publish_horizon(horizon.min(by_holds)) {
            // Pairs with the Acquire fence in `lapped_by` of another process, as in `announce`.
            fence(Ordering::Release);
        }
        // Pairs with the Acquire in `Ring::horizon`: whoever writes up to here has seen the cursors.
        self.horizon.store(horizon, Ordering::Release);
        if self.waits.peek() && control.satisfied(horizon) {
            self.waits.disarm();
            // Who asked may do what gives him room himself, awake: then there is nobody to tell.
            if control.sleepers > 0 {
                self.granted.notify_all();
            }
        }
        horizon
    }

    /// Grants, and if that is less than `until` says so in `waits`, where the next hold to advance sees it.
    pub(crate) fn grant_or_wait(&self, control: &mut Control, until: Position) -> Position {
        let horizon = self.grant(control);
        if horizon >= until || !self.shape.flow_control {
            return horizon;
        }
        control.want(until);
        self.waits.arm();
        self.grant(control)
    }

    /// The slow path of a writer that wants to write up to `until`.
    pub(crate) fn request(&self, until: Position) -> Position {
        self.grant_or_wait(&mut self.control(), until)
    }

    /// A hold moved or went away: a writer that waits for it is granted what it gets.
    fn after_advance(&self) {
        if self.waits.is_armed(barrier::full()) {
            self.grant(&mut self.control());
        }
    }

    /// Remembers that the positions of `gap` never arrived, and lets the horizon follow.
    pub(crate) fn add_gap(&self, gap: Gap) -> Gap {
        let mut control = self.control();
        let before = self.horizon.load(Ordering::Relaxed);
        let gone = self.tail_of(before).min(control.slowest_hold().unwrap_or(u64::MAX));
        let gap = control.add_gap(gap, gone);
        // Release; pairs with the Acquire in `Ring::gap_after`, although who needs this hole has seen a boundary
        // published after it.
        self.last_gap_to.store(gap.to, Ordering::Release);
        self.publish_gap(gap.to);
        if gap.to > before && self.shape.flow_control {
            // Nothing is overwritten before the next grant, which is what other processes are told of.
            self.horizon.store(gap.to, Ordering::Release);
        } else if gap.to > before {
            self.announce(gap.to);
        }
        gap
    }

    /// By how many bytes `from` is below what is stable, if it is. To be asked after the bytes were read.
    pub(crate) fn lapped_by(&self, from: Position) -> Option<u64> {
        // Pairs with the Release fence in `announce`.
        fence(Ordering::Acquire);
        let peers = self.peers_tail();
        if from < peers {
            return Some(peers - from);
        }
        let tail = self.tail_of(self.horizon.load(Ordering::Relaxed));
        if from >= tail {
            return None;
        }
        // After a hole the horizon can lie further ahead of a hold than the capacity; nothing is written there
        // before the hold has moved, so what it holds is still whole.
        let held = self.shape.flow_control && self.control().slowest_hold().is_some_and(|hold| hold <= from);
        (!held).then_some(tail - from)
    }

    pub(crate) fn tail_of(&self, horizon: Position) -> Position {
        horizon.saturating_sub(self.shape.capacity).max(self.shape.start)
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        lock(&self.control)
    }
}

impl Ring {
    pub(crate) fn new(memory: Memory, shape: Shape) -> Ring {
        let ahead = if shape.flow_control { shape.capacity - shape.retain } else { 0 };
        let horizon = shape.start.saturating_add(ahead);
        let ring = Ring(Arc::new(Shared {
            shape,
            memory,
            index: BoundaryIndex::new(shape.capacity.max(1), shape.max_delivery),
            control: Mutex::new(Control::new()),
            granted: Condvar::new(),
            end_taken: AtomicBool::new(false),
            last_gap_to: AtomicU64::new(0),
            ends: CachePadded(Ends {
                head: AtomicU64::new(shape.start),
                boundary: AtomicU64::new(shape.start),
                last: AtomicU64::new(shape.start),
            }),
            horizon: CachePadded(AtomicU64::new(horizon)),
            waits: CachePadded::default(),
            lost_claims: AtomicU64::new(0),
            handed_on: AtomicBool::new(false),
            over: AtomicBool::new(false),
            pins: Pins::new(),
            #[cfg(not(loom))]
            watchers: Default::default(),
            reach: Mutex::new(None),
            lands: Mutex::new(()),
        }));
        ring.0.publish_head(shape.start);
        ring.0.publish_boundary(shape.start);
        ring.0.publish_horizon(horizon);
        ring
    }

    /// A ring of no bytes, of a log that goes on at `start`: it costs no address space and grants nothing. Its receiver takes
    /// nothing but holes. A place in a log, for a reader that has no memory for it now.
    pub fn unbacked(start: Position) -> Ring {
        Ring::new(Memory::nothing(), Shape::unbacked(start))
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// Bytes of the log that the ring keeps: a power of two, or 0 ([`Ring::unbacked`]).
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.0.shape.capacity
    }

    /// Bytes of history kept although nobody holds them.
    pub fn retain(&self) -> u64 {
        self.0.shape.retain
    }

    /// The largest delivery, in bytes.
    pub fn max_delivery(&self) -> u64 {
        self.0.shape.max_delivery
    }

    /// Whether holds keep the writer from overwriting.
    pub fn flow_control(&self) -> bool {
        self.0.shape.flow_control
    }

    /// Where this ring's part of the log begins.
    pub fn start(&self) -> Position {
        self.0.shape.start
    }

    /// End of what was written.
    #[inline]
    pub fn head(&self) -> Position {
        self.0.ends.head.load(Ordering::Acquire)
    }

    /// End of the last complete delivery. Read before [`Ring::head`] it is never above it.
    #[inline]
    pub fn boundary(&self) -> Position {
        self.0.ends.boundary.load(Ordering::Acquire)
    }

    /// Where the last complete delivery begins, if it is still there: for a ring that a transport fills, the last one
    /// whose end it was told of. A boundary read after it is never below it.
    pub fn last_delivery(&self) -> Option<Position> {
        let last = self.0.ends.last.load(Ordering::Acquire);
        (last < self.boundary() && last >= self.tail()).then_some(last)
    }

    /// How far the writer may write without saying more. Never moves back.
    #[inline]
    pub fn horizon(&self) -> Position {
        self.0.horizon.load(Ordering::Acquire)
    }

    /// The lowest position that is still stable: `horizon − capacity`, but not below the start. To be read after
    /// the head, if both are needed: the other way round the writer may have gone on in between. Can be above the
    /// boundary where a delivery is longer than the ring was made for, and above the head where another process writes.
    pub fn tail(&self) -> Position {
        self.0.tail_of(self.horizon()).max(self.0.peers_tail())
    }

    /// The writing end for a local writer, once; `None` if it or the receiver was handed out before, or if another process
    /// writes this ring.
    pub fn writer(&self) -> Option<Writer> {
        (!self.is_peer_written() && self.take_end()).then(|| Writer::new(self.clone()))
    }

    /// The writing end for a transport, once; `None` if it or the writer was handed out before.
    pub fn receiver(&self) -> Option<RingReceiver> {
        self.take_end().then(|| RingReceiver::new(self.clone()))
    }

    fn take_end(&self) -> bool {
        !self.0.end_taken.swap(true, Ordering::AcqRel)
    }

    /// Registers a cursor at `at`, which may lie above the head. With flow control nothing at or above it is
    /// overwritten until it moves or is dropped; without, it is only a place that [`Ring::slowest_hold`] sees.
    ///
    /// # Errors
    /// [`Overwritten`] if that part of the log is gone. Nothing is registered then.
    pub fn hold(&self, at: Position) -> Result<Hold, Overwritten> {
        let mut control = self.0.control();
        // What has not come yet is not gone.
        let tail = self.tail().min(self.head());
        if at < tail {
            return Err(Overwritten { tail });
        }
        let (slot, cursor) = control.add_hold(at);
        Ok(Hold { ring: self.clone(), cursor, slot })
    }

    /// The lowest cursor of all holds.
    pub fn slowest_hold(&self) -> Option<Position> {
        self.0.control().slowest_hold()
    }

    /// With flow control: moves the horizon as far as holds and history allow, wakes a writer that waits for it,
    /// and returns it. A receiver calls it to tell the sender how far it may write. Without: the horizon.
    pub fn grant(&self) -> Position {
        self.0.grant(&mut self.0.control())
    }

    /// The smallest known boundary at or above both `p` and the tail. The start and the last boundary are always
    /// known, others by an index that keeps one per block (about a sixteenth of the largest delivery). `None` if
    /// `p` is above the last boundary.
    pub fn boundary_at_or_after(&self, p: Position) -> Option<Position> {
        self.0.index.at_or_after(p, &self.known())
    }

    /// The largest known boundary at or below `p` that is not below the tail.
    pub fn boundary_at_or_before(&self, p: Position) -> Option<Position> {
        self.0.index.at_or_before(p, &self.known())
    }

    fn known(&self) -> Known {
        // The boundary first: the index has everything up to it. A tail read later is only stricter.
        let boundary = self.boundary();
        Known { start: self.start(), tail: self.tail(), boundary }
    }

    /// The first hole that ends above `p`. Costs a load where there is none. A reader that has seen a boundary
    /// sees every hole below it.
    pub fn gap_after(&self, p: Position) -> Option<Gap> {
        if self.0.last_gap_to.load(Ordering::Acquire) <= p {
            return None;
        }
        self.0.control().gap_after(p)
    }

    /// The range `[from, to)`, to be read. Nothing is copied or checked yet.
    ///
    /// # Panics
    /// If `to` is below `from`, or the range is longer than the ring. Where the writer does not wait, that comes
    /// by itself: a reader that was lapped, or that read the tail before the head, must check first.
    pub fn view(&self, from: Position, to: Position) -> View {
        View::new(self.clone(), from, to)
    }

    /// Whether what was read at or above `from` was not being overwritten. To be asked *after* the bytes were
    /// used: an answer given before says nothing.
    pub fn is_stable(&self, from: Position) -> bool {
        self.0.lapped_by(from).is_none()
    }

    /// Whether another process writes the bytes, and this one only maps them. They may change at any time, whatever is
    /// held, if that process does not keep its word.
    #[inline]
    pub fn is_peer_written(&self) -> bool {
        self.0.memory.is_peer_written()
    }

    /// What another process needs to map this ring, by [`PeerMapper::map`](crate::PeerMapper::map): the ring's file. It stays the
    /// ring's. None for a ring that shares its file with others. Also of a ring that is itself mapped from another
    /// process: whoever has it can hand it on.
    #[cfg(not(loom))]
    pub fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        self.0.memory.region().map(|region| region.file().as_fd())
    }

    /// Whether both are handles to the same ring.
    pub fn ptr_eq(&self, other: &Ring) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A cursor that holds the horizon: with flow control nothing at or above it is overwritten. Dropping releases it.
#[derive(Debug)]
pub struct Hold {
    ring: Ring,
    cursor: Cursor,
    slot: usize,
}

impl Hold {
    /// Gives back what lies below `to`; a smaller `to` than before does nothing. Costs a fence; the lock and a
    /// wake-up only if a writer waits.
    #[inline]
    pub fn advance(&self, to: Position) {
        // A maximum, because several threads may share a hold. Release pairs with the Acquire in
        // `Control::slowest_hold`.
        // A writer in another process is told by other ways.
        if self.cursor.fetch_max(to, Ordering::Release) < to && !self.ring.is_peer_written() {
            self.ring.0.after_advance();
        }
    }

    /// Where the cursor is.
    #[inline]
    pub fn position(&self) -> Position {
        self.cursor.load(Ordering::Acquire)
    }

    /// The ring that is held.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let shared = self.ring.shared();
        let mut control = shared.control();
        let slowest = control.remove_hold(self.slot);
        if slowest && shared.waits.peek() {
            shared.grant(&mut control);
        }
    }
}
