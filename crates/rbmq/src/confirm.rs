//! Confirmations: how far what was published has come, as futures and as calls that wait.
//!
//! Positions are cumulative: a topic has one cursor for each level, and those who wait are an ordered list with a limit.
//! The broker is asked about the first of the list, whatever its length; its answer may serve many of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rocketbufs::{Bid, Coverage, Position};

use super::error::ConfirmError;
use super::ledger::Ledger;
use super::link::{lock, wait_while};
use super::publisher::Inner;
use crate::wire::TopicName;

/// How far a publisher wants to know that its records have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// In the broker's memory, and lost with it.
    Accepted = 0,
    /// In the memory of every subscriber that had a place when it was accepted (for one with a hold: released by it).
    Delivered = 1,
    /// Released by every such subscriber: its application is done with it.
    Consumed = 2,
}

impl Level {
    /// All of them, the weakest first.
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Delivered, Self::Consumed];

    /// The framework's word.
    pub(super) fn framework(self) -> rocketbufs::ConfirmLevel {
        match self {
            Self::Accepted => rocketbufs::ConfirmLevel::Landed,
            Self::Delivered => rocketbufs::ConfirmLevel::Delivered,
            Self::Consumed => rocketbufs::ConfirmLevel::Consumed,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Delivered => "delivered",
            Self::Consumed => "consumed",
        })
    }
}

/// What was confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed {
    /// The level.
    pub level: Level,
    /// Everything below is confirmed: the position asked for, or more.
    pub position: Position,
    /// How many subscribers that counts for: at the ends of all chains of brokers, those away included that block
    /// and whose place is kept. With 0 nobody needed to have it.
    pub subscribers: u32,
    /// How many have gone since the position was accepted: they count no more, and may not have it. A broker that dies
    /// leaves none of its subscribers, until they are back.
    pub left: u32,
    /// How often, since then, a subscriber was told that it lost something, for its policy or its broker's death.
    pub lost: u32,
}

/// The result of a confirmation.
pub type ConfirmResult = Result<Confirmed, ConfirmError>;

/// Everybody who waits for confirmations of one topic, and what is known.
pub(super) struct Confirms {
    topic: TopicName,
    /// Most that wait at a time.
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ledger: Ledger,
    waits: [BTreeMap<(Position, u64), Arc<Slot>>; 3],
    /// Those of them that somebody really waits for or has looked at. For the others what comes anyway is enough.
    wanted: [BTreeSet<(Position, u64)>; 3],
    /// What the broker was asked last.
    asked: Questions,
    next_id: u64,
    closed: bool,
}

impl State {
    /// The first of those who wait at each level, where that is not what the broker was asked last: those behind it are
    /// served by what is told of it, or asked for then.
    fn questions(&mut self) -> Questions {
        let firsts = self.wanted.each_ref().map(|wanted| wanted.first().map(|(position, _)| *position));
        let mut questions = firsts;
        for (question, asked) in questions.iter_mut().zip(self.asked) {
            *question = question.filter(|at| Some(*at) != asked);
        }
        self.asked = firsts;
        questions
    }
}

/// Where a result is put, for whoever waits for it.
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

/// What the broker is to be asked next, by level; none: nothing new.
pub(super) type Questions = [Option<Position>; 3];

impl Confirms {
    /// With most that may wait at a time, and for how many subscribers at least a position is to be delivered.
    pub(super) fn new(topic: TopicName, (limit, least): (usize, u32)) -> Self {
        let state = State { ledger: Ledger::new(least), ..State::default() };
        Self { topic, limit, state: Mutex::new(state) }
    }

    /// Waits for `position`. The broker is asked when somebody waits for the result.
    pub(super) fn begin(
        self: &Arc<Self>,
        level: Level,
        position: Position,
        (end, refusal): (Position, Option<String>),
        asks: (Weak<Inner>, Bid),
    ) -> Confirmation {
        let slot = Arc::new(Slot::default());
        let mut state = lock(&self.state);
        let id = state.next_id;
        state.next_id += 1;
        let waiting: usize = state.waits.iter().map(BTreeMap::len).sum();
        if let Some(result) = self.outcome(&state, level, position, end) {
            slot.put(result);
        } else if waiting >= self.limit {
            slot.put(Err(ConfirmError::TooMany { topic: self.topic.clone(), waiting, limit: self.limit }));
        } else if let Some(reason) = refusal {
            let (topic, confirmed) = (self.topic.clone(), state.ledger.reached(level));
            slot.put(Err(ConfirmError::Refused { topic, level, confirmed, reason }));
        } else {
            state.waits[level as usize].insert((position, id), slot.clone());
        }
        drop(state);
        Confirmation { confirms: self.clone(), slot, level, position, id, asks }
    }

    fn outcome(
        &self,
        state: &State,
        level: Level,
        position: Position,
        end: Position,
    ) -> Option<ConfirmResult> {
        let (topic, confirmed) = (self.topic.clone(), state.ledger.reached(level));
        if position > end {
            return Some(Err(ConfirmError::NotPublished { topic, position, end }));
        }
        match state.ledger.outcome(level, position) {
            Some(Ok(confirmed)) => Some(Ok(confirmed)),
            Some(Err((from, to))) => Some(Err(match state.ledger.too_few(level) {
                Some((subscribers, wanted)) => {
                    ConfirmError::TooFew { topic, level, confirmed, from, to, subscribers, wanted }
                }
                None => ConfirmError::Lost { topic, level, confirmed, from, to },
            })),
            None if state.closed => Some(Err(ConfirmError::Closed { topic, level, confirmed })),
            None => None,
        }
    }

    /// The broker told how far it is. Returns what to ask it next.
    pub(super) fn progress(&self, told: [Position; 3], count: Coverage) -> Questions {
        self.change(|state| state.ledger.progress(told, count))
    }

    /// A broker begins with the topic at `start`, or goes on (`resumed`). Returns what to ask it.
    pub(super) fn subscribed(&self, start: Position, resumed: bool) -> Questions {
        self.change(|state| {
            if !resumed {
                state.ledger.begins_at(start);
            }
        });
        let mut state = lock(&self.state);
        state.asked = [None; 3];
        state.questions()
    }

    /// The broker will never have this range.
    pub(super) fn lost(&self, from: Position, to: Position) {
        self.change(|state| state.ledger.lost(from, to));
    }

    /// The topic is over: nothing more is confirmed.
    pub(super) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// The broker does not take the topic any more: whoever waits need not.
    pub(super) fn refuse(&self, reason: &str) {
        let mut state = lock(&self.state);
        let waits = std::mem::take(&mut state.waits);
        state.wanted = Default::default();
        let reached = Level::ALL.map(|level| state.ledger.reached(level));
        drop(state);
        for (level, slots) in Level::ALL.into_iter().zip(waits) {
            let (confirmed, topic) = (reached[level as usize], &self.topic);
            for slot in slots.into_values() {
                let (topic, reason) = (topic.clone(), reason.to_owned());
                slot.put(Err(ConfirmError::Refused { topic, level, confirmed, reason }));
            }
        }
    }

    /// The application knows what is lost at a level: it goes on behind that.
    pub(super) fn accept_lost(&self, level: Level) -> Option<(Position, Position)> {
        lock(&self.state).ledger.accept(level)
    }

    pub(super) fn confirmed(&self, level: Level) -> Position {
        lock(&self.state).ledger.reached(level)
    }

    /// Changes what is known and serves those whose time it is, outside of the lock. Returns what to ask next.
    fn change(&self, change: impl FnOnce(&mut State)) -> Questions {
        let mut state = lock(&self.state);
        change(&mut state);
        let mut served = Vec::new();
        for level in Level::ALL {
            while let Some(at) = first(&state.waits[level as usize])
                && let Some(result) = self.outcome(&state, level, at, Position::MAX)
                && let Some((key, slot)) = state.waits[level as usize].pop_first()
            {
                state.wanted[level as usize].remove(&key);
                served.push((slot, result));
            }
        }
        let questions = state.questions();
        drop(state);
        served.into_iter().for_each(|(slot, result)| slot.put(result));
        questions
    }

    fn forget(&self, level: Level, position: Position, id: u64) {
        let mut state = lock(&self.state);
        state.waits[level as usize].remove(&(position, id));
        state.wanted[level as usize].remove(&(position, id));
    }
}

fn first(waits: &BTreeMap<(Position, u64), Arc<Slot>>) -> Option<Position> {
    waits.keys().next().map(|(position, _)| *position)
}

/// A confirmation that will come: a future of any runtime, or something to wait for or look at. It ends with
/// [`ConfirmError::Closed`] when its topic is closed before; dropping it only means that nobody wants to know.
///
/// ```
/// # use rbmq_broker::{Broker, BrokerConfig};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut config = BrokerConfig::default();
/// # config.broker.listen = "127.0.0.1:0".into();
/// # let broker = Broker::start(config)?;
/// # let addr = broker.addr();
/// use std::time::Duration;
/// use rbmq::{Level, Publisher};
///
/// let publisher = Publisher::connect(&addr)?;
/// let mut news = publisher.topic("news")?;
/// let mut waiting = std::collections::VecDeque::new();
/// for n in 0..1000_u32 {
///     let position = news.publish(&n.to_le_bytes())?;
///     waiting.push_back(news.confirmation(position, Level::Accepted));
///     if waiting.len() > 100 {
///         waiting.pop_front().unwrap().wait(Duration::from_secs(10))?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a confirmation says nothing unless it is waited for"]
pub struct Confirmation {
    confirms: Arc<Confirms>,
    slot: Arc<Slot>,
    level: Level,
    position: Position,
    id: u64,
    asks: (Weak<Inner>, Bid),
}

impl Confirmation {
    /// The position that it is for: everything below.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The level that it is for.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The result, if it is there. If not the broker is asked for it.
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

    /// Somebody wants to know: the broker is asked, unless it is by what comes before this. Who `waits` has the library's own
    /// threads hear the answer: a publisher that comes back to publish would do that itself.
    fn want(&self, waits: bool) {
        let (n, key) = (self.level as usize, (self.position, self.id));
        let mut state = lock(&self.confirms.state);
        if !state.waits[n].contains_key(&key) || !(state.wanted[n].insert(key) || waits) {
            return;
        }
        let questions = state.questions();
        drop(state);
        if let Some(inner) = self.asks.0.upgrade() {
            inner.ask(self.asks.1, questions);
        }
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// [`ConfirmError::TimedOut`] says what is confirmed; it may be waited for again.
    pub fn wait(&self, timeout: Duration) -> ConfirmResult {
        if let Some(result) = self.result() {
            return result;
        }
        self.want(true);
        wait_while(&self.slot.state, &self.slot.changed, timeout, |state| state.result.is_none());
        self.result().unwrap_or_else(|| {
            let (topic, level) = (self.confirms.topic.clone(), self.level);
            let (position, confirmed) = (self.position, self.confirms.confirmed(level));
            Err(ConfirmError::TimedOut {
                topic,
                level,
                position,
                confirmed,
                waited: timeout,
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
            self.confirms.forget(self.level, self.position, self.id);
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
