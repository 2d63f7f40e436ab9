//! Path migration: a log that comes by a path through another broker continues in the buffer with the shorter path.
//!
//! ```text
//!   publisher ──▶ A ──▶ B         A was restarted, and B offers its logs to A. When the publisher is back, its log would come
//!                 ▲     │         twice: from the publisher, and from B, which has it from A.
//!                 └─────┘
//!
//!   long path    ───────────────┤ ends where it has reached the start of the other buffer: GONE, and then TOPIC_GONE
//!   short path       ├──────────┼──────▶   kept for subscribers that have not switched yet
//! ```
//!
//! Both buffers exist until the long path has delivered everything that the short path doesn't have any more. So subscribers of
//! the long path lose nothing, and a client never reads both at once (see the subscription set of the client library).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rocketbufs::error::BufferError;
use rocketbufs::relay::RetentionHold;
use rocketbufs::{Bid, OutBuffer, OutEvent};
use tracing::info;

use super::effects::{Effect, Effects};
use super::federation::{Federation, set_continues};
use super::routes::is_prefix;
use super::tables::{LEFT_LINGER, Tables};
use super::topics::{Buffer, Stage};

/// The time between two checks whether the long path has delivered enough.
const CHECK_EVERY: Duration = Duration::from_millis(5);

/// The move of a log from one buffer to another one.
struct Migration {
    /// The buffer with the long path.
    from: Bid,
    /// The buffer with the short path.
    to: Bid,
    /// Keeps the bytes of `to` for the subscribers that will switch, as soon as its ring exists.
    keep_new: Option<RetentionHold>,
    /// Keeps the bytes of the ended buffer. More bytes can arrive behind its end and must not overwrite them.
    keep_old: Option<RetentionHold>,
    state: State,
}

enum State {
    /// The long path delivers the bytes that `to` doesn't have, at most until this time.
    Delivering(Instant),
    /// The buffer has ended. These connections have not switched yet.
    Ended(BTreeSet<u64>),
}

/// The migrations under way.
#[derive(Default)]
pub(super) struct PathMigration(Vec<Migration>);

impl PathMigration {
    /// When to check again.
    pub(super) fn next_check(&self) -> Option<Instant> {
        let delivering = |one: &Migration| matches!(one.state, State::Delivering(_));
        self.0.iter().any(delivering).then(|| Instant::now() + CHECK_EVERY)
    }

    /// A buffer was removed.
    pub(super) fn removed(&mut self, bid: Bid) {
        self.0.retain(|one| one.from != bid && one.to != bid);
    }

    /// The buffer with the short path has ended too.
    pub(super) fn ended(&mut self, bid: Bid) {
        self.0.retain(|one| one.to != bid);
    }

    /// A buffer is live. If its log comes by two paths now, and one is a prefix of the other, the longer path is given up.
    pub(super) fn prefer_shorter(&mut self, tables: &Tables, bid: Bid) {
        let Some(buffer) = tables.topics.get(bid) else { return };
        let others = tables.topics.of(&buffer.topic).iter();
        let others = others.filter_map(|other| Some((*other, tables.topics.get(*other)?)));
        let linger = tables.out.context().config().session.linger_ms;
        let until = Instant::now() + Duration::from_millis(linger.into());
        let migrations = migrations(bid, buffer, others);
        self.0.extend(migrations.into_iter().map(|(from, to)| Migration {
            from,
            to,
            keep_new: None,
            keep_old: None,
            state: State::Delivering(until),
        }));
    }

    /// Ends the long paths that have delivered enough.
    pub(super) fn check(
        &mut self,
        tables: &mut Tables,
        federation: &mut Federation,
        now: Instant,
        fx: &mut Effects,
    ) {
        for one in &mut self.0 {
            let State::Delivering(until) = one.state else { continue };
            one.keep_for_subscribers(tables);
            if until <= now || one.has_delivered(tables) {
                // Subscribers have to learn that the log continues before they learn that the buffer has ended.
                federation.becomes_alternative(tables, one.from, one.to, fx);
                fx.push(Effect::EndLongPath { from: one.from, to: one.to });
            }
        }
    }

    /// Ends the buffer with the long path.
    pub(super) fn end_long_path(&mut self, tables: &mut Tables, from: Bid, to: Bid, fx: &mut Effects) {
        let is_this = |one: &&mut Migration| {
            one.from == from && one.to == to && matches!(one.state, State::Delivering(_))
        };
        let Some(one) = self.0.iter_mut().find(is_this) else { return };
        let stage = tables.topics.get(from).map(|buffer| buffer.stage);
        let old = tables.out.buffer(from);
        let end = old.as_ref().ok_or(BufferError::NoSuchBuffer(from)).and_then(OutBuffer::end_as_gone);
        let (Ok(end), false) = (end, stage.is_none_or(|stage| stage == Stage::Opening)) else {
            // No subscriber knows the buffer yet.
            self.removed(from);
            return fx.push(Effect::Remove(from));
        };
        if stage == Some(Stage::Live) {
            set_continues(tables, from, true, fx);
            info!("buffer {from} ends at {end}: its log continues in buffer {to}, by a shorter path");
            let is_shared = tables.topics.get(from).is_some_and(|buffer| tables.is_shared(&buffer.topic));
            let longest = if is_shared { LEFT_LINGER } else { Duration::MAX };
            let linger = tables.settings.closed_linger().min(longest);
            tables.topics.end(from, end, Instant::now() + linger);
            tables.topics.get_mut(from).into_iter().for_each(|buffer| buffer.gone = true);
        }
        let subscribed = old.iter().flat_map(OutBuffer::subscribers).map(|sub| sub.conn).collect();
        one.keep_old = old.and_then(|old| old.hold_from(0).ok());
        one.keep_new.iter().for_each(|keep| keep.advance(end));
        one.state = State::Ended(subscribed);
        self.remove_left(tables, fx);
    }

    /// A subscription or a connection began or ended: perhaps all subscribers have switched.
    pub(super) fn on_out_event(&mut self, tables: &Tables, event: &OutEvent, fx: &mut Effects) {
        for one in &mut self.0 {
            let State::Ended(subscribed) = &mut one.state else { continue };
            match event {
                // A subscriber that was disconnected resumes the old buffer.
                OutEvent::Subscribed { conn, bid, .. } if *bid == one.from => drop(subscribed.insert(*conn)),
                OutEvent::Subscribed { conn, bid, .. } if *bid == one.to => drop(subscribed.remove(conn)),
                OutEvent::ConnDown { conn, .. } => drop(subscribed.remove(conn)),
                _ => {}
            }
        }
        match event {
            OutEvent::Subscribed { .. } | OutEvent::ConnDown { .. } | OutEvent::Unsubscribed { .. } => {
                self.remove_left(tables, fx);
            }
            _ => {}
        }
    }

    /// Removes the ended buffers that all subscribers have left.
    fn remove_left(&mut self, tables: &Tables, fx: &mut Effects) {
        while let Some(from) = self.0.iter().find(|one| one.is_left(tables)).map(|one| one.from) {
            self.removed(from);
            fx.push(Effect::Remove(from));
        }
    }
}

impl Migration {
    /// Keeps the bytes that subscribers need after the switch.
    fn keep_for_subscribers(&mut self, tables: &Tables) {
        if self.keep_new.is_none() {
            let delivered = tables.info(self.from).map_or(0, |info| info.boundary);
            self.keep_new = tables.out.buffer(self.to).and_then(|new| new.hold_from(delivered).ok());
        }
    }

    /// Whether the long path has delivered the bytes that the other buffer doesn't have, or cannot deliver them.
    fn has_delivered(&self, tables: &Tables) -> bool {
        let Some(buffer) = tables.topics.get(self.from) else { return true };
        let lost = tables.sessions.get(buffer.session).is_none_or(|session| session.is_down());
        let delivered = tables.info(self.from).map(|info| info.boundary);
        let kept_from = self.keep_new.as_ref().map(RetentionHold::position);
        let enough = kept_from.is_some_and(|from| delivered.is_some_and(|delivered| delivered >= from));
        lost || buffer.gone || enough
    }

    /// Whether the old buffer has ended, and no subscriber needs it any more.
    fn is_left(&self, tables: &Tables) -> bool {
        let State::Ended(subscribed) = &self.state else { return false };
        let is_unused = |old: OutBuffer| old.subscriber_count() == 0 && old.durable_cursors().is_empty();
        subscribed.is_empty() && tables.out.buffer(self.from).is_none_or(is_unused)
    }
}

/// The migrations between a live buffer and the other buffers of its log: from the longer to the shorter path.
fn migrations<'b>(
    bid: Bid,
    buffer: &Buffer,
    others: impl Iterator<Item = (Bid, &'b Buffer)>,
) -> Vec<(Bid, Bid)> {
    let same_log =
        |(other, known): &(Bid, &Buffer)| *other != bid && known.epoch == buffer.epoch && !known.gone;
    let direction = |(other, known): (Bid, &Buffer)| {
        if is_prefix(&buffer.path, &known.path) {
            Some((other, bid))
        } else if is_prefix(&known.path, &buffer.path) && known.stage == Stage::Live {
            Some((bid, other))
        } else {
            None
        }
    };
    others.filter(same_log).filter_map(direction).collect()
}

#[cfg(test)]
mod tests {
    use rocketbufs::Epoch;

    use super::*;
    use crate::topics::tests::buffer;

    fn with_path(path: &[u128], epoch: u128) -> Buffer {
        Buffer { path: path.to_vec(), epoch: Some(Epoch(epoch)), ..buffer("a", 1) }
    }

    #[test]
    fn a_log_migrates_from_the_longer_to_the_shorter_path() {
        let of = |new: &Buffer, old: &Buffer| migrations(1, new, [(2, old)].into_iter());
        let (short, long) = (with_path(&[], 7), with_path(&[5, 6], 7));
        assert_eq!(of(&short, &long), [(2, 1)]);
        assert_eq!(of(&long, &short), [(1, 2)]);
        assert_eq!(of(&long, &long), []);
        assert_eq!(of(&short, &with_path(&[5, 6], 8)), [], "another log");
        let gone = Buffer { gone: true, ..long.clone() };
        assert_eq!(of(&short, &gone), []);
        let opening = Buffer { stage: Stage::Opening, ..short.clone() };
        assert_eq!(of(&long, &opening), [], "the short path may not come up");
    }
}
