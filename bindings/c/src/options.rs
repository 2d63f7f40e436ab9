//! Options: structures that begin with their size, and whose zeros are defaults.

use std::ffi::c_void;

use rocketbufs::error::SubscribeError;
use rocketbufs::proto::MAX_NAME_BYTES;
use rocketbufs::{
    BlockTimeout, BufferOptions, ConfirmMode, Epoch, Policy, PolicySet, ProgressLevel, Start,
    SubscribeOptions, SubscriptionLimits,
};

use crate::handles::rb_budget;
use crate::raw::{Versioned, bytes, duration, options, rb_bool, rb_id128, set, timeout};
use crate::status::Failure;
use crate::status::rb_status::RB_ERR_ARGUMENT;
use crate::table::shared;

/// The subscription holds the writer back (with flow control only). Nothing is lost.
pub const RB_POLICY_BLOCK: u32 = 0;
/// At a lag of `max_lag_bytes` the subscription skips to the newest complete delivery, and is told what it lost.
pub const RB_POLICY_DROP: u32 = 1;
/// At a lag of `max_lag_bytes` the connection is closed, with the reason.
pub const RB_POLICY_DISCONNECT: u32 = 2;
/// Without flow control: the writer never waits; a receiver that was lapped is told by how much.
pub const RB_POLICY_OVERWRITE: u32 = 3;

/// At the end of the last complete delivery.
pub const RB_START_NEWEST: u32 = 0;
/// At the oldest delivery that is still retained.
pub const RB_START_OLDEST: u32 = 1;
/// At the last complete delivery.
pub const RB_START_LAST: u32 = 2;
/// `start_ago_ms` milliseconds ago, by the sender's clock.
pub const RB_START_AGO: u32 = 3;
/// With the first byte that the log ever had at the sender. Bytes that are gone are reported as lost.
pub const RB_START_FIRST: u32 = 4;
/// At `start_position` of the log `start_epoch`.
pub const RB_START_POSITION: u32 = 5;

/// Data has landed when it is in this process's memory.
pub const RB_CONFIRM_ON_ARRIVAL: u32 = 0;
/// Data has landed when the application releases it.
pub const RB_CONFIRM_ON_CONSUME: u32 = 1;

/// In the memory of every subscriber.
pub const RB_LEVEL_LANDED: u32 = 0;
/// In the memory of every receiver at the end of a chain of splices.
pub const RB_LEVEL_DELIVERED: u32 = 1;
/// Released by the application of every such receiver.
pub const RB_LEVEL_CONSUMED: u32 = 2;

/// Options of a subscription. Zeros are defaults: `rb_subscribe_options options = {.size = sizeof options};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_subscribe_options {
    /// `sizeof(rb_subscribe_options)`.
    pub size: usize,
    /// The capacity of the receiving ring in bytes, rounded up to a power of two; 0: `buffers.size_bytes`. At least twice the
    /// buffer's largest delivery.
    pub size_bytes: u64,
    /// The most bytes that one view shows where more than one delivery has landed; 0: all of them.
    pub max_view_bytes: u64,
    /// The budget that provides the ring while there is data; NULL: the subscription has a ring of its own. Kept alive by the
    /// subscription.
    pub budget: *const rb_budget,
    /// Receives into memory that no other process writes, at the cost of a copy: views then always have a plain pointer.
    pub own_memory: rb_bool,
    /// `RB_START_…`.
    pub start: u32,
    /// With `RB_START_AGO`.
    pub start_ago_ms: u64,
    /// With `RB_START_POSITION`: the log.
    pub start_epoch: rb_id128,
    /// With `RB_START_POSITION`: the position.
    pub start_position: u64,
    /// The sender's treatment of this subscription while this end is slow: `RB_POLICY_…`.
    pub policy: u32,
    /// The lag in bytes at which `RB_POLICY_DROP` and `RB_POLICY_DISCONNECT` act; 0: the sender's default.
    pub max_lag_bytes: u64,
    /// How long `RB_POLICY_BLOCK` may hold the writer without progress while others wait, in nanoseconds; 0: the sender's
    /// default, below 0: without a limit.
    pub block_timeout_ns: i64,
    /// A name, which another subscription of the same name replaces; NULL: none. Copied.
    pub name: *const c_void,
    /// The bytes of the name.
    pub name_len: usize,
    /// How long the sender keeps the place of a named subscription after its connection is gone, in nanoseconds.
    pub hold_ns: i64,
    /// When data counts as landed: `RB_CONFIRM_…`.
    pub confirm: u32,
    /// Whether `retain_bytes` is set.
    pub has_retain_bytes: rb_bool,
    /// History that a spliced buffer keeps for subscribers that join, in bytes. Otherwise half the ring if spliced, and nothing
    /// if not.
    pub retain_bytes: u64,
    /// Whether `linger_ns` is set.
    pub has_linger: rb_bool,
    /// How long a spliced subscription waits for its writer to come back; otherwise `session.linger_ms`.
    pub linger_ns: i64,
}

/// Options of a buffer. Zeros are defaults: `rb_buffer_options options = {.size = sizeof options};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_buffer_options {
    /// `sizeof(rb_buffer_options)`.
    pub size: usize,
    /// The capacity of the ring in bytes, rounded up to a power of two; 0: `buffers.size_bytes`.
    pub size_bytes: u64,
    /// Whether `retain_bytes` is set.
    pub has_retain_bytes: rb_bool,
    /// History that is kept for joins and resumes, in bytes; otherwise `buffers.retain_bytes`, or half the capacity.
    pub retain_bytes: u64,
    /// The largest delivery in bytes; 0: a quarter of the capacity.
    pub max_delivery_bytes: u64,
    /// Overwrites the oldest data instead of waiting for slow subscribers. Deliveries then carry markers.
    pub without_flow_control: rb_bool,
    /// Keeps everything until it is in the memory of every receiver at the end of a chain, and not only of the first one.
    pub keep_until_delivered: rb_bool,
    /// The position where the log begins.
    pub start: u64,
}

/// The limits for options that subscriptions of a buffer ask for. Zeros allow everything:
/// `rb_limits limits = {.size = sizeof limits};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_limits {
    /// `sizeof(rb_limits)`.
    pub size: usize,
    /// The allowed policies: the bit `1 << RB_POLICY_…` for each; 0: all.
    pub policies: u32,
    /// The largest lag in bytes; 0: no limit.
    pub max_lag_bytes: u64,
    /// The longest block time-out in nanoseconds; 0: the default, below 0: without a limit.
    pub block_timeout_ns: i64,
    /// The longest hold time in nanoseconds; 0: no limit but `limits.max_hold_ms`.
    pub max_hold_ns: i64,
}

// SAFETY: integers, pointers and `rb_bool`s, and the first field is the size.
unsafe impl Versioned for rb_subscribe_options {}
// SAFETY: as above.
unsafe impl Versioned for rb_buffer_options {}
// SAFETY: as above.
unsafe impl Versioned for rb_limits {}

fn unknown(what: &str, value: u32) -> Failure {
    Failure::of(RB_ERR_ARGUMENT, format!("{value} is no {what}"))
}

pub(crate) fn policy(value: u32) -> Result<Policy, Failure> {
    let all = [Policy::Block, Policy::Drop, Policy::Disconnect, Policy::Overwrite];
    all.into_iter().find(|policy| *policy as u32 == value).ok_or_else(|| unknown("policy", value))
}

pub(crate) fn level(value: u32) -> Result<ProgressLevel, Failure> {
    ProgressLevel::ALL.into_iter().find(|level| *level as u32 == value).ok_or_else(|| unknown("level", value))
}

fn block_timeout(nanos: i64) -> BlockTimeout {
    match timeout(nanos) {
        None => BlockTimeout::Never,
        Some(limit) if limit.is_zero() => BlockTimeout::Default,
        Some(limit) => BlockTimeout::After(limit),
    }
}

/// The subscription options of the caller; NULL is the defaults.
pub(crate) fn subscribe_options(given: *const rb_subscribe_options) -> Result<SubscribeOptions, Failure> {
    let given = options(given, "the subscription's options")?;
    let start = match given.start {
        RB_START_NEWEST => Start::Newest,
        RB_START_OLDEST => Start::Oldest,
        RB_START_LAST => Start::Last,
        RB_START_AGO => Start::Ago(given.start_ago_ms),
        RB_START_FIRST => Start::First,
        RB_START_POSITION => Start::Position(Epoch(given.start_epoch.into()), given.start_position),
        other => return Err(unknown("start", other)),
    };
    let confirm = match given.confirm {
        RB_CONFIRM_ON_ARRIVAL => ConfirmMode::OnArrival,
        RB_CONFIRM_ON_CONSUME => ConfirmMode::OnConsume,
        other => return Err(unknown("confirmation", other)),
    };
    let mut made = SubscribeOptions::new()
        .own_memory(given.own_memory.is_set())
        .start(start)
        .policy(policy(given.policy)?)
        .block_timeout(block_timeout(given.block_timeout_ns))
        .durable(name(&given)?, duration(given.hold_ns, "hold_ns")?)
        .confirm(confirm)
        .retain_bytes(given.has_retain_bytes.is_set().then_some(given.retain_bytes));
    set!(made, given: size_bytes, max_view_bytes, max_lag_bytes);
    if given.has_linger.is_set() {
        made = made.linger(Some(duration(given.linger_ns, "linger_ns")?));
    }
    if !given.budget.is_null() {
        made = made.budget(Some(shared::<rocketbufs::Budget>(given.budget)?.clone()));
    }
    Ok(made)
}

/// The name of a subscription. The length is checked before the name is copied.
fn name(given: &rb_subscribe_options) -> Result<&[u8], Failure> {
    match given.name_len {
        size if size > MAX_NAME_BYTES => {
            Err(SubscribeError::NameTooLong { size, max: MAX_NAME_BYTES }.into())
        }
        size => bytes(given.name, size, "the name"),
    }
}

/// The buffer options of the caller; NULL is the defaults.
pub(crate) fn buffer_options(given: *const rb_buffer_options) -> Result<BufferOptions, Failure> {
    let given = options(given, "the buffer's options")?;
    let mut made = BufferOptions::new()
        .retain_bytes(given.has_retain_bytes.is_set().then_some(given.retain_bytes))
        .flow_control(!given.without_flow_control.is_set())
        .keep_until_delivered(given.keep_until_delivered.is_set())
        .start(given.start);
    set!(made, given: size_bytes, max_delivery_bytes);
    Ok(made)
}

/// The limits of the caller; NULL allows everything.
pub(crate) fn limits(given: *const rb_limits) -> Result<SubscriptionLimits, Failure> {
    let given = options(given, "the limits")?;
    let allowed: Result<Vec<Policy>, Failure> =
        (0..u32::BITS).filter(|bit| given.policies & 1 << bit != 0).map(policy).collect();
    let policies = match given.policies {
        0 => PolicySet::ALL,
        _ => allowed?.into_iter().collect(),
    };
    let mut made =
        SubscriptionLimits::new().policies(policies).block_timeout(block_timeout(given.block_timeout_ns));
    set!(made, given: max_lag_bytes);
    let hold = duration(given.max_hold_ns, "max_hold_ns")?;
    Ok(made.max_hold((!hold.is_zero()).then_some(hold)))
}
