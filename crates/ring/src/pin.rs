//! Keeping a ring's pages where they are: for an adapter that reads or writes them by address, past the processor.
//!
//! Pages that were registered with an adapter are the adapter's for as long. If a ring at rest gave them back, the
//! processor would find new ones in their place, and adapter and processor would go on in different memory.

use crate::Position;
use crate::ring::Ring;
use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering, lock};

/// Nobody has asked yet whether others may write a ring, or whether its bytes can be plain slices. The first who asks
/// decides for good: a slice that is out must not change under whoever reads it.
const OPEN: u32 = 0;
/// Its bytes can be plain slices: nobody else will write it.
const PLAIN: u32 = 1;
/// A peer can write it by itself, or could.
const EXPOSED: u32 = 2;

/// How many keep a ring's pages, and who may write them.
#[derive(Debug)]
pub(crate) struct Pins {
    count: Mutex<usize>,
    access: AtomicU32,
}

impl Pins {
    pub(crate) fn new() -> Pins {
        Pins { count: Mutex::new(0), access: AtomicU32::new(OPEN) }
    }

    /// Decides, if that was open. True if it is decided so.
    #[inline]
    fn decide(&self, access: u32) -> bool {
        // It is asked for each message, and what was decided stays: a load, where an exchange costs ten times the rest.
        match self.access.load(Ordering::Acquire) {
            OPEN => self.decide_now(access),
            decided => decided == access,
        }
    }

    #[cold]
    fn decide_now(&self, access: u32) -> bool {
        // Release pairs with Acquire here and in `is_exposed`: who finds it decided comes after who decided.
        let found = self.access.compare_exchange(OPEN, access, Ordering::AcqRel, Ordering::Acquire);
        found.is_ok() || found == Err(access)
    }

    /// Keeps others from pinning, to give pages back meanwhile. None if somebody keeps them.
    pub(crate) fn none(&self) -> Option<MutexGuard<'_, usize>> {
        let count = lock(&self.count);
        (*count == 0).then_some(count)
    }
}

/// A ring whose pages stay where they are for as long as this exists.
#[derive(Debug)]
pub struct PinGuard(Ring);

impl PinGuard {
    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.0
    }
}

impl Drop for PinGuard {
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

    /// Keeps its pages where they are: [`RingReceiver::trim`](crate::RingReceiver::trim) gives nothing back until all pins are gone.
    pub fn pin(&self) -> PinGuard {
        *lock(&self.shared().pins.count) += 1;
        PinGuard(self.clone())
    }

    /// As [`Ring::pin`], for memory that a peer will write by itself: from then on its bytes are never a plain slice, since
    /// they may change at any time if the peer does not keep its word. None if there may be slices of them already
    /// ([`Ring::ensure_plain`]): the peer must write elsewhere.
    pub fn pin_exposed(&self) -> Option<PinGuard> {
        self.shared().pins.decide(EXPOSED).then(|| self.pin())
    }

    /// Whether a peer can, or could, write into its memory by itself.
    pub fn is_exposed(&self) -> bool {
        self.shared().pins.access.load(Ordering::Acquire) == EXPOSED
    }

    /// From here on [`Ring::pin_exposed`] refuses, so that bytes that are held can be plain slices. False if others can write
    /// them: a peer by itself, or another process.
    pub fn ensure_plain(&self) -> bool {
        !self.is_peer_written() && self.shared().pins.decide(PLAIN)
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
        let mut receiver = ring.receiver().expect("the first");
        assert_eq!(receiver.copy_in(&[1; 40_000]), 40_000);
        receiver.end();
        let pins = [ring.pin(), ring.pin()];
        assert!(!ring.is_exposed());
        for pin in pins {
            let trimmed = receiver.trim(0);
            assert_eq!((trimmed.given_back, trimmed.left), (0, ring.capacity()));
            assert_eq!(ring.tail(), 0, "nothing is given up for nothing");
            drop(pin);
        }
        assert!(receiver.trim(0).given_back > 0);
    }

    #[test]
    fn a_ring_has_plain_slices_or_is_exposed_and_never_both() {
        let pool = Pool::new(PoolConfig { max_bytes: 1 << 20, ..PoolConfig::default() }).expect("a pool");
        let ring =
            || pool.ring(RingConfig { capacity_bytes: 4096, ..RingConfig::default() }).expect("a ring");
        let exposed = ring();
        for _ in 0..2 {
            assert!(exposed.pin_exposed().is_some() && exposed.is_exposed() && !exposed.ensure_plain());
        }
        let plain = ring();
        for _ in 0..2 {
            assert!(plain.ensure_plain() && !plain.is_exposed() && plain.pin_exposed().is_none());
        }
    }
}
