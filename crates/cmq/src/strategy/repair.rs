//! What to do about messages that were lost: send them again, or send what is true now (paper, "Replace vs Replay").
//!
//! ```text
//!   Repair (sender)                                        Repair (receiver)
//!   push(key, slot, value) ── numbered ───────╳──────────▶ sees a hole in the numbers
//!      │  history, or newest value of a slot               │
//!      ◀───────────────── missing from..to ────────────────┘
//!      └── again: the same (replay), or the newest value of each slot that was in it (replace) ──▶
//! ```
//!
//! Nothing is held up: messages are popped as they arrive, and what is repaired comes later, marked. Everything is
//! bounded: the history, how often one message is sent again, the holes that are remembered.
//!
//! A request for repair names a random number that every message to this receiver carries: a stranger does not know it,
//! and can make nobody send anything. And an address is asked with no more bytes than came from there, whoever claims to
//! be there.

mod came;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::came::Senders;
use crate::config::MIN_DATAGRAM;
use crate::io::lock;
use crate::proto::after;
use crate::proto::batches::CLOSE_COPIES;
use crate::proto::receiver::Account;
use crate::wire::{HEADER_BYTES, IP_BYTES};
use crate::{Cmq, Key, PushError};

/// Bytes that a request for repair is on the wire, with all headers and without the holes.
const REQUEST_BYTES: u64 = 90;
/// Bytes of the holes in one request: it fits into a datagram on every path.
const HOLES_BYTES: u64 = 1024;
/// Bytes by which its stream ends, once.
const END_BYTES: u64 = (CLOSE_COPIES * (IP_BYTES + HEADER_BYTES)) as u64;
/// Holes of one sender that are remembered.
const HOLES: usize = 256;

const _: () = assert!(REQUEST_BYTES + HOLES_BYTES <= (IP_BYTES + MIN_DATAGRAM) as u64);

/// What travels between two [`Repair`]s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Repairable<T> {
    /// A message.
    Message {
        /// The sender's random number for this receiver.
        token: u32,
        /// Its number, of those for this key.
        number: u64,
        /// It was sent before.
        again: bool,
        /// What it is about.
        slot: u64,
        /// It.
        message: T,
    },
    /// So many messages there were: tells the end.
    Head {
        /// The sender's random number for this receiver.
        token: u32,
        /// The number of the next.
        next: u64,
    },
    /// The sender of the message is asked for what was not received.
    Missing {
        /// The random number of whoever is asked.
        token: u32,
        /// The first number of each hole, and how many are missing from there.
        holes: Vec<(u64, u64)>,
    },
    /// These are not sent again: they are kept no more, or something newer about the same was sent.
    Gone {
        /// The sender's random number for this receiver.
        token: u32,
        /// The first number.
        from: u64,
        /// The end.
        to: u64,
    },
}

/// What is sent for what was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The messages themselves, as long as they are among the last `history` of their key.
    Replay {
        /// Messages that are kept for each key.
        history: usize,
    },
    /// The newest value of each slot of which a value was lost. At most `slots` are known for each key.
    Replace {
        /// Slots that are kept for each key.
        slots: usize,
    },
}

/// Limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairConfig {
    /// What is sent again. Default: replay of the last 1,024.
    pub policy: Policy,
    /// How often one message is sent again. Default 3.
    pub repairs: u32,
    /// How long a receiver waits before it asks the same sender again: since it asked, or since what it asked for came last.
    /// Default 100 ms; at least 1 ms. Shorter than the way there and back it asks for what is on its way.
    pub patience: Duration,
    /// Keys sent to, and senders received from, that are remembered. Default 4,096. Past it nothing is pushed to more
    /// keys, and a sender that was silent long is forgotten: what was missing of it is gone. It is one of an address that
    /// has more than its share of them, if there is such a one.
    pub peers: usize,
}

impl Default for RepairConfig {
    fn default() -> RepairConfig {
        RepairConfig {
            policy: Policy::Replay { history: 1024 },
            repairs: 3,
            patience: Duration::from_millis(100),
            peers: 4096,
        }
    }
}

/// A message that was popped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got<T> {
    /// It.
    pub message: T,
    /// What it is about.
    pub slot: u64,
    /// Its number, of those this sender pushed for this key.
    pub number: u64,
    /// It stands for one that was lost: it comes out of order.
    pub repaired: bool,
    /// Who sent it.
    pub from: Key,
}

struct Kept<T> {
    slot: u64,
    message: T,
    repairs: u32,
}

/// What was sent for one key.
struct Sent<T> {
    /// Known to its receiver alone.
    token: u32,
    next: u64,
    /// By number.
    kept: BTreeMap<u64, Kept<T>>,
    /// The number of the newest value of each slot, if values replace each other.
    newest: HashMap<u64, u64>,
}

struct State<T> {
    sent: HashMap<Key, Sent<T>>,
    came: Senders,
}

/// A queue whose losses are repaired.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use cmq::strategy::repair::{Policy, Repair, RepairConfig};
///
/// let queue = || cmq::new_rq_with("127.0.0.1:0", cmq::Config::immediate());
/// let prices: Repair<f64> =
///     Repair::new(queue()?, RepairConfig { policy: Policy::Replace { slots: 100 }, ..RepairConfig::default() });
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
    /// Its keys are random, and known to nobody.
    names: RandomState,
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
    /// Repairs by this queue, which belongs to it from now on.
    pub fn new(queue: Cmq<Repairable<T>>, config: RepairConfig) -> Repair<T> {
        let state = State { sent: HashMap::new(), came: Senders::new(config.peers, config.patience) };
        Repair { queue, config, names: RandomState::new(), state: Mutex::new(state) }
    }

    /// The random number that every message for a key carries. The epoch would not do: all who hear of this queue know it.
    fn token(&self, key: &Key) -> u32 {
        self.names.hash_one(key) as u32
    }

    /// The queue.
    pub fn queue(&self) -> &Cmq<Repairable<T>> {
        &self.queue
    }

    /// Pushes a message about something: with [`Policy::Replace`] a later one about the same replaces it. With
    /// [`Policy::Replay`] the slot means nothing.
    ///
    /// # Errors
    /// [`PushError`]; the message has no number then. `Full` also if too many keys are remembered.
    pub fn push(&self, key: impl Into<Key>, slot: u64, message: &T) -> Result<(), PushError> {
        let key = key.into().canonical();
        let mut state = lock(&self.state);
        if state.sent.len() >= self.config.peers && !state.sent.contains_key(&key) {
            return Err(PushError::Full);
        }
        let sent = state.sent.entry(key).or_insert_with(|| Sent::new(self.token(&key)));
        let kept = Kept { slot, message: message.clone(), repairs: 0 };
        self.queue.cw_push(key, &kept.travel(sent.token, sent.next, false))?;
        sent.keep(kept, self.config.policy);
        Ok(())
    }

    /// Tells the receiver of a key how many messages there were, so that it misses also the last ones. To be called when
    /// there is nothing more to push for a while.
    ///
    /// # Errors
    /// [`PushError`].
    pub fn tell_end(&self, key: impl Into<Key>) -> Result<(), PushError> {
        let key = key.into().canonical();
        let next = lock(&self.state).sent.get(&key).map_or(0, |sent| sent.next);
        self.queue.cw_push(key, &Repairable::Head { token: self.token(&key), next })?;
        self.queue.flush();
        Ok(())
    }

    /// Messages that were missing and are not sent again: lost, or replaced by newer ones.
    pub fn gone(&self) -> u64 {
        lock(&self.state).came.gone()
    }

    /// Messages of all senders that are missing now.
    pub fn missing(&self) -> u64 {
        lock(&self.state).came.missing()
    }

    /// The next message, waiting at most so long; answers requests and makes them meanwhile, so it must be called by
    /// senders too.
    pub fn pop_timeout(&self, timeout: Duration) -> Option<Got<T>> {
        let until = after(Instant::now(), timeout);
        loop {
            let again = lock(&self.state).came.next_deadline();
            let sooner = again.map_or(until, |again| again.min(until));
            let popped = self.queue.pop_timeout(sooner.saturating_duration_since(Instant::now()));
            if let Some(got) = popped.and_then(|(repairable, from)| self.take(repairable, from)) {
                return Some(got);
            }
            let now = Instant::now();
            self.ask(&mut lock(&self.state).came, now);
            if now >= until {
                return None;
            }
        }
    }

    fn take(&self, repairable: Repairable<T>, from: Key) -> Option<Got<T>> {
        let now = Instant::now();
        match repairable {
            Repairable::Missing { token, holes } => {
                if let Some(sent) = lock(&self.state).sent.get_mut(&from).filter(|sent| sent.token == token) {
                    let holes = holes.iter().take(HOLES);
                    holes.for_each(|&(first, count)| {
                        self.repair(sent, from, first..first.saturating_add(count))
                    });
                    self.queue.flush();
                }
                None
            }
            Repairable::Head { token, next } => {
                let came = &mut lock(&self.state).came;
                came.expect((from, token), next, now);
                self.ask(came, now);
                None
            }
            Repairable::Gone { token, from: first, to } => {
                let came = &mut lock(&self.state).came;
                came.forget((from, token), &(first..to), now);
                self.ask(came, now);
                None
            }
            Repairable::Message { token, number, again, slot, message } => {
                let came = &mut lock(&self.state).came;
                let new = came.arrived((from, token), number, again, now);
                self.ask(came, now);
                new.then_some(Got { message, slot, number, repaired: again, from })
            }
        }
    }

    /// Asks whoever is to be asked now for what did not come.
    fn ask(&self, came: &mut Senders, now: Instant) {
        while let Some(((from, token), holes)) = came.ask(now) {
            let asked = self.queue.account(from.addr, |account| choose(account, holes));
            if let Some(holes) = asked.flatten() {
                // If it does not leave, it is asked again later.
                let _ = self.queue.cw_push(from, &Repairable::Missing { token, holes });
                self.queue.flush();
            }
        }
    }

    /// Sends again what one receiver is missing, and tells what it will not get.
    fn repair(&self, sent: &mut Sent<T>, to: Key, missing: Range<u64>) {
        let token = sent.token;
        let mut at = missing.start;
        let end = missing.end.min(sent.next);
        let gone = |from: u64, until: u64| {
            if from < until {
                let gone = Repairable::Gone { token, from, to: until };
                // If it does not leave, it is asked for again.
                let _ = self.queue.cw_push(to, &gone);
            }
        };
        let wanted = sent.kept.range_mut(at.min(end)..end);
        for (&number, kept) in wanted.filter(|(_, kept)| kept.repairs < self.config.repairs) {
            kept.repairs += 1;
            gone(at, number);
            at = number + 1;
            let _ = self.queue.cw_push(to, &kept.travel(token, number, true));
        }
        gone(at, end);
    }
}

/// As many holes as the account and a datagram allow to ask for; none if that is no hole.
fn choose(account: &mut Account, holes: &VecDeque<Range<u64>>) -> Option<Vec<(u64, u64)>> {
    let spent = account.spent.max(END_BYTES) + REQUEST_BYTES;
    let room = account.came.checked_sub(spent)?.min(HOLES_BYTES);
    let mut bytes = 0;
    let mut chosen = Vec::new();
    for hole in holes {
        let count = hole.end - hole.start;
        let cost = varint(hole.start) + varint(count);
        if bytes + cost > room {
            break;
        }
        bytes += cost;
        chosen.push((hole.start, count));
    }
    if chosen.is_empty() {
        return None;
    }
    account.spent = spent + bytes;
    Some(chosen)
}

/// Bytes of a number as postcard writes it.
fn varint(number: u64) -> u64 {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7).into()
}

impl<T> Sent<T> {
    fn new(token: u32) -> Sent<T> {
        Sent { token, next: 0, kept: BTreeMap::new(), newest: HashMap::new() }
    }

    /// Keeps the next message, and drops what it replaces or what is too old.
    fn keep(&mut self, kept: Kept<T>, policy: Policy) {
        let most = match policy {
            Policy::Replay { history } => history,
            Policy::Replace { slots } => {
                if let Some(older) = self.newest.insert(kept.slot, self.next) {
                    self.kept.remove(&older);
                }
                slots
            }
        };
        self.kept.insert(self.next, kept);
        self.next += 1;
        if self.kept.len() > most
            && let Some((_, oldest)) = self.kept.pop_first()
        {
            self.newest.remove(&oldest.slot);
        }
    }
}

impl<T: Clone> Kept<T> {
    fn travel(&self, token: u32, number: u64, again: bool) -> Repairable<T> {
        Repairable::Message { token, number, again, slot: self.slot, message: self.message.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RECORD_BYTES;

    fn holes(starts: impl Iterator<Item = u64>) -> VecDeque<Range<u64>> {
        starts.map(|start| start..start + 1).collect()
    }

    #[test]
    fn nobody_is_asked_for_nothing() {
        let holes = holes([1 << 40].into_iter());
        let cost = varint(1 << 40) + varint(1);
        let enough = END_BYTES + REQUEST_BYTES + cost;
        let mut account = Account { came: enough - 1, spent: 0 };
        assert_eq!(choose(&mut account, &holes), None, "there is no room for the hole");
        assert_eq!(account.spent, 0);
        account.came = enough;
        assert_eq!(choose(&mut account, &holes), Some(vec![(1 << 40, 1)]));
        assert_eq!(account.spent, enough);
    }

    /// The largest request leaves in one datagram on every path, also where larger messages are refused.
    #[test]
    fn a_request_fits_into_a_datagram() {
        let holes = holes((0..HOLES as u64).map(|n| (1 << 62) + 2 * n));
        let mut account = Account { came: 1 << 20, spent: 0 };
        let chosen = choose(&mut account, &holes).expect("it may be asked");
        assert!(
            chosen.len() > 50 && chosen.iter().zip(&holes).all(|(&(first, _), hole)| first == hole.start)
        );
        let request: Repairable<u64> = Repairable::Missing { token: u32::MAX, holes: chosen };
        let size = postcard::to_allocvec(&request).expect("it can be encoded").len();
        assert!(HEADER_BYTES + RECORD_BYTES + size <= MIN_DATAGRAM, "{size} bytes");
    }
}
