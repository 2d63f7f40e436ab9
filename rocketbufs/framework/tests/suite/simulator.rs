//! The session, credit and subscription machines under a simulated network: many seeds, each a topology with
//! its own sizes, policies and faults. See `docs/SIMULATOR.md`.
//!
//! A failing seed is printed and replays exactly: `SIM_SEED=7 cargo test -p rocketbufs --test suite simulator:: -- --nocapture`.
//! `SIM_SEEDS=100000` runs more, `SIM_FIRST=1000000` others.

use std::fmt::Write;

use crate::sim::{self, Failure, Stats};

/// Seeds that have found something once.
const REGRESSIONS: &[u64] = &[122, 370, 548, 3135, 3392, 7210, 7671];

/// Seeds of a quick run, of about fifteen seconds on two cores.
const SEEDS: u64 = 400;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn fail(failure: &Failure) -> ! {
    let Failure { seed, invariant, text } = failure;
    panic!(
        "seed {seed}: {invariant}\n  {text}\n  replay: SIM_SEED={seed} cargo test -p rocketbufs --test suite simulator:: -- --nocapture"
    );
}

/// The counters of a run, as a table.
fn report(stats: &Stats) -> String {
    let mut text = format!("{} seeds\n", stats.seeds);
    let mut table = |title: &str, rows: Vec<(&str, u64)>| {
        let _ = writeln!(text, "\n{title}");
        for (name, count) in rows {
            let _ = writeln!(text, "  {name:<48} {count:>12}");
        }
    };
    let owned = |map: &std::collections::BTreeMap<&'static str, u64>| {
        map.iter().map(|(name, count)| (*name, *count)).collect::<Vec<_>>()
    };
    table("topologies and networks", stats.shapes.iter().map(|(k, v)| (k.as_str(), *v)).collect());
    table("moved", owned(&stats.counts));
    table("faults", owned(&stats.faults));
    table("events", owned(&stats.events));
    table("invariants checked", owned(&stats.checks));
    text
}

#[test]
fn seeds() {
    if let Some(seed) = number("SIM_SEED") {
        match sim::run(seed) {
            Ok(outcome) => println!("seed {seed} passes, trace {:016x}", outcome.hash),
            Err(failure) => fail(&failure),
        }
        return;
    }
    for &seed in REGRESSIONS {
        if let Err(failure) = sim::run(seed) {
            fail(&failure);
        }
    }
    let first = number("SIM_FIRST").unwrap_or(0);
    let last = first + number("SIM_SEEDS").unwrap_or(SEEDS);
    let begun = std::time::Instant::now();
    match sim::run_many(first..last) {
        Ok(stats) => {
            let seconds = begun.elapsed().as_secs_f64();
            println!("{}\n{:.0} seeds a second", report(&stats), stats.seeds as f64 / seconds);
        }
        Err(failure) => fail(&failure),
    }
}

#[test]
fn a_seed_is_a_run() {
    if number("SIM_SEED").is_some() {
        return;
    }
    for seed in 0..40 {
        let (first, second) = (sim::run(seed), sim::run(seed));
        let hashes = [first, second].map(|outcome| outcome.unwrap_or_else(|failure| fail(&failure)).hash);
        assert_eq!(hashes[0], hashes[1], "seed {seed} ran differently the second time");
    }
}
