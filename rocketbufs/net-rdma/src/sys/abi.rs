//! The structures and constants of libibverbs and librdmacm that this crate uses.
//!
//! Both libraries promise that these do not change: new fields are only appended. Unused fields are padding here, and the
//! assertions below state the offset of each used field on 64-bit machines.

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

/// The limits of a device.
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
    /// Room for newer versions of the structure.
    pub room: [u8; 64],
}

/// The state of a port.
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

/// A type that is only pointed to.
macro_rules! opaque {
    ($($name:ident)+) => {
        $(
            #[repr(C)]
            pub struct $name {
                _opaque: [u8; 0],
            }
        )+
    };
}

opaque! { IbvPd }

/// A registration of memory.
#[repr(C)]
pub struct IbvMr {
    pub context: *mut IbvContext,
    pub pd: *mut IbvPd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// A completion channel.
#[repr(C)]
pub struct IbvCompChannel {
    pub context: *mut IbvContext,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// A completion queue.
#[repr(C)]
pub struct IbvCq {
    pub context: *mut IbvContext,
}

/// A queue pair.
#[repr(C)]
pub struct IbvQp {
    pub context: *mut IbvContext,
}

/// A piece of registered memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct IbvSge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// A request to send or write.
#[repr(C)]
pub struct IbvSendWr {
    pub wr_id: u64,
    pub next: *mut IbvSendWr,
    pub sg_list: *mut IbvSge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: u32,
    pub imm_data: u32,
    pub remote_addr: u64,
    pub rkey: u32,
    pub rest: [u32; 19],
}

/// A request to receive.
#[repr(C)]
pub struct IbvRecvWr {
    pub wr_id: u64,
    pub next: *mut IbvRecvWr,
    pub sg_list: *mut IbvSge,
    pub num_sge: c_int,
}

/// An event of a device.
#[repr(C, align(8))]
pub struct IbvAsyncEvent {
    /// A pointer to the affected object, or the number of a port.
    pub element: [c_int; 2],
    pub event_type: c_int,
}

pub const IBV_EVENT_DEVICE_FATAL: c_int = 8;
pub const IBV_EVENT_PORT_ERR: c_int = 10;

/// A completion.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct IbvWc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub rest: [u32; 2],
}

/// The sizes of a queue pair.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IbvQpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// The attributes of a new queue pair.
#[repr(C)]
pub struct IbvQpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut IbvCq,
    pub recv_cq: *mut IbvCq,
    pub srq: *mut c_void,
    pub cap: IbvQpCap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

pub const IBV_QPT_RC: c_int = 2;
pub const IBV_WR_RDMA_WRITE: u32 = 0;
pub const IBV_WR_RDMA_WRITE_WITH_IMM: u32 = 1;
pub const IBV_WR_SEND: u32 = 2;
pub const IBV_SEND_SIGNALED: u32 = 2;
pub const IBV_SEND_INLINE: u32 = 8;
pub const IBV_ACCESS_LOCAL_WRITE: c_int = 1;
pub const IBV_ACCESS_REMOTE_WRITE: c_int = 2;
pub const IBV_WC_SUCCESS: u32 = 0;
pub const IBV_WC_WR_FLUSH_ERR: u32 = 5;
pub const IBV_WC_REM_ACCESS_ERR: u32 = 10;
pub const IBV_WC_RETRY_EXC_ERR: u32 = 12;
pub const IBV_WC_RNR_RETRY_EXC_ERR: u32 = 13;
pub const IBV_WC_RECV: u32 = 128;
pub const IBV_WC_RECV_RDMA_WITH_IMM: u32 = 129;

/// The channel for events of connections.
#[repr(C)]
pub struct RdmaEventChannel {
    pub fd: c_int,
}

/// A connection or a listener.
#[repr(C)]
pub struct RdmaCmId {
    pub verbs: *mut IbvContext,
    pub channel: *mut RdmaEventChannel,
    pub context: *mut c_void,
    pub qp: *mut IbvQp,
    pub src_addr: SockAddr,
    pub dst_addr: SockAddr,
    pub gids: [u64; 5],
    pub paths: *mut c_void,
    pub path_count: [c_int; 2],
    pub port_space: c_int,
    pub port_num: u8,
}

/// Room for any socket address.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct SockAddr(pub [u8; 128]);

/// An event of a connection.
#[repr(C)]
pub struct RdmaCmEvent {
    pub id: *mut RdmaCmId,
    pub listen_id: *mut RdmaCmId,
    pub event: c_int,
    pub status: c_int,
    pub conn: RdmaConnParam,
}

/// The parameters of a connection.
#[repr(C)]
pub struct RdmaConnParam {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

pub const RDMA_PS_TCP: c_int = 0x106;
pub const RDMA_OPTION_ID: c_int = 0;
pub const RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;
pub const RDMA_CM_EVENT_ADDR_RESOLVED: c_int = 0;
pub const RDMA_CM_EVENT_ADDR_ERROR: c_int = 1;
pub const RDMA_CM_EVENT_ROUTE_RESOLVED: c_int = 2;
pub const RDMA_CM_EVENT_ROUTE_ERROR: c_int = 3;
pub const RDMA_CM_EVENT_CONNECT_REQUEST: c_int = 4;
pub const RDMA_CM_EVENT_CONNECT_ERROR: c_int = 6;
pub const RDMA_CM_EVENT_UNREACHABLE: c_int = 7;
pub const RDMA_CM_EVENT_REJECTED: c_int = 8;
pub const RDMA_CM_EVENT_ESTABLISHED: c_int = 9;
pub const RDMA_CM_EVENT_DISCONNECTED: c_int = 10;
pub const RDMA_CM_EVENT_DEVICE_REMOVAL: c_int = 11;

const _: () = {
    assert!(offset_of!(IbvMr, lkey) == 36 && offset_of!(IbvMr, rkey) == 40);
    assert!(offset_of!(IbvCompChannel, fd) == 8);
    assert!(size_of::<IbvSge>() == 16 && offset_of!(IbvSge, lkey) == 12);
    assert!(size_of::<IbvSendWr>() == 128 && offset_of!(IbvSendWr, imm_data) == 36);
    assert!(offset_of!(IbvSendWr, remote_addr) == 40 && offset_of!(IbvSendWr, rkey) == 48);
    assert!(size_of::<IbvRecvWr>() == 32 && offset_of!(IbvRecvWr, num_sge) == 24);
    assert!(size_of::<IbvWc>() == 48 && offset_of!(IbvWc, imm_data) == 24);
    assert!(size_of::<IbvQpInitAttr>() == 64 && offset_of!(IbvQpInitAttr, cap) == 32);
    assert!(offset_of!(IbvQpInitAttr, qp_type) == 52 && offset_of!(IbvQpInitAttr, sq_sig_all) == 56);
    assert!(offset_of!(RdmaCmId, src_addr) == 32 && offset_of!(RdmaCmId, dst_addr) == 160);
    assert!(offset_of!(RdmaCmId, port_space) == 344 && offset_of!(RdmaCmId, port_num) == 348);
    assert!(size_of::<IbvAsyncEvent>() == 16 && offset_of!(IbvAsyncEvent, event_type) == 8);
    assert!(offset_of!(RdmaCmEvent, event) == 16 && offset_of!(RdmaCmEvent, conn) == 24);
    assert!(size_of::<RdmaConnParam>() == 24 && offset_of!(RdmaConnParam, qp_num) == 16);
    assert!(offset_of!(RdmaConnParam, retry_count) == 12 && offset_of!(RdmaConnParam, srq) == 14);
};

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
