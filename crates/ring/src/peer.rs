//! Rings of other processes, mapped to be read.
//!
//! ```text
//!   descriptor ──▶ PeerMapper::map: seals, kind, size, limits ──▶ PeerRing ──▶ PeerRing::ring ──▶ Ring, which nobody here
//!                                                                                          writes, and whose RingReceiver
//!                                                                                          lands what the peer wrote
//! ```
//!
//! What another process offers counts against the limits of who maps it: it is that process that chooses the size, and
//! reading a page that was never written makes the system back it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::fstat;

use crate::Position;
use crate::doorbell::PeerDoorbell;
use crate::memory::page_bytes;
use crate::pool::{Memory, PoolError, RingConfig};
use crate::region::Region;
use crate::ring::Ring;
use crate::shape::Shape;
use crate::sync::{Arc, Mutex, Ordering, fence, lock};

/// Why another process's memory was not mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The peer's fault: the descriptor is no file in ordinary memory.
    #[error("the peer offered a descriptor that is no memory file on ordinary pages")]
    NotMemory,
    /// The peer's fault: it could still shrink it, which would end this process, or change it in other ways.
    #[error("the peer offered memory that is not sealed (SHRINK, GROW, FUTURE_WRITE and SEAL are needed)")]
    NotSealed,
    /// The peer's fault: the size is not that of a ring with its head page.
    #[error(
        "the peer offered memory of {0} bytes, which is not a page and a power of two of at least a page"
    )]
    Size(u64),
    /// The peer's fault: the head page is not one.
    #[error("the peer offered memory that does not begin as a ring of this machine and version")]
    NotARing,
    /// More rings than this process maps.
    #[error("{in_use} rings of other processes are mapped; the limit (shm.max_shared_rings) is {max}")]
    TooMany {
        /// Mapped now.
        in_use: usize,
        /// The limit.
        max: usize,
    },
    /// More bytes than this process maps.
    #[error(
        "a ring of {asked} bytes of another process does not fit: {in_use} of at most {max} bytes \
         (shm.max_shared_bytes) are mapped"
    )]
    TooLarge {
        /// Its capacity.
        asked: u64,
        /// The sum of the capacities that are mapped.
        in_use: u64,
        /// The limit.
        max: u64,
    },
    /// The system refused.
    #[error("another process's ring cannot be mapped: {0}")]
    Os(#[from] io::Error),
}

/// How many rings of other processes this one maps, and how many bytes of them. A handle: clones count together.
///
/// ```
/// use rocketring::{PeerMapper, Pool, PoolConfig, RingConfig};
///
/// let pool = Pool::new(PoolConfig::default())?;
/// let ring = pool.shared_ring(RingConfig { capacity_bytes: 64 << 10, ..RingConfig::default() })?;
/// ring.writer().expect("the first writer").append(&[b"seen elsewhere"])?;
///
/// // The other process, which got the descriptor over a socket:
/// let descriptor = ring.descriptor().expect("a shared ring has one").try_clone_to_owned()?;
/// let maps = PeerMapper::new(16, 1 << 20);
/// let peer = maps.map(descriptor)?;
/// let (_, head) = peer.ends();
/// let seen = peer.ring(RingConfig::default())?;
/// let mut receiver = seen.receiver().expect("the first receiver");
/// receiver.land(head as usize);
/// receiver.end();
/// assert_eq!(seen.view(0, head).to_vec()?, b"seen elsewhere");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PeerMapper(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max_rings: usize,
    max_bytes: u64,
    in_use: Mutex<(usize, u64)>,
}

impl PeerMapper {
    /// Limits: this many rings, and this many bytes of them.
    pub fn new(max_rings: usize, max_bytes: u64) -> PeerMapper {
        PeerMapper(Arc::new(Shared { max_rings, max_bytes, in_use: Mutex::new((0, 0)) }))
    }

    /// Checks what another process offers, and counts it. The descriptor is closed when the ring is gone.
    ///
    /// # Errors
    /// [`MapError`], which says whose fault it is; nothing is mapped then.
    pub fn map(&self, descriptor: OwnedFd) -> Result<PeerRing, MapError> {
        let (region, capacity) = Region::of_peer(descriptor)?;
        Ok(PeerRing { region, capacity, charge: self.charge(capacity)? })
    }

    /// Checks what another process gave for its doorbell: the page, and the pipe. It counts as a ring of a page.
    ///
    /// # Errors
    /// As [`PeerMapper::map`].
    pub fn doorbell(&self, page: OwnedFd, pipe: OwnedFd) -> Result<PeerDoorbell, MapError> {
        PeerDoorbell::new(page, pipe, self.charge(page_bytes())?)
    }

    fn charge(&self, capacity: u64) -> Result<Charge, MapError> {
        let mut in_use = lock(&self.0.in_use);
        let (rings, bytes) = *in_use;
        if rings >= self.0.max_rings {
            return Err(MapError::TooMany { in_use: rings, max: self.0.max_rings });
        }
        if capacity > self.0.max_bytes - bytes {
            return Err(MapError::TooLarge { asked: capacity, in_use: bytes, max: self.0.max_bytes });
        }
        *in_use = (rings + 1, bytes + capacity);
        drop(in_use);
        Ok(Charge { maps: self.clone(), bytes: capacity })
    }

    /// Rings mapped now, and the sum of their capacities.
    pub fn in_use(&self) -> (usize, u64) {
        *lock(&self.0.in_use)
    }
}

/// What a mapped ring counts; dropping it makes place.
#[derive(Debug)]
pub(crate) struct Charge {
    maps: PeerMapper,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut in_use = lock(&self.maps.0.in_use);
        *in_use = (in_use.0 - 1, in_use.1 - self.bytes);
    }
}

/// Another process's ring: checked, and not yet one of this process.
#[derive(Debug)]
pub struct PeerRing {
    region: Region,
    capacity: u64,
    charge: Charge,
}

impl PeerRing {
    /// Its capacity in bytes: a power of two.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Boundary and head as its writer tells them, which may be anything.
    pub fn ends(&self) -> (Position, Position) {
        self.region.ends()
    }

    /// Whether this is the memory of `ring` already.
    pub fn is(&self, ring: &Ring) -> bool {
        let known = ring.descriptor();
        known.is_some_and(|known| same_file(self.region.file().as_fd(), known).unwrap_or(false))
    }

    /// A ring over that memory. Its head, holds and horizon are this process's own; `config` says what it keeps and
    /// where its log begins, and its capacity is the peer's. It has no writer; its receiver lands what the peer has
    /// written and told. The horizon is what is granted to the peer: it writes nothing at or above
    /// `horizon − capacity`, if it keeps its word. A view that is copied out of says whether it did.
    ///
    /// # Errors
    /// As [`Pool::ring`](crate::Pool::ring).
    pub fn ring(self, config: RingConfig) -> Result<Ring, PoolError> {
        let shape = Shape::new(self.capacity, &RingConfig { capacity_bytes: self.capacity, ..config })?;
        let mapping = self.region.map(self.capacity)?;
        Ok(Ring::new(Memory::of_peer(mapping, self.region, self.charge), shape))
    }
}

impl Ring {
    /// Of a ring that another process writes, which keeps nothing below `to` for this end any more: the tail goes up
    /// there, for whoever joins from here on. False if somebody holds what lies below: nothing changes then.
    pub fn discard_below(&self, to: Position) -> bool {
        let shared = self.shared();
        // Under the lock: a hold is there before this and counts, or comes after and finds the new tail.
        let mut control = shared.control();
        if control.slowest_hold().is_some_and(|slowest| slowest < to) {
            return false;
        }
        let horizon = to.saturating_add(shared.shape.capacity).max(shared.horizon.load(Ordering::Relaxed));
        // As where a tail is raised to give memory back.
        shared.horizon.store(horizon, Ordering::Release);
        fence(Ordering::Release);
        true
    }
}

fn same_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}
