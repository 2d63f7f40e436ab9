//! A program over TCP and shared memory by configuration alone: the same cases, the same bytes.

use std::time::{Duration, Instant};

use rocketbufs::config::TransportKind;
use rocketbufs::{
    BufferOptions, Conn, Context, Coverage, InEvent, Listener, Policy, ProgressLevel, RIn, ROut, Start,
    UnixPeer,
};

use crate::ends::{WAIT, config, connect, context, pattern, ring_of, sender, subscribe, take, write};

const KINDS: [TransportKind; 3] = [TransportKind::Tcp, TransportKind::Shm, TransportKind::Auto];

#[test]
fn streams_more_than_the_rings_hold() {
    for kind in KINDS {
        for (piece, start) in [(1, 0), (100, u64::from(u32::MAX) - 5_000), (20_000, (1 << 63) - 100_000)] {
            let (ctx, other) = (context(kind), context(kind));
            let (out, listener) = sender(&ctx);
            let options = BufferOptions::new().size_bytes(1 << 17).start(start);
            out.create_buffer_with(1, options).unwrap();
            let conn = connect(&other, &listener);
            let expected = if kind == TransportKind::Tcp { "tcp" } else { "shm" };
            let carrier = conn.carrier().unwrap();
            assert_eq!(carrier.name, expected, "{}", carrier.why);
            let input = RIn::new(&conn);
            assert_eq!(subscribe(&input, 1, ring_of(1 << 16)), start);
            let total = if piece == 1 { 50_000 } else { 3_000_000 };
            std::thread::scope(|scope| {
                scope.spawn(|| write(&out, 1, total, piece));
                assert_eq!(take(&input, start, start + total), 0);
            });
            assert_eq!(other.mapped().0, usize::from(kind != TransportKind::Tcp));
        }
    }
}

/// Both ends learn which process is at the other end of a local socket, the listener before it accepts.
#[test]
fn the_other_process_is_known() {
    for kind in KINDS {
        let (ctx, other) = (context(kind), context(kind));
        let (out, listener) = (ROut::new(&ctx), Listener::bind(&ctx, "127.0.0.1:0").unwrap());
        let (tell, offered) = std::sync::mpsc::sync_channel(1);
        listener.set_conn_cb(move |conn| {
            tell.send(conn.peer_identity()).unwrap();
            out.add_conn(&conn);
        });
        let conn = connect(&other, &listener);
        for identity in [conn.peer_identity(), offered.recv_timeout(WAIT).unwrap()] {
            assert!(identity.certificate.is_none() && !identity.encrypted);
            assert_eq!(identity.unix.is_some(), kind != TransportKind::Tcp);
            if let Some(unix) = identity.unix {
                let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
                assert_eq!(unix, UnixPeer { pid: std::process::id(), uid, gid });
            }
        }
    }
}

/// With the setting that trusts them, memory that other processes write is borrowed as a plain slice.
#[test]
fn bytes_of_trusted_writers_are_borrowed() {
    for kind in KINDS {
        let ctx = context(kind);
        let mut trusting = config(kind);
        trusting.shm.trust_writers = true;
        let other = Context::new(trusting).unwrap();
        let (out, listener) = sender(&ctx);
        out.create_buffer(1, 1 << 16).unwrap();
        let input = RIn::new(&connect(&other, &listener));
        subscribe(&input, 1, ring_of(1 << 16));
        write(&out, 1, 5_000, 5_000);
        let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("nothing came") };
        assert_eq!(view.as_slice().unwrap(), pattern(0, 5_000));
        assert_eq!(
            other.memory_in_use() == 0,
            kind != TransportKind::Tcp,
            "the subscriber has no ring of its own"
        );
    }
}

/// A subscriber that asks for plain bytes, or for a ring of exactly its size, gets a ring of its own.
#[test]
fn an_application_can_have_memory_of_its_own() {
    for kind in KINDS {
        let (ctx, other) = (context(kind), context(kind));
        let (out, listener) = sender(&ctx);
        out.create_buffer(1, 1 << 18).unwrap();
        let input = RIn::new(&connect(&other, &listener));
        input.subscribe_with(1, ring_of(1 << 17).own_memory(true)).unwrap();
        assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
        assert_eq!((other.mapped().0, other.memory_in_use()), (0, 1 << 17));
        write(&out, 1, 5_000, 5_000);
        let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("nothing came") };
        assert_eq!(view.as_slice().unwrap(), pattern(0, 5_000));
        view.consume();
        std::thread::scope(|scope| {
            scope.spawn(|| write(&out, 1, 3 << 20, 20_000));
            assert_eq!(take(&input, 5_000, 5_000 + (3 << 20)), 0);
        });
    }
}

/// A subscription with the policy `drop` gets LOST for every hole, and all other bytes are right.
#[test]
fn a_dropping_subscriber_loses_only_reported_ranges() {
    for kind in KINDS {
        let (ctx, other) = (context(kind), context(kind));
        let (out, listener) = sender(&ctx);
        out.create_buffer(1, 1 << 16).unwrap();
        let input = RIn::new(&connect(&other, &listener));
        subscribe(&input, 1, ring_of(1 << 16).policy(Policy::Drop));
        // The subscriber does not read now.
        write(&out, 1, 1 << 20, 1000);
        let end = 1 << 20;
        assert!(take(&input, 0, end) > 0, "{kind}");
        // The subscriber keeps up again after its next CREDIT. Until then its lag still has all bytes that it had not read.
        let until = Instant::now() + WAIT;
        while out.buffer(1).unwrap().subscribers()[0].landed < end {
            assert!(Instant::now() < until, "{kind}: the subscriber never reports that it has caught up");
            out.buffer(1).unwrap().refresh_subscribers();
            std::thread::sleep(Duration::from_millis(1));
        }
        write(&out, 1, 5_000, 5_000);
        assert_eq!(take(&input, end, end + 5_000), 0, "{kind}");
    }
}

#[test]
fn overwritable_buffers_hand_out_only_verified_deliveries() {
    for kind in KINDS {
        let (ctx, other) = (context(kind), context(kind));
        let (out, listener) = sender(&ctx);
        let options = BufferOptions::new().size_bytes(1 << 16).flow_control(false);
        out.create_buffer_with(1, options).unwrap();
        let input = RIn::new(&connect(&other, &listener));
        subscribe(&input, 1, ring_of(1 << 16).policy(Policy::Overwrite));
        let (mut got, mut end) = (0, 0);
        for round in 0..200 {
            write(&out, 1, 4_000, 400);
            let wait = if round == 199 { Duration::from_millis(500) } else { Duration::ZERO };
            while let Some(received) = input.recv(Some(wait)).unwrap() {
                match received {
                    InEvent::Data(view) => {
                        if let Ok(bytes) = view.to_vec() {
                            assert_eq!(bytes, pattern(view.position(), bytes.len()));
                            got += 1;
                        }
                        end = view.end();
                        view.consume();
                    }
                    InEvent::Lost { to, .. } => end = to,
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(got > 0 && end > 0, "{kind}: nothing came");
    }
}

/// A publisher and a broker with subscribers over shared memory and over TCP.
#[test]
fn all_subscribers_of_a_splice_get_the_same_bytes() {
    let auto = TransportKind::Auto;
    let (ctx, broker) = (context(auto), context(auto));
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 18).unwrap();
    let (relay, relays) = sender(&broker);
    let upstream = RIn::new(&connect(&broker, &listener));
    relay.splice(&upstream, 1).err();
    upstream.subscribe(1, 1 << 18).unwrap();
    relay.splice(&upstream, 1).unwrap();
    let contexts = [auto, TransportKind::Shm, TransportKind::Tcp, TransportKind::Tcp].map(context);
    let inputs: Vec<RIn> = contexts
        .iter()
        .map(|ctx| {
            let input = RIn::new(&connect(ctx, &relays));
            subscribe(&input, 1, ring_of(1 << 18).start(Start::Oldest));
            input
        })
        .collect();
    let total = 8 << 20;
    std::thread::scope(|scope| {
        scope.spawn(|| write(&out, 1, total, 30_000));
        for input in &inputs {
            scope.spawn(move || assert_eq!(take(input, 0, total), 0));
        }
    });
    assert_eq!(broker.memory_in_use(), 0, "the broker's ring is the publisher's");
    assert_eq!(contexts.map(|ctx| ctx.mapped().0), [1, 1, 0, 0]);
    out.destroy_buffer(1).unwrap();
    for input in &inputs {
        assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Closed { bid: 1, .. })));
    }
}

/// The file that is mapped at an address, and the offset of the address in the file.
fn file_at(addr: usize) -> (String, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let hex = |text: &str| usize::from_str_radix(text, 16).unwrap();
    let found = maps.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [range, _, offset, _, inode, name, ..] = fields[..] else { return None };
        let (from, to) = range.split_once('-')?;
        let within = (hex(from)..hex(to)).contains(&addr);
        within.then(|| (format!("{name} {inode}"), hex(offset) + addr - hex(from)))
    });
    found.expect("the address is mapped")
}

/// A callback gets bytes in the publisher's ring, uncopied, also through a broker.
#[test]
fn a_callback_is_given_the_publishers_memory() {
    let (ctx, broker, remote) =
        (context(TransportKind::Shm), context(TransportKind::Auto), context(TransportKind::Tcp));
    let mut trusting = config(TransportKind::Shm);
    trusting.shm.trust_writers = true;
    let other = Context::new(trusting).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let (relay, relays) = sender(&broker);
    let upstream = RIn::new(&connect(&broker, &listener));
    relay.splice_with(&upstream, 1, 1, ring_of(1 << 16)).unwrap();
    let input = RIn::new(&connect(&other, &relays));
    let (given, got) = std::sync::mpsc::sync_channel(16);
    input.set_data_in_cb(move |_, seg| {
        let bytes = seg.as_slice().expect("their word is taken");
        given.send((bytes.as_ptr() as usize, bytes.to_vec())).unwrap();
    });
    let (answered, answers) = std::sync::mpsc::sync_channel(16);
    input.set_event_cb(move |event| answered.send(matches!(event, InEvent::Subscribed { .. })).unwrap());
    input.subscribe(1, 1 << 16).unwrap();
    assert!(answers.recv_timeout(WAIT).unwrap());
    let far = RIn::new(&connect(&remote, &relays));
    subscribe(&far, 1, ring_of(1 << 16));
    for at in (0..100_000).step_by(5_000) {
        let mut segment = out.buffer(1).unwrap().segment(5_000, Some(WAIT)).unwrap();
        let written = segment.bytes_mut();
        written.copy_from_slice(&pattern(at, 5_000));
        let place = file_at(written.as_ptr() as usize);
        assert!(place.0.contains("memfd"), "{place:?}");
        out.deliver(segment, 5_000, None).unwrap();
        let (addr, bytes) = got.recv_timeout(WAIT).unwrap();
        assert!(bytes == pattern(at, 5_000));
        // Rings are mapped twice, so the same place can have two addresses here.
        assert_eq!(file_at(addr), place);
        input.data_consumed(1, 5_000).unwrap();
        assert_eq!(take(&far, at, at + 5_000), 0);
    }
    assert_eq!(
        [&upstream, &input, &far]
            .map(|input| input.subscription(1).and_then(|s| s.info()).map(|info| info.copied_bytes)),
        [Some(0), Some(0), Some(100_000)]
    );
    assert_eq!(input.subscription(2).and_then(|s| s.info()).map(|info| info.copied_bytes), None);
}

/// A buffer that comes over TCP goes to subscribers on the broker's machine through the broker's own ring, if other processes
/// can map that ring. Where the splice comes after the answer, the subscription must have asked for such a ring.
#[test]
fn from_tcp_to_shared_memory() {
    for (retain_bytes, local_mapped) in [(Some(1 << 16), (1, 0)), (None, (0, 1 << 17))] {
        let (ctx, broker, local) =
            (context(TransportKind::Tcp), context(TransportKind::Auto), context(TransportKind::Shm));
        let (out, listener) = sender(&ctx);
        out.create_buffer(1, 1 << 17).unwrap();
        let (relay, relays) = sender(&broker);
        let upstream = RIn::new(&connect(&broker, &listener));
        assert_eq!(upstream.conn().carrier().unwrap().name, "tcp");
        subscribe(&upstream, 1, ring_of(1 << 17).retain_bytes(retain_bytes));
        relay.splice(&upstream, 1).unwrap();
        let input = RIn::new(&connect(&local, &relays));
        subscribe(&input, 1, ring_of(1 << 17));
        std::thread::scope(|scope| {
            scope.spawn(|| write(&out, 1, 3 << 20, 10_000));
            assert_eq!(take(&input, 0, 3 << 20), 0);
        });
        assert_eq!((local.mapped().0, local.memory_in_use()), local_mapped, "{retain_bytes:?}");
    }
}

/// The log continues over another connection, in memory that is mapped anew, also with unread bytes.
#[test]
fn a_subscription_continues_over_another_connection() {
    for kind in KINDS {
        let (ctx, other) = (context(kind), context(kind));
        let (out, listener) = sender(&ctx);
        out.create_buffer(1, 1 << 16).unwrap();
        let input = RIn::new(&connect(&other, &listener));
        let name = ring_of(1 << 16).durable(b"me", WAIT);
        subscribe(&input, 1, name);
        write(&out, 1, 10_000, 1_000);
        let Some(InEvent::Data(held)) = input.recv(Some(WAIT)).unwrap() else { panic!("nothing came") };
        let first = input.conn();
        input.resume(&connect(&other, &listener));
        first.wait_down(Some(WAIT)).unwrap().expect("the connection is closed");
        write(&out, 1, 10_000, 1_000);
        assert_eq!(held.to_vec().unwrap(), pattern(0, held.len()));
        let from = held.end();
        held.consume();
        let mut at = from;
        while at < 20_000 {
            match input.recv(Some(WAIT)).unwrap() {
                Some(InEvent::Data(view)) => {
                    assert_eq!((view.position(), view.to_vec().unwrap()), (at, pattern(at, view.len())));
                    at = view.end();
                    view.consume();
                }
                Some(InEvent::ConnDown { .. } | InEvent::Subscribed { .. }) => {}
                other => panic!("{kind} at {at}: {other:?}"),
            }
        }
        assert!(other.mapped().0 <= 1, "{kind}");
    }
}

/// A view that was overwritten while the connection was lost is not confirmed, although the application releases it.
#[test]
fn overwritten_views_are_not_confirmed() {
    let (ctx, other) = (context(TransportKind::Shm), context(TransportKind::Shm));
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let first = connect(&other, &listener);
    let input = RIn::new(&first);
    subscribe(&input, 1, ring_of(1 << 16));
    write(&out, 1, 48_000, 16_000);
    let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("nothing came") };
    assert_eq!(take(&input, view.end(), 48_000), 0);
    first.close("");
    first.wait_down(Some(WAIT)).unwrap().expect("the connection is closed");
    let buffer = out.buffer(1).unwrap();
    let started = Instant::now();
    while buffer.subscriber_count() > 0 {
        assert!(started.elapsed() < WAIT, "the subscription is still there");
        std::thread::sleep(Duration::from_millis(1));
    }
    write(&out, 1, 20_000, 1_000);
    assert!(view.to_vec().is_err(), "nothing was overwritten");
    let end = view.end();
    view.consume();
    input.resume(&connect(&other, &listener));
    write(&out, 1, 1_000, 1_000);
    let mut at = 48_000;
    while at < 69_000 {
        match input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Data(view)) => {
                assert_eq!((view.position(), view.to_vec().unwrap()), (at, pattern(at, view.len())));
                at = view.end();
                view.consume();
            }
            Some(InEvent::ConnDown { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    buffer.wait(ProgressLevel::Consumed, 69_000, Some(WAIT)).unwrap();
    assert_eq!(
        buffer.confirmed().coverage,
        Coverage { covered_from: end, left: 1, lost: 1, ..Coverage::ONE }
    );
}

/// Bytes in the sender's memory have landed only if the sender keeps them without a connection, or once they are released.
#[test]
fn landed_bytes_stay_without_a_connection() {
    for kind in KINDS {
        for (name, policy) in [(&b""[..], Policy::Block), (b"me", Policy::Block), (b"me", Policy::Disconnect)]
        {
            let (ctx, other) = (context(kind), context(kind));
            let (out, listener) = sender(&ctx);
            out.create_buffer(1, 1 << 16).unwrap();
            let input = RIn::new(&connect(&other, &listener));
            let options = ring_of(1 << 16).durable(name, WAIT).policy(policy);
            subscribe(&input, 1, options);
            write(&out, 1, 5_000, 5_000);
            let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("nothing came") };
            let kept = kind == TransportKind::Tcp || (policy == Policy::Block && !name.is_empty());
            if kept {
                out.buffer(1).unwrap().wait(ProgressLevel::Landed, 5_000, Some(WAIT)).unwrap();
            } else {
                out.buffer(1).unwrap().wait(ProgressLevel::Landed, 5_000, Some(WAIT / 100)).unwrap_err();
            }
            view.consume();
            out.buffer(1).unwrap().wait(ProgressLevel::Landed, 5_000, Some(WAIT)).unwrap();
        }
    }
}

/// Without flow control data may come before the sender gets the refusal. The data is discarded, and the connection continues.
#[test]
fn data_of_a_refused_subscription_is_discarded() {
    for kind in KINDS {
        let ctx = context(kind);
        let (out, listener) = sender(&ctx);
        out.create_buffer(1, 1 << 16).unwrap();
        let options = BufferOptions::new().size_bytes(1 << 20).flow_control(false);
        out.create_buffer_with(2, options).unwrap();
        write(&out, 2, 100_000, 1_000);
        let mut few = config(kind);
        few.shm.max_shared_bytes = 1 << 16;
        few.buffers.max_ring_bytes = 1 << 20;
        let other = Context::new(few).unwrap();
        let input = RIn::new(&connect(&other, &listener));
        // As large as all memory of this end may be.
        let size = if kind == TransportKind::Tcp { 1 << 17 } else { 1 << 16 };
        subscribe(&input, 1, ring_of(size));
        let all = ring_of(1 << 20).policy(Policy::Overwrite).start(Start::Oldest);
        input.subscribe_with(2, all).unwrap();
        match input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Refused { bid: 2, .. }) => {}
            other => panic!("{kind}: {other:?}"),
        }
        write(&out, 2, 100_000, 1_000);
        write(&out, 1, 5_000, 500);
        assert_eq!(take(&input, 0, 5_000), 0, "{kind}");
    }
}

/// A subscriber that asks for memory of its own, and is refused, can ask any number of times.
#[test]
fn many_subscriptions_with_own_memory_are_refused_one_by_one() {
    let (ctx, other) = (context(TransportKind::Shm), context(TransportKind::Shm));
    let (_out, listener) = sender(&ctx);
    let input = RIn::new(&connect(&other, &listener));
    for bid in 1..=2_000 {
        input.subscribe_with(bid, ring_of(1 << 16).own_memory(true)).unwrap();
    }
    for _ in 1..=2_000 {
        let received = input.recv(Some(WAIT)).unwrap();
        assert!(matches!(received, Some(InEvent::Refused { .. })), "{received:?}");
    }
}

#[test]
fn limits_refuse_and_say_which() {
    let ctx = context(TransportKind::Shm);
    let (out, listener) = sender(&ctx);
    for bid in 1..=2 {
        out.create_buffer(bid, 1 << 16).unwrap();
    }
    let mut few = config(TransportKind::Shm);
    few.shm.max_shared_rings = 1;
    let other = Context::new(few).unwrap();
    let input = RIn::new(&connect(&other, &listener));
    subscribe(&input, 1, ring_of(1 << 16));
    input.subscribe(2, 1 << 16).unwrap();
    match input.recv(Some(WAIT)).unwrap() {
        Some(InEvent::Refused { bid: 2, error }) => {
            assert!(error.to_string().contains("max_shared_rings"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    // The first is as it was.
    write(&out, 1, 5_000, 500);
    take(&input, 0, 5_000);
}

/// Mappings and descriptors of an ended subscription are released at both ends.
#[test]
fn nothing_is_left_of_a_subscription() {
    let (ctx, other) = (context(TransportKind::Shm), context(TransportKind::Shm));
    let (out, listener) = sender(&ctx);
    let input = RIn::new(&connect(&other, &listener));
    for _ in 0..20 {
        out.create_buffer(1, 1 << 16).unwrap();
        subscribe(&input, 1, ring_of(1 << 16));
        write(&out, 1, 3_000, 300);
        take(&input, 0, 3_000);
        input.unsubscribe(1);
        out.destroy_buffer(1).unwrap();
        while other.mapped() != (0, 0) || ctx.memory_in_use() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A listener for this machine alone carries bytes in shared memory, beside one that takes peers over TCP. Peers get copies of a buffer that
/// is not for them.
#[test]
fn processes_of_this_machine_share_memory_with_a_context_over_tcp() {
    let (ctx, other) = (context(TransportKind::Tcp), context(TransportKind::Shm));
    let (out, _listener) = sender(&ctx);
    let own = Listener::bind_locally(&ctx, "127.0.0.1:0").unwrap();
    let subscribers = out.clone();
    own.set_conn_cb(move |conn| subscribers.add_conn(&conn));
    out.create_buffer_with(1, BufferOptions::new().size_bytes(1 << 16).mapped_locally(true)).unwrap();
    out.create_buffer(2, 1 << 16).unwrap();
    let conn = connect(&other, &own);
    assert_eq!(conn.carrier().unwrap().name, "shm");
    let input = RIn::new(&conn);
    for (bid, copied) in [(1, 0), (2, 1 << 16)] {
        subscribe(&input, bid, ring_of(1 << 16));
        write(&out, bid, 5_000, 5_000);
        assert_eq!(take(&input, 0, 5_000), 0);
        assert_eq!((other.mapped().0, other.memory_in_use()), (1, copied));
    }
    // Nothing listens there for peers over TCP.
    let remote = Conn::connect(&context(TransportKind::Tcp), &own.local_addr(), b"hello");
    assert!(remote.is_err());
}
