//! The state of a publisher's topics, shared with their writers, the callbacks of the framework and the reconnecting thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{self, Poll, Waker};
use std::time::Duration;

use rocketbufs::error::ControlError;
use rocketbufs::{Bid, Conn, ROut};
use tracing::{debug, info, warn};

use crate::connection::{Connection, lock, send_patiently, wait_while};
use crate::ground::error::{Over, PublisherWaitError, TopicEnd};
use crate::state::confirm::{Asks, Confirmations, Requests, send_requests};
use crate::state::disk_asks::DiskAsks;
use crate::state::event::{PublisherEvent, PublisherEvents};
use crate::wire::{Control, Framing, RefuseCode, TopicName};

/// How long closing may take by default.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The state that a publisher shares with the writers of its topics.
pub(crate) struct PublisherShared {
    pub(crate) connection: Connection,
    pub(crate) out: Arc<ROut>,
    pub(crate) topics: Topics,
    pub(crate) events: Arc<PublisherEvents>,
    pub(crate) asks: Arc<DiskAsks>,
}

impl PublisherShared {
    /// The topics take nothing more, also those that are being opened. Calls that wait end.
    pub(crate) fn end_topics(&self, over: Over) {
        self.connection.set_over(over);
        end_topics(&self.topics, over);
    }

    /// Nothing more is confirmed, and no event follows.
    pub(crate) fn end(&self, over: Over) {
        end(&self.topics, &self.events, over);
    }

    /// Removes a topic.
    pub(crate) fn remove(&self, bid: Bid) {
        lock(&self.topics).remove(&bid);
    }
}

impl Asks for PublisherShared {
    fn ask(&self, bid: Bid, requests: &Requests) {
        send_requests(&self.out, bid, requests);
        if let Some(wanted) = requests.of_disk {
            self.asks.send(&self.connection.conn(), bid, wanted);
        }
    }
}

/// The topics of a publisher that is over take nothing more.
pub(crate) fn end_topics(topics: &Topics, over: Over) {
    all(topics).iter().for_each(|topic| topic.update(|state| state.over = state.over.or(Some(over))));
}

/// The confirmations and events of a publisher that is over end.
pub(crate) fn end(topics: &Topics, events: &PublisherEvents, over: Over) {
    all(topics).iter().for_each(|topic| topic.confirmations.close(over));
    events.close(over);
}

fn all(topics: &Topics) -> Vec<Arc<TopicState>> {
    lock(topics).values().cloned().collect()
}

/// The topics of a publisher.
pub(crate) type Topics = Arc<Mutex<HashMap<Bid, Arc<TopicState>>>>;

/// A topic of this publisher, and the broker's answers about it.
pub(crate) struct TopicState {
    pub(crate) topic: TopicName,
    pub(crate) bid: Bid,
    pub(crate) framing: Framing,
    pub(crate) ring_bytes: u64,
    pub(crate) max_delivery_bytes: u64,
    pub(crate) min_subscribers: u32,
    /// Whether publishing must look at `state` first: the topic is refused or over, or has too few subscribers. Read for every record;
    /// written under the lock of `state`.
    pub(crate) stopped: AtomicBool,
    pub(crate) confirmations: Arc<Confirmations>,
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar,
    /// The task of the writer, while it waits.
    pub(crate) task: Mutex<Option<Waker>>,
    pub(crate) events: Arc<PublisherEvents>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) accepted: bool,
    pub(crate) ended: bool,
    pub(crate) refusal: Option<(RefuseCode, String)>,
    /// The publisher is over.
    pub(crate) over: Option<Over>,
    pub(crate) subscribers: u32,
}

impl State {
    /// Whether the broker has taken or refused the topic, or never will.
    pub(crate) fn is_answered(&self) -> bool {
        self.accepted || self.is_ended()
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
    /// Names the topic to the broker. Answers over earlier connections no longer count, except for the end of the topic.
    pub(crate) fn create(&self, conn: &Conn) {
        let mut state = lock(&self.state);
        *state = State { ended: state.ended, over: state.over, ..State::default() };
        self.stopped.store(!self.may_publish(&state), Ordering::Release);
        drop(state);
        self.confirmations.on_naming();
        let create = Control::Create {
            bid: self.bid,
            framing: self.framing,
            ring_bytes: self.ring_bytes,
            max_delivery_bytes: self.max_delivery_bytes,
            min_subscribers: self.min_subscribers,
            topic: self.topic.clone(),
        };
        match send_patiently(conn, &create) {
            Ok(()) => {}
            Err(error @ ControlError::TooLarge { .. }) => {
                self.on_refused(RefuseCode::Internal, format!("the request cannot be sent: {error}"));
            }
            // The next connection sends the request again.
            Err(error) => debug!("the request for topic '{}' was not sent: {error}", self.topic),
        }
    }

    /// The broker does not take the topic.
    pub(crate) fn on_refused(&self, code: RefuseCode, reason: String) {
        self.confirmations.refuse(&reason);
        let (topic, text) = (self.topic.clone(), reason.clone());
        self.update(|state| state.refusal = Some((code, reason)));
        self.events.push(PublisherEvent::TopicRefused { topic, code, reason: text });
    }

    /// The broker's disk takes nothing, or works again (an empty text).
    pub(crate) fn on_disk(&self, failure: String) {
        let topic = self.topic.clone();
        let known = self.confirmations.disk_failure();
        let failure = (!failure.is_empty()).then_some(failure);
        self.confirmations.on_disk_failure(failure.clone());
        match failure {
            Some(reason) if known.as_ref() != Some(&reason) => {
                warn!("the broker's disk takes nothing of topic '{topic}': {reason}");
                self.events.push(PublisherEvent::DiskFailed { topic, reason });
            }
            None if known.is_some() => {
                info!("the broker's disk takes topic '{topic}' again");
                self.events.push(PublisherEvent::DiskRecovered { topic });
            }
            _ => {}
        }
    }

    /// The number of subscribers changed.
    pub(crate) fn on_subscribers(&self, count: u32) {
        self.update(|state| state.subscribers = count);
        self.events.push(PublisherEvent::Subscribers { topic: self.topic.clone(), count });
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        change(&mut state);
        self.stopped.store(!self.may_publish(&state), Ordering::Release);
        drop(state);
        self.changed.notify_all();
        if let Some(task) = lock(&self.task).take() {
            task.wake();
        }
    }

    /// For the task of the writer: ready when `done`. Otherwise the next change wakes the task.
    pub(crate) fn poll(&self, task: &mut task::Context<'_>, done: impl Fn(&State) -> bool) -> Poll<()> {
        if done(&lock(&self.state)) {
            return Poll::Ready(());
        }
        *lock(&self.task) = Some(task.waker().clone());
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
        wanted: u32,
        timeout: Option<Duration>,
    ) -> Result<(), PublisherWaitError> {
        self.wait(timeout, |state| state.subscribers >= wanted || state.is_ended());
        let (present, topic) = (self.subscribers(), self.topic.clone());
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
