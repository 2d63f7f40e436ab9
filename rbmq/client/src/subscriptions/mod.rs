//! The subscriptions of a subscriber, as a machine without I/O: the broker announces buffers, and the machine subscribes to them.
//!
//! ```text
//!   messages of the broker ──────┐                       ┌──▶ effects: subscribe, unsubscribe, ask for a replay
//!   events of the rIn ───────────┼──▶  Subscriptions  ───┼──▶ requests for topics
//!   calls of the application ────┘    no lock, no clock  └──▶ notices for the application
//! ```
//!
//! The driver (`api/subscription_driver.rs`) owns the lock, feeds the machine and carries out its effects, in order. In the simulator, a model
//! of a broker does.
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
//! The log of a space has many topics. The machine wants the log if a filter matches some of them, and the application gets the records
//! that its filters match. A filter that comes later begins where the log is then.
//!
//! The broker may keep a log on disk. Then the machine asks it for a *replay* where the ring may not have everything: a buffer for this
//! subscriber alone, which ends where the log goes on in the announced buffer. The machine asks again there, and whenever the ring was
//! faster than the subscriber, so a replay follows a replay until the ring has the position.
//!
//! ```text
//!   TOPIC (kept) ─▶ REPLAY from ─▶ REPLAYED: a buffer ─▶ its data ─▶ CLOSED ─▶ REPLAY at its end ─▶ REPLAYED: the ring ─▶ its data
//! ```

mod buffers;
mod clamped_options;
mod effects;
mod events;
mod filters;
mod link;
mod logs;
#[cfg(test)]
mod simulator;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rbmq_wire::Levels;
use rocketbufs::fields::printable;
use rocketbufs::{Bid, Epoch, Policy, Position, Start};
use tracing::{debug, warn};

use crate::ground::error::ReceiveError;
use crate::ground::options::{StartFrom, SubscriberOptions};
use crate::state::event::{Notice, RefusedFilter};
use crate::state::space_reader::SpaceView;
use crate::wire::{Control, Framing, Rejection, Topic, TopicFilter, TopicName};
use buffers::{Buffer, Buffers, Stage};
use clamped_options::ClampedOptions;
pub(super) use effects::{Begin, Effect, Subscribe};
use filters::{Answered, Filters};
use link::Link;
use logs::Logs;

/// Refusals are queued for the application up to this number of notices.
const MAX_NOTICES: usize = 1024;

/// What the application gets with received bytes.
#[derive(Debug)]
pub(super) struct HandedOut {
    pub(super) topic: TopicName,
    pub(super) framing: Framing,
    /// What of the log of a space the application wants.
    pub(super) space: Option<SpaceView>,
}

/// The machine. See the module.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    filters: Filters,
    buffers: Buffers,
    logs: Logs,
    clamped: ClampedOptions,
    link: Link,
    effects: VecDeque<Effect>,
    notices: VecDeque<Notice>,
    /// Filters that the broker has refused, for an application that asks for them.
    refused: BTreeMap<TopicFilter, RefusedFilter>,
}

/// The application's calls.
impl Subscriptions {
    pub(super) fn new(options: &SubscriberOptions) -> Self {
        Self { clamped: ClampedOptions::new(options.slow, options.hold), ..Self::default() }
    }

    /// The application subscribes to a filter. Returns the requests that are to be sent over this connection.
    pub(super) fn subscribe(&mut self, conn: u64, filter: &TopicFilter, start: StartFrom) -> Vec<Control> {
        if let StartFrom::Positions(positions) = &start {
            self.logs.add(positions);
        }
        let again = self.buffers.wanted_again(filter);
        let matched = !again.is_empty() || self.buffers.any_of(filter);
        let added = self.filters.add(filter, start, matched);
        again.into_iter().for_each(|topic| self.announce(topic));
        if added { self.request(conn, std::slice::from_ref(filter)) } else { Vec::new() }
    }

    /// The application ends the subscription of a filter. Returns the logs of which it gets nothing more.
    pub(super) fn unsubscribe(&mut self, filter: &TopicFilter) -> Vec<Epoch> {
        if !self.filters.remove(filter) {
            return Vec::new();
        }
        self.refused.remove(filter);
        let filters = &self.filters;
        let removed = self.buffers.remove_topics(|topic| !filters.any_is_for(topic));
        let mut left = Vec::with_capacity(removed.len());
        for buffer in removed {
            left.push(buffer.epoch());
            self.logs.forget(buffer.epoch());
            if buffer.is_subscribed() {
                self.effects.push_back(Effect::Unsubscribe(buffer.topic.bid));
            }
            // The announced buffer of a replay is another one.
            if !buffer.replay {
                let topic = Topic { fresh: false, ..buffer.topic };
                self.buffers.keep_unwanted(Buffer { topic, ..buffer });
            }
        }
        left
    }

    /// The application gets bytes of a buffer, up to this position. None: they are not wanted.
    pub(super) fn hand_out(&mut self, bid: Bid, to: Position) -> Option<HandedOut> {
        let buffer = self.buffers.get(bid).filter(|buffer| buffer.is_open())?;
        self.logs.hand_out(buffer.epoch(), to);
        let (topic, framing) = (buffer.name().clone(), buffer.topic.framing);
        let space = buffer.topic.space.clone().map(|space| SpaceView::new(space, self.filters.wanted()));
        Some(HandedOut { topic, framing, space })
    }

    /// The filters, for records of spaces.
    pub(super) fn wanted(&mut self) -> Arc<Levels<()>> {
        self.filters.wanted()
    }

    /// Bytes that were handed out had been overwritten.
    pub(super) fn on_overwritten(&mut self, epoch: Epoch, to: Position) {
        self.logs.skip(epoch, to);
    }

    /// The next notice for the application.
    pub(super) fn next_notice(&mut self) -> Option<Notice> {
        let report = |clamped: &mut ClampedOptions| clamped.reports.pop_front().map(Notice::OptionClamped);
        self.notices.pop_front().or_else(|| report(&mut self.clamped))
    }

    /// The filters that the broker has refused since the last call.
    pub(super) fn take_refused(&mut self) -> Vec<RefusedFilter> {
        std::mem::take(&mut self.refused).into_values().collect()
    }

    /// Whether the broker has answered all requests, and the subscriptions of all logs that it announced are in force.
    pub(super) fn is_settled(&self) -> bool {
        self.link.is_answered() && self.buffers.are_settled(|epoch| self.logs.is_present(epoch))
    }

    /// Whether every filter has matched a log, and all logs have ended and were received. The application takes a refusal
    /// first. Until the broker has answered, further logs may be announced.
    pub(super) fn has_ended(&self) -> bool {
        let answered = self.notices.is_empty() && self.link.is_answered();
        answered && self.filters.all_matched() && self.buffers.all_ended()
    }
}

/// The driver's part.
impl Subscriptions {
    /// The next effect.
    pub(super) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Whether effects wait.
    pub(super) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Whether the application's thread has something to do, besides the events of the rIn.
    pub(super) fn has_news(&self) -> bool {
        !self.notices.is_empty() || !self.clamped.reports.is_empty() || self.link.has_news()
    }

    /// The number of the broker process that the machine is connected to.
    pub(super) fn broker(&self) -> u64 {
        self.link.broker
    }

    /// Whether the application knows that the connection is lost, and not yet that it is back.
    pub(super) fn is_disconnected(&self) -> bool {
        self.link.is_disconnected()
    }

    /// Whether nothing can come before there is a connection.
    pub(super) fn is_waiting(&self) -> bool {
        self.link.is_waiting()
    }

    /// Why nothing more comes, if the client is over.
    pub(super) fn over(&self) -> Option<&ReceiveError> {
        self.link.over()
    }
}

/// The connection and the messages of the broker.
impl Subscriptions {
    fn request_all(&mut self, conn: u64) -> Vec<Control> {
        self.refused.clear();
        let (answered, others) = self.filters.all();
        let mut requests = if answered.is_empty() { Vec::new() } else { self.request(conn, &answered) };
        // The application waits for what the broker says of each of these.
        requests.extend(others.iter().flat_map(|filter| self.request(conn, std::slice::from_ref(filter))));
        requests
    }

    fn request(&mut self, conn: u64, filters: &[TopicFilter]) -> Vec<Control> {
        let topics = Control::topics(filters);
        self.link.on_requests(conn, &topics);
        let hold_ms = u32::try_from(self.clamped.hold().as_millis()).unwrap_or(u32::MAX);
        // Before all requests, of which another thread may send the first. The broker takes note of one for each connection.
        let hold = (hold_ms > 0).then_some(Control::Hold { hold_ms });
        hold.into_iter().chain(topics).collect()
    }

    /// A request is too large for every connection.
    pub(super) fn on_unsendable(&mut self, conn: u64, why: &str) {
        self.refused(None, format!("the request for topics cannot be sent: {why}"));
        self.on_answered(conn);
    }

    /// A connection replaces a lost one. At the same broker process the rIn resumes, after this call; the requests are to be sent then.
    /// Another process has other buffers: the application's thread moves there.
    pub(super) fn on_reconnected(&mut self, conn: u64, same_broker: bool) -> Vec<Control> {
        self.filters.on_connection_lost();
        self.link.on_replaced(same_broker);
        self.check_resumed();
        if !same_broker {
            return Vec::new();
        }
        self.buffers.on_reconnected();
        self.request_all(conn)
    }

    /// The application's thread takes the connection to another broker process; [`on_moved`](Self::on_moved) follows.
    pub(super) fn on_leaving(&mut self) {
        self.link.on_leaving();
    }

    /// The application's thread moves to another broker process: nothing that the first one announced holds. Returns the requests.
    pub(super) fn on_moved(&mut self, conn: u64) -> Vec<Control> {
        self.link.on_moved();
        self.effects.clear();
        self.buffers.forget();
        self.logs.leave_all();
        self.notices.push_back(Notice::Reconnected);
        self.request_all(conn)
    }

    /// Another subscriber has the place, or the context is shut down.
    pub(super) fn on_over(&mut self, why: ReceiveError) {
        self.link.on_over(why);
    }

    fn check_resumed(&mut self) {
        if self.link.take_resumed() {
            self.notices.push_back(Notice::Reconnected);
        }
    }

    /// The broker with this number sent a message. Messages of a broker process that was left are void.
    pub(super) fn on_control(&mut self, broker: u64, conn: u64, message: Control) {
        if broker != self.link.broker {
            return;
        }
        match message {
            Control::Topic(topic) => {
                self.buffers.on_announced(topic.bid);
                if self.filters.any_matches(&topic) {
                    // A buffer that is opened later has these limits too.
                    self.clamped.compare(&topic.topic);
                }
                self.announce(topic);
            }
            Control::TopicGone { bid, .. } => self.on_topic_gone(bid),
            Control::Limits(limits) => self.clamped.on_limits(limits),
            Control::TopicsDone => {
                // An earlier request for the same filter may have been refused.
                self.link.asked_first(conn).map(|filter| self.refused.remove(filter));
                self.on_answered(conn);
            }
            Control::Continues { bid, yes: true } => self.buffers.set_continues(bid, true),
            Control::Continues { bid, yes: false } => self.give_up(bid),
            Control::Replayed { bid, replay, start } => self.on_replayed(bid, replay, start),
            Control::Rejected { what, reason } => self.on_rejected(conn, what, &printable(&reason)),
            _ => {
                self.effects.push_back(Effect::Close("the broker sent a message that is not for subscribers"))
            }
        }
    }

    /// The broker refuses some of what a TOPICS message has asked for, or all of it; or rights are withdrawn.
    fn on_rejected(&mut self, conn: u64, what: Rejection, reason: &str) {
        self.refused(None, format!("the broker refused: {reason}"));
        if what == Rejection::Withdrawn {
            return;
        }
        self.buffers.on_rejected();
        // A filter with wildcards is refused if nothing comes of it, as all its topics are in a space that the user may not read.
        if let Some(filter) = self.link.asked_first(conn)
            && self.filters.on_refused(filter)
        {
            let (filter, is_limit) = (filter.clone(), what == Rejection::Limit);
            let refused = RefusedFilter { filter: filter.clone(), is_limit, reason: reason.to_owned() };
            self.refused.insert(filter, refused);
        }
        self.on_answered(conn);
    }

    /// The broker answered a TOPICS message.
    fn on_answered(&mut self, conn: u64) {
        if self.link.on_answer(conn) {
            self.filters.on_all_answered();
            for (bid, announced) in self.buffers.take_unconfirmed() {
                match announced || self.buffers.get(bid).is_some_and(Buffer::is_subscribed) {
                    true => self.give_up(bid),
                    false => self.on_topic_gone(bid),
                }
            }
        }
    }

    /// Queues a refusal for the application. If the application takes no notices while a broker refuses without end, it gets
    /// the first refusals.
    fn refused(&mut self, topic: Option<TopicName>, reason: String) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push_back(Notice::Refused { topic, reason });
        } else {
            debug!("a notice was dropped, since {MAX_NOTICES} others wait: {reason}");
        }
    }

    /// The log of a buffer does not continue in another buffer. If it was awaited, its publisher is gone.
    fn give_up(&mut self, bid: Bid) {
        self.buffers.set_continues(bid, false);
        let Some(buffer) = self.buffers.get(bid) else { return };
        if let Stage::Awaited(end) = buffer.stage {
            self.gone(buffer.name().clone(), buffer.epoch(), end);
            self.buffers.set_stage(bid, Stage::Ended);
        }
    }

    fn gone(&mut self, topic: TopicName, epoch: Epoch, end: Position) {
        self.logs.end(epoch);
        self.notices.push_back(Notice::Gone { topic, epoch, end });
    }

    fn on_topic_gone(&mut self, bid: Bid) {
        self.buffers.forget_unwanted(bid);
        self.give_up(bid);
        // An open buffer still has received data to hand out.
        if self.buffers.get(bid).is_none_or(Buffer::is_open) {
            return;
        }
        let Some(asked) = self.buffers.remove(bid).filter(|buffer| buffer.stage == Stage::Asked) else {
            return;
        };
        let epoch = asked.epoch();
        match self.logs.known(epoch) {
            Some(end) if self.buffers.next_of(epoch).is_none() => self.gone(asked.topic.topic, epoch, end),
            _ => self.go_on(epoch),
        }
    }

    /// The broker says which buffer has the first position of a kept log.
    fn on_replayed(&mut self, bid: Bid, replay: Option<Bid>, start: Position) {
        let Some(asked) = self.buffers.get(bid).filter(|buffer| buffer.stage == Stage::Asked) else { return };
        let (topic, begin) = (asked.topic.clone(), Begin::At(Start::Position(asked.epoch(), start)));
        match replay {
            None => self.open(topic, false, begin),
            Some(replay) => {
                self.buffers.set_stage(bid, Stage::Next);
                self.open(Topic { bid: replay, ..topic }, true, begin);
            }
        }
    }
}

/// Where a log is received.
impl Subscriptions {
    fn announce(&mut self, topic: Topic) {
        let (bid, epoch) = (topic.bid, Epoch(topic.epoch));
        // Announced again after a reconnect. The rIn resumes the subscription by itself.
        let is_known = |known: &Buffer| known.epoch() == epoch && known.is_subscribed();
        if self.buffers.get(bid).is_some_and(is_known) {
            return;
        }
        let Some((from, answered)) = self.filters.on_announced(&topic) else {
            return self.buffers.keep_unwanted(Buffer::new(topic, Stage::Next));
        };
        let mut others = self.buffers.of_epoch(epoch).filter(|other| other.topic.bid != bid);
        let stage = others.find_map(|other| match other.stage {
            Stage::Closed => Some(Stage::Ended),
            _ => other.is_present().then_some(Stage::Next),
        });
        drop(others);
        if let Some(stage) = stage {
            return self.buffers.insert(Buffer::new(topic, stage));
        }
        let follows = self.replaces_merged(&topic, &from);
        let begin = self.begin(&topic, &from, answered, follows);
        if follows && !matches!(begin, Begin::At(Start::Position(..))) {
            warn!(
                "topic '{}': log {epoch} replaces a merged log, of which messages may be missing",
                topic.topic
            );
            self.notices.push_back(Notice::LogReplaced { topic: topic.topic.clone(), epoch });
        }
        let awaited = |buffer: &&Buffer| matches!(buffer.stage, Stage::Awaited(_));
        let awaited = self.buffers.of_epoch(epoch).find(awaited).map(|buffer| buffer.topic.bid);
        if let Some(awaited) = awaited {
            self.buffers.set_stage(awaited, Stage::Ended);
        }
        if topic.kept && begin.may_need_replay() {
            debug!("topic '{}': buffer {bid} is asked for {begin:?}", topic.topic);
            self.buffers.insert(Buffer::new(topic, Stage::Asked));
            self.effects.push_back(Effect::Ask { bid, begin });
        } else {
            self.open(topic, false, begin);
        }
    }

    /// Where the subscription of a buffer begins (see the table above).
    fn begin(&self, topic: &Topic, from: &StartFrom, answered: Answered, follows: bool) -> Begin {
        let epoch = Epoch(topic.epoch);
        if let Some(left) = self.logs.resume(epoch) {
            return Begin::At(Start::Position(epoch, left.position));
        }
        if topic.fresh || follows || (answered == Answered::Fully && self.link.broker == 0) {
            return Begin::At(Start::First);
        }
        if answered != Answered::NotRequested {
            return Begin::At(Start::Oldest);
        }
        Begin::At(match from {
            StartFrom::Newest => Start::Newest,
            StartFrom::Last => Start::Last,
            StartFrom::Time(time) => return Begin::Since(*time),
            StartFrom::Oldest | StartFrom::Positions(_) => Start::Oldest,
            StartFrom::Position(position) => Start::Position(epoch, *position),
        })
    }

    /// Whether a merged log follows one of another broker process that this subscriber has received. Each broker process has merged
    /// logs of its own, so the new log began after the earlier one.
    fn replaces_merged(&self, topic: &Topic, from: &StartFrom) -> bool {
        let had = self.buffers.had_other_merged(topic) || matches!(from, StartFrom::Positions(_));
        topic.framing == Framing::Merged && had
    }

    /// Subscribes to a buffer.
    fn open(&mut self, topic: Topic, replay: bool, begin: Begin) {
        let (bid, epoch) = (topic.bid, Epoch(topic.epoch));
        let policy = if replay { Policy::Block } else { self.clamped.policy(&topic.topic) };
        debug!("topic '{}': buffer {bid} of {epoch}, beginning at {begin:?}", topic.topic);
        self.effects.push_back(Effect::Subscribe(Subscribe {
            bid,
            begin,
            policy,
            replay,
            named: self.filters.has_name(&topic),
            covered_from: self.logs.resume(epoch).map(|left| left.covered_from),
            max_delivery_bytes: topic.max_delivery_bytes,
        }));
        self.buffers.insert(Buffer { replay, ..Buffer::new(topic, Stage::Open(policy, begin)) });
    }

    /// A buffer cannot be subscribed to.
    pub(super) fn on_not_subscribed(&mut self, bid: Bid, why: &str) {
        // The application may have unsubscribed meanwhile.
        if let Some(buffer) = self.buffers.remove(bid) {
            self.logs.end(buffer.epoch());
            self.refused(Some(buffer.topic.topic), format!("cannot subscribe: {why}"));
        }
    }

    /// Begins with a buffer again, where its log was left.
    fn open_again(&mut self, bid: Bid) {
        self.buffers.set_stage(bid, Stage::Next);
        if let Some(topic) = self.buffers.get(bid).map(|buffer| buffer.topic.clone()) {
            self.announce(topic);
        }
    }

    /// A buffer has ended here. Its log may continue in another buffer.
    fn go_on(&mut self, epoch: Epoch) {
        if let Some(next) = self.buffers.next_of(epoch) {
            self.announce(next.topic.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(machine: &mut Subscriptions, conn: u64, is_limit: bool) {
        let what = if is_limit { Rejection::Limit } else { Rejection::Rights };
        machine.on_control(0, conn, Control::Rejected { what, reason: "no".into() });
    }

    #[test]
    fn a_refusal_names_the_filter_of_its_request() {
        let mut machine = Subscriptions::default();
        let filters = ["a", "b/+", "c/+"].map(|filter| filter.parse::<TopicFilter>().unwrap());
        filters.iter().for_each(|filter| _ = machine.subscribe(1, filter, StartFrom::Newest));
        rejected(&mut machine, 1, false);
        machine.on_control(0, 1, Control::TopicsDone);
        // Rights have changed: no request is answered.
        machine.on_control(0, 1, Control::Rejected { what: Rejection::Withdrawn, reason: "no".into() });
        assert!(!machine.is_settled());
        rejected(&mut machine, 1, true);
        assert!(machine.is_settled());
        let refused = |at: usize, is_limit| RefusedFilter {
            filter: filters[at].clone(),
            is_limit,
            reason: "no".into(),
        };
        assert_eq!(machine.take_refused(), [refused(0, false), refused(2, true)]);
        assert!(machine.take_refused().is_empty());
        // Without a request, as older brokers say that rights have changed.
        rejected(&mut machine, 1, false);
        assert!(machine.take_refused().is_empty() && machine.is_settled());
        // Filters whose requests are not answered are asked for one by one after a reconnect, and the others together.
        let late: TopicFilter = "d".parse().unwrap();
        machine.subscribe(1, &late, StartFrom::Newest);
        let requests = machine.on_reconnected(2, true);
        let of = |request: &Control| match request {
            Control::Topics { filters } => filters.len(),
            _ => 0,
        };
        assert_eq!(requests.iter().map(of).collect::<Vec<_>>(), [3, 1]);
        machine.on_control(0, 2, Control::TopicsDone);
        rejected(&mut machine, 1, false);
        rejected(&mut machine, 2, false);
        let filter = late.clone();
        assert_eq!(machine.take_refused(), [RefusedFilter { filter, is_limit: false, reason: "no".into() }]);
        assert!(machine.is_settled());
    }

    #[test]
    fn a_refused_filter_is_asked_for_again() {
        let mut machine = Subscriptions::default();
        let a: TopicFilter = "a/+".parse().unwrap();
        let ask = |machine: &mut Subscriptions| machine.subscribe(1, &a, StartFrom::Newest).len();
        assert_eq!((ask(&mut machine), ask(&mut machine)), (1, 0));
        rejected(&mut machine, 1, false);
        assert_eq!((ask(&mut machine), ask(&mut machine)), (1, 0), "over this connection");
        // Its request is not answered: alone over the next one.
        let b: TopicFilter = "b".parse().unwrap();
        machine.subscribe(1, &b, StartFrom::Newest);
        assert_eq!(machine.on_reconnected(2, true).len(), 2);
        rejected(&mut machine, 2, false);
        rejected(&mut machine, 2, false);
        assert_eq!(machine.take_refused().len(), 2);
        // The last answer counts.
        machine.subscribe(2, &b, StartFrom::Newest);
        machine.unsubscribe(&b);
        machine.subscribe(2, &b, StartFrom::Newest);
        rejected(&mut machine, 2, false);
        machine.on_control(0, 2, Control::TopicsDone);
        assert!(machine.is_settled() && machine.take_refused().is_empty());
        // And none for filters that are not there any more.
        machine.subscribe(2, &a, StartFrom::Newest);
        machine.unsubscribe(&a);
        rejected(&mut machine, 2, false);
        assert!(machine.take_refused().is_empty());
    }

    #[test]
    fn refusals_that_the_application_does_not_take_are_bounded() {
        let mut machine = Subscriptions::default();
        (0..2 * MAX_NOTICES).for_each(|n| machine.refused(None, n.to_string()));
        assert_eq!(machine.notices.len(), MAX_NOTICES);
        assert_eq!(machine.notices[0], Notice::Refused { topic: None, reason: "0".into() });
    }
}
