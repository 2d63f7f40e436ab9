//! The framework over real RDMA devices (scripts/rdma-vm): streams, many buffers, a budget, no flow control.

#[path = "suite/ends.rs"]
mod ends;
#[path = "suite/invariants.rs"]
mod invariants;
#[path = "suite/rng.rs"]
#[allow(dead_code, reason = "the suite uses more of it")]
mod rng;

use rocketbufs::config::TransportKind;
use rocketbufs::{Budget, BufferOptions, Config, Conn, Context, InEvent, Listener, Policy, RIn, ROut};

use ends::{WAIT, pattern, ring_of, sender_at, subscribe, take, write};

/// Bytes that are written behind each delivery of a buffer without flow control.
const MARKER: u64 = 16;

/// The first device's address; None, with a printed line, if there is no device.
fn device() -> Option<String> {
    let Ok(addresses) = std::env::var("ROCKETBUFS_TEST_RDMA") else {
        println!("skipped: no RDMA devices to test with; scripts/rdma-vm has some");
        return None;
    };
    addresses.split_whitespace().next().map(|addr| format!("{addr}:0"))
}

fn context() -> Context {
    context_with(|_| ())
}

fn context_with(change: impl FnOnce(&mut Config)) -> Context {
    let mut config = over_rdma();
    change(&mut config);
    Context::new(config).unwrap()
}

fn over_rdma() -> Config {
    let mut config = Config { transport: TransportKind::Rdma, ..Config::default() };
    // A message of the connection manager that is lost is repeated after four seconds.
    config.session.connect_timeout_ms = 60_000;
    config
}

fn connect(ctx: &Context, listener: &Listener) -> Conn {
    let conn = Conn::connect(ctx, &listener.local_addr(), b"test").unwrap();
    let carrier = conn.carrier().unwrap();
    assert_eq!(carrier.name, "rdma", "{}", carrier.why);
    conn
}

#[test]
fn streams_more_than_the_rings_hold() {
    let Some(addr) = device() else { return };
    for (piece, start, total) in
        [(1, 0, 5_000), (100, u64::from(u32::MAX) - 5_000, 200_000), (20_000, (1 << 63) - 100_000, 1_000_000)]
    {
        let (ctx, other) = (context(), context());
        let (out, listener) = sender_at(&ctx, &addr);
        let options = BufferOptions::new().size_bytes(1 << 17).start(start);
        out.create_buffer_with(1, options).unwrap();
        let input = RIn::new(&connect(&other, &listener));
        subscribe(&input, 1, ring_of(1 << 16));
        std::thread::scope(|scope| {
            scope.spawn(|| write(&out, 1, total, piece));
            assert_eq!(take(&input, start, start + total), 0);
        });
    }
}

/// The setting that trusts processes of this machine changes nothing here, since an RDMA peer can be on any machine.
#[test]
fn bytes_that_a_peer_writes_are_no_plain_slice() {
    let Some(addr) = device() else { return };
    for (trust_writers, own_memory) in [(false, false), (true, false), (false, true)] {
        let (ctx, other) = (context(), context_with(|config| config.shm.trust_writers = trust_writers));
        let (out, listener) = sender_at(&ctx, &addr);
        out.create_buffer(1, 1 << 16).unwrap();
        let input = RIn::new(&connect(&other, &listener));
        subscribe(&input, 1, ring_of(1 << 16).own_memory(own_memory));
        write(&out, 1, 5_000, 5_000);
        let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("nothing came") };
        assert_eq!(view.to_vec().unwrap(), pattern(0, 5_000));
        let plain = own_memory.then(|| pattern(0, 5_000));
        assert!(view.as_slice() == plain.as_deref(), "trust {trust_writers}, own {own_memory}");
    }
}

/// Receives `bytes` bytes of any buffers, and checks them.
fn take_any(input: &RIn, mut bytes: usize) {
    while bytes > 0 {
        match input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Data(view)) => {
                assert_eq!(view.to_vec().unwrap(), pattern(view.position(), view.len()));
                bytes -= view.len();
                view.consume();
            }
            other => panic!("{bytes} bytes are missing: {other:?}"),
        }
    }
}

#[test]
fn a_thousand_buffers_of_one_connection() {
    let Some(addr) = device() else { return };
    let (ctx, other) = (context(), context());
    let (out, listener) = sender_at(&ctx, &addr);
    let input = RIn::new(&connect(&other, &listener));
    for bid in 0..1_000 {
        out.create_buffer(bid, 1 << 13).unwrap();
        subscribe(&input, bid, ring_of(1 << 13));
    }
    for bid in 0..1_000 {
        write(&out, bid, 300, 100);
    }
    take_any(&input, 1_000 * 300);
    // Rings of theirs go, and others come.
    for bid in 0..100 {
        input.unsubscribe(bid);
        out.destroy_buffer(bid).unwrap();
    }
    out.create_buffer(2_000, 1 << 16).unwrap();
    subscribe(&input, 2_000, ring_of(1 << 16));
    write(&out, 2_000, 100_000, 1_000);
}

#[test]
fn subscriptions_that_share_a_budget() {
    let Some(addr) = device() else { return };
    let (ctx, other) = (context(), context());
    let (out, listener) = sender_at(&ctx, &addr);
    let input = RIn::new(&connect(&other, &listener));
    let budget = Budget::new(200_000);
    for bid in 0..20 {
        out.create_buffer(bid, 1 << 16).unwrap();
        subscribe(&input, bid, ring_of(1 << 16).budget(Some(budget.clone())));
    }
    for _ in 0..3 {
        for bid in 0..20 {
            write(&out, bid, 5_000, 500);
        }
        take_any(&input, 20 * 5_000);
    }
}

/// With any sizes of the rings at both ends; the subscription reaches the last written byte.
#[test]
fn without_flow_control_only_verified_deliveries_are_handed_out() {
    let Some(addr) = device() else { return };
    for (own, theirs, piece) in [(1 << 16, 1 << 16, 400), (1 << 20, 1 << 14, 400), (1 << 20, 1 << 16, 10_000)]
    {
        let (ctx, other) = (context(), context());
        let (out, listener) = sender_at(&ctx, &addr);
        let max_delivery_bytes = Some(theirs / 4);
        let options =
            BufferOptions::new().size_bytes(own).flow_control(false).max_delivery_bytes(max_delivery_bytes);
        out.create_buffer_with(1, options).unwrap();
        let input = RIn::new(&connect(&other, &listener));
        subscribe(&input, 1, ring_of(theirs).policy(Policy::Overwrite));
        let (mut got, mut at) = (0, 0);
        for _ in 0..10 {
            write(&out, 1, 40 * piece, piece);
            let head = out.buffer(1).unwrap().info().unwrap().head;
            // (A view ends before the marker behind it.)
            while at + MARKER < head {
                match input.recv(Some(WAIT)).unwrap() {
                    Some(InEvent::Data(view)) => {
                        if let Ok(bytes) = view.to_vec() {
                            assert_eq!(bytes, pattern(view.position(), bytes.len()));
                            got += 1;
                        }
                        at = view.end();
                        view.consume();
                    }
                    Some(InEvent::Lost { to, .. }) => at = to,
                    other => panic!("at {at} of {head}: {other:?}"),
                }
            }
        }
        assert!(got > 0, "no delivery verified");
    }
}

/// A subscriber that listens: publishers connect to it.
fn subscriber(ctx: &Context, addr: &str) -> Listener {
    Listener::bind(ctx, addr).unwrap()
}

/// Connects an rOut to the listener of a subscriber. Returns the subscriber's end of the connection.
fn bring(out: &ROut, ctx: &Context, listener: &Listener, carrier: &str) -> Conn {
    out.add_conn(&Conn::connect_start(ctx, &listener.local_addr(), b"test").unwrap());
    let conn = listener.accept(Some(WAIT)).unwrap().expect("a peer");
    assert_eq!(conn.carrier().unwrap().name, carrier);
    conn
}

/// A log that came over TCP continues over RDMA, from a broker that has the log too. A plain slice that was taken before stays
/// valid.
#[test]
fn a_log_continues_over_another_transport() {
    let Some(addr) = device() else { return };
    for borrows in [true, false] {
        let tcp = Context::new(Config { transport: TransportKind::Tcp, ..Config::default() }).unwrap();
        let (broker, ctx) = (context(), context());
        let out = ROut::new(&tcp);
        out.create_buffer(1, 1 << 16).unwrap();
        let (upstreams, listener) = (subscriber(&broker, &addr), subscriber(&ctx, &addr));
        let upstream = RIn::new(&bring(&out, &tcp, &upstreams, "tcp"));
        let relay = ROut::new(&broker);
        relay.splice_with(&upstream, 1, 1, ring_of(1 << 16)).unwrap();
        let input = RIn::new(&bring(&out, &tcp, &listener, "tcp"));
        subscribe(&input, 1, ring_of(1 << 16).durable(b"me", WAIT));
        write(&out, 1, 10_000, 10_000);
        let Some(InEvent::Data(held)) = input.recv(Some(WAIT)).unwrap() else { panic!("nothing came") };
        let slice = if borrows { held.as_slice() } else { None };
        let mut at = held.end();
        for (round, carrier) in [(1, "rdma"), (2, "tcp"), (3, "rdma")] {
            let old = input.conn();
            let (from, kind) = if carrier == "tcp" { (&out, &tcp) } else { (&relay, &broker) };
            input.resume(&bring(from, kind, &listener, carrier));
            old.wait_down(Some(WAIT)).unwrap().expect("the connection is closed");
            write(&out, 1, 10_000, 1_000);
            while at < 10_000 * (round + 1) {
                match input.recv(Some(WAIT)).unwrap() {
                    Some(InEvent::Data(view)) => {
                        assert_eq!((view.position(), view.to_vec().unwrap()), (at, pattern(at, view.len())));
                        assert_eq!(view.as_slice().is_some(), borrows, "decided for good, {carrier}");
                        at = view.end();
                        // The bytes are released later: new data must not overwrite the slice.
                        drop(view);
                    }
                    Some(InEvent::ConnDown { .. }) => {}
                    other => panic!("{carrier} at {at}: {other:?}"),
                }
            }
            if let Some(slice) = slice {
                assert_eq!((slice, held.as_slice()), (&pattern(0, 10_000)[..], Some(slice)));
            }
        }
    }
}

/// As `transports` in the suite, over transports that need no device: `INVARIANT_SEED=7` runs one, `INVARIANT_SEEDS=100` more.
#[test]
fn the_invariants_of_the_simulator() {
    let Some(addr) = device() else { return };
    invariants::seeds(20, &over_rdma(), &addr);
}
