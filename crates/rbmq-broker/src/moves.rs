//! A log that comes by a way which leads through a broker that has it from here, or from nearer: it goes on in the buffer of the
//! shorter way, and the other one ends.
//!
//! ```text
//!   publisher ──▶ A ──▶ B         A is started again, and B offers what it has. When the publisher is back it would come
//!                 ▲     │         twice: by itself, and by B, which has it from A.
//!                 └─────┘
//!
//!   by B         ───────────────┤ ends where it has come as far as the other one is kept: GONE, and then TOPIC_GONE
//!   by itself        ├──────────┼──────▶   kept for those who have not come over yet
//! ```
//!
//! Until the long way has brought what the short one does not have any more both are there. So who reads by the long one
//! loses nothing, and a client never has both at a time (`client/feed.rs`).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rocketbufs::{Bid, OutEvent, RetentionHold};
use tracing::info;

use super::chain::is_shorter;
use super::control::Broker;
use super::topics::Stage;

/// How long until it is looked again whether the long way has brought enough.
const LOOK: Duration = Duration::from_millis(5);

/// A log that leaves one buffer for another one.
struct Move {
    from: Bid,
    to: Bid,
    /// What is kept of the other one, as soon as its ring is there.
    keep: Option<RetentionHold>,
    /// What is kept of the one that has ended: more comes into it behind its end, and must not take its place.
    kept: Option<RetentionHold>,
    state: State,
}

enum State {
    /// The buffer is to bring what the other one does not have, but not for longer than that.
    Waits(Instant),
    /// It has ended; these connections have not come over.
    Ended(BTreeSet<u64>),
}

/// What is under way.
#[derive(Default)]
pub(super) struct Moves(Vec<Move>);

impl Moves {
    /// When to look again.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let waits = |one: &Move| matches!(one.state, State::Waits(_));
        self.0.iter().any(waits).then(|| Instant::now() + LOOK)
    }

    /// A buffer is no more.
    pub(super) fn removed(&mut self, bid: Bid) {
        self.0.retain(|one| one.from != bid && one.to != bid);
    }

    /// A buffer in which a log went on has ended too.
    pub(super) fn ended(&mut self, bid: Bid) {
        self.0.retain(|one| one.to != bid);
    }

    /// The next that is to be looked at, and whether it has waited for long enough.
    fn waiting(&self, at: usize, now: Instant) -> Option<(usize, bool)> {
        let due = |(at, one): (usize, &Move)| match one.state {
            State::Waits(until) => Some((at, until <= now)),
            State::Ended(_) => None,
        };
        self.0.iter().enumerate().skip(at).find_map(due)
    }
}

impl Broker {
    /// A buffer is up: where its log has two ways now, one of which leads on from the other, the longer one is given up.
    pub(super) fn prefer_shorter_way(&mut self, bid: Bid) {
        let Some(buffer) = self.topics.get(bid) else { return };
        let others =
            self.topics.of(&buffer.topic).iter().filter_map(|bid| Some((*bid, self.topics.get(*bid)?)));
        let same = |(other, known): &(Bid, &super::topics::Buffer)| {
            *other != bid && known.epoch == buffer.epoch && !known.gone
        };
        let mut moves = Vec::new();
        for (other, known) in others.filter(same) {
            if is_shorter(&buffer.path, &known.path) {
                moves.push((other, bid));
            } else if is_shorter(&known.path, &buffer.path) && known.stage == Stage::Live {
                moves.push((bid, other));
            }
        }
        let linger = self.out.context().config().session.linger_ms;
        let until = Instant::now() + Duration::from_millis(linger.into());
        let begin = |(from, to)| Move { from, to, keep: None, kept: None, state: State::Waits(until) };
        self.moves.0.extend(moves.into_iter().map(begin));
        self.look_at_moves(Instant::now());
    }

    /// Ends the buffers that have brought what they were to bring.
    pub(super) fn look_at_moves(&mut self, now: Instant) {
        let mut at = 0;
        while let Some((waits, late)) = self.moves.waiting(at, now) {
            at = waits + 1;
            self.keep(waits);
            if (late || self.has_brought(&self.moves.0[waits])) && self.end_long_way(waits) {
                at = 0;
            }
        }
    }

    /// Keeps what those who come over will want.
    fn keep(&mut self, at: usize) {
        let one = &mut self.moves.0[at];
        if one.keep.is_none() {
            let has = self.out.buffer_info(one.from).map_or(0, |info| info.boundary);
            one.keep = self.out.keep(one.to, has).ok();
        }
    }

    /// Whether a buffer has what the other one has not, or will not bring it.
    fn has_brought(&self, one: &Move) -> bool {
        let Some(buffer) = self.topics.get(one.from) else { return true };
        let lost = self.sessions.get(&buffer.session).is_none_or(|s| s.conn.down_reason().is_some());
        let has = self.out.buffer_info(one.from).map(|info| info.boundary);
        let keeps = one.keep.as_ref().map(RetentionHold::position);
        lost || buffer.gone || keeps.is_some_and(|keeps| has.is_some_and(|has| has >= keeps))
    }

    /// Ends the buffer of a longer way. Whether it was removed, as nobody reads it.
    fn end_long_way(&mut self, at: usize) -> bool {
        let (from, to) = (self.moves.0[at].from, self.moves.0[at].to);
        self.becomes_spare(from, to);
        let stage = self.topics.get(from).map(|buffer| buffer.stage);
        let end = self.out.end_as_gone(from);
        let (Ok(end), false) = (end, stage.is_none_or(|stage| stage == Stage::Opening)) else {
            // Nobody knows of it yet.
            self.remove_buffer(from);
            return true;
        };
        if stage == Some(Stage::Live) {
            self.tell_continues(from, true);
            info!("buffer {from} ends at {end}: its log goes on in buffer {to}, by a shorter way");
            self.topics.end(from, end, Instant::now() + self.settings.closed_linger());
            self.topics.get_mut(from).into_iter().for_each(|buffer| buffer.gone = true);
        }
        let there = self.out.subscribers(from).iter().map(|sub| sub.conn).collect();
        let kept = self.out.keep(from, 0).ok();
        let one = &mut self.moves.0[at];
        one.kept = kept;
        one.keep.iter().for_each(|keep| keep.advance(end));
        one.state = State::Ended(there);
        self.leave_if_empty(at)
    }

    /// Somebody came, or went: perhaps all have come over.
    pub(super) fn note_move(&mut self, event: &OutEvent) {
        for one in &mut self.moves.0 {
            let State::Ended(there) = &mut one.state else { continue };
            match event {
                // Somebody who was away, with what it had of the one.
                OutEvent::Subscribed { conn, bid, .. } if *bid == one.from => drop(there.insert(*conn)),
                OutEvent::Subscribed { conn, bid, .. } if *bid == one.to => drop(there.remove(conn)),
                OutEvent::ConnDown { conn, .. } => drop(there.remove(conn)),
                _ => {}
            }
        }
        match event {
            OutEvent::Subscribed { .. } | OutEvent::ConnDown { .. } | OutEvent::Unsubscribed { .. } => {}
            _ => return,
        }
        let mut at = 0;
        while at < self.moves.0.len() {
            at = if self.leave_if_empty(at) { 0 } else { at + 1 };
        }
    }

    /// Removes a buffer that has ended, once nobody is left in it and all who were have come over.
    fn leave_if_empty(&mut self, at: usize) -> bool {
        let Move { from, state: State::Ended(there), .. } = &self.moves.0[at] else { return false };
        let from = *from;
        if !there.is_empty()
            || self.out.subscriber_count(from) > 0
            || !self.out.durable_cursors(from).is_empty()
        {
            return false;
        }
        self.remove_buffer(from);
        self.moves.removed(from);
        true
    }
}
