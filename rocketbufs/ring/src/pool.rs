//! Pools: rings cut from a few large, sparse reservations, with a limit on the sum of their capacities.

use crate::arena::Arena;
use crate::backing::Memory;
use crate::error::PoolError;
#[cfg(not(loom))]
use crate::region::Region;
use crate::ring::Ring;
use crate::shape::{RingConfig, Shape};
use crate::sync::Arc;

/// Rings grow only while so many parts of the memory are in use, of [`PARTS`]: what is left is for small ones.
const GROWING_PARTS: u64 = 3;
const PARTS: u64 = 4;

/// How much memory a pool may hand out, and in what pieces the pool takes it from the system.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// Bytes of one reservation; default 1 GiB. A reservation is a sparse memfd: it costs one descriptor, and no
    /// memory until the rings in it are written. Too small costs descriptors. A ring that is larger gets a
    /// reservation of its own size.
    pub reservation_bytes: u64,
    /// Limit on the sum of the capacities of all rings that exist; default 1 GiB. Too small refuses rings
    /// ([`PoolError::Limit`]). With more than the machine has, the process is killed once the rings are full.
    pub max_bytes: u64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        PoolConfig { reservation_bytes: 1 << 30, max_bytes: 1 << 30 }
    }
}

/// Memory for a ring, and the sizes that belong to it.
pub(crate) struct RingRoom {
    pub(crate) memory: Memory,
    pub(crate) shape: Shape,
}

/// A source of rings. A handle: clones are the same pool.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Arena>);

impl Pool {
    /// A pool. Its first reservation is made with the first ring.
    ///
    /// # Errors
    /// None today: [`Pool::ring`] is the first call that needs the system.
    pub fn new(config: PoolConfig) -> Result<Pool, PoolError> {
        Ok(Pool(Arena::new(config.reservation_bytes, config.max_bytes)))
    }

    /// A new ring. Its memory returns to the pool, and its pages to the system, when the last handle to the ring
    /// (ring, writer, claim, receiver, hold, view) is dropped.
    ///
    /// # Errors
    /// [`PoolError::Limit`], [`PoolError::Retain`] and [`PoolError::MaxDelivery`] are the configuration's fault,
    /// [`PoolError::Os`] the machine's. A refused ring takes nothing from the pool.
    pub fn ring(&self, config: RingConfig) -> Result<Ring, PoolError> {
        let RingRoom { memory, shape } = self.room(&config)?;
        Ok(Ring::new(memory, shape))
    }

    /// The capacity of a ring for which so much is asked.
    pub(crate) fn capacity(&self, asked: u64) -> Result<u64, PoolError> {
        self.0.capacity(asked)
    }

    /// As [`Pool::ring`], for a ring that is larger than those of its kind at first: a quarter of the pool is left to the others.
    ///
    /// # Errors
    /// As [`Pool::ring`], and [`PoolError::Limit`] where the quarter would be touched.
    pub fn ring_beside_others(&self, config: RingConfig) -> Result<Ring, PoolError> {
        let RingRoom { memory, shape } = self.room_beside_others(&config)?;
        Ok(Ring::new(memory, shape))
    }

    pub(crate) fn room_beside_others(&self, config: &RingConfig) -> Result<RingRoom, PoolError> {
        self.room_within(config, self.growing_bytes())
    }

    /// Memory for a ring.
    pub(crate) fn room(&self, config: &RingConfig) -> Result<RingRoom, PoolError> {
        self.room_within(config, self.max_bytes())
    }

    fn room_within(&self, config: &RingConfig, max: u64) -> Result<RingRoom, PoolError> {
        let capacity = self.0.capacity(config.capacity_bytes)?;
        let shape = Shape::new(capacity, config)?;
        let memory = Memory::of_pool(Arena::take(&self.0, capacity, max)?, config.flow_control)?;
        Ok(RingRoom { memory, shape })
    }

    /// As [`Pool::ring`], in a file of its own that other processes of this machine can map to read: see
    /// [`Ring::descriptor`]. Costs a descriptor and a page more. The memory returns to the system when the ring is
    /// dropped here and in every process that mapped it, never before.
    ///
    /// # Errors
    /// As [`Pool::ring`].
    #[cfg(not(loom))]
    pub fn shared_ring(&self, config: RingConfig) -> Result<Ring, PoolError> {
        self.shared_ring_within(config, self.max_bytes())
    }

    /// As [`Pool::shared_ring`], and a quarter of the pool is left as by [`Pool::ring_beside_others`].
    ///
    /// # Errors
    /// As [`Pool::ring_beside_others`].
    #[cfg(not(loom))]
    pub fn shared_ring_beside_others(&self, config: RingConfig) -> Result<Ring, PoolError> {
        self.shared_ring_within(config, self.growing_bytes())
    }

    /// So many bytes may be in use with a ring that has grown.
    fn growing_bytes(&self) -> u64 {
        self.max_bytes() / PARTS * GROWING_PARTS
    }

    #[cfg(not(loom))]
    fn shared_ring_within(&self, config: RingConfig, max: u64) -> Result<Ring, PoolError> {
        let capacity = self.0.capacity(config.capacity_bytes)?;
        let shape = Shape::new(capacity, &config)?;
        let charge = Arena::charge(&self.0, capacity, max)?;
        let (region, mapping) = Region::new(capacity)?;
        Ok(Ring::new(Memory::of_region(mapping, region, charge), shape))
    }

    /// The sum of the capacities of the rings that exist, in bytes.
    pub fn in_use_bytes(&self) -> u64 {
        self.0.in_use_bytes()
    }

    /// The limit on [`Pool::in_use_bytes`].
    pub fn max_bytes(&self) -> u64 {
        self.0.max_bytes()
    }
}
