//! The control side of a subscriber: it hears of buffers from the broker and subscribes to them.
//!
//! A topic may have several buffers, now or later (one for each publisher). Where a subscription of a buffer begins:
//!
//! | the buffer | begins |
//! |---|---|
//! | its log is one of which a position is known (a reconnect, `StartFrom::Positions`) | there |
//! | its log comes in another buffer still, which has not ended here | where that one ends, when it has |
//! | it appeared after the topic was asked for, or while the connection was away | at its first; what is gone is told |
//! | it is merged, and another merged log of its topic came before it | the same: it began after that one |
//! | it appeared meanwhile at another broker process, or the first had not told yet what there was | at its oldest byte |
//! | it was there already | where the application wants: newest, oldest, the last delivery, a time, a position |

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};

use rocketbufs::fields::printable;
use rocketbufs::{
    Bid, BlockTimeout, Budget, ConfirmMode, Conn, ControlError, Epoch, Policy, Position, RIn, Start,
    SubscribeError, SubscribeOptions,
};
use tracing::debug;

use super::link::{lock, send_patiently};
use super::lowered::Lowered;
use super::notice::Notice;
use super::places::Places;
use super::wanted::{Before, Buffer, Buffers, Stage, Wanted};
use crate::wire::{Control, Framing, Terms, Topic, TopicFilter, TopicName};

/// Where a subscriber begins in buffers that exist when it asks for their topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StartFrom {
    /// With what is published from now on.
    #[default]
    Newest,
    /// With the oldest bytes that are kept.
    Oldest,
    /// With the last delivery that the broker knows the begin of: a last value for who comes late. Messages that came
    /// to the broker together with the last one come along.
    Last,
    /// With what reached the broker since then, and perhaps a little before. Sent as how long ago that was: the broker's
    /// clock may be another. With the oldest bytes that are kept if the broker does not know that moment any more.
    Time(SystemTime),
    /// At this position, whatever the log.
    Position(Position),
    /// At these positions of these logs (where an earlier subscriber stopped: it counts as having what lies before), and at
    /// the oldest byte of any other; at the first of one that is merged, so that what of it is not kept any more is told.
    Positions(Vec<(Epoch, Position)>),
}

/// Refusals are added to what the application was not told yet up to so many.
const MAX_UNTOLD: usize = 1024;

/// How a subscriber takes part; the same for all of its topics.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) ring_bytes: u64,
    pub(super) batch_bytes: u64,
    pub(super) policy: Policy,
    pub(super) max_lag_bytes: u64,
    pub(super) block_timeout: Option<Duration>,
    pub(super) name: String,
    pub(super) hold: Duration,
    pub(super) confirm_released: bool,
    pub(super) until_ended: bool,
    /// Of the rings of topics that were asked for by patterns.
    pub(super) budget: Option<Budget>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) wanted: Wanted,
    pub(super) buffers: Buffers,
    /// Where logs were left whose buffers are not known under their present id.
    pub(super) positions: Places,
    /// How many TOPICS the broker has not answered, and over which connection they went.
    pub(super) asked: (u64, usize),
    /// What buffers that are told now give at most, and what was told of that.
    pub(super) terms: Terms,
    pub(super) lowered: Lowered,
    /// The buffer in which a log goes on when the one it comes in now has ended.
    pub(super) later: HashMap<Epoch, Topic>,
    /// What the application must be told, besides what the framework reports.
    pub(super) notices: VecDeque<Notice>,
    /// Buffers of which the broker says that their logs go on in others.
    pub(super) continues: HashSet<Bid>,
    /// Logs that are to go on in other buffers, and the end of those they came in.
    pub(super) awaited: HashMap<Epoch, (Bid, TopicName, Position)>,
    /// Whether it came to another broker process: what that one has of a log may begin anywhere.
    pub(super) elsewhere: bool,
    /// How many connections replaced a lost one.
    pub(super) reconnects: u64,
    /// A connection to another broker process, whose buffers have other ids: the application's thread moves to it.
    pub(super) moved: Option<Conn>,
    /// Why there will be no other connection.
    pub(super) over: Option<String>,
}

impl State {
    /// The broker keeps no place in a buffer.
    pub(super) fn no_place(&mut self, bid: Bid) -> Option<Notice> {
        self.lowered.no_place(&self.buffers.get(bid)?.topic);
        self.lowered.untold.pop_front().map(Notice::Lowered)
    }

    /// The log of a buffer does not go on in another one. If it was waited for, it is gone.
    fn give_up(&mut self, bid: Bid) {
        self.continues.remove(&bid);
        let epoch = self.awaited.iter().find(|(_, (of, ..))| *of == bid).map(|(epoch, _)| *epoch);
        if let Some((epoch, (_, topic, end))) = epoch.and_then(|epoch| self.awaited.remove_entry(&epoch)) {
            self.notices.push_back(Notice::Gone { topic, epoch, end });
        }
    }
}

/// What the application's thread, the framework's callbacks and the link share.
#[derive(Default)]
pub(super) struct Feed {
    pub(super) options: Options,
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

impl Feed {
    /// The rIn of a connection, with the callback that hears of buffers.
    pub(super) fn attach(self: &Arc<Self>, conn: &Conn) -> RIn {
        let rin = RIn::new(conn);
        let feed = self.clone();
        rin.set_control_msg_cb(move |rin, message| feed.on_control(rin, message));
        rin
    }

    /// Asks the broker for what filters match. Not for callbacks.
    pub(super) fn ask(&self, conn: &Conn, filters: &[TopicFilter]) {
        let first = lock(&self.state).asked.0 != conn.id();
        if first && let Some(hold) = self.options.hold() {
            // If it is not sent, nor is what follows.
            let _ = send_patiently(conn, &hold);
        }
        for message in Control::topics(filters) {
            let mut state = lock(&self.state);
            if state.asked.0 != conn.id() {
                state.asked = (conn.id(), 0);
            }
            state.asked.1 += 1;
            drop(state);
            match send_patiently(conn, &message) {
                Ok(()) => {}
                Err(error @ ControlError::TooLarge { .. }) => {
                    // The next connection could not ask either.
                    self.problem(format!("the broker cannot be asked for topics: {error}"));
                    self.answered(conn);
                }
                // The next connection asks for everything again.
                Err(error) => return debug!("the broker was not asked for its topics: {error}"),
            }
        }
    }

    /// The broker answered a TOPICS.
    fn answered(&self, conn: &Conn) {
        let mut state = lock(&self.state);
        if state.asked.0 == conn.id() {
            state.asked.1 = state.asked.1.saturating_sub(1);
            if state.asked.1 == 0 {
                state.wanted.all_told();
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Asks the broker for everything that is wanted.
    pub(super) fn ask_all(&self, conn: &Conn) {
        let filters = lock(&self.state).wanted.filters();
        self.ask(conn, &filters);
    }

    fn on_control(&self, rin: &RIn, message: &[u8]) {
        match Control::decode(message) {
            Ok(Control::Topic(topic)) => self.on_topic(rin, &topic),
            Ok(Control::TopicGone { bid, .. }) => self.on_topic_gone(bid),
            Ok(Control::Terms(terms)) => lock(&self.state).terms = terms,
            Ok(Control::Told) => self.answered(&rin.conn()),
            Ok(Control::Continues { bid, yes: true }) => {
                let mut state = lock(&self.state);
                if state.buffers.get(bid).is_some() {
                    state.continues.insert(bid);
                }
            }
            Ok(Control::Continues { bid, yes: false }) => lock(&self.state).give_up(bid),
            Ok(Control::Rejected { reason }) => {
                self.problem(format!("the broker refused: {}", printable(&reason)));
                self.answered(&rin.conn());
            }
            Ok(_) => rin.conn().close("the broker sent a message that is not for subscribers"),
            Err(error) => rin.conn().close(&error.to_string()),
        }
    }

    /// Tells the application's thread, when it looks next. One that does not look while a broker refuses without an end
    /// gets the first of it.
    fn problem(&self, problem: String) {
        let mut state = lock(&self.state);
        if state.notices.len() < MAX_UNTOLD {
            state.notices.push_back(Notice::Refused(problem));
        } else {
            debug!("not told, as {MAX_UNTOLD} others wait to be: {problem}");
        }
        drop(state);
        self.changed.notify_all();
    }

    fn on_topic(&self, rin: &RIn, topic: &Topic) {
        let epoch = Epoch(topic.epoch);
        let mut state = lock(&self.state);
        if state.buffers.get(topic.bid).is_some_and(|known| known.epoch == epoch) {
            // Told again after a reconnect; the rIn goes on with it by itself.
            return;
        }
        let Some((from, before)) = state.wanted.saw(&topic.topic) else { return };
        let mut earlier = state.buffers.of_epoch(epoch);
        if earlier.any(|(bid, buffer)| bid != topic.bid && buffer.stage == Stage::Open) {
            drop(earlier);
            // Another way to the same log, by another broker: what is still under way must not come twice.
            state.later.insert(epoch, topic.clone());
            return;
        }
        drop(earlier);
        let start = start(&state, rin, topic, (&from, before));
        let since = state.positions.get(epoch).map(|place| place.since);
        state.awaited.remove(&epoch);
        let buffer = Buffer { topic: topic.topic.clone(), epoch, framing: topic.framing, stage: Stage::Open };
        state.buffers.insert(topic.bid, buffer);
        let named = state.wanted.names(&topic.topic);
        let terms = state.terms;
        state.lowered.look(&self.options, terms, &topic.topic);
        drop(state);
        debug!("topic '{}': buffer {} of {epoch}, beginning at {start:?}", topic.topic, topic.bid);
        let budget = self.options.budget.clone().filter(|_| !named);
        let options =
            self.options.subscribe(start, topic.max_delivery_bytes).covered_from(since).budget(budget);
        match rin.subscribe_with(topic.bid, options) {
            Ok(_) | Err(SubscribeError::Exists(_)) => {}
            Err(error) => {
                lock(&self.state).buffers.remove(topic.bid);
                self.problem(format!("cannot subscribe to topic '{}': {error}", topic.topic));
            }
        }
    }

    /// A buffer has ended here; its log may go on in another one.
    pub(super) fn go_on(&self, rin: &RIn, epoch: Epoch) {
        let later = lock(&self.state).later.remove(&epoch);
        if let Some(topic) = later {
            self.on_topic(rin, &topic);
        }
    }

    fn on_topic_gone(&self, bid: Bid) {
        let mut state = lock(&self.state);
        state.later.retain(|_, topic| topic.bid != bid);
        state.give_up(bid);
        // One that has not ended here yet still hands out what it received.
        if state.buffers.get(bid).is_some_and(|buffer| buffer.stage == Stage::Ended) {
            state.buffers.remove(bid);
        }
    }
}

/// Where to begin in a buffer (see the table above).
fn start(state: &State, rin: &RIn, topic: &Topic, (from, before): (&StartFrom, Before)) -> Start {
    let epoch = Epoch(topic.epoch);
    // The same log under an earlier id of this rIn: a publisher that was away for long. What it received counts.
    let earlier = state.buffers.of_epoch(epoch).find(|(bid, _)| *bid != topic.bid);
    let received =
        earlier.and_then(|(bid, _)| rin.subscription(bid)?.position()).map(|(_, position)| position);
    if let Some(position) = received.or_else(|| state.positions.get(epoch).map(|place| place.position)) {
        return Start::Position(epoch, position);
    }
    // A merged log is its broker's own: one that follows another one began after that.
    let had = state.buffers.had_merged(&topic.topic) || matches!(from, StartFrom::Positions(_));
    let follows = topic.framing == Framing::Merged && had;
    if topic.fresh || follows || (before == Before::Told && !state.elsewhere) {
        return Start::First;
    }
    if before != Before::No {
        return Start::Oldest;
    }
    match from {
        StartFrom::Newest => Start::Newest,
        StartFrom::Last => Start::Last,
        StartFrom::Time(time) => Start::Ago(ago_ms(*time)),
        StartFrom::Oldest | StartFrom::Positions(_) => Start::Oldest,
        StartFrom::Position(position) => Start::Position(epoch, *position),
    }
}

/// How long ago that was, rounded up; 0 for a time to come.
fn ago_ms(time: SystemTime) -> u64 {
    let ago = SystemTime::now().duration_since(time).unwrap_or_default();
    u64::try_from(ago.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl Options {
    /// What the broker is told of who may come back, if that is so.
    fn hold(&self) -> Option<Control> {
        let hold_ms = u32::try_from(self.hold.as_millis()).unwrap_or(u32::MAX);
        (hold_ms > 0 && !self.name.is_empty()).then_some(Control::Hold { hold_ms })
    }

    fn subscribe(&self, start: Start, max_delivery_bytes: u64) -> SubscribeOptions {
        // Without a hold there is no place to take over, and two of the same name may be there at once.
        let name = if self.hold.is_zero() { "" } else { self.name.as_str() };
        let block_timeout = match self.block_timeout {
            None => BlockTimeout::Default,
            Some(Duration::ZERO) => BlockTimeout::Never,
            Some(timeout) => BlockTimeout::After(timeout),
        };
        let confirm = if self.confirm_released { ConfirmMode::OnConsume } else { ConfirmMode::OnArrival };
        SubscribeOptions::new()
            .size_bytes(self.ring_bytes.max(max_delivery_bytes.saturating_mul(2)))
            .start(start)
            .policy(self.policy)
            .max_lag_bytes((self.max_lag_bytes > 0).then_some(self.max_lag_bytes))
            .block_timeout(block_timeout)
            .durable(name, self.hold)
            .confirm(confirm)
            .max_view_bytes((self.batch_bytes > 0).then_some(self.batch_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_that_nobody_reads_are_bounded() {
        let feed = Feed::default();
        (0..2 * MAX_UNTOLD).for_each(|n| feed.problem(n.to_string()));
        let state = lock(&feed.state);
        assert_eq!(state.notices.len(), MAX_UNTOLD);
        assert_eq!(state.notices[0], Notice::Refused("0".into()));
    }
}
