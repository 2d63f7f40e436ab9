//! A generator of packets, for measurements: the kernel sends copies of a frame, without a system call or a socket buffer for each.

use std::os::fd::{AsFd, OwnedFd};

use crate::attach::attach_native;
use crate::error::KernelError;
use crate::sys;

/// Returns XDP_TX: a frame that seems to have arrived at an interface leaves through it.
const SEND_BACK: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 3, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];

/// Returns XDP_DROP.
const DROP: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 1, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];

/// Sends frames through an interface whose driver can send those of XDP. The other end of a veth pair must have a native XDP program,
/// for example a [`Kernel`](crate::Kernel) with other ports.
#[derive(Debug)]
pub struct FrameSender {
    program: OwnedFd,
    interface: u32,
}

impl FrameSender {
    /// A sender through an interface of this thread's network namespace.
    ///
    /// # Errors
    /// [`KernelError::Interface`], or [`KernelError::Call`].
    pub fn new(interface: &str) -> Result<FrameSender, KernelError> {
        let index = sys::interface_index(interface)
            .map_err(|error| KernelError::Interface { name: interface.to_owned(), error })?;
        let program = sys::load_small(&SEND_BACK).map_err(KernelError::call("load the generator"))?;
        Ok(FrameSender { program, interface: index })
    }

    /// Sends `count` copies of an Ethernet frame of at most 1,514 bytes. What the receiving end drops is lost. A frame whose bytes
    /// the receiver changes may be sent again as changed.
    ///
    /// # Errors
    /// [`KernelError::Call`].
    pub fn send(&self, frame: &[u8], count: u32) -> Result<(), KernelError> {
        let sent = sys::run_live(self.program.as_fd(), self.interface, frame, count);
        sent.map_err(KernelError::call("send frames"))
    }
}

/// Drops every frame that arrives at an interface, in its driver, until the handle is dropped: what a generator costs, and how fast it
/// is, without a receiver.
#[derive(Debug)]
pub struct FrameSink {
    _link: OwnedFd,
}

impl FrameSink {
    /// A sink on an interface of this thread's network namespace.
    ///
    /// # Errors
    /// [`KernelError::Interface`], or [`KernelError::Call`] if the driver takes no programs, or has one.
    pub fn new(interface: &str) -> Result<FrameSink, KernelError> {
        let index = sys::interface_index(interface)
            .map_err(|error| KernelError::Interface { name: interface.to_owned(), error })?;
        let program = sys::load_small(&DROP).map_err(KernelError::call("load the sink"))?;
        let link = attach_native(program.as_fd(), index).map_err(KernelError::call("attach the sink"))?;
        Ok(FrameSink { _link: link })
    }
}
