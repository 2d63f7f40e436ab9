//! Options for creating buffers and subscribing to them.
//!
//! Setters take the options and return them. An option that is not set keeps its default. A setter takes an `Option` if `None` has a
//! meaning, which is the default.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ground::limits::BlockTimeout;
use crate::ground::types::{Bid, Epoch, Policy, Position};
use crate::proto::{RefusedError, Start};
use crate::state::Budget;

/// Which event makes received data count as landed for the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ConfirmMode {
    /// Data has landed when it is in this process's memory.
    #[default]
    OnArrival,
    /// Data has landed when the application releases it. The sender keeps unreleased data, so that a process that is killed and
    /// started again receives it again. Landed data is confirmed later.
    OnConsume,
    /// As [`ConfirmMode::OnConsume`], for an application that forwards received data: [`Subscription::confirm`] reports the
    /// positions of downstream receivers, and [`InEvent::ConfirmRequested`] has the positions that the sender waits for.
    ///
    /// [`Subscription::confirm`]: crate::Subscription::confirm
    /// [`InEvent::ConfirmRequested`]: crate::InEvent::ConfirmRequested
    #[doc(hidden)]
    Relayed,
}

/// Decides how much memory a ring may take that becomes larger than it was at first; see [`SubscribeOptions::growth_check`]. Clones are
/// the same one.
///
/// ```
/// use rocketbufs::{GrowthCheck, SubscribeOptions};
///
/// let at_most = 64 << 20;
/// let check = GrowthCheck::new(move |bytes| match bytes {
///     bytes if bytes <= at_most => Ok(()),
///     bytes => Err(format!("{bytes} bytes are more than {at_most}")),
/// });
/// let options = SubscribeOptions::new().max_size_bytes(1 << 30).growth_check(Some(check));
/// # drop(options);
/// ```
#[derive(Clone)]
pub struct GrowthCheck(Arc<Check>);

type Check = dyn Fn(u64) -> Result<(), String> + Send + Sync;

impl GrowthCheck {
    /// `check` is given the bytes that the ring will have in all, with what it had before, and says why that is too much. If the ring then gets
    /// no memory, `check` is called again with what it has. A worker calls it: it must not wait, nor call the framework.
    pub fn new(check: impl Fn(u64) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    pub(crate) fn ask(&self, bytes: u64) -> Result<(), RefusedError> {
        (self.0)(bytes).map_err(RefusedError::NotAllowed)
    }
}

impl fmt::Debug for GrowthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GrowthCheck(..)")
    }
}

/// Options of a subscription. The defaults are those of [`RIn::subscribe`](crate::RIn::subscribe): new data only, without losses,
/// and a ring of the configured size.
///
/// ```
/// use std::time::Duration;
/// use rocketbufs::{Policy, Start, SubscribeOptions};
///
/// // The position outlives the connection for a minute, and the writer never waits.
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
    pub(crate) max_size_bytes: Option<u64>,
    pub(crate) growth_check: Option<GrowthCheck>,
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

    /// Makes the subscription durable: the sender keeps its position under this name for the time `hold` after the connection is
    /// lost. A subscription with the same name, connected or offline, is replaced, and this one continues at its position. With
    /// [`Duration::ZERO`], the name only replaces a connected subscription.
    ///
    /// With [`Policy::Block`], the sender waits for the subscription while it is offline, and counts it for confirmations. With the
    /// other policies the sender continues. The subscription then receives the rest of the ring, and its losses are reported.
    #[must_use]
    pub fn durable(mut self, name: impl Into<Vec<u8>>, hold: Duration) -> Self {
        (self.name, self.hold) = (name.into(), hold);
        self
    }

    /// Whether the sender keeps unreleased data after the connection is lost.
    pub(crate) fn keeps_place(&self) -> bool {
        self.policy == Policy::Block && !self.name.is_empty() && !self.hold.is_zero()
    }

    /// The largest capacity that the ring may get, of a power of two.
    pub(crate) fn max_capacity_bytes(&self) -> u64 {
        let most = self.max_size_bytes.unwrap_or(0);
        let capacity = self.capacity_bytes().next_power_of_two();
        // A limit that is no power of two is not exceeded.
        if most > capacity { 1 << most.ilog2() } else { capacity }
    }

    /// The requested capacity. `RIn::subscribe_with` inserts the configured one if none was requested.
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
    /// The largest ring that the subscription takes, in bytes: the ring grows when larger deliveries need it, with everything in
    /// it, and does not get smaller again. A subscription of a [`Budget`] leaves it then. Not with transport `rdma`, or where the ring
    /// is memory of another process. Default: as large as it is at first.
    max_size_bytes(bytes: u64) = Some(bytes);
    /// Asked before the ring becomes larger than it was to be at first, as larger deliveries need it: already when it is made, or later. The
    /// subscription ends as refused ([`RefusedError::NotAllowed`](crate::error::RefusedError::NotAllowed)) where it may not. `None`: no check.
    growth_check(check: Option<GrowthCheck>);
    /// Receives into a ring of this process that no other process writes, even where the sender's ring could be mapped
    /// (transport `shm`) or the sender could write by itself (transport `rdma`). The bytes are copied once, and views give
    /// plain slices of them. Default: false.
    own_memory(own: bool);
    /// The most bytes of a view with more than one delivery; `None`: no limit. With small views, an application that works long on
    /// each view, and reads several buffers in turn, blocks each writer for a shorter time.
    max_view_bytes(bytes: Option<u64>);
    /// The budget that provides the ring while there is data for the subscription; see [`Budget`]. `size_bytes` is then the
    /// largest ring that the subscription takes. A budget that cannot hold two of the buffer's largest deliveries is refused
    /// ([`RefusedError::Budget`](crate::error::RefusedError::Budget)). Unreleased data counts: an application that
    /// releases nothing of a used budget receives nothing more. Such a subscription cannot be spliced. No effect on
    /// a buffer without flow control, or where the sender's memory is mapped (transport `shm`).
    budget(budget: Option<Budget>);
}

option_setters::setters! {
    /// Where a subscription begins.
    SubscribeOptions:
    /// The first position. Default: [`Start::Newest`].
    start(start: Start);
}

option_setters::setters! {
    /// The behaviour of the sender while the receiver is slow.
    SubscribeOptions:
    /// The policy while this end is slow. Default: [`Policy::Block`].
    policy(policy: Policy);
    /// The lag in bytes at which [`Policy::Drop`] and [`Policy::Disconnect`] act; `None`: the sender's default.
    max_lag_bytes(bytes: Option<u64>);
    /// How long [`Policy::Block`] can block the writer without progress while others wait. Default: the sender's.
    block_timeout(timeout: BlockTimeout);
}

option_setters::setters! {
    /// Confirmations and splices.
    SubscribeOptions:
    /// When data counts as landed. No effect on a spliced subscription, whose subscribers confirm.
    confirm(mode: ConfirmMode);
    /// History that a spliced buffer retains for new subscribers, in bytes. `None`: half of the ring if the subscription is spliced,
    /// else nothing. A value also places the ring in memory that other processes can map, which matters if the splice follows
    /// the sender's answer.
    retain_bytes(bytes: Option<u64>);
    /// How long a spliced subscription waits for its writer's next connection before the writer counts as gone; `None`:
    /// `session.linger_ms`.
    linger(linger: Option<Duration>);
}

/// Options of a buffer. The defaults are those of [`ROut::create_buffer`](crate::ROut::create_buffer), with the configured size.
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
    pub(crate) mapped_locally: bool,
    pub(crate) start: Position,
    /// The name of the log; none: a random one. See `relay`.
    pub(crate) epoch: Option<Epoch>,
}

impl Default for BufferOptions {
    fn default() -> Self {
        Self {
            size_bytes: None,
            retain_bytes: None,
            max_delivery_bytes: None,
            flow_control: true,
            keep_until_delivered: false,
            mapped_locally: false,
            start: 0,
            epoch: None,
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
    /// History that is retained for new and resuming subscribers, in bytes; `None`: `buffers.retain_bytes`, or half the capacity.
    retain_bytes(bytes: Option<u64>);
    /// The largest delivery in bytes; `None`: a quarter of the capacity.
    max_delivery_bytes(bytes: Option<u64>);
    /// Whether slow subscribers can block the writer. Without flow control, the oldest data is overwritten, and deliveries have
    /// consistency markers. Default: true.
    flow_control(flow_control: bool);
    /// Keeps data until it is delivered, that is, in the memory of every receiver at the end of a chain, and not only of the next
    /// process. Data that is lost with a broker can then be sent again. The ring has room for the data under way on the whole
    /// chain. With flow control only. Default: false.
    keep_until_delivered(keep: bool);
    /// Processes that connect to a [`Listener::bind_locally`](crate::Listener::bind_locally) of this context map the ring, if it is made
    /// after the listener. Without this, and with transport `tcp`, they get copies. A descriptor, and memory that is not returned while
    /// the buffer is idle. Default: false.
    mapped_locally(mapped: bool);
    /// The first position of the log. Default: 0.
    start(position: Position);
}
