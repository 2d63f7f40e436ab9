//! A ring's mapped bytes, and the owner of the memory behind them.

use std::io;

use crate::arena::Extent;
use crate::memory::{Mapping, page_bytes};
use crate::sync::Arc;
#[cfg(not(loom))]
use crate::{arena::Charge, quota::MapCharge, region::Region};

/// A ring's memory. The fields drop in this order: the mapping goes first, then the memory behind it.
#[derive(Debug)]
pub(crate) struct Memory {
    mapping: Mapping,
    backing: Backing,
}

/// The owner of the memory.
#[derive(Debug)]
enum Backing {
    /// A piece of one of the pool's reservations.
    Pool(Arc<Extent>),
    /// A file of its own, which other processes may map.
    #[cfg(not(loom))]
    Own { region: Region, _charge: Charge },
    /// A file of another process, which writes it.
    #[cfg(not(loom))]
    Peer { region: Region, _charge: MapCharge },
    /// The ring has no memory.
    Nothing,
}

impl Memory {
    /// The memory of a ring without capacity.
    pub(crate) fn nothing() -> Memory {
        Memory { mapping: Mapping::nothing(), backing: Backing::Nothing }
    }

    /// Maps a piece of a pool's reservation.
    pub(crate) fn of_pool(extent: Extent, tracked: bool) -> io::Result<Memory> {
        Ok(Memory { mapping: extent.map(tracked)?, backing: Backing::Pool(Arc::new(extent)) })
    }

    /// The same bytes of a pool, at other addresses. None for other memory.
    #[cfg(not(loom))]
    pub(crate) fn again(&self) -> Option<io::Result<Memory>> {
        let Backing::Pool(extent) = &self.backing else { return None };
        let again = |mapping| Memory { mapping, backing: Backing::Pool(Arc::clone(extent)) };
        Some(extent.map(true).map(again))
    }

    /// The cells of a model belong to one mapping.
    #[cfg(loom)]
    pub(crate) fn again(&self) -> Option<io::Result<Memory>> {
        None
    }

    /// A file of this process that others may map.
    #[cfg(not(loom))]
    pub(crate) fn of_region(mapping: Mapping, region: Region, charge: Charge) -> Memory {
        Memory { mapping, backing: Backing::Own { region, _charge: charge } }
    }

    /// Another process's ring.
    #[cfg(not(loom))]
    pub(crate) fn of_peer(mapping: Mapping, region: Region, charge: MapCharge) -> Memory {
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

    /// The file that other processes may map, if this process writes it.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn own_region(&self) -> Option<&Region> {
        match &self.backing {
            Backing::Own { region, .. } => Some(region),
            Backing::Pool(_) | Backing::Peer { .. } | Backing::Nothing => None,
        }
    }

    /// Another process's file, if that process writes the ring.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn peer_region(&self) -> Option<&Region> {
        match &self.backing {
            Backing::Peer { region, .. } => Some(region),
            Backing::Pool(_) | Backing::Own { .. } | Backing::Nothing => None,
        }
    }

    /// Whether another process writes the bytes, and this one cannot.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn is_peer_written(&self) -> bool {
        matches!(self.backing, Backing::Peer { .. })
    }

    /// Whether another process says that it writes these bytes in place, and does not get them from elsewhere.
    #[cfg(not(loom))]
    pub(crate) fn is_written_in_place_by_peer(&self) -> bool {
        self.peer_region().is_some_and(Region::is_in_place)
    }

    #[cfg(loom)]
    pub(crate) fn is_written_in_place_by_peer(&self) -> bool {
        false
    }

    #[cfg(loom)]
    pub(crate) fn is_peer_written(&self) -> bool {
        false
    }

    /// Whether pages can return to the system while the ring exists: not where other processes map them.
    pub(crate) fn can_release_pages(&self) -> bool {
        matches!(self.backing, Backing::Pool(_))
    }

    /// Returns the whole pages within `[from, to)`, positions at most a capacity apart, to the system, and the number of
    /// their bytes to the caller. The pages read as zeros from then on. No thread may read or write them during the call.
    pub(crate) fn release_pages(&self, from: u64, to: u64) -> u64 {
        let Backing::Pool(extent) = &self.backing else { return 0 };
        let (page, capacity) = (page_bytes(), extent.bytes());
        debug_assert!(from <= to && to - from <= capacity, "a range longer than its ring");
        let to = to & !(page - 1);
        let Some(from) = from.checked_next_multiple_of(page).filter(|from| *from < to) else { return 0 };
        // A range across the ring's end is two ranges of the extent.
        let start = from & (capacity - 1);
        let first = (to - from).min(capacity - start);
        let mut released = 0;
        for (at, bytes) in [(start, first), (0, to - from - first)] {
            // If the system refuses, the pages stay backed, which costs memory and nothing else.
            if bytes > 0 && extent.release_pages(&self.mapping, at, bytes).is_ok() {
                released += bytes;
            }
        }
        released
    }
}

impl std::ops::Deref for Memory {
    type Target = Mapping;
    #[inline]
    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}
