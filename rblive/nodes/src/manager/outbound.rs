//! The sending half of a manager: streams that are created or forwarded here, and the nodes that get them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rocketbufs::{Bid, BufferOptions, Position, RIn, SegmentError, SubscribeOptions};

use super::activity::Activity;
use super::inner::Inner;
use super::out_stream::OutStream;
use super::peer::{Link, Peer};
use crate::chunk::RsChunk;
use crate::config::{MARKER_BYTES, Node};
use crate::content::check_name;
use crate::error::{ChunkError, StreamError};
use crate::ids::{NodeId, RsId};
use crate::wire::Announce;

impl Inner {
    fn next_bid(&self) -> Bid {
        self.last_bid.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Creates a stream with the name and the nodes of another one.
    pub(super) fn replace(&self, former: RsId, capacity: u64) -> Result<RsId, StreamError> {
        let name = self.outgoing(former)?.name.clone();
        self.create(&name, capacity, self.config.chunk_bytes_of(capacity), self.outbound(former))
    }

    /// Creates a stream with a buffer of this capacity, and sends it to these nodes.
    pub(super) fn create(
        &self,
        name: &str,
        capacity: u64,
        chunk_bytes: u64,
        nodes: Vec<NodeId>,
    ) -> Result<RsId, StreamError> {
        if !self.node.role.disseminates() {
            return Err(StreamError::NotDisseminating);
        }
        if !check_name(name) {
            return Err(StreamError::Name(name.to_owned()));
        }
        let max = self.config.streams.max_streams;
        if self.outgoing.read().len() >= max {
            return Err(StreamError::TooMany(max));
        }
        let options = BufferOptions::new()
            .size_bytes(capacity)
            .max_delivery_bytes(Some(chunk_bytes + MARKER_BYTES))
            .retain_bytes(Some(capacity / 4))
            .flow_control(false);
        let buffer = self.out.create_buffer_with(self.next_bid(), options)?;
        let id = self.ids.next();
        let (name, activity) = (name.into(), Activity::new());
        self.send_out(OutStream { id, name, buffer, capacity, chunk_bytes, own: true, activity }, nodes)?;
        Ok(id)
    }

    /// Forwards a received stream.
    pub(super) fn relay(
        &self,
        input: &RIn,
        announce: &Announce,
        options: SubscribeOptions,
    ) -> Result<(), String> {
        let spliced = self.out.splice_with(input, announce.bid, self.next_bid(), options);
        let buffer = spliced.map_err(|error| error.to_string())?;
        let (id, name, capacity) = (announce.id, announce.name.as_str().into(), announce.capacity);
        let activity = Activity::new();
        let stream = OutStream { id, name, buffer, capacity, chunk_bytes: 0, own: false, activity };
        let _placing = self.placing.lock();
        let mut nodes = self.ruled(&stream.name, false);
        if self.node.role.delivers() && !nodes.contains(&self.node.id) {
            nodes.push(self.node.id);
        }
        self.send_out(stream, nodes).map_err(|error| error.to_string())
    }

    /// Sends a stream to nodes. One that cannot get it keeps no other from it. After an error the stream is gone.
    fn send_out(&self, stream: OutStream, nodes: Vec<NodeId>) -> Result<(), StreamError> {
        let (id, stream) = (stream.id, Arc::new(stream));
        self.outgoing.write().insert(id, stream.clone());
        self.by_bid.write().insert(stream.buffer.bid(), id);
        // A rule for all nodes does not send a stream back to the node that created it.
        let sends = |node: &&NodeId| **node != id.node() || **node == self.node.id;
        for node in nodes.iter().filter(sends) {
            match self.add_outbound(*node, id) {
                Ok(()) => {}
                Err(error @ StreamError::Thread(_)) => {
                    if let Some(stream) = self.forget_outbound(id).filter(|stream| stream.own) {
                        stream.buffer.destroy();
                    }
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(node, stream = %stream.name, "a node does not get a stream: {error}");
                }
            }
        }
        Ok(())
    }

    pub(super) fn outgoing(&self, id: RsId) -> Result<Arc<OutStream>, StreamError> {
        self.outgoing.read().get(&id).cloned().ok_or(StreamError::NoSuchStream(id))
    }

    pub(super) fn add_outbound(&self, node: NodeId, id: RsId) -> Result<(), StreamError> {
        let announce = self.outgoing(id)?.announce();
        let known = self.known_node(node).or_else(|| self.present_node(node));
        let mut found = known.ok_or(StreamError::NoSuchNode(node))?;
        if found.address.is_empty() {
            return Err(StreamError::NoAddress(node));
        }
        if node == self.node.id {
            // The configured port may be 0.
            found.address = self.address().unwrap_or(found.address);
        }
        let mut peers = self.peers.lock();
        let peer = match peers.get(&node).filter(|peer| !peer.is_over()) {
            Some(peer) => peer.clone(),
            None => {
                let link = Link {
                    context: self.context.clone(),
                    out: self.out.clone(),
                    node: self.node.id,
                    settings: self.config.dissemination.clone(),
                    token: self.token.clone(),
                    proofs: self.proofs.clone(),
                };
                let peer = Peer::start(found, link)?;
                peers.insert(node, peer.clone());
                peer
            }
        };
        drop(peers);
        peer.add(announce);
        Ok(())
    }

    /// A node that gets streams, also if nobody finds it any more.
    fn present_node(&self, node: NodeId) -> Option<Node> {
        let peers = self.peers.lock();
        peers.get(&node).filter(|peer| !peer.is_over()).map(|peer| peer.node().clone())
    }

    pub(super) fn remove_outbound(&self, node: NodeId, id: RsId) -> Result<bool, StreamError> {
        self.outgoing(id)?;
        let peer = self.peers.lock().get(&node).cloned();
        Ok(peer.is_some_and(|peer| peer.remove(id)))
    }

    /// The nodes that get a stream.
    pub(super) fn outbound(&self, id: RsId) -> Vec<NodeId> {
        let peers = self.peers.lock();
        let mut nodes: Vec<_> =
            peers.iter().filter(|(_, peer)| peer.has(id)).map(|(node, _)| *node).collect();
        nodes.sort_unstable();
        nodes
    }

    /// Removes a stream that has ended. Its receivers get the end after the last data.
    pub(super) fn forget_outbound(&self, id: RsId) -> Option<Arc<OutStream>> {
        let stream = self.outgoing.write().remove(&id)?;
        self.by_bid.write().remove(&stream.buffer.bid());
        let peers: Vec<_> = self.peers.lock().values().cloned().collect();
        peers.iter().for_each(|peer| peer.forget(id));
        Some(stream)
    }

    /// Ends a stream that was created here.
    pub(super) fn destroy(&self, id: RsId) -> Result<Position, StreamError> {
        if !self.outgoing(id)?.own {
            return Err(StreamError::NoSuchStream(id));
        }
        let stream = self.forget_outbound(id).ok_or(StreamError::NoSuchStream(id))?;
        Ok(stream.buffer.destroy())
    }

    pub(super) fn allocate(&self, id: RsId, size: usize) -> Result<RsChunk, ChunkError> {
        let stream = self.outgoing(id).ok().filter(|stream| stream.own);
        let stream = stream.ok_or(ChunkError::NoSuchStream(id))?;
        let max = stream.chunk_bytes;
        if size as u64 > max {
            return Err(ChunkError::TooLarge { size, max });
        }
        if size == 0 {
            return Err(ChunkError::Empty);
        }
        let segment = stream.buffer.segment(size as u64, Some(std::time::Duration::ZERO));
        match segment {
            Ok(segment) => Ok(RsChunk { stream: id, segment }),
            Err(SegmentError::TooLarge { .. }) => Err(ChunkError::TooLarge { size, max }),
            Err(SegmentError::Full | SegmentError::TooManyOpen) => Err(ChunkError::TooManyOpen),
            Err(_) => Err(ChunkError::Ended),
        }
    }

    pub(super) fn disseminate(
        &self,
        chunk: RsChunk,
        size: usize,
        context: Option<u64>,
    ) -> Result<Position, ChunkError> {
        use rocketbufs::error::DeliverError;
        let id = chunk.stream;
        let stream = self.outgoing(id).map_err(|_| ChunkError::Ended)?;
        let back = |segment| Box::new(RsChunk { stream: id, segment });
        let delivered = stream.buffer.deliver(chunk.segment, size as u64, context);
        let end = delivered.map_err(|error| match error {
            DeliverError::ShortDeliver(segment) => ChunkError::NotNewest(back(segment)),
            DeliverError::TooLong { segment, .. } => ChunkError::TooLong { size, chunk: back(segment) },
            DeliverError::Foreign(_) => ChunkError::NoSuchStream(id),
            DeliverError::TooManyContexts(most) => ChunkError::TooManyContexts(most),
            _ => ChunkError::Ended,
        })?;
        stream.activity.count(size);
        Ok(end)
    }
}
