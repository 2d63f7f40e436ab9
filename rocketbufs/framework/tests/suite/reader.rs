//! The exclusive reader of an rIn: it gets the same data as `recv`, and releases the bytes that it has read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use rocketbufs::config::TransportKind;
use rocketbufs::error::{BufferError, RecvError};
use rocketbufs::{Bid, Context, InEvent, InRead, InReader, ProgressLevel, RIn, ROut, Start};

use crate::ends::{self, WAIT, connect, context, pattern, receiver, ring_of, sender, write};

const RING: u64 = 1 << 16;
/// So many bytes come one by one before a test takes it that they are read without the worker.
const WARM: u64 = 2_000;

fn shared(busy_poll_us: u32) -> Context {
    let mut config = ends::spinning(busy_poll_us);
    // With an hour until trimming, a notice that is not sent at once does not come with a trim either.
    config.buffers.idle_trim_ms = 3_600_000;
    Context::new(config).unwrap()
}

fn spinning() -> Context {
    shared(2_000)
}

/// The next position of each buffer. Received data is checked byte for byte.
#[derive(Default)]
struct Seen {
    at: HashMap<Bid, u64>,
    /// How long it takes for each.
    pause: Duration,
}

impl Seen {
    fn at(&self, bid: Bid) -> u64 {
        self.at.get(&bid).copied().unwrap_or(0)
    }

    /// Takes the next event; none if it was data.
    fn recv(&mut self, reader: &mut InReader, timeout: Duration) -> Option<InRead> {
        let read = reader.recv(Some(timeout), |bid, seg| {
            let at = self.at.entry(bid).or_default();
            assert_eq!(seg.position(), *at, "of buffer {bid}");
            let mut bytes = vec![0; seg.len()];
            seg.copy_to(0, &mut bytes).unwrap();
            assert!(bytes == pattern(*at, bytes.len()), "wrong bytes at {at} of buffer {bid}");
            *at = seg.end();
            if !self.pause.is_zero() {
                std::thread::sleep(self.pause);
            }
        });
        Some(read.unwrap()).filter(|read| !matches!(read, InRead::Data))
    }

    fn take(&mut self, reader: &mut InReader, bid: Bid, to: u64) {
        while self.at(bid) < to {
            let other = self.recv(reader, WAIT);
            assert!(other.is_none(), "{other:?}");
        }
    }
}

fn subscribe(reader: &mut InReader, input: &RIn, bid: Bid) {
    let options = ring_of(RING).start(Start::Oldest);
    input.subscribe_with(bid, options).unwrap();
    let read = reader.recv(Some(WAIT), |_, _| panic!("data before the answer")).unwrap();
    assert!(matches!(read, InRead::Event(InEvent::Subscribed { bid: of, .. }) if of == bid), "{read:?}");
}

/// A publisher and a reader of its buffer 1, which has read something already.
struct Pair {
    out: ROut,
    listener: rocketbufs::Listener,
    input: RIn,
    reader: InReader,
    seen: Seen,
    contexts: [Context; 2],
}

impl Pair {
    fn new(contexts: [Context; 2]) -> Self {
        let (out, listener) = sender(&contexts[0]);
        out.create_buffer(1, RING).unwrap();
        let input = receiver(&contexts[1], &listener);
        let mut reader = input.reader().unwrap();
        subscribe(&mut reader, &input, 1);
        let mut pair = Self { out, listener, input, reader, seen: Seen::default(), contexts };
        pair.read(WARM);
        pair
    }

    /// So many bytes are written and read, a hundred at a time.
    fn read(&mut self, bytes: u64) {
        let end = self.seen.at(1) + bytes;
        while self.seen.at(1) < end {
            let to = self.seen.at(1) + 100;
            write(&self.out, 1, 100, 100);
            self.seen.take(&mut self.reader, 1, to);
        }
    }
}

#[test]
fn it_sees_everything_and_then_the_end() {
    let contexts: [fn() -> Context; 3] = [|| context(TransportKind::Tcp), || shared(0), spinning];
    for context in contexts {
        let mut pair = Pair::new([context(), context()]);
        let total = WARM + (2 << 20);
        std::thread::scope(|scope| {
            scope.spawn(|| write(&pair.out, 1, 2 << 20, 900));
            pair.seen.take(&mut pair.reader, 1, total);
        });
        pair.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, total, Some(WAIT)).unwrap();
        pair.out.destroy_buffer(1).unwrap();
        let end = pair.seen.recv(&mut pair.reader, WAIT);
        assert!(
            matches!(end, Some(InRead::Event(InEvent::Closed { bid: 1, end })) if end == total),
            "{end:?}"
        );
        let nothing = pair.seen.recv(&mut pair.reader, WAIT / 1000);
        assert!(matches!(nothing, Some(InRead::TimedOut)), "{nothing:?}");
    }
}

/// Read bytes are confirmed although the reader makes no further call. Deliveries in quick succession are read without the
/// worker.
#[test]
fn data_that_a_reader_has_read_is_consumed() {
    let mut pair = Pair::new([spinning(), spinning()]);
    let (seen, known) = (AtomicU64::new(WARM), AtomicU64::new(WARM));
    let until = |what: &AtomicU64, at: u64| {
        let begun = std::time::Instant::now();
        while what.load(Ordering::SeqCst) < at {
            assert!(begun.elapsed() < WAIT, "{at} did not come");
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let (out, seen, known) = (pair.out.clone(), &seen, &known);
        scope.spawn(move || {
            for at in (WARM..).step_by(100).take(2_000) {
                write(&out, 1, 100, 100);
                if at % 10_000 == 0 {
                    out.buffer(1).unwrap().wait(ProgressLevel::Consumed, at + 100, Some(WAIT)).unwrap();
                } else {
                    until(seen, at + 100);
                }
                known.store(at + 100, Ordering::SeqCst);
            }
        });
        for at in (WARM..).step_by(100).take(2_000) {
            // Long enough that the worker's own thread gets the request while this thread still has to report its position.
            pair.seen.pause = if at % 10_000 == 0 { WAIT / 4000 } else { Duration::ZERO };
            pair.seen.take(&mut pair.reader, 1, at + 100);
            seen.store(at + 100, Ordering::SeqCst);
            until(known, at + 100);
        }
    });
}

#[test]
fn a_reader_excludes_other_receivers() {
    let pair = Pair::new([spinning(), spinning()]);
    assert_eq!(pair.input.recv(None).unwrap_err(), RecvError::ReaderTaken);
    assert_eq!(pair.input.reader().unwrap_err(), RecvError::ReaderTaken);
    let relay = ROut::new(&pair.contexts[1]);
    assert!(matches!(relay.splice(&pair.input, 1), Err(BufferError::HasReader(1))));
    // Bytes that the reader has read are released for other calls too, and other calls cannot release more.
    write(&pair.out, 1, 100, 100);
    assert!(matches!(pair.input.data_consumed(1, 200), Err(RecvError::TooMuch { .. })));
    assert_eq!(pair.input.get_buf_ref(1).unwrap().position(), WARM);
    drop(pair.reader);
    let Some(InEvent::Data(view)) = pair.input.recv(Some(WAIT)).unwrap() else { panic!("nothing came") };
    assert_eq!((view.position(), view.to_vec().unwrap()), (WARM, pattern(WARM, 100)));
    view.consume();
    relay.splice(&pair.input, 1).unwrap();
    assert!(pair.input.reader().is_ok());
}

#[test]
fn the_reader_continues_over_another_connection() {
    for context in [spinning, || context(TransportKind::Tcp)] as [fn() -> Context; 2] {
        let mut pair = Pair::new([context(), context()]);
        for _ in 0..5 {
            let next = connect(&pair.contexts[1], &pair.listener);
            pair.input.resume(&next);
            pair.read(1_000);
            let old = pair.input.conn();
            old.close("lost");
            old.wait_down(Some(WAIT)).unwrap().unwrap();
            write(&pair.out, 1, 100, 100);
            let down = pair.seen.recv(&mut pair.reader, WAIT);
            assert!(matches!(down, Some(InRead::Event(InEvent::ConnDown { .. }))), "{down:?}");
            pair.input.resume(&connect(&pair.contexts[1], &pair.listener));
            let to = pair.seen.at(1) + 100;
            pair.seen.take(&mut pair.reader, 1, to);
        }
    }
}

#[test]
fn a_subscription_that_was_left_brings_nothing_more() {
    let mut pair = Pair::new([spinning(), spinning()]);
    pair.input.unsubscribe(1);
    write(&pair.out, 1, 500, 100);
    let nothing = pair.seen.recv(&mut pair.reader, WAIT / 1000);
    assert!(matches!(nothing, Some(InRead::TimedOut)), "{nothing:?}");
    pair.input.subscribe(1, RING).unwrap();
    let Some(InRead::Event(InEvent::Subscribed { start, .. })) = pair.seen.recv(&mut pair.reader, WAIT)
    else {
        panic!("no answer")
    };
    pair.seen.at.insert(1, start);
    pair.read(1_000);
}

/// Bytes that were passed to a panicking handler count as read, and are released with the next bytes.
#[test]
fn a_handler_may_panic() {
    for context in [spinning, || context(TransportKind::Tcp)] as [fn() -> Context; 2] {
        let mut pair = Pair::new([context(), context()]);
        write(&pair.out, 1, 100, 100);
        let reader = &mut pair.reader;
        let panics = std::panic::AssertUnwindSafe(|| reader.recv(Some(WAIT), |_, _| panic!("on purpose")));
        std::panic::catch_unwind(panics).unwrap_err();
        pair.seen.at.insert(1, WARM + 100);
        pair.read(1_000);
        pair.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, WARM + 1_100, Some(WAIT)).unwrap();
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Write(Bid, u64),
    /// Everything that was written and not received yet.
    Drain,
    Recv,
    /// Through another reader, or without one.
    Again,
    Without,
    Consumed(Bid),
    Rest,
}

fn step() -> impl Strategy<Value = Step> {
    let bid = 1..=2_u32;
    prop_oneof![
        8 => (bid.clone(), 1..3_000_u64).prop_map(|(bid, bytes)| Step::Write(bid, bytes)),
        4 => Just(Step::Recv),
        2 => Just(Step::Drain),
        1 => Just(Step::Again),
        1 => Just(Step::Without),
        1 => bid.prop_map(Step::Consumed),
        1 => Just(Step::Rest),
    ]
}

fn wait_consumed(out: &ROut, bid: Bid, position: u64) {
    out.buffer(bid).unwrap().wait(ProgressLevel::Consumed, position, Some(WAIT)).unwrap();
}

/// Runs steps on two buffers whose bytes are a function of their positions. Each byte must come once and in order.
fn run(steps: &[Step]) {
    let (ctx, other) = (spinning(), spinning());
    let (out, listener) = sender(&ctx);
    let input = receiver(&other, &listener);
    let (mut seen, mut written) = (Seen::default(), HashMap::from([(1, 0), (2, 0)]));
    let mut reader = input.reader().unwrap();
    for bid in [1, 2] {
        out.create_buffer(bid, RING).unwrap();
        subscribe(&mut reader, &input, bid);
    }
    let drain = |seen: &mut Seen, reader: &mut InReader, written: &HashMap<Bid, u64>| {
        while written.iter().any(|(bid, to)| seen.at(*bid) < *to) {
            assert!(seen.recv(reader, WAIT).is_none());
        }
    };
    for step in steps {
        match *step {
            Step::Write(bid, bytes) => {
                let to = written.get_mut(&bid).unwrap();
                if *to + bytes - seen.at(bid) > RING / 4 {
                    drain(&mut seen, &mut reader, &HashMap::from([(bid, *to)]));
                }
                write(&out, bid, bytes, 700);
                *to += bytes;
            }
            Step::Recv => drop(seen.recv(&mut reader, Duration::ZERO)),
            Step::Drain => drain(&mut seen, &mut reader, &written),
            Step::Again => {
                drop(reader);
                reader = input.reader().unwrap();
            }
            Step::Without => {
                drop(reader);
                if let Some(InEvent::Data(view)) = input.recv(Some(Duration::ZERO)).unwrap() {
                    assert_eq!(view.position(), seen.at(view.bid()));
                    assert!(view.to_vec().unwrap() == pattern(view.position(), view.len()));
                    seen.at.insert(view.bid(), view.end());
                    view.consume();
                }
                reader = input.reader().unwrap();
            }
            Step::Consumed(bid) => wait_consumed(&out, bid, seen.at(bid)),
            Step::Rest => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    drain(&mut seen, &mut reader, &written);
    written.iter().for_each(|(bid, to)| wait_consumed(&out, *bid, *to));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn each_byte_comes_once_for_any_steps(steps in proptest::collection::vec(step(), 1..80)) {
        run(&steps);
    }
}
