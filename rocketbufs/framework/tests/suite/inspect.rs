//! The state that an rOut shows: subscribers and their positions, traffic, durable cursors.

use rocketbufs::inspect::Traffic;
use rocketbufs::{
    BufferOptions, Config, Conn, Context, InEvent, Listener, Policy, ProgressLevel, RIn, ROut,
    SubscribeOptions,
};

use crate::ends::{WAIT, until};

/// An rOut with a buffer of 64 KiB that begins at 1,000, and an rIn that subscribes to it.
fn joined(options: SubscribeOptions) -> (ROut, RIn, [Context; 2]) {
    let contexts = [(); 2].map(|()| Context::new(Config::default()).expect("memory and threads"));
    let out = ROut::new(&contexts[0]);
    let size = BufferOptions::new().size_bytes(64 << 10).start(1000);
    out.create_buffer_with(7, size).expect("a buffer");
    let listener = Listener::bind(&contexts[0], "127.0.0.1:0").expect("loopback");
    let served = out.clone();
    listener.set_conn_cb(move |conn| served.add_conn(&conn));
    let conn = Conn::connect(&contexts[1], &listener.local_addr(), b"").expect("a connection");
    let input = RIn::new(&conn);
    input.subscribe_with(7, options).expect("a subscription");
    until("subscribed", || out.buffer(7).unwrap().subscribers().len() == 1);
    (out, input, contexts)
}

fn write(out: &ROut, deliveries: usize) {
    let mut writer = out.buffer(7).unwrap().writer().expect("the first writer");
    for _ in 0..deliveries {
        writer.append(&[&[1; 1000]]).expect("there is room");
    }
}

#[test]
fn counts_arrived_and_landed_bytes_and_keeps_the_sums_of_lost_connections() {
    let (out, input, _contexts) = joined(SubscribeOptions::default());
    write(&out, 10);
    let mut got = 0;
    while got < 10_000 {
        if let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).expect("no callback") {
            got += view.len();
            view.consume();
        }
    }
    out.buffer(7).unwrap().wait(ProgressLevel::Consumed, 11_000, Some(WAIT)).expect("all was consumed");
    let all = Traffic { received_bytes: 10_000, delivered_bytes: 10_000, dropped_bytes: 0 };
    let info = out.buffer(7).and_then(|buffer| buffer.info()).expect("a buffer");
    assert_eq!((info.start, info.head, info.retain_bytes, info.traffic), (1000, 11_000, 32 << 10, all));
    let sub = &out.buffer(7).unwrap().subscribers()[0];
    assert_eq!((sub.start, sub.sent, sub.landed, sub.consumed), (1000, 11_000, 11_000, 11_000));
    input.unsubscribe(7);
    until("unsubscribed", || out.buffer(7).unwrap().subscribers().is_empty());
    assert_eq!(out.traffic(), all);
    out.destroy_buffer(7).expect("a buffer");
    until("gone", || out.buffers().is_empty());
    assert_eq!(out.traffic(), all);
}

#[test]
fn shows_bytes_sent_to_a_subscriber_that_gives_nothing_back() {
    let (out, _input, _contexts) = joined(SubscribeOptions::default());
    write(&out, 10);
    until("sent", || out.buffer(7).unwrap().subscribers()[0].sent == 11_000);
    let sub = &out.buffer(7).unwrap().subscribers()[0];
    assert_eq!((sub.consumed, sub.dropped_bytes, sub.policy), (1000, 0, Policy::Block));
    assert!(sub.retains_from.is_some_and(|at| at <= 11_000));
    let idle = sub.idle;
    until("the subscriber is idle for longer", || out.buffer(7).unwrap().subscribers()[0].idle > idle);
}

#[test]
fn a_trickle_is_announced_to_polling_readers() {
    let (out, input, _contexts) = joined(SubscribeOptions::default());
    // Far less than a quarter of a window, so that no CREDIT comes without a request.
    write(&out, 1);
    let Some(InEvent::Data(view)) = std::iter::from_fn(|| Some(input.recv(Some(WAIT)).expect("no callback")))
        .find(|received| matches!(received, Some(InEvent::Data(_))))
        .flatten()
    else {
        panic!("no data")
    };
    until("landed", || {
        out.buffer(7).unwrap().refresh_subscribers();
        out.buffer(7).unwrap().subscribers()[0].landed == 2000
    });
    assert_eq!(out.buffer(7).unwrap().subscribers()[0].consumed, 1000);
    view.consume();
    until("consumed", || {
        out.buffer(7).unwrap().refresh_subscribers();
        out.buffer(7).unwrap().subscribers()[0].consumed == 2000
    });
    assert!(out.buffer(8).is_none());
}

#[test]
fn shows_places_that_are_kept() {
    let named = SubscribeOptions::new().durable(b"attic", WAIT);
    let (out, input, _contexts) = joined(named);
    assert!(out.buffer(7).unwrap().durable_cursors().is_empty());
    input.conn().close("away");
    until("kept", || out.buffer(7).unwrap().durable_cursors().len() == 1);
    let place = &out.buffer(7).unwrap().durable_cursors()[0];
    assert_eq!((place.name.as_slice(), place.landed, place.retains_from), (&b"attic"[..], 1000, Some(1000)));
    assert!(place.expires_in <= WAIT && !place.expires_in.is_zero());
}
