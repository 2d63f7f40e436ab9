//! The message numbers of one stream: received, missing, held, late and duplicated messages.
//!
//! ```text
//!        next                       held
//!   ──────┼─────────────┬──────────────────┬───────┬───────────┬──▶ numbers
//!   done  │  missing    │ 17..20             │       │ 25..26    │
//!         └─ lost after `wait`, or once `window` datagrams are held
//! ```

use std::collections::VecDeque;

use super::gaps::NO_WAIT;
use crate::event::ReceiveCounts;

/// How many skipped gaps are remembered, to tell a late message from a duplicate.
const MAX_SKIPPED: usize = 32;

/// The capacity that a stream keeps while it holds no datagram.
const KEPT_CAPACITY: usize = 16;

/// The verdict on a datagram, from its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The datagram is the next one.
    Next,
    /// Messages before it are missing.
    Early,
    /// The datagram was received before.
    Duplicate,
    /// The datagram was declared lost before.
    Late,
    /// No correct sender numbers like this.
    Invalid,
}

/// Messages that arrived early.
pub(crate) struct HeldMessages {
    pub bytes: Box<[u8]>,
    pub reassembled: bool,
    pub mailbox: u32,
}

/// Numbers beyond the first gap.
pub(crate) struct Held {
    pub first: u64,
    pub count: u64,
    /// The messages. `None` if they are delivered already, and for the end of the stream.
    pub body: Option<HeldMessages>,
}

impl Held {
    /// The memory that it costs.
    pub fn cost(&self) -> usize {
        size_of::<Held>() + self.body.as_ref().map_or(0, |body| body.bytes.len())
    }
}

/// Messages that were declared lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    pub first: u64,
    pub count: u64,
}

/// The receiver's state of one stream.
#[derive(Default)]
pub(crate) struct Stream {
    next: u64,
    highest: u64,
    held: VecDeque<Held>,
    skipped: VecDeque<Gap>,
    /// True once the number of messages before the first received one is known.
    pub joined: bool,
    /// Losses in a row without a late or reordered datagram: each shortens the wait.
    pub loss_streak: u8,
    /// The number of messages in the stream, once the sender has closed it.
    end: Option<u64>,
    /// True once the end was reached and reported.
    pub closed: bool,
    /// Bytes of its datagrams.
    pub bytes: u64,
    pub counts: ReceiveCounts,
}

impl Stream {
    /// Classifies a range of numbers.
    pub fn classify(&self, first: u64, count: u64) -> Verdict {
        if first == self.next && self.held.is_empty() {
            return Verdict::Next;
        }
        let end = first + count;
        if end <= self.next {
            let late = self.skipped.iter().any(|gap| gap.first <= first && end <= gap.first + gap.count);
            return if late { Verdict::Late } else { Verdict::Duplicate };
        }
        if first < self.next {
            return Verdict::Invalid;
        }
        let at = self.held.partition_point(|w| w.first < first || (w.first == first && w.count == 0));
        let before = at.checked_sub(1).map(|at| &self.held[at]);
        let same = self.held.get(at).is_some_and(|w| w.first == first && w.count == count);
        let overlaps = before.is_some_and(|w| w.first + w.count > first)
            || self.held.get(at).is_some_and(|w| w.first < end);
        match (same, overlaps) {
            (true, _) => Verdict::Duplicate,
            (false, true) => Verdict::Invalid,
            _ if first == self.next => Verdict::Next,
            _ => Verdict::Early,
        }
    }

    /// Counts messages that are next or early. Returns whether they were reordered.
    pub fn arrived(&mut self, first: u64, count: u64) -> bool {
        let reordered = first < self.highest;
        if reordered {
            self.counts.reordered += count;
            self.loss_streak = 0;
        }
        self.highest = self.highest.max(first + count);
        reordered
    }

    /// Counts lost messages.
    pub fn lost(&mut self, count: u64) {
        self.counts.lost += count;
        self.loss_streak = NO_WAIT.min(self.loss_streak + 1);
    }

    /// Counts late messages. This path reorders, so it gets the full wait again.
    pub fn late(&mut self, count: u64) {
        self.counts.late += count;
        self.loss_streak = 0;
    }

    /// Moves past the next messages, which are delivered.
    pub fn advance(&mut self, count: u64) {
        self.next += count;
    }

    /// Holds messages that arrived early.
    pub fn hold(&mut self, held: Held) {
        let at =
            self.held.partition_point(|w| w.first < held.first || (w.first == held.first && w.count == 0));
        self.held.insert(at, held);
    }

    /// The number of held datagrams.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns the first held entry if it is next. The caller delivers it, and calls again.
    pub fn release(&mut self) -> Option<Held> {
        if self.held.front()?.first != self.next {
            return None;
        }
        let held = self.held.pop_front()?;
        self.next += held.count;
        // A sender that was ahead once does not keep the memory for ever.
        if self.held.is_empty() && self.held.capacity() > KEPT_CAPACITY {
            self.held = VecDeque::new();
        }
        Some(held)
    }

    /// Skips the first gap. The caller releases the messages that waited for it.
    pub fn skip_gap(&mut self) -> Option<Gap> {
        let to = self.held.front()?.first;
        let gap = Gap { first: self.next, count: to - self.next };
        self.next = to;
        if gap.count == 0 {
            return None;
        }
        if self.skipped.len() == MAX_SKIPPED {
            self.skipped.pop_front();
        }
        self.skipped.push_back(gap);
        Some(gap)
    }

    /// Records the length of the stream. False if it contradicts received messages, or was known before.
    pub fn close(&mut self, end: u64) -> bool {
        if self.end.is_some() || end < self.next || end < self.highest {
            return false;
        }
        self.end = Some(end);
        if end > self.next {
            self.hold(Held { first: end, count: 0, body: None });
        }
        true
    }

    /// The end of the stream, when it is reached for the first time.
    pub fn reached_end(&mut self) -> Option<u64> {
        let end = self.end.filter(|&end| !self.closed && end == self.next)?;
        self.closed = true;
        Some(end)
    }
}
