//! Planted bugs: the test switches on one bug at a time, and the simulator must catch it within [`MOST_SEEDS`] seeds. The test
//! has a process of its own, because the switch is global to the process.
//!
//! `cargo test -p rocketbufs --features planted-bugs --test planted -- --nocapture` shows the table;
//! `PLANTED=14` looks at one bug only.
#![cfg(feature = "planted-bugs")]

#[allow(dead_code, reason = "the suite uses more of it")]
#[path = "suite/rng.rs"]
mod rng;
#[allow(dead_code, unused_imports, reason = "the suite uses more of it")]
#[path = "suite/sim/mod.rs"]
mod sim;

use std::sync::atomic::Ordering::Relaxed;

use rocketnet::planted::ACTIVE;
use sim::Failure;

/// The most seeds until a bug is caught.
const MOST_SEEDS: u64 = 2_000;
/// The seeds that must pass without a bug, which shows that failures come from the bugs.
const CLEAN_SEEDS: u64 = 300;
/// The seeds of one parallel run, which uses a thread for each core.
const TOGETHER: u64 = 20;

/// The failure of the first failing seed among the first `most` seeds.
fn first_failure(most: u64) -> Option<Failure> {
    (0..most).step_by(TOGETHER as usize).find_map(|first| sim::run_many(first..first + TOGETHER).err())
}

#[test]
fn every_planted_bug_is_caught() {
    // A planted bug may also break an assertion of the code, whose message is not needed here.
    std::panic::set_hook(Box::new(|_| {}));
    let clean = first_failure(CLEAN_SEEDS);
    assert!(clean.is_none(), "without a bug seed {:?} fails", clean.map(|failure| failure.seed));
    let only: Option<u32> = std::env::var("PLANTED").ok().and_then(|number| number.parse().ok());
    let bugs = rocketring::planted::BUGS.iter().chain(rocketnet_sim::BUGS).chain(rocketbufs::planted::BUGS);
    let (mut number, mut missed) = (0, Vec::new());
    println!("| bug | description | caught by | seed |\n|---|---|---|---|");
    for (bug, what) in bugs.filter(|(bug, _)| only.is_none_or(|only| only == *bug)) {
        number += 1;
        ACTIVE.store(*bug, Relaxed);
        let caught = first_failure(MOST_SEEDS);
        ACTIVE.store(0, Relaxed);
        match caught {
            Some(failure) => println!("| {bug} | {what} | {} | {} |", failure.invariant, failure.seed),
            None => {
                println!("| {bug} | {what} | **not caught in {MOST_SEEDS} seeds** | |");
                missed.push(*bug);
            }
        }
    }
    let _ = std::panic::take_hook();
    println!("{number} bugs, {} caught", number - missed.len());
    assert!(missed.is_empty(), "bugs {missed:?} were not caught");
}
