//! Clients of a cluster under faults see what they were promised: kept logs, told losses, and no message twice. A seed decides what goes wrong.
//!
//! `CLUSTER_SEEDS=100` runs more seeds, `CLUSTER_SEED=17` one of them again, and `CLUSTER_FAULTS='Kill Stop'` only brings about these faults.

mod cluster_faults {
    use cluster_faults::{OnLoss, Plan, is_in_own_machine, run};
    use testkit::has;

    const NAME: &str = "cluster_faults::clients_see_what_they_were_promised";

    fn number(variable: &str) -> Option<u64> {
        std::env::var(variable).ok()?.parse().ok()
    }

    fn plan(seed: u64) -> Plan {
        let only = std::env::var("CLUSTER_FAULTS").unwrap_or_default();
        Plan {
            seed,
            rbmq: env!("CARGO_BIN_EXE_rbmq").into(),
            on_loss: if seed.is_multiple_of(2) { OnLoss::Wait } else { OnLoss::NewLog },
            only: only.split_whitespace().map(str::to_owned).collect(),
            variables: Vec::new(),
        }
    }

    #[test]
    fn clients_see_what_they_were_promised() {
        if !has("etcd", NAME) || !is_in_own_machine(NAME) {
            return;
        }
        let seeds = match number("CLUSTER_SEED") {
            Some(seed) => seed..seed + 1,
            None => 0..number("CLUSTER_SEEDS").unwrap_or(2),
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
}
