//! The properties of a device.

use std::ffi::CStr;
use std::io;

use super::abi::{IbvContext, IbvDevice, IbvDeviceAttr, IbvPortAttr};
use super::load::{Functions, functions};

/// The limits of a device, as far as they matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Its firmware, for people.
    pub firmware: String,
    /// Queue pairs; one is used for each connection.
    pub queue_pairs: u32,
    /// Work requests that one queue holds.
    pub work_requests: u32,
    /// Completions that one completion queue holds.
    pub completions: u32,
    /// Registrations of memory.
    pub registrations: u32,
    /// Bytes of the largest registration.
    pub registration_bytes: u64,
    /// Its ports, the first being number 1.
    pub ports: Vec<PortState>,
}

/// The state of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortState {
    /// The port carries packets.
    pub active: bool,
    /// The present MTU, in bytes.
    pub mtu: u32,
    /// The largest MTU of the port.
    pub max_mtu: u32,
    /// Bytes of the largest single write.
    pub max_message: u32,
}

/// `IBV_PORT_ACTIVE`.
const ACTIVE: i32 = 4;

/// Reads the limits of the device with this name.
///
/// # Errors
/// The libraries are missing, they do not know the device (perhaps its provider is not installed), or the device cannot be
/// opened (perhaps this user may not open `/dev/infiniband`).
pub fn limits(name: &str) -> io::Result<DeviceLimits> {
    let functions = functions().map_err(io::Error::other)?;
    let device = Open::new(functions, name)?;
    // SAFETY: integers and bytes, all of which may be zero.
    let mut attr: IbvDeviceAttr = unsafe { std::mem::zeroed() };
    // SAFETY: the device is open, and `attr` has room for what the function writes.
    check(unsafe { (functions.ibv_query_device)(device.context, &mut attr) })?;
    let ports = (1..=attr.phys_port_cnt).map(|port| device.port(port)).collect::<io::Result<_>>()?;
    let unsigned = |n: i32| u32::try_from(n).unwrap_or(0);
    let firmware = attr.fw_ver.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    Ok(DeviceLimits {
        firmware: String::from_utf8(firmware).unwrap_or_default(),
        queue_pairs: unsigned(attr.max_qp),
        work_requests: unsigned(attr.max_qp_wr),
        completions: unsigned(attr.max_cqe),
        registrations: unsigned(attr.max_mr),
        registration_bytes: attr.max_mr_size,
        ports,
    })
}

/// An open device; closed when dropped.
struct Open {
    functions: &'static Functions,
    context: *mut IbvContext,
}

impl Open {
    fn new(functions: &'static Functions, name: &str) -> io::Result<Self> {
        // SAFETY: the count may be left out; the list ends with a null pointer.
        let list = unsafe { (functions.ibv_get_device_list)(std::ptr::null_mut()) };
        if list.is_null() {
            return Err(io::Error::last_os_error());
        }
        let opened = named(functions, list, name).map(|device| {
            // SAFETY: a device of the list, which is freed below.
            unsafe { (functions.ibv_open_device)(device) }
        });
        let error = io::Error::last_os_error();
        // SAFETY: the list came from the function that goes with this one; an open device stays valid without it.
        unsafe { (functions.ibv_free_device_list)(list) };
        match opened {
            Some(context) if !context.is_null() => Ok(Self { functions, context }),
            Some(_) => Err(error),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "libibverbs has no driver for it")),
        }
    }

    fn port(&self, number: u8) -> io::Result<PortState> {
        // SAFETY: integers and bytes, all of which may be zero.
        let mut attr: IbvPortAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the device is open, and `attr` has room for what the function writes.
        check(unsafe { (self.functions.ibv_query_port)(self.context, number, &mut attr) })?;
        // An enumeration from 1: 256 bytes.
        let bytes = |mtu: i32| 128_u32.checked_shl(mtu.clamp(0, 8) as u32).unwrap_or(0);
        Ok(PortState {
            active: attr.state == ACTIVE,
            mtu: bytes(attr.active_mtu),
            max_mtu: bytes(attr.max_mtu),
            max_message: attr.max_msg_sz,
        })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: opened by `new`, and nothing of it is in use.
        unsafe { (self.functions.ibv_close_device)(self.context) };
    }
}

fn named(functions: &Functions, list: *mut *mut IbvDevice, name: &str) -> Option<*mut IbvDevice> {
    for at in 0.. {
        // SAFETY: the list is not read past its null pointer.
        let device = unsafe { *list.add(at) };
        if device.is_null() {
            return None;
        }
        // SAFETY: a device of the list; its name ends with a zero.
        let own = unsafe { CStr::from_ptr((functions.ibv_get_device_name)(device)) };
        if own.to_str() == Ok(name) {
            return Some(device);
        }
    }
    None
}

/// The result of a function that returns an error number.
fn check(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}
