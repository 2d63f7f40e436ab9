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
use crate::backing::Memory;
use crate::doorbell::PeerDoorbell;
use crate::error::{MapError, PoolError};
use crate::memory::page_bytes;
use crate::quota::{MapCharge, MapQuota};
use crate::region::Region;
use crate::ring::Ring;
use crate::shape::{RingConfig, Shape};
use crate::sync::{Arc, Ordering, fence};

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
pub struct PeerMapper(Arc<MapQuota>);

impl PeerMapper {
    /// Limits: this many rings, and this many bytes of them.
    pub fn new(max_rings: usize, max_bytes: u64) -> PeerMapper {
        PeerMapper(MapQuota::new(max_rings, max_bytes))
    }

    /// Checks what another process offers, and counts it. The descriptor is closed when the ring is gone.
    ///
    /// # Errors
    /// [`MapError`], which says whose fault it is; nothing is mapped then.
    pub fn map(&self, descriptor: OwnedFd) -> Result<PeerRing, MapError> {
        let (region, capacity) = Region::of_peer(descriptor)?;
        Ok(PeerRing { region, capacity, charge: self.0.charge(capacity)? })
    }

    /// Checks what another process gave for its doorbell: the page, and the pipe. It counts as a ring of a page.
    ///
    /// # Errors
    /// As [`PeerMapper::map`].
    pub fn doorbell(&self, page: OwnedFd, pipe: OwnedFd) -> Result<PeerDoorbell, MapError> {
        PeerDoorbell::new(page, pipe, self.0.charge(page_bytes())?)
    }

    /// Rings mapped now, and the sum of their capacities.
    pub fn in_use(&self) -> (usize, u64) {
        self.0.in_use()
    }
}

/// Another process's ring: checked, and not yet one of this process.
#[derive(Debug)]
pub struct PeerRing {
    region: Region,
    capacity: u64,
    charge: MapCharge,
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
