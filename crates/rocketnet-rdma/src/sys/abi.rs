//! Structures and constants of libibverbs and librdmacm, as far as they are used here.
//!
//! Both libraries promise that these do not change: fields are only added behind. What is between the fields that are
//! used is padding here, and the assertions below say where each one lies on 64-bit machines.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// A device in the list of `ibv_get_device_list`.
#[repr(C)]
pub struct IbvDevice {
    _opaque: [u8; 0],
}

/// An open device.
#[repr(C)]
pub struct IbvContext {
    pub device: *mut IbvDevice,
    pub ops: IbvContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
}

/// The table of functions of a device; only those of the data path are used, the others have symbols.
#[repr(C)]
pub struct IbvContextOps {
    pub before: [*mut c_void; 11],
    pub poll_cq: *mut c_void,
    pub req_notify_cq: *mut c_void,
    pub between: [*mut c_void; 12],
    pub post_send: *mut c_void,
    pub post_recv: *mut c_void,
    pub after: [*mut c_void; 5],
}

/// What a device can do.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IbvDeviceAttr {
    pub fw_ver: [c_char; 64],
    pub guids: [u64; 2],
    pub max_mr_size: u64,
    pub skipped_1: [u8; 20],
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub skipped_2: c_int,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub skipped_3: [u8; 87],
    pub phys_port_cnt: u8,
    /// The library may know more than its oldest form.
    pub room: [u8; 64],
}

/// What a port is like now.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IbvPortAttr {
    pub state: c_int,
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub skipped: [u8; 22],
    pub link_layer: u8,
    /// As above.
    pub room: [u8; 64],
}

const _: () = {
    assert!(offset_of!(IbvContext, ops) == 8);
    assert!(offset_of!(IbvContext, cmd_fd) == 264);
    assert!(offset_of!(IbvContext, async_fd) == 268);
    assert!(offset_of!(IbvContextOps, poll_cq) == 88);
    assert!(offset_of!(IbvContextOps, req_notify_cq) == 96);
    assert!(offset_of!(IbvContextOps, post_send) == 200);
    assert!(offset_of!(IbvContextOps, post_recv) == 208);
    assert!(offset_of!(IbvDeviceAttr, max_mr_size) == 80);
    assert!(offset_of!(IbvDeviceAttr, max_qp) == 108);
    assert!(offset_of!(IbvDeviceAttr, max_sge) == 120);
    assert!(offset_of!(IbvDeviceAttr, max_cqe) == 132);
    assert!(offset_of!(IbvDeviceAttr, max_mr) == 136);
    assert!(offset_of!(IbvDeviceAttr, phys_port_cnt) == 227);
    assert!(offset_of!(IbvPortAttr, max_msg_sz) == 20);
    assert!(offset_of!(IbvPortAttr, link_layer) == 46);
};
