//! A ring that other processes can see: a file in memory, sealed, with a page that says how far its writer is.
//!
//! ```text
//!   the file    │ head page │ data: capacity bytes │        sealed: cannot shrink, grow, or be written through
//!               └───────────┴──────────────────────┘        any mapping made later; and these seals stay
//!   the writer  │ read and write │ data │ data again │       mapped before it was sealed
//!   a reader    │ read           │ data │ data again │       mapped after it had checked seals and size
//!
//!   head page   word 0: magic  1: capacity  2: offset of the data    never change
//!               word 16: head  17: boundary                         what there is to read
//!               word 18: the last small delivery  19 to 23: its bytes in the same cache line: see `inline`
//!               word 32: horizon                                    what lies below horizon − capacity is being overwritten
//!               word 33: where the last hole in the log ends        0 if there was none
//! ```
//!
//! Only the writer writes the head page, and only it can: the seal FUTURE_WRITE refuses everybody else. So a reader
//! harms nobody, and what a hostile writer puts there is bounded on every read by what the reader had granted. The
//! words are 64 bits in the machine's byte order. They lie apart because different words are looked at by different
//! threads.

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
/// What a reader insists on.
pub(crate) const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);
/// What `fstatfs` says of a memfd on ordinary pages. One on huge pages could end the process that reads it, when the
/// system has none left.
const TMPFS: u64 = 0x0102_1994;

const CAPACITY: usize = 1;
const DATA: usize = 2;
const HEAD: usize = 16;
const BOUNDARY: usize = 17;
const INLINE: usize = 18;
const HORIZON: usize = 32;
const LAST_GAP: usize = 33;

/// Whether a file lies in memory, on ordinary pages.
pub(crate) fn check_kind(file: &OwnedFd) -> Result<(), MapError> {
    // Fields of these have other types on other machines.
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
    /// A new one of this process, with its data mapped. Nobody else can write it from here on.
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

    /// One that another process gave to this one, if it is what it must be: checked before anything is mapped, and the
    /// head page's own words before the data is. Returns the capacity with it.
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

    /// Before the boundary moves to `to`: the delivery that ends there, if it is small.
    #[inline]
    pub(crate) fn publish_small_payload(&self, to: Position, parts: &[&[u8]]) {
        small_payload::write(self.page.words(INLINE), to, parts);
    }

    /// The delivery that ends at `to`, if the page has all of it, and nothing else of `dst`.
    #[inline]
    pub(crate) fn read_small_payload(&self, to: Position, dst: &mut [u8]) -> bool {
        small_payload::read(self.page.words(INLINE), to, dst)
    }

    /// Before anything below `horizon − capacity` is overwritten, and followed by a Release fence.
    pub(crate) fn publish_horizon(&self, horizon: Position) {
        self.page.word(HORIZON).store(horizon, Ordering::Release);
    }

    /// Before a head beyond the hole.
    pub(crate) fn publish_gap(&self, to: Position) {
        self.page.word(LAST_GAP).store(to, Ordering::Release);
    }

    /// Where the last hole ends. To be read after the ends.
    pub(crate) fn last_gap(&self) -> Position {
        self.page.word(LAST_GAP).load(Ordering::Acquire)
    }

    /// Boundary and head as the page says: whatever its writer put there. An honest one's boundary is not above its
    /// head.
    pub(crate) fn ends(&self) -> (Position, Position) {
        let boundary = self.page.word(BOUNDARY).load(Ordering::Acquire);
        (boundary, self.page.word(HEAD).load(Ordering::Acquire))
    }

    /// The writer's horizon. To be read after the bytes, behind an Acquire fence.
    pub(crate) fn horizon(&self) -> Position {
        self.page.word(HORIZON).load(Ordering::Relaxed)
    }
}
