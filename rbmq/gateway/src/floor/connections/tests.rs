//! Connections whose clients read nothing.

use std::net::{TcpListener, TcpStream};

use peers::{PlaceLimits, Places};

use rustix::event::epoll;

use super::super::transport::Transport;
use super::*;
use crate::protocol::Outlets;

/// Connections, and the other ends of so many, which read nothing.
fn silent(count: usize, limits: ConnectionLimits) -> (Connections, Vec<ConnId>, Vec<TcpStream>) {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
    let (mut connections, now) = (Connections::new(epoll, limits), Instant::now());
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let places = Places::new(PlaceLimits::new(1000, "max"), |_| ());
    let (mut ids, mut others) = (Vec::new(), Vec::new());
    for _ in 0..count {
        others.push(TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens"));
        let (stream, address) = listener.accept().expect("one has connected");
        stream.set_nonblocking(true).expect("a socket");
        let place = places.enter(address.ip(), now).expect("a place");
        let socket = Socket::new(Transport::new(stream, None), None);
        ids.push(connections.add(socket, address, place, now).expect("it is watched"));
    }
    (connections, ids, others)
}

#[test]
fn what_waits_for_all_clients_together_has_a_limit() {
    let limits = ConnectionLimits { frames_bytes: 1 << 20, max_lag_bytes: 8 << 20, slow: Slow::Drop };
    let (mut connections, ids, _others) = silent(8, limits);
    let frame = vec![b'f'; 64 << 10];
    // The kernel takes some MiB for each.
    for n in 0..1000 {
        let range = connections.frame(&[&frame]);
        for id in &ids {
            // Some get every other frame, and have a piece for each.
            if n % 2 == 0 || id.0 % 2 == 0 {
                connections.push(*id, range);
            }
        }
        connections.flush();
        assert!(connections.memory <= 2 * limits.frames_bytes, "{}", connections.memory);
    }
    assert!(
        connections.counts.slow_closed > 0 && connections.take_ended().is_empty(),
        "nobody was told of them"
    );
    let charges: usize = connections.conns.iter().map(|(_, conn)| conn.charge).sum();
    assert_eq!(connections.memory, charges);
    connections.ids().into_iter().for_each(|id| connections.end(id, "the end"));
    assert_eq!((connections.memory, connections.pending), (0, 0));
}

#[test]
fn a_client_that_left_while_its_commands_wait_is_noticed() {
    let limits = ConnectionLimits { frames_bytes: 1 << 20, max_lag_bytes: 8 << 20, slow: Slow::Drop };
    let (mut connections, ids, mut others) = silent(3, limits);
    let sweep = SweepLimits { stranger: Duration::from_secs(3600), closing: Duration::from_secs(5) };
    ids.iter().for_each(|id| connections.known(*id));
    ids[..2].iter().for_each(|id| connections.block(*id, Until::Resumed));
    connections.flush();
    others.remove(0);
    let mut events = Vec::with_capacity(8);
    let spare = rustix::buffer::spare_capacity(&mut events);
    epoll::wait(connections.epoll(), spare, None).expect("the client left");
    assert_eq!((events.len(), events[0].data.u64(), events[0].flags), (1, ids[0].0, EventFlags::RDHUP));
    assert!(connections.has_left(ids[0]) && !connections.has_left(ids[2]));
    connections.mark(ids[0]);
    connections.flush();
    events.clear();
    let spare = rustix::buffer::spare_capacity(&mut events);
    let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(epoll::wait(connections.epoll(), spare, Some(&zero)), Ok(0), "it is told once");
    let now = Instant::now();
    assert!(connections.sweep(now, &sweep) && connections.len() == 3);
    assert!(!connections.sweep(now + LEFT, &sweep));
    assert_eq!(connections.ids(), ids[1..]);
    assert_eq!(connections.counts.turned_away, 0);
}

#[test]
fn a_range_that_was_overwritten_is_not_queued() {
    let limits = ConnectionLimits { frames_bytes: 1 << 20, max_lag_bytes: 8 << 20, slow: Slow::Drop };
    let (mut connections, ids, _others) = silent(1, limits);
    let first = connections.frame(&[b"first"]);
    assert!(connections.is_there(first) && connections.push(ids[0], first));
    let (early, frame) = (connections.frame(&[b"early"]), vec![b'f'; 200 << 10]);
    (0..6).for_each(|_| _ = connections.frame(&[&frame]));
    assert!(!connections.is_there(early) && !connections.push(ids[0], early));
    assert_eq!(connections.queued_bytes(ids[0]), 5, "what was queued before was copied");
}
