//! The positions of one subscription at its sender, and the next range to send.
//!
//! ```text
//!        landed        sent        grant              a log, positions growing to the right
//!  ────────┼────────────┼────────────┼──────────▶
//!   peer   │ in flight  │ may be sent│ not yet allowed
//!   has it │            │ up to head │
//! ```
//!
//! A transfer ends at a known end of a delivery if one is within reach. Otherwise it is sent with MORE, so
//! that a large delivery is forwarded while it still arrives. A receiver with a ring of twice the largest
//! delivery therefore never waits for the end of a delivery for which it has no room: of any
//! `2 × max_delivery` bytes, at least one end of a delivery is told.
//!
//! The hold of a subscription never stops a writer for good:
//!
//! ```text
//!        needed          whole   delivered             head         a log, positions growing to the right
//!  ────────┼───────────────┼─────────┼───────────────────┼──────▶
//!          │ history of a  │ part of │ not yet with every│
//!          │ peer that maps│ one     │ last receiver     │
//! ```
//!
//! Undelivered data is held from the start of a delivery, since part of one is of no use to a receiver that
//! gets it again. A peer that maps the ring also holds its own history further back, at most half of the
//! ring. The history is never rounded down to the start of a delivery: the rounding would last while nothing
//! is written, and with the largest delivery before that position the writer would never have room for
//! another one. The other two positions move without the writer: when everything has been delivered, `whole`
//! is the head.

use rocketring::{Growth, Ring};

use super::on_demand::OnDemandCredit;
use crate::ground::planted;
use crate::ground::types::{Nanos, Policy, Position, ProgressLevel};
use crate::proto::credit::{Asked, AskedLevels, Credit, CreditError, PeerCoverage};

/// How a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The buffer was destroyed: the log is complete up to here.
    Closed(Position),
    /// The writer does not return: every complete delivery up to here was sent.
    Gone(Position),
}

impl End {
    /// Returns the same kind of end at another position.
    fn moved(self, at: Position) -> Self {
        match self {
            Self::Closed(_) => Self::Closed(at),
            Self::Gone(_) => Self::Gone(at),
        }
    }

    /// Returns the end of the log.
    pub fn position(self) -> Position {
        match self {
            Self::Closed(p) | Self::Gone(p) => p,
        }
    }
}

/// The options of a subscription.
#[derive(Debug, Clone, Copy)]
pub struct SendConfig {
    /// The treatment of a slow receiver.
    pub policy: Policy,
    /// The lag in bytes at which `drop` and `disconnect` act, at most the room of the log beside its history; without one half of that
    /// room. The room becomes larger when the ring grows.
    pub max_lag: Option<u64>,
    /// The nanoseconds without progress after which `block` disconnects; 0: never.
    pub block_timeout: Nanos,
    /// Whether credit limits the sender.
    pub flow_control: bool,
    /// The most bytes of one transfer.
    pub max_transfer: u64,
    /// Whether the subscription holds the log until it is delivered, not only until it landed.
    pub keep_until_delivered: bool,
    /// The largest delivery that the receiver was told of.
    pub max_delivery: u64,
    /// The largest delivery for which the receiver has room, or its ring can grow.
    pub largest: u64,
    /// Whether the receiver is told that larger deliveries follow. One of before has a ring of its largest size from the beginning, if it
    /// does not grant on demand.
    pub grows: bool,
    /// The receiver maps the sender's ring, of this capacity, so landed bytes are still needed here.
    pub maps: Option<u64>,
}

/// The next step of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Write this range. `more`: it does not end at the end of a delivery.
    Write {
        /// The first position.
        from: Position,
        /// One past the last position.
        to: Position,
        /// The MORE bit.
        more: bool,
    },
    /// Report that the log continues at `to`.
    Lost {
        /// The end of the last delivery that was sent whole.
        from: Position,
        /// The start of the next delivery.
        to: Position,
    },
    /// Tell the receiver that larger deliveries follow, of up to so many bytes.
    Grown(u64),
    /// End the subscription: deliveries of so many bytes follow, and the receiver's ring stays too small for them.
    Outgrown(u64),
    /// Report the end of the log; nothing follows.
    End(End),
    /// Nothing to do until the log, the grant or the policy moves.
    Idle,
}

/// The positions of one subscription at its sender.
#[derive(Debug)]
pub struct SendCursor {
    config: SendConfig,
    /// The first position of the subscription.
    start: Position,
    /// Everything below was given to the transport, or was skipped.
    sent: Position,
    /// The end of the last transfer without MORE: the receiver knows whole deliveries up to here.
    sent_boundary: Position,
    /// Whether the sent data ends inside a delivery, or may do so (at a resume).
    inside: bool,
    /// The three values above before the last range.
    before: (Position, Position, bool),
    /// Whether a CREDIT has arrived.
    credited: bool,
    grant: Position,
    landed: Position,
    /// Where the receiver maps the ring: a receiver that maps this ring may still read from here on.
    map_floor: Position,
    delivered: Position,
    consumed: Position,
    coverage: PeerCoverage,
    asked: AskedLevels,
    on_demand: OnDemandCredit,
    ended: bool,
    last_progress: Nanos,
    dropped_bytes: u64,
    /// `drop`, `disconnect`: the lag at the beginning, or the least lag since.
    catching_up: u64,
}

impl SendCursor {
    /// Creates a subscription whose next byte is at `start`, which is the start of a delivery unless the
    /// subscription resumes.
    pub fn new(config: SendConfig, start: Position, now: Nanos) -> Self {
        Self {
            config,
            start,
            sent: start,
            sent_boundary: start,
            inside: true,
            before: (start, start, true),
            credited: false,
            // Without flow control the receiver's ring sets no limit; with it, nothing is sent before the
            // first CREDIT.
            grant: if config.flow_control { start } else { Position::MAX },
            landed: start,
            map_floor: start,
            delivered: start,
            consumed: start,
            // The first CREDIT reports the coverage. Before it the subscription confirms nothing new.
            coverage: PeerCoverage::default(),
            asked: AskedLevels::default(),
            on_demand: OnDemandCredit::default(),
            ended: false,
            last_progress: now,
            dropped_bytes: 0,
            catching_up: 0,
        }
    }

    /// Allows as much more lag as the subscription has when it begins. Otherwise `disconnect` would end it
    /// each time before it has caught up, and `drop` would lose at once the data that it came for.
    pub fn begin_behind(&mut self, log: &Ring) {
        self.catching_up = self.behind(log);
    }

    /// Reduces that allowance after a CREDIT: lag that was caught up is not allowed a second time.
    pub fn catch_up(&mut self, log: &Ring) {
        self.catching_up = self.catching_up.min(self.behind(log));
    }

    /// Returns the lag in bytes, by what the subscription holds: a receiver that stops reading blocks others
    /// by its hold, not by `sent`.
    pub fn behind(&self, log: &Ring) -> u64 {
        log.head().saturating_sub(self.lags_from(log))
    }

    /// Returns the lag without the newest delivery, or the part of it that is there: no receiver could have that before.
    fn lag(&self, log: &Ring) -> u64 {
        let (head, boundary) = (log.head(), log.boundary());
        let newest = if boundary < head { boundary } else { log.last_delivery().unwrap_or(head) };
        newest.saturating_sub(self.lags_from(log))
    }

    fn lags_from(&self, log: &Ring) -> Position {
        // Before its first CREDIT the subscription holds more than it may need. The subscription does not hold bytes that
        // were overwritten while it was offline.
        if self.credited { self.needed() } else { self.landed.max(log.tail()) }
    }

    /// Returns the position below which the receiver has its own copy, or needs nothing.
    fn needed(&self) -> Position {
        if self.config.maps.is_some() { self.map_floor } else { self.landed }
    }

    /// Holds everything from `at` until the first CREDIT: the receiver maps the ring and may have begun
    /// before.
    pub fn keep_from(&mut self, at: Position) {
        self.map_floor = self.map_floor.min(at);
    }

    /// Resumes a subscription with the positions below its start that are known to be confirmed, by
    /// [`ProgressLevel`].
    pub fn resume_at(&mut self, [landed, delivered, consumed]: [Position; 3], coverage: PeerCoverage) {
        self.landed = self.landed.min(landed);
        self.map_floor = self.map_floor.min(landed);
        self.delivered = self.delivered.min(delivered).min(self.landed);
        self.consumed = self.consumed.min(consumed).min(self.delivered);
        self.coverage = coverage;
    }

    /// Everything below was given to the transport.
    pub fn sent(&self) -> Position {
        self.sent
    }

    /// Everything below is in the receiver's memory.
    pub fn landed(&self) -> Position {
        self.landed
    }

    /// Everything below is in the memory of every last receiver of the chains behind this subscription.
    pub fn delivered(&self) -> Position {
        self.delivered
    }

    /// Everything below was released by the receiver's application.
    pub fn consumed(&self) -> Position {
        self.consumed
    }

    /// Returns the confirmed positions, by [`ProgressLevel`].
    pub fn levels(&self) -> [Position; 3] {
        [self.landed, self.delivered, self.consumed]
    }

    /// Returns the receivers that the confirmed positions speak for.
    pub fn coverage(&self) -> PeerCoverage {
        self.coverage
    }

    /// Records that the receiver follows the ring: it has everything below `at` without a transfer, and knows
    /// the boundary.
    pub fn followed_to(&mut self, at: Position, boundary: Position) {
        if at > self.sent {
            (self.sent, self.sent_boundary, self.inside) = (at, boundary, boundary < at);
        }
    }

    /// The position up to which the receiver allows to write.
    pub fn grant(&self) -> Position {
        self.grant
    }

    /// Returns the position up to which to ask for credit (ASK, as `landed`): the receiver grants on demand,
    /// and there are whole deliveries beyond its grant for which it was not asked.
    pub fn ask_for_more(&mut self, log: &Ring) -> Option<Position> {
        if self.ended {
            return None;
        }
        let boundary = log.boundary();
        // The receiver has no room for larger deliveries before it knows of them.
        let whole = self.growth(log).map_or(boundary, |growth| growth.from.min(boundary));
        self.on_demand.next_request(whole, self.sent, self.grant)
    }

    /// Handles RECALL: withdraws the rest of the grant, except for data that was asked for, since it exists
    /// and will be sent. Returns the end of the remaining grant.
    pub fn on_recall(&mut self) -> Position {
        self.grant = self.on_demand.recall(self.grant, self.sent);
        self.grant
    }

    /// Returns the end of a delivery at which a transfer that could reach `reach` ends, if one is known.
    fn end_to_tell(&self, log: &Ring, reach: Position) -> Option<Position> {
        let from = self.sent;
        let asked = self.on_demand.end_within(from, reach);
        if self.inside {
            // The first known end is told. Passing over it for a later one would make the distance between
            // told ends grow with every hop of a chain, until a ring of twice the largest delivery holds
            // none.
            let first = log.boundary_at_or_after(from.saturating_add(1)).filter(|end| *end <= reach);
            return first.into_iter().chain(asked).min();
        }
        log.boundary_at_or_before(reach).filter(|end| *end > from).max(asked)
    }

    /// Returns the bytes that were skipped and reported as lost.
    pub fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    /// Returns the options.
    pub fn config(&self) -> &SendConfig {
        &self.config
    }

    /// Returns whether the end was reported.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Returns whether the lag is so large that the policy must act (`drop`:
    /// [`SendCursor::drop_to_boundary`]; `disconnect`).
    pub fn too_far_behind(&self, log: &Ring) -> bool {
        match self.config.policy {
            Policy::Drop | Policy::Disconnect => {
                let behind = self.behind(log);
                // The writer of a large delivery has no room for the next. The size first: the ring that belongs to it is no smaller.
                let max_delivery = log.max_delivery();
                let is_full = behind > log.capacity() - max_delivery;
                let is_late = || self.lag(log) >= self.catching_up.saturating_add(self.max_lag(log));
                behind > self.catching_up && (is_full || is_late())
            }
            Policy::Block | Policy::Overwrite => false,
        }
    }

    fn max_lag(&self, log: &Ring) -> u64 {
        let room = log.room_beside_history();
        self.config.max_lag.map_or(room / 2, |asked| asked.min(room))
    }

    /// `drop`: skips to the end of the last complete delivery. The caller first detaches the ranges that the transport
    /// still reads from the ring. Returns `None` if there is nothing to skip.
    pub fn drop_to_boundary(&mut self, log: &Ring) -> Option<Step> {
        let to = log.boundary();
        let step = (to > self.sent).then(|| self.skip(self.sent_boundary, to));
        // Data that was handed over counts as landed from here on, since it has left or was copied. No writer
        // waits for a subscription that drops.
        self.landed = self.landed.max(self.sent);
        self.map_floor = self.landed;
        self.delivered = self.landed;
        self.consumed = self.landed;
        step
    }

    fn skip(&mut self, from: Position, to: Position) -> Step {
        self.dropped_bytes += to.saturating_sub(from);
        self.coverage.skip(to);
        self.sent = to;
        self.sent_boundary = to;
        self.inside = false;
        // `landed` stays: the transport may still read in place what it was given before.
        Step::Lost { from, to }
    }

    /// Returns how many pending bytes may be sent, and whether the receiver's next credit brings more. `None`
    /// if data is missing, or if a report or a question must come first.
    pub fn pending_in_order(&self, log: &Ring) -> Option<(u64, bool)> {
        let (head, tail) = (log.head(), log.tail());
        let limit = head.min(self.grant);
        let rest = limit < head;
        let plain = !self.ended && self.sent >= tail && log.gap_after(self.sent).is_none();
        (plain && !(rest && self.on_demand.is_active())).then(|| (limit.saturating_sub(self.sent), rest))
    }

    /// Returns how many bytes the next writes may have. Missing data is no part of them.
    pub fn pending_bytes(&self, log: &Ring) -> u64 {
        if self.ended {
            return 0;
        }
        let (mut from, mut limit) = (self.sent.max(log.tail()), log.head().min(self.grant));
        match log.gap_after(from) {
            Some(gap) if gap.from <= from => from = gap.to,
            Some(gap) => limit = limit.min(gap.from),
            None => {}
        }
        limit.saturating_sub(from)
    }

    /// Returns the next step, with at most `room` bytes if it is a write. The state changes as if the step
    /// was done; the caller must do it.
    pub fn next(&mut self, log: &Ring, end: Option<End>, room: u64) -> Step {
        if self.ended {
            return Step::Idle;
        }
        let tail = log.tail();
        if self.sent < tail {
            // If a writer's open claims fill the ring, nothing in it is stable. All complete data is lost,
            // and the log continues with the next delivery.
            let to = log.boundary_at_or_after(tail).unwrap_or_else(|| log.boundary());
            if to > self.sent {
                return self.skip(self.sent_boundary, to);
            }
            if end.is_none() {
                return Step::Idle;
            }
        }
        let mut limit = log.head().min(self.grant);
        let gap = log.gap_after(self.sent).filter(|_| !planted::is(planted::HOLE_IGNORED));
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
            if let Some(step) = self.tell_end(end, at, limit) {
                return step;
            }
        }
        // Before a receiver is asked whether it has room for more, and before the first byte of a larger delivery.
        let mut growth = self.growth(log);
        while let Some(Growth { from, max_delivery }) = growth {
            if from > self.sent {
                limit = limit.min(from);
                break;
            }
            if let Some(step) = self.grow(max_delivery) {
                return step;
            }
            growth = self.growth(log);
        }
        if limit <= self.sent || room == 0 {
            return Step::Idle;
        }
        self.write(log, limit, room, growth.map(|growth| growth.from))
    }

    /// Returns the step that tells the end of the log at `at`, if it is due. Data is sent up to `limit` before.
    fn tell_end(&mut self, end: End, at: Position, limit: Position) -> Option<Step> {
        if self.sent == at && self.sent_boundary < at {
            // The receiver was told that this is the middle of a delivery, since the end was not known.
            self.sent_boundary = at;
            return Some(Step::Write { from: at, to: at, more: false });
        }
        let sent_all = self.sent >= at || limit <= self.sent && planted::is(planted::END_EARLY);
        if sent_all && (self.credited || !self.inside) {
            self.ended = true;
            return Some(Step::End(end.moved(at)));
        }
        None
    }

    /// Returns where the log has larger deliveries than those that the receiver was told of, if there is anything behind what was sent.
    fn growth(&self, log: &Ring) -> Option<Growth> {
        // The head first: what it covers was written after the ring had grown.
        if log.head() <= self.sent || !self.config.flow_control {
            return None;
        }
        log.growth_beyond(self.config.max_delivery, self.sent)
    }

    /// Returns the step that must come before the first larger delivery. Everything before it was sent. None: the receiver has room and
    /// need not know.
    fn grow(&mut self, max_delivery: u64) -> Option<Step> {
        let SendConfig { largest, grows, .. } = self.config;
        if !grows && !self.credited {
            // The first CREDIT shows whether it grants on demand. Nothing is sent before.
            return Some(Step::Idle);
        }
        if max_delivery > largest || !grows && self.on_demand.is_active() {
            return Some(Step::Outgrown(max_delivery));
        }
        self.config.max_delivery = max_delivery;
        grows.then_some(Step::Grown(max_delivery))
    }

    /// Returns the end of the log for this receiver. Data that was sent before the end was known belongs to
    /// it, up to the end of a delivery.
    fn end_here(&self, log: &Ring, end: End) -> Position {
        if self.sent <= end.position() {
            end.position()
        } else if self.sent == self.sent_boundary {
            self.sent
        } else {
            // Without a later boundary the delivery will never be complete, and nothing of it counts.
            log.boundary_at_or_after(self.sent).unwrap_or(self.sent_boundary)
        }
    }

    /// Returns whether a delivery ends at the position of the resume, which the receiver cannot know: its
    /// data came with MORE. An empty transfer tells it, once the first CREDIT has shown that the receiver
    /// continues with this log.
    fn ends_untold(&self, log: &Ring) -> bool {
        self.inside && self.credited && log.boundary_at_or_before(self.sent) == Some(self.sent)
    }

    /// Takes the last step back: the range was overwritten before it was sent, and is reported as lost next.
    pub fn take_back(&mut self) {
        (self.sent, self.sent_boundary, self.inside) = self.before;
    }

    /// `grows_at`: a delivery ends where larger ones begin, known to the index or not.
    fn write(&mut self, log: &Ring, limit: Position, room: u64, grows_at: Option<Position>) -> Step {
        let from = self.sent;
        self.before = (self.sent, self.sent_boundary, self.inside);
        let reach = limit.min(from.saturating_add(self.config.max_transfer.min(room)));
        let end = self.end_to_tell(log, reach).or(grows_at.filter(|at| *at == reach));
        let (to, more) = end.map_or((reach, !planted::is(planted::MORE_LOST)), |end| (end, false));
        self.sent = to;
        self.inside = more;
        if !more {
            self.sent_boundary = to;
        }
        Step::Write { from, to, more }
    }

    /// Handles CREDIT. Positions are absolute maxima, so an old or repeated CREDIT does no harm. If a
    /// receiver with less data has joined downstream, the reported positions count as they are, since a
    /// confirmation speaks for all receivers.
    ///
    /// # Errors
    /// The CREDIT claims an impossible position. The connection should be closed.
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
            self.on_demand.begin(self.config.flow_control && grant <= self.start);
        }
        self.landed = self.landed.max(landed);
        let joined = coverage.joined(self.coverage.told);
        for (asked, level, told) in [(1, &mut self.delivered, delivered), (2, &mut self.consumed, consumed)] {
            if joined && told < *level {
                *level = told;
                // Earlier answers beyond this position spoke for other receivers.
                self.asked[asked] = Asked::default();
            }
            *level = told.max(*level);
        }
        self.grant = self.grant.max(grant);
        if let Some(capacity) = self.config.maps {
            // Both rings have the same capacity, so the grant is that much above the position that is still needed.
            self.map_floor = self.map_floor.max(self.grant.saturating_sub(capacity).min(self.landed));
        }
        self.coverage.told = coverage;
        if before != (self.landed, self.delivered, self.consumed, self.grant) {
            self.last_progress = now;
        }
        Ok(())
    }

    /// Handles the transport's report that everything up to `landed` is in the peer's memory.
    pub fn on_landed(&mut self, landed: Position, now: Nanos) {
        let landed = landed.min(self.sent);
        if landed > self.landed && !self.on_demand.is_active() {
            self.landed = landed;
            self.last_progress = now;
        }
    }

    /// Returns the positions to ask the receiver to confirm, if any call waits. `wanted`: the smallest
    /// waited-for position beyond the confirmed one, at each [`ProgressLevel`]. `all`: a call waits for
    /// everything that was sent, at that level. A position that was asked for is not asked for again.
    pub fn ask(
        &mut self,
        wanted: [Option<Position>; 3],
        all: Option<ProgressLevel>,
    ) -> Option<[Position; 3]> {
        let (levels, sent) = (self.levels(), self.sent);
        let also = all.and_then(|_| self.level_of_room());
        let mut ask = [0; 3];
        for (n, known) in levels.into_iter().enumerate() {
            let asked = &mut self.asked[n];
            // Data that was not sent yet is asked for once it is sent.
            // Position 0 is never above the known one. With an `Option` the optimiser compares the position before it looks
            // whether there is one, which valgrind reports.
            let at = wanted[n].unwrap_or(0);
            let is_new = at > known && at <= sent && asked.next(known).is_none_or(|next| at < next);
            let first = is_new.then_some(at);
            let of_all = [all, also].into_iter().flatten().any(|level| level as usize == n);
            let everything = of_all && sent > known && sent > asked.last();
            if let Some(at) = first.or(everything.then_some(sent)) {
                asked.add(at, known);
                ask[n] = at;
            }
        }
        (ask != [0; 3]).then_some(ask)
    }

    /// Starts to count time without progress, when others begin to wait for this subscription or this end stops to delay it.
    pub fn begin_waiting(&mut self, now: Nanos) {
        self.last_progress = now;
    }

    /// Returns whether there was no progress for the time-out (`block`; `disconnect` while it catches up).
    /// Call it only while others wait for this subscription.
    pub fn stalled(&self, now: Nanos) -> bool {
        matches!(self.config.policy, Policy::Block | Policy::Disconnect)
            && self.config.block_timeout > 0
            && now.saturating_sub(self.last_progress) >= self.config.block_timeout
    }

    /// Returns when the receiver last released data, or when others began to wait.
    pub fn last_progress(&self) -> Nanos {
        self.last_progress
    }

    /// Returns the first position of the subscription.
    pub fn start(&self) -> Position {
        self.start
    }
}

/// The hold in the log.
impl SendCursor {
    /// Returns the position that this subscription holds in the log, if it holds one.
    pub fn holds_at(&self) -> Option<Position> {
        match self.config.policy {
            Policy::Overwrite => None,
            _ if self.config.keep_until_delivered => Some(self.delivered.min(self.needed())),
            // Data that was given to the transport is copied when the hold is given up, so `landed` counts
            // for all.
            Policy::Block | Policy::Drop | Policy::Disconnect => Some(self.needed()),
        }
    }

    /// Like [`SendCursor::holds_at`], but data that may be sent again is held from the start of a delivery.
    /// `None` also if that start is not known.
    pub fn holds_whole(&self, log: &Ring) -> Option<Position> {
        let at = self.holds_at()?;
        if self.config.keep_until_delivered { Some(self.resume_boundary(log)?.min(at)) } else { Some(at) }
    }

    /// Returns the last known end of a delivery that the receiver will not be sent again if it resumes
    /// without its data.
    pub fn resume_boundary(&self, log: &Ring) -> Option<Position> {
        log.boundary_at_or_before(if self.config.keep_until_delivered { self.delivered } else { self.landed })
    }

    /// Returns the level to ask a receiver that maps the ring for besides `landed`, when the writer waits
    /// although all sent data has landed. The receiver's need depends on readers that map the ring
    /// downstream. Each hop may defer up to a quarter of its window of credit, so ask for `consumed` too:
    /// once every reader has released everything and reported so, each reported need is exact.
    fn level_of_room(&self) -> Option<ProgressLevel> {
        (self.config.maps.is_some() && self.map_floor < self.landed && !self.ended)
            .then_some(ProgressLevel::Consumed)
    }
}
