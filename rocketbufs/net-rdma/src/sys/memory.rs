//! Registered memory: rings, and buffers of a connection's own.
//!
//! Registered memory is locked, and the adapter can reach it until the registration ends. So a registration owns its memory, and
//! ends before the memory is released. Queue pairs, registrations and rings can then be dropped in any order.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use rocketring::{PinGuard, Position, Ring};

use super::abi::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IbvContext, IbvMr, IbvPd};
use super::completions::Completions;
use super::load::Functions;

/// A protection domain: only its queue pair can reach the memory registered in it. Each connection has one, so that guessed
/// keys are of no use to a peer.
#[derive(Debug)]
pub(super) struct Domain {
    functions: &'static Functions,
    raw: *mut IbvPd,
    /// Dropped after the domain: keeps the device's context.
    _completions: Arc<Completions>,
}

// SAFETY: the libraries' functions may be called from any thread.
unsafe impl Send for Domain {}
// SAFETY: as above; nothing is changed through a shared reference.
unsafe impl Sync for Domain {}

impl Domain {
    pub(super) fn new(
        functions: &'static Functions,
        context: *mut IbvContext,
        completions: &Arc<Completions>,
    ) -> io::Result<Arc<Self>> {
        // SAFETY: the caller's device is open.
        let raw = unsafe { (functions.ibv_alloc_pd)(context) };
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Arc::new(Self { functions, raw, _completions: completions.clone() }))
    }

    pub(super) fn raw(&self) -> *mut IbvPd {
        self.raw
    }

    fn register(self: &Arc<Self>, at: *mut u8, bytes: usize, access: c_int) -> io::Result<Registration> {
        // SAFETY: the caller owns the memory and keeps it until the registration is dropped.
        let raw = unsafe { (self.functions.ibv_reg_mr)(self.raw, at.cast::<c_void>(), bytes, access) };
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made.
        let (lkey, rkey) = unsafe { ((*raw).lkey, (*raw).rkey) };
        Ok(Registration { domain: self.clone(), raw, lkey, rkey })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: all objects of the domain own a reference to it and are gone. If the system refuses, the domain stays until
        // the process ends.
        unsafe { (self.functions.ibv_dealloc_pd)(self.raw) };
    }
}

/// A registration. Its owner keeps the memory.
#[derive(Debug)]
struct Registration {
    domain: Arc<Domain>,
    raw: *mut IbvMr,
    lkey: u32,
    rkey: u32,
}

// SAFETY: as for `Domain`.
unsafe impl Send for Registration {}
// SAFETY: as for `Domain`.
unsafe impl Sync for Registration {}

impl Registration {
    /// Ends it. False if the system refused: the adapter may still reach the memory, which must stay.
    fn end(&self) -> bool {
        // SAFETY: made by `register` and ended once.
        unsafe { (self.domain.functions.ibv_dereg_mr)(self.raw) == 0 }
    }
}

/// A ring that the adapter may read, or that a peer may write.
#[derive(Debug)]
pub struct RingRegion {
    registration: Registration,
    ring: ManuallyDrop<PinGuard>,
}

impl RingRegion {
    /// Registers a source ring.
    pub(super) fn source(domain: &Arc<Domain>, ring: &Ring) -> io::Result<Self> {
        Self::new(domain, ring.pin(), 0)
    }

    /// Registers a ring, or the memory that stands in for it, for the peer to write: pinned as exposed.
    pub(super) fn target(domain: &Arc<Domain>, exposed: PinGuard) -> io::Result<Self> {
        Self::new(domain, exposed, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
    }

    fn new(domain: &Arc<Domain>, pinned: PinGuard, access: c_int) -> io::Result<Self> {
        let ring = pinned.ring();
        // Registers the first of the two mappings: pages that are locked twice count twice.
        let at = ring.raw(0, 0).cast_mut();
        let registration = domain.register(at, ring.capacity() as usize, access)?;
        Ok(Self { registration, ring: ManuallyDrop::new(pinned) })
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        self.ring.ring()
    }

    /// The key by which the peer writes.
    pub fn key(&self) -> u32 {
        self.registration.rkey
    }

    pub(super) fn lkey(&self) -> u32 {
        self.registration.lkey
    }

    /// The address of positions that are multiples of the capacity.
    pub fn address(&self) -> u64 {
        self.ring().raw(0, 0).addr() as u64
    }

    /// The addresses of `len` bytes from a position on: one piece, or two across the ring's end.
    pub(super) fn pieces(&self, from: Position, len: u32) -> [(u64, u32); 2] {
        let (capacity, base) = (self.ring().capacity(), self.address());
        let offset = from & (capacity - 1);
        let first = u64::from(len).min(capacity - offset) as u32;
        [(base + offset, first), (base, len - first)]
    }
}

impl Drop for RingRegion {
    fn drop(&mut self) {
        if self.registration.end() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        }
    }
}

/// Memory of a connection's own, which the adapter reads and writes.
#[derive(Debug)]
pub(super) struct Buffer {
    registration: Registration,
    at: *mut u8,
    bytes: usize,
}

// SAFETY: it owns its memory.
unsafe impl Send for Buffer {}

impl Buffer {
    pub(super) fn new(domain: &Arc<Domain>, bytes: usize) -> io::Result<Self> {
        let memory: Box<[u8]> = vec![0; bytes].into();
        let at = Box::into_raw(memory).cast::<u8>();
        match domain.register(at, bytes, IBV_ACCESS_LOCAL_WRITE) {
            Ok(registration) => Ok(Self { registration, at, bytes }),
            Err(error) => {
                // SAFETY: made above, and not shared.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(at, bytes)) });
                Err(error)
            }
        }
    }

    pub(super) fn lkey(&self) -> u32 {
        self.registration.lkey
    }

    pub(super) fn address(&self, at: usize) -> u64 {
        assert!(at <= self.bytes, "beyond the end of a buffer");
        self.at.addr() as u64 + at as u64
    }

    /// The bytes at an offset. The adapter must not be writing them: no receive is posted there.
    pub(super) fn read(&self, at: usize, len: usize) -> &[u8] {
        assert!(at <= self.bytes && len <= self.bytes - at, "beyond the end of a buffer");
        // SAFETY: within the memory, which lives as long as `self`; the caller does not have the adapter write there.
        unsafe { std::slice::from_raw_parts(self.at.add(at), len) }
    }

    /// The bytes at an offset, to be filled. If the adapter is reading them, it sends a mixture.
    pub(super) fn part(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(at <= self.bytes && len <= self.bytes - at, "beyond the end of a buffer");
        // SAFETY: within the memory, which is this buffer's alone.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(at), len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.registration.end() {
            // SAFETY: made by `new` of a box of this size, dropped once.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.at, self.bytes)) });
        }
    }
}
