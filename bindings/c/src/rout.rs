//! The sending end.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;

use rocketbufs::{Conn, Context, OutBuffer, RIn, ROut};

use crate::conn::function;
use crate::handles::{rb_buffer, rb_conn, rb_context, rb_rin, rb_rout};
use crate::kept::{Kept, with_kept};
use crate::options::{buffer_options, rb_buffer_options, rb_subscribe_options, subscribe_options};
use crate::out_events::{out_event, progress, rb_out_event, rb_subscriber_progress};
use crate::raw::{CallbackContext, answer, array_mut, bytes, place, put, timeout};
use crate::segment::{deliver, open, rb_buf_seg};
use crate::status::rb_status::{RB_ERR_NO_SUCH_BUFFER, RB_TIMED_OUT};
use crate::status::{Failure, Outcome, call, call_number, rb_status};
use crate::table::{free_shared, insert, shared};

/// A callback for deliveries with a context: `delivery` is the context that `rb_rout_deliver` was given (paper 1, Listing 2).
pub type rb_data_out_fn = Option<extern "C" fn(ctx: *mut c_void, bid: u32, delivery: *mut c_void)>;

/// A callback for the progress of subscribers. `progress` is valid until the callback returns.
pub type rb_subscriber_progress_fn =
    Option<extern "C" fn(ctx: *mut c_void, progress: *const rb_subscriber_progress)>;

/// A callback for control messages of peers. `conn` and `message` are valid until the callback returns; the handle is the
/// library's.
pub type rb_rout_control_fn =
    Option<extern "C" fn(ctx: *mut c_void, conn: *mut rb_conn, message: *const c_void, len: usize)>;

/// A callback for the events of an rOut. `event` is valid until the callback returns.
pub type rb_out_event_fn = Option<extern "C" fn(ctx: *mut c_void, event: *const rb_out_event)>;

/// Makes an rOut without buffers and connections.
///
/// `*out` is the caller's, until `rb_rout_free`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_new(context: *const rb_context, out: *mut *mut rb_rout) -> rb_status {
    answer(out, "the place for the rOut", || insert(ROut::new(&*shared::<Context>(context)?)))
}

/// Frees an rOut's handle. NULL does nothing. The buffers and their subscribers go on while a buffer's handle or a connection
/// needs them. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_free(rout: *mut rb_rout) -> rb_status {
    call(|| if rout.is_null() { Ok(()) } else { free_shared::<ROut>(rout) })
}

/// Lets the other end of this connection subscribe to the buffers of the rOut. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_add_conn(rout: *const rb_rout, conn: *const rb_conn) -> rb_status {
    call(|| {
        shared::<ROut>(rout)?.add_conn(&*shared::<Conn>(conn)?);
        Ok(())
    })
}

/// Gives the caller a handle, if the caller wants one.
fn give(out: *mut *mut rb_buffer, buffer: OutBuffer) -> Outcome {
    if !out.is_null() {
        put(out, insert(buffer)?);
    }
    Ok(())
}

/// Makes a buffer whose ring has `size_bytes`, rounded up to a power of two.
///
/// `out` may be NULL; `*out` is the caller's, until `rb_buffer_free`. Any thread. Fails with `RB_ERR_EXISTS`, `RB_ERR_MEMORY`
/// or `RB_ERR_TOO_MANY`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_create_buffer(
    rout: *const rb_rout,
    bid: u32,
    size_bytes: u64,
    out: *mut *mut rb_buffer,
) -> rb_status {
    call(|| give(out, shared::<ROut>(rout)?.create_buffer(bid, size_bytes)?))
}

/// As `rb_rout_create_buffer`, with options; NULL is the defaults. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_create_buffer_with(
    rout: *const rb_rout,
    bid: u32,
    options: *const rb_buffer_options,
    out: *mut *mut rb_buffer,
) -> rb_status {
    call(|| give(out, shared::<ROut>(rout)?.create_buffer_with(bid, buffer_options(options)?)?))
}

/// A handle of the buffer of this id.
///
/// `*out` is the caller's, until `rb_buffer_free`. Any thread. Fails with `RB_ERR_NO_SUCH_BUFFER`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_buffer(rout: *const rb_rout, bid: u32, out: *mut *mut rb_buffer) -> rb_status {
    call(|| {
        place(out, "the place for the buffer")?;
        give(out, buffer_of(&*shared::<ROut>(rout)?, bid)?)
    })
}

fn buffer_of(rout: &ROut, bid: u32) -> Result<OutBuffer, Failure> {
    let none = || Failure::of(RB_ERR_NO_SUCH_BUFFER, format!("there is no buffer {bid} here"));
    rout.buffer(bid).ok_or_else(none)
}

/// The ids of the buffers, in no order: at most `capacity` of them into `bids`, and `*count` gets how many there are. `bids`
/// may be NULL if `capacity` is 0. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_buffers(
    rout: *const rb_rout,
    bids: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> rb_status {
    call(|| {
        let buffers = shared::<ROut>(rout)?.buffers();
        let bids = array_mut(bids, capacity, "the place for the ids")?;
        bids.iter_mut().zip(&buffers).for_each(|(bid, buffer)| *bid = buffer.bid());
        put(count, buffers.len());
        Ok(())
    })
}

/// Ends the buffer of this id; see `rb_buffer_destroy`. Any thread. Fails with `RB_ERR_NO_SUCH_BUFFER`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_destroy_buffer(rout: *const rb_rout, bid: u32, end: *mut u64) -> rb_status {
    call(|| {
        put(end, shared::<ROut>(rout)?.destroy_buffer(bid)?);
        Ok(())
    })
}

/// Takes the rIn's ring of buffer `bid` as a buffer of this rOut, with the same id: bytes that arrive there go out here
/// without a copy (paper 1, section 3.4). A ring that exists before it is spliced keeps no history for subscribers that
/// join later; see `rb_rout_splice_with`.
///
/// `out` may be NULL; `*out` is the caller's, until `rb_buffer_free`. Any thread. Fails with `RB_ERR_EXISTS`,
/// `RB_ERR_NO_SUCH_BUFFER`, `RB_ERR_SPLICED`, `RB_ERR_BUDGETED` or `RB_ERR_READER_TAKEN`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_splice(
    rout: *const rb_rout,
    rin: *const rb_rin,
    bid: u32,
    out: *mut *mut rb_buffer,
) -> rb_status {
    rb_rout_splice_as(rout, rin, bid, bid, out)
}

/// As `rb_rout_splice`, under another id, as a broker with many publishers does. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_splice_as(
    rout: *const rb_rout,
    rin: *const rb_rin,
    bid: u32,
    out_bid: u32,
    out: *mut *mut rb_buffer,
) -> rb_status {
    call(|| give(out, shared::<ROut>(rout)?.splice_as(&*shared::<RIn>(rin)?, bid, out_bid)?))
}

/// Subscribes the rIn to the sender's buffer `bid` and splices it to a buffer `out_bid` of this rOut, in one step: the ring has
/// a history for subscribers that join later, and subscribers on this machine can map it. `options` may be NULL.
///
/// `out` may be NULL; `*out` is the caller's, until `rb_buffer_free`. Any thread. Fails as `rb_rout_splice` and
/// `rb_rin_subscribe`; a refusal of the sender comes as `RB_IN_REFUSED`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_splice_with(
    rout: *const rb_rout,
    rin: *const rb_rin,
    bid: u32,
    out_bid: u32,
    options: *const rb_subscribe_options,
    out: *mut *mut rb_buffer,
) -> rb_status {
    call(|| {
        let (rout, rin) = (shared::<ROut>(rout)?, shared::<RIn>(rin)?);
        give(out, rout.splice_with(&rin, bid, out_bid, subscribe_options(options)?)?)
    })
}

/// A free segment of exactly `size` bytes (paper 1, Listing 2): fill it, and call `rb_rout_deliver`. With `blocking` it waits
/// for room. `rb_buffer_segment` needs no look-up and has a time-out.
///
/// The memory of `*seg` is the caller's until it is delivered. Any thread. `RB_FULL` if there is no room; fails as
/// `rb_buffer_segment`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_get_output_segment(
    rout: *const rb_rout,
    bid: u32,
    size: u64,
    blocking: bool,
    seg: *mut rb_buf_seg,
) -> rb_status {
    call(|| {
        place(seg, "the place for the segment")?;
        open(seg, shared::<ROut>(rout)?.get_output_segment(bid, size, blocking)?, None)
    })
}

/// Makes the first `size` bytes of a segment one delivery (paper 1, Listing 2); see `rb_buffer_deliver`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_deliver(
    rout: *const rb_rout,
    seg: *mut rb_buf_seg,
    size: u64,
    delivery: *mut c_void,
    end: *mut u64,
) -> rb_status {
    call(|| {
        let rout = shared::<ROut>(rout)?;
        deliver(seg, end, None, |segment| rout.deliver(segment, size, context_of(delivery)))
    })
}

/// The context of a delivery; NULL is none.
pub(crate) fn context_of(delivery: *mut c_void) -> Option<u64> {
    (!delivery.is_null()).then(|| delivery.expose_provenance() as u64)
}

/// Calls `callback(ctx, bid, delivery)` on a worker thread when a delivery that was given a context has landed with every
/// subscriber that was there.
///
/// `ctx` is used until `rb_rout_unset_data_out_cb` has returned. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_set_data_out_cb(
    rout: *const rb_rout,
    callback: rb_data_out_fn,
    ctx: *mut c_void,
) -> rb_status {
    call(|| {
        let (callback, ctx) = (function(callback)?, CallbackContext(ctx));
        shared::<ROut>(rout)?.set_data_out_cb(move |bid, delivery| {
            callback(ctx.pointer(), bid, std::ptr::with_exposed_provenance_mut(delivery as usize));
        });
        Ok(())
    })
}

/// Removes the callback. When this has returned, no call of it runs on another thread and none begins: `ctx` may be freed.
/// Inside the callback itself: once that call has returned. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_unset_data_out_cb(rout: *const rb_rout) -> rb_status {
    call(|| shared::<ROut>(rout).map(|rout| rout.unset_data_out_cb()))
}

/// Calls `callback` on a worker thread whenever a subscriber has told how far it is. `ctx` as for `rb_rout_set_data_out_cb`.
/// Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_set_subscriber_progress_cb(
    rout: *const rb_rout,
    callback: rb_subscriber_progress_fn,
    ctx: *mut c_void,
) -> rb_status {
    call(|| {
        let (callback, ctx) = (function(callback)?, CallbackContext(ctx));
        shared::<ROut>(rout)?.set_subscriber_progress_cb(move |reported| {
            let reported = progress(&reported);
            callback(ctx.pointer(), &raw const reported);
        });
        Ok(())
    })
}

/// Removes the callback, as `rb_rout_unset_data_out_cb` does. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_unset_subscriber_progress_cb(rout: *const rb_rout) -> rb_status {
    call(|| shared::<ROut>(rout).map(|rout| rout.unset_subscriber_progress_cb()))
}

/// Calls `callback` on a worker thread for every control message of the application at another end, also for those that came
/// before it was set and were not received. `ctx` as for `rb_rout_set_data_out_cb`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_set_control_msg_cb(
    rout: *const rb_rout,
    callback: rb_rout_control_fn,
    ctx: *mut c_void,
) -> rb_status {
    call(|| {
        let (callback, ctx) = (function(callback)?, CallbackContext(ctx));
        shared::<ROut>(rout)?.set_control_msg_cb(move |conn, message| match insert(conn.clone()) {
            Ok(handle) => {
                callback(ctx.pointer(), handle, message.as_ptr().cast(), message.len());
                // A callback that freed the handle has done so already.
                let _ = free_shared::<Conn>(handle);
            }
            Err(_) => conn.close("no handle is left for the connection"),
        });
        Ok(())
    })
}

/// Removes the callback, as `rb_rout_unset_data_out_cb` does. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_unset_control_msg_cb(rout: *const rb_rout) -> rb_status {
    call(|| shared::<ROut>(rout).map(|rout| rout.unset_control_msg_cb()))
}

/// Calls `callback` on a worker thread for every event; for the events that wait already, inside this call. `ctx` as for
/// `rb_rout_set_data_out_cb`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_set_event_cb(
    rout: *const rb_rout,
    callback: rb_out_event_fn,
    ctx: *mut c_void,
) -> rb_status {
    call(|| {
        let (callback, ctx) = (function(callback)?, CallbackContext(ctx));
        shared::<ROut>(rout)?.set_event_cb(move |event| {
            let mut kept = Kept::default();
            let event = out_event(event, &mut kept);
            callback(ctx.pointer(), &raw const event);
        });
        Ok(())
    })
}

/// Removes the callback, as `rb_rout_unset_data_out_cb` does: events wait for `rb_rout_recv_event`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_unset_event_cb(rout: *const rb_rout) -> rb_status {
    call(|| shared::<ROut>(rout).map(|rout| rout.unset_event_cb()))
}

/// The next event, waiting at most `timeout_ns`; `RB_TIMED_OUT` if nothing happened. Events with a callback of their own do not
/// come here. At most 4,096 events wait; then the oldest is dropped, and `RB_OUT_MISSED` tells how many were.
///
/// The memory that `*event` points at is valid until this thread's next call that receives something. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_recv_event(
    rout: *const rb_rout,
    event: *mut rb_out_event,
    timeout_ns: i64,
) -> rb_status {
    answer(event, "the place for the event", || {
        let received = shared::<ROut>(rout)?.recv_event(timeout(timeout_ns))?;
        let received = received.ok_or(Failure::outcome(RB_TIMED_OUT))?;
        Ok(with_kept(|kept| out_event(received, kept)))
    })
}

/// A descriptor that is readable while `rb_rout_recv_event` would return an event, for an event loop, which only polls it.
/// Returns a status below 0 if it fails.
///
/// The descriptor belongs to the library and lives as long as the rOut. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_fd(rout: *const rb_rout) -> c_int {
    call_number(|| Ok(shared::<ROut>(rout)?.pollable()?.as_raw_fd()))
}

/// Waits until every subscriber of every buffer has what was delivered, at most `timeout_ns`; see `rb_buffer_drain`. Any
/// thread, and not inside a callback.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_drain(rout: *const rb_rout, timeout_ns: i64) -> rb_status {
    call(|| Ok(shared::<ROut>(rout)?.drain(timeout(timeout_ns))?))
}

/// Sends a control message of the application over a connection that was given to this rOut; see `rb_conn_send_control`. Any
/// thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_send_control(
    rout: *const rb_rout,
    conn: *const rb_conn,
    message: *const c_void,
    len: usize,
) -> rb_status {
    call(|| {
        let (rout, conn) = (shared::<ROut>(rout)?, shared::<Conn>(conn)?);
        Ok(rout.send_control(&conn, bytes(message, len, "the message")?)?)
    })
}

/// Bytes that went through.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_traffic {
    /// Written bytes.
    pub received_bytes: u64,
    /// Bytes that landed at all present and past subscribers.
    pub delivered_bytes: u64,
    /// Bytes that subscribers lost because they were too slow for their policy.
    pub dropped_bytes: u64,
}

impl From<rocketbufs::inspect::Traffic> for rb_traffic {
    fn from(traffic: rocketbufs::inspect::Traffic) -> Self {
        let rocketbufs::inspect::Traffic { received_bytes, delivered_bytes, dropped_bytes, .. } = traffic;
        Self { received_bytes, delivered_bytes, dropped_bytes }
    }
}

/// The traffic of all buffers that the rOut ever had. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rout_traffic(rout: *const rb_rout, traffic: *mut rb_traffic) -> rb_status {
    answer(traffic, "the place for the traffic", || Ok(shared::<ROut>(rout)?.traffic().into()))
}

/// The version of the library, such as "0.1.0". Lives as long as the program.
#[unsafe(no_mangle)]
pub extern "C" fn rb_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
