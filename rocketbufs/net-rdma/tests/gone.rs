//! A device that is removed under connections and a listener. An emulated device does not come back while this process lives,
//! so this test runs last in a virtual machine.

#[path = "rdma_suite/common.rs"]
mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{RdmaLab, until_down};
use rocketnet::conformance::{Flow, Kit};

const CAPACITY: u64 = 256 << 10;

#[test]
fn both_ends_report_a_removed_device_and_do_not_spin() {
    let Some(mut lab) = RdmaLab::soon() else { return };
    let mut kit = Kit::connected(&mut lab);
    let mut flow = Flow::new(&mut kit, 0, 1, 1, CAPACITY, 0);
    flow.run(&mut kit, 100_000, || 10_000);
    // Removes the listener's device. The command does not end before this process: the kernel waits for all processes that
    // have the device open, and cannot revoke an emulated device.
    let mut takes = Command::new("rdma").args(["link", "delete", "rxe0"]).spawn().expect("iproute2");
    kit.until("Down at the listener's end", |kit| kit.down(0, 0).is_some());
    // The device can be gone before its last message has left. The other end then learns it from its next transfer.
    until_down(&mut kit, &mut flow, 10_000);
    let why = kit.down(0, 0).expect("just seen").to_string();
    assert!(why.contains("RDMA device"), "{why}");
    // The device's event was read, so its descriptor is not ready again and again.
    kit.steps(10);
    let (until, mut polls) = (Instant::now() + Duration::from_millis(300), 0);
    while Instant::now() < until {
        kit.step();
        polls += 1;
    }
    assert!(polls < 300, "{polls} polls of two milliseconds in 300 of them");
    assert!(takes.try_wait().expect("a child").is_none_or(|status| status.success()));
}
