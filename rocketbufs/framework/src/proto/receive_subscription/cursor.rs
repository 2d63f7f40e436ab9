//! The application's reading of a subscription's log: what was read, and what was released.
//!
//! ```text
//!      consumed     pins        read      boundary   head
//!  ───────┼──────────┼───────────┼───────────┼────────┼──▶
//!   given │   shown by views     │ not yet   │ part of│
//!   back  │   that are alive     │ handed out│ a del. │
//! ```
//!
//! The application's hold in the ring is at the smallest of `consumed` and every live view. In a spliced
//! subscription the application holds only bytes that were not reported to it yet; the subscribers downstream hold
//! the rest.

use rocketring::{Ring, verify};

use super::item::Item;
use crate::ground::planted;
use crate::ground::types::Position;

/// More was released than was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuch {
    /// The bytes that were received and not released yet.
    pub received: u64,
}

/// The positions that were read and released, see the module.
#[derive(Debug)]
pub struct ReceiveCursor {
    /// The most bytes of one view; 0: no limit.
    max_view_bytes: u64,
    consumed: Position,
    read: Position,
    pins: Vec<Position>,
    /// The last known position of the reader that reads the subscription alone.
    reader: Option<Position>,
    /// How often bytes that had arrived were overwritten before the application had read them, and the end of the last of them.
    overwritten: (u32, Position),
}

impl ReceiveCursor {
    /// Creates the cursor of a log that begins at `start`.
    pub fn new(start: Position, max_view_bytes: u64) -> Self {
        Self {
            max_view_bytes,
            consumed: start,
            read: start,
            pins: Vec::new(),
            reader: None,
            overwritten: (0, 0),
        }
    }

    /// Continues at `start` in another ring. Nothing in the old one is needed any more.
    pub(super) fn move_to(&mut self, start: Position) {
        self.read = start;
        self.consumed = start;
        self.reader = None;
    }

    /// Everything below was released.
    pub fn consumed(&self) -> Position {
        self.consumed
    }

    /// Everything below was handed out.
    pub fn read(&self) -> Position {
        self.read
    }

    /// Returns how often bytes that had arrived were overwritten before the application had read them, and the end of the last
    /// of them.
    pub fn overwritten(&self) -> (u32, Position) {
        self.overwritten
    }

    /// Records that bytes below `to` were overwritten before the application had read them.
    pub fn lose(&mut self, to: Position) {
        let (times, last) = self.overwritten;
        if to > last {
            self.overwritten = (times.saturating_add(1), to);
        }
    }

    /// Returns the position that the application holds in the ring.
    pub fn holds_at(&self) -> Position {
        let pins = self.pins.iter().copied().filter(|_| !planted::is(planted::PIN_IGNORED));
        pins.min().unwrap_or(Position::MAX).min(self.consumed)
    }
}

/// The release of data.
impl ReceiveCursor {
    /// Releases everything below `to`. Released data counts as read, since only held data may be handed out.
    pub fn give_back(&mut self, to: Position, ring: &Ring) {
        let to = self.reader.map_or(to, |reader| to.min(reader));
        self.consumed = self.consumed.max(to);
        self.read = self.read.max(to);
        // A reported hole is released with the last bytes before it.
        while self.consumed < self.read
            && let Some(gap) = ring.gap_after(self.consumed)
            && gap.from <= self.consumed
        {
            self.consumed = gap.to.min(self.read);
        }
    }

    /// Releases everything below `to`, as far as it was received.
    pub fn give_back_received(&mut self, to: Position, ring: &Ring) {
        self.give_back(to.min(self.reached(ring)), ring);
    }

    /// Releases the oldest `size` bytes.
    ///
    /// # Errors
    /// Not so many bytes were received.
    pub fn consume(&mut self, size: u64, ring: &Ring) -> Result<(), TooMuch> {
        let boundary = self.reached(ring);
        let mut left = size;
        let mut to = self.consumed;
        while let Some(gap) = ring.gap_after(to) {
            let before = gap.from.saturating_sub(to);
            if left <= before {
                break;
            }
            left -= before;
            to = gap.to;
        }
        if left > boundary.saturating_sub(to) {
            return Err(TooMuch { received: boundary.saturating_sub(self.consumed) });
        }
        self.give_back(to + left, ring);
        Ok(())
    }

    /// Returns the position up to which data may be released.
    fn reached(&self, ring: &Ring) -> Position {
        self.reader.unwrap_or_else(|| ring.boundary())
    }

    /// Holds everything from `at` for a view.
    pub fn pin(&mut self, at: Position) {
        self.pins.push(at);
    }

    /// Ends the hold of a view.
    pub fn unpin(&mut self, at: Position) {
        if let Some(index) = self.pins.iter().position(|pin| *pin == at) {
            self.pins.swap_remove(index);
        }
    }

    /// Moves the hold of a view forward.
    pub fn move_pin(&mut self, at: Position, to: Position) {
        if let Some(pin) = self.pins.iter_mut().find(|pin| **pin == at) {
            *pin = to;
        }
    }

    /// Returns whether every complete delivery up to `boundary` was released.
    pub fn is_given_back(&self, boundary: Position) -> bool {
        self.pins.is_empty() && self.consumed >= boundary
    }
}

/// A reader that reads alone.
impl ReceiveCursor {
    /// Returns whether a reader takes the data.
    pub fn is_read_alone(&self) -> bool {
        self.reader.is_some()
    }

    /// Gives all further data to a reader. Returns its first position, or `None` if received data was not
    /// released yet, or if there is a reader.
    pub fn begin_reading(&mut self, ring: &Ring) -> Option<Position> {
        let given_back = self.pins.is_empty() && self.consumed == self.read;
        if self.reader.is_some() || !given_back || ring.head() != self.read {
            return None;
        }
        self.reader = Some(self.read);
        Some(self.read)
    }

    /// Takes over the reader's position. Returns whether anything was released.
    pub fn catch_up(&mut self, reader: Position, ring: &Ring) -> bool {
        self.reader = Some(reader);
        let moves = reader > self.consumed;
        if moves {
            self.give_back(reader, ring);
        }
        moves
    }

    /// Ends the reading alone. The reader was shown everything up to `read`.
    pub fn end_reading(&mut self, read: Position) {
        self.reader = None;
        self.read = self.read.max(read);
    }
}

/// The data, in order.
impl ReceiveCursor {
    /// Returns whether [`ReceiveCursor::next_item`] would return something.
    pub fn has_item(&self, ring: &Ring) -> bool {
        ring.boundary() > self.read || ring.gap_after(self.read).is_some_and(|gap| gap.from <= self.read)
    }

    /// Returns the next thing to report and moves `read` past it. `pin`: a view of the data keeps it in the
    /// ring. `spliced`: receivers downstream hold the bytes that they need.
    pub fn next_item(&mut self, ring: &Ring, pin: bool, spliced: bool) -> Option<Item> {
        if !ring.flow_control() {
            return self.next_payload(ring);
        }
        let boundary = ring.boundary();
        if let Some(lost) = self.skip_overwritten(ring, boundary) {
            return Some(lost);
        }
        if spliced && self.consumed < self.read {
            // The application was told of this data before the splice, and does not release it any more.
            self.give_back(self.read, ring);
        }
        let limit = match ring.gap_after(self.read) {
            Some(gap) if gap.from <= self.read => {
                let from = self.read;
                self.read = gap.to;
                if self.consumed >= from {
                    self.consumed = gap.to;
                }
                return Some(Item::Lost(from, gap.to));
            }
            Some(gap) => gap.from.min(boundary),
            None => boundary,
        };
        if limit <= self.read {
            return None;
        }
        let (from, limit) = (self.read, self.step_to(ring, limit));
        self.read = limit;
        if pin {
            self.pins.push(from);
        }
        if spliced {
            self.consumed = self.consumed.max(limit);
        }
        Some(Item::Data(from, limit))
    }

    /// Returns where the next view ends: at the end of a delivery, at most at `limit`.
    fn step_to(&self, ring: &Ring, limit: Position) -> Position {
        let most = self.max_view_bytes;
        if most == 0 || limit - self.read <= most {
            return limit;
        }
        let before = ring.boundary_at_or_before(self.read + most);
        let step = before.filter(|at| *at > self.read).or_else(|| ring.boundary_at_or_after(self.read + 1));
        step.map_or(limit, |at| at.min(limit))
    }

    /// In memory that the sender writes, a subscriber that was too slow or was disconnected can lose data
    /// that is held for all others. Returns the lost range, up to the next complete delivery.
    fn skip_overwritten(&mut self, ring: &Ring, boundary: Position) -> Option<Item> {
        let from = self.read;
        if !ring.is_peer_written() || from >= boundary || ring.is_stable(from) {
            return None;
        }
        let by = ring.view(from, from).copy_to(0, &mut []).err()?.by;
        let to = ring.boundary_at_or_after(from.saturating_add(by)).unwrap_or(boundary);
        self.lose(to);
        self.skip_to(to);
        Some(Item::Lost(from, to))
    }

    /// Returns the next delivery of an overwritable buffer whose markers verify.
    fn next_payload(&mut self, ring: &Ring) -> Option<Item> {
        let boundary = ring.boundary();
        if let Some(gap) = ring.gap_after(self.read)
            && gap.from <= self.read
        {
            let from = self.read;
            self.skip_to(gap.to);
            return Some(Item::Lost(from, gap.to));
        }
        if boundary <= self.read {
            return None;
        }
        let from = self.read;
        if ring.is_stable(from) {
            let end = ring.gap_after(from).map_or(boundary, |gap| gap.from.min(boundary));
            // A damaged delivery, or one that was overwritten during the check, is not handed out.
            if let Ok(payload) = verify(&ring.view(from, end)) {
                let start = from + payload.offset as u64;
                let next = from + payload.total as u64;
                self.skip_to(next);
                return Some(Item::Payload { from: start, to: start + payload.len as u64, next });
            }
        }
        // The delivery was overwritten or is torn: continue with the oldest complete delivery.
        let next = ring.boundary_at_or_after(ring.tail().max(from + 1)).unwrap_or(boundary).max(from + 1);
        self.skip_to(next);
        Some(Item::Lost(from, next))
    }

    fn skip_to(&mut self, to: Position) {
        self.read = to;
        self.consumed = self.consumed.max(to);
    }

    /// Returns the range of all received bytes that were not released, without holes, and holds it for a
    /// view.
    pub fn pin_unreleased(&mut self, ring: &Ring) -> (Position, Position) {
        let (mut from, mut to) = (self.consumed, ring.boundary());
        while let Some(gap) = ring.gap_after(from) {
            if gap.from > from {
                to = to.min(gap.from);
                break;
            }
            from = gap.to;
        }
        self.pins.push(from);
        (from, to.max(from))
    }
}
