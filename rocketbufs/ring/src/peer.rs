//! Rings of other processes, mapped to be read.
//!
//! ```text
//!   descriptor ──▶ PeerMapper::map: seals, kind, size, limits ──▶ PeerRing ──▶ PeerRing::ring ──▶ Ring, which has no
//!                                                                                          writer here, and whose RingReceiver
//!                                                                                          lands what the peer wrote
//! ```
//!
//! An offered ring counts against the limits of the process that maps it: the other process chooses the size, and reading a
//! page that was never written makes the system back it.

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

/// Maps rings of other processes, within limits on their number and their bytes. A handle: clones share the limits.
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
/// let mapper = PeerMapper::new(16, 1 << 20);
/// let peer = mapper.map(descriptor)?;
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
    /// A mapper with these limits: the number of rings, and the sum of their capacities.
    pub fn new(max_rings: usize, max_bytes: u64) -> PeerMapper {
        PeerMapper(MapQuota::new(max_rings, max_bytes))
    }

    /// Checks a ring that another process offers, and counts it. The descriptor is closed when the ring is dropped.
    ///
    /// # Errors
    /// [`MapError`] says whose fault it is. Nothing is mapped then.
    pub fn map(&self, descriptor: OwnedFd) -> Result<PeerRing, MapError> {
        let (region, capacity) = Region::of_peer(descriptor)?;
        Ok(PeerRing { region, capacity, charge: self.0.charge(capacity)? })
    }

    /// Checks another process's doorbell: the page, and the pipe. A doorbell counts as a ring of a page.
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

/// Another process's ring, which is checked and not yet mapped.
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

    /// Boundary and head as its writer publishes them. A hostile writer can publish any value.
    pub fn ends(&self) -> (Position, Position) {
        self.region.ends()
    }

    /// Whether this is the memory of `ring`.
    pub fn is(&self, ring: &Ring) -> bool {
        let known = ring.descriptor();
        known.is_some_and(|known| same_file(self.region.file().as_fd(), known).unwrap_or(false))
    }

    /// A ring over that memory. Its head, holds and horizon belong to this process. `config` says how much history the
    /// ring retains and where its log begins; the capacity is the peer's. The ring has no writer; its receiver lands the
    /// bytes that the peer has written and announced. The horizon is the grant to the peer: an honest peer overwrites
    /// nothing at or above `horizon − capacity`. Copying out of a view checks that.
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
    /// Raises the tail to `to` in a ring whose writer, another process, no longer keeps the bytes below for this process.
    /// Readers that join later start at or above it. False, without a change, if there is a hold below `to`.
    pub fn discard_below(&self, to: Position) -> bool {
        let shared = self.shared();
        // Under the lock: a hold is registered before this and counts, or after and finds the new tail.
        let mut control = shared.control();
        if control.slowest_hold().is_some_and(|slowest| slowest < to) {
            return false;
        }
        let horizon = to.saturating_add(shared.shape().capacity).max(shared.horizon.load(Ordering::Relaxed));
        // As in `Shared::raise_tail`.
        shared.horizon.store(horizon, Ordering::Release);
        fence(Ordering::Release);
        true
    }
}

fn same_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}
