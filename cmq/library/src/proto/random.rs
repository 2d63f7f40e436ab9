//! Seeds and addresses of simulations.

use std::net::SocketAddr;

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
