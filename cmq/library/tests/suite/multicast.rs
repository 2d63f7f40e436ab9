//! Multicast on this machine.

use std::net::{IpAddr, SocketAddr};

use cmq::{Cmq, Config, Interface, new_rq_with};
use testkit::{LONG, own_port};

#[test]
fn every_member_of_a_group_gets_it() {
    // The system gives a port that is shared to any other socket that shares ports.
    let port = own_port();
    let open = || -> Cmq<u32> {
        new_rq_with(("0.0.0.0", port), Config::default().reuse_address(true)).expect("the port is shared")
    };
    let (first, second) = (open(), open());
    let group: IpAddr = "239.77.0.9".parse().expect("a group");
    let by = Interface::Name("lo".into());
    for queue in [&first, &second] {
        queue.multicast().join(group, &by).expect("loopback has multicast");
    }
    let sender: Cmq<u32> = new_rq_with("0.0.0.0:0", Config::immediate()).expect("a queue");
    sender.multicast().set_interface(&by, 0).expect("loopback");
    let to = SocketAddr::new(group, port);
    for number in 0..10 {
        sender.cw_push((to, 0), &number).expect("room");
    }
    for queue in [&first, &second] {
        for number in 0..10 {
            assert_eq!(queue.pop_timeout(LONG).expect("the queue is a member").0, number);
        }
    }
    second.multicast().leave(group, &by).expect("the queue was a member");
    assert!(second.multicast().leave(group, &by).is_err(), "the queue is no member any more");
    second.multicast().join(group, &by).expect("again");
    sender.cw_push((to, 0), &10).expect("room");
    assert_eq!(second.pop_timeout(LONG).expect("the queue is a member again").0, 10);
    assert!(sender.multicast().join("127.0.0.1".parse().expect("no group"), &by).is_err());
    // Unicast and multicast of one sender are two streams.
    let from = sender.local_addr().port();
    let unicast = SocketAddr::from(([127, 0, 0, 1], port));
    sender.cw_push((unicast, 0), &12).expect("room");
    assert_eq!(second.pop_timeout(LONG).expect("the queue that was bound last").0, 12);
    assert_eq!(second.senders().iter().filter(|sender| sender.from.port() == from).count(), 2);
}
