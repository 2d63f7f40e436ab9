//! The kernel's verifier accepts every program that a configuration can ask for, with the smallest and the largest ring.

use multimqc_kernel::{Config, Kernel, KernelError, MAX_RING_BYTES, Mode};

use crate::common;

const MODES: [Mode; 3] = [Mode::Auto, Mode::Tcx, Mode::Netfilter];

fn object(name: &str) -> Option<Vec<u8>> {
    let path = format!("{}/../bpf/objects/{name}.bpf.o", env!("CARGO_MANIFEST_DIR"));
    Some(std::fs::read(path).expect("an object"))
}

/// The choices that are made when programs are loaded, one bit each.
const ALL_CHOICES: u32 = 1 << 4;

fn config(mode: Mode, choices: u32) -> Config {
    let bit = |at: u32| choices & 1 << at != 0;
    let config = Config::default().mode(mode).verify_checksums(bit(0));
    let config = config.trusted(bit(1).then_some(([10, 0, 0, 0].into(), 8)));
    let config = config.input_function(bit(2).then(|| object("drop_range")).flatten());
    config.output_function(bit(3).then(|| object("extract_field")).flatten())
}

fn are_accepted(configs: impl Iterator<Item = Config>) {
    for config in configs {
        let what = format!("{:?} {} {:?}", config.mode, config.verify_checksums, config.trusted);
        match Kernel::new(config.ring_bytes(4096).batch_bytes(1024).max_topics(3)) {
            Ok(_) => {}
            Err(error) if error.is_missing_right() => {
                return common::skip(&format!("eBPF needs root ({error})"));
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

/// In each mode no choice and all of them, and each alone.
#[test]
fn each_choice_with_the_smallest_ring() {
    let alone = (0..4).map(|bit| config(Mode::Auto, 1 << bit));
    let none_and_all = [0, ALL_CHOICES - 1].into_iter();
    are_accepted(none_and_all.flat_map(|choices| MODES.map(|mode| config(mode, choices))).chain(alone));
}

#[test]
#[ignore = "long: the verifier takes a third of a second for each of 48 combinations"]
fn all_programs_with_the_smallest_ring() {
    are_accepted(
        MODES.into_iter().flat_map(|mode| (0..ALL_CHOICES).map(move |choices| config(mode, choices))),
    );
}

#[test]
fn all_modes_with_the_largest_ring() {
    for mode in MODES {
        let config = Config::default().mode(mode).trusted(Some(([10, 0, 0, 0].into(), 8)));
        let config = config.input_function(object("drop_range")).output_function(object("extract_field"));
        match Kernel::new(config.ring_bytes(MAX_RING_BYTES)) {
            Ok(_) => {}
            Err(error) if error.is_missing_right() => {
                return common::skip(&format!("eBPF needs root ({error})"));
            }
            Err(KernelError::Call { what: "create a map", error }) => {
                return common::skip(&format!("no memory for the largest ring ({error})"));
            }
            Err(error) => panic!("{mode:?}: {error}"),
        }
    }
}

#[test]
fn values_out_of_their_range_are_refused() {
    let refused = |config: Config| Kernel::new(config).expect_err("out of range").to_string();
    let text = refused(Config::default().ring_bytes(5000));
    assert_eq!(text, "ring_bytes = 5000: must be a power of two");
    assert!(refused(Config::default().ring_bytes(MAX_RING_BYTES * 2)).contains("between a page and 256 MiB"));
    assert!(refused(Config::default().batch_bytes(0)).contains("batch_bytes = 0"));
    assert!(refused(Config::default().batch_bytes(5 << 20)).contains("a quarter of ring_bytes"));
    assert!(refused(Config::default().max_topics(0)).contains("max_topics = 0"));
    assert!(refused(Config::default().max_message_bytes(2048)).contains("between 1 and 2,047"));
    assert!(refused(Config::default().max_reply_bytes(1473)).contains("between 1 and 1,472"));
    assert!(refused(Config::default().trusted(Some(([10, 0, 0, 0].into(), 33)))).contains("trusted = 33"));
    let late = refused(Config::default().ring_bytes(1 << 20).bytes_per_second(100_000_000));
    assert!(
        late.contains("equation 1 does not hold: latency < (capacity - (batch + overlap)) / rate"),
        "{late}"
    );
    assert!(late.contains("100ms < (1048576 - (32768 + 1500)) B / 100000000 B/s"), "{late}");
}
