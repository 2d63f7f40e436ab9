//! Limits on the bytes per second of connections.

use std::ffi::c_int;

use rocketbufs::{Conn, Context, RateLimit, RateLimits};

use crate::handles::{rb_conn, rb_context, rb_rate_limit};
use crate::raw::{answer, array, nanos, place, put};
use crate::status::{Failure, call, call_number, rb_status};
use crate::table::{free_shared, insert, shared};

/// A limit and what it has counted.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_rate_limit_info {
    /// Bytes per second; 0: no limit.
    pub bytes_per_second: u64,
    /// The bytes that may go at once after a pause.
    pub burst_bytes: u64,
    /// Bytes that counted for the limit since it was made.
    pub bytes: u64,
    /// How long anything was delayed, in nanoseconds. A present delay is in it from its beginning, up to its expected end.
    pub delayed_ns: i64,
    /// Whether a connection has the limit.
    pub in_use: bool,
}

/// Makes a limit with a full bucket. Any number of connections of one context share it. `bytes_per_second`: 0 is no limit.
/// `burst_bytes`: how much may go at once after a pause; at least 4 KiB.
///
/// Bytes beyond the limit are delayed and never dropped. In any `t` seconds at most `burst_bytes + t * bytes_per_second` bytes are
/// sent. Of what arrives as much more may come as had been granted to the senders before: at most the smaller of the burst and the
/// free part of the ring, for each subscription.
///
/// `*out` is the caller's, until `rb_rate_limit_free`; connections keep the limit alive. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rate_limit_new(
    bytes_per_second: u64,
    burst_bytes: u64,
    out: *mut *mut rb_rate_limit,
) -> rb_status {
    answer(out, "the place for the limit", || insert(RateLimit::new(bytes_per_second, burst_bytes)))
}

/// Sets another rate and burst, for later bytes. A present delay ends when it would have. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rate_limit_set(
    limit: *const rb_rate_limit,
    bytes_per_second: u64,
    burst_bytes: u64,
) -> rb_status {
    call(|| shared::<RateLimit>(limit).map(|limit| limit.set(bytes_per_second, burst_bytes)))
}

/// The limit and what it has counted so far. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rate_limit_get_info(
    limit: *const rb_rate_limit,
    info: *mut rb_rate_limit_info,
) -> rb_status {
    call(|| {
        place(info, "the place for the information")?;
        let limit = shared::<RateLimit>(limit)?;
        let usage = limit.usage();
        let known = rb_rate_limit_info {
            bytes_per_second: limit.bytes_per_second(),
            burst_bytes: limit.burst_bytes(),
            bytes: usage.bytes,
            delayed_ns: nanos(usage.delayed),
            in_use: limit.is_shared(),
        };
        put(info, known);
        Ok(())
    })
}

/// Frees a limit's handle. NULL does nothing. Connections that have the limit keep it. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rate_limit_free(limit: *mut rb_rate_limit) -> rb_status {
    call(|| if limit.is_null() { Ok(()) } else { free_shared::<RateLimit>(limit) })
}

fn limits(
    handles: *const *const rb_rate_limit,
    count: usize,
    what: &str,
    add: fn(RateLimits, RateLimit) -> RateLimits,
    to: RateLimits,
) -> Result<RateLimits, Failure> {
    array(handles, count, what)?
        .iter()
        .try_fold(to, |limits, handle| Ok(add(limits, shared::<RateLimit>(*handle)?.clone())))
}

/// Limits the bytes per second of the connection's payload, in place of earlier limits: of arriving bytes, of sent bytes,
/// or of both. Connections that are given the same limit share it, and a connection with several is as slow as the slowest.
/// NULL is allowed where a count is 0; without limits the connection has none.
///
/// Everything is delayed and nothing dropped: a peer that writes more waits for credit, and bytes for a peer's subscriptions
/// waits here, where their policies apply to the lag. Control messages are not delayed. Rings of a connection with limits are not
/// shared with its peer (as with `own_memory`, in both directions); limits that come later do not reach rings that the peer maps
/// already. The connection keeps the limits alive. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_set_rate_limits(
    conn: *const rb_conn,
    received: *const *const rb_rate_limit,
    received_count: usize,
    sent: *const *const rb_rate_limit,
    sent_count: usize,
) -> rb_status {
    call(|| {
        let conn = shared::<Conn>(conn)?;
        let received = (received, received_count, "the array of limits on what arrives");
        let both = limits(received.0, received.1, received.2, RateLimits::received, RateLimits::new())?;
        let both = limits(sent, sent_count, "the array of limits on what is sent", RateLimits::sent, both)?;
        conn.set_rate_limits(both);
        Ok(())
    })
}

/// 1 if the bucket of a limit of the context's connections is full, so that a new limit would delay no less; 0 if not; below 0 is
/// a status. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_context_is_rate_limit_full(
    context: *const rb_context,
    limit: *const rb_rate_limit,
) -> c_int {
    call_number(|| {
        let limit = shared::<RateLimit>(limit)?;
        Ok(shared::<Context>(context)?.is_rate_limit_full(&limit).into())
    })
}
