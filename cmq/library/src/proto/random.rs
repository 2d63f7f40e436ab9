//! Random numbers, seeds and addresses of simulations.

use std::net::SocketAddr;

/// A small generator of numbers, the same everywhere.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True in `percent` of all cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// An address of the simulated network.
pub(crate) fn addr(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Calls `run` with each seed of this run of the tests.
pub(crate) fn seeds(default: u64, run: impl Fn(u64)) {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    if let Some(seed) = number("CMQ_SEED") {
        return run(seed);
    }
    for seed in 0..number("CMQ_SEEDS").unwrap_or(default) {
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed)));
        if let Err(panic) = failed {
            eprintln!("replay this run with CMQ_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
