//! The maps that all programs and user space share, new or kept from before.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use aya_obj::generated::bpf_map_type::{BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_PERCPU_ARRAY, BPF_MAP_TYPE_RINGBUF};
use locks::FileLock;

use crate::config::Config;
use crate::error::KernelError;
use crate::layout::{CpuState, MAX_CPUS, MAX_MESSAGE_BYTES, PORTS, SLACK_BYTES, TopicNotes, TopicState};
use crate::sys::{self, MapShape};

/// Bytes of the ring buffer for wake-ups, of which at most one for each topic is under way.
pub(crate) const WAKE_BYTES: usize = 1 << 17;

const MMAPABLE: u32 = 1 << 10;

/// `struct scratch`.
const SCRATCH_BYTES: u32 = (16 + 2 * (MAX_MESSAGE_BYTES + 1)) as u32;

/// The version of the structs in kept maps. A program of another version cannot use them.
const LAYOUT: &str = "-1";

/// The maps, by their names in multimqc/bpf/ring.h.
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) fds: HashMap<&'static str, OwnedFd>,
    /// Bytes from the beginning of a topic's ring to that of the next.
    pub(crate) ring_stride: usize,
    /// Writers of a topic: each CPU, and user space.
    pub(crate) writers: u32,
    pub(crate) kept: Option<Kept>,
}

/// A folder that keeps objects in the kernel when the process ends. Locked while it is used.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) folder: PathBuf,
    _lock: FileLock,
}

impl Kept {
    /// Creates the folder and locks it.
    pub(crate) fn open(folder: &Path) -> Result<Kept, KernelError> {
        mount_if_missing(folder)?;
        std::fs::create_dir_all(folder).map_err(KernelError::call("create the folder that keeps rings"))?;
        if !sys::is_bpffs(folder).map_err(KernelError::call("look at the folder that keeps rings"))? {
            return Err(KernelError::Object(format!("{} lies in no bpf file system", folder.display())));
        }
        let lock = File::open(folder).map_err(KernelError::call("open the folder that keeps rings"))?;
        let lock =
            FileLock::try_exclusive(lock).map_err(KernelError::call("lock the folder that keeps rings"))?;
        let lock = lock.ok_or_else(|| KernelError::InUse(folder.to_owned()))?;
        Ok(Kept { folder: folder.to_owned(), _lock: lock })
    }

    /// The object with a name, if it is kept.
    pub(crate) fn get(&self, name: &str) -> Result<Option<OwnedFd>, KernelError> {
        match sys::get_pinned(&self.folder.join(name)) {
            Ok(fd) => Ok(Some(fd)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(KernelError::Call { what: "open a kept object", error }),
        }
    }

    /// Keeps an object under a name, instead of the former object.
    pub(crate) fn put(&self, name: &str, object: BorrowedFd<'_>) -> Result<(), KernelError> {
        let path = self.folder.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(KernelError::Call { what: "replace a kept object", error })
            }
            _ => sys::pin(object, &path).map_err(KernelError::call("keep an object")),
        }
    }

    /// The names of the kept objects.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.folder)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }
}

/// Mounts /sys/fs/bpf if the folder lies there and nothing is mounted, as libbpf's tools do.
fn mount_if_missing(folder: &Path) -> Result<(), KernelError> {
    let usual = Path::new("/sys/fs/bpf");
    if !folder.starts_with(usual) || sys::is_bpffs(usual).map_err(KernelError::call("find /sys/fs/bpf"))? {
        return Ok(());
    }
    sys::mount_bpffs(usual).map_err(KernelError::call("mount /sys/fs/bpf"))
}

fn array(value_bytes: usize, entries: u32, flags: u32) -> MapShape {
    let value_bytes = value_bytes as u32;
    MapShape { kind: BPF_MAP_TYPE_ARRAY as u32, key_bytes: 4, value_bytes, entries, flags }
}

impl Maps {
    /// Creates the maps, or opens those that are kept.
    pub(crate) fn open(config: &Config) -> Result<Maps, KernelError> {
        let cpus = sys::possible_cpus().map_err(KernelError::call("count the CPUs"))?;
        if cpus >= MAX_CPUS {
            return Err(KernelError::Object(format!(
                "this machine has {cpus} CPUs, and programs count {MAX_CPUS}"
            )));
        }
        let writers = cpus + 1;
        let ring_stride = config.ring_bytes as usize + SLACK_BYTES.next_multiple_of(sys::page_bytes());
        let kept = config.keep.as_deref().map(Kept::open).transpose()?;
        if let Some(kept) = &kept {
            refuse_other_layouts(kept)?;
        }
        let shapes = shapes(config.max_topics, writers, ring_stride);
        let mut fds = HashMap::new();
        for (name, shape) in shapes {
            fds.insert(name, open_map(name, shape, kept.as_ref())?);
        }
        let scratch =
            MapShape { kind: BPF_MAP_TYPE_PERCPU_ARRAY as u32, ..array(SCRATCH_BYTES as usize, 1, 0) };
        fds.insert(
            "scratch",
            sys::create_map("scratch", scratch).map_err(KernelError::call("create a map"))?,
        );
        Ok(Maps { fds, ring_stride, writers, kept })
    }

    pub(crate) fn fd(&self, name: &str) -> BorrowedFd<'_> {
        self.fds[name].as_fd()
    }
}

/// The maps that are kept.
fn shapes(topics: u32, writers: u32, ring_stride: usize) -> [(&'static str, MapShape); 7] {
    [
        ("topics", array(size_of::<TopicState>(), topics, MMAPABLE)),
        ("notes", array(size_of::<TopicNotes>(), topics, MMAPABLE)),
        ("cpus", array(size_of::<CpuState>(), topics * writers, MMAPABLE)),
        ("rings", array(ring_stride, topics, MMAPABLE)),
        ("ports", array(4, PORTS, MMAPABLE)),
        ("ids", array(4, PORTS, MMAPABLE)),
        (
            "wakes",
            MapShape {
                kind: BPF_MAP_TYPE_RINGBUF as u32,
                key_bytes: 0,
                value_bytes: 0,
                entries: WAKE_BYTES as u32,
                flags: 0,
            },
        ),
    ]
}

fn open_map(name: &'static str, shape: MapShape, kept: Option<&Kept>) -> Result<OwnedFd, KernelError> {
    let pin = format!("{name}{LAYOUT}");
    if let Some(kept) = kept
        && let Some(fd) = kept.get(&pin)?
    {
        let found = sys::map_shape(fd.as_fd()).map_err(KernelError::call("look at a kept map"))?;
        if (found.value_bytes, found.entries) != (shape.value_bytes, shape.entries) {
            let difference = format!(
                "{name}: {} x {} bytes kept, {} x {} bytes wanted",
                found.entries, found.value_bytes, shape.entries, shape.value_bytes
            );
            return Err(KernelError::OtherSizes { path: kept.folder.clone(), difference });
        }
        return Ok(fd);
    }
    if name == "rings" {
        check_memory(&shape)?;
    }
    let fd = sys::create_map(name, shape).map_err(KernelError::call("create a map"))?;
    if let Some(kept) = kept {
        kept.put(&pin, fd.as_fd())?;
    }
    Ok(fd)
}

/// Refuses rings for which there is no memory: the kernel allocates all of it at once, even at the expense of other programs.
fn check_memory(rings: &MapShape) -> Result<(), KernelError> {
    let needed = u64::from(rings.value_bytes) * u64::from(rings.entries);
    let available = sys::available_memory().map_err(KernelError::call("see how much memory is free"))?;
    if needed <= available {
        return Ok(());
    }
    Err(KernelError::NoMemory { topics: rings.entries, needed, available })
}

fn refuse_other_layouts(kept: &Kept) -> Result<(), KernelError> {
    let names = kept.names().map_err(KernelError::call("list what is kept"))?;
    match names.iter().find(|name| name.starts_with("topics-") && !name.ends_with(LAYOUT)) {
        Some(other) => Err(KernelError::OtherSizes {
            path: kept.folder.clone(),
            difference: format!("layout {other} kept, topics{LAYOUT} wanted"),
        }),
        None => Ok(()),
    }
}
