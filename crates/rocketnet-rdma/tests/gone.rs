//! A device that is taken away under connections and a listener. Of an emulated one nothing comes back as long as this process
//! lives, so this is the last that is run in a virtual machine.

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::RdmaLab;
use rocketnet::conformance::{Flow, Kit};
use rocketnet_rdma::RdmaConfig;

const CAPACITY: u64 = 256 << 10;

#[test]
fn both_ends_are_told_and_nothing_spins() {
    let Some(mut lab) = RdmaLab::new(RdmaConfig::default()) else { return };
    let mut kit = Kit::connected(&mut lab);
    let mut flow = Flow::new(&mut kit, 0, 1, 1, CAPACITY, 0);
    flow.run(&mut kit, 100_000, || 10_000);
    // That of who listens. It does not end before this process does: the system waits for all who have the device open, and
    // for an emulated one cannot close it in their place.
    let mut takes = Command::new("rdma").args(["link", "delete", "rxe0"]).spawn().expect("iproute2");
    kit.until("both ends are down", |kit| kit.down(0, 0).is_some() && kit.down(0, 1).is_some());
    let why = kit.down(0, 0).expect("just seen").to_string();
    assert!(why.contains("RDMA device"), "{why}");
    // What it has to say was taken: nobody looks at it again and again.
    kit.steps(10);
    let (until, mut polls) = (Instant::now() + Duration::from_millis(300), 0);
    while Instant::now() < until {
        kit.step();
        polls += 1;
    }
    assert!(polls < 300, "{polls} polls of two milliseconds in 300 of them");
    assert!(takes.try_wait().expect("a child").is_none_or(|status| status.success()));
}
