//! Keeping a ring's pages in place, for an adapter that reads or writes them by address and past the processor.
//!
//! Pages that are registered with an adapter belong to it for as long. If an idle ring returned them to the system, the
//! processor would find new pages in their place, and adapter and processor would continue in different memory.

use crate::ring::Ring;

/// A ring whose pages stay in place while this guard exists.
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
        self.0.shared().access.remove_pin();
    }
}

impl Ring {
    /// Keeps the pages in place: [`RingReceiver::trim`](crate::RingReceiver::trim) returns none to the system until all pins
    /// are dropped.
    pub fn pin(&self) -> PinGuard {
        self.shared().access.add_pin();
        PinGuard(self.clone())
    }

    /// As [`Ring::pin`], for memory that a peer will write by itself. The bytes are never a plain slice from then on, since
    /// they may change at any time if the peer breaks its promise. None if there may be slices of them already
    /// ([`Ring::ensure_plain`]): the peer must write elsewhere.
    pub fn pin_exposed(&self) -> Option<PinGuard> {
        self.shared().access.expose().then(|| self.pin())
    }

    /// Whether a peer can, or could, write the memory by itself.
    pub fn is_exposed(&self) -> bool {
        self.shared().access.is_exposed()
    }

    /// Makes [`Ring::pin_exposed`] refuse from now on, so that held bytes can be plain slices. False if others can write
    /// them: a peer by itself, or another process.
    pub fn ensure_plain(&self) -> bool {
        !self.is_peer_written() && self.shared().access.make_plain()
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
