//! Connections and listeners.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;

use rocketbufs::{Conn, ConnEvent, Context, DownReason, ForeignConnection, ForeignReason, Listener};

use crate::handles::{rb_conn, rb_context, rb_listener};
use crate::kept::{Kept, with_kept};
use crate::raw::{CallbackContext, answer, bytes, copy_out, put, rb_id128, text, timeout};
use crate::status::rb_status::{RB_ERR_NULL, RB_TIMED_OUT};
use crate::status::{Failure, Outcome, call, call_number, rb_status};
use crate::table::{free_shared, insert, shared};

/// Which end brought a connection down.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rb_down_by {
    /// This end closed it.
    RB_DOWN_BY_LOCAL = 0,
    /// The peer closed it.
    RB_DOWN_BY_PEER = 1,
    /// The network, the transport or the peer's machine failed, or the connection could not be made.
    RB_DOWN_BY_TRANSPORT = 2,
    /// The connection could not be begun, or was used after it was down.
    RB_DOWN_BY_NOT_STARTED = 3,
}

/// The application closed the connection.
pub const RB_CLOSE_NORMAL: i32 = 0;
/// The ends have no protocol version in common.
pub const RB_CLOSE_VERSION: i32 = 1;
/// The other end violated the protocol.
pub const RB_CLOSE_PROTOCOL: i32 = 2;
/// The application rejected the connection.
pub const RB_CLOSE_NOT_ACCEPTED: i32 = 3;
/// The other end was silent or too slow.
pub const RB_CLOSE_TIMEOUT: i32 = 4;
/// A limit was reached.
pub const RB_CLOSE_LIMIT: i32 = 5;
/// The process shuts down.
pub const RB_CLOSE_SHUTTING_DOWN: i32 = 6;
/// Another connection took over.
pub const RB_CLOSE_TAKEN_OVER: i32 = 7;

/// Why a connection is down.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_down {
    /// Which end brought it down.
    pub by: rb_down_by,
    /// `RB_CLOSE_…` of an orderly close; -1 otherwise.
    pub code: i32,
    /// The reason, for people. Valid until this thread's next call that receives something.
    pub text: *const c_char,
}

impl rb_down {
    pub(crate) fn of(reason: &DownReason, kept: &mut Kept) -> Self {
        let by = match reason {
            DownReason::Local { .. } => rb_down_by::RB_DOWN_BY_LOCAL,
            DownReason::Peer { .. } => rb_down_by::RB_DOWN_BY_PEER,
            DownReason::Transport(_) => rb_down_by::RB_DOWN_BY_TRANSPORT,
            _ => rb_down_by::RB_DOWN_BY_NOT_STARTED,
        };
        let code = reason.code().map_or(-1, |code| code as i32);
        Self { by, code, text: kept.text(&reason.to_string()) }
    }
}

impl Default for rb_down {
    /// No connection is down.
    #[inline]
    fn default() -> Self {
        Self { by: rb_down_by::RB_DOWN_BY_LOCAL, code: -1, text: std::ptr::null() }
    }
}

/// The kinds of events of a connection: up at most once, then down once.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rb_conn_event_kind {
    /// Both ends have accepted the connection.
    RB_CONN_UP = 1,
    /// The connection is down and does not come back.
    RB_CONN_DOWN = 2,
}

/// An event of a connection.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_conn_event {
    /// The kind of the event.
    pub kind: rb_conn_event_kind,
    /// With `RB_CONN_DOWN`: why.
    pub down: rb_down,
}

/// Connects, and waits until the other end has accepted, at most `session.connect_timeout_ms`. `hello` are up to 4,096 bytes
/// of the application's, which the other end reads before it accepts.
///
/// `*out` is the caller's, until `rb_conn_free`. Any thread, and not inside a callback. Fails with `RB_ERR_REFUSED`,
/// `RB_ERR_DOWN` (the text has the reason), or `RB_TIMED_OUT`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_connect(
    context: *const rb_context,
    address: *const c_char,
    hello: *const c_void,
    hello_len: usize,
    out: *mut *mut rb_conn,
) -> rb_status {
    answer(out, "the place for the connection", || {
        let context = shared::<Context>(context)?;
        let hello = bytes(hello, hello_len, "the hello")?;
        insert(Conn::connect(&context, text(address, "the address")?, hello)?)
    })
}

/// Begins to connect and returns at once. The connection can be given to an rIn or rOut while it is not up yet.
///
/// `*out` is the caller's, until `rb_conn_free`. Any thread. `rb_conn_wait_up` and `rb_conn_recv_event` tell of later
/// failures.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_connect_start(
    context: *const rb_context,
    address: *const c_char,
    hello: *const c_void,
    hello_len: usize,
    out: *mut *mut rb_conn,
) -> rb_status {
    answer(out, "the place for the connection", || {
        let context = shared::<Context>(context)?;
        let hello = bytes(hello, hello_len, "the hello")?;
        insert(Conn::connect_start(&context, text(address, "the address")?, hello)?)
    })
}

/// Waits until the connection is up, at most `timeout_ns`. Any thread, and not inside a callback. Fails with `RB_ERR_DOWN` or
/// `RB_ERR_REFUSED`, and the text has the reason.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_wait_up(conn: *const rb_conn, timeout_ns: i64) -> rb_status {
    call(|| Ok(shared::<Conn>(conn)?.wait_up(timeout(timeout_ns))?))
}

/// Waits until the connection is down, at most `timeout_ns`; `RB_TIMED_OUT` if it is not. Any thread.
///
/// `reason` may be NULL. Its text is valid until this thread's next call that receives something.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_wait_down(
    conn: *const rb_conn,
    reason: *mut rb_down,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        let down = shared::<Conn>(conn)?.wait_down(timeout(timeout_ns))?;
        let down = down.ok_or(Failure::outcome(RB_TIMED_OUT))?;
        with_kept(|kept| put(reason, rb_down::of(&down, kept)));
        Ok(())
    })
}

/// The next event, waiting at most `timeout_ns`; `RB_TIMED_OUT` if nothing happened, and at once after the last event, `RB_CONN_DOWN`. Each
/// event is given once.
///
/// The text of `*event` is valid until this thread's next call that receives something. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_recv_event(
    conn: *const rb_conn,
    event: *mut rb_conn_event,
    timeout_ns: i64,
) -> rb_status {
    answer(event, "the place for the event", || {
        let received = shared::<Conn>(conn)?.recv_event(timeout(timeout_ns))?;
        let received = received.ok_or(Failure::outcome(RB_TIMED_OUT))?;
        Ok(with_kept(|kept| conn_event(&received, kept)))
    })
}

fn conn_event(event: &ConnEvent, kept: &mut Kept) -> rb_conn_event {
    match event {
        ConnEvent::Down { reason } => {
            rb_conn_event { kind: rb_conn_event_kind::RB_CONN_DOWN, down: rb_down::of(reason, kept) }
        }
        _ => rb_conn_event { kind: rb_conn_event_kind::RB_CONN_UP, down: rb_down::default() },
    }
}

/// A descriptor that is readable while `rb_conn_recv_event` would return an event, for an event loop, which only polls it.
/// Returns a status below 0 if it fails.
///
/// The descriptor belongs to the library and lives as long as the connection's handle. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_fd(conn: *const rb_conn) -> c_int {
    call_number(|| Ok(shared::<Conn>(conn)?.pollable()?.as_raw_fd()))
}

/// 1 if both ends have accepted the connection and it is not down, 0 if not; below 0 is a status. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_is_up(conn: *const rb_conn) -> c_int {
    call_number(|| Ok(shared::<Conn>(conn)?.is_up().into()))
}

/// The number of the connection in this process, which the events of an rOut name. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_id(conn: *const rb_conn, id: *mut u64) -> rb_status {
    answer(id, "the place for the id", || Ok(shared::<Conn>(conn)?.id()))
}

/// The other end's hello: its bytes, cut to `capacity - 1`, with a zero behind them. `*len` gets their number. Empty until it
/// was read. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_peer_hello(
    conn: *const rb_conn,
    to: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> rb_status {
    call(|| copy_out(&shared::<Conn>(conn)?.peer_hello(), to, capacity, len))
}

/// The other end's address as text, as `snprintf` would write it. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_peer_addr(
    conn: *const rb_conn,
    to: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> rb_status {
    call(|| copy_out(shared::<Conn>(conn)?.peer_addr().as_bytes(), to, capacity, len))
}

/// The transport that carries the connection ("tcp", "shm", "rdma"), as `snprintf` would write it; empty until the other
/// end's hello was read. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_carrier(
    conn: *const rb_conn,
    to: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> rb_status {
    call(|| {
        let carrier = shared::<Conn>(conn)?.carrier();
        copy_out(carrier.map_or("", |carrier| carrier.name).as_bytes(), to, capacity, len)
    })
}

/// The random name of the other end's process; the same when it connects again. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_peer_instance(conn: *const rb_conn, out: *mut rb_id128) -> rb_status {
    answer(out, "the place for the name", || Ok(shared::<Conn>(conn)?.peer_instance().into()))
}

/// The bytes of the largest control message that both ends take, and the bytes of those that wait to be sent. Either place
/// may be NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_control_info(
    conn: *const rb_conn,
    max_bytes: *mut usize,
    waiting: *mut usize,
) -> rb_status {
    call(|| {
        let conn = shared::<Conn>(conn)?;
        put(max_bytes, conn.max_control_bytes());
        put(waiting, conn.control_waiting());
        Ok(())
    })
}

/// Sends a control message of the application, in order with the data. The message is copied. Returns at once: `RB_FULL` if
/// too many wait, `RB_ERR_TOO_LARGE`, `RB_ERR_DOWN`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_send_control(
    conn: *const rb_conn,
    message: *const c_void,
    len: usize,
) -> rb_status {
    call(|| Ok(shared::<Conn>(conn)?.send_control(bytes(message, len, "the message")?)?))
}

/// Closes the connection in order: queued bytes leave first, and the peer is told why. The handle stays valid. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_close(conn: *const rb_conn, why: *const c_char) -> rb_status {
    call(|| {
        shared::<Conn>(conn)?.close(text(why, "the reason")?);
        Ok(())
    })
}

/// Refuses a connection that was offered: the peer's attempt to connect fails with the reason. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_reject(conn: *const rb_conn, why: *const c_char) -> rb_status {
    call(|| {
        shared::<Conn>(conn)?.reject(text(why, "the reason")?);
        Ok(())
    })
}

/// Frees a connection's handle, which does not close the connection. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_free(conn: *mut rb_conn) -> rb_status {
    call(|| if conn.is_null() { Ok(()) } else { free_shared::<Conn>(conn) })
}

/// A callback for new connections. `conn` is the callback's: it frees the handle with `rb_conn_free`, now or later.
pub type rb_conn_fn = Option<extern "C" fn(ctx: *mut c_void, conn: *mut rb_conn)>;

/// A callback for connections that ended before they could be offered: `peer` is their address, `reason` a word (`protocol`,
/// `version`, `silent`, `left`, `tls`, `limit`), `why` a text for people. All three are valid until the callback returns.
pub type rb_foreign_conn_fn =
    Option<extern "C" fn(ctx: *mut c_void, peer: *const c_char, reason: *const c_char, why: *const c_char)>;

/// The function of a callback, which must not be NULL.
pub(crate) fn function<F>(function: Option<F>) -> Result<F, Failure> {
    function.ok_or_else(|| Failure::new(RB_ERR_NULL, "the callback is NULL; rb_…_unset_…_cb removes one"))
}

/// Listens on an address such as "127.0.0.1:7411"; port 0 takes a free one.
///
/// `*out` is the caller's, until `rb_listener_free`, which ends listening. Any thread, and not inside a callback. Fails with
/// `RB_ERR_ADDRESS_IN_USE` or `RB_ERR_ADDRESS`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_listener_bind(
    context: *const rb_context,
    address: *const c_char,
    out: *mut *mut rb_listener,
) -> rb_status {
    answer(out, "the place for the listener", || {
        let context = shared::<Context>(context)?;
        insert(Listener::bind(&context, text(address, "the address")?)?)
    })
}

/// The address in use as text, as `snprintf` would write it. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_listener_local_addr(
    listener: *const rb_listener,
    to: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> rb_status {
    call(|| copy_out(shared::<Listener>(listener)?.local_addr().as_bytes(), to, capacity, len))
}

/// The next connection, waiting at most `timeout_ns`; `RB_TIMED_OUT` if none came.
///
/// `*out` is the caller's, until `rb_conn_free`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_listener_accept(
    listener: *const rb_listener,
    out: *mut *mut rb_conn,
    timeout_ns: i64,
) -> rb_status {
    answer(out, "the place for the connection", || {
        let conn = shared::<Listener>(listener)?.accept(timeout(timeout_ns))?;
        insert(conn.ok_or(Failure::outcome(RB_TIMED_OUT))?)
    })
}

/// A descriptor that is readable while `rb_listener_accept` would return a connection, for an event loop, which only polls
/// it. Returns a status below 0 if it fails.
///
/// The descriptor belongs to the library and lives as long as the listener. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_listener_fd(listener: *const rb_listener) -> c_int {
    call_number(|| Ok(shared::<Listener>(listener)?.pollable()?.as_raw_fd()))
}

/// Calls `callback(ctx, conn)` on a worker thread for every connection; for those that wait already, inside this call.
///
/// `ctx` is the caller's, and is used until `rb_listener_unset_conn_cb` has returned or the listener was freed. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_listener_set_conn_cb(
    listener: *const rb_listener,
    callback: rb_conn_fn,
    ctx: *mut c_void,
) -> rb_status {
    call(|| {
        let (callback, ctx) = (function(callback)?, CallbackContext(ctx));
        shared::<Listener>(listener)?.set_conn_cb(move |conn| match insert(conn.clone()) {
            Ok(handle) => callback(ctx.pointer(), handle),
            Err(_) => conn.reject("no handle is left for the connection"),
        });
        Ok(())
    })
}

/// Removes the callback. When this has returned, no call of it runs on another thread and none begins: `ctx` may be freed.
/// Inside the callback itself: once that call has returned. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_listener_unset_conn_cb(listener: *const rb_listener) -> rb_status {
    call(|| shared::<Listener>(listener).map(|listener| listener.unset_conn_cb()))
}

fn word(reason: ForeignReason) -> &'static str {
    match reason {
        ForeignReason::Protocol => "protocol",
        ForeignReason::Version => "version",
        ForeignReason::Silent => "silent",
        ForeignReason::Tls => "tls",
        ForeignReason::Left => "left",
        _ => "limit",
    }
}

/// Calls `callback` on a worker thread for every connection that ended before it could be offered. `ctx` as for
/// `rb_listener_set_conn_cb`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_listener_set_foreign_conn_cb(
    listener: *const rb_listener,
    callback: rb_foreign_conn_fn,
    ctx: *mut c_void,
) -> rb_status {
    call(|| {
        let (callback, ctx) = (function(callback)?, CallbackContext(ctx));
        shared::<Listener>(listener)?.set_foreign_conn_cb(move |foreign: &ForeignConnection| {
            let mut kept = Kept::default();
            let texts = [&foreign.peer, word(foreign.reason), &foreign.why].map(|text| kept.text(text));
            callback(ctx.pointer(), texts[0], texts[1], texts[2]);
        });
        Ok(())
    })
}

/// Removes the callback, as `rb_listener_unset_conn_cb` does. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_listener_unset_foreign_conn_cb(listener: *const rb_listener) -> rb_status {
    call(|| shared::<Listener>(listener).map(|listener| listener.unset_foreign_conn_cb()))
}

/// Ends listening, and frees the handle; connections that were taken go on. NULL does nothing. Any thread.
///
/// A callback may still run when this has returned: remove it first if its `ctx` is to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn rb_listener_free(listener: *mut rb_listener) -> rb_status {
    call(|| -> Outcome {
        if listener.is_null() { Ok(()) } else { free_shared::<Listener>(listener) }
    })
}
