//! Idle buffers return their writer's memory to the system, and keep the bytes that subscribers need.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rocketbufs::{
    BufferOptions, Config, Conn, Context, InEvent, Listener, RIn, ROut, Start, SubscribeOptions,
};

use crate::ends::{WAIT, until};

const BUFFERS: u32 = 32;
const SIZE: u64 = 1 << 20;
/// The most bytes of the history of all buffers together.
const HISTORY: u64 = 1 << 20;
/// The further bytes of each buffer: the last delivery, a begun page at either end, and the writer's reach.
const EACH: u64 = 16 << 10;
const KEEPS: u64 = HISTORY + BUFFERS as u64 * (EACH + (32 << 10));

/// `reservation` tells the rings of the writer's context from others of this process: the size of their files.
fn config(reservation: u64) -> Config {
    let mut config = Config::default();
    config.buffers.idle_trim_ms = 20;
    config.buffers.idle_retain_bytes = HISTORY;
    config.buffers.reservation_bytes = reservation;
    // A busy machine must not end connections.
    config.session.heartbeat_ms = 0;
    config
}

/// Bytes that the rings in files of this size have backed.
fn backed(reservation: u64) -> u64 {
    let fds = fs::read_dir("/proc/self/fd").unwrap().flatten().map(|fd| fd.path());
    let rings =
        fds.filter(|fd| fs::read_link(fd).is_ok_and(|to| to.to_string_lossy().contains("memfd:rocketring")));
    let files = rings.filter_map(|path| fs::metadata(path).ok());
    files.filter(|file| file.size() == reservation).map(|file| file.blocks() * 512).sum()
}

/// A writer of all buffers.
fn writer(reservation: u64) -> (ROut, Listener) {
    let ctx = Context::new(config(reservation)).unwrap();
    let out = ROut::new(&ctx);
    let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    for bid in 0..BUFFERS {
        out.create_buffer_with(bid, BufferOptions::new().size_bytes(SIZE)).unwrap();
    }
    (out, listener)
}

/// A subscriber of all buffers, with memory that is not counted.
fn subscriber(listener: &Listener, start: Start) -> RIn {
    let ctx = Context::new(Config::default()).unwrap();
    let input = RIn::new(&Conn::connect(&ctx, &listener.local_addr(), b"").unwrap());
    for bid in 0..BUFFERS {
        let options = SubscribeOptions::new().size_bytes(SIZE).start(start);
        input.subscribe_with(bid, options).unwrap();
    }
    input
}

/// A subscriber of all that comes from here on: all buffers have answered.
fn subscriber_from_now(listener: &Listener) -> RIn {
    let input = subscriber(listener, Start::Newest);
    for _ in 0..BUFFERS {
        assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    }
    input
}

fn write(out: &ROut, bid: u32, size: u64) {
    let mut segment = out.buffer(bid).unwrap().segment(size, Some(WAIT)).unwrap();
    let at = segment.position();
    for (byte, at) in segment.bytes_mut().iter_mut().zip(at..) {
        *byte = (at % 251) as u8;
    }
    out.deliver(segment, size, None).unwrap();
}

/// Receives `bytes` bytes of each buffer, and checks that they are the written ones without a gap.
fn take(input: &RIn, at: &mut HashMap<u32, u64>, bytes: u64) {
    let mut left = bytes * u64::from(BUFFERS);
    while left > 0 {
        let view = match input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Data(view)) => view,
            // Data of one buffer may come before the answer of another.
            Some(InEvent::Subscribed { .. }) => continue,
            _ => panic!("{left} bytes are missing"),
        };
        let next = at.entry(view.bid()).or_insert(view.position());
        assert_eq!(*next, view.position(), "buffer {}", view.bid());
        let right = view
            .as_slice()
            .unwrap()
            .iter()
            .zip(view.position()..)
            .all(|(byte, at)| *byte == (at % 251) as u8);
        assert!(right, "buffer {} at {}", view.bid(), view.position());
        *next = view.end();
        left -= view.len() as u64;
        view.consume();
    }
}

#[test]
fn a_writers_rings_at_rest_give_their_memory_back() {
    const RESERVATION: u64 = 48 << 20;
    let (out, listener) = writer(RESERVATION);
    let input = subscriber_from_now(&listener);
    let mut at = HashMap::new();
    for _ in 0..2 {
        // More than the capacity, so that all memory of the rings was written.
        for _ in 0..96 {
            (0..BUFFERS).for_each(|bid| write(&out, bid, EACH));
            take(&input, &mut at, EACH);
        }
        // After the memory was returned, the log continues at its position.
        until("the memory is given back", || backed(RESERVATION) <= KEEPS);
    }
}

#[test]
fn undelivered_data_is_kept_as_promised() {
    const RESERVATION: u64 = 56 << 20;
    let (out, listener) = writer(RESERVATION);
    // More than all idle rings may keep together, and in each ring no more than its history.
    for _ in 0..24 {
        (0..BUFFERS).for_each(|bid| write(&out, bid, EACH));
    }
    let written = backed(RESERVATION);
    assert!(written > KEEPS);
    std::thread::sleep(Duration::from_millis(200));
    let mut at = (0..BUFFERS).map(|bid| (bid, 0)).collect();
    let input = subscriber(&listener, Start::Oldest);
    take(&input, &mut at, 24 * EACH);
    // The subscribers have the bytes now: the memory is returned when the buffers are idle the next time.
    for _ in 0..96 {
        (0..BUFFERS).for_each(|bid| write(&out, bid, EACH));
        take(&input, &mut at, EACH);
    }
    until("the memory is given back", || backed(RESERVATION) <= KEEPS);
}
