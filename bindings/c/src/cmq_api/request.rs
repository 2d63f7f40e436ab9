//! Requests and responses: the paper's futures.

use std::ffi::{c_char, c_void};

use bytes::Bytes;
use cmq::Key;
use cmq::strategy::request::{CallConfig, CallError, CallState, Caller, PendingCall, Responder, Served};
use libc::iovec;

use crate::cmq_api::message::{cmq_key, cmq_message, give};
use crate::cmq_api::options::{cmq_options, config};
use crate::conn::function;
use crate::failures::failures;
use crate::raw::{Versioned, answer, bytes, get, iovec_bytes, options, place, set, text, timeout};
use crate::status::rb_status::*;
use crate::status::{Failure, Outcome, call, rb_status};
use crate::table::{free_shared, insert, kinds, shared};

/// Sends requests from a queue of its own. Any number of threads may use it.
pub struct cmq_caller(());
/// A request, and its response once that has arrived. Any number of threads may use it.
pub struct cmq_call(());
/// Answers requests that arrive at a queue of its own. Any number of threads may use it.
pub struct cmq_responder(());

type Body = Vec<u8>;
type ByteCaller = Caller<Body, Body>;
type ByteResponder = Responder<Body, Body>;

/// A call, and where its request went.
pub(crate) struct Pending {
    call: PendingCall<Body, Body>,
    to: Key,
}

kinds! {
    cmq_caller => ByteCaller, 33, "caller";
    cmq_call => Pending, 34, "call";
    cmq_responder => ByteResponder, 35, "responder";
}

failures! {
    CallError: |e| match &e {
        CallError::Outstanding(_) => RB_ERR_TOO_MANY,
        CallError::Push(error) => Failure::from(*error).status(),
        _ => RB_ERR_OTHER,
    };
}

/// The settings of a caller. Zeros are defaults: `cmq_call_options options = {.size = sizeof options};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_call_options {
    /// `sizeof(cmq_call_options)`.
    pub size: usize,
    /// How long an attempt waits for the response, in nanoseconds; 0: 500 ms.
    pub timeout_ns: i64,
    /// How often a request is sent before the call is lost; 0: 3.
    pub max_attempts: u32,
    /// Bytes of the largest response; 0: 64. Each request is padded by as much, so that nobody can use a responder to send an
    /// address more than it sent.
    pub max_response_bytes: usize,
    /// Calls that may be outstanding; 0: 65,536.
    pub max_outstanding: usize,
}

// SAFETY: integers, and the first field is the size.
unsafe impl Versioned for cmq_call_options {}

fn call_config(given: *const cmq_call_options) -> Result<CallConfig, Failure> {
    let given = options(given, "the caller's options")?;
    let mut made = CallConfig::default();
    set!(made, given: max_attempts, max_response_bytes, max_outstanding; timeout = timeout_ns);
    Ok(made)
}

/// Makes a caller with a queue of its own at a local address such as "0.0.0.0:0". `options` and `calls` may be NULL.
///
/// `*out` is the caller's, until `cmq_caller_free`. Any thread. Fails as `cmq_new_rq`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_caller_new(
    address: *const c_char,
    given: *const cmq_options,
    calls: *const cmq_call_options,
    out: *mut *mut cmq_caller,
) -> rb_status {
    answer(out, "the place for the caller", || {
        let calls = call_config(calls)?;
        let queue = cmq::new_rq_with(text(address, "the address")?, config(given)?)?;
        insert(ByteCaller::new(queue, calls))
    })
}

/// Sends a request to a responder. Never waits: `cmq_call_wait` gives the response. A request without a response in time is sent
/// again, so a responder may get it more than once.
///
/// The request is copied. `*out` is the caller's, until `cmq_call_free`; it keeps the caller alive. Any thread. `RB_FULL` if too many
/// bytes wait to be sent. Fails with `RB_ERR_TOO_LARGE`, `RB_ERR_ADDRESS` or `RB_ERR_TOO_MANY` (outstanding calls).
#[unsafe(no_mangle)]
pub extern "C" fn cmq_caller_call(
    caller: *const cmq_caller,
    key: *const cmq_key,
    request: *const c_void,
    len: usize,
    out: *mut *mut cmq_call,
) -> rb_status {
    answer(out, "the place for the call", || {
        let key = get(key, "the key")?;
        let to = Key::from((key.addr()?, key.id));
        let request = bytes(request, len, "the request")?.to_vec();
        let call = shared::<ByteCaller>(caller)?.call(to, request)?;
        insert(Pending { call, to })
    })
}

/// The response to a call, waiting at most `timeout_ns`; `RB_TIMED_OUT` if it may still arrive. Requests of the caller are sent again
/// only while a thread waits for one of its calls, or makes another call. `response->from` is the key that was called.
///
/// `*response` is the caller's, until `cmq_message_free`. Any thread. Fails with `RB_ERR_LOST` if no attempt got a response.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_call_wait(
    pending: *const cmq_call,
    response: *mut cmq_message,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        place(response, "the place for the response")?;
        let pending = shared::<Pending>(pending)?;
        match pending.call.wait(timeout(timeout_ns)) {
            CallState::Answered(body) => give(response, Bytes::from(body), pending.to),
            CallState::Lost => Err(Failure::new(RB_ERR_LOST, "no attempt of the call got a response")),
            CallState::Pending => Err(Failure::outcome(RB_TIMED_OUT)),
        }
    })
}

/// Forgets a call, whose response is then dropped. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_call_free(pending: *mut cmq_call) -> rb_status {
    call(|| if pending.is_null() { Ok(()) } else { free_shared::<Pending>(pending) })
}

/// The address of the caller's queue, with the mailbox 0. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_caller_local_addr(caller: *const cmq_caller, key: *mut cmq_key) -> rb_status {
    answer(key, "the place for the key", || {
        Ok(cmq_key::of(shared::<ByteCaller>(caller)?.queue().local_addr(), 0))
    })
}

/// Frees a caller's handle. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_caller_free(caller: *mut cmq_caller) -> rb_status {
    call(|| if caller.is_null() { Ok(()) } else { free_shared::<ByteCaller>(caller) })
}

/// Makes a responder with a queue of its own at a local address. `options` may be NULL.
///
/// `*out` is the caller's, until `cmq_responder_free`. Any thread. Fails as `cmq_new_rq`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_responder_new(
    address: *const c_char,
    given: *const cmq_options,
    out: *mut *mut cmq_responder,
) -> rb_status {
    answer(out, "the place for the responder", || {
        let queue = cmq::new_rq_with(text(address, "the address")?, config(given)?)?;
        insert(ByteResponder::new(queue))
    })
}

/// A callback that answers a request: it lets `*response` point at the response, which is copied when the callback has returned, and
/// returns true; or it returns false, and there is no response. `request` is valid until the callback returns.
pub type cmq_respond_fn =
    Option<extern "C" fn(ctx: *mut c_void, request: *const cmq_message, response: *mut iovec) -> bool>;

/// Waits for a request, at most `timeout_ns`, and answers it with what `respond` returns. `respond` runs inside this call.
///
/// Any thread. `RB_TIMED_OUT` if no request came; `RB_FULL` if too many bytes wait to be sent, and the request then comes again. Fails
/// with `RB_ERR_TOO_LARGE` if the response is larger than the caller's `max_response_bytes`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_responder_serve(
    responder: *const cmq_responder,
    respond: cmq_respond_fn,
    ctx: *mut c_void,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        let respond = function(respond)?;
        let responder = shared::<ByteResponder>(responder)?;
        let mut declined: Outcome = Err(Failure::outcome(RB_FULL));
        let served = responder.serve(timeout(timeout_ns), |request, from| {
            let (data, len) = (request.as_ptr().cast(), request.len());
            let from = cmq_key::of(from.addr, from.id);
            let shown = cmq_message { data, len, from, memory: std::ptr::null_mut() };
            let mut response = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
            if !respond(ctx, &raw const shown, &raw mut response) {
                declined = Ok(());
                return None;
            }
            let response = iovec_bytes(&response).map(<[u8]>::to_vec);
            response.map_err(|failure| declined = Err(failure)).ok()
        });
        match served {
            Served::Answered => Ok(()),
            Served::None => Err(Failure::outcome(RB_TIMED_OUT)),
            Served::TooLarge => {
                Err(Failure::new(RB_ERR_TOO_LARGE, "the response is larger than the caller allows"))
            }
            _ => declined,
        }
    })
}

/// The address of the responder's queue, with the mailbox 0. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_responder_local_addr(responder: *const cmq_responder, key: *mut cmq_key) -> rb_status {
    answer(key, "the place for the key", || {
        Ok(cmq_key::of(shared::<ByteResponder>(responder)?.queue().local_addr(), 0))
    })
}

/// Frees a responder's handle. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_responder_free(responder: *mut cmq_responder) -> rb_status {
    call(|| if responder.is_null() { Ok(()) } else { free_shared::<ByteResponder>(responder) })
}
