//! The simulator's invariants on TCP and shared memory, with threads, sockets and mapped memory.
//! `INVARIANT_SEED=7` runs one, `INVARIANT_SEEDS=1000` more.

mod invariants;

use rocketbufs::Config;
use rocketbufs::config::TransportKind;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds(transport: TransportKind) {
    let config = Config { transport, ..Config::default() };
    let seeds = match number("INVARIANT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("INVARIANT_SEEDS").unwrap_or(40),
    };
    seeds.for_each(|seed| invariants::run(seed, &config, "127.0.0.1:0"));
}

#[test]
fn over_tcp() {
    seeds(TransportKind::Tcp);
}

#[test]
fn over_shared_memory() {
    seeds(TransportKind::Shm);
}
