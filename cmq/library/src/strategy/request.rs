//! Requests and responses over messages that may be lost (paper, "Request - Response" and "Future type
//! message passing").
//!
//! ```text
//!   Caller                                              Responder
//!   call(key, request) ──▶ outstanding calls ──▶ serve(|request, from| response)
//!      │                      │ no response in time: again, or lost     │
//!      ▼                      ▼                                         │
//!   PendingCall ◀────────── response ◀────────────────────────────────────┘
//! ```
//!
//! A request is sent again if no response arrives in time, so a responder may receive it more than once: use
//! it for requests that may be repeated. A response counts only from the address of the request, and with its
//! random id.
//!
//! A source address may be forged. A [`Responder`] therefore never sends more bytes to an address than it
//! received from there: each request is padded to the size of the expected response, and a larger response is
//! not sent.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use postcard::ser_flavors::Size;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::PushError;
use crate::io::lock;
use crate::key::Key;
use crate::proto::after;
use crate::proto::recent_map::RecentMap;
use crate::proto::timeline::Timeline;
use crate::proto::unreliable::batcher::CLOSE_COPIES;
use crate::queue::Cmq;
use crate::wire::{HEADER_BYTES, IP_BYTES, RECORD_BYTES};

/// The bytes of a response without its body, if many requests shared a datagram: the headers of IP, UDP, CMQ
/// and the record, and the datagrams that close the stream of responses.
const ENVELOPE: usize = IP_BYTES + HEADER_BYTES + RECORD_BYTES + CLOSE_COPIES * (IP_BYTES + HEADER_BYTES);

/// The messages between a [`Caller`] and a [`Responder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call<Q, A> {
    /// A request.
    Request {
        /// The random id of the call.
        id: u64,
        /// The body.
        request: Q,
        /// Zeros, as many as the response may have bytes.
        padding: Vec<u8>,
    },
    /// A response.
    Response {
        /// The id of the call.
        id: u64,
        /// The body.
        response: A,
    },
}

/// The settings of a [`Caller`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallConfig {
    /// How long an attempt waits for the response. Default 500 ms.
    pub timeout: Duration,
    /// How often a request is sent before the call is lost. Default 3; at least 1.
    pub max_attempts: u32,
    /// Bytes of the largest response. Default 64. Each request is padded by as much, plus some 300 bytes for
    /// headers.
    pub max_response_bytes: usize,
    /// Calls that may be outstanding. Default 65,536.
    pub max_outstanding: usize,
}

option_setters::setters! { fields of CallConfig:
    timeout: Duration,
    max_attempts: u32,
    max_response_bytes: usize,
    max_outstanding: usize,
}

impl Default for CallConfig {
    fn default() -> CallConfig {
        CallConfig {
            timeout: Duration::from_millis(500),
            max_attempts: 3,
            max_response_bytes: 64,
            max_outstanding: 65_536,
        }
    }
}

/// The state of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallState<A> {
    /// The response arrived.
    Answered(A),
    /// No response arrived in any attempt. Send another request, or ask another queue (the paper's remedial
    /// action).
    Lost,
    /// The response may still arrive.
    Pending,
}

/// Why a call was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The caller's: too many calls are outstanding. Take their results, or drop them.
    #[error("{0} calls are outstanding, which is the limit; take their results first")]
    Outstanding(usize),
    /// The request could not be pushed.
    #[error(transparent)]
    Push(#[from] PushError),
}

struct OutstandingCall<Q, A> {
    to: Key,
    request: Q,
    attempts: u32,
    state: CallState<A>,
}

struct Store<Q, A> {
    /// The calls by their ids.
    calls: RecentMap<u64, OutstandingCall<Q, A>>,
    /// Pending calls, in the order of their last attempt.
    open: Timeline,
    /// Makes ids, with a secret of its own.
    id_hasher: RandomState,
    ids_issued: u64,
    /// True while a waiting thread reads the queue. The others wait for that thread.
    reading: bool,
}

struct Shared<Q: Send + 'static, A: Send + 'static> {
    queue: Cmq<Call<Q, A>>,
    config: CallConfig,
    store: Mutex<Store<Q, A>>,
    /// Signalled when the reading thread stops, perhaps because of a response.
    changed: Condvar,
}

/// Sends requests, and keeps the outstanding calls.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use cmq::strategy::request::{CallConfig, Caller, CallState, Responder};
///
/// let server = Responder::<String, usize>::new(cmq::new_rq_with("127.0.0.1:0", cmq::Config::immediate())?);
/// let to = (server.queue().local_addr(), 0);
/// let queue = cmq::new_rq_with("127.0.0.1:0", cmq::Config::immediate())?;
/// let caller = Caller::<String, usize>::new(queue, CallConfig::default());
///
/// let length = caller.call(to, "four".to_owned())?;
/// assert_eq!(length.state(), CallState::Pending);
/// server.serve(Some(Duration::from_secs(5)), |request, _from| Some(request.len()));
/// assert_eq!(length.wait(Some(Duration::from_secs(5))), CallState::Answered(4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Caller<Q: Send + 'static, A: Send + 'static> {
    shared: Arc<Shared<Q, A>>,
}

/// The response to one request, which may not be here yet (the paper's future). Dropping it forgets the call.
pub struct PendingCall<Q: Send + 'static, A: Send + 'static> {
    shared: Arc<Shared<Q, A>>,
    slot: u32,
}

impl<Q: Send + 'static, A: Send + 'static> std::fmt::Debug for Caller<Q, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("queue", &self.shared.queue).finish_non_exhaustive()
    }
}

impl<Q: Send + 'static, A: Send + 'static> std::fmt::Debug for PendingCall<Q, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingCall").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl<Q, A> Caller<Q, A>
where
    Q: Serialize + DeserializeOwned + Clone + Send + 'static,
    A: Serialize + DeserializeOwned + Clone + Send + 'static,
{
    /// Takes over a queue.
    pub fn new(queue: Cmq<Call<Q, A>>, config: CallConfig) -> Caller<Q, A> {
        let store = Mutex::new(Store {
            calls: RecentMap::new(),
            open: Timeline::new(),
            id_hasher: RandomState::new(),
            ids_issued: 0,
            reading: false,
        });
        Caller { shared: Arc::new(Shared { queue, config, store, changed: Condvar::new() }) }
    }

    /// The queue below.
    pub fn queue(&self) -> &Cmq<Call<Q, A>> {
        &self.shared.queue
    }

    /// Sends a request. The returned value gives the response.
    ///
    /// # Errors
    /// [`CallError`]; no request is sent.
    pub fn call(&self, to: impl Into<Key>, request: Q) -> Result<PendingCall<Q, A>, CallError> {
        let (shared, to) = (&self.shared, to.into().canonical());
        let mut store = lock(&shared.store);
        shared.poll(&mut store);
        if store.calls.len() >= shared.config.max_outstanding {
            return Err(CallError::Outstanding(shared.config.max_outstanding));
        }
        let id = store.new_id();
        shared.send_request(to, id, &request)?;
        let call = OutstandingCall { to, request, attempts: 1, state: CallState::Pending };
        let slot = store.calls.insert(id, call);
        store.open.push_back(slot, Instant::now());
        Ok(PendingCall { shared: Arc::clone(shared), slot })
    }

    /// The number of outstanding calls: pending, or finished and not dropped yet.
    pub fn outstanding(&self) -> usize {
        lock(&self.shared.store).calls.len()
    }
}

impl<Q, A> PendingCall<Q, A>
where
    Q: Serialize + DeserializeOwned + Clone + Send + 'static,
    A: Serialize + DeserializeOwned + Clone + Send + 'static,
{
    /// The state of the call. Never waits.
    pub fn state(&self) -> CallState<A> {
        let mut store = lock(&self.shared.store);
        self.shared.poll(&mut store);
        store.state(self.slot)
    }

    /// Waits for the end of the call, at most this long, and returns its state. `None` has no limit.
    pub fn wait(&self, timeout: Option<Duration>) -> CallState<A> {
        let (shared, until) = (&self.shared, after(Instant::now(), timeout.unwrap_or(Duration::MAX)));
        let mut store = lock(&shared.store);
        loop {
            shared.poll(&mut store);
            let state = store.state(self.slot);
            let now = Instant::now();
            if !matches!(state, CallState::Pending) || now >= until {
                return state;
            }
            // Wait until a response arrives, or until an attempt times out.
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
                store.on_response(call, from);
            }
            shared.changed.notify_all();
        }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Drop for PendingCall<Q, A> {
    fn drop(&mut self) {
        let mut store = lock(&self.shared.store);
        store.calls.remove_at(self.slot);
        store.open.remove(self.slot);
    }
}

impl<Q, A> Shared<Q, A>
where
    Q: Serialize + DeserializeOwned + Clone + Send + 'static,
    A: Serialize + DeserializeOwned + Clone + Send + 'static,
{
    fn send_request(&self, to: Key, id: u64, request: &Q) -> Result<(), PushError> {
        let padding = vec![0; self.config.max_response_bytes + ENVELOPE];
        let call = Call::Request { id, request: request.clone(), padding };
        self.queue.cw_push(to, &call)?;
        // The caller waits for the response, so the request does not wait for its batch to fill.
        self.queue.flush();
        Ok(())
    }

    /// Takes the responses that are here, and sends timed-out requests again.
    fn poll(&self, store: &mut Store<Q, A>) {
        while let Some((call, from)) = self.queue.cw_pop() {
            store.on_response(call, from);
        }
        let now = Instant::now();
        while let Some((slot, since)) = store.open.first()
            && after(since, self.config.timeout) <= now
        {
            store.open.remove(slot);
            let Some((id, call)) = store.calls.at(slot) else { continue };
            if call.attempts >= self.config.max_attempts {
                call.state = CallState::Lost;
                continue;
            }
            call.attempts += 1;
            // A request that cannot be pushed now is a failed attempt.
            let _ = self.send_request(call.to, id, &call.request);
            store.open.push_back(slot, now);
        }
    }
}

impl<Q, A: Clone> Store<Q, A> {
    fn state(&self, slot: u32) -> CallState<A> {
        self.calls.entry(slot).map_or(CallState::Lost, |(_, call)| call.state.clone())
    }

    fn on_response(&mut self, call: Call<Q, A>, from: Key) {
        let Call::Response { id, response } = call else { return };
        let Some(slot) = self.calls.slot(id) else { return };
        let Some((_, call)) = self.calls.at(slot) else { return };
        // The members of a group respond from their own addresses.
        let is_from = call.to.addr == from.addr || call.to.addr.ip().is_multicast();
        if is_from && matches!(call.state, CallState::Pending) {
            call.state = CallState::Answered(response);
            self.open.remove(slot);
        }
    }

    /// An id that no outstanding call has. The id does not follow from the epoch or from the ids of other calls,
    /// which other responders know.
    fn new_id(&mut self) -> u64 {
        loop {
            self.ids_issued += 1;
            let id = self.id_hasher.hash_one(self.ids_issued);
            if self.calls.slot(id).is_none() {
                return id;
            }
        }
    }
}

/// Answers requests.
pub struct Responder<Q: Send + 'static, A: Send + 'static> {
    queue: Cmq<Call<Q, A>>,
}

impl<Q: Send + 'static, A: Send + 'static> std::fmt::Debug for Responder<Q, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Responder").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// The result of [`Responder::serve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Served {
    /// No request arrived in time.
    None,
    /// A response was sent.
    Answered,
    /// The application had no response, or the queue was full. The caller sends the request again.
    Unanswered,
    /// The response is larger than the request allows, and was not sent. The caller must set a larger
    /// [`CallConfig::max_response_bytes`](field@CallConfig::max_response_bytes).
    TooLarge,
}

impl<Q, A> Responder<Q, A>
where
    Q: Serialize + DeserializeOwned + Send + 'static,
    A: Serialize + DeserializeOwned + Send + 'static,
{
    /// Takes over a queue.
    pub fn new(queue: Cmq<Call<Q, A>>) -> Responder<Q, A> {
        Responder { queue }
    }

    /// The queue below.
    pub fn queue(&self) -> &Cmq<Call<Q, A>> {
        &self.queue
    }

    /// Waits for the next request, at most this long, and answers it. A `timeout` of `None` has no limit. A
    /// request for which `respond` returns `None` is left unanswered.
    pub fn serve(&self, timeout: Option<Duration>, respond: impl FnOnce(Q, Key) -> Option<A>) -> Served {
        let popped =
            timeout.map_or_else(|| Some(self.queue.pop()), |timeout| self.queue.pop_timeout(timeout));
        let Some((call, from)) = popped else { return Served::None };
        let Call::Request { id, request, padding } = call else { return Served::None };
        // The padding is enough room: the bytes of the request would count too, but are not known without
        // encoding it again.
        let room = padding.len().saturating_sub(ENVELOPE);
        let Some(response) = respond(request, from) else { return Served::Unanswered };
        let size = postcard::serialize_with_flavor(&response, Size::default());
        if size.is_ok_and(|size| size > room) {
            return Served::TooLarge;
        }
        match self.queue.cw_push(from, &Call::Response { id, response }) {
            Ok(()) => Served::Answered,
            Err(_) => Served::Unanswered,
        }
    }
}
