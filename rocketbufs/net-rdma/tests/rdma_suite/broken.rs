//! Reported reasons when the network changes under a connection. Each test restores the network and connects again.

use std::process::Command;

use rocketnet::Down;
use rocketnet::conformance::{Flow, Kit};
use rocketnet_rdma::RdmaConfig;

use crate::common::{RdmaLab, until_down};

const CAPACITY: u64 = 256 << 10;

fn run(command: &str) {
    let mut words = command.split(' ');
    let program = words.next().expect("a program");
    let status = Command::new(program).args(words).status().expect("the program is in the virtual machine");
    assert!(status.success(), "{command}: {status}");
}

/// A change of the machine, and the commands that take it back on drop.
struct Changed(&'static [&'static str]);

impl Changed {
    fn by(change: &[&str], back: &'static [&'static str]) -> Self {
        let changed = Self(back);
        change.iter().copied().for_each(run);
        changed
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        self.0.iter().copied().for_each(run);
    }
}

/// Connects again, and sends data.
fn goes_on(kit: &mut Kit<'_, RdmaLab>) {
    let conn = kit.connect();
    let mut flow = Flow::new(kit, conn, 1, 1, CAPACITY, 0);
    flow.run(kit, 200_000, || 50_000);
}

/// Packets are lost in either direction: first those with data, then those with acknowledgements.
#[test]
fn a_peer_that_stops_answering() {
    let Some(mut lab) = RdmaLab::soon() else { return };
    let changes: [(&[&str], &'static [&'static str]); 2] = [
        (&["tc qdisc add dev rdma1 root netem loss 100%"], &["tc qdisc del dev rdma1 root"]),
        (&["tc qdisc add dev rdma0 root netem loss 100%"], &["tc qdisc del dev rdma0 root"]),
    ];
    for (change, back) in changes {
        let mut kit = Kit::connected(&mut lab);
        let mut flow = Flow::new(&mut kit, 0, 1, 1, CAPACITY, 0);
        flow.run(&mut kit, 100_000, || 10_000);
        let changed = Changed::by(change, back);
        let why = until_down(&mut kit, &mut flow, 10_000);
        assert!(matches!(&why, Down::Broken(why) if why.contains("does not answer")), "{why}");
        drop(changed);
        goes_on(&mut kit);
    }
}

/// No transfer is in flight, so no acknowledgement is missing. Only the port's event reports the failure, at the other end of
/// the cable too, which loses its carrier.
#[test]
fn a_port_that_goes_down_is_named_at_both_ends() {
    let Some(mut lab) = RdmaLab::new(RdmaConfig::default()) else { return };
    let mut kit = Kit::connected(&mut lab);
    let mut flow = Flow::new(&mut kit, 0, 1, 1, CAPACITY, 0);
    flow.run(&mut kit, 100_000, || 10_000);
    // The port is up again before the first poll: the connection manager's queue pair of Soft-RoCE does not survive a
    // disconnect without a route. The route, and both ends' knowledge of hardware addresses, are lost with the port, and
    // restored here.
    for change in [
        "ip link set rdma1 down",
        "ip link set rdma1 up",
        "ip route add 192.0.2.1 dev rdma1 src 192.0.2.2 table 101",
        "ping -q -c 1 -W 5 192.0.2.1",
        "ping -q -c 1 -W 5 192.0.2.2",
    ] {
        run(change);
    }
    kit.until("Down at both ends", |kit| kit.down(0, 0).is_some() && kit.down(0, 1).is_some());
    for (end, device) in [(0, "rxe0"), (1, "rxe1")] {
        let why = kit.down(0, end).expect("just seen").to_string();
        assert!(why.contains(&format!("port 1 of the RDMA device {device} went down")), "{why}");
    }
    goes_on(&mut kit);
}

#[test]
fn an_interface_of_ordinary_packets() {
    let Some(mut lab) = RdmaLab::soon() else { return };
    let _changed = Changed::by(
        &["ip link set rdma0 mtu 1500", "ip link set rdma1 mtu 1500"],
        &["ip link set rdma0 mtu 4200", "ip link set rdma1 mtu 4200"],
    );
    goes_on(&mut Kit::new(&mut lab));
}

/// The receiver's interface gets a smaller MTU than the sender's: small packets arrive, larger ones are lost.
#[test]
fn an_interface_that_takes_less_than_the_other_end() {
    let Some(mut lab) = RdmaLab::soon() else { return };
    let mut kit = Kit::connected(&mut lab);
    let mut flow = Flow::new(&mut kit, 0, 1, 1, CAPACITY, 0);
    flow.run(&mut kit, 100_000, || 10_000);
    // With a queue before the cable packets are lost silently. Without a queue the sender's driver gets an error, and tries
    // for ever.
    let changed = Changed::by(
        &["tc qdisc add dev rdma1 root netem limit 1000", "ip link set rdma0 mtu 1500"],
        &["ip link set rdma0 mtu 4200", "tc qdisc del dev rdma1 root"],
    );
    let why = until_down(&mut kit, &mut flow, 10_000).to_string();
    assert!(why.contains("packets larger than the way takes are lost"), "{why}");
    drop(changed);
    goes_on(&mut kit);
}
