//! Splices over shared memory when the connection to the publisher is lost: bytes that subscribers hold stay, or are reported
//! as gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rocketbufs::config::TransportKind;
use rocketbufs::{Context, InEvent, Listener, OutEvent, ProgressLevel, RIn, ROut, Start};

use crate::ends::{WAIT, connect, context, pattern, ring_of, sender, spinning, subscribe, take, write};

/// A publisher, a broker that is spliced to it, and a subscriber of the broker that gives nothing back.
struct Chain {
    out: ROut,
    listener: Listener,
    broker: Context,
    upstream: RIn,
    relay: (ROut, Listener),
    input: RIn,
    /// Subscriptions that the publisher has seen leave.
    left: Arc<AtomicUsize>,
    _contexts: [Context; 2],
}

impl Chain {
    fn new(name: &[u8]) -> Self {
        Self::with(name, context(TransportKind::Shm))
    }

    /// With a subscriber of this context.
    fn with(name: &[u8], other: Context) -> Self {
        let [ctx, broker] = [TransportKind::Shm, TransportKind::Auto].map(context);
        let (out, listener) = sender(&ctx);
        out.create_buffer(1, 1 << 16).unwrap();
        let left = Arc::new(AtomicUsize::new(0));
        let leaves = left.clone();
        out.set_event_cb(move |event| {
            let left = matches!(event, OutEvent::Unsubscribed { .. });
            leaves.fetch_add(left.into(), Ordering::SeqCst);
        });
        let (relay, relays) = sender(&broker);
        let upstream = RIn::new(&connect(&broker, &listener));
        let hold = if name.is_empty() { Duration::ZERO } else { WAIT };
        let options = ring_of(1 << 16).durable(name, hold).linger(Some(WAIT));
        relay.splice_with(&upstream, 1, 1, options).unwrap();
        let input = RIn::new(&connect(&other, &relays));
        subscribe(&input, 1, ring_of(1 << 16).start(Start::Oldest));
        Self { out, listener, broker, upstream, relay: (relay, relays), input, left, _contexts: [ctx, other] }
    }

    fn view(&self) -> rocketbufs::InView {
        let Some(InEvent::Data(view)) = self.input.recv(Some(WAIT)).unwrap() else { panic!("nothing came") };
        view
    }

    /// Everything from here to there, which comes without a hole and is given back.
    fn see(&self, from: u64, to: u64) -> u64 {
        assert_eq!(take(&self.input, from, to), 0);
        to
    }

    fn until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let begun = std::time::Instant::now();
        while !is(self) {
            assert!(begun.elapsed() < WAIT, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Loses the connection between publisher and broker, runs `meanwhile`, and connects again.
    fn lose_connection(&self, meanwhile: impl FnOnce()) {
        // Subscribers see published data earlier than the broker.
        let head = |out: &ROut| out.buffer(1).and_then(|buffer| buffer.info()).map(|info| info.head);
        self.until("the broker has seen it too", |chain| head(&chain.relay.0) == head(&chain.out));
        let old = self.upstream.conn();
        old.close("lost");
        old.wait_down(Some(WAIT)).unwrap().expect("the connection is closed");
        self.until("the publisher hears of it", |chain| chain.left.load(Ordering::SeqCst) == 1);
        meanwhile();
        self.upstream.resume(&connect(&self.broker, &self.listener));
    }

    /// Writes while there is room.
    fn fill(&self) {
        while let Ok(mut segment) = self.out.buffer(1).unwrap().segment(1_000, Some(WAIT / 100)) {
            let at = segment.position();
            segment.bytes_mut().copy_from_slice(&pattern(at, 1_000));
            self.out.deliver(segment, 1_000, None).unwrap();
        }
    }
}

/// Bytes that subscribers of a splice have not released stay in the publisher's ring when the broker's connection to the
/// publisher is lost and made anew.
#[test]
fn a_continued_splice_keeps_bytes_that_subscribers_hold() {
    for name in [&b"broker"[..], b""] {
        let chain = Chain::new(name);
        write(&chain.out, 1, 20_000, 1_000);
        let first = chain.view();
        chain.lose_connection(|| {});
        chain.until("the broker is back", |chain| {
            chain.out.buffer(1).unwrap().info().unwrap().subscribers == 1
        });
        chain.fill();
        let end = chain.out.buffer(1).unwrap().info().unwrap().head;
        assert!(first.to_vec().is_ok_and(|bytes| bytes == pattern(0, first.len())), "held bytes stay");
        let from = first.end();
        first.consume();
        assert_eq!(take(&chain.input, from, end), 0);
    }
}

/// A subscriber joins over TCP while the broker has no connection to the publisher, which has overwritten everything. The
/// subscriber gets no wrong bytes.
#[test]
fn overwritten_data_is_not_forwarded() {
    let chain = Chain::new(b"");
    write(&chain.out, 1, 20_000, 1_000);
    let _first = chain.view();
    let plain = context(TransportKind::Tcp);
    let (relay, relays) = &chain.relay;
    let input = RIn::new(&connect(&plain, relays));
    chain.lose_connection(|| {
        write(&chain.out, 1, 1 << 18, 1_000);
        subscribe(&input, 1, ring_of(1 << 16).start(Start::Oldest));
    });
    match input.recv(Some(WAIT)).unwrap() {
        Some(InEvent::Gone { end: 20_000, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(relay.buffer(1).and_then(|buffer| buffer.info()).map(|info| info.head), Some(20_000));
}

/// A splice without a name has no durable cursor at the publisher. Bytes that were overwritten in between are not delivered.
#[test]
fn a_splice_that_lost_held_bytes_ends() {
    let chain = Chain::new(b"");
    write(&chain.out, 1, 20_000, 1_000);
    let first = chain.view();
    let mut end = first.end();
    chain.lose_connection(|| write(&chain.out, 1, 1 << 18, 1_000));
    chain.until("the broker comes and goes", |chain| chain.left.load(Ordering::SeqCst) == 2);
    assert!(first.to_vec().is_err());
    first.consume();
    loop {
        match chain.input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Data(view)) => {
                let (at, bytes) = (view.position(), view.to_vec());
                assert!(bytes.is_err() || at > 1 << 17, "there is something else now");
                assert!(bytes.is_err() || bytes.is_ok_and(|bytes| bytes == pattern(at, bytes.len())));
                end = view.end();
                view.consume();
            }
            Some(InEvent::Lost { to, .. }) => end = to,
            Some(InEvent::Gone { end: told, .. }) => return assert_eq!(told, end),
            other => panic!("{other:?}"),
        }
    }
}

/// Subscribers that follow a publisher directly have seen more than the broker when the broker ends the splice. They end at
/// their own positions, and follow no further.
#[test]
fn a_splice_ends_for_its_followers_where_they_are() {
    let chain = Chain::with(b"", Context::new(spinning(1_000)).unwrap());
    write(&chain.out, 1, 20_000, 1_000);
    let first = chain.view();
    let mut at = first.end();
    chain.lose_connection(|| {
        write(&chain.out, 1, 5_000, 1_000);
        at = chain.see(at, 25_000);
        write(&chain.out, 1, 1 << 18, 1_000);
    });
    chain.until("the broker comes and goes", |chain| chain.left.load(Ordering::SeqCst) == 2);
    first.consume();
    loop {
        match chain.input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Data(view)) => {
                assert!(view.position() >= at);
                at = view.end();
                view.consume();
            }
            Some(InEvent::Lost { to, .. }) => at = to,
            Some(InEvent::Gone { end, .. }) => break assert_eq!(end, at),
            other => panic!("{other:?}"),
        }
    }
    write(&chain.out, 1, 5_000, 1_000);
    let more = chain.input.recv(Some(WAIT / 100)).unwrap();
    assert!(more.is_none(), "{more:?}");
}

/// The broker can lose bytes that subscribers, which follow the publisher directly, have already received.
#[test]
fn followers_have_data_that_only_the_broker_lost() {
    let chain = Chain::with(b"", Context::new(spinning(1_000)).unwrap());
    write(&chain.out, 1, 20_000, 1_000);
    let mut at = chain.see(0, 20_000);
    chain.lose_connection(|| {
        for _ in 0..100 {
            write(&chain.out, 1, 5_000, 1_000);
            at = chain.see(at, at + 5_000);
        }
    });
    chain.until("the broker is back", |chain| chain.out.buffer(1).unwrap().info().unwrap().subscribers == 1);
    write(&chain.out, 1, 5_000, 1_000);
    chain.see(at, at + 5_000);
    chain.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, at + 5_000, Some(WAIT)).unwrap();
}

/// The answer to a broker's subscription may come before its splice is made: that it keeps history for others says enough.
#[test]
fn a_splice_that_is_made_late_can_be_mapped_too() {
    let [ctx, broker, other] = [TransportKind::Tcp, TransportKind::Auto, TransportKind::Shm].map(context);
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let upstream = RIn::new(&connect(&broker, &listener));
    subscribe(&upstream, 1, ring_of(1 << 16).retain_bytes(Some(1 << 15)));
    let (relay, relays) = sender(&broker);
    relay.splice(&upstream, 1).unwrap();
    let input = RIn::new(&connect(&other, &relays));
    let start = subscribe(&input, 1, ring_of(1 << 16));
    assert_eq!((other.mapped().0, other.memory_in_use()), (1, 0), "the subscriber has no ring of its own");
    std::thread::scope(|scope| {
        scope.spawn(|| write(&out, 1, 200_000, 10_000));
        assert_eq!(take(&input, start, 200_000), 0);
    });
}
