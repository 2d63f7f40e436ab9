//! Pools: rings cut from a few large, sparse reservations, with a limit on the sum of their capacities.

use std::io;

use crate::Position;
use crate::extent::Extents;
use crate::memory::{Access, Mapping, Reservation, page_bytes};
#[cfg(not(loom))]
use crate::region::Region;
use crate::ring::Ring;
use crate::shape::Shape;
use crate::sync::{Arc, Mutex, lock};

/// How much memory a pool may hand out, and in what pieces it takes it from the system.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// Bytes of one reservation; default 1 GiB. A reservation is a sparse memfd: it costs one descriptor and no
    /// memory until rings in it are written. Too small costs descriptors; a ring that is larger gets a
    /// reservation of its own size.
    pub reservation_bytes: u64,
    /// Limit on the sum of the capacities of all rings that exist; default 1 GiB. Too small refuses rings
    /// ([`PoolError::Limit`]); more than the machine has gets the process killed once the rings are full.
    pub max_bytes: u64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        PoolConfig { reservation_bytes: 1 << 30, max_bytes: 1 << 30 }
    }
}

/// What a ring is to be.
#[derive(Debug, Clone)]
pub struct RingConfig {
    /// Bytes that the ring keeps; default 1 MiB. Rounded up to a power of two of at least one page. Costs that
    /// much memory once the log was that long, and two of the process's mappings (`vm.max_map_count`).
    pub capacity_bytes: u64,
    /// History that is kept for joins, resumes and replay although nobody holds it; default half the capacity.
    /// The rest is what the writer can be ahead of the slowest hold when nobody wants history; at least a page
    /// or a 1024th of the capacity must be left to it. Without flow control it says how much may be claimed at
    /// once.
    pub retain_bytes: Option<u64>,
    /// Largest delivery; default a quarter of the capacity (or what `retain_bytes` leaves). At most capacity −
    /// retain; raised to a 1024th of the capacity. Small means a finer index of boundaries: 16 entries of 8
    /// bytes for each time it fits into the capacity, and never under 256.
    pub max_delivery_bytes: Option<u64>,
    /// Whether holds and grants keep the writer from overwriting (default), or readers are lapped.
    pub flow_control: bool,
    /// Where the log begins; default 0.
    pub start: Position,
}

impl Default for RingConfig {
    fn default() -> Self {
        RingConfig {
            capacity_bytes: 1 << 20,
            retain_bytes: None,
            max_delivery_bytes: None,
            flow_control: true,
            start: 0,
        }
    }
}

/// Why there is no pool or no ring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The caller wants more than the pool was configured for.
    #[error(
        "a ring of {asked} bytes does not fit: {in_use} of at most {max} bytes are in use, {} are left; \
         raise that limit (the pool's max_bytes; in a configuration buffers.max_ring_bytes) or ask for less",
        max - in_use
    )]
    Limit {
        /// The capacity asked for, after rounding up.
        asked: u64,
        /// The sum of the capacities that exist.
        in_use: u64,
        /// The pool's limit.
        max: u64,
    },
    /// The caller's configuration leaves the writer no room.
    #[error("retaining {retain} of {capacity} bytes leaves the writer too little; retain at most {at_most}")]
    Retain {
        /// The history asked for.
        retain: u64,
        /// The capacity after rounding up.
        capacity: u64,
        /// The most that can be retained in that capacity.
        at_most: u64,
    },
    /// The caller's configuration allows deliveries that could never be made.
    #[error("deliveries of {asked} bytes do not fit into what is not retained; allow at most {at_most}")]
    MaxDelivery {
        /// The largest delivery asked for.
        asked: u64,
        /// Capacity minus retain.
        at_most: u64,
    },
    /// The system refused a descriptor, address space or mapping.
    #[error("the system gave no memory for a ring: {0}")]
    Os(#[from] io::Error),
}

/// Hands out rings. A handle: clones are the same pool.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: PoolConfig,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    in_use: u64,
    reservations: Vec<(Arc<Reservation>, Extents)>,
}

impl Pool {
    /// A pool; its first reservation is made with the first ring.
    ///
    /// # Errors
    /// None today: the system is first asked by [`Pool::ring`].
    pub fn new(config: PoolConfig) -> Result<Pool, PoolError> {
        Ok(Pool(Arc::new(Shared {
            config,
            state: Mutex::new(State { in_use: 0, reservations: Vec::new() }),
        })))
    }

    /// A new ring. Its memory goes back to the pool, and its pages to the system, when the last handle to it
    /// (ring, writer, claim, receiver, hold, view) is dropped.
    ///
    /// # Errors
    /// [`PoolError::Limit`], [`PoolError::Retain`] and [`PoolError::MaxDelivery`] are the configuration's fault,
    /// [`PoolError::Os`] the machine's. Nothing is kept from a pool that refuses.
    pub fn ring(&self, config: RingConfig) -> Result<Ring, PoolError> {
        let capacity = self.capacity(&config)?;
        let shape = Shape::new(capacity, &config)?;
        let extent = self.extent(capacity)?;
        let (from, at) = (&extent.reservation, extent.offset);
        let mapping = Mapping::new(from, at, capacity, Access::Write, config.flow_control)?;
        Ok(Ring::new(Memory { mapping, backing: Backing::Pool(extent) }, shape))
    }

    /// As [`Pool::ring`], in memory of its own that other processes of this machine can map to read: see
    /// [`Ring::descriptor`]. Costs a descriptor and a page more. Its memory goes back when the ring is gone here and in
    /// every process that mapped it, never before.
    ///
    /// # Errors
    /// As [`Pool::ring`].
    #[cfg(not(loom))]
    pub fn shared_ring(&self, config: RingConfig) -> Result<Ring, PoolError> {
        let capacity = self.capacity(&config)?;
        let shape = Shape::new(capacity, &config)?;
        let charge = self.charge(capacity)?;
        let (region, mapping) = Region::new(capacity)?;
        let backing = Backing::Own { region, _charge: charge };
        Ok(Ring::new(Memory { mapping, backing }, shape))
    }

    /// The capacity of a ring, if there can be one.
    fn capacity(&self, config: &RingConfig) -> Result<u64, PoolError> {
        let max = self.0.config.max_bytes;
        let capacity = config.capacity_bytes.max(page_bytes()).checked_next_power_of_two();
        capacity.filter(|&c| c <= max).ok_or_else(|| PoolError::Limit {
            asked: capacity.unwrap_or(config.capacity_bytes),
            in_use: self.in_use_bytes(),
            max,
        })
    }

    #[cfg(not(loom))]
    fn charge(&self, bytes: u64) -> Result<Charge, PoolError> {
        let mut state = lock(&self.0.state);
        let (in_use, max) = (state.in_use, self.0.config.max_bytes);
        if bytes > max - in_use {
            return Err(PoolError::Limit { asked: bytes, in_use, max });
        }
        state.in_use += bytes;
        Ok(Charge { pool: self.clone(), bytes })
    }

    /// The sum of the capacities of the rings that exist, in bytes.
    pub fn in_use_bytes(&self) -> u64 {
        lock(&self.0.state).in_use
    }

    /// The limit on [`Pool::in_use_bytes`].
    pub fn max_bytes(&self) -> u64 {
        self.0.config.max_bytes
    }

    fn extent(&self, bytes: u64) -> Result<Extent, PoolError> {
        let mut state = lock(&self.0.state);
        let (in_use, max) = (state.in_use, self.0.config.max_bytes);
        if bytes > max - in_use {
            return Err(PoolError::Limit { asked: bytes, in_use, max });
        }
        let free =
            state.reservations.iter_mut().enumerate().find_map(|(i, (_, free))| Some((i, free.take(bytes)?)));
        let (index, offset) = match free {
            Some(found) => found,
            None => {
                let size = self.0.config.reservation_bytes.next_multiple_of(page_bytes()).max(bytes);
                let mut extents = Extents::new(size);
                let offset = extents.take(bytes).expect("a new reservation holds at least this ring");
                state.reservations.push((Arc::new(Reservation::new(size)?), extents));
                (state.reservations.len() - 1, offset)
            }
        };
        state.in_use += bytes;
        let reservation = Arc::clone(&state.reservations[index].0);
        Ok(Extent { pool: self.clone(), reservation, index, offset, bytes })
    }
}

/// A ring's memory. The fields drop in this order: unmapped first, then given back.
#[derive(Debug)]
pub(crate) struct Memory {
    mapping: Mapping,
    backing: Backing,
}

/// Whose memory it is.
#[derive(Debug)]
pub(crate) enum Backing {
    /// A piece of one of the pool's reservations.
    Pool(Extent),
    /// A file of its own, which others may map.
    #[cfg(not(loom))]
    Own { region: Region, _charge: Charge },
    /// Another process's.
    #[cfg(not(loom))]
    Peer { region: Region, _charge: crate::peer::Charge },
    /// Nobody's: nothing can lie in the ring.
    Nothing,
}

impl Memory {
    /// Of a ring in which nothing can lie.
    pub(crate) fn nothing() -> Memory {
        Memory { mapping: Mapping::nothing(), backing: Backing::Nothing }
    }

    #[cfg(not(loom))]
    pub(crate) fn of_peer(mapping: Mapping, region: Region, charge: crate::peer::Charge) -> Memory {
        Memory { mapping, backing: Backing::Peer { region, _charge: charge } }
    }

    /// The file that other processes may map, or that another process gave to this one.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn region(&self) -> Option<&Region> {
        match &self.backing {
            Backing::Pool(_) | Backing::Nothing => None,
            Backing::Own { region, .. } | Backing::Peer { region, .. } => Some(region),
        }
    }

    /// The file that other processes may map, if this one writes it.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn own_region(&self) -> Option<&Region> {
        match &self.backing {
            Backing::Own { region, .. } => Some(region),
            Backing::Pool(_) | Backing::Peer { .. } | Backing::Nothing => None,
        }
    }

    /// Whether another process writes the bytes, and this one cannot.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn is_peer_written(&self) -> bool {
        matches!(self.backing, Backing::Peer { .. })
    }

    #[cfg(loom)]
    pub(crate) fn is_peer_written(&self) -> bool {
        false
    }

    /// Whether pages can go back to the system while the ring is there: not where other processes see them.
    pub(crate) fn can_give_back(&self) -> bool {
        matches!(self.backing, Backing::Pool(_))
    }

    /// Gives the whole pages within `[from, to)`, positions at most a ring apart, back to the system; returns how
    /// many bytes that was. They read as zeros from now on. The caller knows that nobody reads or writes them.
    pub(crate) fn give_back(&self, from: Position, to: Position) -> u64 {
        let Backing::Pool(extent) = &self.backing else { return 0 };
        let (page, capacity) = (page_bytes(), extent.bytes);
        debug_assert!(from <= to && to - from <= capacity, "a range longer than its ring");
        let to = to & !(page - 1);
        let Some(from) = from.checked_next_multiple_of(page).filter(|from| *from < to) else { return 0 };
        // A range that goes over the ring's end is two in the reservation.
        let start = from & (capacity - 1);
        let first = (to - from).min(capacity - start);
        let mut given = 0;
        for (at, bytes) in [(start, first), (0, to - from - first)] {
            let offset = extent.offset + at;
            // If the system refuses, the pages stay backed, which costs memory and nothing else.
            if bytes > 0 && self.mapping.give_back(&extent.reservation, offset, at, bytes).is_ok() {
                given += bytes;
            }
        }
        given
    }
}

impl std::ops::Deref for Memory {
    type Target = Mapping;
    #[inline]
    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}

/// What a ring with memory of its own counts in its pool's limit.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Charge {
    pool: Pool,
    bytes: u64,
}

#[cfg(not(loom))]
impl Drop for Charge {
    fn drop(&mut self) {
        lock(&self.pool.0.state).in_use -= self.bytes;
    }
}

/// A ring's piece of a reservation; dropping it punches its pages out and gives it back.
#[derive(Debug)]
pub(crate) struct Extent {
    pool: Pool,
    reservation: Arc<Reservation>,
    index: usize,
    offset: u64,
    bytes: u64,
}

impl Drop for Extent {
    fn drop(&mut self) {
        // Outside the lock: freeing many pages takes time. If the system refuses, the pages stay backed until
        // the next ring here uses them, which costs memory and nothing else: a ring's memory is not promised zero.
        let _ = self.reservation.punch(self.offset, self.bytes);
        let mut state = lock(&self.pool.0.state);
        state.in_use -= self.bytes;
        state.reservations[self.index].1.give(self.offset, self.bytes);
    }
}
