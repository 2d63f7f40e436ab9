//! What is too far behind. The policy `disconnect`, for a subscriber that begins far behind: it gets time to catch up, and is disconnected when it
//! falls back.

use std::time::{Duration, Instant};

use rocketbufs::{
    BufferOptions, Config, Conn, Context, InEvent, Listener, Policy, Position, ProgressLevel, RIn, ROut,
    Start, SubscribeOptions,
};

const WAIT: Duration = Duration::from_secs(60);
const BID: u32 = 3;

struct Sender {
    ctx: Context,
    out: ROut,
    listener: Listener,
}

impl Sender {
    /// A sender whose subscribers may hold a sixteenth of the ring; the rest is history.
    fn new() -> Self {
        Self::with(BufferOptions::new().retain_bytes(Some(60 << 10)).max_delivery_bytes(Some(2 << 10)))
    }

    fn with(options: BufferOptions) -> Self {
        let ctx = Context::new(Config::default()).unwrap();
        let out = ROut::new(&ctx);
        let options = options.size_bytes(64 << 10);
        out.create_buffer_with(BID, options).unwrap();
        let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
        let to = out.clone();
        listener.set_conn_cb(move |conn| to.add_conn(&conn));
        Self { ctx, out, listener }
    }

    fn write(&self) -> Position {
        self.deliver(1 << 10)
    }

    fn deliver(&self, len: u64) -> Position {
        let segment = self.out.buffer(BID).unwrap().segment(len, Some(WAIT)).unwrap();
        self.out.deliver(segment, len, None).unwrap()
    }

    /// Writes more than the capacity, so that the oldest position is as far behind as possible.
    fn write_more_than_a_ring(&self) -> Position {
        for _ in 0..199 {
            self.write();
        }
        self.write()
    }

    /// A subscriber with a ring of 4 KiB, and its first position.
    fn reader(&self) -> (RIn, Position) {
        self.subscriber(SubscribeOptions::new().size_bytes(4 << 10).policy(Policy::Disconnect))
    }

    /// A subscriber that may lag by 2 KiB, and its first position.
    fn subscriber(&self, options: SubscribeOptions) -> (RIn, Position) {
        let input = RIn::new(&Conn::connect(&self.ctx, &self.listener.local_addr(), b"").unwrap());
        let options = options.start(Start::Oldest).max_lag_bytes(Some(2 << 10));
        input.subscribe_with(BID, options).unwrap();
        match input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Subscribed { start, .. }) => (input, start),
            other => panic!("{other:?}"),
        }
    }

    fn until_no_subscriber_is_left(&self) {
        let started = Instant::now();
        while self.out.buffer(BID).unwrap().subscriber_count() > 0 {
            assert!(
                started.elapsed() < WAIT,
                "a subscriber remains: {:?}",
                self.out.buffer(BID).unwrap().subscribers()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Reads up to a position.
fn read_to(input: &RIn, end: Position) {
    loop {
        match input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Data(view)) => {
                let at = view.end();
                view.consume();
                if at >= end {
                    return;
                }
            }
            other => panic!("before {end}: {other:?}"),
        }
    }
}

#[test]
fn a_subscriber_that_begins_beyond_its_lag_gets_everything() {
    let sender = Sender::new();
    let written = sender.write_more_than_a_ring();
    let (input, start) = sender.reader();
    assert!(written - start >= 60 << 10, "the subscriber begins at {start} of {written}");
    // The writer continues, by less than `max_lag`.
    let end = sender.write();
    read_to(&input, end);
    for _ in 0..100 {
        // Two unconfirmed deliveries would be a lag of `max_lag`, at which the subscriber is disconnected.
        sender
            .out
            .buffer(BID)
            .unwrap()
            .wait(ProgressLevel::Landed, sender.out.buffer(BID).unwrap().info().unwrap().head, Some(WAIT))
            .unwrap();
        read_to(&input, sender.write());
    }
}

#[test]
fn a_subscriber_that_falls_back_is_disconnected() {
    let sender = Sender::new();
    let written = sender.write_more_than_a_ring();
    let (input, _) = sender.reader();
    read_to(&input, written);
    sender.out.buffer(BID).unwrap().wait(ProgressLevel::Landed, written, Some(WAIT)).unwrap();
    // The subscriber stops reading: bytes that do not fit into its ring are its lag.
    for _ in 0..10 {
        sender.write();
    }
    sender.until_no_subscriber_is_left();
}

#[test]
fn a_subscriber_that_only_holds_the_writer_is_disconnected() {
    let sender = Sender::new();
    sender.write_more_than_a_ring();
    let (_input, _) = sender.reader();
    for _ in 0..100 {
        sender.write();
    }
    sender.until_no_subscriber_is_left();
}

/// Nobody can have the newest delivery before it is sent.
#[test]
fn a_delivery_larger_than_the_lag_is_none() {
    for policy in [Policy::Drop, Policy::Disconnect] {
        let sender = Sender::with(BufferOptions::new().max_delivery_bytes(Some(32 << 10)));
        let (input, _) = sender.subscriber(SubscribeOptions::new().size_bytes(64 << 10).policy(policy));
        for len in [1 << 10, 2 << 10, 8 << 10, 32 << 10].into_iter().cycle().take(100) {
            let end = sender.deliver(len);
            read_to(&input, end);
            sender.out.buffer(BID).unwrap().wait(ProgressLevel::Landed, end, Some(WAIT)).unwrap();
        }
    }
}
