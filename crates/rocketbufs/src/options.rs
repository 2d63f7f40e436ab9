//! Options for creating buffers and subscribing to them.
//!
//! Options are built by setters, each of which takes the options and returns them. What no setter names keeps its default.
//! A setter takes an `Option` where `None` has a meaning of its own, which is the default.

use std::time::Duration;

use crate::limits::BlockTimeout;
use crate::proto::Start;
use crate::state::Budget;
use crate::types::{Bid, Policy, Position};

/// Which event makes received data count as landed for the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ConfirmMode {
    /// Data has landed when it is in this process's memory.
    #[default]
    OnArrival,
    /// Data has landed when the application gives it back. The sender keeps what lies between, so that a process that ends at
    /// any moment and starts again finds everything it did not give back. Confirmations of landed data come later.
    OnConsume,
    /// As [`ConfirmMode::OnConsume`], for an application that forwards what it receives: [`Subscription::confirm`] reports
    /// what the receivers behind it have, and [`InEvent::ConfirmRequested`] tells what the sender waits for.
    ///
    /// [`Subscription::confirm`]: crate::Subscription::confirm
    /// [`InEvent::ConfirmRequested`]: crate::InEvent::ConfirmRequested
    #[doc(hidden)]
    Relayed,
}

/// Options of a subscription. The default is what [`RIn::subscribe`](crate::RIn::subscribe) does: data from now on, nothing
/// lost, a ring of the configured size.
///
/// ```
/// use std::time::Duration;
/// use rocketbufs::{Policy, Start, SubscribeOptions};
///
/// // Survives the connection for a minute, and never holds the writer back.
/// let options = SubscribeOptions::new()
///     .size_bytes(1 << 20)
///     .start(Start::Oldest)
///     .durable("archive", Duration::from_secs(60))
///     .policy(Policy::Drop);
/// # drop(options);
/// ```
#[derive(Debug, Clone, Default)]
pub struct SubscribeOptions {
    pub(crate) size_bytes: Option<u64>,
    pub(crate) own_memory: bool,
    pub(crate) max_view_bytes: Option<u64>,
    pub(crate) budget: Option<Budget>,
    pub(crate) start: Start,
    pub(crate) covered_from: Option<Position>,
    pub(crate) remote_id: Option<Bid>,
    pub(crate) policy: Policy,
    pub(crate) max_lag_bytes: Option<u64>,
    pub(crate) block_timeout: BlockTimeout,
    pub(crate) name: Vec<u8>,
    pub(crate) hold: Duration,
    pub(crate) confirm: ConfirmMode,
    pub(crate) retain_bytes: Option<u64>,
    pub(crate) linger: Option<Duration>,
    pub(crate) min_receivers: u32,
}

impl SubscribeOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the subscription, and asks the sender to keep its place for `hold` after the connection is gone. A
    /// subscription replaces one of the same name, live or away, and continues in its place. A name without a hold
    /// ([`Duration::ZERO`]) only replaces a live one.
    ///
    /// With [`Policy::Block`] the sender waits for the subscription while it is away, and counts it for confirmations. With the
    /// other policies the sender goes on; the subscription gets what the ring still has, and is told what it lost.
    #[must_use]
    pub fn durable(mut self, name: impl Into<Vec<u8>>, hold: Duration) -> Self {
        (self.name, self.hold) = (name.into(), hold);
        self
    }

    /// Whether the sender keeps what was not given back when the connection is gone.
    pub(crate) fn keeps_place(&self) -> bool {
        self.policy == Policy::Block && !self.name.is_empty() && !self.hold.is_zero()
    }

    /// The capacity that was asked for. `RIn::subscription` puts the configured one in where none was.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.size_bytes.unwrap_or_default()
    }
}

option_setters::setters! {
    /// Memory of the receiving end.
    SubscribeOptions:
    /// Capacity of the receiving ring in bytes, rounded up to a power of two. At least twice the buffer's largest delivery.
    /// Default: `buffers.size_bytes`.
    size_bytes(bytes: u64) = Some(bytes);
    /// Receives into a ring of this process that no other process writes, even where the sender's ring could be mapped
    /// (transport `shm`) or the sender could write by itself (transport `rdma`). The bytes are copied once, and views give
    /// plain slices of them. Default: false.
    own_memory(own: bool);
    /// The most bytes that one view shows where more than one delivery has landed; `None`: all of them. An application that
    /// works long on each view, and reads several buffers in turn, holds each writer for less time with small views.
    max_view_bytes(bytes: Option<u64>);
    /// The budget that provides the ring while there is data for the subscription; see [`Budget`]. `size_bytes` is then the
    /// largest ring that the subscription takes. A budget that cannot hold two of the buffer's largest deliveries is refused
    /// ([`RefusedError::Budget`](crate::error::RefusedError::Budget)). Data that the application has not given back counts; an
    /// application that keeps the whole budget receives nothing more. Such a subscription cannot be spliced. No effect on
    /// a buffer without flow control, or where the sender's memory is mapped (transport `shm`).
    budget(budget: Option<Budget>);
}

option_setters::setters! {
    /// Where a subscription begins.
    SubscribeOptions:
    /// Where to begin. Default: [`Start::Newest`].
    start(start: Start);
}

option_setters::setters! {
    /// What happens while the receiver is slow.
    SubscribeOptions:
    /// What happens while this end is slow. Default: [`Policy::Block`].
    policy(policy: Policy);
    /// The lag in bytes at which [`Policy::Drop`] and [`Policy::Disconnect`] act; `None`: the sender's default.
    max_lag_bytes(bytes: Option<u64>);
    /// How long [`Policy::Block`] may hold the writer without progress while others wait. Default: the sender's.
    block_timeout(timeout: BlockTimeout);
}

option_setters::setters! {
    /// Confirmations, and splices.
    SubscribeOptions:
    /// When data counts as landed. No effect on a spliced subscription, whose subscribers confirm.
    confirm(mode: ConfirmMode);
    /// History that a spliced buffer keeps for subscribers that join, in bytes. `None`: half the ring if spliced, else
    /// nothing. A value also places the ring in memory that other processes can map, where the splice comes only after
    /// the sender has answered.
    retain_bytes(bytes: Option<u64>);
    /// How long a spliced subscription waits for its writer's connection to come back before the writer is gone; `None`:
    /// `session.linger_ms`.
    linger(linger: Option<Duration>);
}

/// Options of a buffer. The default is what [`ROut::create_buffer`](crate::ROut::create_buffer) does with the configured
/// size.
///
/// ```
/// use rocketbufs::BufferOptions;
///
/// let options = BufferOptions::new().size_bytes(1 << 20).keep_until_delivered(true);
/// # drop(options);
/// ```
#[derive(Debug, Clone)]
pub struct BufferOptions {
    pub(crate) size_bytes: Option<u64>,
    pub(crate) retain_bytes: Option<u64>,
    pub(crate) max_delivery_bytes: Option<u64>,
    pub(crate) flow_control: bool,
    pub(crate) keep_until_delivered: bool,
    pub(crate) start: Position,
}

impl Default for BufferOptions {
    fn default() -> Self {
        Self {
            size_bytes: None,
            retain_bytes: None,
            max_delivery_bytes: None,
            flow_control: true,
            keep_until_delivered: false,
            start: 0,
        }
    }
}

impl BufferOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }
}

option_setters::setters! { BufferOptions:
    /// Capacity of the ring in bytes, rounded up to a power of two. Default: `buffers.size_bytes`.
    size_bytes(bytes: u64) = Some(bytes);
    /// History that is kept for joins and resumes, in bytes; `None`: `buffers.retain_bytes`, or half the capacity.
    retain_bytes(bytes: Option<u64>);
    /// The largest delivery in bytes; `None`: a quarter of the capacity.
    max_delivery_bytes(bytes: Option<u64>);
    /// Whether slow subscribers may hold the writer. Without flow control the oldest data is overwritten, and deliveries
    /// carry markers. Default: true.
    flow_control(flow_control: bool);
    /// Keeps everything until it is delivered: until it is in the memory of every receiver at the end of a chain, and not
    /// only of the first one. What a broker takes with it when it dies can be sent again. The ring then holds what is
    /// under way on the whole chain. With flow control only. Default: false.
    keep_until_delivered(keep: bool);
    /// Position where the log begins. Default: 0.
    start(position: Position);
}
