//! Recovery of lost messages: send them again, or send the newest value (paper, "Replace vs Replay").
//!
//! ```text
//!   Repair (sender)                                        Repair (receiver)
//!   push(key, slot, value) ── numbered ───────╳──────────▶ sees a gap in the numbers
//!      │  history, or newest value of a slot               │
//!      ◀───────────────── missing from..to ────────────────┘
//!      └── repeated: the same (replay), or the newest value of each slot that was in it (replace) ──▶
//! ```
//!
//! Losses delay no other message: messages are popped as they arrive, and a repaired message is popped later,
//! marked as such. All memory is bounded, and so are the retransmissions of one message.
//!
//! A repair request names the random token that every message to this receiver carries. A stranger does not
//! know the token, and cannot make a sender send anything. An address also receives no more bytes of requests
//! than it sent, so a forged address is not flooded.

mod received_log;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::received_log::{MAX_GAPS, ReceivedLogs};
use crate::config::MIN_DATAGRAM;
use crate::error::PushError;
use crate::io::lock;
use crate::key::Key;
use crate::proto::after;
use crate::proto::unreliable::batcher::CLOSE_COPIES;
use crate::proto::unreliable::receiver::AmplificationBudget;
use crate::queue::Cmq;
use crate::wire::{HEADER_BYTES, IP_BYTES};

/// Bytes of a repair request on the wire, with all headers and without the gaps.
const REQUEST_BYTES: u64 = 90;
/// Bytes of the gaps in one request: it fits into a datagram on every path.
const MAX_GAP_BYTES: u64 = 1024;
/// Bytes of the datagrams that close the stream of requests.
const END_BYTES: u64 = (CLOSE_COPIES * (IP_BYTES + HEADER_BYTES)) as u64;

const _: () = assert!(REQUEST_BYTES + MAX_GAP_BYTES <= (IP_BYTES + MIN_DATAGRAM) as u64);

/// The messages between two [`Repair`]s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Repairable<T> {
    /// A message.
    Message {
        /// The sender's random token for this receiver.
        token: u32,
        /// The number of the message, among those for this key.
        number: u64,
        /// True for a retransmission.
        repeated: bool,
        /// The slot of the message.
        slot: u64,
        /// The message.
        message: T,
    },
    /// The number of messages so far, so that the receiver notices the loss of the last ones.
    End {
        /// The sender's random token for this receiver.
        token: u32,
        /// The number of the next message.
        next: u64,
    },
    /// A request for missing messages.
    Missing {
        /// The token of the sender that is asked.
        token: u32,
        /// The first number of each gap, and the number of missing messages.
        gaps: Vec<(u64, u64)>,
    },
    /// These messages are not sent again: they are no longer in the history, or were replaced.
    Unavailable {
        /// The sender's random token for this receiver.
        token: u32,
        /// The first number.
        from: u64,
        /// The number after the last one.
        to: u64,
    },
}

/// The replacement of a lost message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The message itself, while it is in the history of its key.
    Replay {
        /// Messages in the history of each key.
        history: usize,
    },
    /// The newest value of its slot. Older values are not sent again.
    Replace {
        /// Slots that are kept for each key.
        slots: usize,
    },
}

/// The settings of a [`Repair`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairConfig {
    /// The replacement of a lost message. Default: replay of the last 1,024.
    pub policy: Policy,
    /// How often one message is sent again. Default 3.
    pub max_repairs: u32,
    /// How long a receiver waits for an answer before it asks the same sender again. Each answer restarts the
    /// wait.
    ///
    /// Default 100 ms; at least 1 ms. An interval shorter than the round trip requests messages that are on
    /// their way.
    pub request_interval: Duration,
    /// Keys sent to, and senders received from, that are remembered. Default 4,096.
    ///
    /// Beyond it pushes to further keys fail. A sender is evicted for a new one, and its missing messages are
    /// unrecoverable: a sender of an address that has more than its share, or else the one that was silent
    /// longest.
    pub max_peers: usize,
}

option_setters::setters! { fields of RepairConfig:
    policy: Policy,
    max_repairs: u32,
    request_interval: Duration,
    max_peers: usize,
}

impl Default for RepairConfig {
    fn default() -> RepairConfig {
        RepairConfig {
            policy: Policy::Replay { history: 1024 },
            max_repairs: 3,
            request_interval: Duration::from_millis(100),
            max_peers: 4096,
        }
    }
}

/// A popped message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received<T> {
    /// The message.
    pub message: T,
    /// The subject of the message: with [`Policy::Replace`] a later message with the same slot replaces it.
    pub slot: u64,
    /// The number of the message, among those of this sender for this key.
    pub number: u64,
    /// True if it replaces a lost message: it is out of order.
    pub repaired: bool,
    /// The sender.
    pub from: Key,
}

struct HistoryEntry<T> {
    slot: u64,
    message: T,
    repairs: u32,
}

/// The messages sent for one key.
struct SendHistory<T> {
    /// The random token, which only the receiver of this key knows.
    token: u32,
    next: u64,
    /// The kept messages by their numbers.
    entries: BTreeMap<u64, HistoryEntry<T>>,
    /// The number of the newest value of each slot, for [`Policy::Replace`].
    newest: HashMap<u64, u64>,
}

struct State<T> {
    histories: HashMap<Key, SendHistory<T>>,
    received: ReceivedLogs,
}

/// A queue that recovers lost messages.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use cmq::strategy::repair::{Policy, Repair, RepairConfig};
///
/// let queue = || cmq::new_rq_with("127.0.0.1:0", cmq::Config::immediate());
/// let prices: Repair<f64> =
///     Repair::new(queue()?, RepairConfig::default().policy(Policy::Replace { slots: 100 }));
/// let screen: Repair<f64> = Repair::new(queue()?, RepairConfig::default());
/// let to = (screen.queue().local_addr(), 0);
/// prices.push(to, 7, &101.5)?;
/// let got = screen.pop_timeout(Duration::from_secs(5)).expect("loopback");
/// assert_eq!((got.slot, got.message), (7, 101.5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Repair<T: Send + 'static> {
    queue: Cmq<Repairable<T>>,
    config: RepairConfig,
    /// Makes tokens from keys, with a secret of its own.
    token_hasher: RandomState,
    state: Mutex<State<T>>,
}

impl<T: Send + 'static> std::fmt::Debug for Repair<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repair").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl<T> Repair<T>
where
    T: Serialize + DeserializeOwned + Clone + Send + 'static,
{
    /// Takes over a queue.
    pub fn new(queue: Cmq<Repairable<T>>, config: RepairConfig) -> Repair<T> {
        let state = State {
            histories: HashMap::new(),
            received: ReceivedLogs::new(config.max_peers, config.request_interval),
        };
        Repair { queue, config, token_hasher: RandomState::new(), state: Mutex::new(state) }
    }

    /// The token that every message for a key carries. The epoch cannot serve as token: every receiver of
    /// this queue knows it.
    fn token(&self, key: &Key) -> u32 {
        self.token_hasher.hash_one(key) as u32
    }

    /// The queue below.
    pub fn queue(&self) -> &Cmq<Repairable<T>> {
        &self.queue
    }

    /// Pushes a message about `slot`. With [`Policy::Replace`] a later message about the same slot replaces
    /// this one. [`Policy::Replay`] ignores the slot.
    ///
    /// # Errors
    /// [`PushError`]; the message gets no number. [`PushError::Full`] also if too many keys are remembered.
    pub fn push(&self, key: impl Into<Key>, slot: u64, message: &T) -> Result<(), PushError> {
        let key = key.into().canonical();
        let mut state = lock(&self.state);
        if state.histories.len() >= self.config.max_peers && !state.histories.contains_key(&key) {
            return Err(PushError::Full);
        }
        let history = state.histories.entry(key).or_insert_with(|| SendHistory::new(self.token(&key)));
        let entry = HistoryEntry { slot, message: message.clone(), repairs: 0 };
        self.queue.cw_push(key, &entry.to_wire(history.token, history.next, false))?;
        history.record(entry, self.config.policy);
        Ok(())
    }

    /// Notifies the receiver of a key how many messages there are, so that it notices the loss of the last
    /// ones. Call it when no further message follows for a while.
    ///
    /// # Errors
    /// [`PushError`].
    pub fn notify_end(&self, key: impl Into<Key>) -> Result<(), PushError> {
        let key = key.into().canonical();
        let next = lock(&self.state).histories.get(&key).map_or(0, |history| history.next);
        self.queue.cw_push(key, &Repairable::End { token: self.token(&key), next })?;
        self.queue.flush();
        Ok(())
    }

    /// Messages that were missing and will not be sent again: they are lost, or were replaced by newer ones.
    pub fn unrecoverable(&self) -> u64 {
        lock(&self.state).received.unrecoverable()
    }

    /// Messages of all senders that are missing now.
    pub fn missing(&self) -> u64 {
        lock(&self.state).received.missing()
    }

    /// Waits for the next message, at most this long. The call also sends and answers requests for lost messages, so
    /// senders must call it too.
    pub fn pop_timeout(&self, timeout: Duration) -> Option<Received<T>> {
        let until = after(Instant::now(), timeout);
        loop {
            let again = lock(&self.state).received.next_deadline();
            let sooner = again.map_or(until, |again| again.min(until));
            let popped = self.queue.pop_timeout(sooner.saturating_duration_since(Instant::now()));
            if let Some(got) = popped.and_then(|(repairable, from)| self.on_message(repairable, from)) {
                return Some(got);
            }
            let now = Instant::now();
            self.request_missing(&mut lock(&self.state).received, now);
            if now >= until {
                return None;
            }
        }
    }

    fn on_message(&self, repairable: Repairable<T>, from: Key) -> Option<Received<T>> {
        let now = Instant::now();
        match repairable {
            Repairable::Missing { token, gaps } => {
                if let Some(history) =
                    lock(&self.state).histories.get_mut(&from).filter(|history| history.token == token)
                {
                    let gaps = gaps.iter().take(MAX_GAPS);
                    gaps.for_each(|&(first, count)| {
                        self.repair(history, from, first..first.saturating_add(count))
                    });
                    self.queue.flush();
                }
                None
            }
            Repairable::End { token, next } => {
                let received = &mut lock(&self.state).received;
                received.expect((from, token), next, now);
                self.request_missing(received, now);
                None
            }
            Repairable::Unavailable { token, from: first, to } => {
                let received = &mut lock(&self.state).received;
                received.mark_unavailable((from, token), &(first..to), now);
                self.request_missing(received, now);
                None
            }
            Repairable::Message { token, number, repeated, slot, message } => {
                let received = &mut lock(&self.state).received;
                let new = received.arrived((from, token), number, repeated, now);
                self.request_missing(received, now);
                new.then_some(Received { message, slot, number, repaired: repeated, from })
            }
        }
    }

    /// Sends the requests that are due.
    fn request_missing(&self, received: &mut ReceivedLogs, now: Instant) {
        while let Some(((from, token), gaps)) = received.next_request(now) {
            let chosen = self.queue.amplification_budget(from.addr, |budget| select_gaps(budget, gaps));
            if let Some(gaps) = chosen.flatten() {
                // A request that is not sent is repeated later.
                let _ = self.queue.cw_push(from, &Repairable::Missing { token, gaps });
                self.queue.flush();
            }
        }
    }

    /// Sends the missing messages of one receiver again, and reports those that are unavailable.
    fn repair(&self, history: &mut SendHistory<T>, to: Key, missing: Range<u64>) {
        let token = history.token;
        let mut at = missing.start;
        let end = missing.end.min(history.next);
        let unavailable = |from: u64, until: u64| {
            if from < until {
                let range = Repairable::Unavailable { token, from, to: until };
                // A report that is not sent is requested again.
                let _ = self.queue.cw_push(to, &range);
            }
        };
        let wanted = history.entries.range_mut(at.min(end)..end);
        for (&number, entry) in wanted.filter(|(_, entry)| entry.repairs < self.config.max_repairs) {
            entry.repairs += 1;
            unavailable(at, number);
            at = number + 1;
            let _ = self.queue.cw_push(to, &entry.to_wire(token, number, true));
        }
        unavailable(at, end);
    }
}

/// The gaps to request, as many as the anti-amplification limit and a datagram allow. `None` if no gap fits.
fn select_gaps(budget: &mut AmplificationBudget, gaps: &VecDeque<Range<u64>>) -> Option<Vec<(u64, u64)>> {
    let spent = budget.sent.max(END_BYTES) + REQUEST_BYTES;
    let room = budget.received.checked_sub(spent)?.min(MAX_GAP_BYTES);
    let mut bytes = 0;
    let mut chosen = Vec::new();
    for gap in gaps {
        let count = gap.end - gap.start;
        let cost = varint(gap.start) + varint(count);
        if bytes + cost > room {
            break;
        }
        bytes += cost;
        chosen.push((gap.start, count));
    }
    if chosen.is_empty() {
        return None;
    }
    budget.sent = spent + bytes;
    Some(chosen)
}

/// The length of a number in postcard's encoding.
fn varint(number: u64) -> u64 {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7).into()
}

impl<T> SendHistory<T> {
    fn new(token: u32) -> SendHistory<T> {
        SendHistory { token, next: 0, entries: BTreeMap::new(), newest: HashMap::new() }
    }

    /// Records the next message, and drops the message that it replaces, or the oldest.
    fn record(&mut self, entry: HistoryEntry<T>, policy: Policy) {
        let max = match policy {
            Policy::Replay { history } => history,
            Policy::Replace { slots } => {
                if let Some(older) = self.newest.insert(entry.slot, self.next) {
                    self.entries.remove(&older);
                }
                slots
            }
        };
        self.entries.insert(self.next, entry);
        self.next += 1;
        if self.entries.len() > max
            && let Some((_, oldest)) = self.entries.pop_first()
        {
            self.newest.remove(&oldest.slot);
        }
    }
}

impl<T: Clone> HistoryEntry<T> {
    fn to_wire(&self, token: u32, number: u64, repeated: bool) -> Repairable<T> {
        Repairable::Message { token, number, repeated, slot: self.slot, message: self.message.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RECORD_BYTES;

    fn gaps(starts: impl Iterator<Item = u64>) -> VecDeque<Range<u64>> {
        starts.map(|start| start..start + 1).collect()
    }

    #[test]
    fn a_request_needs_room_for_a_gap() {
        let gaps = gaps([1 << 40].into_iter());
        let cost = varint(1 << 40) + varint(1);
        let enough = END_BYTES + REQUEST_BYTES + cost;
        let mut budget = AmplificationBudget { received: enough - 1, sent: 0 };
        assert_eq!(select_gaps(&mut budget, &gaps), None, "there is no room for the gap");
        assert_eq!(budget.sent, 0);
        budget.received = enough;
        assert_eq!(select_gaps(&mut budget, &gaps), Some(vec![(1 << 40, 1)]));
        assert_eq!(budget.sent, enough);
    }

    /// The largest request fits into one datagram on every path, also with
    /// [`Oversize::Reject`](crate::Oversize::Reject).
    #[test]
    fn a_request_fits_into_a_datagram() {
        let gaps = gaps((0..MAX_GAPS as u64).map(|n| (1 << 62) + 2 * n));
        let mut budget = AmplificationBudget { received: 1 << 20, sent: 0 };
        let chosen = select_gaps(&mut budget, &gaps).expect("the limit allows a request");
        assert!(chosen.len() > 50 && chosen.iter().zip(&gaps).all(|(&(first, _), gap)| first == gap.start));
        let request: Repairable<u64> = Repairable::Missing { token: u32::MAX, gaps: chosen };
        let size = postcard::to_allocvec(&request).expect("the request can be encoded").len();
        assert!(HEADER_BYTES + RECORD_BYTES + size <= MIN_DATAGRAM, "{size} bytes");
    }
}
