//! Confirmations over real TCP: minima through chains, the counted receivers, and waiting publishers.

use std::time::Duration;

use rocketbufs::Coverage;
use rocketbufs::relay::CoveragePart;
use rocketbufs::{
    BufferOptions, Config, ConfirmMode, Conn, Context, InEvent, Listener, ProgressLevel, RIn, ROut,
    SegmentError, Start, SubscribeOptions, WaitError,
};

const WAIT: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(30);

/// A process of a chain: an rOut and its listener.
struct End {
    out: ROut,
    listener: Listener,
}

impl End {
    fn new(ctx: &Context) -> Self {
        let (out, listener) = (ROut::new(ctx), Listener::bind(ctx, "127.0.0.1:0").unwrap());
        let to = out.clone();
        listener.set_conn_cb(move |conn| to.add_conn(&conn));
        Self { out, listener }
    }

    /// A broker of buffer 1 below another.
    fn below(ctx: &Context, above: &Self) -> Self {
        let (end, input) = (Self::new(ctx), above.reader(ctx));
        let options = SubscribeOptions::new().size_bytes(1 << 16);
        end.out.splice_with(&input, 1, 1, options).unwrap();
        end
    }

    fn reader(&self, ctx: &Context) -> RIn {
        RIn::new(&Conn::connect(ctx, &self.listener.local_addr(), b"").unwrap())
    }

    /// A subscriber that is there.
    fn subscriber(&self, ctx: &Context) -> RIn {
        let input = self.reader(ctx);
        input.subscribe(1, 1 << 16).unwrap();
        assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
        input
    }

    fn write(&self, bytes: &[u8]) -> u64 {
        let size = bytes.len() as u64;
        let mut segment = self.out.buffer(1).unwrap().segment(size, Some(WAIT)).unwrap();
        segment.bytes_mut().copy_from_slice(bytes);
        self.out.deliver(segment, size, None).unwrap()
    }

    fn until(&self, what: &str, so: impl Fn(&rocketbufs::ConfirmedPositions) -> bool) {
        let started = std::time::Instant::now();
        while !so(&self.out.buffer(1).unwrap().confirmed()) {
            assert!(
                started.elapsed() < WAIT,
                "never: {what}: {:?}",
                self.out.buffer(1).map(|buffer| buffer.confirmed())
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn chain(ctx: &Context) -> (End, End) {
    let source = End::new(ctx);
    source.out.create_buffer(1, 1 << 16).unwrap();
    let first = End::below(ctx, &source);
    let second = End::below(ctx, &first);
    (source, second)
}

/// Reads one delivery and gives it back.
fn take(input: &RIn) -> u64 {
    match input.recv(Some(WAIT)).unwrap() {
        Some(InEvent::Data(view)) => {
            let end = view.end();
            view.consume();
            end
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn levels_are_true_through_two_brokers() {
    let ctx = Context::new(Config::default()).unwrap();
    let (source, last) = chain(&ctx);
    let (reader, idle) = (last.subscriber(&ctx), last.subscriber(&ctx));
    source.until("both are counted", |c| c.coverage == Coverage { receivers: 2, ..Coverage::ONE });
    let first = source.write(b"first");
    source.out.buffer(1).unwrap().wait(ProgressLevel::Delivered, first, Some(WAIT)).unwrap();
    assert_eq!(take(&reader), first);
    let error = source.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, first, Some(SHORT)).unwrap_err();
    assert_eq!(error, WaitError::TimedOut { confirmed: 0 }, "a subscriber has not read the message");
    assert_eq!(take(&idle), first);
    source.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, first, Some(WAIT)).unwrap();
    let second = source.write(b"second");
    assert_eq!(take(&reader), second);
    // A receiver that leaves no longer counts, and is reported.
    idle.conn().close("the test");
    source.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, second, Some(WAIT)).unwrap();
    source.until("the departure is reported", |c| c.coverage == Coverage { left: 1, ..Coverage::ONE });
}

/// A receiver confirms no bytes before its first position, and no bytes of a hole.
#[test]
fn receivers_confirm_only_bytes_that_they_have() {
    let ctx = Context::new(Config::default()).unwrap();
    let (source, last) = chain(&ctx);
    let reader = |start| {
        let options =
            SubscribeOptions::new().size_bytes(1 << 16).confirm(ConfirmMode::OnConsume).start(start);
        let reader = last.reader(&ctx);
        reader.subscribe_with(1, options).unwrap();
        assert!(matches!(reader.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
        reader
    };
    let early = reader(Start::Oldest);
    source.until("the receiver is counted", |c| c.coverage == Coverage::ONE);
    let first = source.write(b"first");
    source.until("the message has landed", |c| c.landed == first);
    let late = reader(Start::Newest);
    let both = Coverage { receivers: 2, covered_from: first, ..Coverage::ONE }
        .with_parts([CoveragePart { covered_from: 0, receivers: 1 }]);
    source.until("both are counted", |c| c.coverage == both);
    assert_eq!(source.out.buffer(1).unwrap().confirmed().delivered, 0);
    let second = source.write(b"second");
    // Data that arrived before the first look is there at once.
    while take(&early) < second {}
    assert_eq!(take(&late), second);
    source.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, second, Some(WAIT)).unwrap();
    // The remaining receiver has everything.
    late.conn().close("the test");
    source.until("the departure is reported", |c| c.coverage == Coverage { left: 1, ..Coverage::ONE });
}

/// A receiver that joins behind two brokers, and has less than was confirmed before, does not confirm the earlier bytes.
#[test]
fn receivers_that_join_later_confirm_their_bytes() {
    let ctx = Context::new(Config::default()).unwrap();
    let (source, last) = chain(&ctx);
    let reader = || {
        let reader = last.reader(&ctx);
        let (size_bytes, start) = (1 << 16, Start::Oldest);
        reader.subscribe_with(1, SubscribeOptions::new().size_bytes(size_bytes).start(start)).unwrap();
        assert!(matches!(reader.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
        reader
    };
    // The brokers are there.
    last.subscriber(&ctx).conn().close("the test");
    source
        .until("the receiver is gone", |c| c.coverage == Coverage { receivers: 0, left: 1, ..Coverage::ONE });
    let end = source.write(b"for nobody, and then for two");
    source.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, end, Some(WAIT)).unwrap();
    let mut readers = Vec::new();
    for receivers in 1..=2 {
        let reader = reader();
        source.until("the receiver is counted", |c| {
            c.coverage == Coverage { receivers, left: 1, ..Coverage::ONE }
        });
        let confirmed = source.out.buffer(1).unwrap().confirmed();
        assert_eq!(confirmed.consumed, 0, "receiver {receivers}");
        // Asked for again, as the answer before was for others.
        let taken = std::thread::spawn(move || (take(&reader), reader));
        source.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, end, Some(WAIT)).unwrap();
        let (at, reader) = taken.join().unwrap();
        assert_eq!(at, end);
        readers.push(reader);
    }
}

/// A receiver that releases everything and leaves at the same moment still confirms those bytes, through a chain of any length.
#[test]
fn receivers_that_leave_count_with_their_last_confirmation() {
    let ctx = Context::new(Config::default()).unwrap();
    let (source, last) = chain(&ctx);
    let (tell, told) = std::sync::mpsc::sync_channel(1000);
    source.out.set_subscriber_progress_cb(move |progress| {
        let _ = tell.try_send((progress.consumed, progress.coverage));
    });
    let reader = last.subscriber(&ctx);
    source.until("the receiver is counted", |c| c.coverage == Coverage::ONE);
    let end = source.write(b"the last word");
    source.out.buffer(1).unwrap().request_confirm(ProgressLevel::Consumed, end);
    assert_eq!(take(&reader), end);
    reader.conn().close("the test");
    source.until("the departure is reported", |c| c.coverage.left == 1);
    let first = told.try_iter().find(|(consumed, _)| *consumed >= end);
    assert_eq!(first, Some((end, Coverage::ONE)));
}

#[test]
fn without_a_receiver_it_is_confirmed_at_once() {
    let ctx = Context::new(Config::default()).unwrap();
    let (source, _last) = chain(&ctx);
    source.until("the broker is there", |c| c.subscriptions == 1);
    let end = source.write(b"for nobody");
    source.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, end, Some(WAIT)).unwrap();
    assert_eq!(source.out.buffer(1).unwrap().confirmed().coverage.receivers, 0);
}

#[test]
fn waiting_for_less_is_not_delayed_by_waiting_for_more() {
    let ctx = Context::new(Config::default()).unwrap();
    let (source, last) = chain(&ctx);
    let reader = last.subscriber(&ctx);
    source.until("the receiver is counted", |c| c.coverage.receivers == 1);
    let (told, hears) = std::sync::mpsc::sync_channel(100);
    source.out.set_subscriber_progress_cb(move |progress| {
        let _ = told.try_send(progress);
    });
    let ends: Vec<u64> = (0..5).map(|n| source.write(&[n; 10])).collect();
    // Far less than a quarter of any window: only questions can bring it.
    source.out.buffer(1).unwrap().request_confirm(ProgressLevel::Consumed, ends[4]);
    std::thread::scope(|scope| {
        for end in ends.iter().rev() {
            scope.spawn(|| {
                source.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, *end, Some(WAIT)).unwrap()
            });
        }
        std::thread::sleep(SHORT);
        for end in &ends {
            assert_eq!(take_one(&reader), *end);
            source.out.buffer(1).unwrap().wait(ProgressLevel::Consumed, *end, Some(WAIT)).unwrap();
        }
    });
    let last = std::iter::from_fn(|| hears.recv_timeout(WAIT).ok()).find(|p| p.consumed == ends[4]);
    assert_eq!(last.unwrap().coverage.receivers, 1);
}

/// Gives back ten bytes.
fn take_one(input: &RIn) -> u64 {
    while input.get_buf_ref(1).unwrap().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let at = input.get_buf_ref(1).unwrap().position();
    input.data_consumed(1, 10).unwrap();
    at + 10
}

#[test]
fn undelivered_data_is_kept_by_its_writer() {
    let ctx = Context::new(Config::default()).unwrap();
    let source = End::new(&ctx);
    let options = BufferOptions::new().size_bytes(1 << 16).keep_until_delivered(true);
    source.out.create_buffer_with(1, options).unwrap();
    let broker = End::below(&ctx, &source);
    source.until("the broker is there", |c| c.subscriptions == 1);
    // The reader subscribes, and confirms bytes when it releases them.
    let reader = broker.reader(&ctx);
    let from = SubscribeOptions::new().size_bytes(1 << 16).confirm(ConfirmMode::OnConsume);
    reader.subscribe_with(1, from).unwrap();
    assert!(matches!(reader.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    let full = loop {
        match source.out.buffer(1).unwrap().segment(1000, Some(SHORT)) {
            Ok(segment) => drop(source.out.deliver(segment, 1000, None).unwrap()),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, SegmentError::TimedOut | SegmentError::Full), "{full}");
    let info = source.out.buffer(1).unwrap().info().unwrap();
    assert_eq!(info.tail, 0);
    source.out.buffer(1).unwrap().wait(ProgressLevel::Landed, info.head, Some(WAIT)).unwrap();
    let landed = source.out.buffer(1).unwrap().confirmed();
    assert!(landed.landed > 0 && landed.delivered == 0, "{landed:?}");
    while take(&reader) < info.head {}
    let end = source.write(&[7; 1000]);
    while take(&reader) < end {}
    source.out.buffer(1).unwrap().wait(ProgressLevel::Delivered, end, Some(WAIT)).unwrap();
}

/// In a ring that is full except for less than a block of its index, the index no longer has the start of the oldest delivery.
/// Kept deliveries are sent again in whole nevertheless.
#[test]
fn kept_deliveries_are_sent_again_whole() {
    let ctx = Context::new(Config::default()).unwrap();
    let source = End::new(&ctx);
    let options = BufferOptions::new().size_bytes(1 << 16).keep_until_delivered(true);
    source.out.create_buffer_with(1, options).unwrap();
    let take_place = |start: Start| {
        let reader = source.reader(&ctx);
        let options = SubscribeOptions::new()
            .size_bytes(1 << 16)
            .start(start)
            .confirm(ConfirmMode::OnConsume)
            .durable(b"place", WAIT);
        reader.subscribe_with(1, options).unwrap();
        loop {
            if let Some(InEvent::Subscribed { start, .. }) = reader.recv(Some(WAIT)).unwrap() {
                return (reader, start);
            }
        }
    };
    let (first, _) = take_place(Start::Oldest);
    // The oldest undelivered delivery begins in the last byte of a block.
    let kept = source.write(&[1; 255]);
    assert_eq!(take(&first), kept);
    source.out.buffer(1).unwrap().wait(ProgressLevel::Delivered, kept, Some(WAIT)).unwrap();
    for _ in 0..3 {
        source.write(&[2; 16_384]);
    }
    source.write(&[3; 16_300]);
    first.conn().close("the test");
    source.until("its durable cursor is kept", |c| {
        c.subscriptions == 1 && source.out.buffer(1).unwrap().durable_cursors().len() == 1
    });
    // Another subscriber with this name, without any bytes of the log.
    let (_second, start) = take_place(Start::Position(rocketbufs::Epoch(0), 0));
    assert_eq!(start, kept);
}
