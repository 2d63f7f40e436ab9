//! Requests and their answers, over messages that may be lost (paper, "Request - Response" and "Future type message
//! passing").
//!
//! ```text
//!   Caller                                              Responder
//!   call(key, question) ──▶ store of outstanding ──▶ serve(|question, from| answer)
//!      │                      │ no answer in time: again, or lost          │
//!      ▼                      ▼                                            │
//!   Pending: look(), wait() ◀─ answered ◀──────────────────────────────────┘
//! ```
//!
//! A question may arrive more than once, as it is asked again when no answer came: answer such questions only as may be
//! asked twice. An answer is taken only from the address that was asked and with the random number of its question.
//!
//! An address is not proof of who sent something. So that nobody can make a [`Responder`] send more to a stranger than
//! it was sent, a question is padded to the size of the answer it expects, and a longer answer is not sent.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use postcard::ser_flavors::Size;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::io::lock;
use crate::proto::batches::CLOSE_COPIES;
use crate::proto::timeline::Timeline;
use crate::proto::{Slots, after};
use crate::wire::{HEADER_BYTES, IP_BYTES, RECORD_BYTES};
use crate::{Cmq, Key, PushError};

/// What an answer may cost beside itself, when many questions shared a datagram: headers of IP and UDP, CMQ's and its
/// record's; and the end of the stream of answers, which is told later.
const ENVELOPE: usize = IP_BYTES + HEADER_BYTES + RECORD_BYTES + CLOSE_COPIES * (IP_BYTES + HEADER_BYTES);

/// What travels between a [`Caller`] and a [`Responder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call<Q, A> {
    /// A question.
    Question {
        /// Its random number.
        number: u64,
        /// What is asked.
        question: Q,
        /// Nothing, as long as the answer may be.
        padding: Vec<u8>,
    },
    /// An answer.
    Answer {
        /// The number of its question.
        number: u64,
        /// What was asked for.
        answer: A,
    },
}

/// How a [`Caller`] asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallConfig {
    /// How long to wait for an answer before the question is asked again, or lost. Default 500 ms.
    pub timeout: Duration,
    /// How often a question is asked. Default 3; at least 1.
    pub tries: u32,
    /// Bytes of the longest answer. Default 64. Questions are padded by as much, and by some 300 bytes for headers.
    pub answer_bytes: usize,
    /// Questions that may be outstanding. Default 65,536.
    pub outstanding: usize,
}

impl Default for CallConfig {
    fn default() -> CallConfig {
        CallConfig { timeout: Duration::from_millis(500), tries: 3, answer_bytes: 64, outstanding: 65_536 }
    }
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look<A> {
    /// Here is the answer.
    Answered(A),
    /// No answer came, however often it was asked: ask something else, or somebody else (the paper's remedial action).
    Lost,
    /// It may still come.
    Open,
}

/// Why a question was not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The caller's: look at those that are outstanding first.
    #[error("{0} questions are outstanding, as many as may be")]
    Outstanding(usize),
    /// It could not be pushed.
    #[error(transparent)]
    Push(#[from] PushError),
}

struct Asked<Q, A> {
    number: u64,
    to: Key,
    question: Q,
    tries: u32,
    state: Look<A>,
}

struct Store<Q, A> {
    asked: Slots<Asked<Q, A>>,
    by_number: HashMap<u64, u32>,
    /// Those that are open, by when they were asked last.
    open: Timeline,
    /// Its keys are random, and known to nobody.
    names: RandomState,
    numbered: u64,
    /// A thread that waits for its answer reads the queue; the others wait for it.
    reading: bool,
}

struct Shared<Q: Send + 'static, A: Send + 'static> {
    queue: Cmq<Call<Q, A>>,
    config: CallConfig,
    store: Mutex<Store<Q, A>>,
    /// The thread that read has stopped, perhaps because of an answer.
    changed: Condvar,
}

/// Asks questions, and keeps those that are outstanding.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use cmq::strategy::request::{CallConfig, Caller, Look, Responder};
///
/// let server = Responder::<String, usize>::new(cmq::new_rq_with("127.0.0.1:0", cmq::Config::immediate())?);
/// let to = (server.queue().local_addr(), 0);
/// let queue = cmq::new_rq_with("127.0.0.1:0", cmq::Config::immediate())?;
/// let caller = Caller::<String, usize>::new(queue, CallConfig::default());
///
/// let length = caller.call(to, "four".to_owned())?;
/// assert_eq!(length.look(), Look::Open);
/// server.serve(Duration::from_secs(5), |question, _from| Some(question.len()));
/// assert_eq!(length.wait(Duration::from_secs(5)), Look::Answered(4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Caller<Q: Send + 'static, A: Send + 'static> {
    shared: Arc<Shared<Q, A>>,
}

/// A future: stands for the answer to one question. Dropping it forgets the question.
pub struct Pending<Q: Send + 'static, A: Send + 'static> {
    shared: Arc<Shared<Q, A>>,
    slot: u32,
}

impl<Q: Send + 'static, A: Send + 'static> std::fmt::Debug for Caller<Q, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("queue", &self.shared.queue).finish_non_exhaustive()
    }
}

impl<Q: Send + 'static, A: Send + 'static> std::fmt::Debug for Pending<Q, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl<Q, A> Caller<Q, A>
where
    Q: Serialize + DeserializeOwned + Clone + Send + 'static,
    A: Serialize + DeserializeOwned + Clone + Send + 'static,
{
    /// Asks by this queue, which belongs to it from now on.
    pub fn new(queue: Cmq<Call<Q, A>>, config: CallConfig) -> Caller<Q, A> {
        let store = Mutex::new(Store {
            asked: Slots::new(),
            by_number: HashMap::new(),
            open: Timeline::new(),
            names: RandomState::new(),
            numbered: 0,
            reading: false,
        });
        Caller { shared: Arc::new(Shared { queue, config, store, changed: Condvar::new() }) }
    }

    /// The queue.
    pub fn queue(&self) -> &Cmq<Call<Q, A>> {
        &self.shared.queue
    }

    /// Asks. What comes back stands for the answer.
    ///
    /// # Errors
    /// [`CallError`]; nothing is asked then.
    pub fn call(&self, to: impl Into<Key>, question: Q) -> Result<Pending<Q, A>, CallError> {
        let (shared, to) = (&self.shared, to.into().canonical());
        let mut store = lock(&shared.store);
        shared.work(&mut store);
        if store.asked.len() >= shared.config.outstanding {
            return Err(CallError::Outstanding(shared.config.outstanding));
        }
        let number = store.roll();
        shared.ask(to, number, &question)?;
        let slot = store.asked.insert(Asked { number, to, question, tries: 1, state: Look::Open });
        store.by_number.insert(number, slot);
        store.open.push_back(slot, Instant::now());
        Ok(Pending { shared: Arc::clone(shared), slot })
    }

    /// How many questions are remembered: open, or answered or lost and not yet taken.
    pub fn outstanding(&self) -> usize {
        lock(&self.shared.store).asked.len()
    }
}

impl<Q, A> Pending<Q, A>
where
    Q: Serialize + DeserializeOwned + Clone + Send + 'static,
    A: Serialize + DeserializeOwned + Clone + Send + 'static,
{
    /// What has become of the question by now. Never waits.
    pub fn look(&self) -> Look<A> {
        let mut store = lock(&self.shared.store);
        self.shared.work(&mut store);
        store.asked.get_mut(self.slot).map_or(Look::Lost, |asked| asked.state.clone())
    }

    /// What has become of it after at most so long: `Open` if that was not long enough.
    pub fn wait(&self, timeout: Duration) -> Look<A> {
        let (shared, until) = (&self.shared, after(Instant::now(), timeout));
        let mut store = lock(&shared.store);
        loop {
            shared.work(&mut store);
            let looked = store.asked.get_mut(self.slot).map_or(Look::Lost, |asked| asked.state.clone());
            let now = Instant::now();
            if !matches!(looked, Look::Open) || now >= until {
                return looked;
            }
            // Until an answer comes, or some question must be asked again.
            let again = store.open.first().map(|(_, since)| after(since, shared.config.timeout));
            let time = again.map_or(until, |again| again.min(until)).saturating_duration_since(now);
            if store.reading {
                let waited = shared.changed.wait_timeout(store, time);
                store = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            store.reading = true;
            drop(store);
            let popped = shared.queue.pop_timeout(time);
            store = lock(&shared.store);
            store.reading = false;
            if let Some((call, from)) = popped {
                store.answered(call, from);
            }
            shared.changed.notify_all();
        }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Drop for Pending<Q, A> {
    fn drop(&mut self) {
        let mut store = lock(&self.shared.store);
        if let Some(asked) = store.asked.remove(self.slot) {
            store.by_number.remove(&asked.number);
            store.open.remove(self.slot);
        }
    }
}

impl<Q, A> Shared<Q, A>
where
    Q: Serialize + DeserializeOwned + Clone + Send + 'static,
    A: Serialize + DeserializeOwned + Clone + Send + 'static,
{
    fn ask(&self, to: Key, number: u64, question: &Q) -> Result<(), PushError> {
        let padding = vec![0; self.config.answer_bytes + ENVELOPE];
        let call = Call::Question { number, question: question.clone(), padding };
        self.queue.cw_push(to, &call)?;
        // Whoever asks waits for the answer, and not for a batch to fill.
        self.queue.flush();
        Ok(())
    }

    /// Takes the answers that are there, and asks again what got none in time.
    fn work(&self, store: &mut Store<Q, A>) {
        while let Some((call, from)) = self.queue.cw_pop() {
            store.answered(call, from);
        }
        let now = Instant::now();
        while let Some((slot, since)) = store.open.first()
            && after(since, self.config.timeout) <= now
        {
            store.open.remove(slot);
            let Some(asked) = store.asked.get_mut(slot) else { continue };
            if asked.tries >= self.config.tries {
                asked.state = Look::Lost;
                store.by_number.remove(&asked.number);
                continue;
            }
            asked.tries += 1;
            // If it cannot be pushed now, that is one try that failed.
            let _ = self.ask(asked.to, asked.number, &asked.question);
            store.open.push_back(slot, now);
        }
    }
}

impl<Q, A> Store<Q, A> {
    fn answered(&mut self, call: Call<Q, A>, from: Key) {
        let Call::Answer { number, answer } = call else { return };
        let Some(&slot) = self.by_number.get(&number) else { return };
        let Some(asked) = self.asked.get_mut(slot) else { return };
        // A group is answered by its members.
        if asked.to.addr == from.addr || asked.to.addr.ip().is_multicast() {
            asked.state = Look::Answered(answer);
            self.by_number.remove(&number);
            self.open.remove(slot);
        }
    }

    /// A number that no open question has, and that nobody can tell from the epoch or from other questions' numbers,
    /// which other responders are told.
    fn roll(&mut self) -> u64 {
        loop {
            self.numbered += 1;
            let number = self.names.hash_one(self.numbered);
            if !self.by_number.contains_key(&number) {
                return number;
            }
        }
    }
}

/// Answers questions.
pub struct Responder<Q: Send + 'static, A: Send + 'static> {
    queue: Cmq<Call<Q, A>>,
}

impl<Q: Send + 'static, A: Send + 'static> std::fmt::Debug for Responder<Q, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Responder").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// What became of a question that was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Served {
    /// None came in time.
    None,
    /// It was answered.
    Answered,
    /// The application had no answer, or the queue was full: the caller will ask again.
    Unanswered,
    /// The answer is larger than the question has room for, and was not sent: callers must expect more
    /// ([`CallConfig::answer_bytes`]).
    TooLarge,
}

impl<Q, A> Responder<Q, A>
where
    Q: Serialize + DeserializeOwned + Send + 'static,
    A: Serialize + DeserializeOwned + Send + 'static,
{
    /// Answers what comes to this queue.
    pub fn new(queue: Cmq<Call<Q, A>>) -> Responder<Q, A> {
        Responder { queue }
    }

    /// The queue.
    pub fn queue(&self) -> &Cmq<Call<Q, A>> {
        &self.queue
    }

    /// Answers the next question, waiting at most so long for it. `None` leaves it unanswered.
    pub fn serve(&self, timeout: Duration, answer: impl FnOnce(Q, Key) -> Option<A>) -> Served {
        let Some((call, from)) = self.queue.pop_timeout(timeout) else { return Served::None };
        let Call::Question { number, question, padding } = call else { return Served::None };
        // The question's own bytes would do as well; the padding is enough, and known without encoding it again.
        let room = padding.len().saturating_sub(ENVELOPE);
        let Some(answer) = answer(question, from) else { return Served::Unanswered };
        let size = postcard::serialize_with_flavor(&answer, Size::default());
        if size.is_ok_and(|size| size > room) {
            return Served::TooLarge;
        }
        match self.queue.cw_push(from, &Call::Answer { number, answer }) {
            Ok(()) => Served::Answered,
            Err(_) => Served::Unanswered,
        }
    }
}
