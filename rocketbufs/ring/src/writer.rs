//! The local writing end: claim a piece, fill it, deliver it.
//!
//! ```text
//!        head        next = end of the claims       horizon (as last seen)
//!   ──────┬───────┬──────┬────────┬───────────────────┬──▶
//!         │ open  │ done │  open  │  free             │
//!         └ #7    └ #8   └ #9: the newest, may be short or given back
//! ```
//!
//! Claims become visible in the order in which they were claimed: #8 has been delivered, but the head stays
//! until #7 is. Each delivered claim ends at a boundary of its own.

use std::collections::VecDeque;

use crate::Position;
use crate::backing::Memory;
use crate::control::Gap;
use crate::memory::page_bytes;
use crate::ring::Ring;
use crate::shared::Shared;
#[cfg(not(loom))]
use crate::small_payload::SMALL_PAYLOAD_BYTES;
use crate::sync::{Ordering, lock};

/// Claims of one writer that can be open at a time.
pub const MAX_OPEN_CLAIMS: usize = 64;
const _: () = assert!(MAX_OPEN_CLAIMS == u64::BITS as usize, "a lost claim is a bit of a word");

/// How far the writer's reach (see `trim`) lies beyond what it needs now. More costs memory in every ring at rest, less
/// costs a writer of small deliveries a lock more often.
const REACH_PAGES: u64 = 4;

/// The one local writer of a ring.
///
/// A [`Claim`] that is dropped without being delivered is returned with the writer's next call if it is the newest. With a
/// later claim its space cannot be returned: the head never moves over bytes that were not written. The writer then refuses
/// further claims with [`ClaimError::ClaimLost`], until the later claims are returned too; if one of them was delivered,
/// for good.
#[derive(Debug)]
pub struct Writer {
    ring: Ring,
    /// The published end, and the end of all claims.
    head: Position,
    next: Position,
    /// The writer writes up to here without a lock: its reach (see `trim`), or without flow control the announced horizon.
    horizon: Position,
    /// The claims from `head` to `next`, oldest first; the first is number `first`, and open.
    claims: VecDeque<Slot>,
    first: u64,
    /// Whether an append must take the slow path: there are claims, or the ring has grown. The fast one knows the ring's first memory
    /// alone, so that writers of rings that never grow ask nothing more for each message.
    slowly: bool,
    /// As far as this writer has grown it: nobody else does.
    has_grown: bool,
    #[cfg(not(loom))]
    notifier: crate::watch::Notifier,
}

#[derive(Debug)]
struct Slot {
    end: Position,
    delivered: bool,
}

/// A piece of the ring that its owner alone may write, until it is delivered.
///
/// [`Writer::deliver`] delivers it, or returns it. See [`Writer`] for a claim that is dropped instead.
#[derive(Debug)]
#[must_use = "a claim that is dropped can stop its writer"]
pub struct Claim {
    ring: Ring,
    from: Position,
    len: usize,
    number: u64,
    returned: bool,
}

/// The result of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// Where the delivered bytes begin.
    pub from: Position,
    /// Where they end; equal to `from` if the claim was returned.
    pub to: Position,
    /// Whether the head moved: this and perhaps later claims became visible. `false` while an older claim is open.
    pub published: bool,
}

/// Why nothing was claimed. Nothing has changed, and the same call can be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The caller's mistake: no delivery in this ring is that large.
    #[error("a claim of {size} bytes: deliveries in this ring have at most {max_delivery}")]
    TooLarge {
        /// The size asked for.
        size: u64,
        /// The largest one possible.
        max_delivery: u64,
    },
    /// The caller's mistake: a delivery has at least one byte.
    #[error("a claim of no bytes: a delivery has at least one")]
    Empty,
    /// An outcome: the readers have not consumed enough. [`Ring::wait_grant`] waits for room.
    #[error("the ring is full: its readers have not consumed enough")]
    Full,
    /// The caller has too many claims open, or too many bytes in them. Deliver the oldest.
    #[error("too many open claims; deliver the oldest")]
    TooManyClaims,
    /// An older claim was dropped without being delivered, and later claims cannot become visible.
    #[error("the claim at position {from} was dropped, not delivered: later claims cannot become visible")]
    ClaimLost {
        /// Where the lost claim begins.
        from: Position,
    },
}

/// Why a claim was not delivered. The claim is returned, unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliverError {
    /// Only the newest claim can be delivered short or returned: later claims have their positions already.
    #[error("only the newest claim can be delivered short or returned")]
    ShortDeliver(Claim),
    /// More bytes than were claimed.
    #[error("more bytes delivered than the {} claimed", .0.len())]
    TooLong(Claim),
    /// A claim of another writer.
    #[error("this claim is not one of this writer's")]
    Foreign(Claim),
}

impl Ring {
    /// The writing end for a local writer, once. `None` if the writer or the receiver was handed out before, or if another
    /// process writes this ring.
    pub fn writer(&self) -> Option<Writer> {
        (!self.is_peer_written() && self.take_end()).then(|| Writer::new(self.clone()))
    }
}

impl Writer {
    fn new(ring: Ring) -> Writer {
        #[cfg(not(loom))]
        if let Some(region) = ring.shared().origin().own_region() {
            region.publish_in_place();
        }
        let head = ring.head();
        let horizon = match ring.flow_control() {
            true => ring.shared().reach_to(head, head),
            false => ring.horizon(),
        };
        let claims = VecDeque::with_capacity(MAX_OPEN_CLAIMS);
        let has_grown = ring.shared().layout.has_grown();
        Writer {
            ring,
            head,
            next: head,
            horizon,
            claims,
            first: 0,
            slowly: has_grown,
            has_grown,
            #[cfg(not(loom))]
            notifier: crate::watch::Notifier::default(),
        }
    }

    /// The ring that is written.
    #[inline]
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// End of the visible bytes.
    #[inline]
    pub fn head(&self) -> Position {
        self.head
    }

    /// Whether claims are open that were neither delivered nor returned.
    pub(crate) fn has_open_claims(&mut self) -> bool {
        self.reclaim().is_err() || !self.claims.is_empty()
    }

    /// Goes on with the room of a ring that has grown.
    pub(crate) fn see_horizon(&mut self) {
        let granted = self.ring.horizon();
        self.horizon = self.ring.shared().reach_to(self.head, granted);
        self.has_grown = self.ring.shared().layout.has_grown();
        self.choose_path();
    }

    /// After claims have gone, or the ring has grown.
    fn choose_path(&mut self) {
        self.slowly = self.has_grown || !self.claims.is_empty();
    }

    /// Takes the next `size` bytes of the log. Their content is arbitrary until written.
    ///
    /// # Errors
    /// [`ClaimError`], also as an outcome ([`ClaimError::Full`], after which `Ring::writer_waits` is set).
    pub fn claim(&mut self, size: u64) -> Result<Claim, ClaimError> {
        self.reclaim()?;
        let end = self.admit(size)?;
        let from = std::mem::replace(&mut self.next, end);
        self.claims.push_back(Slot { end, delivered: false });
        self.slowly = true;
        let number = self.first + self.claims.len() as u64 - 1;
        Ok(Claim { ring: self.ring.clone(), from, len: size as usize, number, returned: false })
    }

    /// Delivers the first `size` bytes of `claim`; with 0 returns the claim. The bytes become visible when all older claims
    /// are delivered.
    ///
    /// # Errors
    /// [`DeliverError`], with the claim in it.
    pub fn deliver(&mut self, mut claim: Claim, size: u64) -> Result<Delivered, DeliverError> {
        if !claim.ring.ptr_eq(&self.ring) {
            return Err(DeliverError::Foreign(claim));
        }
        if size > claim.len as u64 {
            return Err(DeliverError::TooLong(claim));
        }
        // A lost claim behind this one is removed first. A lost claim before it is reported by the next claim.
        let _ = self.reclaim();
        let index = (claim.number - self.first) as usize;
        let newest = index + 1 == self.claims.len();
        if size < claim.len as u64 && !newest {
            return Err(DeliverError::ShortDeliver(claim));
        }
        claim.returned = true;
        let (from, to) = (claim.from, claim.from + size);
        if newest {
            self.next = to;
        }
        if size == 0 {
            self.claims.pop_back();
            self.choose_path();
            return Ok(Delivered { from, to, published: false });
        }
        self.claims[index] = Slot { end: to, delivered: true };
        Ok(Delivered { from, to, published: self.publish() })
    }

    /// The positions from the head to `to` are never written: a hole, which readers find with [`Ring::gap_after`]. Head and boundary
    /// continue at `to`. Held bytes are not overwritten before their holds have moved. Without effect for a position up to the head.
    ///
    /// The hole is longer where it touches the previous one, or where 64 holes are remembered already: then the bytes between are
    /// given up too.
    ///
    /// # Errors
    /// [`ClaimError::TooManyClaims`] while claims are open, and [`ClaimError::ClaimLost`].
    pub fn skip(&mut self, to: Position) -> Result<(), ClaimError> {
        self.reclaim()?;
        if !self.claims.is_empty() {
            return Err(ClaimError::TooManyClaims);
        }
        if to <= self.head {
            return Ok(());
        }
        let shared = self.ring.shared();
        // The hole first: a reader that sees the new boundary must find it.
        shared.add_gap(Gap { from: self.head, to });
        shared.index().record(to);
        (self.head, self.next) = (to, to);
        shared.publish(to, to);
        let granted = self.ring.horizon();
        self.horizon = if shared.flow_control() { shared.reach_to(to, granted) } else { granted };
        self.wake_watchers();
        Ok(())
    }

    /// Claims, fills and delivers in one step: the `parts`, one after the other, as one delivery. Returns its end. Without
    /// bytes it does nothing. Takes a few nanoseconds for a small message.
    ///
    /// # Errors
    /// As for [`Writer::claim`]. Nothing was written then.
    #[inline(always)]
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<Position, ClaimError> {
        let size: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if size == 0 {
            return Ok(self.next);
        }
        // The first memory: see `slowly`.
        let most = self.ring.shared().layout.shape.max_delivery.min(self.horizon - self.next);
        if size > most || self.slowly {
            return self.append_slowly(parts, size);
        }
        self.fill(&self.ring.shared().layout.memory, parts);
        #[cfg(not(loom))]
        self.ring.shared().layout.memory.prepare(self.next, size as usize);
        let (from, end) = (self.next, self.next + size);
        (self.next, self.head) = (end, end);
        #[cfg(not(loom))]
        if size <= SMALL_PAYLOAD_BYTES as u64
            && self.notifier.wants_small_payload(&self.ring.shared().watchers)
        {
            self.ring.shared().publish_small_payload(end, parts);
        }
        let shared = self.ring.shared();
        shared.layout.index.record(end);
        shared.publish(from, end);
        self.wake_watchers();
        Ok(end)
    }

    /// Wakes sleeping readers in other processes.
    #[inline]
    fn wake_watchers(&mut self) {
        #[cfg(not(loom))]
        self.notifier.notify(&self.ring.shared().watchers);
    }

    #[cold]
    fn append_slowly(&mut self, parts: &[&[u8]], size: u64) -> Result<Position, ClaimError> {
        self.reclaim()?;
        let end = self.admit(size)?;
        self.fill(self.ring.shared().memory(), parts);
        self.next = end;
        self.claims.push_back(Slot { end, delivered: true });
        self.slowly = true;
        self.publish();
        Ok(end)
    }

    /// Writes the parts at `next`. The caller has checked that they fit below the horizon.
    #[inline(always)]
    fn fill(&self, memory: &Memory, parts: &[&[u8]]) {
        let mut at = self.next;
        for part in parts {
            // SAFETY: `[next, horizon)` belongs to this writer alone: it is neither published nor claimed, and
            // with flow control no reader holds the previous bytes. Without, readers discard what they read
            // there, because the horizon was announced first.
            unsafe { memory.write(at, part) };
            at += part.len() as u64;
        }
    }

    /// The end of the next claim, of `size` bytes, if there is room for it.
    fn admit(&mut self, size: u64) -> Result<Position, ClaimError> {
        let shared = self.ring.shared();
        // What fits at first fits always.
        if size > shared.first_shape().max_delivery && size > shared.max_delivery() {
            return Err(ClaimError::TooLarge { size, max_delivery: shared.max_delivery() });
        }
        let shape = shared.first_shape();
        if size == 0 {
            return Err(ClaimError::Empty);
        }
        if self.claims.len() == MAX_OPEN_CLAIMS {
            return Err(ClaimError::TooManyClaims);
        }
        let end = self.next.checked_add(size).ok_or(ClaimError::Full)?;
        // No reader stops a writer without flow control, but the writer must not overwrite its own open claims, also where
        // the announced horizon would allow it.
        if !shape.flow_control && end - self.head > shape.capacity - shape.retain {
            return Err(ClaimError::TooManyClaims);
        }
        if end <= self.horizon {
            return Ok(end);
        }
        if shape.flow_control {
            let known = self.ring.horizon();
            let granted = if end <= known { known } else { shared.request(end) };
            if end > granted {
                return Err(ClaimError::Full);
            }
            self.horizon = shared.reach_to(end, granted);
            return Ok(end);
        }
        self.horizon = shared.ahead(self.next, end);
        shared.announce(self.horizon);
        Ok(end)
    }

    /// Publishes the delivered claims, up to the first open one. Returns whether there were any.
    fn publish(&mut self) -> bool {
        let shared = self.ring.shared();
        let before = self.head;
        // Two copies of the loop: the first memory's index lies in the ring's own words.
        let passed = match self.has_grown {
            false => pass(&mut self.claims, before, |end| shared.layout.index.record(end)),
            true => pass(&mut self.claims, before, |end| shared.index().record(end)),
        };
        self.slowly = self.has_grown || !self.claims.is_empty();
        let Some(Passed { last, head, count }) = passed else { return false };
        self.head = head;
        self.first += count;
        #[cfg(not(loom))]
        if self.head - last <= SMALL_PAYLOAD_BYTES as u64
            && self.notifier.wants_small_payload(&shared.watchers)
        {
            let mut bytes = [0; SMALL_PAYLOAD_BYTES];
            let bytes = &mut bytes[..(self.head - last) as usize];
            shared.memory().read(last, bytes);
            shared.publish_small_payload(self.head, &[bytes]);
        }
        shared.publish(last, self.head);
        self.wake_watchers();
        true
    }

    /// Returns the newest claims as far as they were dropped, and reports a dropped claim that is not among these.
    fn reclaim(&mut self) -> Result<(), ClaimError> {
        let lost_claims = &self.ring.shared().lost_claims;
        // Acquire pairs with the Release in `Claim::drop`: the claim's owner no longer writes to it.
        let mut lost = lost_claims.load(Ordering::Acquire);
        if lost == 0 {
            return Ok(());
        }
        while let Some(newest) = self.claims.len().checked_sub(1) {
            let bit = lost_bit(self.first + newest as u64);
            if lost & bit == 0 {
                break;
            }
            lost = lost_claims.fetch_and(!bit, Ordering::Acquire) & !bit;
            self.claims.pop_back();
            self.next = self.claims.back().map_or(self.head, |slot| slot.end);
        }
        self.choose_path();
        let stuck = (0..self.claims.len()).find(|&i| lost & lost_bit(self.first + i as u64) != 0);
        stuck.map_or(Ok(()), |i| {
            let from = i.checked_sub(1).map_or(self.head, |before| self.claims[before].end);
            Err(ClaimError::ClaimLost { from })
        })
    }
}

/// Deliveries that become visible at once.
struct Passed {
    /// The position at which the last one begins.
    last: Position,
    /// The position at which the last one ends.
    head: Position,
    /// The number of deliveries.
    count: u64,
}

/// Takes the delivered claims before the first open one, and records where each ends.
#[inline(always)]
fn pass(claims: &mut VecDeque<Slot>, head: Position, record: impl Fn(Position)) -> Option<Passed> {
    let mut passed = None;
    while let Some(slot) = claims.pop_front_if(|slot| slot.delivered) {
        record(slot.end);
        let Passed { head, count, .. } = passed.unwrap_or(Passed { last: head, head, count: 0 });
        passed = Some(Passed { last: head, head: slot.end, count: count + 1 });
    }
    passed
}

impl Shared {
    /// Moves the writer's reach for a write up to `end`, at most to `granted`, and returns it.
    fn reach_to(&self, end: Position, granted: Position) -> Position {
        let to = end.saturating_add(REACH_PAGES * page_bytes()).min(granted);
        // Under the lock: a trim has seen the reach before, or sees this one. Pages that it releases are zero before the
        // writer continues.
        *lock(&self.reach) = Some(to);
        to
    }
}

/// The bit of a claim: no two of at most 64 consecutive numbers share one.
fn lost_bit(number: u64) -> u64 {
    1 << (number % MAX_OPEN_CLAIMS as u64)
}

impl Claim {
    /// The claimed bytes. Their content before they are written is arbitrary.
    pub fn bytes(&mut self) -> &mut [u8] {
        let at = self.ring.shared().memory().at(self.from);
        // SAFETY: `len` bytes from there are mapped in one piece for as long as the claim's ring lives. They were
        // claimed once, are above the head and below the horizon: this claim alone may touch them. (Readers of an
        // overwritable ring may look at what was there before; they use volatile loads and discard the result.)
        unsafe { std::slice::from_raw_parts_mut(at, self.len) }
    }

    /// Where the claim begins.
    pub fn from(&self) -> Position {
        self.from
    }

    /// Its length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a claim is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.returned {
            // Pairs with the Acquire in `Writer::reclaim`.
            self.ring.shared().lost_claims.fetch_or(lost_bit(self.number), Ordering::Release);
        }
    }
}
