//! The receiving end.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;

use rocketbufs::{Conn, InRead, InReader, RIn, Subscription};

use crate::buffer::timed_out;
use crate::conn::function;
use crate::handles::{rb_conn, rb_reader, rb_rin, rb_subscription};
use crate::in_events::{in_event, put_in_event, rb_in_event};
use crate::kept::Kept;
use crate::options::{rb_subscribe_options, subscribe_options};
use crate::raw::{CallbackContext, answer, array_mut, bytes, copied, place, put, rb_id128, timeout};
use crate::segment::{rb_buf_seg, with_received};
use crate::status::rb_status::{RB_ERR_NOT_ANSWERED, RB_ERR_NOT_SUBSCRIBED};
use crate::status::{Failure, Outcome, call, call_number, rb_status};
use crate::table::{exclusive, free_shared, insert, shared, take};
use crate::view::{give as give_view, rb_data};

/// A callback for received data: one or several whole deliveries. `seg` and its memory are valid until the callback returns;
/// `rb_rin_data_consumed` releases the bytes.
pub type rb_data_in_fn = Option<extern "C" fn(ctx: *mut c_void, bid: u32, seg: *const rb_buf_seg)>;

/// A callback for the events of an rIn that are not data. `event` is valid until the callback returns.
pub type rb_in_event_fn = Option<extern "C" fn(ctx: *mut c_void, event: *const rb_in_event)>;

/// A callback for control messages of the peer. `rin` and `message` are valid until the callback returns; the handle is the
/// library's.
pub type rb_rin_control_fn =
    Option<extern "C" fn(ctx: *mut c_void, rin: *mut rb_rin, message: *const c_void, len: usize)>;

/// Makes the receiving end of this connection, which may already be up or not.
///
/// `*out` is the caller's, until `rb_rin_free`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_new(conn: *const rb_conn, out: *mut *mut rb_rin) -> rb_status {
    answer(out, "the place for the rIn", || insert(RIn::new(&*shared::<Conn>(conn)?)))
}

/// Frees an rIn's handle, which ends no subscription: the connection keeps them alive. NULL does nothing. Any thread.
///
/// Callbacks that were set go on: remove those first whose `ctx` is to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_free(rin: *mut rb_rin) -> rb_status {
    call(|| if rin.is_null() { Ok(()) } else { free_shared::<RIn>(rin) })
}

/// Resumes over another connection: every subscription continues where it stopped, or reports its loss. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_resume(rin: *const rb_rin, conn: *const rb_conn) -> rb_status {
    call(|| {
        shared::<RIn>(rin)?.resume(&*shared::<Conn>(conn)?);
        Ok(())
    })
}

/// A handle of the present connection.
///
/// `*out` is the caller's, until `rb_conn_free`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_conn(rin: *const rb_rin, out: *mut *mut rb_conn) -> rb_status {
    answer(out, "the place for the connection", || insert(shared::<RIn>(rin)?.conn()))
}

/// Gives the caller a handle, if the caller wants one.
fn give(out: *mut *mut rb_subscription, subscription: Subscription) -> Outcome {
    if !out.is_null() {
        put(out, insert(subscription)?);
    }
    Ok(())
}

/// Subscribes to a buffer, from now on, into a ring of `size_bytes`. Returns at once; the sender's answer is an event:
/// `RB_IN_SUBSCRIBED` or `RB_IN_REFUSED`.
///
/// `out` may be NULL; `*out` is the caller's, until `rb_subscription_free`. Any thread. Fails with `RB_ERR_EXISTS`,
/// `RB_ERR_TOO_LARGE` or `RB_ERR_TOO_MANY`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_subscribe(
    rin: *const rb_rin,
    bid: u32,
    size_bytes: u64,
    out: *mut *mut rb_subscription,
) -> rb_status {
    call(|| give(out, shared::<RIn>(rin)?.subscribe(bid, size_bytes)?))
}

/// As `rb_rin_subscribe`, with options; NULL is the defaults. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_subscribe_with(
    rin: *const rb_rin,
    bid: u32,
    options: *const rb_subscribe_options,
    out: *mut *mut rb_subscription,
) -> rb_status {
    call(|| give(out, shared::<RIn>(rin)?.subscribe_with(bid, subscribe_options(options)?)?))
}

/// Ends the subscription of this buffer; see `rb_subscription_unsubscribe`. Does nothing if there is none. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_unsubscribe(rin: *const rb_rin, bid: u32) -> rb_status {
    call(|| shared::<RIn>(rin).map(|rin| rin.unsubscribe(bid)))
}

/// A handle of the subscription of this buffer.
///
/// `*out` is the caller's, until `rb_subscription_free`. Any thread. Fails with `RB_ERR_NOT_SUBSCRIBED`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_subscription(
    rin: *const rb_rin,
    bid: u32,
    out: *mut *mut rb_subscription,
) -> rb_status {
    call(|| {
        place(out, "the place for the subscription")?;
        let none =
            || Failure::of(RB_ERR_NOT_SUBSCRIBED, format!("this rIn has no subscription of buffer {bid}"));
        give(out, shared::<RIn>(rin)?.subscription(bid).ok_or_else(none)?)
    })
}

/// The ids of the subscribed buffers in ascending order: at most `capacity` of them into `bids`, and `*count` gets how many
/// there are. `bids` may be NULL if `capacity` is 0. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_subscriptions(
    rin: *const rb_rin,
    bids: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> rb_status {
    call(|| {
        let all = shared::<RIn>(rin)?.subscriptions();
        let bids = array_mut(bids, capacity, "the place for the ids")?;
        bids.iter_mut().zip(&all).for_each(|(bid, subscription)| *bid = subscription.bid());
        put(count, all.len());
        Ok(())
    })
}

/// Calls `callback(ctx, bid, seg)` on a worker thread whenever new complete deliveries arrive: one or several, never part of
/// one. Set it before subscribing. The bytes stay until `rb_rin_data_consumed` releases them.
///
/// `ctx` is used until `rb_rin_unset_data_in_cb` has returned. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_set_data_in_cb(
    rin: *const rb_rin,
    callback: rb_data_in_fn,
    ctx: *mut c_void,
) -> rb_status {
    call(|| {
        let (callback, ctx) = (function(callback)?, CallbackContext(ctx));
        shared::<RIn>(rin)?.set_data_in_cb(move |bid, data| {
            with_received(bid, data, |seg| callback(ctx.pointer(), bid, seg));
        });
        Ok(())
    })
}

/// Removes the callback: later data waits for `rb_rin_recv`. When this has returned, no call of it runs on another thread and
/// none begins: `ctx` may be freed. Inside the callback itself: once that call has returned. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_unset_data_in_cb(rin: *const rb_rin) -> rb_status {
    call(|| shared::<RIn>(rin).map(|rin| rin.unset_data_in_cb()))
}

/// Calls `callback` on a worker thread for every event that is not data, including unreceived events from before it was set.
/// Without a data callback, `RB_IN_CLOSED`, `RB_IN_GONE` and `RB_IN_LOST` wait until the data before them was received. `ctx` as for `rb_rin_set_data_in_cb`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_set_event_cb(
    rin: *const rb_rin,
    callback: rb_in_event_fn,
    ctx: *mut c_void,
) -> rb_status {
    call(|| {
        let (callback, ctx) = (function(callback)?, CallbackContext(ctx));
        shared::<RIn>(rin)?.set_event_cb(move |event| {
            let mut kept = Kept::default();
            let event = in_event(event, &mut kept);
            callback(ctx.pointer(), &raw const event);
        });
        Ok(())
    })
}

/// Removes the callback, as `rb_rin_unset_data_in_cb` does. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_unset_event_cb(rin: *const rb_rin) -> rb_status {
    call(|| shared::<RIn>(rin).map(|rin| rin.unset_event_cb()))
}

/// Calls `callback` on a worker thread for every control message of the peer's application, including unread messages from
/// before it was set. `ctx` as for `rb_rin_set_data_in_cb`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_set_control_msg_cb(
    rin: *const rb_rin,
    callback: rb_rin_control_fn,
    ctx: *mut c_void,
) -> rb_status {
    call(|| {
        let (callback, ctx) = (function(callback)?, CallbackContext(ctx));
        shared::<RIn>(rin)?.set_control_msg_cb(move |rin, message| match insert(rin.clone()) {
            Ok(handle) => {
                callback(ctx.pointer(), handle, message.as_ptr().cast(), message.len());
                // A callback that freed the handle has done so already.
                let _ = free_shared::<RIn>(handle);
            }
            Err(_) => rin.conn().close("no handle is left for the rIn"),
        });
        Ok(())
    })
}

/// Removes the callback, as `rb_rin_unset_data_in_cb` does. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_unset_control_msg_cb(rin: *const rb_rin) -> rb_status {
    call(|| shared::<RIn>(rin).map(|rin| rin.unset_control_msg_cb()))
}

/// Releases the oldest `size_bytes` of a buffer, so that the writer may use their space again (paper 1, section 3.3). Any
/// thread. Fails with `RB_ERR_TOO_MUCH` or `RB_ERR_NOT_SUBSCRIBED`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_data_consumed(rin: *const rb_rin, bid: u32, size_bytes: u64) -> rb_status {
    call(|| Ok(shared::<RIn>(rin)?.data_consumed(bid, size_bytes)?))
}

/// All received bytes of a buffer that were not released.
///
/// `data->view` is the caller's, until it is consumed or freed. Any thread. Fails with `RB_ERR_NOT_SUBSCRIBED`, also before the
/// subscription was accepted.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_get_buf_ref(rin: *const rb_rin, bid: u32, data: *mut rb_data) -> rb_status {
    answer(data, "the place for the data", || give_view(shared::<RIn>(rin)?.get_buf_ref(bid)?))
}

/// The next data or event of any subscription, waiting at most `timeout_ns`; `RB_TIMED_OUT` if nothing arrived. Not to be
/// combined with a data callback.
///
/// The view of data is the caller's. All other memory that `*event` points at is valid until this thread's next call that
/// receives something. Any thread, and in a callback only with the time-out 0. Fails with `RB_ERR_READER_TAKEN`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_recv(rin: *const rb_rin, event: *mut rb_in_event, timeout_ns: i64) -> rb_status {
    call(|| {
        place(event, "the place for the event")?;
        let received = shared::<RIn>(rin)?.recv(timeout(timeout_ns))?.ok_or(timed_out())?;
        put_in_event(event, received)
    })
}

/// A descriptor that is readable while `rb_rin_recv` would return something, for an event loop, which only polls it. Returns a
/// status below 0 if it fails.
///
/// The descriptor belongs to the library and lives as long as the rIn. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_fd(rin: *const rb_rin) -> c_int {
    call_number(|| Ok(shared::<RIn>(rin)?.pollable()?.as_raw_fd()))
}

/// Sends a control message of the application to the peer, in order with the data; see `rb_conn_send_control`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_send_control(rin: *const rb_rin, message: *const c_void, len: usize) -> rb_status {
    call(|| Ok(shared::<RIn>(rin)?.send_control(bytes(message, len, "the message")?)?))
}

/// The exclusive reader of the rIn, which takes no lock for each delivery. While it exists `rb_rin_recv` fails.
///
/// `*out` is the caller's, until `rb_reader_free`. Any thread. Fails with `RB_ERR_READER_TAKEN`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_rin_reader(rin: *const rb_rin, out: *mut *mut rb_reader) -> rb_status {
    answer(out, "the place for the reader", || insert(shared::<RIn>(rin)?.reader()?))
}

/// Hands the next data of any buffer to `each(ctx, bid, seg)`, which runs inside this call, and whose bytes are released when it
/// returns. Or puts an event into `*event`. Waits at most `timeout_ns`. `*has_event` says which of both happened.
///
/// The memory that `*event` points at is valid until this thread's next call that receives something. One thread uses a
/// reader at a time, and `each` must not use the reader. `RB_TIMED_OUT` if nothing arrived.
#[unsafe(no_mangle)]
pub extern "C" fn rb_reader_recv(
    reader: *mut rb_reader,
    each: rb_data_in_fn,
    ctx: *mut c_void,
    event: *mut rb_in_event,
    has_event: *mut bool,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        place(event, "the place for the event")?;
        place(has_event, "the place for the kind")?;
        let each = function(each)?;
        let mut reader = exclusive::<InReader>(reader)?;
        let read = reader.recv(timeout(timeout_ns), |bid, data| {
            with_received(bid, data, |seg| each(ctx, bid, seg));
        })?;
        put(has_event, matches!(read, InRead::Event(_)));
        match read {
            InRead::Data => Ok(()),
            InRead::Event(received) => put_in_event(event, received),
            _ => Err(timed_out()),
        }
    })
}

/// Gives the rIn back to `rb_rin_recv`, and frees the handle. NULL does nothing. Fails with `RB_ERR_BUSY` while another thread
/// uses the reader.
#[unsafe(no_mangle)]
pub extern "C" fn rb_reader_free(reader: *mut rb_reader) -> rb_status {
    call(|| if reader.is_null() { Ok(()) } else { take::<InReader>(reader).map(drop) })
}

/// The id of a subscription's buffer. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_subscription_bid(subscription: *const rb_subscription, bid: *mut u32) -> rb_status {
    answer(bid, "the place for the id", || Ok(shared::<Subscription>(subscription)?.bid()))
}

/// The next data or event of this subscription, as `rb_rin_recv`. Everything else waits for its own call.
#[unsafe(no_mangle)]
pub extern "C" fn rb_subscription_recv(
    subscription: *const rb_subscription,
    event: *mut rb_in_event,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        place(event, "the place for the event")?;
        let received = shared::<Subscription>(subscription)?.recv(timeout(timeout_ns))?.ok_or(timed_out())?;
        put_in_event(event, received)
    })
}

/// Releases the oldest `size_bytes`; see `rb_rin_data_consumed`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_subscription_consume(
    subscription: *const rb_subscription,
    size_bytes: u64,
) -> rb_status {
    call(|| Ok(shared::<Subscription>(subscription)?.consume(size_bytes)?))
}

/// All received bytes that were not released; see `rb_rin_get_buf_ref`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_subscription_buf_ref(
    subscription: *const rb_subscription,
    data: *mut rb_data,
) -> rb_status {
    answer(data, "the place for the data", || give_view(shared::<Subscription>(subscription)?.buf_ref()?))
}

/// The state of a subscription.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_subscription_info {
    /// The writer's log.
    pub epoch: rb_id128,
    /// The end of the complete data received so far, with which `RB_START_POSITION` continues elsewhere.
    pub boundary: u64,
    /// The bytes of the ring into which data is received.
    pub capacity_bytes: u64,
    /// Bytes that were copied into the ring: 0 if it is the sender's memory, or an adapter writes it.
    pub copied_bytes: u64,
}

/// The state of the subscription. Any thread. Fails with `RB_ERR_NOT_ANSWERED` before the subscription is accepted.
#[unsafe(no_mangle)]
pub extern "C" fn rb_subscription_get_info(
    subscription: *const rb_subscription,
    info: *mut rb_subscription_info,
) -> rb_status {
    answer(info, "the place for the state", || {
        let now = shared::<Subscription>(subscription)?.info();
        let now = now.ok_or_else(|| Failure::new(RB_ERR_NOT_ANSWERED, "the sender has not answered yet"))?;
        let epoch = now.epoch.0.into();
        Ok(copied!(now => rb_subscription_info { epoch: epoch, boundary, capacity_bytes, copied_bytes }))
    })
}

/// Ends the subscription. Unread data and unreceived events are dropped. A second call changes nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_subscription_unsubscribe(subscription: *const rb_subscription) -> rb_status {
    call(|| shared::<Subscription>(subscription).map(|subscription| subscription.unsubscribe()))
}

/// Frees a subscription's handle, which does not end the subscription. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_subscription_free(subscription: *mut rb_subscription) -> rb_status {
    call(|| if subscription.is_null() { Ok(()) } else { free_shared::<Subscription>(subscription) })
}
