//! Each planted bug breaks the ring as its description says. A simulator that passes with a planted bug is therefore at fault.
//!
//! `cargo test -p rocketring --features planted-bugs --test planted`
#![cfg(all(feature = "planted-bugs", not(loom)))]

#[path = "suite/common.rs"]
mod common;

use std::sync::atomic::Ordering;

use common::ring;
use rocketring::planted::{ACTIVE, BUGS};
use rocketring::{PendingSet, Ring, RingConfig};

fn small() -> Ring {
    ring(RingConfig { capacity_bytes: 4096, retain_bytes: Some(0), ..RingConfig::default() })
}

fn held_bytes_stay(ring: &Ring) -> bool {
    let (mut receiver, hold) = (ring.receiver().unwrap(), ring.hold(0).unwrap());
    receiver.copy_in(b"held");
    receiver.end();
    receiver.trim(0).held && ring.tail() == hold.position()
}

/// Whether a ring behaves as it should in the respect that bug `number` spoils.
fn is_right(number: u32) -> bool {
    let ring = small();
    match number {
        1 => {
            let _hold = ring.hold(0).unwrap();
            ring.receiver().unwrap().copy_in(b"head moves");
            ring.grant() == 4096
        }
        2 => {
            let holds = [ring.hold(8).unwrap(), ring.hold(3).unwrap()];
            ring.slowest_hold() == Some(3) && holds.len() == 2
        }
        3 => {
            let mut receiver = ring.receiver().unwrap();
            receiver.copy_in(b"one transfer");
            receiver.copy_in(b"another");
            receiver.end();
            ring.boundary() == 19
        }
        4 => {
            let mut receiver = ring.receiver().unwrap();
            receiver.copy_in(&[1; 4090]);
            ring.grant();
            receiver.copy_in(b"across the end");
            ring.view(4090, 4104).to_vec().unwrap() == b"across the end"
        }
        5 => {
            ring.receiver().unwrap().skip(100);
            ring.boundary() == 100
        }
        6 => {
            let set = PendingSet::new(64);
            let marked = [3, 4].map(|slot| set.mark(slot));
            let mut drained = Vec::new();
            set.drain(|slot| drained.push(slot));
            marked == [true, true] && drained == [3, 4]
        }
        7 => {
            let mut writer = ring.writer().unwrap();
            writer.append(&[&[1; 1000]]).unwrap();
            writer.append(&[&[1; 1000]]).unwrap();
            ring.boundary_at_or_before(1500) == Some(1000)
        }
        28 => held_bytes_stay(&ring),
        _ => panic!("bug {number} has no test"),
    }
}

/// All planted bugs in one test, because the switch is global to the process.
#[test]
fn every_planted_bug_breaks_the_ring() {
    for &(number, what) in BUGS {
        ACTIVE.store(0, Ordering::Relaxed);
        assert!(is_right(number), "wrong without a bug: {what}");
        ACTIVE.store(number, Ordering::Relaxed);
        assert!(!is_right(number), "no bug: {what}");
    }
}
