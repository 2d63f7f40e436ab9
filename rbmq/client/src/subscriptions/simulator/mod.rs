//! The machine in a simulated world: a user who subscribes and unsubscribes, and a broker that announces, loses, restarts and replays logs,
//! and moves them from buffer to buffer.
//!
//! ```text
//!   user ──▶ Subscriptions ──▶ effects ──▶ rIn ──▶ ┐ messages in order, ┌ ──▶ broker: buffers, replays
//!     ▲           ▲  ▲                      │  ◀── ┘ lost with a cut    └ ◀──    logs: what publishers wrote
//!     │           │  └── control messages   │
//!     └─ notices ─┴───── events of the rIn ─┘
//! ```
//!
//! A seed decides on everything, also on the order of all steps, so that each failure replays. The user checks that the messages of each
//! log follow each other, that nothing is missing or comes twice, that losses are told, that each subscription ends with one reason, and
//! that connections are lost and come back in turn. In some runs the context is shut down in the middle, which ends all waits. When the faults are over, the user has all messages of all logs.
//!
//! `CLIENT_SEED=7 cargo test -p rbmq --lib simulator` replays a run, `CLIENT_SEEDS=100000` runs more.

mod broker;
mod rin;
mod user;
mod world;

use world::World;

/// Seeds of a usual run.
const SEEDS: u64 = 1000;

/// Says which seed fails.
struct Running(u64);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay: CLIENT_SEED={} cargo test -p rbmq --lib simulator", self.0);
        }
    }
}

/// Seeds that found faults and are rare.
const FOUND: [u64; 1] = [26_718];

/// Runs a seed. Returns a number that depends on all that happened.
fn run(seed: u64) -> u64 {
    let _running = Running(seed);
    World::new(seed).run()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn seeds() {
    if let Some(seed) = number("CLIENT_SEED") {
        return println!("seed {seed} passes, trace {:016x}", run(seed));
    }
    (0..number("CLIENT_SEEDS").unwrap_or(SEEDS)).chain(FOUND).for_each(|seed| _ = run(seed));
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..10 {
        assert_eq!(run(seed), run(seed), "seed {seed} ran differently the second time");
    }
}
