//! A file mapped for reading.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use bytes::Bytes;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

struct Map {
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: the mapping is memory that is only read, and belongs to no thread.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping is `len` readable bytes until `drop`. The file is a sealed segment, which the log never changes or
        // cuts, and its directory belongs to the log (crate documentation, "Files").
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `map`, and nothing borrows it any more.
        // An error would mean that the arguments are wrong; there is nothing to do about it.
        let _ = unsafe { munmap(self.start.as_ptr(), self.len) };
    }
}

/// Maps the first `len` bytes of a file, which must be there and must not change as long as the result lives.
pub(super) fn map(file: impl AsFd, len: usize) -> io::Result<Bytes> {
    if len == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let start = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
    let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
    Ok(Bytes::from_owner(Map { start, len }))
}
