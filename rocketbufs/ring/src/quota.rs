//! The limits on rings of other processes: a peer chooses their sizes, so they count against the process that maps them.

use crate::error::MapError;
use crate::sync::{Arc, Mutex, lock};

/// How many rings of other processes may be mapped, and how many bytes of them.
#[derive(Debug)]
pub(crate) struct MapQuota {
    max_rings: usize,
    max_bytes: u64,
    in_use: Mutex<(usize, u64)>,
}

impl MapQuota {
    pub(crate) fn new(max_rings: usize, max_bytes: u64) -> Arc<MapQuota> {
        Arc::new(MapQuota { max_rings, max_bytes, in_use: Mutex::new((0, 0)) })
    }

    /// Rings mapped now, and the sum of their capacities.
    pub(crate) fn in_use(&self) -> (usize, u64) {
        *lock(&self.in_use)
    }

    /// Counts one more ring of this capacity.
    pub(crate) fn charge(self: &Arc<Self>, capacity: u64) -> Result<MapCharge, MapError> {
        let mut in_use = lock(&self.in_use);
        let (rings, bytes) = *in_use;
        if rings >= self.max_rings {
            return Err(MapError::TooMany { in_use: rings, max: self.max_rings });
        }
        if capacity > self.max_bytes - bytes {
            return Err(MapError::TooLarge { asked: capacity, in_use: bytes, max: self.max_bytes });
        }
        *in_use = (rings + 1, bytes + capacity);
        drop(in_use);
        Ok(MapCharge { quota: Arc::clone(self), bytes: capacity })
    }
}

/// A mapped ring's part of the limits. Dropping it frees that part.
#[derive(Debug)]
pub(crate) struct MapCharge {
    quota: Arc<MapQuota>,
    bytes: u64,
}

impl Drop for MapCharge {
    fn drop(&mut self) {
        let mut in_use = lock(&self.quota.in_use);
        *in_use = (in_use.0 - 1, in_use.1 - self.bytes);
    }
}
