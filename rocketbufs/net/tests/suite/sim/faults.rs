//! Misuse of the simulated network, and the faults that it injects.

use std::time::Duration;

use rocketnet::{ConnId, Down, Event, NotWritten, QueueFull, Transport, TransportError};
use rocketnet_sim::SimConfig;

use super::traffic::{Buffer, Pair, adopt, kinds, pair, poll, run_out, settle};

fn down_of(events: &[Event], conn: ConnId) -> Option<&Down> {
    events.iter().find_map(|event| match event {
        Event::Down(of, reason) if *of == conn => Some(reason),
        _ => None,
    })
}

fn controls(events: &[Event]) -> Vec<u8> {
    let bytes = events.iter().filter_map(|event| match event {
        Event::Control(_, bytes) => Some(bytes.clone()),
        _ => None,
    });
    bytes.flatten().collect()
}

/// A full sink of `size` bytes queued and flushed at `a`.
fn sending(p: &mut Pair, size: u64) -> Buffer {
    let mut buffer = Buffer::new(p, 1, 4096);
    assert!(buffer.append(size));
    buffer.send(p, size);
    p.a.flush(p.ca);
    buffer
}

#[test]
fn unflushed_bytes_do_not_leave() {
    for config in kinds() {
        let mut p = pair(1, config);
        p.a.control(p.ca, b"x").unwrap();
        let (_, b) = run_out(&mut p);
        assert!(b.is_empty());
        p.a.flush(p.ca);
        assert_eq!(controls(&run_out(&mut p).1), b"x");
    }
}

#[test]
fn bytes_are_read_when_the_network_takes_them_and_not_before() {
    for config in kinds() {
        let mut p = pair(1, config);
        let mut buffer = Buffer::new(&mut p, 1, 4096);
        assert!(buffer.append(100));
        buffer.send(&mut p, 100);
        // The ring is released too early: the next lap overwrites queued bytes.
        buffer.source_hold.advance(100);
        buffer.source.grant();
        assert!(buffer.append(4096));
        p.a.flush(p.ca);
        run_out(&mut p);
        let landed = buffer.sink.view(0, 100).to_vec().unwrap();
        assert_eq!(landed, buffer.source.view(4096, 4196).to_vec().unwrap());
    }
}

#[test]
fn part_of_a_range_is_announced_as_it_comes() {
    let mut parts = 0;
    for seed in 0..8 {
        let mut p = pair(seed, SimConfig { window_bytes: 100, ..SimConfig::stream() });
        let mut buffer = sending(&mut p, 1000);
        while buffer.sink.boundary() < 1000 {
            let before = buffer.sink.head();
            let arrived = poll(&mut p.b).iter().any(|event| matches!(event, Event::Arrived(..)));
            assert_eq!(arrived, buffer.sink.head() > before || buffer.sink.boundary() == 1000);
            parts += usize::from(arrived && buffer.sink.head() < 1000 && buffer.sink.boundary() == 0);
            buffer.check();
            p.net.step();
        }
    }
    assert!(parts > 20, "only {parts} parts");
}

#[test]
fn memory_comes_before_the_notification() {
    let mut p = pair(1, SimConfig::one_sided());
    let buffer = sending(&mut p, 500);
    settle(&p.net);
    assert_eq!(buffer.sink.head(), 0);
    let memory = buffer.sink.view(0, 500).to_vec().unwrap();
    assert_eq!(memory, buffer.source.view(0, 500).to_vec().unwrap());
    assert!(matches!(poll(&mut p.a)[..], [Event::Landed(_, 1, 500)]));
    assert!(matches!(poll(&mut p.b)[..], [Event::Arrived(_, 1)]));
    assert_eq!(buffer.sink.boundary(), 500);
}

#[test]
fn landed_bytes_stay_in_the_head_after_each_fault() {
    for seed in 0..32 {
        let mut p = pair(seed, SimConfig::one_sided());
        let mut buffer = Buffer::new(&mut p, 1, 4096);
        for _ in 0..10 {
            assert!(buffer.append(100));
            buffer.send(&mut p, 100);
        }
        p.b.pause(p.cb, seed % 2 == 0);
        p.a.flush(p.ca);
        for _ in 0..seed {
            p.net.step();
        }
        p.net.cut(p.ca);
        settle(&p.net);
        let told = poll(&mut p.a);
        let landed = told.iter().filter_map(|event| match event {
            Event::Landed(_, _, to) => Some(*to),
            _ => None,
        });
        let landed = landed.max().unwrap_or(0);
        p.b.pause(p.cb, false);
        let mut events = Vec::new();
        while down_of(&events, p.cb).is_none() {
            events.extend(poll(&mut p.b));
        }
        assert!(buffer.sink.head() >= landed);
        buffer.check();
    }
}

#[test]
fn writes_wait_for_receives() {
    for config in [SimConfig::one_sided(), SimConfig::unordered()] {
        let depth = config.receive_depth as u64;
        let mut p = pair(3, config);
        for n in 0..20u8 {
            p.a.control(p.ca, &[n]).unwrap();
        }
        let mut buffers: Vec<Buffer> = (1..13).map(|wire| Buffer::new(&mut p, wire, 4096)).collect();
        for buffer in &mut buffers {
            assert!(buffer.append(10));
            buffer.send(&mut p, 10);
        }
        p.a.flush(p.ca);
        settle(&p.net);
        assert!(p.net.trace().contains("rnr"));
        let landed = poll(&mut p.a).iter().filter(|event| matches!(event, Event::Landed(..))).count();
        assert!(landed as u64 <= depth);
        let (_, b) = run_out(&mut p);
        assert_eq!(controls(&b), (0..20).collect::<Vec<u8>>());
        buffers.iter_mut().for_each(|buffer| assert_eq!(buffer.sink.head(), 10));
    }
}

#[test]
fn an_unordered_network_passes_data_by_controls() {
    let (mut before, mut after) = (0, 0);
    for seed in 0..32 {
        let mut p = pair(seed, SimConfig::unordered());
        p.a.control(p.ca, b"x").unwrap();
        let _buffer = sending(&mut p, 100);
        let (_, b) = run_out(&mut p);
        match b[..] {
            [Event::Control(..), Event::Arrived(..)] => before += 1,
            [Event::Arrived(..), Event::Control(..)] => after += 1,
            _ => panic!("{b:?}"),
        }
    }
    assert!(before > 0 && after > 0, "{before} and {after}");
}

#[test]
fn a_full_queue_reports_when_it_has_room() {
    for config in kinds() {
        let mut p = pair(1, SimConfig { queue_writes: 2, ..config });
        let mut buffer = Buffer::new(&mut p, 1, 4096);
        assert!(buffer.append(30));
        for n in 0..2 {
            let range = buffer.range(n * 10, n * 10 + 10);
            p.a.write(p.ca, 1, range, false).unwrap();
        }
        assert_eq!(p.a.room(p.ca), 0);
        let third = buffer.range(20, 30);
        assert_eq!(p.a.write(p.ca, 1, third, false), Err(NotWritten::QueueFull));
        p.a.control(p.ca, b"a control message has its own reserve").unwrap();
        p.a.flush(p.ca);
        let (a, _) = run_out(&mut p);
        assert_eq!(a.iter().filter(|event| matches!(event, Event::Writable(_))).count(), 1);
        assert!(p.a.room(p.ca) > 0);
    }
}

#[test]
fn a_partition_delays_and_loses_nothing() {
    for config in kinds() {
        let mut p = pair(1, config);
        p.net.partition("b", "a", p.net.now() + 5_000_000_000);
        let healed = p.net.now() + 5_000_000_000;
        let mut buffer = sending(&mut p, 1000);
        p.net.advance_to(healed - 1);
        assert!(poll(&mut p.b).is_empty());
        run_out(&mut p);
        assert!(p.net.now() >= healed);
        assert_eq!(buffer.sink.boundary(), 1000);
        buffer.check();

        p.net.partition("a", "b", u64::MAX);
        p.a.control(p.ca, b"x").unwrap();
        p.a.flush(p.ca);
        assert!(run_out(&mut p).1.is_empty());
        let refused = p.a.connect(&p.addr).unwrap();
        let (a, _) = run_out(&mut p);
        assert!(matches!(down_of(&a, refused), Some(Down::Refused { .. })));
        p.net.heal("a", "b");
        assert_eq!(controls(&run_out(&mut p).1), b"x");
    }
}

#[test]
fn a_cut_connection_is_down_at_both_ends_and_releases_its_rings() {
    for config in kinds() {
        for seed in 0..16 {
            let mut p = pair(seed, config.clone());
            let mut buffer = sending(&mut p, 2000);
            for _ in 0..seed {
                p.net.step();
            }
            p.net.cut(p.cb);
            let (a, b) = run_out(&mut p);
            assert!(matches!(down_of(&a, p.ca), Some(Down::Broken(_))));
            assert!(matches!(down_of(&b, p.cb), Some(Down::Broken(_))));
            buffer.check();
            assert_eq!((p.a.room(p.ca), p.a.control(p.ca, b"x")), (0, Err(QueueFull)));
            assert!(p.b.unbind(p.cb, 1).is_some());
            p.a.forget(p.ca);
            p.b.forget(p.cb);
            assert!(p.b.unbind(p.cb, 1).is_none());
        }
    }
}

#[test]
fn a_killed_host_is_silent_and_its_name_can_live_again() {
    for config in kinds() {
        let mut p = pair(1, config);
        let _buffer = sending(&mut p, 1000);
        p.net.kill("b");
        assert!(poll(&mut p.b).is_empty());
        assert!(matches!(p.b.connect(&p.addr), Err(TransportError::Address { .. })));
        let (a, b) = run_out(&mut p);
        assert!(matches!(down_of(&a, p.ca), Some(Down::Broken(_))));
        assert!(b.is_empty());
        let mut again = p.net.host("b");
        assert_eq!(again.listen(&p.addr).unwrap(), p.addr);
        p.a.connect(&p.addr).unwrap();
        adopt(&p.net, &mut again);
    }
}

#[test]
fn a_peer_that_breaks_the_protocol_is_distinguished() {
    for config in kinds() {
        let mut p = pair(1, config.clone());
        let buffer = sending(&mut p, 10);
        p.a.write(p.ca, 2, buffer.range(0, 10), false).unwrap();
        p.a.flush(p.ca);
        let (_, b) = run_out(&mut p);
        assert_eq!(down_of(&b, p.cb), Some(&Down::UnknownWire(2)));

        let mut p = pair(1, config.clone());
        let mut buffer = sending(&mut p, 4000);
        run_out(&mut p);
        buffer.source_hold.advance(4000);
        assert!(buffer.append(200));
        p.a.write(p.ca, 1, buffer.range(4000, 4200), false).unwrap();
        p.a.flush(p.ca);
        let (_, b) = run_out(&mut p);
        let overrun = Down::Overrun { wire: 1, at: 4000, size: 200, over: 104 };
        assert_eq!(down_of(&b, p.cb), Some(&overrun));
        assert_eq!(buffer.sink.head(), 4000);

        let mut p = pair(1, config.clone());
        p.a.control(p.ca, &vec![0; config.max_control_bytes + 1]).unwrap();
        p.a.flush(p.ca);
        let (a, b) = run_out(&mut p);
        assert!(matches!(down_of(&b, p.cb), Some(Down::ControlTooLarge { size: 4097, max: 4096 })));
        assert!(matches!(down_of(&a, p.ca), Some(Down::Broken(_))));
    }
}

#[test]
fn a_close_waits_for_queued_bytes_as_long_as_it_may() {
    for config in kinds() {
        let mut p = pair(1, SimConfig { window_bytes: 32, ..config.clone() });
        let mut buffer = sending(&mut p, 1000);
        p.a.close(p.ca, "done", Duration::from_secs(1));
        let (a, b) = run_out(&mut p);
        assert_eq!(down_of(&a, p.ca), Some(&Down::Local("done".to_owned())));
        assert_eq!(down_of(&b, p.cb), Some(&Down::PeerClosed));
        assert_eq!(buffer.sink.boundary(), 1000);
        buffer.check();

        let mut p = pair(1, SimConfig { window_bytes: 32, ..config });
        p.net.partition("a", "b", u64::MAX);
        let _buffer = sending(&mut p, 1000);
        let closed = p.net.now();
        p.a.close(p.ca, "in vain", Duration::from_secs(1));
        let (a, _) = run_out(&mut p);
        assert_eq!(down_of(&a, p.ca), Some(&Down::Local("in vain".to_owned())));
        assert!(p.net.now() >= closed + 1_000_000_000);
    }
}

#[test]
fn connections_are_limited_refused_and_shared_by_workers() {
    let config = SimConfig { max_connections: 1, ..SimConfig::stream() };
    let mut p = pair(1, config);
    assert!(matches!(p.a.connect(&p.addr), Err(TransportError::TooManyConnections { open: 1, max: 1 })));
    let mut c = p.net.host("c");
    let refused = c.connect("nobody:1").unwrap();
    settle(&p.net);
    assert!(matches!(down_of(&poll(&mut c), refused), Some(Down::Refused { .. })));
    c.forget(refused);
    assert!(matches!(p.b.listen(&p.addr), Err(TransportError::Address { .. })));
    assert!(matches!(c.connect("no port"), Err(TransportError::Address { .. })));

    // The second worker of the host adopts a connection that the first worker accepted.
    let mut worker = p.net.host("b");
    let taken = c.connect(&p.addr).unwrap();
    let incoming = loop {
        if let Some(Event::Incoming(accepted)) = poll(&mut p.b).pop() {
            break accepted;
        }
        assert!(p.net.step());
    };
    assert_eq!(incoming.local, p.addr);
    let adopted = worker.adopt(incoming).unwrap();
    c.control(taken, b"hello").unwrap();
    c.flush(taken);
    settle(&p.net);
    assert!(matches!(&poll(&mut worker)[..], [Event::Control(conn, _)] if *conn == adopted));

    // A connection that no worker adopts is refused in the end.
    poll(&mut c);
    c.forget(taken);
    let ignored = c.connect(&p.addr).unwrap();
    settle(&p.net);
    assert!(down_of(&poll(&mut c), ignored).is_some());

    // After `unlisten` connections are refused, and adopted connections continue.
    worker.unlisten(&p.addr); // not its own
    p.b.unlisten(&p.addr);
    c.forget(ignored);
    let refused = c.connect(&p.addr).unwrap();
    settle(&p.net);
    assert!(matches!(down_of(&poll(&mut c), refused), Some(Down::Refused { .. })));
    assert!(down_of(&poll(&mut p.a), p.ca).is_none());
}
