//! The two ends of connections in one process: senders, receivers, and bytes that say where they belong.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::time::{Duration, Instant};

use rocketbufs::config::TransportKind;
use rocketbufs::{Config, Conn, Context, InEvent, Listener, RIn, ROut, SubscribeOptions};

pub const WAIT: Duration = Duration::from_secs(60);

/// Waits until something is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < WAIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn config(transport: TransportKind) -> Config {
    Config { transport, ..Config::default() }
}

pub fn context(transport: TransportKind) -> Context {
    Context::new(config(transport)).unwrap()
}

/// Over shared memory, with threads that look for so long before they sleep.
pub fn spinning(busy_poll_us: u32) -> Config {
    let mut spins = config(TransportKind::Shm);
    spins.shm.busy_poll_us = busy_poll_us;
    spins
}

/// An rOut that serves every connection of its listener.
pub fn sender_at(ctx: &Context, addr: &str) -> (ROut, Listener) {
    let out = ROut::new(ctx);
    let listener = Listener::bind(ctx, addr).expect("a free port");
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    (out, listener)
}

pub fn sender(ctx: &Context) -> (ROut, Listener) {
    sender_at(ctx, "127.0.0.1:0")
}

/// An rIn that is connected to it.
pub fn receiver(ctx: &Context, listener: &Listener) -> RIn {
    RIn::new(&connect(ctx, listener))
}

pub fn connect(ctx: &Context, listener: &Listener) -> Conn {
    Conn::connect(ctx, &listener.local_addr(), b"test").unwrap()
}

pub fn subscribe(input: &RIn, bid: u32, options: SubscribeOptions) -> u64 {
    input.subscribe_with(bid, options).unwrap();
    match input.recv(Some(WAIT)).unwrap() {
        Some(InEvent::Subscribed { bid: got, start, .. }) if got == bid => start,
        other => panic!("expected Subscribed, got {other:?}"),
    }
}

pub fn ring_of(size_bytes: u64) -> SubscribeOptions {
    SubscribeOptions::new().size_bytes(size_bytes)
}

pub fn pattern(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|p| (p.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

pub fn write(out: &ROut, bid: u32, bytes: u64, piece: u64) {
    let mut left = bytes;
    while left > 0 {
        let size = piece.min(left);
        let mut segment = out.buffer(bid).unwrap().segment(size, Some(WAIT)).unwrap();
        let at = segment.position();
        segment.bytes_mut().copy_from_slice(&pattern(at, size as usize));
        out.deliver(segment, size, None).unwrap();
        left -= size;
    }
}

/// Receives up to `end` and checks every byte. Returns the number of bytes that were reported as lost.
pub fn take(input: &RIn, from: u64, end: u64) -> u64 {
    let (mut at, mut lost) = (from, 0);
    while at < end {
        match input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Data(view)) => {
                assert_eq!(view.position(), at);
                if let Ok(bytes) = view.to_vec() {
                    assert!(bytes == pattern(at, bytes.len()), "wrong bytes at {at}");
                } else {
                    lost += view.len() as u64;
                }
                at = view.end();
                view.consume();
            }
            Some(InEvent::Lost { from, to, .. }) => {
                assert_eq!(from, at);
                lost += to - from;
                at = to;
            }
            other => panic!("at {at} of {end}: {other:?}"),
        }
    }
    lost
}
