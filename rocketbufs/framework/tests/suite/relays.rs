//! A forwarding application reports by itself how far the forwarded data is confirmed.

use std::sync::mpsc;
use std::time::Duration;

use rocketbufs::Coverage;
use rocketbufs::config::TransportKind;
use rocketbufs::error::{BufferError, SubscribeError};
use rocketbufs::{
    Budget, BufferOptions, Config, ConfirmMode, Conn, Context, Epoch, InEvent, OutEvent, ProgressLevel, RIn,
    ROut, SegmentError, Start, SubscribeOptions, WaitError,
};

use crate::ends::{self, WAIT, receiver, ring_of, sender, subscribe, take, until, write};

const SHORT: Duration = Duration::from_millis(50);
const BID: u32 = 7;

#[test]
fn forwarded_data_is_confirmed_by_the_forwarder() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(BID, 64 << 10).unwrap();
    let input = receiver(&ctx, &listener);
    let options = SubscribeOptions::new().size_bytes(64 << 10).confirm(ConfirmMode::Relayed);
    input.subscribe_with(BID, options).unwrap();
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));

    let end = out.buffer(BID).unwrap().writer().unwrap().append(&[&[1; 1000]]).unwrap();
    let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("nothing came") };
    assert_eq!(
        out.buffer(BID).unwrap().wait(ProgressLevel::Landed, end, Some(SHORT)),
        Err(WaitError::TimedOut { confirmed: 0 })
    );
    view.consume();
    out.buffer(BID).unwrap().wait(ProgressLevel::Landed, end, Some(WAIT)).unwrap();

    // Released bytes are not delivered yet. The application learns that a publisher waits for a confirmation.
    let waiting = out.clone();
    let waits = std::thread::spawn(move || {
        waiting.buffer(BID).unwrap().wait(ProgressLevel::Delivered, end, Some(WAIT))
    });
    let asked = input.recv(Some(WAIT)).unwrap();
    assert!(
        matches!(asked, Some(InEvent::ConfirmRequested { bid: BID, delivered, consumed: 0 }) if delivered == end)
    );
    assert!(!waits.is_finished());
    input
        .subscription(BID)
        .unwrap()
        .confirm(end, 0, Coverage { receivers: 3, left: 1, ..Coverage::ONE })
        .unwrap();
    waits.join().unwrap().unwrap();
    let confirmed = out.buffer(BID).unwrap().confirmed();
    assert_eq!((confirmed.consumed, confirmed.coverage.receivers, confirmed.coverage.left), (0, 3, 1));

    let waiting = out.clone();
    let waits = std::thread::spawn(move || {
        waiting.buffer(BID).unwrap().wait(ProgressLevel::Consumed, end, Some(WAIT))
    });
    assert!(
        matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::ConfirmRequested { consumed, .. }) if consumed == end)
    );
    // A confirmation beyond the released bytes is cut to them.
    input.subscription(BID).unwrap().confirm(end + 9, end + 9, Coverage::ONE).unwrap();
    waits.join().unwrap().unwrap();
    assert_eq!(out.buffer(BID).unwrap().confirmed().consumed, end);
    assert!(input.subscription(BID + 1).is_none());
}

/// The state of the subscription when the publisher's connection is lost.
#[derive(Debug, Clone, Copy)]
enum Lost {
    Connecting,
    Unasked,
    Answered,
}

/// Subscribers of a spliced buffer get GONE whenever in the handshake the writer was lost.
#[test]
fn a_writer_lost_during_the_handshake_is_gone_after_its_linger() {
    for lost in [Lost::Connecting, Lost::Unasked, Lost::Answered] {
        let mut lingers = Config::default();
        lingers.session.linger_ms = 50;
        let (ctx, broker) = (Context::new(Config::default()).unwrap(), Context::new(lingers).unwrap());
        let (out, listener) = sender(&ctx);
        out.create_buffer(BID, 64 << 10).unwrap();
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (input, accepted) = match lost {
            Lost::Connecting => {
                let addr = silent.local_addr().unwrap().to_string();
                let input = RIn::new(&Conn::connect_start(&broker, &addr, b"").unwrap());
                (input, Some(silent.accept().unwrap()))
            }
            _ => (receiver(&broker, &listener), None),
        };
        if let Lost::Answered = lost {
            input.subscribe(BID, 64 << 10).unwrap();
            assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
        }
        if accepted.is_none() {
            input.conn().close("the test");
            input.conn().wait_down(Some(WAIT)).unwrap().unwrap();
        }
        if !matches!(lost, Lost::Answered) {
            input.subscribe(BID, 64 << 10).unwrap();
        }
        let relay = ROut::new(&broker);
        relay.splice(&input, BID).unwrap();
        drop(accepted);
        loop {
            match input.recv(Some(WAIT)).unwrap() {
                Some(InEvent::ConnDown { .. }) => {}
                Some(InEvent::Gone { bid: BID, end: 0 }) => break,
                other => panic!("{lost:?}: {other:?}"),
            }
        }
    }
}

/// A splice that subscribes at once fails as a whole, for every reason that a part of it can have.
#[test]
fn a_failed_splice_subscribes_to_nothing() {
    let source = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&source);
    let mut config = Config::default();
    config.limits.max_buffers = 4;
    let broker = Context::new(config).unwrap();
    let (relay, relays) = sender(&broker);
    for bid in [BID, 2] {
        out.create_buffer(bid, 1 << 16).unwrap();
    }
    relay.create_buffer(9, 1 << 16).unwrap();
    let input = receiver(&broker, &listener);
    subscribe(&input, 2, ring_of(1 << 16));
    let options = || ring_of(1 << 16);
    // More attempts than `max_buffers`, so that leftovers of failed attempts would show.
    for _ in 0..10 {
        let taken = relay.splice_with(&input, BID, 9, options()).unwrap_err();
        assert!(matches!(taken, BufferError::Exists(9)), "{taken}");
        let known = relay.splice_with(&input, 2, 2, options()).unwrap_err();
        assert!(matches!(known, BufferError::NotSubscribed(SubscribeError::Exists(2))), "{known}");
        let budget = options().budget(Some(Budget::new(1 << 20)));
        let shares = relay.splice_with(&input, BID, BID, budget).unwrap_err();
        assert!(matches!(shares, BufferError::Budgeted(BID)), "{shares}");
        let name = options().durable(vec![b'a'; 1000], Duration::ZERO);
        let long = relay.splice_with(&input, BID, BID, name).unwrap_err();
        assert!(
            matches!(long, BufferError::NotSubscribed(SubscribeError::NameTooLong { size: 1000, .. })),
            "{long}"
        );
        let reader = input.reader().unwrap();
        let read = relay.splice_with(&input, BID, BID, options()).unwrap_err();
        assert!(matches!(read, BufferError::HasReader(BID)), "{read}");
        drop(reader);
    }
    let subscribed: Vec<_> = input.subscriptions().iter().map(|subscription| subscription.bid()).collect();
    let buffers: Vec<_> = relay.buffers().iter().map(|buffer| buffer.bid()).collect();
    assert_eq!((subscribed, buffers), (vec![2], vec![9]));
    relay.splice_with(&input, BID, 70, options()).unwrap();
    let below = receiver(&source, &relays);
    subscribe(&below, 70, ring_of(1 << 16));
    std::thread::scope(|scope| {
        scope.spawn(|| write(&out, BID, 1 << 18, 5_000));
        assert_eq!(take(&below, 0, 1 << 18), 0);
    });
}

#[test]
fn resuming_twice_continues_over_the_last_connection() {
    let ctx = Context::new(Config::default()).unwrap();
    let (writes, listener) = sender(&ctx);
    writes.create_buffer(BID, 64 << 10).unwrap();
    // Connections of several workers, which hear of it in any order.
    let mut config = ends::config(TransportKind::Tcp);
    config.tcp.tcp_num_threads = 3;
    let broker = Context::new(config).unwrap();
    let out = ROut::new(&broker);
    let input = receiver(&broker, &listener);
    out.splice_with(&input, BID, BID, ring_of(64 << 10)).unwrap();
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    for round in 1..=1500 {
        let conns = [ends::connect(&broker, &listener), ends::connect(&broker, &listener)];
        conns.iter().for_each(|conn| input.resume(conn));
        write(&writes, BID, 100, 100);
        let comes = || out.buffer(BID).unwrap().info().unwrap().head == 100 * round;
        let came = (0..20_000).any(|_| {
            std::thread::sleep(Duration::from_millis(u64::from(!comes())));
            comes()
        });
        assert!(came, "nothing comes in round {round}, over a connection that is up: {}", conns[1].is_up());
    }
}

/// A broker whose publishers come and go splices the next buffer in the callback that reports the end of the last one.
#[test]
fn a_buffer_is_spliced_again_in_the_callback_of_its_end() {
    let (source, broker) =
        (Context::new(Config::default()).unwrap(), Context::new(Config::default()).unwrap());
    let (out, listener) = sender(&source);
    out.create_buffer(BID, 1 << 16).unwrap();
    let input = receiver(&broker, &listener);
    let relay = ROut::new(&broker);
    let (tells, told) = mpsc::sync_channel(1);
    let (relays, inputs) = (relay.clone(), input.clone());
    let mut first = true;
    relay.set_event_cb(move |event| {
        // The next one may be refused, and ends as well.
        if let (OutEvent::Ended { bid }, true) = (event, first) {
            first = false;
            relays.destroy_buffer(bid).unwrap();
            tells.send(relays.splice_with(&inputs, bid, bid, ring_of(1 << 16))).unwrap();
        }
    });
    relay.splice_with(&input, BID, BID, ring_of(1 << 16)).unwrap();
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    out.destroy_buffer(BID).unwrap();
    told.recv_timeout(WAIT).unwrap().unwrap();
}

/// The first buffer's subscriber reads on, up to where that buffer was destroyed.
#[test]
fn a_destroyed_buffer_is_spliced_again_while_a_subscriber_still_reads_it() {
    let (source, broker) =
        (Context::new(Config::default()).unwrap(), Context::new(Config::default()).unwrap());
    let (out, listener) = sender(&source);
    out.create_buffer(BID, 1 << 16).unwrap();
    let (relay, relays) = sender(&broker);
    let input = receiver(&broker, &listener);
    relay.splice_with(&input, BID, BID, ring_of(1 << 16)).unwrap();
    let first = receiver(&source, &relays);
    subscribe(&first, BID, ring_of(1 << 16));
    write(&out, BID, 3_000, 1_000);
    until("everything is in the relay", || relay.buffer(BID).unwrap().info().unwrap().boundary == 3_000);

    assert_eq!(relay.destroy_buffer(BID).unwrap(), 3_000);
    relay.splice(&input, BID).expect("the id and the subscription are free");
    let second = receiver(&source, &relays);
    subscribe(&second, BID, ring_of(1 << 16));
    write(&out, BID, 5_000, 1_000);
    assert_eq!(take(&second, 3_000, 8_000), 0);
    assert_eq!(take(&first, 0, 3_000), 0);
    let last = first.recv(Some(WAIT)).unwrap();
    assert!(matches!(last, Some(InEvent::Closed { bid: BID, end: 3_000 })), "{last:?}");
    // Neither buffer holds the writer.
    std::thread::scope(|scope| {
        scope.spawn(|| write(&out, BID, 1 << 18, 1_000));
        assert_eq!(take(&second, 8_000, 8_000 + (1 << 18)), 0);
    });
    relay.set_event_cb(|event| {
        assert!(!matches!(event, OutEvent::Ended { .. }), "the second buffer has this id and goes on");
    });
    assert!(relay.buffer(BID).is_some());
}

#[test]
fn an_end_before_the_splice_is_reported_without_a_subscriber() {
    let (source, broker) =
        (Context::new(Config::default()).unwrap(), Context::new(Config::default()).unwrap());
    let (out, listener) = sender(&source);
    out.create_buffer(BID, 1 << 16).unwrap();
    let input = receiver(&broker, &listener);
    subscribe(&input, BID, ring_of(1 << 16));
    write(&out, BID, 1_000, 1_000);
    // Unreleased bytes keep the subscription.
    let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("no data") };
    out.destroy_buffer(BID).unwrap();
    let end = input.recv(Some(WAIT)).unwrap();
    assert!(matches!(end, Some(InEvent::Closed { bid: BID, end: 1_000 })), "{end:?}");
    let relay = ROut::new(&broker);
    relay.splice_as(&input, BID, 70).unwrap();
    let event = relay.recv_event(Some(WAIT)).unwrap();
    assert!(matches!(event, Some(OutEvent::Ended { bid: 70 })), "{event:?}");
    drop(view);
}

#[test]
fn a_log_that_was_kept_below_goes_on_with_a_hole() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    let options = BufferOptions::new().size_bytes(64 << 10).start(1000).epoch(Some(Epoch(5)));
    let mut writer = out.create_buffer_with(BID, options).unwrap().writer().unwrap();
    let input = receiver(&ctx, &listener);
    let options = SubscribeOptions::new().size_bytes(64 << 10).start(Start::Position(Epoch(5), 1000));
    input.subscribe_with(BID, options).unwrap();
    let subscribed = input.recv(Some(WAIT)).unwrap();
    assert!(
        matches!(subscribed, Some(InEvent::Subscribed { epoch: Epoch(5), start: 1000, .. })),
        "{subscribed:?}"
    );

    writer.append(&[b"before"]).unwrap();
    let next = || input.recv(Some(WAIT)).unwrap().expect("an event");
    let InEvent::Data(view) = next() else { panic!("no data") };
    assert_eq!((view.position(), view.as_slice()), (1000, Some(&b"before"[..])));
    assert_eq!(writer.skip(1_000_000), Err(SegmentError::Full), "the subscriber holds bytes");
    view.consume();
    while writer.skip(1_000_000) == Err(SegmentError::Full) {
        std::thread::sleep(Duration::from_millis(1));
    }
    writer.skip(500).unwrap();
    let lost = next();
    assert!(matches!(lost, InEvent::Lost { bid: BID, from: 1006, to: 1_000_000 }), "{lost:?}");
    // The writer has room once the subscriber has passed the hole.
    assert_eq!(writer.append_blocking(&[b"after"], Some(WAIT)), Ok(1_000_005));
    let InEvent::Data(view) = next() else { panic!("no data") };
    assert_eq!((view.position(), view.as_slice()), (1_000_000, Some(&b"after"[..])));
    view.consume();
    let open = writer.segment(10, Some(Duration::ZERO)).unwrap();
    assert!(writer.skip(2_000_000).is_err(), "a segment is open");
    drop(open);
    out.destroy_buffer(BID).unwrap();
    assert!(writer.skip(3_000_000).is_err(), "the log has ended");
}
