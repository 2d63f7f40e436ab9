//! State that the handles and the threads of a manager share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use locks::{Mutex, RwLock};
use rocketbufs::{Bid, Context, Listener, ROut};

use super::callbacks::Callbacks;
use super::keeper::Keeper;
use super::out_stream::OutStream;
use super::peer::Peer;
use super::proofs::Proofs;
use super::refusals::Refusals;
use super::source::Source;
use crate::config::{Config, Node};
use crate::ids::{IdMaker, NodeId, RsId};
use crate::trust::Token;

/// A node.
pub struct Inner {
    pub config: Config,
    pub node: Node,
    pub context: Context,
    pub out: ROut,
    pub listener: Mutex<Option<Listener>>,
    pub ids: IdMaker,
    pub last_bid: AtomicU32,
    pub outgoing: RwLock<HashMap<RsId, Arc<OutStream>>>,
    pub by_bid: RwLock<HashMap<Bid, RsId>>,
    pub peers: Mutex<HashMap<NodeId, Arc<Peer>>>,
    pub sources: RwLock<HashMap<NodeId, Arc<Source>>>,
    pub callbacks: Callbacks,
    pub keeper: Arc<Keeper>,
    /// The token of all nodes, if they have one.
    pub token: Option<Arc<Token>>,
    /// The proofs of receivers.
    pub proofs: Arc<Proofs>,
    /// Connections to this node's address that were refused.
    pub refusals: Arc<Refusals>,
}

impl Inner {
    /// The address in use, with its port.
    pub fn address(&self) -> Option<String> {
        self.listener.lock().as_ref().map(Listener::local_addr)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.keeper.stop();
        self.peers.lock().values().for_each(|peer| peer.stop());
    }
}
