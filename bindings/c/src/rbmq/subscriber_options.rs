//! How a subscriber receives, and where its subscriptions begin.

use std::ffi::c_char;
use std::time::{Duration, UNIX_EPOCH};

use rbmq::{SlowPolicy, StartFrom};
use rocketbufs::Epoch;

use crate::handles::{rb_config, rb_context};
use crate::raw::{Versioned, array, options, rb_bool, rb_id128, timeout};
use crate::rbmq::login::rbmq_login;
use crate::status::Failure;
use crate::status::rb_status::RB_ERR_ARGUMENT;

/// Publishers wait for the subscriber, and nothing is lost.
pub const RBMQ_SLOW_BLOCK: u32 = 0;
/// The subscriber skips messages, and learns how many bytes it lost.
pub const RBMQ_SLOW_DROP: u32 = 1;
/// The broker ends the subscription.
pub const RBMQ_SLOW_DISCONNECT: u32 = 2;

/// Options of a subscriber. Zeros are defaults: `rbmq_subscriber_options options = {.size = sizeof options};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_subscriber_options {
    /// `sizeof(rbmq_subscriber_options)`.
    pub size: usize,
    /// The name in the broker's log and in `rbmq top`; NULL: none.
    pub name: *const c_char,
    /// Makes the subscriber durable: the broker keeps its place under `name` for this long while it is offline, in nanoseconds.
    /// 0: not durable.
    pub hold_ns: i64,
    /// The broker keeps everything that was not consumed. Durable subscribers always have this set.
    pub confirm_consumed: rb_bool,
    /// Calls that wait for messages return `RB_END` as soon as every topic has ended.
    pub until_ended: rb_bool,
    /// The broker's treatment of a slow subscriber: `RBMQ_SLOW_…`.
    pub slow: u32,
    /// With `RBMQ_SLOW_BLOCK`: the longest time without progress in nanoseconds; 0: the broker's, below 0: without a limit.
    pub block_timeout_ns: i64,
    /// With the other policies: the lag in bytes at which they act; 0: the broker's default.
    pub max_lag_bytes: u64,
    /// The capacity of the ring of each buffer in this process, in bytes; 0: `buffers.size_bytes`.
    pub ring_bytes: u64,
    /// The largest batch in bytes; 0: a quarter of the ring.
    pub batch_bytes: u64,
    /// The memory in bytes for the rings of all topics that only patterns match; 0: 64 MiB.
    pub budget_bytes: u64,
    /// The configuration for a context of the subscriber's own; NULL: the default. Read during the call.
    pub config: *const rb_config,
    /// Shares the memory and the threads of this context; NULL: a context of the subscriber's own.
    pub context: *const rb_context,
    /// The login of the client; NULL: none. Read during the call.
    pub login: *const rbmq_login,
    /// The largest message in bytes for which the ring of a topic grows when it comes; 0: 64 MiB.
    pub max_message_bytes: u64,
}

// SAFETY: integers, pointers and `rb_bool`s, and the first field is the size.
unsafe impl Versioned for rbmq_subscriber_options {}

/// With the next published message.
pub const RBMQ_START_NEWEST: u32 = 0;
/// With the oldest message that the broker still has.
pub const RBMQ_START_OLDEST: u32 = 1;
/// With the last delivery: a subscriber that joins late gets the last value.
pub const RBMQ_START_LAST: u32 = 2;
/// With the first message that reached the broker at `unix_ns` or later.
pub const RBMQ_START_TIME: u32 = 3;
/// At `position` of any log.
pub const RBMQ_START_POSITION: u32 = 4;
/// At the positions of the logs in `positions`; other logs begin with their oldest message.
pub const RBMQ_START_POSITIONS: u32 = 5;

/// A position of a log.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_position {
    /// The log.
    pub epoch: rb_id128,
    /// The position.
    pub position: u64,
}

/// Where a subscription begins. Zeros are the next published message.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_start {
    /// `sizeof(rbmq_start)`.
    pub size: usize,
    /// `RBMQ_START_…`.
    pub kind: u32,
    /// With `RBMQ_START_TIME`: nanoseconds since 1970.
    pub unix_ns: u64,
    /// With `RBMQ_START_POSITION`.
    pub position: u64,
    /// With `RBMQ_START_POSITIONS`. Read during the call.
    pub positions: *const rbmq_position,
    /// The number of positions.
    pub positions_count: usize,
}

// SAFETY: integers and pointers, and the first field is the size.
unsafe impl Versioned for rbmq_start {}

pub(crate) fn start_of(given: *const rbmq_start) -> Result<StartFrom, Failure> {
    let given = options(given, "the start")?;
    Ok(match given.kind {
        RBMQ_START_NEWEST => StartFrom::Newest,
        RBMQ_START_OLDEST => StartFrom::Oldest,
        RBMQ_START_LAST => StartFrom::Last,
        RBMQ_START_TIME => StartFrom::Time(UNIX_EPOCH + Duration::from_nanos(given.unix_ns)),
        RBMQ_START_POSITION => StartFrom::Position(given.position),
        RBMQ_START_POSITIONS => {
            let positions = array(given.positions, given.positions_count, "the positions")?;
            let each = |at: &rbmq_position| (Epoch(at.epoch.into()), at.position);
            StartFrom::Positions(positions.iter().map(each).collect())
        }
        other => return Err(Failure::of(RB_ERR_ARGUMENT, format!("{other} is no start"))),
    })
}

pub(crate) fn slow_policy(given: &rbmq_subscriber_options) -> Result<SlowPolicy, Failure> {
    let max_lag_bytes = (given.max_lag_bytes != 0).then_some(given.max_lag_bytes);
    Ok(match given.slow {
        RBMQ_SLOW_BLOCK if given.block_timeout_ns == 0 => SlowPolicy::Block,
        RBMQ_SLOW_BLOCK => SlowPolicy::BlockFor { timeout: timeout(given.block_timeout_ns) },
        RBMQ_SLOW_DROP => SlowPolicy::Drop { max_lag_bytes },
        RBMQ_SLOW_DISCONNECT => SlowPolicy::Disconnect { max_lag_bytes },
        other => return Err(Failure::of(RB_ERR_ARGUMENT, format!("{other} is no policy"))),
    })
}
