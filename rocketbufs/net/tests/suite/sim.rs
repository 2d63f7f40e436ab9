//! The simulated network: the conformance suite on many seeds, and what only a simulated network can show.

mod faults;
mod lab;
mod traffic;

use lab::SimLab;
use rocketnet_sim::SimConfig;
use traffic::{detach, kinds, traffic};

/// A module of the suite for each seed, so that the name of a failing test has the seed.
macro_rules! suite {
    ($config:ident: $($name:ident $seed:literal),* $(,)?) => {
        $(rocketnet::conformance_tests!($name, SimLab::new($seed, SimConfig::$config()));)*
    };
}

suite!(stream: stream_1 1, stream_2 2, stream_3 3, stream_4 4, stream_5 5, stream_6 6, stream_7 7, stream_8 8,
    stream_9 9, stream_10 10, stream_11 11, stream_12 12);
suite!(one_sided: one_sided_1 1, one_sided_2 2, one_sided_3 3, one_sided_4 4, one_sided_5 5, one_sided_6 6,
    one_sided_7 7, one_sided_8 8, one_sided_9 9, one_sided_10 10, one_sided_11 11, one_sided_12 12);
suite!(unordered: unordered_1 1, unordered_2 2, unordered_3 3, unordered_4 4, unordered_5 5, unordered_6 6,
    unordered_7 7, unordered_8 8, unordered_9 9, unordered_10 10, unordered_11 11, unordered_12 12);

#[test]
fn everything_arrives_on_every_seed() {
    for config in kinds() {
        for seed in 0..24 {
            traffic(seed, config.clone(), 20_000);
        }
    }
}

#[test]
fn a_narrow_network_carries_everything_too() {
    for config in kinds() {
        let narrow = SimConfig {
            window_bytes: 1,
            send_depth: 1,
            receive_depth: 1,
            queue_writes: 1,
            queue_controls: 1,
            ..config
        };
        traffic(1, narrow, 3_000);
    }
}

#[test]
fn a_seed_is_a_history() {
    for config in kinds() {
        for seed in 0..4 {
            let (hash, trace) = traffic(seed, config.clone(), 5_000);
            assert!(!trace.is_empty());
            assert_eq!((hash, trace), traffic(seed, config.clone(), 5_000));
            assert_ne!(hash, traffic(seed + 100, config.clone(), 5_000).0);
        }
    }
}

#[test]
fn a_detached_range_keeps_its_bytes() {
    for config in kinds() {
        for seed in 0..16 {
            detach(seed, config.clone());
        }
    }
}
