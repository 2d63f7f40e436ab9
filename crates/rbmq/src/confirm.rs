//! Confirmations: how far published records have come, as futures and as calls that wait.
//!
//! Positions are cumulative: a topic has one position for each level, and the waiting confirmations are ordered lists with a
//! limit. The broker is asked only about the first confirmation of each list. Its answer may complete many of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rocketbufs::Coverage;
use rocketbufs::{Bid, Position, ROut};

use super::confirm_tracker::{ConfirmTracker, LostRange};
use super::connection::{lock, wait_while};
use super::error::ConfirmError;
use super::level::{ConfirmLevel, Confirmed};
use crate::wire::TopicName;

/// The result of a confirmation.
pub type ConfirmResult = Result<Confirmed, ConfirmError>;

/// The confirmed positions of one topic, and the confirmations that wait.
pub(super) struct Confirmations {
    topic: TopicName,
    /// The most confirmations that wait at a time.
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tracker: ConfirmTracker,
    waiting: [BTreeMap<(Position, u64), Arc<Slot>>; 3],
    /// The confirmations that the application waits for or has looked at. The others are completed by regular reports.
    wanted: [BTreeSet<(Position, u64)>; 3],
    /// The last requests to the broker.
    requested: Requests,
    next_id: u64,
    closed: bool,
}

impl State {
    /// The first wanted position of each level, unless the last request named it. The confirmations behind it are completed
    /// by the answer, or requested then.
    fn next_requests(&mut self) -> Requests {
        let firsts = self.wanted.each_ref().map(|wanted| wanted.first().map(|(position, _)| *position));
        let mut requests = firsts;
        for (request, last) in requests.iter_mut().zip(self.requested) {
            *request = request.filter(|position| Some(*position) != last);
        }
        self.requested = firsts;
        requests
    }
}

/// Where a confirmation gets its result.
#[derive(Default)]
struct Slot {
    state: Mutex<SlotState>,
    changed: Condvar,
}

#[derive(Default)]
struct SlotState {
    result: Option<ConfirmResult>,
    waker: Option<Waker>,
}

impl Slot {
    fn put(&self, result: ConfirmResult) {
        let mut state = lock(&self.state);
        state.result.get_or_insert(result);
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The positions about which to ask the broker, by level; none: no new request.
pub(super) type Requests = [Option<Position>; 3];

/// Asks the broker to report as soon as these positions are confirmed.
pub(super) fn send_requests(out: &Weak<ROut>, bid: Bid, requests: Requests) {
    let Some(buffer) = out.upgrade().and_then(|out| out.buffer(bid)) else { return };
    for (level, position) in ConfirmLevel::ALL.into_iter().zip(requests) {
        if let Some(position) = position {
            buffer.request_confirm(level.framework(), position);
        }
    }
}

impl Confirmations {
    /// At most `limit` confirmations wait at a time. A range that fewer than `min_subscribers` have counts as lost.
    pub(super) fn new(topic: TopicName, (limit, min_subscribers): (usize, u32)) -> Self {
        let state = State { tracker: ConfirmTracker::new(min_subscribers), ..State::default() };
        Self { topic, limit, state: Mutex::new(state) }
    }

    /// Begins a confirmation of `position`. The broker is asked when the application waits for it.
    pub(super) fn begin(
        self: &Arc<Self>,
        level: ConfirmLevel,
        position: Position,
        (end, refusal): (Position, Option<String>),
        buffer: (Weak<ROut>, Bid),
    ) -> Confirmation {
        let slot = Arc::new(Slot::default());
        let mut state = lock(&self.state);
        let id = state.next_id;
        state.next_id += 1;
        let waiting: usize = state.waiting.iter().map(BTreeMap::len).sum();
        if let Some(result) = self.outcome(&state, level, position, end) {
            slot.put(result);
        } else if waiting >= self.limit {
            slot.put(Err(ConfirmError::TooMany { topic: self.topic.clone(), waiting, limit: self.limit }));
        } else if let Some(reason) = refusal {
            let (topic, confirmed) = (self.topic.clone(), state.tracker.confirmed(level));
            slot.put(Err(ConfirmError::Refused { topic, level, confirmed, reason }));
        } else {
            state.waiting[level as usize].insert((position, id), slot.clone());
        }
        drop(state);
        Confirmation { confirmations: self.clone(), slot, level, position, id, buffer }
    }

    fn outcome(
        &self,
        state: &State,
        level: ConfirmLevel,
        position: Position,
        end: Position,
    ) -> Option<ConfirmResult> {
        let (topic, confirmed) = (self.topic.clone(), state.tracker.confirmed(level));
        if position > end {
            return Some(Err(ConfirmError::NotPublished { topic, position, end }));
        }
        match state.tracker.outcome(level, position) {
            Some(Ok(confirmed)) => Some(Ok(confirmed)),
            Some(Err((from, to))) => Some(Err(match state.tracker.too_few(level) {
                Some((subscribers, wanted)) => {
                    ConfirmError::TooFew { topic, level, confirmed, from, to, subscribers, wanted }
                }
                None => ConfirmError::Lost { topic, level, confirmed, from, to },
            })),
            None if state.closed => Some(Err(ConfirmError::Closed { topic, level, confirmed })),
            None => None,
        }
    }

    /// The broker reported its positions. Returns the next requests.
    pub(super) fn on_progress(&self, reported: [Position; 3], coverage: Coverage) -> Requests {
        self.change(|state| state.tracker.on_progress(reported, coverage))
    }

    /// A broker begins with the topic at `start`, or resumes it. Returns the next requests.
    pub(super) fn on_subscribed(&self, start: Position, resumed: bool) -> Requests {
        self.change(|state| {
            if !resumed {
                state.tracker.on_new_broker(start);
            }
        });
        let mut state = lock(&self.state);
        state.requested = [None; 3];
        state.next_requests()
    }

    /// The broker will never have this range.
    pub(super) fn on_lost(&self, from: Position, to: Position) {
        self.change(|state| state.tracker.on_lost(from, to));
    }

    /// The topic is closed. Nothing more is confirmed.
    pub(super) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// The broker refuses the topic. All waiting confirmations fail.
    pub(super) fn refuse(&self, reason: &str) {
        let mut state = lock(&self.state);
        let waiting = std::mem::take(&mut state.waiting);
        state.wanted = Default::default();
        let confirmed = ConfirmLevel::ALL.map(|level| state.tracker.confirmed(level));
        drop(state);
        for (level, slots) in ConfirmLevel::ALL.into_iter().zip(waiting) {
            let (confirmed, topic) = (confirmed[level as usize], &self.topic);
            for slot in slots.into_values() {
                let (topic, reason) = (topic.clone(), reason.to_owned());
                slot.put(Err(ConfirmError::Refused { topic, level, confirmed, reason }));
            }
        }
    }

    /// The application accepts the loss at a level. The level continues behind the lost range.
    pub(super) fn accept_lost(&self, level: ConfirmLevel) -> Option<LostRange> {
        lock(&self.state).tracker.accept_lost(level)
    }

    pub(super) fn confirmed(&self, level: ConfirmLevel) -> Position {
        lock(&self.state).tracker.confirmed(level)
    }

    /// Changes the state and completes confirmations, outside of the lock. Returns the next requests.
    fn change(&self, change: impl FnOnce(&mut State)) -> Requests {
        let mut state = lock(&self.state);
        change(&mut state);
        let mut completed = Vec::new();
        for level in ConfirmLevel::ALL {
            while let Some(at) = first(&state.waiting[level as usize])
                && let Some(result) = self.outcome(&state, level, at, Position::MAX)
                && let Some((key, slot)) = state.waiting[level as usize].pop_first()
            {
                state.wanted[level as usize].remove(&key);
                completed.push((slot, result));
            }
        }
        let requests = state.next_requests();
        drop(state);
        completed.into_iter().for_each(|(slot, result)| slot.put(result));
        requests
    }

    fn forget(&self, level: ConfirmLevel, position: Position, id: u64) {
        let mut state = lock(&self.state);
        state.waiting[level as usize].remove(&(position, id));
        state.wanted[level as usize].remove(&(position, id));
    }
}

fn first(waiting: &BTreeMap<(Position, u64), Arc<Slot>>) -> Option<Position> {
    waiting.keys().next().map(|(position, _)| *position)
}

/// A confirmation of published records: a future for any runtime, and an object to wait for or to poll. It fails with
/// [`ConfirmError::Closed`] if its topic is closed before. Dropping a confirmation has no effect on the records.
///
/// ```
/// # use rbmq_broker::{Broker, BrokerConfig};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut config = BrokerConfig::default();
/// # config.broker.listen = "127.0.0.1:0".into();
/// # let broker = Broker::start(config)?;
/// # let addr = broker.addr();
/// use std::time::Duration;
/// use rbmq::{ConfirmLevel, Publisher};
///
/// let publisher = Publisher::connect(&addr)?;
/// let mut news = publisher.topic("news")?;
/// let mut waiting = std::collections::VecDeque::new();
/// for n in 0..1000_u32 {
///     let position = news.publish(&n.to_le_bytes())?;
///     waiting.push_back(news.confirmation(position, ConfirmLevel::Accepted));
///     if waiting.len() > 100 {
///         waiting.pop_front().unwrap().wait(Some(Duration::from_secs(10)))?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a confirmation has no effect unless it is waited for"]
pub struct Confirmation {
    confirmations: Arc<Confirmations>,
    slot: Arc<Slot>,
    level: ConfirmLevel,
    position: Position,
    id: u64,
    buffer: (Weak<ROut>, Bid),
}

impl Confirmation {
    /// The position: everything below is confirmed together.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The level.
    pub fn level(&self) -> ConfirmLevel {
        self.level
    }

    /// The result, if there is one. Otherwise the broker is asked for it. Does not wait.
    pub fn try_get(&self) -> Option<ConfirmResult> {
        let result = self.result();
        if result.is_none() {
            self.want(false);
        }
        result
    }

    fn result(&self) -> Option<ConfirmResult> {
        lock(&self.slot.state).result.clone()
    }

    /// Asks the broker, unless an earlier position is requested. A caller that `waits` needs the request even if it was sent
    /// before: the workers of the library then receive the answer, which a publisher that continues to publish would receive
    /// itself.
    fn want(&self, waits: bool) {
        let (n, key) = (self.level as usize, (self.position, self.id));
        let mut state = lock(&self.confirmations.state);
        if !state.waiting[n].contains_key(&key) || !(state.wanted[n].insert(key) || waits) {
            return;
        }
        let requests = state.next_requests();
        drop(state);
        send_requests(&self.buffer.0, self.buffer.1, requests);
    }

    /// Waits for the result, at most `timeout` (none: no limit).
    ///
    /// # Errors
    /// [`ConfirmError`]. After [`ConfirmError::TimedOut`], which has the confirmed position, the result may still come.
    pub fn wait(&self, timeout: Option<Duration>) -> ConfirmResult {
        if let Some(result) = self.result() {
            return result;
        }
        self.want(true);
        wait_while(&self.slot.state, &self.slot.changed, timeout, |state| state.result.is_none());
        self.result().unwrap_or_else(|| {
            let (topic, level) = (self.confirmations.topic.clone(), self.level);
            let (position, confirmed) = (self.position, self.confirmations.confirmed(level));
            Err(ConfirmError::TimedOut {
                topic,
                level,
                position,
                confirmed,
                waited: timeout.unwrap_or_default(),
                missing: 0,
                last_error: None,
            })
        })
    }
}

impl Future for Confirmation {
    type Output = ConfirmResult;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.slot.state);
        if let Some(result) = &state.result {
            return Poll::Ready(result.clone());
        }
        state.waker = Some(cx.waker().clone());
        drop(state);
        self.want(true);
        Poll::Pending
    }
}

impl Drop for Confirmation {
    fn drop(&mut self) {
        if self.result().is_none() {
            self.confirmations.forget(self.level, self.position, self.id);
        }
    }
}

impl fmt::Debug for Confirmation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, position, result) = (self.level, self.position, self.result());
        f.debug_struct("Confirmation")
            .field("level", &level)
            .field("position", &position)
            .field("result", &result)
            .finish()
    }
}
