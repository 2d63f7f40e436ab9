//! The completion channel of one worker on one device.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use super::abi::*;
use super::connect::{Id, set_nonblocking};
use super::load::Functions;

/// The completion channel: the completion queues of one worker on one device signal over it.
#[derive(Debug)]
pub struct Completions {
    functions: &'static Functions,
    pub(super) raw: *mut IbvCompChannel,
    /// Dropped after the channel and all other owners of this.
    _device: Id,
}

// SAFETY: the library's functions may be called from any thread.
unsafe impl Send for Completions {}
// SAFETY: as above.
unsafe impl Sync for Completions {}

impl Completions {
    /// A channel for connections of this connection's device. When the device is removed an event with this number follows,
    /// and every owner of the channel must be dropped: the kernel waits for that.
    ///
    /// # Errors
    /// The device refuses, or descriptors have run out.
    pub fn new(id: &Id, number: u64) -> io::Result<Arc<Self>> {
        let device = id.beside(number)?;
        // SAFETY: the id is there and has a device, of which a null pointer is refused below.
        let raw = unsafe {
            let context = (*id.raw).verbs;
            if context.is_null() { ptr::null_mut() } else { (id.functions.ibv_create_comp_channel)(context) }
        };
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        let completions = Self { functions: id.functions, raw, _device: device };
        // SAFETY: just made.
        set_nonblocking(unsafe { (*raw).fd })?;
        Ok(Arc::new(completions))
    }

    /// Readable while a queue has completions.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`, and its descriptor with it.
        unsafe { BorrowedFd::borrow_raw((*self.raw).fd) }
    }

    /// The number of a connection whose queue has completions. The queue does not signal again until it is armed.
    pub fn next(&self) -> Option<u64> {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is valid, and the two pointers receive its values.
        if unsafe { (self.functions.ibv_get_cq_event)(self.raw, &mut queue, &mut context) } != 0 {
            return None;
        }
        // SAFETY: the queue is destroyed only after its events are acknowledged.
        unsafe { (self.functions.ibv_ack_cq_events)(queue, 1) };
        Some(context.addr() as u64)
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: every queue owns a reference to the channel, so none is left.
        unsafe { (self.functions.ibv_destroy_comp_channel)(self.raw) };
    }
}

/// Identifies the device of a connection.
pub fn device_of(id: &Id) -> usize {
    // SAFETY: the id is there.
    unsafe { (*id.raw).verbs }.addr()
}
