//! The suite finds the simulated network's planted bugs. A test binary of its own, because the switch is global to the process.
#![cfg(feature = "planted-bugs")]

#[allow(dead_code, reason = "the suite uses more of it")]
#[path = "suite/sim/traffic.rs"]
mod traffic;

use std::panic::catch_unwind;
use std::sync::atomic::Ordering::Relaxed;

use rocketnet::planted::ACTIVE;
use rocketnet_sim::BUGS;

/// Runs every check of every kind of network; the first seed that fails, if one does.
fn first_failure() -> Option<u64> {
    (0..12).find(|&seed| {
        let all = move || {
            for config in traffic::kinds() {
                traffic::traffic(seed, config.clone(), 5_000);
                traffic::detach(seed, config);
            }
        };
        catch_unwind(all).is_err()
    })
}

#[test]
fn every_planted_bug_is_found() {
    assert_eq!(first_failure(), None, "without a bug");
    for &(bug, what) in BUGS {
        ACTIVE.store(bug, Relaxed);
        let found = first_failure();
        ACTIVE.store(0, Relaxed);
        assert!(found.is_some(), "bug {bug} was not found: {what}");
    }
}
