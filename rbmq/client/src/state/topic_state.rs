//! The state of a publisher's topics, shared with their writers, the callbacks of the framework and the reconnecting thread.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{self, Poll, Waker};
use std::time::{Duration, Instant};

use rocketbufs::error::ControlError;
use rocketbufs::relay::RetentionHold;
use rocketbufs::{Bid, Conn, Epoch, Position};
use tracing::{debug, info, warn};

use crate::connection::{lock, send_patiently, wait_while};
use crate::ground::error::{Over, PublisherWaitError, TopicEnd};
use crate::state::confirm::Confirmations;
use crate::state::conn_places::{NOWHERE, PlaceId};
use crate::state::event::{PublisherEvent, PublisherEvents};
use crate::state::in_space::InSpace;
use crate::wire::{Control, Framing, RefuseCode, Space, TopicFilter, TopicName};

/// How long closing may take by default.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The topics of a publisher.
pub(crate) type Topics = Arc<Mutex<HashMap<Bid, Arc<TopicState>>>>;

/// More writers than this of a log are not told of events one by one, but under the name of the log.
const MAX_NAMED: usize = 64;

/// The topics of the writers of the log of a space; of another topic, none.
#[derive(Default)]
pub(crate) struct Names {
    /// By the ids of the writers.
    open: Mutex<BTreeMap<u64, TopicName>>,
    /// The writers that found no room.
    waiting: Mutex<BTreeMap<u64, TopicName>>,
}

impl Names {
    pub(crate) fn add(&self, id: u64, topic: &TopicName) {
        lock(&self.open).insert(id, topic.clone());
    }

    pub(crate) fn wait_for_room(&self, id: u64, topic: &TopicName) {
        lock(&self.waiting).insert(id, topic.clone());
    }
}

/// A topic of this publisher, and the broker's answers about it.
pub(crate) struct TopicState {
    pub(crate) topic: TopicName,
    pub(crate) bid: Bid,
    pub(crate) framing: Framing,
    pub(crate) ring_bytes: u64,
    /// The largest delivery of the ring as it is now.
    pub(crate) max_delivery_bytes: AtomicU64,
    /// Whether the ring grows for larger deliveries: its user has not said how large they are.
    pub(crate) grows: bool,
    /// The largest delivery for which the ring may grow, as the broker says; 0: none.
    pub(crate) largest_bytes: AtomicU64,
    pub(crate) min_subscribers: u32,
    /// Whether publishing must look at `state` first: the topic is refused or over, or has too few subscribers. Read for every record;
    /// written under the lock of `state`.
    pub(crate) stopped: AtomicBool,
    pub(crate) confirmations: Arc<Confirmations>,
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar,
    /// The tasks of the writers, while they wait, by the ids of the writers.
    pub(crate) tasks: Mutex<BTreeMap<u64, Waker>>,
    pub(crate) events: Arc<PublisherEvents>,
    /// The space of which the topic is the log.
    pub(crate) space: Option<Space>,
    /// What the broker says about the topic's space.
    pub(crate) in_space: Mutex<SpaceAnswer>,
    pub(crate) names: Names,
}

/// The most patterns of earlier rules: the most rules that a broker has.
const MAX_BEFORE: usize = 1000;

/// What no broker says about the space of a topic.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpaceAnswerError {
    #[error("the broker says that topic '{topic}' is in the space '{pattern}'")]
    OtherSpace { topic: TopicName, pattern: TopicFilter },
    #[error("the broker names more than {MAX_BEFORE} patterns of rules before the space of topic '{topic}'")]
    TooManyPatterns { topic: TopicName },
}

/// What the broker says about the space of a topic.
#[derive(Default)]
pub(crate) struct SpaceAnswer {
    /// The patterns of the messages so far.
    before: Vec<TopicFilter>,
    pub(crate) in_space: Option<Arc<InSpace>>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) accepted: bool,
    /// The broker has taken the topic over this connection or an earlier one.
    pub(crate) was_accepted: bool,
    pub(crate) ended: bool,
    pub(crate) refusal: Option<(RefuseCode, String)>,
    /// The publisher is over.
    pub(crate) over: Option<Over>,
    pub(crate) subscribers: u32,
    /// The topic is one of a space: its records go into the log.
    pub(crate) redirected: bool,
    /// The broker that has the topic, or is asked for it; none while the topic is on its way to one.
    pub(crate) place: PlaceId,
    /// Counts the departures of the topic from brokers.
    pub(crate) journey: u64,
    /// The steps from broker to broker since one has taken the topic, or was away.
    pub(crate) steps: u32,
    /// The steps to brokers that took the topic or not, until it has stayed at one for a while.
    pub(crate) hops: u32,
    /// When the broker took the topic.
    pub(crate) taken_at: Option<Instant>,
    /// How often brokers that have the topic were away, since one has taken it.
    pub(crate) failures: u32,
    /// The position that the broker said last since the topic was named to it.
    pub(crate) told: Option<Position>,
    /// The name of the topic's log, and how much of it the broker had that gave the topic away, until the next one has taken it. Of a
    /// broker that is lost nobody knows what it still has.
    pub(crate) former: Option<(Epoch, Position)>,
    /// The addresses that a broker named last.
    pub(crate) last_named: String,
    /// Why the broker that has the topic is not there.
    pub(crate) trouble: Option<String>,
    /// Keeps what no broker has, from the end at one broker to the beginning at the next.
    pub(crate) hold: Option<RetentionHold>,
}

impl State {
    /// Whether the broker has taken or refused the topic, or never will.
    pub(crate) fn is_answered(&self) -> bool {
        self.accepted || self.redirected || self.is_ended()
    }

    /// Whether the topic takes nothing more: it is refused, or its publisher is over.
    pub(crate) fn is_ended(&self) -> bool {
        self.refusal.is_some() || self.over.is_some()
    }

    /// Why the topic takes nothing more.
    pub(crate) fn end(&self) -> Option<TopicEnd> {
        let refused = || self.refusal.clone().map(|(code, reason)| TopicEnd::Refused(code, reason));
        self.over.map(TopicEnd::Over).or_else(refused)
    }
}

impl TopicState {
    /// Answers over earlier connections no longer count, except for the end of the topic. Returns the place at a former broker.
    fn forget_answer(&self) -> Option<(Epoch, Position)> {
        let mut state = lock(&self.state);
        (state.accepted, state.refusal, state.redirected, state.subscribers) = (false, None, false, 0);
        state.told = None;
        // Another broker, or the same one with other settings, may take less.
        self.largest_bytes.store(0, Ordering::Relaxed);
        self.stopped.store(!self.may_publish(&state), Ordering::Release);
        state.former
    }

    /// Names the topic to the broker, whose answer counts and no earlier one.
    pub(crate) fn create(&self, conn: &Conn) {
        let former = self.forget_answer();
        lock(&self.in_space).before.clear();
        self.confirmations.on_naming();
        let create = Control::Create {
            bid: self.bid,
            framing: self.framing,
            ring_bytes: self.ring_bytes,
            max_delivery_bytes: self.max_delivery_bytes(),
            min_subscribers: self.min_subscribers,
            topic: self.topic.clone(),
        };
        // What another broker has is not sent to this one again.
        let place = former.map(|(Epoch(epoch), position)| Control::Place { bid: self.bid, epoch, position });
        let placed = place.map_or(Ok(()), |place| send_patiently(conn, &place));
        match placed.and_then(|()| send_patiently(conn, &create)) {
            Ok(()) => {}
            Err(error @ ControlError::TooLarge { .. }) => {
                self.on_refused(RefuseCode::Internal, format!("the request cannot be sent: {error}"));
            }
            // The next connection sends the request again.
            Err(error) => debug!("the request for topic '{}' was not sent: {error}", self.topic),
        }
    }

    /// The connection to the broker is lost. Until one answers again, nobody knows which deliveries it takes.
    pub(crate) fn on_away(&self) {
        lock(&self.state).accepted = false;
    }

    /// The largest delivery of the ring as it is now.
    pub(crate) fn max_delivery_bytes(&self) -> u64 {
        self.max_delivery_bytes.load(Ordering::Relaxed)
    }

    /// The largest delivery that there may be, for which the ring grows.
    pub(crate) fn largest_bytes(&self) -> u64 {
        let largest = if self.grows { self.largest_bytes.load(Ordering::Relaxed) } else { 0 };
        largest.max(self.max_delivery_bytes())
    }

    /// The largest delivery by the broker's answer, in bytes. None: no answer yet. The answer and its number are read at once:
    /// between the two a reconnect would make each large message too large.
    pub(crate) fn answered_largest(&self) -> Option<u64> {
        let state = lock(&self.state);
        state.is_answered().then(|| self.largest_bytes())
    }

    /// The broker that has the topic, or is asked for it.
    pub(crate) fn place(&self) -> PlaceId {
        lock(&self.state).place
    }

    /// The topic leaves a broker, if it is there. Returns the number of its journey.
    pub(crate) fn depart(&self, from: PlaceId, change: impl FnOnce(&mut State)) -> Option<u64> {
        let mut journey = None;
        self.update(|state| {
            if state.place == from {
                (state.place, state.journey) = (NOWHERE, state.journey + 1);
                journey = Some(state.journey);
                change(state);
            }
        });
        journey
    }

    /// The topic arrives at a broker, unless it has set out for another one.
    pub(crate) fn arrive(&self, place: PlaceId, journey: u64) -> bool {
        let mut arrives = false;
        self.update(|state| {
            arrives = state.place == NOWHERE && state.journey == journey;
            if arrives {
                state.place = place;
            }
        });
        arrives
    }

    /// Why the broker that has the topic is not there.
    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.state).trouble.clone()
    }

    /// The broker has taken the topic, and has its own place in the buffer.
    pub(crate) fn on_created(&self) {
        let mut hold = None;
        self.update(|state| {
            (state.accepted, state.was_accepted) = (true, true);
            (state.steps, state.failures, state.trouble) = (0, 0, None);
            (hold, state.former, state.taken_at) = (state.hold.take(), None, Some(Instant::now()));
        });
        drop(hold);
    }

    /// The broker does not take the topic.
    pub(crate) fn on_refused(&self, code: RefuseCode, reason: String) {
        self.confirmations.refuse(&reason);
        let text = reason.clone();
        self.update(|state| state.refusal = Some((code, reason)));
        self.tell(|topic| PublisherEvent::TopicRefused { topic, code, reason: text.clone() });
    }

    /// The broker says that the topic is in a space, or of the log of a space which topics are in it.
    ///
    /// # Errors
    /// No broker says this.
    pub(crate) fn on_in_space(
        &self,
        more: bool,
        space: Space,
        before: Vec<TopicFilter>,
    ) -> Result<(), SpaceAnswerError> {
        let is_right = match &self.space {
            Some(asked) => *asked == space,
            None => space.contains(self.topic.as_str()),
        };
        if !is_right {
            let (topic, pattern) = (self.topic.clone(), space.pattern().clone());
            return Err(SpaceAnswerError::OtherSpace { topic, pattern });
        }
        let mut answer = lock(&self.in_space);
        answer.before.extend(before);
        if answer.before.len() > MAX_BEFORE {
            answer.before = Vec::new();
            return Err(SpaceAnswerError::TooManyPatterns { topic: self.topic.clone() });
        }
        if more {
            return Ok(());
        }
        let before = std::mem::take(&mut answer.before);
        answer.in_space = Some(Arc::new(InSpace::new(space, &before)));
        drop(answer);
        if self.space.is_some() {
            return Ok(());
        }
        let was_taken = lock(&self.state).was_accepted;
        if was_taken {
            let reason = "the topic is in a space now, and its log goes elsewhere: open it again";
            self.on_refused(RefuseCode::Invalid, reason.to_owned());
        } else {
            self.update(|state| state.redirected = true);
        }
        Ok(())
    }

    /// Tells the application of something, under the names of all writers.
    fn tell(&self, event: impl Fn(TopicName) -> PublisherEvent) {
        let names: Vec<TopicName> = {
            let open = lock(&self.names.open);
            if (1..=MAX_NAMED).contains(&open.len()) { open.values().cloned().collect() } else { Vec::new() }
        };
        if names.is_empty() {
            return self.events.push(event(self.topic.clone()));
        }
        names.into_iter().for_each(|topic| self.events.push(event(topic)));
    }

    /// The buffer has room again. The writers that found none are told.
    pub(crate) fn on_room(&self) {
        let waiting = std::mem::take(&mut *lock(&self.names.waiting));
        waiting.into_values().for_each(|topic| self.events.push(PublisherEvent::Room { topic }));
    }

    /// A writer is dropped.
    pub(crate) fn forget(&self, id: u64) {
        lock(&self.tasks).remove(&id);
        lock(&self.names.open).remove(&id);
        lock(&self.names.waiting).remove(&id);
    }

    /// The broker's disk takes nothing, or works again (an empty text).
    pub(crate) fn on_disk(&self, failure: String) {
        let topic = &self.topic;
        let known = self.confirmations.disk_failure();
        let failure = (!failure.is_empty()).then_some(failure);
        self.confirmations.on_disk_failure(failure.clone());
        match failure {
            Some(reason) if known.as_ref() != Some(&reason) => {
                warn!("the broker's disk takes nothing of topic '{topic}': {reason}");
                self.tell(|topic| PublisherEvent::DiskFailed { topic, reason: reason.clone() });
            }
            None if known.is_some() => {
                info!("the broker's disk takes topic '{topic}' again");
                self.tell(|topic| PublisherEvent::DiskRecovered { topic });
            }
            _ => {}
        }
    }

    /// The number of subscribers changed.
    pub(crate) fn on_subscribers(&self, count: u32) {
        self.update(|state| state.subscribers = count);
        self.tell(|topic| PublisherEvent::Subscribers { topic, count });
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        change(&mut state);
        self.stopped.store(!self.may_publish(&state), Ordering::Release);
        drop(state);
        self.changed.notify_all();
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.into_values().for_each(Waker::wake);
    }

    /// For the task of a writer: ready when `done`. Otherwise the next change wakes the task.
    pub(crate) fn poll(
        &self,
        id: u64,
        task: &mut task::Context<'_>,
        done: impl Fn(&State) -> bool,
    ) -> Poll<()> {
        if done(&lock(&self.state)) {
            return Poll::Ready(());
        }
        lock(&self.tasks).insert(id, task.waker().clone());
        // A change may have come before the task was known.
        if done(&lock(&self.state)) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether publishing may continue, or never will: there are enough subscribers, or the topic takes nothing more.
    pub(crate) fn is_settled(&self, state: &State) -> bool {
        state.subscribers >= self.min_subscribers || state.is_ended()
    }

    /// Whether publishing may continue.
    pub(crate) fn may_publish(&self, state: &State) -> bool {
        state.subscribers >= self.min_subscribers && !state.is_ended()
    }

    /// Whether the broker has the end of the topic's log.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// Waits until `done`; false if the time passed first.
    pub(crate) fn wait(&self, timeout: Option<Duration>, mut done: impl FnMut(&State) -> bool) -> bool {
        wait_while(&self.state, &self.changed, timeout, |state| !done(state))
    }

    /// Why the topic takes nothing more, if it does not.
    pub(crate) fn end(&self) -> Option<TopicEnd> {
        lock(&self.state).end()
    }

    pub(crate) fn subscribers(&self) -> u32 {
        lock(&self.state).subscribers
    }

    /// Waits until there are enough subscribers to publish, or the topic takes nothing more. Returns the number of subscribers if they are too
    /// few then.
    pub(crate) fn too_few(&self, timeout: Duration) -> Option<u32> {
        if !self.stopped.load(Ordering::Acquire) {
            return None;
        }
        let enough = self.wait(Some(timeout), |state| self.is_settled(state));
        (!enough).then(|| self.subscribers())
    }

    /// Waits until the topic has `wanted` subscribers.
    pub(crate) fn wait_subscribers(
        &self,
        topic: &TopicName,
        wanted: u32,
        timeout: Option<Duration>,
    ) -> Result<(), PublisherWaitError> {
        self.wait(timeout, |state| state.subscribers >= wanted || state.is_ended());
        let (present, topic) = (self.subscribers(), topic.clone());
        match self.end() {
            Some(end) => Err(end.of_wait(topic)),
            None if present < wanted => {
                let waited = timeout.unwrap_or_default();
                Err(PublisherWaitError::TooFewSubscribers { topic, present, wanted, waited })
            }
            None => Ok(()),
        }
    }

    /// Waits until the broker has the end of the topic's log.
    pub(crate) fn wait_ended(&self, timeout: Option<Duration>) -> bool {
        self.wait(timeout, |state| state.ended || state.is_ended()) && lock(&self.state).ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(topic: &str, space: Option<Space>) -> TopicState {
        TopicState {
            topic: topic.parse().unwrap(),
            bid: 1,
            framing: Framing::Records,
            ring_bytes: 1 << 16,
            max_delivery_bytes: AtomicU64::new(1 << 10),
            grows: true,
            largest_bytes: AtomicU64::new(0),
            min_subscribers: 0,
            stopped: AtomicBool::new(false),
            confirmations: Arc::new(Confirmations::new(0, 0)),
            state: Mutex::default(),
            changed: Condvar::new(),
            tasks: Mutex::default(),
            events: Arc::default(),
            space,
            in_space: Mutex::default(),
            names: Names::default(),
        }
    }

    fn space(pattern: &str) -> Space {
        Space::new(&pattern.parse().unwrap()).unwrap()
    }

    /// Every answer that is seen has its number, whatever reconnects come meanwhile.
    #[test]
    fn a_reconnect_takes_an_answer_and_its_number_at_once() {
        let topic = state("d/x", None);
        std::thread::scope(|both| {
            let brokers = both.spawn(|| {
                for _ in 0..20_000 {
                    topic.largest_bytes.store(1 << 23, Ordering::Relaxed);
                    topic.on_created();
                    topic.on_away();
                    topic.forget_answer();
                }
            });
            while !brokers.is_finished() {
                assert!(matches!(topic.answered_largest(), None | Some(0x80_0000)));
            }
        });
    }

    #[test]
    fn a_broker_that_lies_about_spaces_is_not_believed() {
        for (topic, of, said, is_right) in [
            ("d/x", None, "d/#", true),
            ("d/x", None, "#", true),
            ("d/x", None, "e/#", false),
            ("$space/d", Some("d/#"), "d/#", true),
            ("$space/d", Some("d/#"), "#", false),
        ] {
            let answer = state(topic, of.map(space)).on_in_space(false, space(said), Vec::new());
            assert_eq!(answer.is_ok(), is_right, "{topic} {said}");
        }
    }

    #[test]
    fn an_answer_about_a_space_does_not_grow_for_ever() {
        let topic = state("d/x", None);
        let patterns: Vec<TopicFilter> = vec!["d/own/#".parse().unwrap(); MAX_BEFORE / 2];
        for _ in 0..2 {
            topic.on_in_space(true, space("d/#"), patterns.clone()).unwrap();
        }
        let error = topic.on_in_space(true, space("d/#"), patterns[..1].to_vec()).unwrap_err();
        assert!(error.to_string().contains("more than 1000 patterns"), "{error}");
        assert_eq!(lock(&topic.in_space).before.capacity(), 0);
    }
}
