//! Nodes that are found while this one runs.

use std::collections::HashSet;
use std::sync::Arc;

use super::inner::Inner;
use super::peer::Peer;
use crate::config::{MAX_NODES, Node};
use crate::ids::{NodeId, RsId};

impl Inner {
    pub(super) fn set_found(&self, mut nodes: Vec<Node>) {
        let configured = &self.config.nodes;
        nodes.retain(|node| configured.iter().all(|own| own.id != node.id && own.name != node.name));
        // As the configuration refuses them.
        let is_whole = |node: &Node| !(node.role.delivers() && node.address.is_empty());
        nodes.retain(|node| node.id != 0 && !node.name.is_empty() && is_whole(node));
        nodes.sort_by_key(|node| node.id);
        nodes.dedup_by_key(|node| node.id);
        nodes.truncate(MAX_NODES);
        let _placing = self.placing.lock();
        let before = std::mem::replace(&mut *self.found.write(), nodes.clone());
        let fresh = self.leave_gone(&nodes);
        let is_known: HashSet<NodeId> = before.iter().map(|node| node.id).collect();
        for node in nodes.iter().filter(|node| !is_known.contains(&node.id) || fresh.contains(&node.id)) {
            self.add_ruled(node);
        }
    }

    /// Leaves the nodes that are not there any more, and moves what others get to their new addresses. Returns the nodes that must be given the
    /// streams of the rules again.
    fn leave_gone(&self, nodes: &[Node]) -> HashSet<NodeId> {
        let is_own = |id: NodeId| self.config.nodes.iter().any(|own| own.id == id);
        let peers: Vec<(NodeId, Arc<Peer>)> = {
            let peers = self.peers.lock();
            peers.iter().filter(|(id, _)| !is_own(**id)).map(|(id, peer)| (*id, peer.clone())).collect()
        };
        let mut fresh = HashSet::new();
        for (id, peer) in peers {
            let now = nodes.iter().find(|node| node.id == id);
            let is_same = now.is_some_and(|node| node.address == peer.node().address);
            let is_over = if is_same { peer.leave(false) } else { now.is_some() || peer.leave(true) };
            if !is_over {
                continue;
            }
            let streams = peer.streams();
            peer.stop();
            self.peers.lock().remove(&id);
            if now.is_some() {
                self.give(id, &streams);
                fresh.insert(id);
            }
        }
        fresh
    }

    /// Gives a node the streams of the rules.
    fn add_ruled(&self, node: &Node) {
        let streams: Vec<_> = self.outgoing.read().values().cloned().collect();
        let is_due =
            |own: bool, id: RsId, name: &str| id.node() != node.id && self.config.is_ruled(name, own, node);
        let due = streams.iter().filter(|stream| is_due(stream.own, stream.id, &stream.name));
        let due: Vec<RsId> = due.map(|stream| stream.id).collect();
        self.give(node.id, &due);
    }

    fn give(&self, node: NodeId, streams: &[RsId]) {
        for id in streams {
            if let Err(error) = self.add_outbound(node, *id) {
                tracing::warn!(node, stream = %id, "a node that was found does not get a stream: {error}");
            }
        }
    }
}
