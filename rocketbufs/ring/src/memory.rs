//! The bytes of rings: memfd reservations, the double mapping, and copies in and out of memory that others may write.
//!
//! ```text
//!   reservation (sparse memfd)   ···│ free │■■ ring A ■■│ free │■■■■ ring B ■■■■│ free ···
//!                                          ╱            ╲
//!   address space                 │■■ ring A ■■│■■ ring A ■■│     two mappings of the same pages
//! ```
//!
//! The address space for both mappings is reserved first (without access), so that mapping over it cannot hit
//! anything else. A page costs memory from its first use until the ring is dropped, when it is punched out.

#[cfg(not(loom))]
pub(crate) use mapped::{Access, Mapping, Reservation, Words, page_bytes};
#[cfg(loom)]
pub(crate) use modelled::{Access, Mapping, Reservation, page_bytes};

#[cfg(not(loom))]
mod mapped {
    use std::ffi::c_void;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::ptr;

    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
    use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

    use crate::sync::AtomicU64;

    /// The purpose of a mapping.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Access {
        /// This process writes. The bytes of rings without flow control may be read at the same time.
        Write,
        /// Another process writes: a store here would end this process.
        Read,
    }

    impl Access {
        fn protection(self) -> ProtFlags {
            match self {
                Access::Write => ProtFlags::READ | ProtFlags::WRITE,
                Access::Read => ProtFlags::READ,
            }
        }
    }

    /// The unit of reservations and mappings.
    pub(crate) fn page_bytes() -> u64 {
        rustix::param::page_size() as u64
    }

    /// A sparse memfd, from which rings are cut.
    #[derive(Debug)]
    pub(crate) struct Reservation {
        memfd: OwnedFd,
    }

    impl Reservation {
        pub(crate) fn new(bytes: u64) -> io::Result<Reservation> {
            Self::with_flags(bytes, MemfdFlags::CLOEXEC)
        }

        /// A reservation that can be sealed.
        pub(crate) fn sealable(bytes: u64) -> io::Result<Reservation> {
            Self::with_flags(bytes, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        }

        fn with_flags(bytes: u64, flags: MemfdFlags) -> io::Result<Reservation> {
            let memfd = memfd_create("rocketring", flags)?;
            ftruncate(&memfd, bytes)?;
            Ok(Reservation { memfd })
        }

        /// A file of another process, which was checked.
        pub(crate) fn of(memfd: OwnedFd) -> Reservation {
            Reservation { memfd }
        }

        pub(crate) fn fd(&self) -> &OwnedFd {
            &self.memfd
        }

        /// Returns the pages of `[offset, offset + bytes)` to the system. They read as zeros from now on.
        pub(crate) fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
            Ok(fallocate(&self.memfd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes)?)
        }
    }

    /// A ring's bytes, mapped twice back to back.
    #[derive(Debug)]
    pub(crate) struct Mapping {
        base: *mut u8,
        /// A power of two; [`NOTHING`] if nothing is mapped.
        bytes: usize,
    }

    /// Makes every offset 0, and is no size of a mapping.
    const NOTHING: usize = 1;

    // SAFETY: the mapping belongs to no thread. The methods' callers ensure exclusive access to bytes.
    unsafe impl Send for Mapping {}
    // SAFETY: as above; `&Mapping` returns raw pointers and volatile copies only.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        /// Maps `[offset, offset + bytes)` of the reservation twice; both are multiples of the page size.
        /// `_tracked` is for models.
        pub(crate) fn new(
            from: &Reservation,
            offset: u64,
            bytes: u64,
            access: Access,
            _tracked: bool,
        ) -> io::Result<Mapping> {
            let bytes = usize::try_from(bytes).ok().filter(|b| *b <= isize::MAX as usize / 2);
            let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
            // SAFETY: a new anonymous mapping at an address of the system's choice overlaps nothing.
            let base = unsafe {
                mmap_anonymous(
                    ptr::null_mut(),
                    2 * bytes,
                    ProtFlags::empty(),
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )
            }?
            .cast::<u8>();
            let mapping = Mapping { base, bytes };
            for half in 0..2 {
                // SAFETY: both halves lie in the address space reserved above, to which there is no pointer yet.
                unsafe {
                    mmap(
                        base.add(half * bytes).cast::<c_void>(),
                        bytes,
                        access.protection(),
                        MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
                        &from.memfd,
                        offset,
                    )
                }?;
            }
            Ok(mapping)
        }

        /// No memory, for a ring without capacity.
        pub(crate) fn nothing() -> Mapping {
            Mapping { base: ptr::dangling_mut(), bytes: NOTHING }
        }

        /// The address of the byte at `position`. The `bytes` bytes from there on are mapped.
        #[inline]
        pub(crate) fn at(&self, position: u64) -> *mut u8 {
            let offset = position as usize & (self.bytes - 1);
            // SAFETY: the offset is below `bytes`, and 2 × `bytes` are mapped; without a mapping the offset is 0.
            unsafe { self.base.add(offset) }
        }

        /// Returns the pages of `[position, position + bytes)`, which lie at `offset` of the reservation, to the system.
        /// Both and the length are multiples of the page size, and the range does not cross the ring's end.
        ///
        /// Safe, as a returned page reads as zeros through both mappings. The caller ensures that the bytes are unused,
        /// as for [`Mapping::write`].
        pub(crate) fn release_pages(
            &self,
            of: &Reservation,
            offset: u64,
            _at: u64,
            bytes: u64,
        ) -> io::Result<()> {
            of.punch(offset, bytes)
        }

        /// Copies `from` to `position`.
        ///
        /// # Safety
        /// `from` is at most a ring long, and the caller alone may write the bytes. Others may read them by
        /// [`Mapping::read`] at the same time only if they discard the result (see `View::copy_to`).
        #[inline]
        pub(crate) unsafe fn write(&self, position: u64, from: &[u8]) {
            debug_assert!(from.len() <= self.bytes);
            let to = self.at(position);
            // SAFETY: in bounds by `at`; a caller's slice cannot overlap bytes that the caller alone may write.
            unsafe {
                match from.first_chunk() {
                    // A length field: a call would take longer.
                    Some(bytes) if from.len() == LENGTH => to.cast::<[u8; LENGTH]>().write_unaligned(*bytes),
                    _ => ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()),
                }
            }
        }

        /// Prefetches the lines behind `position`, which will be written soon. Changes nothing.
        #[inline]
        pub(crate) fn prepare(&self, position: u64, len: usize) {
            let ahead = self.at(position.wrapping_add(AHEAD)).cast_const();
            for line in (0..len.min(MOST_PREPARED)).step_by(LINE) {
                fetch_to_write(ahead.wrapping_add(line));
            }
        }

        /// Copies from `position` into `to`. Another thread or process may write the bytes at the same time.
        pub(crate) fn read(&self, position: u64, to: &mut [u8]) {
            assert!(to.len() <= self.bytes, "a range longer than its ring");
            let from = self.at(position).cast_const();
            // SAFETY: by the assertion that many bytes are mapped from there.
            unsafe { read_racing(from, to) };
        }

        /// Continues the CRC-32C `before` with `len` bytes from `position` on. Another thread or process may write the bytes at the
        /// same time; the result is any number then.
        pub(crate) fn checksum(&self, before: u32, position: u64, len: usize) -> u32 {
            assert!(len <= self.bytes, "a range longer than its ring");
            // SAFETY: by the assertion that many bytes are mapped from there. The checksum loads each of them once, and concludes
            // nothing from its value but the result.
            let bytes = unsafe { std::slice::from_raw_parts(self.at(position).cast_const(), len) };
            crc32c::crc32c_append(before, bytes)
        }
    }

    /// Bytes of the length that many deliveries begin with.
    const LENGTH: usize = 4;

    /// The distance of prefetched lines from the written bytes, and the most bytes prefetched for one delivery. For large
    /// deliveries the processor predicts the next lines by itself.
    const AHEAD: u64 = 512;
    const MOST_PREPARED: usize = 512;
    const LINE: usize = 64;

    /// A hint that the line at `at`, mapped or not, will be written.
    #[inline]
    fn fetch_to_write(at: *const u8) {
        // SAFETY: prefetching changes no memory and never faults. Processors without the instruction ignore it.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        }
    }

    /// From this length on one string move is faster than single loads.
    #[cfg(target_arch = "x86_64")]
    const STRING_BYTES: usize = 256;

    /// Loads that are opaque to the compiler, so that it concludes nothing from the values: a string move, two to three
    /// times as fast as a loop of volatile loads; on other processors that loop.
    ///
    /// # Safety
    /// `to.len()` bytes are mapped at `from`, and are no part of `to`.
    unsafe fn read_racing(from: *const u8, to: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if to.len() >= STRING_BYTES {
            // SAFETY: reads and writes `to.len()` bytes, which exist at both places by the caller's promise. The direction
            // flag is clear, as Rust's ABI requires. No other memory is touched.
            unsafe {
                std::arch::asm!(
                    "rep movsb",
                    inout("rcx") to.len() => _,
                    inout("rsi") from => _,
                    inout("rdi") to.as_mut_ptr() => _,
                    options(nostack, preserves_flags)
                );
            }
            return;
        }
        let Some(last) = to.len().checked_sub(WORD) else {
            for (i, byte) in to.iter_mut().enumerate() {
                // SAFETY: by the caller's promise.
                *byte = unsafe { from.add(i).read_volatile() };
            }
            return;
        };
        let mut groups = to.chunks_exact_mut(4 * WORD);
        let mut at = from;
        for group in &mut groups {
            // Four at a time, so that the loop costs less than the loads.
            // SAFETY: by the caller's promise; 32 bytes of `to` are left.
            let words = unsafe { [0, 1, 2, 3].map(|n| read_word(at.add(n * WORD))) };
            for (bytes, word) in group.chunks_exact_mut(WORD).zip(words) {
                bytes.copy_from_slice(&word);
            }
            // SAFETY: one past the 32 bytes just read, at most the end of what is mapped.
            at = unsafe { at.add(4 * WORD) };
        }
        for bytes in groups.into_remainder().chunks_exact_mut(WORD) {
            // SAFETY: by the caller's promise; 8 bytes of `to` are left.
            unsafe {
                bytes.copy_from_slice(&read_word(at));
                at = at.add(WORD);
            }
        }
        // The last word overlaps bytes that were copied already: single bytes cost as much each, and a later load of them as a
        // word would wait for all stores.
        // SAFETY: the last 8 bytes of as many as the caller promised.
        to[last..].copy_from_slice(&unsafe { read_word(from.add(last)) });
    }

    const WORD: usize = size_of::<u64>();

    /// # Safety
    /// 8 bytes are mapped at `from`.
    #[inline]
    unsafe fn read_word(from: *const u8) -> [u8; WORD] {
        #[repr(C, packed)]
        struct Unaligned(u64);
        // SAFETY: by the caller's promise; it needs no alignment.
        let Unaligned(word) = unsafe { from.cast::<Unaligned>().read_volatile() };
        word.to_ne_bytes()
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            if self.bytes == NOTHING {
                return;
            }
            // SAFETY: the address space was reserved by `new`, and there are no pointers into it any more: all are
            // borrowed from, or promised not to outlive, the ring that owns this mapping.
            let unmapped = unsafe { munmap(self.base.cast::<c_void>(), 2 * self.bytes) };
            debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
        }
    }

    /// Words that several processes map and one of them writes: the pages in which processes publish positions.
    #[derive(Debug)]
    pub(crate) struct Words {
        base: *mut AtomicU64,
        count: usize,
    }

    // SAFETY: only references to atomics are returned.
    unsafe impl Send for Words {}
    // SAFETY: as above.
    unsafe impl Sync for Words {}

    impl Words {
        /// Maps the first `bytes` of the file, a multiple of the page size that it must have.
        pub(crate) fn new(of: &Reservation, bytes: u64, access: Access) -> io::Result<Words> {
            let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
            // SAFETY: a new mapping at an address of the system's choice overlaps nothing.
            let base =
                unsafe { mmap(ptr::null_mut(), bytes, access.protection(), MapFlags::SHARED, &of.memfd, 0) }?;
            Ok(Words { base: base.cast::<AtomicU64>(), count: bytes / size_of::<AtomicU64>() })
        }

        /// The word with this number. Of words mapped for [`Access::Read`] only loads may be made.
        #[inline]
        pub(crate) fn word(&self, n: usize) -> &AtomicU64 {
            assert!(n < self.count, "no such word");
            // SAFETY: in bounds, aligned, mapped for as long as `self` lives, and accessed as atomics everywhere.
            unsafe { &*self.base.add(n) }
        }

        /// `N` words from this number on.
        #[inline]
        pub(crate) fn words<const N: usize>(&self, from: usize) -> &[AtomicU64; N] {
            assert!(from < self.count && N <= self.count - from, "no such words");
            // SAFETY: as for one word; an array of atomics has no padding.
            unsafe { &*self.base.add(from).cast::<[AtomicU64; N]>() }
        }
    }

    impl Drop for Words {
        fn drop(&mut self) {
            // SAFETY: our own mapping; references to words borrow from `self`.
            let unmapped = unsafe { munmap(self.base.cast::<c_void>(), self.count * size_of::<AtomicU64>()) };
            debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
        }
    }
}

/// A model of the memory for loom: one cell per byte. A tracked (flow-controlled) ring's cells report every unsynchronised
/// access; an overwritable ring's are relaxed atomics, because there the race is part of the algorithm.
#[cfg(loom)]
mod modelled {
    use std::io;

    use loom::cell::UnsafeCell;

    use crate::sync::{AtomicU8, Ordering};

    pub(crate) fn page_bytes() -> u64 {
        1
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Access {
        Write,
    }

    #[derive(Debug)]
    pub(crate) struct Reservation;

    impl Reservation {
        pub(crate) fn new(_bytes: u64) -> io::Result<Reservation> {
            Ok(Reservation)
        }

        pub(crate) fn punch(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[derive(Debug)]
    enum Cells {
        Tracked(Box<[UnsafeCell<u8>]>),
        Racing(Box<[AtomicU8]>),
    }

    #[derive(Debug)]
    pub(crate) struct Mapping {
        cells: Cells,
        mask: u64,
        /// The target of `at`: loom cannot track pointers, so models use `write` and `read`.
        opaque: Box<[std::cell::UnsafeCell<u8>]>,
    }

    // SAFETY: the cells are checked by loom; `opaque` is only ever a source of raw pointers.
    unsafe impl Send for Mapping {}
    // SAFETY: as above.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        pub(crate) fn new(
            _: &Reservation,
            _offset: u64,
            bytes: u64,
            _: Access,
            tracked: bool,
        ) -> io::Result<Mapping> {
            let cells = if tracked {
                Cells::Tracked((0..bytes).map(|_| UnsafeCell::new(0)).collect())
            } else {
                Cells::Racing((0..bytes).map(|_| AtomicU8::new(0)).collect())
            };
            let opaque = (0..2 * bytes).map(|_| std::cell::UnsafeCell::new(0)).collect();
            Ok(Mapping { cells, mask: bytes - 1, opaque })
        }

        pub(crate) fn nothing() -> Mapping {
            let (cells, opaque) =
                (Cells::Tracked(Box::default()), vec![std::cell::UnsafeCell::new(0)].into());
            Mapping { cells, mask: 0, opaque }
        }

        pub(crate) fn at(&self, position: u64) -> *mut u8 {
            self.opaque[(position & self.mask) as usize].get()
        }

        /// As the real one: the bytes become zeros, which loom tracks as a write.
        pub(crate) fn release_pages(
            &self,
            _: &Reservation,
            _offset: u64,
            at: u64,
            bytes: u64,
        ) -> io::Result<()> {
            for at in at..at + bytes {
                // SAFETY: loom reports a second access.
                unsafe { self.write(at, &[0]) };
            }
            Ok(())
        }

        /// # Safety
        /// As for the real one; loom checks it.
        pub(crate) unsafe fn write(&self, position: u64, from: &[u8]) {
            for (at, byte) in (position..).zip(from) {
                let at = (at & self.mask) as usize;
                match &self.cells {
                    // SAFETY: loom reports a second access.
                    Cells::Tracked(cells) => cells[at].with_mut(|cell| unsafe { *cell = *byte }),
                    Cells::Racing(cells) => cells[at].store(*byte, Ordering::Relaxed),
                }
            }
        }

        pub(crate) fn read(&self, position: u64, to: &mut [u8]) {
            for (at, byte) in (position..).zip(to) {
                let at = (at & self.mask) as usize;
                *byte = match &self.cells {
                    // SAFETY: loom reports a concurrent write.
                    Cells::Tracked(cells) => cells[at].with(|cell| unsafe { *cell }),
                    Cells::Racing(cells) => cells[at].load(Ordering::Relaxed),
                };
            }
        }

        pub(crate) fn checksum(&self, before: u32, position: u64, len: usize) -> u32 {
            let mut bytes = vec![0; len];
            self.read(position, &mut bytes);
            crc32c::crc32c_append(before, &bytes)
        }
    }
}
