//! The manager: the calls of RocketStreams (paper 3, section 2.1).

mod activity;
mod callbacks;
mod found;
mod inbound;
mod info;
mod inner;
mod keeper;
mod out_stream;
mod outbound;
mod peer;
mod proofs;
mod refusals;
mod source;
mod stream_event;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use locks::{Mutex, RwLock};
use rocketbufs::{Context, Listener, Position, ROut};

use callbacks::Callbacks;
pub use info::{InboundInfo, OutboundInfo, PeerInfo, StreamBuffer};
use inner::Inner;
use out_stream::OutStream;
use source::Source;
pub use stream_event::StreamEvent;

use crate::chunk::{ChunkRef, RsChunk};
use crate::config::{Config, Node};
use crate::error::{ChunkError, StartError, StreamError};
use crate::ids::{IdMaker, NodeId, RsId};
use crate::trust::Token;

/// The streams of a node. A clone is another handle; when the last handle is dropped, the node's threads and connections end.
///
/// A dissemination node creates streams and writes chunks; a delivery node receives them by callback. In paper 3 these are Listings
/// 1 and 2.
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use rblive::{Config, RsManager};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // One node for both roles.
/// let rs = RsManager::new(Config::default())?;
/// let (arrived, arrives) = mpsc::sync_channel(16);
/// rs.inbound_callback(move |chunk| drop(arrived.send(chunk)));
///
/// let id = rs.create_stream("mystream")?;
/// rs.set_outbound(rs.node().id, id)?;
/// let mut chunk = rs.allocate_chunk(id, 5)?;
/// chunk.bytes_mut().copy_from_slice(b"media");
/// rs.disseminate_chunk(chunk, 5, None)?;
///
/// let chunk = arrives.recv_timeout(Duration::from_secs(5))?;
/// assert_eq!((chunk.stream(), chunk.to_vec()?), (id, b"media".to_vec()));
/// rs.data_consumed(id, chunk.size() as u64)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RsManager {
    inner: Arc<Inner>,
}

impl RsManager {
    /// Starts a node.
    ///
    /// # Errors
    /// The configuration is wrong, the address is taken, or the system refuses memory or threads.
    pub fn new(config: Config) -> Result<Self, StartError> {
        Self::prepared(config, |_| ())
    }

    /// Starts a node, and calls `prepare` before the node receives streams. Callbacks that are set there miss no event: a restarted node
    /// receives its streams as soon as it listens. [`address`](Self::address) is not known yet in `prepare`.
    ///
    /// # Errors
    /// As [`RsManager::new`].
    pub fn prepared(config: Config, prepare: impl FnOnce(&Self)) -> Result<Self, StartError> {
        config.validate()?;
        let node = config.this_node()?.clone();
        let token_file = Some(&config.dissemination.token_file).filter(|file| !file.as_os_str().is_empty());
        let token = token_file.map(|file| Token::load(file)).transpose().map_err(StartError::Token)?;
        let context = Context::new(config.framework.clone())?;
        let inner = Arc::new(Inner {
            out: ROut::new(&context),
            ids: IdMaker::new(node.id),
            last_bid: AtomicU32::new(0),
            listener: Mutex::default(),
            outgoing: RwLock::default(),
            by_bid: RwLock::default(),
            peers: Mutex::default(),
            sources: RwLock::default(),
            callbacks: Callbacks::default(),
            keeper: Arc::default(),
            token: token.map(Arc::new),
            proofs: Arc::default(),
            refusals: Arc::default(),
            found: RwLock::default(),
            placing: Mutex::default(),
            config,
            node,
            context,
        });
        let weak = Arc::downgrade(&inner);
        inner.keeper.start(move || weak.upgrade().map(|inner| inner.end_lingering()))?;
        if inner.token.is_some() {
            inner.proofs.guard(&inner.out);
        }
        let weak = Arc::downgrade(&inner);
        inner.out.set_data_out_cb(move |bid, context| {
            if let Some(inner) = weak.upgrade() {
                let id = inner.by_bid.read().get(&bid).copied();
                if let Some(id) = id {
                    inner.callbacks.outbound(id, context);
                }
            }
        });
        let manager = Self { inner };
        prepare(&manager);
        manager.listen()?;
        Ok(manager)
    }

    fn listen(&self) -> Result<(), StartError> {
        let inner = &self.inner;
        if inner.node.address.is_empty() {
            return Ok(());
        }
        let listener = Listener::bind(&inner.context, &inner.node.address)?;
        let weak = Arc::downgrade(inner);
        listener.set_conn_cb(move |conn| match weak.upgrade() {
            Some(inner) => inner.accept(&conn),
            None => conn.reject("the node stops"),
        });
        let refusals = inner.refusals.clone();
        listener.set_foreign_conn_cb(move |foreign| refusals.foreign(foreign));
        *inner.listener.lock() = Some(listener);
        Ok(())
    }

    /// Starts a node from a configuration file; see [`Config`](mod@crate::config).
    ///
    /// # Errors
    /// As [`RsManager::new`], or the file cannot be read.
    pub fn from_file(path: &Path) -> Result<Self, StartError> {
        Self::new(Config::load(path)?)
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// This node.
    pub fn node(&self) -> &Node {
        &self.inner.node
    }

    /// The nodes besides those of the configuration, as somebody has found them; those with the name or the number of one of the configuration
    /// count for nothing, and so do those without a name or a number, and those that deliver and have no address. Nodes that are new get the
    /// streams of the rules ([`Rule`](crate::Rule)). A node that is gone is left when its connection is down: who keeps the list may be wrong.
    /// At most [`MAX_NODES`](crate::config::MAX_NODES).
    pub fn set_found_nodes(&self, nodes: Vec<Node>) {
        self.inner.set_found(nodes);
    }

    /// The address at which this node receives streams, with its port. `None` if it has no address.
    pub fn address(&self) -> Option<String> {
        self.inner.address()
    }

    /// Connections to this node's address that were refused so far: of peers that are no nodes, and of nodes without a proof.
    pub fn refused_connections(&self) -> u64 {
        self.inner.refusals.count()
    }

    /// Bytes of the present buffers: their capacities. Their memory is allocated on first use.
    pub fn memory_in_use(&self) -> u64 {
        self.inner.context.memory_in_use()
    }

    /// Closes the connections, once queued data is sent or `grace` has passed, and ends the threads.
    pub fn shutdown(&self, grace: Duration) {
        self.inner.keeper.stop();
        self.inner.peers.lock().values().for_each(|peer| peer.stop());
        *self.inner.listener.lock() = None;
        self.inner.context.shutdown(grace);
    }
}

/// Streams that this node sends.
impl RsManager {
    /// Creates a stream with its buffer, and returns its id, which is unique across all nodes. The nodes of the configured rules get
    /// the stream at once.
    ///
    /// # Errors
    /// The name is not allowed, this is a delivery node, or a limit is reached.
    pub fn create_stream(&self, name: &str) -> Result<RsId, StreamError> {
        self.create_stream_of(name, 1)
    }

    /// As [`create_stream`](Self::create_stream), for a stream of several renditions, which share its buffer: the buffer is that many times
    /// as large, as far as `streams.max_buffer_bytes` allows.
    ///
    /// # Errors
    /// As [`create_stream`](Self::create_stream).
    pub fn create_stream_of(&self, name: &str, renditions: usize) -> Result<RsId, StreamError> {
        let config = &self.inner.config;
        let _placing = self.inner.placing.lock();
        let (capacity, nodes) = (config.buffer_bytes_of(renditions), self.inner.ruled(name, true));
        self.inner.create(name, capacity, config.streams.chunk_bytes, nodes)
    }

    /// Creates a stream that takes the place of one whose buffer is too small: it has the same name and goes to the same nodes, its own buffer
    /// has this capacity, of [`Config::grown_bytes`], and chunks may have an eighth of it. The former one stays until it is destroyed.
    ///
    /// # Errors
    /// As [`create_stream`](Self::create_stream), or [`StreamError::NoSuchStream`].
    pub fn replace_stream(&self, former: RsId, capacity: u64) -> Result<RsId, StreamError> {
        let _placing = self.inner.placing.lock();
        self.inner.replace(former, capacity)
    }

    /// The buffer of a stream that was created here. `None`: there is no such stream.
    pub fn stream_buffer(&self, id: RsId) -> Option<StreamBuffer> {
        let stream = self.inner.outgoing(id).ok().filter(|stream| stream.own)?;
        Some(StreamBuffer { capacity_bytes: stream.capacity, chunk_bytes: stream.chunk_bytes })
    }

    /// Ends a stream that was created here. Its receivers get everything that was disseminated, and then the end.
    ///
    /// # Errors
    /// [`StreamError::NoSuchStream`].
    pub fn destroy_stream(&self, id: RsId) -> Result<Position, StreamError> {
        self.inner.destroy(id)
    }

    /// Sends a stream to a node from now on, and the chunks that the stream's buffer holds. Repeating the call changes nothing.
    ///
    /// # Errors
    /// The stream or the node is unknown, or the node has no address.
    pub fn set_outbound(&self, node: NodeId, id: RsId) -> Result<(), StreamError> {
        self.inner.add_outbound(node, id)
    }

    /// Stops sending a stream to a node, where it ends. Returns whether the node had the stream.
    ///
    /// # Errors
    /// [`StreamError::NoSuchStream`].
    pub fn remove_outbound(&self, node: NodeId, id: RsId) -> Result<bool, StreamError> {
        self.inner.remove_outbound(node, id)
    }

    /// A one-shot chunk of `size` bytes in a stream's buffer. Never waits: the oldest chunks are overwritten.
    ///
    /// # Errors
    /// [`ChunkError`]: the size is 0 or beyond the largest chunk, too many chunks are open, or there is no such stream.
    pub fn allocate_chunk(&self, id: RsId, size: usize) -> Result<RsChunk, ChunkError> {
        self.inner.allocate(id, size)
    }

    /// Disseminates the first `size` bytes of a chunk to the stream's nodes, and returns the position after them. Returns at once.
    /// With a `context`, [`RsManager::outbound_callback`] gets it when every node has the chunk. A size of 0 gives the chunk back.
    ///
    /// Chunks are sent in the order in which they were allocated: a chunk waits for the chunks before it. So if several chunks are
    /// allocated, and then disseminated newest first, they are sent together, and wake each receiver once.
    ///
    /// # Errors
    /// [`ChunkError`], which returns the chunk if it can be disseminated with another size.
    pub fn disseminate_chunk(
        &self,
        chunk: RsChunk,
        size: usize,
        context: Option<u64>,
    ) -> Result<Position, ChunkError> {
        self.inner.disseminate(chunk, size, context)
    }

    /// Calls `callback(id, context)` on a worker thread when a chunk with a context is at every node of its stream. `callback` must not
    /// wait.
    pub fn outbound_callback(&self, callback: impl FnMut(RsId, u64) + Send + 'static) {
        self.inner.callbacks.set_outbound(Box::new(callback));
    }

    /// The streams that this node sends, by id.
    pub fn outbound(&self) -> Vec<OutboundInfo> {
        let streams: Vec<_> = self.inner.outgoing.read().values().cloned().collect();
        let info = |stream: &Arc<OutStream>| OutboundInfo {
            id: stream.id,
            name: stream.name.clone(),
            created_here: stream.own,
            nodes: self.inner.outbound(stream.id),
            chunks: stream.activity.chunks(),
            bytes: stream.activity.bytes(),
            age: stream.activity.age(),
            capacity_bytes: stream.capacity,
        };
        let mut infos: Vec<_> = streams.iter().map(info).collect();
        infos.sort_by_key(|info| info.id);
        infos
    }

    /// The nodes to which this node sends, by number.
    pub fn peers(&self) -> Vec<PeerInfo> {
        let peers = self.inner.peers.lock().clone();
        let nodes = self.inner.known_nodes().into_iter();
        let info = |node: Node| {
            let peer = peers.get(&node.id)?;
            let (connected, carrier) = (peer.is_up(), peer.carrier());
            Some(PeerInfo { node: node.id, name: node.name, connected, carrier })
        };
        let mut infos: Vec<_> = nodes.filter_map(info).collect();
        infos.sort_by_key(|info| info.node);
        infos
    }
}

/// Streams that this node receives.
impl RsManager {
    /// Calls `callback` on a worker thread for every chunk that arrives, one call at a time. `callback` must not wait. Set
    /// it before streams arrive, in [`prepared`](Self::prepared): a chunk that arrives without a callback is not reported later.
    pub fn inbound_callback(&self, callback: impl FnMut(ChunkRef) + Send + 'static) {
        self.inner.callbacks.set_chunk(Box::new(callback));
    }

    /// Calls `callback` on a worker thread for the events of received streams, in order with the chunks of each stream.
    /// `callback` must not wait. Set it before streams arrive, in [`prepared`](Self::prepared).
    pub fn stream_callback(&self, callback: impl FnMut(RsId, StreamEvent) + Send + 'static) {
        self.inner.callbacks.set_event(Box::new(callback));
    }

    /// Returns the oldest `size` bytes of a stream, which the application does not need any more. Without flow control their memory
    /// is reused in any case. The call only counts the bytes that the application has returned ([`InboundInfo::returned_bytes`]).
    ///
    /// # Errors
    /// [`StreamError::NoSuchStream`].
    pub fn data_consumed(&self, id: RsId, size: u64) -> Result<(), StreamError> {
        let sources: Vec<_> = self.inner.sources.read().values().cloned().collect();
        let received = |source: &Arc<Source>| source.of_id(id).filter(|stream| !stream.relayed);
        let stream = sources.iter().find_map(received).ok_or(StreamError::NoSuchStream(id))?;
        stream.returned.fetch_add(size, Ordering::Relaxed);
        Ok(())
    }

    /// The streams that this node receives for its application, by id.
    pub fn inbound(&self) -> Vec<InboundInfo> {
        let sources: Vec<_> = self.inner.sources.read().values().cloned().collect();
        let mut infos = Vec::new();
        for source in &sources {
            let connected = source.down_since().is_none();
            for stream in source.streams().into_iter().filter(|stream| !stream.relayed) {
                let subscription = source.input.subscription(stream.bid);
                let info = subscription.and_then(|subscription| subscription.info());
                infos.push(InboundInfo {
                    id: stream.id,
                    name: stream.name.clone(),
                    from: source.node,
                    connected,
                    chunks: stream.activity.chunks(),
                    bytes: stream.activity.bytes(),
                    age: stream.activity.age(),
                    lost_bytes: stream.lost_bytes.load(Ordering::Relaxed),
                    returned_bytes: stream.returned.load(Ordering::Relaxed),
                    copied_bytes: info.map_or(0, |info| info.copied_bytes),
                });
            }
        }
        infos.sort_by_key(|info| info.id);
        infos
    }
}

impl std::fmt::Debug for RsManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RsManager").field("node", &self.inner.node).finish()
    }
}
