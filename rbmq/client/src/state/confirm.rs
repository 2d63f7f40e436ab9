//! Confirmations: how far published records have come, as futures and as calls that wait.
//!
//! Positions are cumulative: a topic has one position for each level, and the waiting confirmations are ordered lists with a
//! limit. The broker is asked only about the first confirmation of each list. Its answer may complete many of them. The framework
//! carries the questions about subscribers; those about the disk are control messages (`disk_asks`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rocketbufs::Coverage;
use rocketbufs::{Bid, Position, ROut};

use crate::connection::{lock, wait_while};
use crate::ground::error::{ConfirmError, Over};
use crate::ground::level::{ConfirmLevel, Confirmed, LEVELS, REPORTED};
use crate::state::confirm_tracker::{ConfirmTracker, LostRange};
use crate::wire::TopicName;

/// The result of a confirmation.
pub type ConfirmResult = Result<Confirmed, ConfirmError>;

/// The confirmed positions of one topic, and the confirmations that wait.
pub(crate) struct Confirmations {
    /// The most confirmations that wait at a time.
    limit: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tracker: ConfirmTracker,
    waiting: [BTreeMap<(Position, u64), Arc<Slot>>; LEVELS],
    /// The confirmations that the application waits for or has looked at. The others are completed by regular reports.
    wanted: [BTreeSet<(Position, u64)>; LEVELS],
    /// The positions of the last requests to the broker.
    requested: [Option<Position>; LEVELS],
    /// The broker has taken the topic over the present connection, and can be asked about its disk.
    is_created: bool,
    archive_asks: ArchiveAsks,
    /// Why the broker's disk takes nothing.
    disk_failure: Option<String>,
    /// The broker's disk or archive lost something when nobody waited for it. What it says of these levels next is in doubt.
    in_doubt: [bool; LEVELS],
    next_id: u64,
    /// Nothing more is confirmed.
    over: Option<Over>,
}

/// The questions about the archive. A broker of before ends the connection of who asks, and others answer at once that they have understood.
#[derive(Default)]
struct ArchiveAsks {
    /// The broker was asked over the present connection, and has not answered since.
    is_open: bool,
    /// How many connections in a row have ended so.
    ended: u32,
}

/// After so many connections in a row that ended with a question about the archive, the broker is taken for one of before.
const ENDED_BY_OLD_BROKER: u32 = 2;

impl State {
    /// The first wanted position of each level, unless the last request named it. The confirmations behind it are completed
    /// by the answer, or requested then.
    fn next_requests(&mut self) -> Requests {
        let firsts = self.wanted.each_ref().map(|wanted| wanted.first().map(|(position, _)| *position));
        let mut requests = Requests::default();
        for (n, first) in firsts.iter().enumerate().take(REPORTED) {
            requests.of_subscribers[n] = first.filter(|_| *first != self.requested[n]);
        }
        let disk = REPORTED..LEVELS;
        let is_new = firsts[disk.clone()] != self.requested[disk.clone()];
        self.requested = firsts;
        if !self.is_created {
            self.requested[disk].fill(None);
        } else if is_new {
            requests.of_disk = self.disk_request();
        }
        requests
    }

    fn disk_request(&mut self) -> Option<[Position; 3]> {
        let [.., stored, synced, archived] = self.requested;
        let wanted = [stored, synced, archived];
        self.archive_asks.is_open |= archived.is_some();
        wanted.iter().any(Option::is_some).then(|| wanted.map(Option::unwrap_or_default))
    }
}

/// Where a confirmation gets its result.
struct Slot {
    /// The topic of the writer. Several may share a log.
    topic: TopicName,
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

/// The positions about which to ask the broker; none: no new request.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// By level.
    of_subscribers: [Option<Position>; REPORTED],
    /// The positions to be stored, to be synced and to be archived; 0: none of this level.
    pub(crate) of_disk: Option<[Position; 3]>,
}

/// The way of a confirmation to the broker.
pub(crate) trait Asks: Send + Sync {
    /// Asks the broker about confirmations of a buffer.
    fn ask(&self, bid: Bid, requests: &Requests);
}

/// The buffer whose ranges are confirmed, and its way to the broker.
pub(crate) struct Source {
    pub(crate) asks: Weak<dyn Asks>,
    pub(crate) bid: Bid,
    /// The topic of the writer.
    pub(crate) topic: TopicName,
}

/// What a topic's writer has published.
pub(crate) struct Published {
    pub(crate) end: Position,
    /// Why the broker refused the topic. None: it did not.
    pub(crate) refusal: Option<String>,
}

/// Asks the broker to report as soon as these positions are confirmed. Requests about the disk are left to the caller.
pub(crate) fn send_requests(out: &ROut, bid: Bid, requests: &Requests) {
    if requests.of_subscribers == [None; REPORTED] {
        return;
    }
    let Some(buffer) = out.buffer(bid) else { return };
    for (level, position) in ConfirmLevel::ALL.into_iter().zip(requests.of_subscribers) {
        if let (Some(level), Some(position)) = (level.framework(), position) {
            buffer.request_confirm(level, position);
        }
    }
}

impl Confirmations {
    /// At most `limit` confirmations wait at a time. A range that fewer than `min_subscribers` have counts as lost.
    pub(crate) fn new(limit: usize, min_subscribers: u32) -> Self {
        let state = State { tracker: ConfirmTracker::new(min_subscribers), ..State::default() };
        Self { limit: AtomicUsize::new(limit), state: Mutex::new(state) }
    }

    /// The limit of one of several writers is another one.
    pub(crate) fn change_limit(&self, from: usize, to: usize) {
        let change = |limit: usize| Some(limit.saturating_sub(from).saturating_add(to));
        let _ = self.limit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Begins a confirmation of `position`. The broker is asked when the application waits for it.
    pub(crate) fn begin(
        self: &Arc<Self>,
        level: ConfirmLevel,
        position: Position,
        published: Published,
        source: Source,
    ) -> Confirmation {
        let Published { end, refusal } = published;
        let topic = source.topic.clone();
        let slot = Arc::new(Slot { topic, state: Mutex::default(), changed: Condvar::new() });
        let mut state = lock(&self.state);
        let id = state.next_id;
        state.next_id += 1;
        let waiting: usize = state.waiting.iter().map(BTreeMap::len).sum();
        let limit = self.limit.load(Ordering::Relaxed);
        if let Some(result) = outcome(&state, &slot.topic, level, position, end) {
            slot.put(result);
        } else if waiting >= limit {
            slot.put(Err(ConfirmError::TooMany { topic: slot.topic.clone(), waiting, limit }));
        } else if let Some(reason) = refusal {
            let (topic, confirmed) = (slot.topic.clone(), state.tracker.confirmed(level));
            slot.put(Err(ConfirmError::Refused { topic, level, confirmed, reason }));
        } else {
            state.waiting[level as usize].insert((position, id), slot.clone());
        }
        drop(state);
        Confirmation { confirmations: self.clone(), slot, level, position, id, source }
    }

    /// The broker reported its positions. Returns the next requests.
    pub(crate) fn on_progress(&self, reported: [Position; REPORTED], coverage: Coverage) -> Requests {
        self.change(|state| state.tracker.on_progress(reported, coverage))
    }

    /// A broker begins with the topic at `start`, or resumes it. Returns the next requests.
    pub(crate) fn on_subscribed(&self, start: Position, resumed: bool) -> Requests {
        self.change(|state| {
            if !resumed {
                state.tracker.on_new_broker(start);
            }
        });
        let mut state = lock(&self.state);
        state.requested[..REPORTED].fill(None);
        state.next_requests()
    }

    /// The topic is named to a broker, perhaps another one than before.
    pub(crate) fn on_naming(&self) {
        let mut state = lock(&self.state);
        (state.is_created, state.disk_failure) = (false, None);
        state.tracker.on_naming();
        if std::mem::take(&mut state.archive_asks.is_open) {
            state.archive_asks.ended += 1;
        }
        if state.archive_asks.ended >= ENDED_BY_OLD_BROKER {
            // The next wait asks once more: the broker may be another one then.
            state.archive_asks.ended -= 1;
            drop(state);
            self.fail_not_stored(
                true,
                false,
                "the broker ends the connections of those who ask about its archive: it does not know this level",
            );
        }
    }

    /// Everything below this position is at a broker.
    pub(crate) fn taken(&self) -> Position {
        lock(&self.state).tracker.taken()
    }

    /// The broker has taken the topic. Returns the next requests.
    pub(crate) fn on_created(&self) -> Requests {
        let mut state = lock(&self.state);
        state.is_created = true;
        state.requested[REPORTED..].fill(None);
        state.next_requests()
    }

    /// The broker has the log in its file, on the disk and in its archive up to these positions. Before it has taken the topic, it says
    /// where it begins. Returns the next requests.
    pub(crate) fn on_stored(&self, reached: [Position; 3]) -> Requests {
        self.change(|state| {
            let in_doubt = std::mem::take(&mut state.in_doubt);
            let in_doubt = ConfirmLevel::ALL.into_iter().filter(|level| in_doubt[*level as usize]);
            in_doubt.for_each(|level| state.tracker.on_doubt(level, reached[0]));
            match state.is_created {
                true => {
                    state.archive_asks = ArchiveAsks::default();
                    state.tracker.on_disk(reached);
                }
                false => state.tracker.on_stored(reached),
            }
        })
    }

    /// The request about the disk that is to be sent again.
    pub(crate) fn disk_request(&self) -> Option<[Position; 3]> {
        lock(&self.state).disk_request()
    }

    /// The broker confirms nothing about its disk, or only nothing about its archive.
    pub(crate) fn on_not_stored(&self, is_of_archive: bool, lost: bool, reason: &str) {
        lock(&self.state).archive_asks = ArchiveAsks::default();
        let failed = self.fail_not_stored(is_of_archive, lost, reason);
        if lost && failed == 0 {
            let mut state = lock(&self.state);
            let levels = ConfirmLevel::ALL.into_iter().filter(|level| is_about(is_of_archive, *level));
            levels.for_each(|level| state.in_doubt[level as usize] = true);
        }
    }

    fn fail_not_stored(&self, is_of_archive: bool, lost: bool, reason: &str) -> usize {
        self.fail(
            |level| is_about(is_of_archive, level),
            |topic, level, confirmed| ConfirmError::NotStored {
                topic,
                level,
                confirmed,
                lost,
                reason: reason.to_owned(),
            },
        )
    }

    /// The broker's disk takes nothing, or works again.
    pub(crate) fn on_disk_failure(&self, failure: Option<String>) {
        lock(&self.state).disk_failure = failure;
    }

    /// Why the broker's disk takes nothing.
    pub(crate) fn disk_failure(&self) -> Option<String> {
        lock(&self.state).disk_failure.clone()
    }

    /// The broker will never have this range.
    pub(crate) fn on_lost(&self, from: Position, to: Position) {
        self.change(|state| state.tracker.on_lost(from, to));
    }

    /// The topic or its publisher is closed, or the context is shut down. Nothing more is confirmed.
    pub(crate) fn close(&self, over: Over) {
        self.change(|state| state.over = state.over.or(Some(over)));
    }

    /// The broker refuses the topic. All waiting confirmations fail.
    pub(crate) fn refuse(&self, reason: &str) {
        self.fail(
            |_| true,
            |topic, level, confirmed| ConfirmError::Refused {
                topic,
                level,
                confirmed,
                reason: reason.to_owned(),
            },
        );
    }

    /// All waiting confirmations of some levels fail. Returns how many.
    fn fail(
        &self,
        of: impl Fn(ConfirmLevel) -> bool,
        error: impl Fn(TopicName, ConfirmLevel, Position) -> ConfirmError,
    ) -> usize {
        let mut state = lock(&self.state);
        let mut failed = Vec::new();
        for level in ConfirmLevel::ALL.into_iter().filter(|level| of(*level)) {
            let n = level as usize;
            state.wanted[n].clear();
            state.requested[n] = None;
            let confirmed = state.tracker.confirmed(level);
            let slots = std::mem::take(&mut state.waiting[n]).into_values();
            failed.extend(slots.map(|slot| {
                let error = error(slot.topic.clone(), level, confirmed);
                (slot, error)
            }));
        }
        drop(state);
        let count = failed.len();
        failed.into_iter().for_each(|(slot, error)| slot.put(Err(error)));
        count
    }

    /// The application accepts the loss at a level. The level continues behind the lost range.
    pub(crate) fn accept_lost(&self, level: ConfirmLevel) -> Option<LostRange> {
        lock(&self.state).tracker.accept_lost(level)
    }

    pub(crate) fn confirmed(&self, level: ConfirmLevel) -> Position {
        lock(&self.state).tracker.confirmed(level)
    }

    /// Changes the state and completes confirmations, outside of the lock. Returns the next requests.
    fn change(&self, change: impl FnOnce(&mut State)) -> Requests {
        let mut state = lock(&self.state);
        change(&mut state);
        let mut completed = Vec::new();
        for level in ConfirmLevel::ALL {
            while let Some((at, topic)) = first(&state.waiting[level as usize])
                && let Some(result) = outcome(&state, topic, level, at, Position::MAX)
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

fn outcome(
    state: &State,
    topic: &TopicName,
    level: ConfirmLevel,
    position: Position,
    end: Position,
) -> Option<ConfirmResult> {
    let (topic, confirmed) = (topic.clone(), state.tracker.confirmed(level));
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
        None => state.over.map(|over| match over {
            Over::Closed => Err(ConfirmError::Closed { topic, level, confirmed }),
            Over::ShutDown => Err(ConfirmError::ShutDown { topic, level, confirmed }),
        }),
    }
}

/// Whether an answer about the disk, or only about the archive, is about a level.
fn is_about(is_of_archive: bool, level: ConfirmLevel) -> bool {
    if is_of_archive { level == ConfirmLevel::Archived } else { level.is_of_disk() }
}

/// The first position that is waited for, and the topic of who waits.
fn first(waiting: &BTreeMap<(Position, u64), Arc<Slot>>) -> Option<(Position, &TopicName)> {
    waiting.iter().next().map(|((position, _), slot)| (*position, &slot.topic))
}

/// A confirmation of published records: a future for any runtime, and an object to wait for or to poll. The confirmation
/// fails with [`ConfirmError::Closed`] if its topic is closed before. Dropping a confirmation has no effect on the records.
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
    source: Source,
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
        if let Some(publisher) = self.source.asks.upgrade() {
            publisher.ask(self.source.bid, &requests);
        }
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
            let (topic, level) = (self.source.topic.clone(), self.level);
            let (position, confirmed) = (self.position, self.confirmations.confirmed(level));
            Err(ConfirmError::TimedOut {
                topic,
                level,
                position,
                confirmed,
                waited: timeout.unwrap_or_default(),
                missing: 0,
                last_error: None,
                disk_failure: self.confirmations.disk_failure().filter(|_| level.is_of_disk()),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks nobody.
    struct Nobody;

    impl Asks for Nobody {
        fn ask(&self, _: Bid, _: &Requests) {}
    }

    fn begin(confirmations: &Arc<Confirmations>, level: ConfirmLevel) -> Confirmation {
        let asks: Weak<dyn Asks> = Weak::<Nobody>::new();
        let source = Source { asks, bid: 1, topic: "a".parse().unwrap() };
        let confirmation = confirmations.begin(level, 10, Published { end: 10, refusal: None }, source);
        assert!(confirmation.try_get().is_none());
        confirmation
    }

    /// Who waited has gone meanwhile. A later answer would be one for what is lost, too.
    #[test]
    fn a_loss_that_reaches_nobody_is_told_to_the_next() {
        for is_of_archive in [true, false] {
            let confirmations = Arc::new(Confirmations::new(9, 0));
            confirmations.on_created();
            for level in [ConfirmLevel::Stored, ConfirmLevel::Archived] {
                drop(begin(&confirmations, level));
            }
            confirmations.on_not_stored(is_of_archive, true, "lost");
            let stored = (!is_of_archive).then(|| begin(&confirmations, ConfirmLevel::Stored));
            let archived = begin(&confirmations, ConfirmLevel::Archived);
            confirmations.on_stored([20, 20, 20]);
            for confirmation in [Some(archived), stored].into_iter().flatten() {
                let result = confirmation.try_get();
                assert!(
                    matches!(result, Some(Err(ConfirmError::Lost { from: 0, to: 20, .. }))),
                    "{result:?}"
                );
            }
            assert_eq!(confirmations.accept_lost(ConfirmLevel::Archived), Some((0, 20)));
            assert_eq!(confirmations.confirmed(ConfirmLevel::Archived), 20);
            let disk = if is_of_archive { 20 } else { 0 };
            assert_eq!(confirmations.confirmed(ConfirmLevel::Synced), disk);
        }
    }

    /// It ends each connection that asks. Other levels are asked for afterwards.
    #[test]
    fn a_broker_that_does_not_know_the_archive_is_not_asked_for_ever() {
        let confirmations = Arc::new(Confirmations::new(9, 0));
        let (archived, synced) =
            (begin(&confirmations, ConfirmLevel::Archived), begin(&confirmations, ConfirmLevel::Synced));
        for connection in 0..3 {
            confirmations.on_naming();
            let asked = confirmations.on_created().of_disk;
            assert_eq!(asked, Some(if connection < 2 { [0, 10, 10] } else { [0, 10, 0] }));
        }
        let Some(Err(error)) = archived.try_get() else { panic!("it waits for ever") };
        assert!(error.to_string().contains("does not know this level"), "{error}");
        assert!(synced.try_get().is_none());
        // A broker that answers, and whose archive takes longer than its connections last, is another matter.
        let archived = begin(&confirmations, ConfirmLevel::Archived);
        confirmations.on_stored([0; 3]);
        for _ in 0..5 {
            confirmations.on_naming();
            assert_eq!(confirmations.on_created().of_disk, Some([0, 10, 10]));
            confirmations.on_stored([10, 0, 0]);
        }
        assert!(archived.try_get().is_none());
        confirmations.on_stored([10, 10, 10]);
        assert!(archived.try_get().is_some_and(|result| result.is_ok()));
    }
}
