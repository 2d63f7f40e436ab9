//! The C API of RBLive's library: `bindings/include/rocketstreams.h`, and `rs::RsManager` in `bindings/include/rocketstreams.hpp`.

#![allow(non_camel_case_types)]

mod received;

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use rblive::{RsChunk, RsId, RsManager};
use received::Received;

/// A node: its streams, connections and threads.
pub struct rs_manager {
    rs: RsManager,
    received: Arc<Received>,
}

/// A one-shot chunk of a stream's buffer.
pub struct rs_chunk {
    chunk: RsChunk,
}

/// A pointer of the application that its callbacks get back.
#[derive(Clone, Copy)]
struct User(*mut c_void);

// SAFETY: the application passes the pointer to callbacks on worker threads, which the header says.
unsafe impl Send for User {}

impl User {
    /// The pointer. A closure that calls this captures the whole value.
    fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// The bytes of the longest text, with the zero behind it.
const LONGEST: usize = 1024;

thread_local! {
    /// At the same place as long as the thread lives, so that a pointer to it is good whatever fails meanwhile.
    static LAST_ERROR: [Cell<u8>; LONGEST] = const { [const { Cell::new(0) }; LONGEST] };
}

/// Runs a call: 0, or -1 with the text of the error.
fn run(call: impl FnOnce() -> Result<(), String>) -> c_int {
    let result =
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err("a bug in this library".to_owned()));
    let Err(text) = result else { return 0 };
    let text = &text[..text.floor_char_boundary(LONGEST - 1)];
    let bytes = text.bytes().map(|byte| if byte == 0 { b' ' } else { byte });
    LAST_ERROR.with(|last| last.iter().zip(bytes.chain([0])).for_each(|(place, byte)| place.set(byte)));
    -1
}

/// The object behind a pointer.
///
/// # Safety
/// The pointer is NULL or points at a live object, which nothing changes meanwhile.
unsafe fn object<'a, T>(pointer: *const T) -> Result<&'a T, String> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| "a pointer is NULL".to_owned())
}

/// Writes a result.
///
/// # Safety
/// The pointer is NULL or points at memory for the value.
unsafe fn give<T>(to: *mut T, value: T) -> Result<(), String> {
    if to.is_null() {
        return Err("a pointer is NULL".to_owned());
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// # Safety
/// The pointer is NULL or a text that ends with 0.
unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str, String> {
    if pointer.is_null() {
        return Err("a text is NULL".to_owned());
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(pointer) }.to_str().map_err(|_| "a text is not UTF-8".to_owned())
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The text of this thread's last error, at most 1,023 bytes: always at the same place for a thread, until the thread has ended.
#[unsafe(no_mangle)]
pub extern "C" fn rs_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.as_ptr().cast())
}

/// Starts a node from a configuration file.
///
/// # Safety
/// `config_file` is a text that ends with 0, `manager` points at memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_manager_new(config_file: *const c_char, manager: *mut *mut rs_manager) -> c_int {
    run(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { text(config_file) }?;
        let rs = RsManager::from_file(Path::new(path)).map_err(said)?;
        let made = Box::new(rs_manager { rs, received: Arc::default() });
        // SAFETY: the caller's promise.
        unsafe { give(manager, Box::into_raw(made)) }
    })
}

/// Ends a node: its connections and threads. NULL is allowed. A callback must not call this. When the call has returned, no callback
/// begins; free what callbacks use after that.
///
/// # Safety
/// The manager is not used again, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_manager_free(manager: *mut rs_manager) {
    if !manager.is_null() {
        // SAFETY: it came from a box, and is not used again.
        let manager = unsafe { Box::from_raw(manager) };
        run(|| {
            manager.rs.shutdown(std::time::Duration::from_secs(2));
            Ok(())
        });
    }
}

/// Creates a stream and gives its id, which is unique across nodes.
///
/// # Safety
/// `name` is a text that ends with 0, `id` points at memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_create_stream(
    manager: *const rs_manager,
    name: *const c_char,
    id: *mut u64,
) -> c_int {
    run(|| {
        // SAFETY: the caller's promise.
        let (manager, name) = unsafe { (object(manager)?, text(name)?) };
        let made = manager.rs.create_stream(name).map_err(said)?;
        // SAFETY: the caller's promise.
        unsafe { give(id, made.to_u64()) }
    })
}

/// Ends a stream that was created here.
///
/// # Safety
/// The manager is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_destroy_stream(manager: *const rs_manager, id: u64) -> c_int {
    // SAFETY: the caller's promise.
    run(|| unsafe { object(manager) }?.rs.destroy_stream(RsId::from_u64(id)).map(drop).map_err(said))
}

/// Lets a node, by its number in the configuration, have a stream.
///
/// # Safety
/// The manager is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_set_outbound(manager: *const rs_manager, node: u16, id: u64) -> c_int {
    // SAFETY: the caller's promise.
    run(|| unsafe { object(manager) }?.rs.set_outbound(node, RsId::from_u64(id)).map_err(said))
}

/// Takes a stream away from a node.
///
/// # Safety
/// The manager is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_remove_outbound(manager: *const rs_manager, node: u16, id: u64) -> c_int {
    // SAFETY: the caller's promise.
    run(|| unsafe { object(manager) }?.rs.remove_outbound(node, RsId::from_u64(id)).map(drop).map_err(said))
}

/// Gives a one-shot chunk of `size` bytes. Never waits. The application owns the chunk until it disseminates or frees it.
///
/// # Safety
/// The manager is live, `chunk` points at memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_allocate_chunk(
    manager: *const rs_manager,
    id: u64,
    size: usize,
    chunk: *mut *mut rs_chunk,
) -> c_int {
    run(|| {
        // SAFETY: the caller's promise.
        let manager = unsafe { object(manager) }?;
        let allocated = manager.rs.allocate_chunk(RsId::from_u64(id), size).map_err(said)?;
        // SAFETY: the caller's promise.
        unsafe { give(chunk, Box::into_raw(Box::new(rs_chunk { chunk: allocated }))) }
    })
}

/// The memory of a chunk. NULL for NULL.
///
/// # Safety
/// The chunk is live, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_chunk_data(chunk: *mut rs_chunk) -> *mut c_void {
    // SAFETY: the caller's promise.
    let chunk = unsafe { chunk.as_mut() };
    chunk.map_or(std::ptr::null_mut(), |chunk| chunk.chunk.bytes_mut().as_mut_ptr().cast())
}

/// The bytes of a chunk. 0 for NULL.
///
/// # Safety
/// The chunk is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_chunk_size(chunk: *const rs_chunk) -> usize {
    // SAFETY: the caller's promise.
    unsafe { chunk.as_ref() }.map_or(0, |chunk| chunk.chunk.size())
}

/// Frees a chunk that is not disseminated. NULL is allowed. Only the newest open chunk of a stream can be given back so.
///
/// # Safety
/// The chunk is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_chunk_free(manager: *const rs_manager, chunk: *mut rs_chunk) -> c_int {
    match chunk.is_null() {
        true => 0,
        // SAFETY: the caller's promise.
        false => unsafe { rs_disseminate_chunk(manager, chunk, 0, std::ptr::null_mut()) },
    }
}

/// Disseminates the first `size` bytes of a chunk. Returns at once. The chunk is freed, also if the call fails. With a context that
/// is not NULL, the outbound callback gets it when every node has the chunk.
///
/// # Safety
/// The manager is live, the chunk is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_disseminate_chunk(
    manager: *const rs_manager,
    chunk: *mut rs_chunk,
    size: usize,
    context: *mut c_void,
) -> c_int {
    run(|| {
        if chunk.is_null() {
            return Err("the chunk is NULL".to_owned());
        }
        // SAFETY: it came from a box, and is not used again.
        let chunk = unsafe { Box::from_raw(chunk) };
        // SAFETY: the caller's promise.
        let manager = unsafe { object(manager) }?;
        let context = (!context.is_null()).then_some(context as u64);
        manager.rs.disseminate_chunk(chunk.chunk, size, context).map(drop).map_err(said)
    })
}

/// Sets the callback for chunks that are at every node of their stream.
///
/// # Safety
/// The manager is live; `user` may be passed to other threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_outbound_callback(
    manager: *const rs_manager,
    callback: Option<extern "C" fn(user: *mut c_void, id: u64, context: *mut c_void)>,
    user: *mut c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller's promise.
        let manager = unsafe { object(manager) }?;
        let (callback, user) = (callback.ok_or("the callback is NULL")?, User(user));
        manager.rs.outbound_callback(move |id, context| {
            callback(user.pointer(), id.to_u64(), context as *mut c_void)
        });
        Ok(())
    })
}

/// Sets the callback for chunks that arrive. `data` lies in the stream's buffer and stays mapped until the application returns it with
/// `rs_data_consumed`. New data overwrites it nevertheless: check with `rs_data_intact` after the bytes were used.
///
/// # Safety
/// The manager is live; `user` may be passed to other threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_inbound_callback(
    manager: *const rs_manager,
    callback: Option<extern "C" fn(user: *mut c_void, id: u64, data: *const c_void, size: usize)>,
    user: *mut c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller's promise.
        let manager = unsafe { object(manager) }?;
        let (callback, user) = (callback.ok_or("the callback is NULL")?, User(user));
        let received = manager.received.clone();
        manager.rs.inbound_callback(move |chunk| {
            let (id, size) = (chunk.stream().to_u64(), chunk.size());
            if let Some(data) = received.keep(chunk) {
                callback(user.pointer(), id, data, size);
            }
        });
        Ok(())
    })
}

/// Whether received data was not overwritten so far. Ask after the bytes were used. False also for data that was returned.
///
/// # Safety
/// The manager is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_data_intact(manager: *const rs_manager, id: u64, data: *const c_void) -> bool {
    // SAFETY: the caller's promise.
    unsafe { manager.as_ref() }.is_some_and(|manager| manager.received.is_intact(RsId::from_u64(id), data))
}

/// Returns the oldest `size` bytes of a stream's received data, in whole chunks. The memory of these chunks may be
/// unmapped.
///
/// # Safety
/// The manager is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rs_data_consumed(manager: *const rs_manager, id: u64, size: usize) -> c_int {
    run(|| {
        // SAFETY: the caller's promise.
        let manager = unsafe { object(manager) }?;
        let id = RsId::from_u64(id);
        manager.received.consume(id, size);
        // The stream may have ended while its data was used.
        let _ = manager.rs.data_consumed(id, size as u64);
        Ok(())
    })
}
