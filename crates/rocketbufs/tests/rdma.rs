//! The framework over real RDMA devices (scripts/rdma-vm): streams, many buffers, a budget, no flow control.

use std::time::Duration;

use rocketbufs::config::TransportKind;
use rocketbufs::{
    Blocking, Budget, BufferOptions, Config, Conn, Context, Listener, Policy, RIn, ROut, Received,
    SubscribeOptions,
};

const WAIT: Duration = Duration::from_secs(60);

/// The first device's address; None, told, where there is none.
fn device() -> Option<String> {
    let Ok(addresses) = std::env::var("ROCKETBUFS_TEST_RDMA") else {
        println!("skipped: no RDMA devices to test with; scripts/rdma-vm has some");
        return None;
    };
    addresses.split_whitespace().next().map(|addr| format!("{addr}:0"))
}

fn context() -> Context {
    let mut config = Config { transport: TransportKind::Rdma, ..Config::default() };
    // A message of the connection manager that is lost is repeated after four seconds.
    config.session.connect_timeout_ms = 60_000;
    Context::new(config).unwrap()
}

fn publisher(ctx: &Context, addr: &str) -> (ROut, Listener) {
    let out = ROut::new(ctx);
    let listener = Listener::bind(ctx, addr).unwrap();
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    (out, listener)
}

fn connect(ctx: &Context, listener: &Listener) -> Conn {
    let conn = Conn::connect(ctx, &listener.local_addr(), b"test").unwrap();
    let carrier = conn.carrier().unwrap();
    assert_eq!(carrier.name, "rdma", "{}", carrier.why);
    conn
}

fn subscribe(input: &RIn, bid: u32, options: SubscribeOptions) {
    input.subscribe_with(bid, options).unwrap();
    match input.recv(Some(WAIT)).unwrap() {
        Some(Received::Subscribed { bid: got, .. }) if got == bid => {}
        other => panic!("expected Subscribed, got {other:?}"),
    }
}

fn ring_of(size_bytes: u64) -> SubscribeOptions {
    SubscribeOptions { size_bytes, ..SubscribeOptions::default() }
}

fn pattern(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|p| (p.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn write(out: &ROut, bid: u32, bytes: u64, piece: u64) {
    let mut left = bytes;
    while left > 0 {
        let size = piece.min(left);
        let mut segment = out.get_output_segment(bid, size, Blocking::For(WAIT)).unwrap();
        let at = segment.position();
        segment.bytes_mut().copy_from_slice(&pattern(at, size as usize));
        out.deliver(segment, size, None).unwrap();
        left -= size;
    }
}

/// Receives up to `end`, checking every byte; returns how many bytes were told as lost.
fn take(input: &RIn, from: u64, end: u64) -> u64 {
    let (mut at, mut lost) = (from, 0);
    while at < end {
        match input.recv(Some(WAIT)).unwrap() {
            Some(Received::Data(view)) => {
                assert_eq!(view.position(), at);
                if let Ok(bytes) = view.to_vec() {
                    assert!(bytes == pattern(at, bytes.len()), "wrong bytes at {at}");
                } else {
                    lost += view.len() as u64;
                }
                at = view.end();
                view.consume();
            }
            Some(Received::Lost { from, to, .. }) => {
                assert_eq!(from, at);
                lost += to - from;
                at = to;
            }
            other => panic!("at {at} of {end}: {other:?}"),
        }
    }
    lost
}

#[test]
fn streams_more_than_the_rings_hold() {
    let Some(addr) = device() else { return };
    for (piece, start, total) in
        [(1, 0, 5_000), (100, u64::from(u32::MAX) - 5_000, 200_000), (20_000, (1 << 63) - 100_000, 1_000_000)]
    {
        let (ctx, other) = (context(), context());
        let (out, listener) = publisher(&ctx, &addr);
        let options = BufferOptions { size_bytes: 1 << 17, start, ..BufferOptions::default() };
        out.create_buffer_with(1, options).unwrap();
        let input = RIn::new(&connect(&other, &listener));
        subscribe(&input, 1, ring_of(1 << 16));
        std::thread::scope(|scope| {
            scope.spawn(|| write(&out, 1, total, piece));
            assert_eq!(take(&input, start, start + total), 0);
        });
    }
}

#[test]
fn bytes_that_a_peer_writes_are_no_plain_slice() {
    let Some(addr) = device() else { return };
    let (ctx, other) = (context(), context());
    let (out, listener) = publisher(&ctx, &addr);
    out.create_buffer(1, 1 << 16).unwrap();
    let input = RIn::new(&connect(&other, &listener));
    subscribe(&input, 1, ring_of(1 << 16));
    write(&out, 1, 5_000, 5_000);
    let Some(Received::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("nothing came") };
    assert_eq!(view.to_vec().unwrap(), pattern(0, 5_000));
    assert!(view.as_slice().is_none());
}

#[test]
fn a_thousand_buffers_of_one_connection() {
    let Some(addr) = device() else { return };
    let (ctx, other) = (context(), context());
    let (out, listener) = publisher(&ctx, &addr);
    let input = RIn::new(&connect(&other, &listener));
    for bid in 0..1_000 {
        out.create_buffer(bid, 1 << 13).unwrap();
        subscribe(&input, bid, ring_of(1 << 13));
    }
    for bid in 0..1_000 {
        write(&out, bid, 300, 100);
    }
    let mut left = 1_000 * 300;
    while left > 0 {
        match input.recv(Some(WAIT)).unwrap() {
            Some(Received::Data(view)) => {
                assert_eq!(view.to_vec().unwrap(), pattern(view.position(), view.len()));
                left -= view.len();
                view.consume();
            }
            other => panic!("{left} left: {other:?}"),
        }
    }
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
    let (out, listener) = publisher(&ctx, &addr);
    let input = RIn::new(&connect(&other, &listener));
    let budget = Budget::new(200_000);
    for bid in 0..20 {
        out.create_buffer(bid, 1 << 16).unwrap();
        subscribe(&input, bid, SubscribeOptions { budget: Some(budget.clone()), ..ring_of(1 << 16) });
    }
    for round in 0..3 {
        for bid in 0..20 {
            write(&out, bid, 5_000, 500);
        }
        let mut left = 20 * 5_000;
        while left > 0 {
            match input.recv(Some(WAIT)).unwrap() {
                Some(Received::Data(view)) => {
                    assert_eq!(view.to_vec().unwrap(), pattern(view.position(), view.len()));
                    left -= view.len();
                    view.consume();
                }
                other => panic!("round {round}, {left} left: {other:?}"),
            }
        }
    }
}

#[test]
fn without_flow_control_only_what_verifies_is_handed_out() {
    let Some(addr) = device() else { return };
    let (ctx, other) = (context(), context());
    let (out, listener) = publisher(&ctx, &addr);
    let options = BufferOptions { size_bytes: 1 << 16, flow_control: false, ..BufferOptions::default() };
    out.create_buffer_with(1, options).unwrap();
    let input = RIn::new(&connect(&other, &listener));
    subscribe(&input, 1, SubscribeOptions { policy: Policy::Overwrite, ..ring_of(1 << 16) });
    let (mut got, mut end) = (0, 0);
    for round in 0..100 {
        write(&out, 1, 4_000, 400);
        let wait = if round == 99 { Duration::from_millis(500) } else { Duration::ZERO };
        while let Some(received) = input.recv(Some(wait)).unwrap() {
            match received {
                Received::Data(view) => {
                    if let Ok(bytes) = view.to_vec() {
                        assert_eq!(bytes, pattern(view.position(), bytes.len()));
                        got += 1;
                    }
                    end = view.end();
                    view.consume();
                }
                Received::Lost { to, .. } => end = to,
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(got > 0 && end > 0, "nothing came");
}
