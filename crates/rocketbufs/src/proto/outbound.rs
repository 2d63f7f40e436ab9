//! One subscription at the sender: which range goes next.
//!
//! ```text
//!        landed        sent        grant              a log, positions growing to the right
//!  ────────┼────────────┼────────────┼──────────▶
//!   peer   │ in flight  │ may be sent│ not yet allowed
//!   has it │            │ up to head │
//! ```
//!
//! A transfer ends at a known end of a delivery wherever one lies within reach; otherwise it is sent with MORE, so
//! that bytes are forwarded while a large delivery still arrives. That is what keeps a receiver with a ring of twice
//! the largest delivery from ever waiting for the end of a delivery that it has no room for: of any `2 × max_delivery`
//! bytes, at least one end of a delivery is told.

mod held;
mod lent;

use lent::Lent;
use rocketring::Ring;

use super::credit::{Asked, AskedLevels, Credit, CreditError, PeerCoverage};
use crate::types::{ConfirmLevel, Nanos, Policy, Position};

/// How a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The buffer was destroyed: everything up to here is the whole log.
    Closed(Position),
    /// The writer is gone: everything complete up to here was sent.
    Gone(Position),
}

impl End {
    /// The same end, elsewhere.
    fn moved(self, at: Position) -> Self {
        match self {
            Self::Closed(_) => Self::Closed(at),
            Self::Gone(_) => Self::Gone(at),
        }
    }

    /// Where the log ends.
    pub fn position(self) -> Position {
        match self {
            Self::Closed(p) | Self::Gone(p) => p,
        }
    }
}

/// What a subscription asked for.
#[derive(Debug, Clone, Copy)]
pub struct OutboundConfig {
    /// What happens when the receiver is slow.
    pub policy: Policy,
    /// Lag in bytes at which `drop` and `disconnect` act.
    pub max_lag: u64,
    /// Nanoseconds without progress after which `block` disconnects; 0: never.
    pub block_timeout: Nanos,
    /// Whether credit limits what is sent.
    pub flow_control: bool,
    /// Most bytes of one transfer.
    pub max_transfer: u64,
    /// Holds the log until it is delivered, not only until it landed.
    pub keep_until_delivered: bool,
    /// The receiver reads where the sender wrote, in a ring of this capacity: what landed there is still needed here.
    pub maps: Option<u64>,
}

/// What to do next for a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Write this range; `more`: it does not end at a delivery's end.
    Write {
        /// First position.
        from: Position,
        /// One past the last.
        to: Position,
        /// The MORE bit.
        more: bool,
    },
    /// Tell that the log goes on at `to`.
    Lost {
        /// End of the last delivery sent whole.
        from: Position,
        /// Where the next begins.
        to: Position,
    },
    /// Tell that the log has ended; nothing follows.
    End(End),
    /// Nothing to do until the log, the grant or the policy moves.
    Idle,
}

/// One subscription at the sender.
#[derive(Debug)]
pub struct Outbound {
    config: OutboundConfig,
    /// Where the subscription began.
    start: Position,
    /// Everything below was given to the transport (or skipped).
    sent: Position,
    /// End of the last transfer without MORE: what the receiver knows as whole deliveries.
    sent_boundary: Position,
    /// What was sent ends inside a delivery, or may (where a receiver resumes).
    inside: bool,
    /// The three as they were before the last range.
    before: (Position, Position, bool),
    /// A CREDIT came.
    credited: bool,
    grant: Position,
    landed: Position,
    /// Where the receiver maps the ring: it needs nothing below.
    kept: Position,
    delivered: Position,
    consumed: Position,
    tally: PeerCoverage,
    asked: AskedLevels,
    lent: Lent,
    ended: bool,
    last_progress: Nanos,
    dropped_bytes: u64,
    /// `drop`, `disconnect`: how far it was behind when it came, or the least that it was since.
    catching_up: u64,
}

impl Outbound {
    /// A subscription whose next byte is at `start`, where (unless it resumes) a delivery begins.
    pub fn new(config: OutboundConfig, start: Position, now: Nanos) -> Self {
        Self {
            config,
            start,
            sent: start,
            sent_boundary: start,
            inside: true,
            before: (start, start, true),
            credited: false,
            // Without credit the receiver's ring has no say; with it, nothing goes before the first CREDIT.
            grant: if config.flow_control { start } else { Position::MAX },
            landed: start,
            kept: start,
            delivered: start,
            consumed: start,
            // Until its first CREDIT says for whom it speaks: before it nothing new is confirmed by it.
            tally: PeerCoverage::default(),
            asked: AskedLevels::default(),
            lent: Lent::default(),
            ended: false,
            last_progress: now,
            dropped_bytes: 0,
            catching_up: 0,
        }
    }

    /// It begins behind the log's end, and gets as much more lag as that: with `disconnect` it would be cut off again each
    /// time it comes, before it has caught up, and with `drop` it would lose at once what it came for.
    pub fn begin_behind(&mut self, log: &Ring) {
        self.catching_up = self.behind(log);
    }

    /// It has told how far it is: what it has caught up with is not given a second time.
    pub fn catch_up(&mut self, log: &Ring) {
        self.catching_up = self.catching_up.min(self.behind(log));
    }

    /// How far it is behind, in bytes. By what it holds: a receiver that stops reading blocks others by that, not by `sent`.
    pub fn behind(&self, log: &Ring) -> u64 {
        // Before its first CREDIT it holds more than it may need.
        // Nor does it hold what was written over while it was away.
        let needed = if self.credited { self.needed() } else { self.landed.max(log.tail()) };
        log.head().saturating_sub(needed)
    }

    /// The receiver maps the ring and may have begun before: until its first CREDIT it needs everything from here on.
    pub fn keep_from(&mut self, at: Position) {
        self.kept = self.kept.min(at);
    }

    /// The receiver comes back, and this much of what lies below the start is known to be confirmed, by [`ConfirmLevel`].
    pub fn resume_at(&mut self, [landed, delivered, consumed]: [Position; 3], tally: PeerCoverage) {
        self.landed = self.landed.min(landed);
        self.kept = self.kept.min(landed);
        self.delivered = self.delivered.min(delivered).min(self.landed);
        self.consumed = self.consumed.min(consumed).min(self.delivered);
        self.tally = tally;
    }

    /// Everything below was given to the transport.
    pub fn sent(&self) -> Position {
        self.sent
    }

    /// Everything below is in the receiver's memory.
    pub fn landed(&self) -> Position {
        self.landed
    }

    /// Everything below is in the memory of all receivers at the ends of chains behind this one.
    pub fn delivered(&self) -> Position {
        self.delivered
    }

    /// Everything below was given back by the receiver's application.
    pub fn consumed(&self) -> Position {
        self.consumed
    }

    /// How far it is confirmed, by [`ConfirmLevel`].
    pub fn levels(&self) -> [Position; 3] {
        [self.landed, self.delivered, self.consumed]
    }

    /// For whom that speaks.
    pub fn tally(&self) -> PeerCoverage {
        self.tally
    }

    /// The receiver follows the ring, and has what lies below `at` without having been sent it. It knows of the boundary.
    pub fn followed_to(&mut self, at: Position, boundary: Position) {
        if at > self.sent {
            (self.sent, self.sent_boundary, self.inside) = (at, boundary, boundary < at);
        }
    }

    /// How far the receiver allows to write.
    pub fn grant(&self) -> Position {
        self.grant
    }

    /// Bytes that were skipped and told as lost.
    pub fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    /// What it asked for.
    pub fn config(&self) -> &OutboundConfig {
        &self.config
    }

    /// Whether its end was told.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Whether it lags so far that its policy must act (`drop`: [`Outbound::drop_to_boundary`]; `disconnect`).
    pub fn too_far_behind(&self, log: &Ring) -> bool {
        match self.config.policy {
            // Further behind it is never let be: a writer of large deliveries would have no room for the next.
            Policy::Drop | Policy::Disconnect => {
                let (behind, most) = (self.behind(log), self.catching_up.saturating_add(self.config.max_lag));
                behind >= most.min(log.capacity() - log.max_delivery()) && behind > self.catching_up
            }
            Policy::Block | Policy::Overwrite => false,
        }
    }

    /// `drop`: skips to the end of the last complete delivery. The caller first detaches what the transport still
    /// reads from the ring. None if there is nothing to skip.
    pub fn drop_to_boundary(&mut self, log: &Ring) -> Option<Step> {
        let to = log.boundary();
        let step = (to > self.sent).then(|| self.skip(self.sent_boundary, to));
        // What was handed over counts as landed from here on: it left, or was copied. Nobody waits for one that drops.
        self.landed = self.landed.max(self.sent);
        self.kept = self.landed;
        self.delivered = self.landed;
        self.consumed = self.landed;
        step
    }

    fn skip(&mut self, from: Position, to: Position) -> Step {
        self.dropped_bytes += to.saturating_sub(from);
        self.tally.skip(to);
        self.sent = to;
        self.sent_boundary = to;
        self.inside = false;
        // `landed` stays: what was handed to the transport before may still be read where it lies.
        Step::Lost { from, to }
    }

    /// How much of what is pending may be sent, and whether more comes with the receiver's next credit; none if something is
    /// missing or else is to be told or asked first.
    pub fn pending_in_order(&self, log: &Ring) -> Option<(u64, bool)> {
        let (head, tail) = (log.head(), log.tail());
        let limit = head.min(self.grant);
        let rest = limit < head;
        let plain = !self.ended && self.sent >= tail && log.gap_after(self.sent).is_none();
        (plain && !(rest && self.is_lent())).then(|| (limit.saturating_sub(self.sent), rest))
    }

    /// What to send next, at most `room` bytes if it is a write. The state moves on as if it was done; the caller
    /// must do it.
    pub fn next(&mut self, log: &Ring, end: Option<End>, room: u64) -> Step {
        if self.ended {
            return Step::Idle;
        }
        let tail = log.tail();
        if self.sent < tail {
            // Where a writer's open claims fill the ring nothing in it is stable: everything complete is lost, and the
            // log goes on with the next delivery.
            let to = log.boundary_at_or_after(tail).unwrap_or_else(|| log.boundary());
            if to > self.sent {
                return self.skip(self.sent_boundary, to);
            }
            if end.is_none() {
                return Step::Idle;
            }
        }
        let mut limit = log.head().min(self.grant);
        let gap = log.gap_after(self.sent);
        #[cfg(feature = "planted-bugs")]
        let gap = gap.filter(|_| !crate::planted::is(crate::planted::HOLE_IGNORED));
        if let Some(gap) = gap {
            if self.sent >= gap.from {
                return self.skip(self.sent_boundary.min(gap.from), gap.to);
            }
            limit = limit.min(gap.from);
        }
        if room > 0 && self.ends_untold(log) {
            self.inside = false;
            return Step::Write { from: self.sent, to: self.sent, more: false };
        }
        if let Some(end) = end {
            let at = self.end_here(log, end);
            limit = limit.min(at);
            if self.sent == at && self.sent_boundary < at {
                // The receiver was told that this is the middle of a delivery, since its end was not known.
                self.sent_boundary = at;
                return Step::Write { from: at, to: at, more: false };
            }
            let sent_all = self.sent >= at;
            #[cfg(feature = "planted-bugs")]
            let sent_all = sent_all || limit <= self.sent && crate::planted::is(crate::planted::END_EARLY);
            if sent_all && (self.credited || !self.inside) {
                self.ended = true;
                return Step::End(end.moved(at));
            }
        }
        if limit <= self.sent || room == 0 {
            return Step::Idle;
        }
        self.write(log, limit, room)
    }

    /// Where the log ends for this receiver: what was sent before the end was known is part of what it has, up to the
    /// end of a delivery.
    fn end_here(&self, log: &Ring, end: End) -> Position {
        if self.sent <= end.position() {
            end.position()
        } else if self.sent == self.sent_boundary {
            self.sent
        } else {
            // None: a delivery that will never be complete, of which nothing counts.
            log.boundary_at_or_after(self.sent).unwrap_or(self.sent_boundary)
        }
    }

    /// Whether a delivery ends where the receiver has come back to, which it cannot know: what it had of it came with
    /// MORE. A transfer of no bytes tells it, once the first CREDIT has shown that it goes on with this log.
    fn ends_untold(&self, log: &Ring) -> bool {
        self.inside && self.credited && log.boundary_at_or_before(self.sent) == Some(self.sent)
    }

    /// The range that was to be sent last was overwritten before it could be: it was not sent, and is told as lost next.
    pub fn take_back(&mut self) {
        (self.sent, self.sent_boundary, self.inside) = self.before;
    }

    fn write(&mut self, log: &Ring, limit: Position, room: u64) -> Step {
        let from = self.sent;
        self.before = (self.sent, self.sent_boundary, self.inside);
        let reach = limit.min(from.saturating_add(self.config.max_transfer.min(room)));
        let end = self.end_to_tell(log, reach);
        let (to, more) = end.map_or((reach, true), |end| (end, false));
        #[cfg(feature = "planted-bugs")]
        let more = if crate::planted::is(crate::planted::MORE_LOST) { false } else { more };
        self.sent = to;
        self.inside = more;
        if !more {
            self.sent_boundary = to;
        }
        Step::Write { from, to, more }
    }

    /// Takes a CREDIT. Absolute positions and maxima: an old or repeated one does no harm. Only where somebody has joined
    /// behind the receiver that has less than was told before it counts as it is: what is confirmed is so by all.
    ///
    /// # Errors
    /// If it claims what cannot be: the connection should be closed.
    pub fn on_credit(&mut self, credit: &Credit, now: Nanos) -> Result<(), CreditError> {
        let Credit { landed, delivered, consumed, grant, coverage } = *credit;
        if landed > self.sent {
            return Err(CreditError::LandedAheadOfSent { landed, sent: self.sent });
        }
        if delivered > landed {
            return Err(CreditError::DeliveredAheadOfLanded { delivered, landed });
        }
        if consumed > delivered {
            return Err(CreditError::ConsumedAheadOfDelivered { consumed, delivered });
        }
        let before = (self.landed, self.delivered, self.consumed, self.grant);
        if !self.credited {
            self.credited = true;
            self.lent.begin(self.config.flow_control && grant <= self.start);
        }
        self.landed = self.landed.max(landed);
        let joined = coverage.joined(self.tally.told);
        for (asked, level, told) in [(1, &mut self.delivered, delivered), (2, &mut self.consumed, consumed)] {
            if joined && told < *level {
                *level = told;
                // What was asked for beyond was answered for others.
                self.asked[asked] = Asked::default();
            }
            *level = told.max(*level);
        }
        self.grant = self.grant.max(grant);
        if let Some(capacity) = self.config.maps {
            // Both rings have one capacity, so what is granted is that much above what is still needed.
            self.kept = self.kept.max(self.grant.saturating_sub(capacity).min(self.landed));
        }
        self.tally.told = coverage;
        if before != (self.landed, self.delivered, self.consumed, self.grant) {
            self.last_progress = now;
        }
        Ok(())
    }

    /// A transport that reports it: everything up to `landed` is in the peer's memory.
    pub fn on_landed(&mut self, landed: Position, now: Nanos) {
        let landed = landed.min(self.sent);
        if landed > self.landed && !self.is_lent() {
            self.landed = landed;
            self.last_progress = now;
        }
    }

    /// Whether to ask the receiver for a CREDIT, because somebody waits, and what. `wanted` is the smallest position
    /// waited for at each [`ConfirmLevel`], beyond what is confirmed; `all`: somebody waits for everything that was sent, at
    /// that level. Where it was asked for already it is not asked for again.
    pub fn ask(&mut self, wanted: [Option<Position>; 3], all: Option<ConfirmLevel>) -> Option<[Position; 3]> {
        let (levels, sent) = (self.levels(), self.sent);
        let also = all.and(self.level_of_room());
        let mut ask = [0; 3];
        for (n, known) in levels.into_iter().enumerate() {
            let asked = &mut self.asked[n];
            // What was not sent yet is asked for when it was.
            let first = wanted[n].filter(|at| *at > known && *at <= sent);
            let first = first.filter(|at| asked.next(known).is_none_or(|next| *at < next));
            let of_all = [all, also].into_iter().flatten().any(|level| level as usize == n);
            let everything = of_all && sent > known && sent > asked.last();
            if let Some(at) = first.or(everything.then_some(sent)) {
                asked.add(at, known);
                ask[n] = at;
            }
        }
        (ask != [0; 3]).then_some(ask)
    }

    /// Called when others begin to wait for this one: time without progress counts from here at the earliest.
    pub fn begin_waiting(&mut self, now: Nanos) {
        self.last_progress = now;
    }

    /// Whether it made no progress for its timeout (`block`; `disconnect` while it catches up). Call it only while others
    /// wait for it.
    pub fn stalled(&self, now: Nanos) -> bool {
        matches!(self.config.policy, Policy::Block | Policy::Disconnect)
            && self.config.block_timeout > 0
            && now.saturating_sub(self.last_progress) >= self.config.block_timeout
    }

    /// When it last gave anything back, or others began to wait for it.
    pub fn last_progress(&self) -> Nanos {
        self.last_progress
    }

    /// Where the subscription began.
    pub fn start(&self) -> Position {
        self.start
    }
}
