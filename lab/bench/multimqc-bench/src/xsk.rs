//! An AF_XDP socket that receives: memory for frames, two rings, and a program that redirects the datagrams to one port.
//!
//! ```text
//!   fill ring:  free frames    ──▶ kernel copies a packet into one ──▶  receive ring: frame, length
//!        ▲                                                                     │
//!        └─────────────────────── given back after a look ─────────────────────┘
//! ```

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

const FRAMES: u32 = 4096;
const FRAME_BYTES: u32 = 2048;
/// The bytes of a packet that is handed out: its headers at least.
const LEAST: usize = 42;

/// A mapping that ends with its handle.
struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn new(bytes: usize, fd: i32, offset: i64) -> io::Result<Mapping> {
        let flags = if fd < 0 { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_SHARED };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, access, flags | libc::MAP_POPULATE, fd, offset)
        };
        match NonNull::new(at.cast::<u8>()) {
            Some(at) if at.as_ptr().cast() != libc::MAP_FAILED => Ok(Mapping { at, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing refers to it any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// A ring with `FRAMES` entries of type T, of which the kernel has the other end.
struct Ring<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    of: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn map(fd: &OwnedFd, offsets: libc::xdp_ring_offset, page: u64) -> io::Result<Ring<T>> {
        let bytes = offsets.desc as usize + FRAMES as usize * size_of::<T>();
        let mapping = Mapping::new(bytes, fd.as_raw_fd(), page as i64)?;
        Ok(Ring { mapping, offsets, of: std::marker::PhantomData })
    }

    fn counter(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel gave the offset of an aligned counter of 32 bits inside the mapping, which lives as long as `self`.
        unsafe { &*self.mapping.at.as_ptr().add(offset as usize).cast() }
    }

    fn producer(&self) -> &AtomicU32 {
        self.counter(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.counter(self.offsets.consumer)
    }

    fn entry(&self, number: u32) -> *mut T {
        let at = self.offsets.desc as usize + (number % FRAMES) as usize * size_of::<T>();
        // SAFETY: the remainder keeps the entry inside the mapping.
        unsafe { self.mapping.at.as_ptr().add(at).cast() }
    }

    /// Writes an entry that the kernel does not look at yet.
    fn set(&self, number: u32, value: T) {
        // SAFETY: inside the mapping, aligned by the kernel's layout, and ours until `producer` moves past it.
        unsafe { self.entry(number).write(value) }
    }

    /// Reads an entry that the kernel has produced.
    fn get(&self, number: u32) -> T {
        // SAFETY: inside the mapping, aligned by the kernel's layout, and written before `producer` moved past it.
        unsafe { self.entry(number).read() }
    }
}

/// A socket with its memory and its program.
pub struct Receiver {
    socket: OwnedFd,
    memory: Mapping,
    free: Ring<u64>,
    received: Ring<libc::xdp_desc>,
    /// The completion ring, which the kernel wants to exist, and the program with its map.
    _kept: (Ring<u64>, [OwnedFd; 3]),
}

impl Receiver {
    /// Receives what comes to this port of queue 0 of an interface. Everything else goes to the network stack.
    pub fn new(interface: &str, port: u16) -> io::Result<Receiver> {
        let name = CString::new(interface)?;
        // SAFETY: the name ends with a zero.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: no pointers.
        let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let memory = Mapping::new((FRAMES * FRAME_BYTES) as usize, -1, 0)?;
        let region = libc::xdp_umem_reg {
            addr: memory.at.as_ptr() as u64,
            len: u64::from(FRAMES * FRAME_BYTES),
            chunk_size: FRAME_BYTES,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set_option(&socket, libc::XDP_UMEM_REG, &region)?;
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
            set_option(&socket, ring, &FRAMES)?;
        }
        let offsets = ring_offsets(&socket)?;
        let free = Ring::map(&socket, offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let done = Ring::map(&socket, offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let received = Ring::map(&socket, offsets.rx, libc::XDP_PGOFF_RX_RING as u64)?;
        for frame in 0..FRAMES {
            free.set(frame, u64::from(frame * FRAME_BYTES));
        }
        free.producer().store(FRAMES, Ordering::Release);
        bind(&socket, index)?;
        let program = redirect(&socket, index, port)?;
        Ok(Receiver { socket, memory, free, received, _kept: (done, program) })
    }

    /// Waits at most so many milliseconds for frames, and hands out each with all of its headers. Returns how many there were.
    pub fn receive(&mut self, patience_ms: i32, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        let begin = self.received.consumer().load(Ordering::Relaxed);
        // Pairs with the kernel's release of the entries.
        let end = self.received.producer().load(Ordering::Acquire);
        let count = end.wrapping_sub(begin);
        if count == 0 {
            let mut wait = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, which lives during the call.
            unsafe { libc::poll(&raw mut wait, 1, patience_ms) };
            return Ok(0);
        }
        let place = self.free.producer().load(Ordering::Relaxed);
        let mut handed = 0;
        for step in 0..count {
            let frame = self.received.get(begin.wrapping_add(step));
            let (at, bytes) = (frame.addr as usize, frame.len as usize);
            if bytes >= LEAST && at + bytes <= self.memory.bytes {
                // SAFETY: inside the memory, and the kernel does not write a frame that is not in the fill ring.
                each(unsafe { std::slice::from_raw_parts(self.memory.at.as_ptr().add(at), bytes) });
                handed += 1;
            }
            self.free.set(place.wrapping_add(step), frame.addr - frame.addr % u64::from(FRAME_BYTES));
        }
        // Both pair with the kernel's acquire: the frames were read, and the entries written.
        self.received.consumer().store(end, Ordering::Release);
        self.free.producer().store(place.wrapping_add(count), Ordering::Release);
        Ok(handed)
    }
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set_option<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` lives during the call, and has these bytes.
    let result = unsafe {
        let at = std::ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, at, bytes)
    };
    check(result.into()).map(drop)
}

fn ring_offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    let mut offsets = std::mem::MaybeUninit::<libc::xdp_mmap_offsets>::zeroed();
    let mut bytes = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
    // SAFETY: there is room for the result, which is plain numbers and was zeroed.
    unsafe {
        let (fd, option) = (socket.as_raw_fd(), libc::XDP_MMAP_OFFSETS);
        let at = offsets.as_mut_ptr().cast();
        check(libc::getsockopt(fd, libc::SOL_XDP, option, at, &raw mut bytes).into())?;
        Ok(offsets.assume_init())
    }
}

fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY,
        sxdp_ifindex: index,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    let bytes = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: `address` lives during the call, and has these bytes.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) }.into()).map(drop)
}

fn bpf(command: i64, attr: &mut [u64]) -> io::Result<i64> {
    // SAFETY: `attr` has the layout of the command, its rest is zeros, and what it points to lives during the call.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), size_of_val(attr)) })
}

fn bpf_fd(command: i64, attr: &mut [u64]) -> io::Result<OwnedFd> {
    let fd = bpf(command, attr)?;
    // SAFETY: a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Two fields of 32 bits.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Attaches the program that redirects to the socket. The map, the program and the link live as long as they are kept.
fn redirect(socket: &OwnedFd, index: u32, port: u16) -> io::Result<[OwnedFd; 3]> {
    const MAP_CREATE: i64 = 0;
    const MAP_UPDATE: i64 = 2;
    const PROG_LOAD: i64 = 5;
    const LINK_CREATE: i64 = 28;
    const XSKMAP: u32 = 17;
    const XDP_PROGRAM: u32 = 6;
    const ATTACH_XDP: u32 = 37;
    const IN_DRIVER: u32 = 1 << 2;
    let map = bpf_fd(MAP_CREATE, &mut [pair(XSKMAP, 4), pair(4, 1), 0])?;
    let (key, value) = (0_u32, socket.as_raw_fd() as u32);
    let (map_fd, key, value) = (map.as_raw_fd() as u64, &raw const key, &raw const value);
    bpf(MAP_UPDATE, &mut [map_fd, key as u64, value as u64, 0])?;
    let code = program(map.as_raw_fd() as u32, port);
    let license = c"Apache-2.0";
    let mut load =
        [pair(XDP_PROGRAM, code.len() as u32), code.as_ptr() as u64, license.as_ptr() as u64, 0, 0, 0];
    let program = bpf_fd(PROG_LOAD, &mut load)?;
    let attach = &mut [pair(program.as_raw_fd() as u32, index), pair(ATTACH_XDP, IN_DRIVER)];
    let link = bpf_fd(LINK_CREATE, attach)?;
    Ok([map, program, link])
}

/// UDP over IPv4 without options to this port: to the socket of queue 0. Everything else passes.
fn program(map: u32, port: u16) -> Vec<u64> {
    /// Code, registers (destination, and source in the upper four bits), offset, immediate.
    fn op(code: u8, registers: u8, offset: i16, immediate: u32) -> u64 {
        u64::from(code)
            | u64::from(registers) << 8
            | u64::from(offset as u16) << 16
            | u64::from(immediate) << 32
    }
    const LOAD32: u8 = 0x61;
    const LOAD16: u8 = 0x69;
    const LOAD8: u8 = 0x71;
    vec![
        op(LOAD32, 0x12, 0, 0),                            // r2 = data
        op(LOAD32, 0x13, 4, 0),                            // r3 = end
        op(0xbf, 0x24, 0, 0),                              // r4 = r2
        op(0x07, 0x04, 0, 42),                             // r4 += headers
        op(0x2d, 0x34, 12, 0),                             // if r4 > r3: pass
        op(LOAD16, 0x25, 12, 0),                           // type
        op(0x55, 0x05, 10, u32::from(0x0800_u16.to_be())), // not IPv4: pass
        op(LOAD8, 0x25, 23, 0),                            // protocol
        op(0x55, 0x05, 8, 17),                             // not UDP: pass
        op(LOAD16, 0x25, 36, 0),                           // port
        op(0x55, 0x05, 6, u32::from(port.to_be())),        // another: pass
        op(0x18, 0x11, 0, map),                            // r1 = map
        op(0, 0, 0, 0),
        op(0xb7, 0x02, 0, 0), // r2 = queue 0
        op(0xb7, 0x03, 0, 2), // r3 = XDP_PASS, where there is no socket
        op(0x85, 0, 0, 51),   // bpf_redirect_map
        op(0x95, 0, 0, 0),
        op(0xb7, 0x00, 0, 2), // pass
        op(0x95, 0, 0, 0),
    ]
}
