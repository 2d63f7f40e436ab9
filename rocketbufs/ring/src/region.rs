//! A ring that other processes can map: a sealed file in memory, with a page that says how far its writer is.
//!
//! ```text
//!   the file    │ head page │ data: capacity bytes │        sealed: cannot shrink, grow, or be written through
//!               └───────────┴──────────────────────┘        any mapping made later; and these seals stay
//!   the writer  │ read and write │ data │ data again │       mapped before it was sealed
//!   a reader    │ read           │ data │ data again │       mapped after seals and size were checked
//!
//!   head page   word 0: magic  1: capacity  2: offset of the data    never change
//!               word 3: 1 if the owner writes the log in place       before the first byte; 0: the bytes come from elsewhere
//!               word 16: head  17: boundary                         the readable bytes
//!               word 18: the last small delivery  19 to 23: its bytes in the same cache line: see `small_payload`
//!               word 32: horizon                                    bytes below horizon − capacity are being overwritten
//!               word 33: where the last hole in the log ends        0 without a hole
//! ```
//!
//! Only the writer can write the head page: the seal FUTURE_WRITE refuses all others. So a reader can do no harm, and a reader
//! bounds what a hostile writer publishes by its own grant, on every read. The words are 64 bits in the machine's byte order.
//! Their groups are in different cache lines, because different threads load them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs};

use crate::Position;
use crate::error::MapError;
use crate::memory::{Access, Mapping, Reservation, Words, page_bytes};
use crate::small_payload;
use crate::sync::Ordering;

/// The first word of every shared ring.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"RKTRING1");
/// The seals that a reader requires.
pub(crate) const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);
/// The type that `fstatfs` reports for a memfd on ordinary pages. A memfd on huge pages could end the process that reads it
/// when the system has none left.
const TMPFS: u64 = 0x0102_1994;

const CAPACITY: usize = 1;
const DATA: usize = 2;
const IN_PLACE: usize = 3;
const HEAD: usize = 16;
const BOUNDARY: usize = 17;
const INLINE: usize = 18;
const HORIZON: usize = 32;
const LAST_GAP: usize = 33;

/// Whether a file lies in memory, on ordinary pages.
pub(crate) fn check_kind(file: &OwnedFd) -> Result<(), MapError> {
    // The field's type differs between machines.
    let kind = fstatfs(file).map_err(io::Error::from)?.f_type;
    if u64::try_from(kind).ok() == Some(TMPFS) { Ok(()) } else { Err(MapError::NotMemory) }
}

/// The file of a shared ring, and its head page.
#[derive(Debug)]
pub(crate) struct Region {
    file: Reservation,
    page: Words,
}

impl Region {
    /// A new file of this process, with its data mapped. No other process can write it.
    pub(crate) fn new(capacity: u64) -> io::Result<(Region, Mapping)> {
        let data = page_bytes();
        let file = Reservation::sealable(data + capacity)?;
        let page = Words::new(&file, data, Access::Write)?;
        let mapping = Mapping::new(&file, data, capacity, Access::Write, false)?;
        fcntl_add_seals(file.fd(), SEALS)?;
        for (word, value) in [(0, MAGIC), (CAPACITY, capacity), (DATA, data)] {
            page.word(word).store(value, Ordering::Relaxed);
        }
        Ok((Region { file, page }, mapping))
    }

    /// A file of another process. The file is checked before its head page is mapped, and the words of the head page
    /// before the data is. Returns the capacity with it.
    pub(crate) fn of_peer(file: OwnedFd) -> Result<(Region, u64), MapError> {
        let seals = fcntl_get_seals(&file).map_err(|_| MapError::NotMemory)?;
        if !seals.contains(SEALS) {
            return Err(MapError::NotSealed);
        }
        check_kind(&file)?;
        let size = u64::try_from(fstat(&file).map_err(io::Error::from)?.st_size).unwrap_or(0);
        let data = page_bytes();
        let capacity = size.checked_sub(data).filter(|c| c.is_power_of_two() && *c >= data);
        let capacity = capacity.ok_or(MapError::Size(size))?;
        let file = Reservation::of(file);
        let page = Words::new(&file, data, Access::Read)?;
        let words = [0, CAPACITY, DATA].map(|word| page.word(word).load(Ordering::Relaxed));
        if words != [MAGIC, capacity, data] {
            return Err(MapError::NotARing);
        }
        Ok((Region { file, page }, capacity))
    }

    /// Maps the data of another process's ring.
    pub(crate) fn map(&self, capacity: u64) -> io::Result<Mapping> {
        Mapping::new(&self.file, page_bytes(), capacity, Access::Read, false)
    }

    pub(crate) fn file(&self) -> &OwnedFd {
        self.file.fd()
    }

    #[inline]
    pub(crate) fn publish_head(&self, head: Position) {
        // Pairs with the Acquire in `ends`: the bytes below were written before.
        self.page.word(HEAD).store(head, Ordering::Release);
    }

    #[inline]
    pub(crate) fn publish_boundary(&self, boundary: Position) {
        // Pairs with the Acquire in `ends`: the head was written before.
        self.page.word(BOUNDARY).store(boundary, Ordering::Release);
    }

    /// Publishes the delivery that ends at `to`, if it is small. Before the boundary moves there.
    #[inline]
    pub(crate) fn publish_small_payload(&self, to: Position, parts: &[&[u8]]) {
        small_payload::write(self.page.words(INLINE), to, parts);
    }

    /// Copies the delivery that ends at `to` into `dst`, if the page has exactly these bytes.
    #[inline]
    pub(crate) fn read_small_payload(&self, to: Position, dst: &mut [u8]) -> bool {
        small_payload::read(self.page.words(INLINE), to, dst)
    }

    /// Publishes that the owning process writes the log in place. Before its first bytes.
    pub(crate) fn publish_in_place(&self) {
        self.page.word(IN_PLACE).store(1, Ordering::Relaxed);
    }

    /// Whether the owning process says that it writes the log in place. To be loaded after the ends, which it published later.
    pub(crate) fn is_in_place(&self) -> bool {
        self.page.word(IN_PLACE).load(Ordering::Relaxed) == 1
    }

    /// Publishes the horizon. Before bytes below `horizon − capacity` are overwritten, and followed by a Release fence.
    pub(crate) fn publish_horizon(&self, horizon: Position) {
        self.page.word(HORIZON).store(horizon, Ordering::Release);
    }

    /// Publishes a hole. Before a head beyond it.
    pub(crate) fn publish_gap(&self, to: Position) {
        self.page.word(LAST_GAP).store(to, Ordering::Release);
    }

    /// Where the last hole ends. To be loaded after the ends.
    pub(crate) fn last_gap(&self) -> Position {
        self.page.word(LAST_GAP).load(Ordering::Acquire)
    }

    /// Boundary and head as the writer published them, which a hostile writer can set to any value. An honest writer's
    /// boundary is not above its head.
    pub(crate) fn ends(&self) -> (Position, Position) {
        let boundary = self.page.word(BOUNDARY).load(Ordering::Acquire);
        (boundary, self.page.word(HEAD).load(Ordering::Acquire))
    }

    /// The writer's horizon. To be loaded after the bytes, behind an Acquire fence.
    pub(crate) fn horizon(&self) -> Position {
        self.page.word(HORIZON).load(Ordering::Relaxed)
    }
}
