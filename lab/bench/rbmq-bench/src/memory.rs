//! The memory of a process with rings.

use std::{fs, os::unix::fs::MetadataExt};

use benchkit::sys;

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    /// As the system counts it: a page that is mapped twice counts twice.
    pub rss: u64,
    /// The backed bytes of the rings, mapped at this moment or not.
    pub rings: u64,
}

impl Memory {
    /// Of this process, now.
    pub fn of(pid: u32) -> Memory {
        Memory { rss: sys::process_rss_bytes(pid), rings: ring_bytes_of(pid) }
    }

    /// The memory that the process uses: its pages, and pages of its rings that are not mapped right now.
    fn cost(self) -> u64 {
        self.rss.max(self.rings)
    }

    /// The larger of two measurements.
    #[must_use]
    pub fn most(self, other: Memory) -> Memory {
        if other.cost() > self.cost() { other } else { self }
    }
}

fn ring_bytes_of(pid: u32) -> u64 {
    let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let rings = fds.flatten().map(|fd| fd.path()).filter(|path| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("memfd:rocketring"))
    });
    rings.filter_map(|path| fs::metadata(path).ok()).map(|file| file.blocks() * 512).sum()
}
