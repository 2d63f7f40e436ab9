//! Events of a device itself: a port that went down, a device that has failed.
//!
//! The kernel reports them once for each open context. All workers of a process share the contexts of rdma_cm, so each worker
//! opens the device once more, and gets every event. Failures of one queue pair are not reported here: its posted requests
//! complete with an error.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;

use super::abi::*;
use super::connect::{Id, set_nonblocking};
use super::load::Functions;

/// A device that is open for its events.
#[derive(Debug)]
pub struct Watch {
    functions: &'static Functions,
    context: *mut IbvContext,
    name: String,
}

// SAFETY: the library's functions may be called from any thread.
unsafe impl Send for Watch {}
// SAFETY: as above.
unsafe impl Sync for Watch {}

/// A failure that ends connections of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFailure {
    /// The failed port; none: the whole device.
    pub port: Option<u8>,
    /// A description of the failure, with the device's name.
    pub what: String,
}

impl Watch {
    /// Opens the device of a connection.
    ///
    /// # Errors
    /// The device cannot be opened again, or descriptors have run out.
    pub fn new(id: &Id) -> io::Result<Self> {
        let functions = id.functions;
        // SAFETY: the id is there, and keeps its device, if it has one, open.
        let (context, name) = unsafe {
            let verbs = (*id.raw).verbs;
            if verbs.is_null() {
                return Err(io::ErrorKind::NotConnected.into());
            }
            let device = (*verbs).device;
            let name = CStr::from_ptr((functions.ibv_get_device_name)(device));
            ((functions.ibv_open_device)(device), name.to_string_lossy().into_owned())
        };
        if context.is_null() {
            return Err(io::Error::last_os_error());
        }
        let watch = Self { functions, context, name };
        // SAFETY: just opened.
        set_nonblocking(unsafe { (*context).async_fd })?;
        Ok(watch)
    }

    /// Readable while there are events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the device is open as long as `self`, and its descriptor with it.
        unsafe { BorrowedFd::borrow_raw((*self.context).async_fd) }
    }

    /// The next event; the inner None for an event without relevance. None: there are no more.
    pub fn next(&self) -> Option<Option<DeviceFailure>> {
        let mut event = IbvAsyncEvent { element: [0; 2], event_type: 0 };
        // SAFETY: the device is open, and `event` has room for an event.
        if unsafe { (self.functions.ibv_get_async_event)(self.context, &mut event) } != 0 {
            return None;
        }
        let failure = self.failure(&event);
        // SAFETY: got above, acknowledged once.
        unsafe { (self.functions.ibv_ack_async_event)(&mut event) };
        Some(failure)
    }

    fn failure(&self, event: &IbvAsyncEvent) -> Option<DeviceFailure> {
        let name = &self.name;
        match event.event_type {
            IBV_EVENT_DEVICE_FATAL => {
                let what = format!("the RDMA device {name} has failed, says its driver (dmesg)");
                Some(DeviceFailure { port: None, what })
            }
            IBV_EVENT_PORT_ERR => {
                // The element of such events is the port's number.
                let port = event.element[0] as u8;
                let what =
                    format!("port {port} of the RDMA device {name} went down (cable, interface, switch)");
                Some(DeviceFailure { port: Some(port), what })
            }
            _ => None,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: opened by `new`; nothing was made of it.
        unsafe { (self.functions.ibv_close_device)(self.context) };
    }
}
