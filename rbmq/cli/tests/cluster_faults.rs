//! Clients of a cluster under faults see what they were promised: kept logs, told losses, and no message twice. A seed decides what goes wrong.
//!
//! `CLUSTER_SEEDS=100` runs more seeds, `CLUSTER_SEED=17` one of them again, and `CLUSTER_FAULTS='Kill Stop'` only brings about these faults.

mod cluster_faults {
    use std::time::Duration;

    use cluster_faults::{Fault, OnLoss, Plan, Step, is_in_own_machine, run, run_steps, store_program};
    use rbmq::ConfirmLevel;
    use testkit::{has, skip};

    fn number(variable: &str) -> Option<u64> {
        std::env::var(variable).ok()?.parse().ok()
    }

    fn plan(seed: u64) -> Plan {
        let only = std::env::var("CLUSTER_FAULTS").unwrap_or_default();
        // Another version than this one.
        let program = std::env::var_os("RBMQ_TEST_COMMAND");
        Plan {
            seed,
            rbmq: program.unwrap_or_else(|| env!("CARGO_BIN_EXE_rbmq").into()).into(),
            on_loss: if seed.is_multiple_of(2) { OnLoss::Wait } else { OnLoss::NewLog },
            level: None,
            only: only.split_whitespace().map(str::to_owned).collect(),
            variables: Vec::new(),
            old: None,
        }
    }

    fn is_here(test: &str) -> bool {
        let name = format!("cluster_faults::{test}");
        has("etcd", &name) && is_in_own_machine(&name)
    }

    #[test]
    fn clients_see_what_they_were_promised() {
        if !is_here("clients_see_what_they_were_promised") {
            return;
        }
        rounds(2, plan);
    }

    fn rounds(count: u64, plan: impl Fn(u64) -> Plan) {
        let seeds = match number("CLUSTER_SEED") {
            Some(seed) => seed..seed + 1,
            None => 0..number("CLUSTER_SEEDS").unwrap_or(count),
        };
        let mut failed = Vec::new();
        for seed in seeds {
            let report = run(plan(seed));
            println!("{report}");
            if !report.faults.is_empty() {
                println!("{}", report.logs);
                failed.push(seed);
            }
        }
        assert!(failed.is_empty(), "seeds {failed:?} (CLUSTER_SEED=n repeats one)");
    }

    /// Logs go on in the archive, and what was confirmed as archived is there once, whoever has them next.
    #[test]
    fn what_was_archived_is_there_whoever_has_it_next() {
        if store_program().is_none() {
            return skip("logs that go on in an archive (S3_SERVER names no moto_server)");
        }
        if !is_here("what_was_archived_is_there_whoever_has_it_next") {
            return;
        }
        rounds(1, |seed| Plan { on_loss: OnLoss::Archive, ..plan(seed) });
    }

    /// The same happens to each broker in turn, while nothing else happens.
    fn each_in_turn(
        on_loss: OnLoss,
        level: Option<ConfirmLevel>,
        fault: fn(usize) -> Fault,
        lasts: Duration,
    ) {
        let rest = Duration::from_secs(3);
        let steps = (0..3).map(|n| Step { faults: vec![fault(n)], lasts, rest }).collect();
        let plan = Plan { on_loss, level, ..plan(0) };
        let report = run_steps(plan, steps);
        println!("{report}");
        println!("| {:?} | {} | {:.2?} |", fault(0), on_loss.word(), report.pauses().into_values());
        assert!(report.faults.is_empty(), "{}", report.logs);
    }

    /// Brokers of the version of `RBMQ_OLD` and of this one are a cluster: each in turn goes up and down one version.
    #[test]
    fn a_rolling_upgrade_loses_nothing() {
        let Some(old) = std::env::var_os("RBMQ_OLD") else {
            return skip("an upgrade from another version (RBMQ_OLD=/path/to/rbmq)");
        };
        if !is_here("a_rolling_upgrade_loses_nothing") {
            return;
        }
        for on_loss in [OnLoss::Wait, OnLoss::NewLog] {
            let step = |fault| Step {
                faults: vec![fault],
                lasts: Duration::from_millis(200),
                rest: Duration::from_secs(2),
            };
            let up = (0..3).map(Fault::Upgrade);
            // Two are of the new version, and one of the old one.
            let down =
                [Fault::Kill(1), Fault::Upgrade(2), Fault::Kill(2), Fault::Upgrade(1), Fault::Upgrade(0)];
            let old = Some(old.clone().into());
            let report = run_steps(Plan { on_loss, old, ..plan(0) }, up.chain(down).map(step).collect());
            println!("{report}");
            assert!(report.faults.is_empty(), "{}", report.logs);
        }
    }

    #[test]
    #[ignore = "long: shows how long topics pause"]
    fn what_happens_to_each_broker_in_turn_costs_pauses_alone() {
        if !is_here("what_happens_to_each_broker_in_turn_costs_pauses_alone") {
            return;
        }
        let stored = Some(ConfirmLevel::Stored);
        for on_loss in [OnLoss::Wait, OnLoss::NewLog] {
            each_in_turn(on_loss, stored, Fault::Restart, Duration::ZERO);
            each_in_turn(on_loss, None, Fault::Restart, Duration::ZERO);
        }
        each_in_turn(OnLoss::NewLog, stored, Fault::Kill, Duration::from_secs(6));
        each_in_turn(OnLoss::NewLog, stored, Fault::Drain, Duration::from_secs(3));
    }

    #[test]
    #[ignore = "long: shows how long publishers of all levels pause"]
    fn a_fault_costs_its_own_time_and_little_more() {
        if !is_here("a_fault_costs_its_own_time_and_little_more") {
            return;
        }
        let faults = [
            Fault::NoPeers as fn(usize) -> Fault,
            Fault::Alone,
            Fault::Mute,
            Fault::Deaf,
            Fault::Stop,
            Fault::Kill,
            Fault::NoEtcd,
        ];
        for fault in faults {
            each_in_turn(OnLoss::Wait, None, fault, Duration::from_millis(4_500));
        }
    }
}
