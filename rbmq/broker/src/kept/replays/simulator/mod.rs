//! Replays in a simulated world: one kept topic, subscribers that read at their own pace, and a disk and a network that fail.
//!
//! ```text
//!   writer ──▶ log on a simulated disk ──▶ ring of the topic ──┐
//!                   └──▶ replays, as `Replays` runs them ──────┴──▶ simulated network ──▶ subscribers
//! ```
//!
//! A seed decides on everything, also on the order of all turns, so that each failure replays. Each byte of the log is a function of
//! its position. A subscriber checks every byte, that nothing comes twice, and that there is a reason for each loss that it is told:
//! retention, damage, a crash of the machine. When the faults are over, each subscriber gets to the end of the log.
//!
//! `REPLAY_SEED=7 cargo test -p rbmq-broker --lib simulator` replays a run, `REPLAY_SEEDS=100000` runs more.

mod broker;
mod oracle;
mod subscriber;
mod world;

use oracle::Rng;
use world::{Plan, World};

/// Seeds of a usual run.
const SEEDS: u64 = 60;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a seed, and returns a number that depends on all that happened.
fn run(seed: u64, limit: impl FnOnce(&mut Plan)) -> u64 {
    let mut plan = Plan::draw(&mut Rng::new(seed));
    limit(&mut plan);
    World::new(seed, plan).run()
}

#[test]
fn seeds() {
    if let Some(seed) = number("REPLAY_SEED") {
        return println!("seed {seed} passes, trace {:016x}", run(seed, |_| ()));
    }
    for seed in 0..number("REPLAY_SEEDS").unwrap_or(SEEDS) {
        run(seed, |_| ());
    }
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..10 {
        assert_eq!(run(seed, |_| ()), run(seed, |_| ()), "seed {seed} ran differently the second time");
    }
}

/// Without a fault that removes something, nothing at all may be missing.
#[test]
fn kills_cuts_and_a_full_disk_lose_nothing() {
    for seed in 0..SEEDS / 3 {
        run(seed, |plan| {
            (plan.crashes, plan.damage, plan.read_errors, plan.retention) = (false, false, false, None);
            (plan.kills, plan.cuts, plan.full_disk) = (true, true, true);
            plan.lossless = true;
        });
    }
}
