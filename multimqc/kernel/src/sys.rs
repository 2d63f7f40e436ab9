//! System calls: bpf(2) and the mapping of memory.
//!
//! Each function fills one variant of the kernel's `union bpf_attr`, as far as this crate needs it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const OBJ_PIN: libc::c_int = 6;
const OBJ_GET: libc::c_int = 7;
const PROG_TEST_RUN: libc::c_int = 10;
const OBJ_GET_INFO: libc::c_int = 15;
const BTF_LOAD: libc::c_int = 18;
const MAP_FREEZE: libc::c_int = 22;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;
const LINK_DETACH: libc::c_int = 34;

/// How often the verifier may be interrupted.
const MAX_INTERRUPTIONS: u32 = 20;

/// Bytes for the verifier's explanation of a refusal.
const LOG_BYTES: usize = 1 << 20;

fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: `attr` is a plain struct with the layout of the command's variant of the union, and lives during the call. Its
    // pointers are to memory of the caller that lives as long.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            std::mem::size_of::<T>() as libc::c_uint,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn bpf_fd<T>(command: libc::c_int, attr: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attr)?;
    // SAFETY: the command returns a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Loads a program. The verifier gives up (`EAGAIN`) when something interrupts the thread, and takes long on a busy machine; it is asked again then, as
/// libbpf does it.
fn load(attr: &mut LoadAttr) -> io::Result<OwnedFd> {
    let mut tries = 0;
    loop {
        match bpf_fd(PROG_LOAD, attr) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries < MAX_INTERRUPTIONS => {
                tries += 1
            }
            loaded => return loaded,
        }
    }
}

fn address<T>(of: &[T]) -> u64 {
    of.as_ptr() as u64
}

/// The kernel's limit is 15 characters and a zero.
fn short_name(name: &str) -> [u8; 16] {
    let mut short = [0; 16];
    for (to, from) in short[..15].iter_mut().zip(name.bytes()) {
        *to = if from.is_ascii_alphanumeric() || from == b'.' { from } else { b'_' };
    }
    short
}

/// A map's kind and sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MapShape {
    pub(crate) kind: u32,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) entries: u32,
    pub(crate) flags: u32,
}

/// Creates a map.
pub(crate) fn create_map(name: &str, shape: MapShape) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        shape: [u32; 5],
        inner_map_fd: u32,
        numa_node: u32,
        name: [u8; 16],
        rest: u32,
    }
    let MapShape { kind, key_bytes, value_bytes, entries, flags } = shape;
    let shape = [kind, key_bytes, value_bytes, entries, flags];
    bpf_fd(MAP_CREATE, &mut Attr { shape, inner_map_fd: 0, numa_node: 0, name: short_name(name), rest: 0 })
}

/// The kind and sizes of a map.
pub(crate) fn map_shape(map: BorrowedFd<'_>) -> io::Result<MapShape> {
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        kind: u32,
        id: u32,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
        flags: u32,
    }
    let mut info = Info::default();
    object_info(map, &mut info)?;
    let Info { kind, key_bytes, value_bytes, entries, flags, .. } = info;
    Ok(MapShape { kind, key_bytes, value_bytes, entries, flags })
}

/// The index of the interface that a link of XDP or tcx is attached to: 0 once the interface is gone. None for other links.
pub(crate) fn link_interface(link: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    const XDP: u32 = 6;
    const TCX: u32 = 11;
    let mut info = [0_u32; 8];
    object_info(link, &mut info)?;
    // Kind, id, program, padding to a multiple of 8 bytes, and the interface.
    Ok(matches!(info[0], XDP | TCX).then_some(info[4]))
}

fn object_info<T>(object: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        fd: u32,
        bytes: u32,
        info: u64,
    }
    let bytes = std::mem::size_of::<T>() as u32;
    let mut attr = Attr { fd: object.as_raw_fd() as u32, bytes, info: std::ptr::from_mut(info) as u64 };
    bpf(OBJ_GET_INFO, &mut attr).map(drop)
}

/// Sets a map's value.
pub(crate) fn update_map(map: BorrowedFd<'_>, key: u32, value: &[u8]) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        map: u32,
        pad: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let key = [key];
    let map = map.as_raw_fd() as u32;
    bpf(MAP_UPDATE, &mut Attr { map, pad: 0, key: address(&key), value: address(value), flags: 0 }).map(drop)
}

/// Makes a map constant for user space, so that the verifier knows its values.
pub(crate) fn freeze_map(map: BorrowedFd<'_>) -> io::Result<()> {
    bpf(MAP_FREEZE, &mut [map.as_raw_fd() as u32]).map(drop)
}

/// Loads type information.
pub(crate) fn load_btf(btf: &[u8]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        btf: u64,
        log: u64,
        bytes: u32,
        log_bytes: u32,
        log_level: u32,
        pad: u32,
    }
    let bytes = btf.len() as u32;
    bpf_fd(BTF_LOAD, &mut Attr { btf: address(btf), log: 0, bytes, log_bytes: 0, log_level: 0, pad: 0 })
}

/// The parts from which a program is loaded.
pub(crate) struct ProgramSource<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: u32,
    pub(crate) attach_type: u32,
    pub(crate) license: &'a CStr,
    /// Instructions, 8 bytes each.
    pub(crate) code: &'a [aya_obj::generated::bpf_insn],
    pub(crate) btf: BorrowedFd<'a>,
    /// Records and the size of one.
    pub(crate) functions: (&'a [u8], usize),
    pub(crate) lines: (&'a [u8], usize),
}

#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
    btf: u32,
    function_bytes: u32,
    functions: u64,
    function_count: u32,
    line_bytes: u32,
    lines: u64,
    line_count: u32,
    pad: u32,
}

/// Loads a program. The second part of an error is the verifier's explanation.
pub(crate) fn load_program(source: &ProgramSource<'_>) -> Result<OwnedFd, (io::Error, String)> {
    let count = |(records, bytes): (&[u8], usize)| records.len().checked_div(bytes).unwrap_or(0) as u32;
    let mut attr = LoadAttr {
        kind: source.kind,
        instructions: source.code.len() as u32,
        code: address(source.code),
        license: source.license.as_ptr() as u64,
        name: short_name(source.name),
        attach_type: source.attach_type,
        btf: source.btf.as_raw_fd() as u32,
        function_bytes: source.functions.1 as u32,
        functions: address(source.functions.0),
        function_count: count(source.functions),
        line_bytes: source.lines.1 as u32,
        lines: address(source.lines.0),
        line_count: count(source.lines),
        ..LoadAttr::default()
    };
    let error = match load(&mut attr) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    // Again, with the reason.
    let mut log = vec![0_u8; LOG_BYTES];
    (attr.log_level, attr.log_bytes, attr.log) = (1, LOG_BYTES as u32, log.as_mut_ptr() as u64);
    load(&mut attr).map_err(|_| {
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
        (error, String::from_utf8_lossy(&log[..end]).into_owned())
    })
}

/// Where a program is attached.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// An interface's index, an attach type and flags.
    Interface { index: u32, attach_type: u32, flags: u32 },
    /// A hook of Netfilter for IPv4.
    Netfilter { attach_type: u32, hook: u32, priority: i32 },
}

/// Attaches a program, until the link's last descriptor and pin are gone.
pub(crate) fn create_link(program: BorrowedFd<'_>, target: Target) -> io::Result<OwnedFd> {
    const IPV4: u32 = 2;
    // Program, target, attach type, flags, then a union.
    let mut attr = [0_u32; 8];
    attr[0] = program.as_raw_fd() as u32;
    match target {
        Target::Interface { index, attach_type, flags } => {
            (attr[1], attr[2], attr[3]) = (index, attach_type, flags);
        }
        Target::Netfilter { attach_type, hook, priority } => {
            (attr[2], attr[4], attr[5], attr[6]) = (attach_type, IPV4, hook, priority as u32);
        }
    }
    bpf_fd(LINK_CREATE, &mut attr)
}

/// Replaces a link's program in one step.
pub(crate) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    bpf(LINK_UPDATE, &mut [link.as_raw_fd() as u32, program.as_raw_fd() as u32, 0, 0]).map(drop)
}

/// Detaches a link at once, even if others hold it.
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    bpf(LINK_DETACH, &mut [link.as_raw_fd() as u32]).map(drop)
}

#[repr(C)]
struct PathAttr {
    path: u64,
    fd: u32,
    flags: u32,
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Gives an object a name in a bpf file system, which keeps it.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    let fd = object.as_raw_fd() as u32;
    bpf(OBJ_PIN, &mut PathAttr { path: path.as_ptr() as u64, fd, flags: 0 }).map(drop)
}

/// The object with a name in a bpf file system.
pub(crate) fn get_pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    bpf_fd(OBJ_GET, &mut PathAttr { path: path.as_ptr() as u64, fd: 0, flags: 0 })
}

/// The result of a test run on a packet.
pub(crate) struct TestRun {
    pub(crate) result: u32,
    pub(crate) bytes: usize,
    pub(crate) nanos: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestRunAttr {
    program: u32,
    result: u32,
    bytes_in: u32,
    bytes_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    nanos: u32,
    context_bytes: u32,
    context_room: u32,
    context: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    pad: u32,
}

/// Runs a program on a packet, `repeat` times, and writes the packet as the program left it to `out`.
pub(crate) fn test_run(
    program: BorrowedFd<'_>,
    packet: &[u8],
    out: &mut [u8],
    repeat: u32,
) -> io::Result<TestRun> {
    let mut attr = TestRunAttr {
        program: program.as_raw_fd() as u32,
        bytes_in: packet.len() as u32,
        bytes_out: out.len() as u32,
        data_in: address(packet),
        data_out: out.as_mut_ptr() as u64,
        repeat,
        ..TestRunAttr::default()
    };
    bpf(PROG_TEST_RUN, &mut attr)?;
    Ok(TestRun { result: attr.result, bytes: attr.bytes_out as usize, nanos: attr.nanos })
}

/// Loads a program of a few instructions that needs no maps and no types.
pub(crate) fn load_small(kind: u32, code: &[[u8; 8]]) -> io::Result<OwnedFd> {
    let mut attr = LoadAttr {
        kind,
        instructions: code.len() as u32,
        code: address(code),
        license: c"Apache-2.0".as_ptr() as u64,
        ..LoadAttr::default()
    };
    load(&mut attr)
}

/// Runs an XDP program on `count` copies of a frame, each in memory of its own, as if they had arrived at an interface, and follows
/// the program's verdict on each.
pub(crate) fn run_live(program: BorrowedFd<'_>, interface: u32, frame: &[u8], count: u32) -> io::Result<()> {
    const LIVE_FRAMES: u32 = 1 << 1;
    const BATCH: u32 = 64;
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let context = [0, frame.len() as u32, 0, interface, 0, 0];
    let mut attr = TestRunAttr {
        program: program.as_raw_fd() as u32,
        bytes_in: frame.len() as u32,
        data_in: address(frame),
        repeat: count,
        context_bytes: size_of_val(&context) as u32,
        context: address(&context),
        flags: LIVE_FRAMES,
        batch: BATCH,
        ..TestRunAttr::default()
    };
    bpf(PROG_TEST_RUN, &mut attr).map(drop)
}

/// Mounts a bpf file system on a folder.
pub(crate) fn mount_bpffs(folder: &Path) -> io::Result<()> {
    let path = c_path(folder)?;
    // SAFETY: all strings end with a zero and live during the call.
    let result = unsafe {
        libc::mount(c"bpf".as_ptr(), path.as_ptr(), c"bpf".as_ptr(), libc::MS_NOSUID, std::ptr::null())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether a folder lies in a bpf file system.
pub(crate) fn is_bpffs(folder: &Path) -> io::Result<bool> {
    const BPF_FS_MAGIC: libc::c_long = 0xcafe_4a11;
    let path = c_path(folder)?;
    let mut about = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `path` ends with a zero, and `about` has room for the result.
    if unsafe { libc::statfs(path.as_ptr(), about.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed before, and the call succeeded.
    Ok(unsafe { about.assume_init() }.f_type as libc::c_long == BPF_FS_MAGIC)
}

/// The index of an interface in this thread's network namespace.
pub(crate) fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: the name ends with a zero.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// How many CPUs the machine can have: as many as maps have values for each CPU.
pub(crate) fn possible_cpus() -> io::Result<u32> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = list.trim().rsplit([',', '-']).next().and_then(|cpu| cpu.parse::<u32>().ok());
    last.map(|cpu| cpu + 1).ok_or_else(|| io::Error::other(format!("cannot read the list of CPUs {list:?}")))
}

/// Bytes of memory that are available without swapping.
pub(crate) fn available_memory() -> io::Result<u64> {
    let about = std::fs::read_to_string("/proc/meminfo")?;
    let kib = about.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = kib.and_then(|kib| kib.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| io::Error::other("/proc/meminfo does not say how much is available"))
}

/// The size of a page.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: no memory is involved.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Memory of a map, in this process.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is only an address range, which is valid in all threads until it is dropped. Its bytes are read and
// written through atomics and volatile copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of a descriptor.
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        offset: usize,
        bytes: usize,
        writable: bool,
    ) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        Mapping::map(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, Some(fd), offset)
    }

    /// Maps the same `bytes` of a descriptor twice, back to back.
    pub(crate) fn twice(fd: BorrowedFd<'_>, offset: usize, bytes: usize) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let whole = Mapping::map(std::ptr::null_mut(), 2 * bytes, libc::PROT_NONE, flags, None, 0)?;
        for half in 0..2 {
            // SAFETY: inside the reservation.
            let at = unsafe { whole.at.as_ptr().add(half * bytes) };
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let part = Mapping::map(at, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, Some(fd), offset)?;
            // The reservation owns the range.
            let _ = std::mem::ManuallyDrop::new(part);
        }
        Ok(whole)
    }

    fn map(
        at: *mut u8,
        bytes: usize,
        protection: libc::c_int,
        flags: libc::c_int,
        fd: Option<BorrowedFd<'_>>,
        offset: usize,
    ) -> io::Result<Mapping> {
        let fd = fd.map_or(-1, |fd| fd.as_raw_fd());
        // SAFETY: without MAP_FIXED the kernel picks a free range; with MAP_FIXED the range is a reservation of this module.
        let mapped = unsafe { libc::mmap(at.cast(), bytes, protection, flags, fd, offset as libc::off_t) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(mapped.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Mapping { at, bytes })
    }

    /// The address of a byte, of which `bytes` more are in the mapping.
    pub(crate) fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "inside of the mapping");
        // SAFETY: checked above.
        unsafe { self.at.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own, and nobody refers to it any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
