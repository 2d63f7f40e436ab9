//! A node that sends streams to this one, and the streams that it sends.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use locks::{Mutex, RwLock};
use rocketbufs::{Bid, RIn};

use super::activity::Activity;
use crate::ids::{NodeId, RsId};

/// A received stream.
pub struct InStream {
    pub id: RsId,
    pub bid: Bid,
    pub name: Arc<str>,
    /// Whether this node only forwards the stream. A node of both roles delivers such a stream over a connection to itself.
    pub relayed: bool,
    pub activity: Activity,
    pub lost_bytes: AtomicU64,
    /// Bytes that the application has returned.
    pub returned: AtomicU64,
}

impl InStream {
    pub fn new(id: RsId, bid: Bid, name: &str, relayed: bool) -> Self {
        let zero = AtomicU64::default;
        Self {
            id,
            bid,
            name: name.into(),
            relayed,
            activity: Activity::new(),
            lost_bytes: zero(),
            returned: zero(),
        }
    }
}

/// A node that sends.
pub struct Source {
    pub node: NodeId,
    /// The process of the node: another one after a restart.
    pub instance: u128,
    pub input: RIn,
    streams: RwLock<HashMap<Bid, Arc<InStream>>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Since when the connection is lost.
    down_since: Option<Instant>,
    /// Streams that were announced on the present connection.
    announced: HashSet<RsId>,
}

impl Source {
    pub fn new(node: NodeId, instance: u128, input: RIn) -> Self {
        Self { node, instance, input, streams: RwLock::default(), state: Mutex::default() }
    }

    pub fn stream(&self, bid: Bid) -> Option<Arc<InStream>> {
        self.streams.read().get(&bid).cloned()
    }

    pub fn streams(&self) -> Vec<Arc<InStream>> {
        self.streams.read().values().cloned().collect()
    }

    pub fn of_id(&self, id: RsId) -> Option<Arc<InStream>> {
        self.streams.read().values().find(|stream| stream.id == id).cloned()
    }

    pub fn insert(&self, stream: Arc<InStream>) {
        self.streams.write().insert(stream.bid, stream);
    }

    /// Removes a stream. False if it was removed before.
    pub fn remove(&self, stream: &InStream) -> bool {
        let mut streams = self.streams.write();
        let known = streams.get(&stream.bid).is_some_and(|known| known.id == stream.id);
        known && streams.remove(&stream.bid).is_some()
    }

    /// Notes that a stream was announced on this connection.
    pub fn note_announced(&self, id: RsId) {
        self.state.lock().announced.insert(id);
    }

    /// The streams that the node has not announced again.
    pub fn not_announced(&self) -> Vec<Arc<InStream>> {
        let state = self.state.lock();
        self.streams().into_iter().filter(|stream| !state.announced.contains(&stream.id)).collect()
    }

    /// Notes that the connection is lost.
    pub fn note_down(&self) {
        self.state.lock().down_since = Some(Instant::now());
    }

    /// Notes a new connection, on which all streams will be announced again.
    pub fn note_up(&self) {
        *self.state.lock() = State::default();
    }

    pub fn down_since(&self) -> Option<Instant> {
        self.state.lock().down_since
    }
}
