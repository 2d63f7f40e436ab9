//! An rOut and rIns over real TCP: data by callback and synchronously, credit, confirmations, splices, ends.

use std::sync::mpsc;
use std::time::Duration;

use rocketbufs::{
    BufferOptions, Config, Conn, Context, InEvent, Listener, Policy, ProgressLevel, RIn, ROut, SegmentError,
    Start, SubscribeOptions,
};

use crate::ends::{WAIT, pattern, receiver, ring_of, sender, until, write};

fn wait_subscribed(input: &RIn, bid: u32) {
    match input.recv(Some(WAIT)).unwrap() {
        Some(InEvent::Subscribed { bid: got, .. }) => assert_eq!(got, bid),
        other => panic!("expected Subscribed, got {other:?}"),
    }
}

/// Receives `bytes` of the pattern, checking each.
fn take_pattern(input: &RIn, bytes: u64) {
    let mut at = None;
    let mut got = 0;
    while got < bytes {
        match input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Data(view)) => {
                assert_eq!(*at.get_or_insert(view.position()), view.position());
                assert_eq!(view.as_slice().unwrap(), pattern(view.position(), view.len()));
                at = Some(view.end());
                got += view.len() as u64;
                view.consume();
            }
            other => panic!("after {got} of {bytes} bytes: {other:?}"),
        }
    }
}

#[test]
fn streams_more_than_the_rings_hold() {
    for (piece, start) in [(1, 0), (100, u64::from(u32::MAX) - 5_000), (20_000, (1 << 63) - 100_000)] {
        let ctx = Context::new(Config::default()).unwrap();
        let (out, listener) = sender(&ctx);
        out.create_buffer_with(1, BufferOptions::new().size_bytes(1 << 17).start(start)).unwrap();
        let input = receiver(&ctx, &listener);
        input.subscribe(1, 1 << 16).unwrap();
        wait_subscribed(&input, 1);
        let total = if piece == 1 { 50_000 } else { 3_000_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| write(&out, 1, total, piece));
            take_pattern(&input, total);
        });
        out.buffer(1).unwrap().wait(ProgressLevel::Consumed, start + total, Some(WAIT)).unwrap();
    }
}

#[test]
fn callbacks_and_confirmations() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(5, 1 << 16).unwrap();
    let (landed, confirmed) = mpsc::sync_channel(1024);
    out.set_data_out_cb(move |bid, context| landed.send((bid, context)).unwrap());
    // Without a subscriber a delivery is confirmed at once.
    let segment = out.get_output_segment(5, 10, false).unwrap();
    out.deliver(segment, 10, Some(1)).unwrap();
    assert_eq!(confirmed.recv_timeout(WAIT).unwrap(), (5, 1));

    let input = receiver(&ctx, &listener);
    let (tx, rx) = mpsc::sync_channel(1024);
    let events = tx.clone();
    let giver = input.clone();
    input.set_data_in_cb(move |bid, segment| {
        assert_eq!(segment.vec_count(), 1);
        tx.send(format!("{bid} {}", String::from_utf8_lossy(segment.as_slice().unwrap()))).unwrap();
        giver.data_consumed(bid, segment.len() as u64).unwrap();
    });
    input.set_event_cb(move |event| events.send(format!("{event:?}")).unwrap());
    input.subscribe(5, 1 << 16).unwrap();
    assert!(rx.recv_timeout(WAIT).unwrap().starts_with("Subscribed"));
    let mut segment = out.get_output_segment(5, 5, false).unwrap();
    segment.bytes_mut().copy_from_slice(b"hello");
    let end = out.deliver(segment, 5, Some(2)).unwrap();
    assert_eq!(rx.recv_timeout(WAIT).unwrap(), "5 hello");
    assert_eq!(confirmed.recv_timeout(WAIT).unwrap(), (5, 2));
    out.buffer(5).unwrap().wait(ProgressLevel::Consumed, end, Some(WAIT)).unwrap();
    out.destroy_buffer(5).unwrap();
    assert!(rx.recv_timeout(WAIT).unwrap().starts_with("Closed"));
    // Callbacks that hold a handle of their own rIn are a cycle, which the application must break.
    input.set_data_in_cb(|_, _| {});
}

#[test]
fn a_full_buffer_is_an_error_until_its_receiver_releases_bytes() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let input = receiver(&ctx, &listener);
    input.subscribe(1, 1 << 16).unwrap();
    wait_subscribed(&input, 1);
    let mut written = 0;
    let full = loop {
        match out.buffer(1).unwrap().segment(4096, Some(Duration::from_millis(200))) {
            Ok(mut segment) => {
                let at = segment.position();
                segment.bytes_mut().copy_from_slice(&pattern(at, 4096));
                written = out.deliver(segment, 4096, None).unwrap();
            }
            Err(error) => break error,
        }
        assert!(written < 10 << 20, "nothing holds the writer");
    };
    assert_eq!(full, SegmentError::TimedOut);
    take_pattern(&input, written);
    write(&out, 1, 100_000, 1000);
    take_pattern(&input, 100_000);
}

#[test]
fn splices_through_two_brokers() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, source) = sender(&ctx);
    out.create_buffer(1, 1 << 18).unwrap();
    let (first, first_listener) = sender(&ctx);
    let into_first = receiver(&ctx, &source);
    first.splice_with(&into_first, 1, 70, ring_of(1 << 18)).unwrap();
    let (second, second_listener) = sender(&ctx);
    let into_second = receiver(&ctx, &first_listener);
    second.splice_with(&into_second, 70, 70, ring_of(1 << 18)).unwrap();
    let leaves: Vec<_> = (0..3)
        .map(|_| {
            let leaf = receiver(&ctx, &second_listener);
            leaf.subscribe(70, 1 << 18).unwrap();
            wait_subscribed(&leaf, 70);
            leaf
        })
        .collect();
    std::thread::scope(|scope| {
        scope.spawn(|| write(&out, 1, 5_000_000, 30_000));
        for leaf in &leaves {
            scope.spawn(|| take_pattern(leaf, 5_000_000));
        }
    });
    out.buffer(1).unwrap().wait(ProgressLevel::Consumed, 5_000_000, Some(WAIT)).unwrap();
    out.destroy_buffer(1).unwrap();
    for leaf in &leaves {
        assert!(matches!(leaf.recv(Some(WAIT)).unwrap(), Some(InEvent::Closed { end: 5_000_000, .. })));
    }
}

#[test]
fn drop_skips_and_names_the_loss() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let input = receiver(&ctx, &listener);
    let options = SubscribeOptions::new().policy(Policy::Drop).size_bytes(1 << 16);
    input.subscribe_with(1, options).unwrap();
    wait_subscribed(&input, 1);
    // The subscriber does not read, and the writer continues.
    write(&out, 1, 2_000_000, 1000);
    out.destroy_buffer(1).unwrap();
    let (mut at, mut lost) = (0, 0);
    loop {
        match input.recv(Some(WAIT)).unwrap().expect("an end") {
            InEvent::Data(view) => {
                assert_eq!(view.position(), at);
                assert_eq!(view.as_slice().unwrap(), pattern(at, view.len()));
                at = view.end();
                view.consume();
            }
            InEvent::Lost { from, to, .. } => {
                assert_eq!(from, at);
                lost += to - from;
                at = to;
            }
            InEvent::Closed { end, .. } => {
                assert_eq!(end, at);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(at, 2_000_000);
    assert!(lost > 0);
}

#[test]
fn overwritable_buffers_hand_out_whole_deliveries_or_say_lost() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    let options = BufferOptions::new().size_bytes(1 << 16).flow_control(false);
    out.create_buffer_with(1, options).unwrap();
    let input = receiver(&ctx, &listener);
    let options = SubscribeOptions::new().policy(Policy::Overwrite).size_bytes(1 << 16);
    input.subscribe_with(1, options).unwrap();
    wait_subscribed(&input, 1);
    for _ in 0..2000 {
        let mut segment = out.get_output_segment(1, 1000, false).unwrap();
        let at = segment.position();
        segment.bytes_mut().copy_from_slice(&pattern(at, 1000));
        out.deliver(segment, 1000, None).unwrap();
    }
    out.destroy_buffer(1).unwrap();
    let mut whole = 0;
    loop {
        match input.recv(Some(WAIT)).unwrap().expect("an end") {
            InEvent::Data(view) => {
                assert_eq!(view.len(), 1000);
                if let Ok(bytes) = view.to_vec() {
                    assert_eq!(bytes, pattern(view.position(), 1000));
                    whole += 1;
                }
                view.consume();
            }
            InEvent::Lost { from, to, .. } => assert!(from < to),
            InEvent::Closed { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(whole > 0);
}

#[test]
fn resumes_over_another_connection_without_a_gap() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let input = receiver(&ctx, &listener);
    let options = SubscribeOptions::new()
        .durable(b"me", Duration::from_secs(30))
        .size_bytes(1 << 16)
        .start(Start::Oldest);
    input.subscribe_with(1, options).unwrap();
    wait_subscribed(&input, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| write(&out, 1, 1_000_000, 777));
        let mut at = 0;
        let mut cuts = 0;
        while at < 1_000_000 {
            match input.recv(Some(WAIT)).unwrap().expect("data") {
                InEvent::Data(view) => {
                    assert_eq!(view.position(), at);
                    assert_eq!(view.as_slice().unwrap(), pattern(at, view.len()));
                    at = view.end();
                    view.consume();
                    if at / 100_000 > cuts && cuts < 8 {
                        cuts += 1;
                        input.conn().close("a cut");
                    }
                }
                InEvent::ConnDown { .. } => {
                    input.resume(&Conn::connect(&ctx, &listener.local_addr(), b"again").unwrap());
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(cuts > 5);
    });
}

#[test]
fn control_messages_that_came_before_the_callback_are_given_to_it() {
    let ctx = Context::new(Config::default()).unwrap();
    let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
    let client = Conn::connect_start(&ctx, &listener.local_addr(), b"test").unwrap();
    let served = listener.accept(Some(WAIT)).unwrap().unwrap();
    ROut::new(&ctx).add_conn(&served);
    let input = RIn::new(&client);
    client.wait_up(Some(WAIT)).unwrap();
    for message in ["read", "second", "third"] {
        served.send_control(message.as_bytes()).unwrap();
    }
    let first = input.recv(Some(WAIT)).unwrap();
    assert!(matches!(&first, Some(InEvent::Control { message }) if message == b"read"), "{first:?}");
    let (send, messages) = mpsc::sync_channel(1024);
    input.set_control_msg_cb(move |_, message| send.send(message.to_vec()).unwrap());
    assert_eq!(messages.recv_timeout(WAIT).unwrap(), b"second");
    assert_eq!(messages.recv_timeout(WAIT).unwrap(), b"third");
}

#[test]
fn a_sender_that_drains_and_ends_is_reported_as_closed() {
    for _ in 0..20 {
        let there = Context::new(Config::default()).unwrap();
        let (out, listener) = sender(&there);
        out.create_buffer(1, 1 << 16).unwrap();
        out.create_buffer(2, 1 << 16).unwrap();
        let here = Context::new(Config::default()).unwrap();
        let input = receiver(&here, &listener);
        for bid in [1, 2] {
            input.subscribe(bid, 1 << 16).unwrap();
            wait_subscribed(&input, bid);
        }
        write(&out, 1, 30_000, 1000);
        for bid in [1, 2] {
            out.destroy_buffer(bid).unwrap();
            out.buffer(bid).map_or(Ok(()), |buffer| buffer.drain(Some(WAIT))).unwrap();
        }
        drop((out, listener, there));
        let mut ends = 0;
        while ends < 2 {
            match input.recv(Some(WAIT)).unwrap() {
                Some(InEvent::Data(view)) => view.consume(),
                Some(InEvent::Closed { .. }) => ends += 1,
                Some(InEvent::ConnDown { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Writes a delivery of 20 KiB. Returns its end.
fn write_delivery(out: &ROut) -> u64 {
    let segment = out.buffer(1).unwrap().segment(20 << 10, Some(WAIT)).unwrap();
    out.deliver(segment, 20 << 10, None).unwrap()
}

fn take_up_to(input: &RIn, mut got: u64, end: u64) -> u64 {
    while got < end {
        let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("after {got}") };
        got = view.end();
        view.consume();
    }
    got
}

/// After a splice only subscribers hold data that arrived before the splice. A ring that was full before the splice continues,
/// also if its connection was lost in between, and if the application received the data and released none.
#[test]
fn data_before_a_splice_holds_nothing_up() {
    const RING: u64 = 1 << 16;
    for (lost, heard) in [(false, false), (false, true), (true, false), (true, true)] {
        println!("lost: {lost}, heard: {heard}");
        let ctx = Context::new(Config::default()).unwrap();
        let (source, listener) = sender(&ctx);
        let all = BufferOptions::new().size_bytes(2 * RING).retain_bytes(Some(0));
        source.create_buffer_with(1, all).unwrap();
        let input = receiver(&ctx, &listener);
        input.subscribe(1, RING).unwrap();
        wait_subscribed(&input, 1);
        // Room for a call of every delivery below: a callback that waits for room would hold the worker up.
        let (told, ends) = std::sync::mpsc::sync_channel(128);
        if heard {
            input.set_data_in_cb(move |_, segment| told.send(segment.end()).unwrap_or_default());
        }
        let write = || write_delivery(&source);
        // Fills the receiver's ring, with a part of the last delivery: no more data arrives until bytes are released.
        let mut end = 0;
        while end < RING {
            end = write();
        }
        source.buffer(1).unwrap().wait(ProgressLevel::Landed, RING, Some(WAIT)).unwrap();
        while heard && ends.recv_timeout(WAIT).expect("three deliveries arrived") < 60 << 10 {}
        if lost {
            let conn = input.conn();
            conn.close("lost");
            conn.wait_down(Some(WAIT)).unwrap().unwrap();
            until("nobody subscribes", || source.buffer(1).unwrap().subscriber_count() == 0);
        }
        let (broker, broker_listener) = sender(&ctx);
        broker.splice(&input, 1).unwrap();
        if lost {
            input.resume(&Conn::connect(&ctx, &listener.local_addr(), b"again").unwrap());
            until("the subscription is back", || source.buffer(1).unwrap().subscriber_count() == 1);
        }
        // Without a subscriber nothing holds the writer.
        for _ in 0..32 {
            write();
        }
        let output = receiver(&ctx, &broker_listener);
        let options = SubscribeOptions::new().start(Start::Oldest).size_bytes(2 * RING);
        output.subscribe_with(1, options).unwrap();
        wait_subscribed(&output, 1);
        let mut got = 0;
        for _ in 0..32 {
            end = write();
            got = take_up_to(&output, got, end);
        }
    }
}
