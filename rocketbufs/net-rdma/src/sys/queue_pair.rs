//! A connection's queue pair: posting, and completions.
//!
//! Each connection has a completion queue of its own, large enough for all requests in flight, so that none can overrun. All
//! queues of a worker on one device signal over one [`Completions`].

use std::ffi::{CStr, c_int};
use std::io;
use std::mem::{transmute, zeroed};
use std::ptr;
use std::sync::Arc;

use rocketring::{PinGuard, Position, Ring};

use super::abi::*;
use super::completions::{Completions, device_of};
use super::connect::Id;
use super::memory::{Buffer, Domain, RingRegion};

/// Marks the number of a receive among the numbers of completions.
const RECEIVE: u64 = 1 << 63;
/// Completions taken at a time.
const BATCH: usize = 32;
/// Sizes of inline data to try, the largest first: a device refuses more than it supports.
const INLINE: [u32; 6] = [512, 256, 220, 128, 64, 0];

/// The sizes of a connection's queues.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Requests in flight.
    pub sends: u32,
    /// Receives posted ahead.
    pub receives: u32,
    /// Bytes of each receive.
    pub receive_bytes: u32,
    /// Bytes of the memory that messages and copies are sent from.
    pub outbox_bytes: u32,
    /// The most inline data; a device may support less.
    pub inline_bytes: u32,
    /// Time-out of an acknowledgement: 4.096 us times two to this power.
    pub ack_timeout: u8,
    /// Repetitions of an unacknowledged transfer; at most 6 (7 means for ever).
    pub retries: u8,
}

/// The bytes of a request.
pub enum Source<'a> {
    /// Bytes of a ring that is registered, or few enough to go inline.
    Ring(&'a Ring, Option<&'a RingRegion>, Position, u32),
    /// Bytes of the outbox.
    Outbox(usize, u32),
}

/// The operation of a request.
#[derive(Debug, Clone, Copy)]
pub enum Verb {
    /// Send into a receive of the peer.
    Send,
    /// Write into the peer's memory.
    Write {
        /// The address.
        address: u64,
        /// The peer's key.
        key: u32,
        /// The immediate data, which takes a receive; none: no notification.
        tell: Option<u32>,
    },
}

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// The request with this number and all before it completed.
    Sent(u64),
    /// The peer wrote bytes with immediate data, which used the receive of a slot.
    Told {
        /// The immediate data.
        word: u32,
        /// The number of bytes.
        bytes: u32,
        /// The receive.
        slot: u32,
    },
    /// A message arrived in the receive of a slot.
    Message {
        /// The receive.
        slot: u32,
        /// Its length.
        bytes: u32,
    },
    /// The connection is broken, with the status of the verbs.
    Failed(u32),
}

/// A queue pair, with its completion queue and the memory of its messages.
#[derive(Debug)]
pub struct QueuePair {
    id: Id,
    queue: *mut IbvCq,
    /// Keeps the channel over which the queue signals.
    domain: Arc<Domain>,
    receives: Buffer,
    outbox: Buffer,
    shape: Shape,
    inline_bytes: u32,
    next: u64,
}

// SAFETY: owned by one thread at a time; the library does not care which.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// The queues of a connection whose device is known, under the number that [`Completions::next`] returns, with all
    /// receives posted.
    ///
    /// # Errors
    /// The missing resource, and why: memory that may not be locked, more than the device has.
    pub fn open(id: Id, completions: &Arc<Completions>, number: u64, shape: Shape) -> Result<Self, String> {
        let functions = id.functions;
        // SAFETY: the id is there.
        let context = unsafe { (*id.raw).verbs };
        let failed = |what: &'static str| move |error: io::Error| format!("{what}: {}", explain(&error));
        let domain = Domain::new(functions, context, completions).map_err(failed("a protection domain"))?;
        let receive_bytes = shape.receives as usize * shape.receive_bytes as usize;
        let receives = Buffer::new(&domain, receive_bytes).map_err(failed("registering receives"))?;
        let outbox =
            Buffer::new(&domain, shape.outbox_bytes as usize).map_err(failed("registering an outbox"))?;
        let entries = (shape.sends + shape.receives + 1) as c_int;
        let user = ptr::without_provenance_mut(number as usize);
        // SAFETY: device and channel are there.
        let queue = unsafe { (functions.ibv_create_cq)(context, entries, user, completions.raw, 0) };
        if queue.is_null() {
            return Err(failed("a completion queue")(io::Error::last_os_error()));
        }
        id.set_ack_timeout(shape.ack_timeout);
        let mut queue_pair = Self { id, queue, domain, receives, outbox, shape, inline_bytes: 0, next: 0 };
        queue_pair.make_pair().map_err(failed("a queue pair"))?;
        queue_pair.arm();
        for slot in 0..shape.receives {
            queue_pair.receive(slot).map_err(failed("posting a receive"))?;
        }
        Ok(queue_pair)
    }

    fn make_pair(&mut self) -> io::Result<()> {
        let asked = self.shape.inline_bytes;
        let sizes = [asked].into_iter().chain(INLINE.into_iter().filter(|size| *size < asked));
        let mut last = io::Error::from_raw_os_error(libc::EINVAL);
        for max_inline_data in sizes {
            let cap = IbvQpCap {
                max_send_wr: self.shape.sends,
                max_recv_wr: self.shape.receives,
                max_send_sge: 2,
                max_recv_sge: 1,
                max_inline_data,
            };
            let mut attr = IbvQpInitAttr {
                qp_context: ptr::null_mut(),
                send_cq: self.queue,
                recv_cq: self.queue,
                srq: ptr::null_mut(),
                cap,
                qp_type: IBV_QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: id, domain and queue are there and outlive the pair, see `drop`.
            if unsafe { (self.id.functions.rdma_create_qp)(self.id.raw, self.domain.raw(), &mut attr) } == 0 {
                self.inline_bytes = attr.cap.max_inline_data.max(max_inline_data);
                return Ok(());
            }
            last = io::Error::last_os_error();
        }
        Err(last)
    }

    /// Requests or accepts the connection, with up to 56 bytes of private data.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn go(&self, accept: bool, private: &[u8]) -> io::Result<()> {
        self.id.go(accept, private, self.shape.retries)
    }

    /// Whether the connection uses this device (see [`device_of`]), and this port of it.
    pub fn goes_over(&self, device: usize, port: Option<u8>) -> bool {
        // SAFETY: the id is there.
        device_of(&self.id) == device && port.is_none_or(|port| port == unsafe { (*self.id.raw).port_num })
    }

    /// Disconnects.
    pub fn disconnect(&self) {
        self.id.disconnect();
    }

    /// The most bytes that go inline: they are read when they are posted.
    pub fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    /// Registers a source ring.
    ///
    /// # Errors
    /// The kernel refuses: locked memory, or a mapping that cannot be registered.
    pub fn source(&self, ring: &Ring) -> Result<RingRegion, String> {
        RingRegion::source(&self.domain, ring).map_err(|error| explain(&error))
    }

    /// Registers memory that the peer writes, pinned by [`Ring::pin_exposed`].
    ///
    /// # Errors
    /// The kernel refuses: locked memory.
    pub fn target(&self, exposed: PinGuard) -> Result<RingRegion, String> {
        debug_assert!(exposed.ring().is_exposed(), "the peer will write it");
        RingRegion::target(&self.domain, exposed).map_err(|error| explain(&error))
    }

    /// A part of the outbox, to be filled before it is posted, and unchanged until its request has completed.
    pub fn outbox(&mut self, at: usize, len: usize) -> &mut [u8] {
        self.outbox.part(at, len)
    }

    /// The message in a receive that is not posted.
    pub fn message(&self, slot: u32, bytes: u32) -> &[u8] {
        let bytes = bytes.min(self.shape.receive_bytes);
        self.receives.read(slot as usize * self.shape.receive_bytes as usize, bytes as usize)
    }

    /// Posts a receive (again).
    ///
    /// # Errors
    /// The queue pair is broken.
    pub fn receive(&mut self, slot: u32) -> io::Result<()> {
        let at = slot as usize * self.shape.receive_bytes as usize;
        let mut piece = IbvSge {
            addr: self.receives.address(at),
            length: self.shape.receive_bytes,
            lkey: self.receives.lkey(),
        };
        let mut request = IbvRecvWr {
            wr_id: RECEIVE | u64::from(slot),
            next: ptr::null_mut(),
            sg_list: &mut piece,
            num_sge: 1,
        };
        let mut bad: *mut IbvRecvWr = ptr::null_mut();
        // SAFETY: the pair is there, its device's table has this function, and the request is copied by it.
        let code = unsafe {
            let pair = (*self.id.raw).qp;
            let post: unsafe extern "C" fn(*mut IbvQp, *mut IbvRecvWr, *mut *mut IbvRecvWr) -> c_int =
                transmute((*(*pair).context).ops.post_recv);
            post(pair, &mut request, &mut bad)
        };
        posted(code)
    }

    /// Posts a request, and returns its number. `signalled`: it is signalled, and its completion covers all requests before.
    ///
    /// # Errors
    /// The queue pair is broken, or its queue is full.
    pub fn post(&mut self, verb: Verb, source: &Source<'_>, signalled: bool) -> io::Result<u64> {
        // SAFETY: integers and pointers, all of which may be zero.
        let mut request: IbvSendWr = unsafe { zeroed() };
        let (mut pieces, inline) = self.pieces(source);
        request.wr_id = self.next + 1;
        request.sg_list = pieces.as_mut_ptr();
        request.num_sge = pieces.iter().filter(|piece| piece.length > 0).count() as c_int;
        request.send_flags =
            if signalled { IBV_SEND_SIGNALED } else { 0 } | if inline { IBV_SEND_INLINE } else { 0 };
        match verb {
            Verb::Send => request.opcode = IBV_WR_SEND,
            Verb::Write { address, key, tell } => {
                request.opcode = if tell.is_some() { IBV_WR_RDMA_WRITE_WITH_IMM } else { IBV_WR_RDMA_WRITE };
                request.imm_data = tell.unwrap_or(0).to_le();
                request.remote_addr = address;
                request.rkey = key;
            }
        }
        let mut bad: *mut IbvSendWr = ptr::null_mut();
        // SAFETY: the pair is there, its device's table has this function, and the request is copied by it. The
        // memory of its pieces is registered, or is read before the call returns.
        let code = unsafe {
            let pair = (*self.id.raw).qp;
            let post: unsafe extern "C" fn(*mut IbvQp, *mut IbvSendWr, *mut *mut IbvSendWr) -> c_int =
                transmute((*(*pair).context).ops.post_send);
            post(pair, &mut request, &mut bad)
        };
        posted(code)?;
        self.next += 1;
        Ok(self.next)
    }

    /// The addresses of a source's bytes, and whether they go inline.
    fn pieces(&self, source: &Source<'_>) -> ([IbvSge; 2], bool) {
        match *source {
            Source::Outbox(at, length) => {
                let piece = IbvSge { addr: self.outbox.address(at), length, lkey: self.outbox.lkey() };
                ([piece, IbvSge::default()], length <= self.inline_bytes)
            }
            Source::Ring(ring, _, from, length) if length <= self.inline_bytes => {
                let addr = ring.raw(from, length as usize).addr() as u64;
                ([IbvSge { addr, length, lkey: 0 }, IbvSge::default()], true)
            }
            Source::Ring(_, None, ..) => {
                unreachable!("only what goes inline is sent from memory that is not registered")
            }
            Source::Ring(_, Some(region), from, length) => {
                let lkey = region.lkey();
                (region.pieces(from, length).map(|(addr, length)| IbvSge { addr, length, lkey }), false)
            }
        }
    }

    /// Arms the queue: it signals the next completion.
    pub fn arm(&mut self) {
        // SAFETY: the queue is there and its device's table has this function.
        unsafe {
            let arm: unsafe extern "C" fn(*mut IbvCq, c_int) -> c_int =
                transmute((*(*self.queue).context).ops.req_notify_cq);
            arm(self.queue, 0);
        }
    }

    /// Takes completions, at most a batch. False if there may be more.
    pub fn take(&mut self, done: &mut Vec<Done>) -> bool {
        let mut found = [IbvWc::default(); BATCH];
        // SAFETY: the queue is there, its device's table has this function, and there is room for a batch.
        let count = unsafe {
            let poll: unsafe extern "C" fn(*mut IbvCq, c_int, *mut IbvWc) -> c_int =
                transmute((*(*self.queue).context).ops.poll_cq);
            poll(self.queue, BATCH as c_int, found.as_mut_ptr())
        };
        let count = usize::try_from(count).unwrap_or(0).min(BATCH);
        done.extend(found[..count].iter().map(what));
        count < BATCH
    }

    /// A completion's status in words.
    pub fn describe(&self, status: u32) -> String {
        // SAFETY: a text that is the library's and stays.
        let name = unsafe { CStr::from_ptr((self.id.functions.ibv_wc_status_str)(status)) };
        let name = name.to_string_lossy();
        match status {
            IBV_WC_WR_FLUSH_ERR => format!("the connection ended ({name})"),
            IBV_WC_REM_ACCESS_ERR => {
                format!("the peer does not let its memory be written there: its ring is gone ({name})")
            }
            IBV_WC_RETRY_EXC_ERR => format!(
                "the peer's adapter does not answer, or packets larger than the way takes are lost; \
                 {} retries ({name})",
                self.shape.retries
            ),
            IBV_WC_RNR_RETRY_EXC_ERR => {
                format!("the peer has no receive left; it does not keep its word ({name})")
            }
            _ => format!("the adapter gave up ({name})"),
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by `open`; the pair goes before its queue, and the id last. Memory that a peer could write is
        // out of its reach from here on.
        unsafe {
            if !(*self.id.raw).qp.is_null() {
                (self.id.functions.rdma_destroy_qp)(self.id.raw);
            }
            (self.id.functions.ibv_destroy_cq)(self.queue);
        }
    }
}

/// The result of a data path function, which returns an error number.
fn posted(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.abs())) }
}

fn what(wc: &IbvWc) -> Done {
    let slot = (wc.wr_id & !RECEIVE) as u32;
    match (wc.status, wc.wr_id & RECEIVE != 0, wc.opcode) {
        (IBV_WC_SUCCESS, false, _) => Done::Sent(wc.wr_id),
        (IBV_WC_SUCCESS, true, IBV_WC_RECV_RDMA_WITH_IMM) => {
            Done::Told { word: u32::from_le(wc.imm_data), bytes: wc.byte_len, slot }
        }
        (IBV_WC_SUCCESS, true, IBV_WC_RECV) => Done::Message { slot, bytes: wc.byte_len },
        (IBV_WC_SUCCESS, true, _) => Done::Failed(u32::MAX),
        (status, ..) => Done::Failed(status),
    }
}

/// The remedy for errors of the machine's configuration.
fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN) => {
            format!("{error}; locked memory may be limited here (ulimit -l; rbmq check rdma)")
        }
        _ => error.to_string(),
    }
}
