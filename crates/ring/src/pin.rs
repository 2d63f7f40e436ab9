//! Keeping a ring's pages where they are: for an adapter that reads or writes them by address, past the processor.
//!
//! Pages that were registered with an adapter are the adapter's for as long. If a ring at rest gave them back, the
//! processor would find new ones in their place, and adapter and processor would go on in different memory.

use crate::Position;
use crate::ring::Ring;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// How many keep a ring's pages, and whether somebody else could write them.
#[derive(Debug)]
pub(crate) struct Pins {
    count: Mutex<usize>,
    exposed: AtomicBool,
}

impl Pins {
    pub(crate) fn new() -> Pins {
        Pins { count: Mutex::new(0), exposed: AtomicBool::new(false) }
    }

    /// Keeps others from pinning, to give pages back meanwhile. None if somebody keeps them.
    pub(crate) fn none(&self) -> Option<MutexGuard<'_, usize>> {
        let count = lock(&self.count);
        (*count == 0).then_some(count)
    }
}

/// A ring whose pages stay where they are for as long as this exists.
#[derive(Debug)]
pub struct Pinned(Ring);

impl Pinned {
    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.0
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        *lock(&self.0.shared().pins.count) -= 1;
    }
}

impl Ring {
    /// Where the bytes of `[from, from + len)` lie, in one piece: for a transport's `writev`. The ring's memory
    /// must outlive the use of the pointer, and the bytes may change at any time unless they are held.
    ///
    /// # Panics
    /// If `len` is more than the capacity.
    pub fn raw(&self, from: Position, len: usize) -> *const u8 {
        assert!(len as u64 <= self.capacity(), "a range longer than its ring");
        self.shared().memory.at(from).cast_const()
    }

    /// Keeps its pages where they are: [`Inlet::trim`](crate::Inlet::trim) gives nothing back until all pins are gone.
    pub fn pin(&self) -> Pinned {
        *lock(&self.shared().pins.count) += 1;
        Pinned(self.clone())
    }

    /// As [`Ring::pin`], for memory that a peer will write by itself: from then on its bytes are never a plain slice, since
    /// they may change at any time if the peer does not keep its word.
    pub fn pin_exposed(&self) -> Pinned {
        // Release; pairs with the Acquire in `is_exposed`: set before anything that the peer wrote is seen.
        self.shared().pins.exposed.store(true, Ordering::Release);
        self.pin()
    }

    /// Whether a peer can, or could, write into its memory by itself.
    pub fn is_exposed(&self) -> bool {
        self.shared().pins.exposed.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Pool, PoolConfig, RingConfig};

    #[test]
    fn a_pinned_ring_gives_nothing_back() {
        let pool = Pool::new(PoolConfig { max_bytes: 1 << 20, ..PoolConfig::default() }).expect("a pool");
        let config = RingConfig { capacity_bytes: 64 << 10, retain_bytes: Some(0), ..RingConfig::default() };
        let ring = pool.ring(config).expect("a ring");
        let mut inlet = ring.inlet().expect("the first");
        assert_eq!(inlet.copy_in(&[1; 40_000]), 40_000);
        inlet.end();
        let pins = [ring.pin(), ring.pin()];
        assert!(!ring.is_exposed());
        for pin in pins {
            let trimmed = inlet.trim(0);
            assert_eq!((trimmed.given_back, trimmed.left), (0, ring.capacity()));
            assert_eq!(ring.tail(), 0, "nothing is given up for nothing");
            drop(pin);
        }
        assert!(inlet.trim(0).given_back > 0);
        drop(ring.pin_exposed());
        assert!(ring.is_exposed() && ring.view(0, 0).is_peers());
    }
}
