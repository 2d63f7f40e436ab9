//! Planted bugs: the test switches on one at a time in brokers and clients of a cluster, and the fault harness must catch it within [`MOST_SEEDS`]
//! seeds, with the faults that bring it out. The test has a process of its own, because the switch is global to the process.
//!
//! `cargo test -p rbmq-cli --features planted-bugs --test cluster_planted -- --nocapture` shows the table; `PLANTED=42` looks at one bug only.
#![cfg(feature = "planted-bugs")]

use std::sync::atomic::Ordering::Relaxed;

use cluster_faults::{OnLoss, Plan, is_in_own_machine, run, store_program};
use rocketbufs::planted::ACTIVE;
use testkit::{has, skip};

const NAME: &str = "every_planted_bug_of_a_cluster_is_caught";
/// The most seeds until a bug is caught.
const MOST_SEEDS: u64 = 8;

/// A bug of `rbmq_wire::planted`, and the faults that bring it out.
struct Bug {
    number: u32,
    what: &'static str,
    on_loss: OnLoss,
    only: &'static [&'static str],
}

const BUGS: [Bug; 5] = [
    Bug {
        number: 41,
        what: "an owner serves on when its term has ended",
        on_loss: OnLoss::NewLog,
        only: &["NoEtcd"],
    },
    Bug {
        number: 42,
        what: "a broker confirms as stored what its disk does not have yet",
        on_loss: OnLoss::Wait,
        only: &["FullDiskKill"],
    },
    Bug {
        number: 43,
        what: "an owner that took a topic from another one names that one as the owner",
        on_loss: OnLoss::NewLog,
        only: &["Move"],
    },
    Bug {
        number: 44,
        what: "a publisher whose broker has died tells the next one that everything was stored",
        on_loss: OnLoss::Wait,
        only: &["Kill"],
    },
    Bug {
        number: 45,
        what: "a broker that goes on in an archive leaves the owner before the name of its next object",
        on_loss: OnLoss::Archive,
        only: &["Stop"],
    },
];

impl Bug {
    /// What the first seed shows that fails, and the seed.
    fn caught(&self) -> Option<(u64, String)> {
        ACTIVE.store(self.number, Relaxed);
        let caught = (0..MOST_SEEDS).find_map(|seed| {
            let report = run(Plan {
                seed,
                rbmq: env!("CARGO_BIN_EXE_rbmq").into(),
                on_loss: self.on_loss,
                level: None,
                only: self.only.iter().map(|&kind| kind.to_owned()).collect(),
                variables: vec![["RBMQ_PLANTED".into(), self.number.to_string()]],
                old: None,
            });
            report.faults.first().map(|fault| (seed, fault.clone()))
        });
        ACTIVE.store(0, Relaxed);
        caught
    }
}

#[test]
fn every_planted_bug_of_a_cluster_is_caught() {
    if !has("etcd", NAME) || !is_in_own_machine(NAME) {
        return;
    }
    let only: Option<u32> = std::env::var("PLANTED").ok().and_then(|number| number.parse().ok());
    let mut missed = Vec::new();
    println!("| bug | description | caught by | seed |\n|---|---|---|---|");
    for bug in BUGS.iter().filter(|bug| only.is_none_or(|only| only == bug.number)) {
        if bug.on_loss == OnLoss::Archive && store_program().is_none() {
            skip("the planted bug of the archive (S3_SERVER names no moto_server)");
            continue;
        }
        let what = bug.what;
        match bug.caught() {
            Some((seed, fault)) => println!("| {} | {what} | {fault} | {seed} |", bug.number),
            None => {
                println!("| {} | {what} | **not caught in {MOST_SEEDS} seeds** | |", bug.number);
                missed.push(bug.number);
            }
        }
    }
    assert!(missed.is_empty(), "bugs {missed:?} were not caught");
}
