//! The subscriptions of a subscriber: the broker announces buffers, and the set subscribes to them.
//!
//! A topic may have several buffers, now or later (one for each publisher). Where the subscription of a buffer begins:
//!
//! | The buffer | begins |
//! |---|---|
//! | A position of its log is known (a reconnect, `StartFrom::Positions`). | there |
//! | Its log is still received from another buffer. | at the end of that buffer, when it has ended |
//! | The buffer appeared after the request for its topic, or while the connection was down. | at its first position; bytes that the broker no longer has are reported as lost |
//! | The buffer is merged and follows another merged log of its topic. | the same |
//! | The buffer appeared in between at another broker process, or before the first process had announced everything. | at its oldest byte |
//! | The buffer existed before the request. | as the application chooses: newest, oldest, last delivery, a time, a position |
//!
//! The broker may keep a log on disk. Then the set asks it for a *replay* where the ring may not have everything: a buffer for this
//! subscriber alone, which ends where the log goes on in the announced buffer. The set asks again there, and whenever the ring was
//! faster than the subscriber, so a replay follows a replay until the ring has the position.
//!
//! ```text
//!   TOPIC (kept) ─▶ REPLAY from ─▶ REPLAYED: a buffer ─▶ its data ─▶ CLOSED ─▶ REPLAY at its end ─▶ REPLAYED: the ring ─▶ its data
//! ```

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use rocketbufs::error::{ControlError, SubscribeError};
use rocketbufs::event_queue::Readable;
use rocketbufs::fields::printable;
use rocketbufs::{
    Bid, BlockTimeout, ConfirmMode, Conn, Epoch, Policy, PolicySet, Position, RIn, Start, SubscribeOptions,
};
use tracing::{debug, warn};

use super::buffers::{Buffer, Buffers, Kept, Stage};
use super::clamped_options::ClampedOptions;
use super::connection::{lock, send_patiently};
use super::event::Notice;
use super::filters::{Answered, Filters};
use super::options::{SlowPolicy, StartFrom, SubscriberOptions};
use super::resume_positions::ResumePositions;
use crate::wire::{Control, Framing, ReplayFrom, SubscribeLimits, Topic, TopicFilter, TopicName};

/// Refusals are queued for the application up to this number of notices.
const MAX_NOTICES: usize = 1024;

/// The most announced buffers that are remembered although no filter matches them.
const MAX_UNWANTED: usize = 65_536;

/// A log that a broker will announce in another buffer.
#[derive(Debug)]
struct AwaitedLog {
    /// The buffer from which the log was received.
    bid: Bid,
    topic: TopicName,
    /// The end of that buffer.
    end: Position,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) filters: Filters,
    pub(super) buffers: Buffers,
    /// Announced buffers of this connection that no filter matches any more: the broker does not announce them again.
    unwanted: HashMap<Bid, Topic>,
    /// Where logs were left that have no buffer with the present id.
    pub(super) positions: ResumePositions,
    /// The number of TOPICS messages that the broker has not answered, and the connection they were sent over.
    unanswered: (u64, usize),
    /// The broker has answered everything, and the application's thread does not know: every topic may have ended.
    pub(super) answered: bool,
    /// The limits of the buffers that the broker announces now, and the reports about them.
    limits: SubscribeLimits,
    pub(super) clamped: ClampedOptions,
    /// Buffers with which logs continue when their present buffers have ended.
    successors: HashMap<Epoch, Topic>,
    /// Notices for the application, besides those of the framework.
    pub(super) notices: VecDeque<Notice>,
    /// Buffers whose logs continue in other buffers, as the broker says.
    continued: HashSet<Bid>,
    /// Logs that will continue in buffers which are not announced yet.
    awaited: HashMap<Epoch, AwaitedLog>,
    /// Kept buffers for which the broker was asked where to begin.
    replaying: HashMap<Bid, Topic>,
    /// The policies for topics whose publishers this subscriber may not hold back.
    policies: HashMap<TopicName, Policy>,
    /// Whether the present broker is another process than the first one. Its part of a log may begin anywhere.
    pub(super) other_broker: bool,
    /// How many connections replaced a lost one.
    pub(super) reconnects: u64,
    /// How many losses of the connection were reported to the application.
    pub(super) disconnects: u64,
    /// Whether the application knows that the connection is lost, and not yet that it is back.
    pub(super) disconnected: bool,
    /// A connection to another broker process. The buffers have other ids there: the application's thread moves to it.
    pub(super) moved: Option<Conn>,
    /// Why the place was taken over. The set makes no further connection.
    pub(super) taken_over: Option<String>,
}

impl State {
    /// Whether the broker has announced all existing buffers of all filters.
    pub(super) fn is_answered(&self) -> bool {
        self.unanswered.1 == 0 && self.awaited.is_empty() && self.replaying.is_empty()
    }

    /// Reports that the broker keeps no place in a buffer.
    pub(super) fn on_no_place(&mut self, bid: Bid) -> Option<Notice> {
        self.clamped.on_no_place(&self.buffers.get(bid)?.topic);
        self.clamped.reports.pop_front().map(Notice::OptionClamped)
    }

    /// The next notice that the framework does not report.
    pub(super) fn next_notice(&mut self) -> Option<Notice> {
        if let Some(notice) = self.notices.pop_front() {
            return Some(notice);
        }
        if let Some(report) = self.clamped.reports.pop_front() {
            return Some(Notice::OptionClamped(report));
        }
        self.has_resumed().then(|| {
            self.disconnected = false;
            Notice::Reconnected
        })
    }

    /// Whether the connection is back and the application does not know. At the same broker process, the subscriptions have
    /// resumed by themselves.
    fn has_resumed(&self) -> bool {
        self.disconnected && self.moved.is_none() && self.reconnects >= self.disconnects
    }

    /// Whether the application's thread has something to do, besides the events of the framework.
    fn has_news(&self) -> bool {
        !self.notices.is_empty()
            || !self.clamped.reports.is_empty()
            || self.moved.is_some()
            || self.has_resumed()
            || self.taken_over.is_some()
            || self.answered
    }

    /// A buffer ended without being closed. Returns whether its log continues in another buffer, now or later.
    pub(super) fn await_log(&mut self, bid: Bid, topic: TopicName, epoch: Epoch, end: Position) -> bool {
        let continues = self.continued.remove(&bid) || self.successors.contains_key(&epoch);
        if continues {
            self.awaited.insert(epoch, AwaitedLog { bid, topic, end });
        }
        continues
    }

    /// The broker has no buffer of this id any more. Returns whether its log continues in another buffer.
    pub(super) fn on_removed(&mut self, bid: Bid, epoch: Epoch) -> bool {
        self.continued.remove(&bid);
        self.successors.contains_key(&epoch)
    }

    /// Reports a merged log that replaces one of another broker process.
    fn on_replaced(&mut self, Topic { topic, epoch, .. }: &Topic) {
        let epoch = Epoch(*epoch);
        warn!("topic '{topic}': log {epoch} replaces a merged log, of which messages may be missing");
        self.notices.push_back(Notice::LogReplaced { topic: topic.clone(), epoch });
    }

    /// The log of a buffer does not continue in another buffer. If it was awaited, its publisher is gone.
    fn give_up(&mut self, bid: Bid) {
        self.continued.remove(&bid);
        let epoch = self.awaited.iter().find(|(_, awaited)| awaited.bid == bid).map(|(epoch, _)| *epoch);
        if let Some((epoch, AwaitedLog { topic, end, .. })) =
            epoch.and_then(|epoch| self.awaited.remove_entry(&epoch))
        {
            self.notices.push_back(Notice::Gone { topic, epoch, end });
        }
    }

    /// The connection leads to another broker process: nothing that the first one announced holds.
    pub(super) fn forget_buffers(&mut self) {
        self.buffers.forget();
        self.unwanted.clear();
        self.successors.clear();
        self.continued.clear();
        self.awaited.clear();
        self.replaying.clear();
    }

    /// Removes everything about topics that no filter matches any more. Returns their buffers.
    pub(super) fn remove_unwanted(&mut self) -> Vec<(Bid, Epoch)> {
        let filters = &self.filters;
        let unwanted = |topic: &TopicName| !filters.any_matches(topic);
        self.awaited.retain(|_, awaited| !unwanted(&awaited.topic));
        let replaying = self.replaying.extract_if(|_, topic| unwanted(&topic.topic));
        self.unwanted.extend(replaying.collect::<Vec<_>>());
        let removed = self.buffers.remove_topics(unwanted);
        let successors = self.successors.extract_if(|_, topic| unwanted(&topic.topic));
        let successors = successors.map(|(_, topic)| (topic.bid, topic)).collect::<Vec<_>>();
        self.unwanted.extend(successors);
        for (bid, buffer) in &removed {
            self.continued.remove(bid);
            self.positions.remove(buffer.epoch);
            // The announced buffer of a replay is one of the successors.
            if buffer.kept != Kept::Replay {
                self.unwanted.insert(*bid, buffer.announced(*bid));
            }
        }
        removed.into_iter().map(|(bid, buffer)| (bid, buffer.epoch)).collect()
    }

    /// Announced buffers that the filter matches and that no other filter matched before.
    fn wanted_again(&mut self, filter: &TopicFilter) -> Vec<Topic> {
        self.unwanted.extract_if(|_, topic| filter.matches(&topic.topic)).map(|(_, topic)| topic).collect()
    }
}

/// The state that the application's thread, the callbacks of the framework and the reconnecting thread share.
#[derive(Default)]
pub(super) struct SubscriptionSet {
    pub(super) options: SubscriberOptions,
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    /// Readable while the state has news for the application's thread. Changes under the lock of the state.
    pub(super) readable: Readable,
}

impl SubscriptionSet {
    /// Creates the rIn of a connection, with the callback for the broker's messages.
    pub(super) fn attach(self: &Arc<Self>, conn: &Conn) -> RIn {
        let rin = RIn::new(conn);
        let set = self.clone();
        rin.set_control_msg_cb(move |rin, message| set.on_control(rin, message));
        rin
    }

    /// Changes the state, and wakes the application's thread if it waits.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = lock(&self.state);
        let result = change(&mut state);
        self.settle(&state);
        drop(state);
        self.changed.notify_all();
        result
    }

    /// Makes the descriptor agree with the state.
    pub(super) fn settle(&self, state: &State) {
        if state.has_news() {
            self.readable.raise();
        } else {
            self.readable.lower();
        }
    }

    /// Subscribes to a filter.
    pub(super) fn subscribe(&self, rin: &RIn, conn: &Conn, filter: &TopicFilter, start: StartFrom) {
        let mut state = lock(&self.state);
        if let StartFrom::Positions(positions) = &start {
            state.positions.add(positions);
        }
        let again = state.wanted_again(filter);
        let matched = !again.is_empty() || state.buffers.any_of(filter);
        let added = state.filters.add(filter, start, matched);
        drop(state);
        again.iter().for_each(|topic| self.on_topic(rin, topic));
        if added {
            self.request(conn, std::slice::from_ref(filter));
        }
    }

    /// Requests the buffers of filters from the broker. Must not be called from a callback.
    pub(super) fn request(&self, conn: &Conn, filters: &[TopicFilter]) {
        let first = lock(&self.state).unanswered.0 != conn.id();
        if first && let Some(hold) = self.options.hold_message() {
            // If this message cannot be sent, neither can the next one.
            let _ = send_patiently(conn, &hold);
        }
        for message in Control::topics(filters) {
            let mut state = lock(&self.state);
            if state.unanswered.0 != conn.id() {
                state.unanswered = (conn.id(), 0);
            }
            state.unanswered.1 += 1;
            drop(state);
            match send_patiently(conn, &message) {
                Ok(()) => {}
                Err(error @ ControlError::TooLarge { .. }) => {
                    // The message would be too large for the next connection too.
                    self.refused(None, format!("the request for topics cannot be sent: {error}"));
                    self.on_answered(conn);
                }
                // The next connection requests everything again.
                Err(error) => return debug!("the request for topics was not sent: {error}"),
            }
        }
    }

    /// Requests the buffers of all filters.
    pub(super) fn request_all(&self, conn: &Conn) {
        let filters = lock(&self.state).filters.all();
        self.request(conn, &filters);
    }

    /// The broker answered a TOPICS message.
    fn on_answered(&self, conn: &Conn) {
        self.update(|state| {
            if state.unanswered.0 == conn.id() {
                state.unanswered.1 = state.unanswered.1.saturating_sub(1);
                if state.unanswered.1 == 0 {
                    state.answered = true;
                    state.filters.on_all_answered();
                }
            }
        });
    }

    fn on_control(&self, rin: &RIn, message: &[u8]) {
        match Control::decode(message) {
            Ok(Control::Topic(topic)) => self.on_topic(rin, &topic),
            Ok(Control::TopicGone { bid, .. }) => self.on_topic_gone(bid),
            Ok(Control::Limits(limits)) => lock(&self.state).limits = limits,
            Ok(Control::TopicsDone) => self.on_answered(&rin.conn()),
            Ok(Control::Continues { bid, yes: true }) => {
                let mut state = lock(&self.state);
                if state.buffers.get(bid).is_some() {
                    state.continued.insert(bid);
                }
            }
            Ok(Control::Continues { bid, yes: false }) => self.update(|state| state.give_up(bid)),
            Ok(Control::Replayed { bid, replay, start }) => self.on_replayed(rin, bid, replay, start),
            Ok(Control::Rejected { reason }) => {
                self.refused(None, format!("the broker refused: {}", printable(&reason)));
                self.on_answered(&rin.conn());
            }
            Ok(_) => rin.conn().close("the broker sent a message that is not for subscribers"),
            Err(error) => rin.conn().close(&error.to_string()),
        }
    }

    /// Queues a refusal for the application. If the application takes no notices while a broker refuses without end, it gets
    /// the first refusals.
    fn refused(&self, topic: Option<TopicName>, reason: String) {
        self.update(|state| {
            if state.notices.len() < MAX_NOTICES {
                state.notices.push_back(Notice::Refused { topic, reason });
            } else {
                debug!("a notice was dropped, since {MAX_NOTICES} others wait: {reason}");
            }
        });
    }

    fn on_topic(&self, rin: &RIn, topic: &Topic) {
        let epoch = Epoch(topic.epoch);
        let mut state = lock(&self.state);
        if state.buffers.get(topic.bid).is_some_and(|known| known.epoch == epoch) {
            // Announced again after a reconnect. The rIn resumes the subscription by itself.
            return;
        }
        let Some((from, answered)) = state.filters.on_announced(&topic.topic) else {
            if state.unwanted.len() < MAX_UNWANTED {
                state.unwanted.insert(topic.bid, topic.clone());
            }
            return;
        };
        let mut earlier = state.buffers.of_epoch(epoch);
        if earlier.any(|(bid, buffer)| bid != topic.bid && buffer.stage == Stage::Open) {
            drop(earlier);
            // The same log by way of another broker. Bytes that are still under way must not come twice.
            state.successors.insert(epoch, topic.clone());
            return;
        }
        drop(earlier);
        let start = start(&state, rin, topic, &from, answered);
        if !matches!(start, Start::Position(..)) && replaces_merged(&state, topic, &from) {
            state.on_replaced(topic);
        }
        state.awaited.remove(&epoch);
        if let Some(from) = replay_from(topic, start) {
            state.replaying.insert(topic.bid, topic.clone());
            drop(state);
            return self.ask_replay(rin, topic, from);
        }
        let kept = if topic.kept { Kept::Yes } else { Kept::No };
        self.open(rin, state, topic.bid, topic, kept, start);
    }

    /// Asks the broker where to begin in a kept log.
    fn ask_replay(&self, rin: &RIn, topic: &Topic, from: ReplayFrom) {
        debug!("topic '{}': buffer {} is asked for {from:?}", topic.topic, topic.bid);
        let message = Control::Replay { bid: topic.bid, from };
        match rin.conn().send_control(&message.encode()) {
            // The next connection asks again.
            Ok(()) | Err(ControlError::Down) => {}
            Err(error) => rin.conn().close(&format!("a replay cannot be asked for: {error}")),
        }
    }

    /// The broker says which buffer has the first position of a kept log.
    fn on_replayed(&self, rin: &RIn, bid: Bid, replay: Option<Bid>, start: Position) {
        let mut state = lock(&self.state);
        let Some(topic) = state.replaying.remove(&bid) else { return };
        let epoch = Epoch(topic.epoch);
        let at = Start::Position(epoch, start);
        match replay {
            None => self.open(rin, state, bid, &topic, Kept::Yes, at),
            Some(replay) => {
                state.successors.insert(epoch, topic.clone());
                self.open(rin, state, replay, &topic, Kept::Replay, at);
            }
        }
    }

    /// The ring of a kept log was faster than this subscriber. The log goes on from the disk.
    pub(super) fn replay_again(&self, rin: &RIn, bid: Bid) {
        rin.unsubscribe(bid);
        let removed = lock(&self.state).buffers.remove(bid);
        if let Some(buffer) = removed {
            self.on_topic(rin, &buffer.announced(bid));
        }
    }

    /// Subscribes to a buffer of a topic.
    fn open(
        &self,
        rin: &RIn,
        mut state: MutexGuard<'_, State>,
        bid: Bid,
        topic: &Topic,
        kept: Kept,
        start: Start,
    ) {
        let epoch = Epoch(topic.epoch);
        let covered_from = state.positions.get(epoch).map(|position| position.covered_from);
        let policy = match kept {
            // No publisher waits for it, so it may take any time.
            Kept::Replay => Policy::Block,
            _ => state.policies.get(&topic.topic).copied().unwrap_or(self.options.slow.framework()),
        };
        let buffer = Buffer {
            topic: topic.topic.clone(),
            epoch,
            framing: topic.framing,
            max_delivery_bytes: topic.max_delivery_bytes,
            stage: Stage::Open,
            kept,
            policy,
        };
        state.buffers.insert(bid, buffer);
        let named = state.filters.has_name(&topic.topic);
        let limits = state.limits;
        state.clamped.compare(&self.options, limits, &topic.topic);
        self.settle(&state);
        drop(state);
        debug!("topic '{}': buffer {bid} of {epoch}, beginning at {start:?}", topic.topic);
        let budget = self.options.budget.clone().filter(|_| !named);
        let mut options = self.options.subscribe(start, topic.max_delivery_bytes).policy(policy);
        if kept == Kept::Replay {
            // Its place is the position that this subscriber knows.
            options = options.block_timeout(BlockTimeout::Never).max_lag_bytes(None);
            options = options.durable("", Duration::ZERO);
        }
        let options = options.covered_from(covered_from).budget(budget);
        match rin.subscribe_with(bid, options) {
            Ok(_) | Err(SubscribeError::Exists(_)) => {}
            Err(error) => {
                lock(&self.state).buffers.remove(bid);
                self.refused(Some(topic.topic.clone()), format!("cannot subscribe: {error}"));
            }
        }
    }

    /// The broker does not allow `block` for a buffer. Subscribes with the best policy that it allows, if the options say so.
    /// Returns whether they do.
    pub(super) fn subscribe_as_allowed(&self, rin: &RIn, bid: Bid, allowed: PolicySet) -> bool {
        let mut state = lock(&self.state);
        let Some(buffer) = state.buffers.get(bid).cloned() else { return false };
        let best = [Policy::Drop, Policy::Disconnect].into_iter().find(|policy| allowed.contains(*policy));
        let asks = self.options.slow == SlowPolicy::BlockIfAllowed && buffer.policy == Policy::Block;
        let (Some(best), true, false) = (best, asks, buffer.kept == Kept::Replay) else { return false };
        if state.policies.len() >= MAX_UNWANTED {
            return false;
        }
        state.policies.insert(buffer.topic.clone(), best);
        state.clamped.on_no_block(best, &buffer.topic);
        state.buffers.remove(bid);
        drop(state);
        self.on_topic(rin, &buffer.announced(bid));
        true
    }

    /// A buffer has ended here. Its log may continue in another buffer.
    pub(super) fn on_ended(&self, rin: &RIn, epoch: Epoch) {
        let successor = lock(&self.state).successors.remove(&epoch);
        if let Some(topic) = successor {
            self.on_topic(rin, &topic);
        }
    }

    fn on_topic_gone(&self, bid: Bid) {
        self.update(|state| {
            state.successors.retain(|_, topic| topic.bid != bid);
            state.replaying.remove(&bid);
            state.unwanted.remove(&bid);
            state.give_up(bid);
            // A buffer that has not ended here still has received data to hand out.
            if state.buffers.get(bid).is_some_and(|buffer| buffer.stage == Stage::Ended) {
                state.buffers.remove(bid);
            }
        });
    }
}

/// The replay that the set asks the broker for where the ring of a kept log may not have everything.
fn replay_from(topic: &Topic, start: Start) -> Option<ReplayFrom> {
    match start {
        Start::Oldest | Start::First if topic.kept => Some(ReplayFrom::Oldest),
        Start::Ago(ms) if topic.kept => Some(ReplayFrom::Age(ms)),
        Start::Position(_, position) if topic.kept => Some(ReplayFrom::Position(position)),
        _ => None,
    }
}

impl Buffer {
    /// The buffer as the broker announced it.
    fn announced(&self, bid: Bid) -> Topic {
        let Self { topic, epoch, framing, max_delivery_bytes, kept, .. } = self.clone();
        let kept = kept == Kept::Yes;
        Topic { bid, epoch: epoch.0, framing, fresh: false, kept, max_delivery_bytes, topic }
    }
}

/// Where the subscription of a buffer begins (see the table above).
fn start(state: &State, rin: &RIn, topic: &Topic, from: &StartFrom, answered: Answered) -> Start {
    let epoch = Epoch(topic.epoch);
    // The same log under an earlier id of this rIn: its publisher was away for long. The received bytes count.
    let earlier = state.buffers.of_epoch(epoch).find(|(bid, _)| *bid != topic.bid);
    let received =
        earlier.and_then(|(bid, _)| rin.subscription(bid)?.position()).map(|(_, position)| position);
    if let Some(position) = received.or_else(|| state.positions.get(epoch).map(|entry| entry.position)) {
        return Start::Position(epoch, position);
    }
    let follows = replaces_merged(state, topic, from);
    if topic.fresh || follows || (answered == Answered::Fully && !state.other_broker) {
        return Start::First;
    }
    if answered != Answered::NotRequested {
        return Start::Oldest;
    }
    match from {
        StartFrom::Newest => Start::Newest,
        StartFrom::Last => Start::Last,
        StartFrom::Time(time) => Start::Ago(age_ms(*time)),
        StartFrom::Oldest | StartFrom::Positions(_) => Start::Oldest,
        StartFrom::Position(position) => Start::Position(epoch, *position),
    }
}

/// Whether a merged log follows one of another broker process that this subscriber has received. Each broker process has merged logs
/// of its own, so the new log began after the earlier one.
fn replaces_merged(state: &State, topic: &Topic, from: &StartFrom) -> bool {
    let had = state.buffers.had_merged(&topic.topic) || matches!(from, StartFrom::Positions(_));
    topic.framing == Framing::Merged && had
}

/// The age of a time, rounded up; 0 for a future time.
fn age_ms(time: SystemTime) -> u64 {
    let age = SystemTime::now().duration_since(time).unwrap_or_default();
    u64::try_from(age.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl SubscriberOptions {
    /// The message that announces a durable subscriber to the broker.
    fn hold_message(&self) -> Option<Control> {
        let hold_ms = u32::try_from(self.hold.as_millis()).unwrap_or(u32::MAX);
        (hold_ms > 0).then_some(Control::Hold { hold_ms })
    }

    fn subscribe(&self, start: Start, max_delivery_bytes: u64) -> SubscribeOptions {
        let block_timeout = match self.slow {
            SlowPolicy::BlockFor { timeout: None } => BlockTimeout::Never,
            SlowPolicy::BlockFor { timeout: Some(timeout) } => BlockTimeout::After(timeout),
            _ => BlockTimeout::Default,
        };
        // Subscribers that are not durable have no place to take over, and several of the same name may be connected.
        let name = if self.hold.is_zero() { "" } else { self.name.as_str() };
        let confirm = if self.confirm_consumed { ConfirmMode::OnConsume } else { ConfirmMode::OnArrival };
        SubscribeOptions::new()
            .size_bytes(self.ring_bytes.max(max_delivery_bytes.saturating_mul(2)))
            .start(start)
            .policy(self.slow.framework())
            .max_lag_bytes(self.slow.max_lag_bytes())
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
    fn refusals_that_the_application_does_not_take_are_bounded() {
        let set = SubscriptionSet::default();
        (0..2 * MAX_NOTICES).for_each(|n| set.refused(None, n.to_string()));
        let state = lock(&set.state);
        assert_eq!(state.notices.len(), MAX_NOTICES);
        assert_eq!(state.notices[0], Notice::Refused { topic: None, reason: "0".into() });
    }
}
