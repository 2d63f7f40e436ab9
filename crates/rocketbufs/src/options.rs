//! How buffers are made and subscribed to.

use std::time::Duration;

use crate::budget::Budget;
use crate::proto::Start;
use crate::types::{Bid, Policy, Position};

/// How to subscribe. The default is what [`RIn::subscribe`](crate::RIn::subscribe) does: from now on, nothing lost, the ring of the configured size.
#[derive(Debug, Clone)]
pub struct SubscribeOptions {
    /// Capacity of the ring here, in bytes (0: `buffers.size_bytes`); rounded up to a power of two. At least twice the buffer's largest delivery.
    pub size_bytes: u64,
    /// History kept for those who join a spliced buffer, in bytes. None: half the ring if spliced, else nothing.
    /// Said here it also has the ring in memory that others can map, where the splice comes only after the answer.
    pub retain_bytes: Option<u64>,
    /// The id that the other end has for the buffer; none: the same as here. For applications that receive from several
    /// processes in turn, see [`RIn::resume_elsewhere`](crate::RIn::resume_elsewhere).
    pub remote_id: Option<Bid>,
    /// Where to begin.
    pub start: Start,
    /// With [`Start::Position`]: this end has everything from here up to there already, as an earlier subscription received
    /// it, and confirms that too. None: it has nothing.
    pub covered_from: Option<Position>,
    /// What happens when this end is slow.
    pub policy: Policy,
    /// Lag in bytes at which `drop` and `disconnect` act; 0: the sender's default.
    pub max_lag_bytes: u64,
    /// How long `block` may hold the writer without progress while others wait; none: the sender's default; zero: for ever.
    pub block_timeout: Option<Duration>,
    /// Names the subscription, so that the sender keeps its place for `hold` when the connection is gone.
    pub name: Vec<u8>,
    /// How long, after the connection is gone. Only with [`Policy::Block`] the sender waits for it meanwhile, and counts it for
    /// what is confirmed: with the other policies it goes on with what the ring has of its history by then, and is told what was
    /// lost.
    pub hold: Duration,
    /// How long a spliced subscription waits for its writer's connection to come back before the writer is gone; none:
    /// `session.linger_ms`.
    pub linger: Option<Duration>,
    /// Tells the sender that data landed only when it was given back. The sender keeps what lies between, so that a
    /// process that ends at any moment and starts again finds everything it had not given back; in exchange `landed`
    /// confirmations come later. No effect on a spliced subscription.
    pub confirm_consumed: bool,
    /// The application hands on what it receives: landed is what it gave back, and what is delivered and consumed is what
    /// it says with [`RIn::confirm`](crate::RIn::confirm). When the sender waits for that,
    /// [`InEvent::Asked`](crate::InEvent::Asked) tells. No effect on a spliced subscription.
    pub relays: bool,
    /// Of a spliced subscription: while fewer receivers than this are behind it (at the ends of all ways, those away included
    /// that block and whose place is kept), nothing more of it is confirmed as delivered or consumed, and all that is not stays in the
    /// ring for those who come or come back. The writer waits for room meanwhile. With flow control only.
    pub min_receivers: u32,
    /// Receives into a ring of its own, of `size_bytes`, also where the sender's could be mapped (transport `shm`), and one
    /// that nobody else writes, also where the sender could (transport `rdma`): the bytes are copied once, and can be had as
    /// a plain slice. For applications that need either.
    pub own_memory: bool,
    /// The most that one view shows where more than one delivery has landed; 0: all of it. Buffers take turns: who works for
    /// long on what it gets, from several of them, gives each back in smaller steps, and holds none of their writers for
    /// as long as another one's whole ring takes.
    pub max_view_bytes: u64,
    /// The budget from which the subscription's ring comes, and to which it goes back while there is no data for it; see
    /// [`Budget`](crate::Budget). `size_bytes` is then the most that one ring takes. A budget that has no room for two of
    /// a buffer's largest deliveries is refused ([`RefusedError::Budget`](crate::RefusedError::Budget)). What the
    /// application has not given back counts; who keeps all of the budget gets nothing more. Cannot be spliced; no
    /// effect on a buffer without flow control, or where the sender's memory is mapped (transport `shm`).
    pub budget: Option<Budget>,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self {
            size_bytes: 0,
            retain_bytes: None,
            remote_id: None,
            start: Start::Newest,
            covered_from: None,
            policy: Policy::Block,
            max_lag_bytes: 0,
            block_timeout: None,
            name: Vec::new(),
            hold: Duration::ZERO,
            linger: None,
            confirm_consumed: false,
            relays: false,
            min_receivers: 0,
            max_view_bytes: 0,
            own_memory: false,
            budget: None,
        }
    }
}

impl SubscribeOptions {
    /// Whether the sender keeps what was not given back when the connection is gone.
    pub(crate) fn keeps_place(&self) -> bool {
        self.policy == Policy::Block && !self.name.is_empty() && !self.hold.is_zero()
    }
}

/// How to make a buffer. The default is what [`ROut::create_buffer`](crate::ROut::create_buffer) does with the configured size.
#[derive(Debug, Clone)]
pub struct BufferOptions {
    /// Capacity of its ring in bytes (0: `buffers.size_bytes`), rounded up to a power of two.
    pub size_bytes: u64,
    /// History kept for joins and resumes, in bytes; none: `buffers.retain_bytes`, or half the capacity.
    pub retain_bytes: Option<u64>,
    /// Largest delivery in bytes; none: a quarter of the capacity.
    pub max_delivery_bytes: Option<u64>,
    /// Whether slow subscribers hold the writer. Without, the oldest data is overwritten and deliveries carry markers.
    pub flow_control: bool,
    /// Keeps everything until it is delivered: in the memory of every receiver at the end of a chain, and not only in that
    /// of the first. What a broker takes with it when it dies can be sent again; in exchange the ring holds what is
    /// under way on the whole chain. With flow control only.
    pub keep_until_delivered: bool,
    /// Where the log begins; positions of a new log usually begin at 0.
    pub start: Position,
}

impl Default for BufferOptions {
    fn default() -> Self {
        Self {
            size_bytes: 0,
            retain_bytes: None,
            max_delivery_bytes: None,
            flow_control: true,
            keep_until_delivered: false,
            start: 0,
        }
    }
}
