//! The numbers of one stream: what came, what is missing, what came too late or twice.
//!
//! ```text
//!        next                       waiting
//!   ──────┼─────────────┬──────────────────┬───────┬───────────┬──▶ numbers
//!   done  │  missing    │ 17..20  arrived  │       │ 25..26    │
//!         └─ after `wait`, or once `window` datagrams wait, this is lost
//! ```

use std::collections::VecDeque;

use super::gaps::SURE;
use crate::event::Counts;

/// Ranges that were given up and are remembered, to tell what is late from what came twice.
const REMEMBERED: usize = 32;

/// Datagrams for which a stream keeps room while none waits.
const ROOM: usize = 16;

/// What a datagram's numbers say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the next.
    Next,
    /// Something before it is missing.
    Early,
    /// It came already.
    Duplicate,
    /// It was given up already.
    Late,
    /// No sender numbers like this.
    Nonsense,
}

/// Messages that came early, and wait.
pub(crate) struct Body {
    pub bytes: Box<[u8]>,
    pub whole: bool,
    pub mailbox: u32,
}

/// Numbers beyond the first missing ones.
pub(crate) struct Waiting {
    pub first: u64,
    pub count: u64,
    /// The messages; none if they were delivered already, and for the end of the stream.
    pub body: Option<Body>,
}

impl Waiting {
    /// Bytes that it costs.
    pub fn cost(&self) -> usize {
        size_of::<Waiting>() + self.body.as_ref().map_or(0, |body| body.bytes.len())
    }
}

/// What was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    pub first: u64,
    pub count: u64,
}

/// One stream.
#[derive(Default)]
pub(crate) struct Stream {
    next: u64,
    highest: u64,
    waiting: VecDeque<Waiting>,
    given_up: VecDeque<Gap>,
    /// What was before the first that came is known, or given up.
    pub joined: bool,
    /// How often in a row something was lost, and nothing came late or turned round: the less time others have to come.
    pub level: u8,
    /// How many messages the sender said there were.
    end: Option<u64>,
    /// The end was reached, and told.
    pub closed: bool,
    /// Bytes of its datagrams.
    pub bytes: u64,
    pub counts: Counts,
}

impl Stream {
    /// What these numbers are.
    pub fn judge(&self, first: u64, count: u64) -> Verdict {
        if first == self.next && self.waiting.is_empty() {
            return Verdict::Next;
        }
        let end = first + count;
        if end <= self.next {
            let late = self.given_up.iter().any(|gap| gap.first <= first && end <= gap.first + gap.count);
            return if late { Verdict::Late } else { Verdict::Duplicate };
        }
        if first < self.next {
            return Verdict::Nonsense;
        }
        let at = self.waiting.partition_point(|w| w.first < first || (w.first == first && w.count == 0));
        let before = at.checked_sub(1).map(|at| &self.waiting[at]);
        let same = self.waiting.get(at).is_some_and(|w| w.first == first && w.count == count);
        let overlaps = before.is_some_and(|w| w.first + w.count > first)
            || self.waiting.get(at).is_some_and(|w| w.first < end);
        match (same, overlaps) {
            (true, _) => Verdict::Duplicate,
            (false, true) => Verdict::Nonsense,
            _ if first == self.next => Verdict::Next,
            _ => Verdict::Early,
        }
    }

    /// Counts what is taken: the next, or early.
    pub fn arrived(&mut self, first: u64, count: u64) -> bool {
        let reordered = first < self.highest;
        if reordered {
            self.counts.reordered += count;
            self.level = 0;
        }
        self.highest = self.highest.max(first + count);
        reordered
    }

    /// So many were given up.
    pub fn lost(&mut self, count: u64) {
        self.counts.lost += count;
        self.level = SURE.min(self.level + 1);
    }

    /// So many came that had been given up: what is overtaken needs more time here.
    pub fn late(&mut self, count: u64) {
        self.counts.late += count;
        self.level = 0;
    }

    /// The next ones are done.
    pub fn done(&mut self, count: u64) {
        self.next += count;
    }

    /// Keeps what came early.
    pub fn wait(&mut self, waiting: Waiting) {
        let at = self
            .waiting
            .partition_point(|w| w.first < waiting.first || (w.first == waiting.first && w.count == 0));
        self.waiting.insert(at, waiting);
    }

    /// Datagrams that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes out what waits no more, because everything before it is done. The caller delivers it, and calls again.
    pub fn release(&mut self) -> Option<Waiting> {
        if self.waiting.front()?.first != self.next {
            return None;
        }
        let waiting = self.waiting.pop_front()?;
        self.next += waiting.count;
        // A sender that was ahead once does not keep the room for ever.
        if self.waiting.is_empty() && self.waiting.capacity() > ROOM {
            self.waiting = VecDeque::new();
        }
        Some(waiting)
    }

    /// Gives up the first that is missing. The caller releases what waited for it.
    pub fn give_up(&mut self) -> Option<Gap> {
        let to = self.waiting.front()?.first;
        let gap = Gap { first: self.next, count: to - self.next };
        self.next = to;
        if gap.count == 0 {
            return None;
        }
        if self.given_up.len() == REMEMBERED {
            self.given_up.pop_front();
        }
        self.given_up.push_back(gap);
        Some(gap)
    }

    /// The sender says how many messages there were. False if it cannot be, or was said before.
    pub fn close(&mut self, end: u64) -> bool {
        if self.end.is_some() || end < self.next || end < self.highest {
            return false;
        }
        self.end = Some(end);
        if end > self.next {
            self.wait(Waiting { first: end, count: 0, body: None });
        }
        true
    }

    /// The end, if it has been reached now and was not before.
    pub fn reached_end(&mut self) -> Option<u64> {
        let end = self.end.filter(|&end| !self.closed && end == self.next)?;
        self.closed = true;
        Some(end)
    }
}
