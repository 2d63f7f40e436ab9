//! Readers that map a ring follow it: they learn of new data from its writer directly, also through brokers.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use rocketbufs::config::TransportKind;
use rocketbufs::{BufferOptions, Conn, Context, InEvent, Listener, ProgressLevel, RIn, ROut, Start};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ends::{
    WAIT, config, connect, context, pattern, ring_of, sender, spinning, subscribe, take, write,
};

const SHM: TransportKind = TransportKind::Shm;

/// A publisher, a broker spliced to it, and subscribers of the broker, all over shared memory.
struct Chain {
    out: ROut,
    broker: (Listener, ROut),
    inputs: Vec<RIn>,
    _upstream: RIn,
    _contexts: Vec<Context>,
}

impl Chain {
    fn new(broker: &Context, subscribers: usize, ring: u64) -> Self {
        Self::of(broker, subscribers, BufferOptions::new().size_bytes(ring))
    }

    fn of(broker: &Context, subscribers: usize, options: BufferOptions) -> Self {
        let ctx = context(SHM);
        let (out, listener) = sender(&ctx);
        out.create_buffer_with(1, options).unwrap();
        let ring = out.buffer(1).unwrap().info().unwrap().capacity_bytes;
        let (relay, relays) = sender(broker);
        let upstream = RIn::new(&connect(broker, &listener));
        relay.splice_with(&upstream, 1, 1, ring_of(ring)).unwrap();
        let mut contexts = vec![ctx];
        let inputs = (0..subscribers).map(|_| {
            let ctx = context(SHM);
            let input = RIn::new(&connect(&ctx, &relays));
            subscribe(&input, 1, ring_of(ring).start(Start::Oldest));
            contexts.push(ctx);
            input
        });
        let inputs = inputs.collect();
        Self { out, broker: (relays, relay), inputs, _upstream: upstream, _contexts: contexts }
    }

    /// Returns when the publisher knows all followers: the credit for this delivery comes after their registration.
    fn know_each_other(&self) -> u64 {
        write(&self.out, 1, 100, 100);
        self.inputs.iter().for_each(|input| assert_eq!(take(input, 0, 100), 0));
        self.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, 100, Some(WAIT)).unwrap();
        100
    }
}

/// Has the only thread of a listener's context do nothing until the first of these is dropped.
fn keep_busy(listener: &Listener, visitor: &Context) -> (mpsc::SyncSender<()>, Conn) {
    let (release, released) = mpsc::sync_channel::<()>(1);
    let (tell, told) = mpsc::sync_channel(1);
    listener.set_conn_cb(move |_conn| {
        tell.send(()).unwrap();
        let _ = released.recv_timeout(WAIT);
    });
    let conn = Conn::connect_start(visitor, &listener.local_addr(), b"keeps it busy").unwrap();
    told.recv_timeout(WAIT).unwrap();
    (release, conn)
}

/// The broker's only thread is busy, and its subscribers get published data nevertheless.
#[test]
fn a_busy_broker_delays_no_subscriber() {
    let broker = context(SHM);
    let chain = Chain::new(&broker, 2, 1 << 16);
    let at = chain.know_each_other();
    let other = context(SHM);
    let (busy, _visitor) = keep_busy(&chain.broker.0, &other);
    for n in 0..5 {
        write(&chain.out, 1, 1000, 1000);
        for input in &chain.inputs {
            assert_eq!(take(input, at + n * 1000, at + (n + 1) * 1000), 0);
        }
    }
    drop(busy);
    // The subscribers released bytes that the broker has not seen yet, which is no error.
    let end = at + 5000 + (1 << 20);
    std::thread::scope(|scope| {
        for input in &chain.inputs {
            scope.spawn(move || assert_eq!(take(input, at + 5000, end), 0));
        }
        write(&chain.out, 1, 1 << 20, 10_000);
    });
    chain.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, end, Some(WAIT)).unwrap();
}

/// A subscriber has released bytes that the broker has not seen. The broker can see them only after it releases bytes itself:
/// with its history it grants less than the publisher's ring holds. The rest is too little for a notice, and more than the
/// broker follows in one step.
#[test]
fn a_broker_accepts_releases_of_unseen_bytes() {
    const RING: u64 = 256 << 10;
    const PIECE: u64 = 10_000;
    let broker = context(SHM);
    let options = BufferOptions::new().size_bytes(RING).max_delivery_bytes(Some(1 << 14));
    let chain = Chain::of(&broker, 1, options);
    let (input, full) = (&chain.inputs[0], RING / PIECE * PIECE);
    write(&chain.out, 1, 100_000, PIECE);
    while chain.broker.1.buffer(1).unwrap().info().unwrap().head < 100_000 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let other = context(SHM);
    let (busy, _visitor) = keep_busy(&chain.broker.0, &other);
    write(&chain.out, 1, full - 100_000, PIECE);
    // The subscriber receives everything before it releases any bytes.
    let (mut all, mut end) = (Vec::new(), 0);
    while end < full {
        let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("no data") };
        end = view.end();
        all.push(view);
    }
    all.into_iter().for_each(|view| view.consume());
    drop(busy);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(take(input, full, 2 * full), 0));
        write(&chain.out, 1, full, PIECE);
    });
    chain.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, 2 * full, Some(WAIT)).unwrap();
}

/// A broker keeps everything until a receiver has it. A subscriber that has a part from another broker joins before the data.
/// The broker does not keep that part when it comes.
#[test]
fn a_broker_releases_bytes_after_their_readers() {
    const RING: u64 = 1 << 16;
    let [ctx, broker, other] = [(); 3].map(|()| context(SHM));
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, RING).unwrap();
    let (relay, relays) = sender(&broker);
    let upstream = RIn::new(&connect(&broker, &listener));
    relay.splice_with(&upstream, 1, 1, ring_of(RING).min_receivers(1)).unwrap();
    let input = RIn::new(&connect(&other, &relays));
    let start = Start::Position(out.buffer(1).unwrap().info().unwrap().epoch, 60_000);
    assert_eq!(subscribe(&input, 1, ring_of(RING).start(start)), 60_000);
    while relay.buffer(1).unwrap().confirmed().coverage.receivers == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    write(&out, 1, 100_000, 10_000);
    assert_eq!(take(&input, 60_000, 100_000), 0);
    out.buffer(1).unwrap().wait(ProgressLevel::Consumed, 100_000, Some(WAIT)).unwrap();
    assert_eq!(out.buffer(1).unwrap().info().unwrap().subscribers, 1, "the broker was too slow");
}

/// The broker's threads see published data at different times, and later than its subscribers.
#[test]
fn a_broker_of_many_threads_accepts_releases_of_unseen_bytes() {
    let mut many = config(SHM);
    many.tcp.tcp_num_threads = 3;
    let broker = Context::new(many).unwrap();
    let chain = Chain::new(&broker, 4, 1 << 15);
    let total = 4 << 20;
    std::thread::scope(|scope| {
        for input in &chain.inputs {
            scope.spawn(move || assert_eq!(take(input, 0, total), 0));
        }
        write(&chain.out, 1, total, 700);
    });
    chain.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, total, Some(WAIT)).unwrap();
}

/// Threads that look without end see the same.
#[test]
fn busy_polling_sees_the_same() {
    let [ctx, other] = [(); 2].map(|()| Context::new(spinning(50)).unwrap());
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let input = RIn::new(&connect(&other, &listener));
    subscribe(&input, 1, ring_of(1 << 16));
    std::thread::scope(|scope| {
        scope.spawn(|| write(&out, 1, 2 << 20, 900));
        assert_eq!(take(&input, 0, 2 << 20), 0);
    });
    out.destroy_buffer(1).unwrap();
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Closed { bid: 1, .. })));
}

/// A thread that polls rings continues over another connection, although nothing else wakes it. Between the connections it has
/// no ring to poll. With a timer in each round the test would take too long.
#[test]
fn a_polling_thread_notices_another_connection() {
    let [ctx, other] = [(); 2].map(|()| {
        let mut spins = spinning(2_000);
        (spins.buffers.idle_trim_ms, spins.session.heartbeat_ms) = (3_600_000, 3_600_000);
        Context::new(spins).unwrap()
    });
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let input = RIn::new(&connect(&other, &listener));
    let mut at = subscribe(&input, 1, ring_of(1 << 16));
    let mut more = || {
        for _ in 0..10 {
            write(&out, 1, 100, 100);
            assert_eq!(take(&input, at, at + 100), 0);
            at += 100;
        }
    };
    more();
    let begun = Instant::now();
    for _ in 0..100 {
        input.resume(&connect(&other, &listener));
        more();
        assert!(begun.elapsed() < WAIT, "the thread waits for a timer each time");
    }
}

/// A waiting thread takes data from the followed rings by itself: from all rings, in order, and also after it slept. An end
/// comes after all data.
#[test]
fn a_waiting_thread_takes_the_data_that_it_sees() {
    let [ctx, other] = [(); 2].map(|()| Context::new(spinning(2_000)).unwrap());
    let (out, listener) = sender(&ctx);
    let input = RIn::new(&connect(&other, &listener));
    let bids = [1, 2, 3];
    for bid in bids {
        out.create_buffer(bid, 1 << 16).unwrap();
        if bid == bids[2] {
            // Data that is there already comes after the answer.
            write(&out, bid, 500, 500);
        }
        subscribe(&input, bid, ring_of(1 << 16).start(Start::Oldest));
    }
    bids[..2].iter().for_each(|bid| write(&out, *bid, 500, 500));
    let mut at = [0; 3];
    for round in 0..40 {
        if round % 10 == 9 {
            // Long enough for the thread to sleep.
            std::thread::sleep(Duration::from_millis(20));
        }
        let to = 500 + round * 700;
        bids.iter().for_each(|bid| write(&out, *bid, if round == 0 { 0 } else { 700 }, 700));
        while at.iter().any(|at| *at < to) {
            let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("no data") };
            let at = &mut at[view.bid() as usize - 1];
            assert_eq!(view.position(), *at);
            assert!(view.to_vec().unwrap() == pattern(*at, view.len()));
            *at = view.end();
            view.consume();
        }
    }
    assert!(input.recv(Some(Duration::from_millis(1))).unwrap().is_none());
    out.buffer(1).unwrap().wait(ProgressLevel::Consumed, at[0], Some(WAIT)).unwrap();
    write(&out, 2, 300, 300);
    out.destroy_buffer(2).unwrap();
    assert_eq!(take(&input, at[1], at[1] + 300), 0);
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Closed { bid: 2, .. })));
}

/// The ring of an ended subscription is not polled any more, and its memory is released. A new subscription of the same buffer
/// is polled.
#[test]
fn unsubscribed_rings_are_not_polled() {
    let [ctx, other] = [(); 2].map(|()| Context::new(spinning(1_000_000)).unwrap());
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let input = RIn::new(&connect(&other, &listener));
    for _ in 0..3 {
        let start = subscribe(&input, 1, ring_of(1 << 16));
        write(&out, 1, 4000, 100);
        assert_eq!(take(&input, start, start + 4000), 0);
        input.unsubscribe(1);
        write(&out, 1, 4000, 100);
        assert!(input.recv(Some(Duration::from_millis(1))).unwrap().is_none());
    }
}

/// The broker sees more deliveries at once than its subscribers over TCP have room for, and fewer than fit into its own ring.
/// The subscribers get whole deliveries.
#[test]
fn a_broker_that_looks_late_knows_where_deliveries_end() {
    let (ctx, broker, tcp) = (context(SHM), context(TransportKind::Auto), context(TransportKind::Tcp));
    let (out, listener) = sender(&ctx);
    let options =
        BufferOptions::new().size_bytes(1 << 16).max_delivery_bytes(Some(1 << 12)).retain_bytes(Some(0));
    out.create_buffer_with(1, options).unwrap();
    let (relay, relays) = sender(&broker);
    let upstream = RIn::new(&connect(&broker, &listener));
    relay.splice_with(&upstream, 1, 1, ring_of(1 << 16)).unwrap();
    let input = RIn::new(&connect(&tcp, &relays));
    subscribe(&input, 1, ring_of(1 << 13).start(Start::Oldest));
    write(&out, 1, 100, 100);
    assert_eq!(take(&input, 0, 100), 0);
    out.buffer(1).unwrap().wait(ProgressLevel::Consumed, 100, Some(WAIT)).unwrap();
    let (busy, _visitor) = keep_busy(&relays, &tcp);
    write(&out, 1, 30_000, 500);
    drop(busy);
    assert_eq!(take(&input, 100, 30_100), 0);
}

/// A subscriber that joins over TCP gets data at once, although the broker was not woken until then. When it leaves, the others
/// continue.
#[test]
fn a_subscriber_over_tcp_wakes_the_broker_again() {
    let broker = context(TransportKind::Auto);
    let chain = Chain::new(&broker, 1, 1 << 16);
    let mut at = chain.know_each_other();
    let tcp = context(TransportKind::Tcp);
    for _ in 0..3 {
        let input = RIn::new(&connect(&tcp, &chain.broker.0));
        assert_eq!(subscribe(&input, 1, ring_of(1 << 16)), at);
        for _ in 0..20 {
            write(&chain.out, 1, 500, 500);
            assert_eq!(take(&chain.inputs[0], at, at + 500), 0);
            assert_eq!(take(&input, at, at + 500), 0);
            at += 500;
        }
        input.conn().close("done");
        chain.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, at, Some(WAIT)).unwrap();
        write(&chain.out, 1, 500, 500);
        assert_eq!(take(&chain.inputs[0], at, at + 500), 0);
        at += 500;
    }
}

/// Published data without a notice lands with the end of the log, before any other event.
#[test]
fn an_end_comes_after_everything() {
    let broker = context(SHM);
    let chain = Chain::new(&broker, 2, 1 << 16);
    let at = chain.know_each_other();
    for n in 0..50 {
        let segment = chain.out.buffer(1).unwrap().segment(40, Some(WAIT));
        let mut segment = segment.unwrap();
        segment.bytes_mut().copy_from_slice(&pattern(at + n * 40, 40));
        chain.out.deliver(segment, 40, None).unwrap();
    }
    chain.out.destroy_buffer(1).unwrap();
    for input in &chain.inputs {
        assert_eq!(take(input, at, at + 2000), 0);
        let last = input.recv(Some(WAIT)).unwrap();
        assert!(matches!(last, Some(InEvent::Closed { bid: 1, .. })), "{last:?}");
    }
}

/// The bytes that a call takes which does not wait: a buffer, and where they begin and end.
fn look(input: &RIn) -> Option<(u32, u64, u64)> {
    let event = input.recv(Some(Duration::ZERO)).unwrap();
    event.map(|event| {
        let InEvent::Data(view) = event else { panic!("no data: {event:?}") };
        let (bid, from, to) = (view.bid(), view.position(), view.end());
        assert!(view.to_vec().unwrap() == pattern(from, view.len()));
        view.consume();
        (bid, from, to)
    })
}

/// A thread that looks itself gets what is written, although the only worker of its context is busy. Rings take turns.
#[test]
fn a_thread_that_looks_itself_needs_no_worker() {
    needs_no_worker(|input, _| {
        input.attend(true);
    });
}

/// The thread says it once: an rIn that takes the place of another one is looked at from its first subscription on.
#[test]
fn a_thread_looks_itself_at_the_next_connection_too() {
    needs_no_worker(|input, former| {
        former.attend(true);
        input.look_like(former);
    });
}

fn needs_no_worker(begin: impl FnOnce(&RIn, &RIn)) {
    let [ctx, other, third] = [(); 3].map(|()| context(SHM));
    let (out, listener) = sender(&ctx);
    let [former, input] = [(); 2].map(|()| RIn::new(&connect(&other, &listener)));
    begin(&input, &former);
    for bid in [1, 2] {
        out.create_buffer(bid, 1 << 16).unwrap();
        subscribe(&input, bid, ring_of(1 << 16));
    }
    let (_own, own) = sender(&other);
    let (_busy, _visitor) = keep_busy(&own, &third);
    for n in 0..20 {
        let (from, to) = (n * 500, (n + 1) * 500);
        write(&out, 1, 300, 300);
        write(&out, 2, 500, 500);
        let first = look(&input).unwrap();
        write(&out, 1, 200, 200);
        let second = look(&input).unwrap();
        assert!(first.0 != second.0, "{first:?} {second:?}");
        let rest = look(&input);
        let of =
            |bid| [Some(first), Some(second), rest].into_iter().flatten().filter(move |taken| taken.0 == bid);
        for bid in [1, 2] {
            assert_eq!(of(bid).next().map(|taken| taken.1), Some(from));
            assert_eq!(of(bid).next_back().map(|taken| taken.2), Some(to));
        }
        assert_eq!(look(&input), None);
    }
}

/// A thread that looks itself while it is awake, and sleeps otherwise, gets everything, whatever the writer sees of it.
#[test]
fn a_thread_that_looks_itself_is_woken_when_it_sleeps() {
    const TOTAL: u64 = 3 << 20;
    let [ctx, other] = [(); 2].map(|()| context(SHM));
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let input = RIn::new(&connect(&other, &listener));
    input.attend(true);
    let mut at = subscribe(&input, 1, ring_of(1 << 16));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..TOTAL / 512 {
                write(&out, 1, 512, 512);
                if n % 64 == 0 {
                    std::thread::sleep(Duration::from_micros(n % 300));
                }
            }
        });
        while at < TOTAL {
            while let Some((_, from, to)) = look(&input) {
                assert_eq!(from, at);
                at = to;
            }
            if at < TOTAL && !input.attend(false) {
                let descriptor = input.pollable().unwrap();
                let wait = Timespec::try_from(WAIT).unwrap();
                assert_eq!(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&wait)).unwrap(), 1);
            }
            input.attend(true);
        }
    });
    out.destroy_buffer(1).unwrap();
    input.attend(false);
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Closed { bid: 1, .. })));
}

/// A thread that looks itself, and a writer whose only worker does nothing from some time on, so that it reports nothing. Nothing but the doorbell wakes the
/// reader's worker then.
struct Looking {
    out: ROut,
    listener: Listener,
    input: RIn,
    at: u64,
    begun: Instant,
    contexts: [Context; 2],
}

impl Looking {
    fn new() -> Self {
        let contexts = [(); 2].map(|()| {
            let mut quiet = config(SHM);
            (quiet.buffers.idle_trim_ms, quiet.session.heartbeat_ms) = (3_600_000, 3_600_000);
            Context::new(quiet).unwrap()
        });
        let (out, listener) = sender(&contexts[0]);
        out.create_buffer(1, 1 << 16).unwrap();
        let input = RIn::new(&connect(&contexts[1], &listener));
        input.attend(true);
        let mut looking = Self { out, listener, input, at: 0, begun: Instant::now(), contexts };
        looking.know_each_other();
        looking
    }

    /// Subscribes, and returns when the writer knows the doorbell: the credit for the delivery comes after that.
    fn know_each_other(&mut self) {
        self.at = subscribe(&self.input, 1, ring_of(1 << 16)) + 100;
        write(&self.out, 1, 100, 100);
        assert_eq!(take(&self.input, self.at - 100, self.at), 0);
        self.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, self.at, Some(WAIT)).unwrap();
    }

    /// Says that the thread is awake. A worker that takes its turn at this moment would not hear it.
    fn attend(&self) {
        for _ in 0..20 {
            self.input.attend(true);
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Sleeps as an event loop does, unless there is something to take.
    fn sleep(&self) {
        if !self.input.attend(false) {
            let (descriptor, wait) = (self.input.pollable().unwrap(), Timespec::try_from(WAIT).unwrap());
            poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&wait)).unwrap();
            assert!(self.begun.elapsed() < WAIT, "not woken by the writer");
        }
    }

    /// Takes so much, and what it has to sleep for.
    fn take(&mut self, bytes: u64) {
        let end = self.at + bytes;
        while self.at < end {
            match look(&self.input) {
                Some((_, from, to)) => {
                    assert_eq!(from, self.at);
                    self.at = to;
                }
                None => self.sleep(),
            }
        }
    }
}

/// Also what comes between the last look and the sleep wakes the thread, or keeps it awake.
#[test]
fn the_writer_alone_wakes_a_thread_that_looks_itself() {
    let mut looking = Looking::new();
    let visitor = context(SHM);
    looking.begun = Instant::now();
    let (_busy, _visitor) = keep_busy(&looking.listener, &visitor);
    for _ in 0..20 {
        looking.attend();
        write(&looking.out, 1, 500, 500);
        looking.sleep();
        looking.take(500);
        looking.attend();
        assert!(!looking.input.attend(false), "there is nothing");
        write(&looking.out, 1, 500, 500);
        looking.sleep();
        looking.take(500);
    }
}

/// Nobody looks yet at the rings of another connection, although there are as many of them as the thread looked at before.
#[test]
fn the_writer_wakes_the_next_connection() {
    let mut looking = Looking::new();
    looking.attend();
    looking.input.conn().close("done");
    let input = RIn::new(&connect(&looking.contexts[1], &looking.listener));
    input.look_like(&looking.input);
    looking.input = input;
    looking.know_each_other();
    let visitor = context(SHM);
    looking.begun = Instant::now();
    let (_busy, _visitor) = keep_busy(&looking.listener, &visitor);
    for _ in 0..5 {
        write(&looking.out, 1, 500, 500);
        looking.sleep();
        looking.take(500);
        looking.attend();
    }
}

/// Only eight rings are looked at. The ninth one is when another one has left.
#[test]
fn a_ring_beyond_the_eighth_moves_up() {
    let [ctx, other, third] = [(); 3].map(|()| context(SHM));
    let (out, listener) = sender(&ctx);
    let input = RIn::new(&connect(&other, &listener));
    input.attend(true);
    for bid in 1..=9 {
        out.create_buffer(bid, 1 << 16).unwrap();
        subscribe(&input, bid, ring_of(1 << 16));
    }
    let (_own, own) = sender(&other);
    let (_busy, _visitor) = keep_busy(&own, &third);
    input.unsubscribe(3);
    for n in 0..3 {
        for bid in [9, 1] {
            write(&out, bid, 500, 500);
            assert_eq!(look(&input), Some((bid, n * 500, (n + 1) * 500)));
        }
    }
}
