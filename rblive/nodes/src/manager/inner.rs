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
    /// Nodes besides those of the configuration, by number.
    pub found: RwLock<Vec<Node>>,
    /// Held while a stream or a node is added, so that no node misses a stream of its rules.
    pub placing: Mutex<()>,
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
    /// A node of the configuration, or one that was found.
    pub fn known_node(&self, id: NodeId) -> Option<Node> {
        let own = self.config.nodes.iter().find(|known| known.id == id).cloned();
        own.or_else(|| self.found.read().iter().find(|known| known.id == id).cloned())
    }

    /// All nodes of the configuration and those that were found.
    pub fn known_nodes(&self) -> Vec<Node> {
        self.config.nodes.iter().cloned().chain(self.found.read().iter().cloned()).collect()
    }

    /// The nodes that get a stream of this name by the rules.
    pub fn ruled(&self, stream: &str, is_own: bool) -> Vec<NodeId> {
        let nodes = self.known_nodes().into_iter();
        nodes.filter(|node| self.config.is_ruled(stream, is_own, node)).map(|node| node.id).collect()
    }

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
