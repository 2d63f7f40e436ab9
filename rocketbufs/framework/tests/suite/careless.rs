//! Careless applications: their mistakes harm no other application.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rocketbufs::error::{BufferError, ConnError, DeliverError, ListenError, RecvError};
use rocketbufs::{
    BufferOptions, Config, Conn, Context, InEvent, Listener, OutWriter, ProgressLevel, RIn, ROut,
    SegmentError, SubscribeOptions, WaitError,
};

use crate::ends::{receiver, sender, until};
use crate::raw::WAIT;

fn subscribe(input: &RIn, bid: u32) {
    input.subscribe(bid, 1 << 16).unwrap();
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
}

fn deliver(out: &ROut, bid: u32, size: u64) -> u64 {
    let segment = out.buffer(bid).unwrap().segment(size, Some(WAIT)).unwrap();
    out.deliver(segment, size, None).unwrap()
}

fn take(input: &RIn) -> usize {
    match input.recv(Some(WAIT)).unwrap() {
        Some(InEvent::Data(view)) => {
            let len = view.len();
            view.consume();
            len
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_callback_that_panics_ends_its_own_connection_only() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let good = receiver(&ctx, &listener);
    subscribe(&good, 1);
    let clumsy = |arrange: &dyn Fn(&RIn)| {
        let bad = receiver(&ctx, &listener);
        arrange(&bad);
        bad.subscribe(1, 1 << 16).unwrap();
        bad
    };
    let in_data = clumsy(&|bad| bad.set_data_in_cb(|_, _| panic!("in a data callback")));
    let in_event = clumsy(&|bad| bad.set_event_cb(|_| panic!("in an event callback")));
    until("subscriptions", || out.buffer(1).unwrap().subscribers().len() >= 2);
    deliver(&out, 1, 10);
    assert_eq!(take(&good), 10);
    for bad in [&in_data, &in_event] {
        let why = bad.conn().wait_down(Some(WAIT)).unwrap().expect("its connection ends");
        assert!(why.to_string().contains("panicked"), "{why}");
    }
    let in_control = receiver(&ctx, &listener);
    out.set_control_msg_cb(|_, bytes| assert!(bytes.is_empty(), "in a control callback"));
    in_control.send_control(b"boom").unwrap();
    assert!(in_control.conn().wait_down(Some(WAIT)).unwrap().unwrap().to_string().contains("panicked"));
    out.set_data_out_cb(|_, _| panic!("in a confirmation"));
    let segment = out.get_output_segment(1, 5, false).unwrap();
    out.deliver(segment, 5, Some(1)).unwrap();
    assert_eq!(take(&good), 5);
    let again = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
    again.set_conn_cb(|_| panic!("in a connection callback"));
    let refused = Conn::connect(&ctx, &again.local_addr(), b"");
    assert!(matches!(refused, Err(ConnError::Down(why)) if why.to_string().contains("panicked")));
    deliver(&out, 1, 7);
    assert_eq!(take(&good), 7);
}

#[test]
fn callbacks_may_do_anything_but_wait() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let input = receiver(&ctx, &listener);
    let (tell, heard) = mpsc::sync_channel(16);
    let (inner_ctx, inner_out) = (ctx.clone(), out.clone());
    let address = listener.local_addr();
    input.set_control_msg_cb(move |input, _| {
        let wait = Duration::from_secs(60);
        assert!(matches!(input.recv(None), Err(RecvError::CalledFromWorker)));
        assert!(input.recv(Some(Duration::ZERO)).is_ok());
        assert!(matches!(input.conn().recv_event(None), Err(RecvError::CalledFromWorker)));
        assert!(matches!(Conn::connect(&inner_ctx, &address, b""), Err(ConnError::CalledFromWorker)));
        assert!(matches!(input.conn().wait_up(Some(wait)), Err(ConnError::CalledFromWorker)));
        assert!(matches!(input.conn().wait_down(Some(Duration::MAX)), Err(RecvError::CalledFromWorker)));
        assert!(matches!(input.conn().wait_down(Some(Duration::ZERO)), Ok(None)));
        assert!(matches!(Listener::bind(&inner_ctx, "127.0.0.1:0"), Err(ListenError::CalledFromWorker)));
        let segment = inner_out.buffer(1).unwrap().segment(1, Some(wait));
        assert!(matches!(segment, Err(SegmentError::CalledFromWorker)));
        assert!(matches!(
            inner_out.buffer(1).unwrap().wait(ProgressLevel::Landed, 1, Some(wait)),
            Err(WaitError::CalledFromWorker)
        ));
        input.subscribe(1, 1 << 16).unwrap();
        input.unsubscribe(1);
        input.subscribe(1, 1 << 16).unwrap();
        input.set_control_msg_cb(|_, _| {});
        inner_out.create_buffer(2, 4096).unwrap();
        inner_out.destroy_buffer(2).unwrap();
        input.resume(&input.conn());
        input.resume(&Conn::connect_start(&inner_ctx, &address, b"").unwrap());
        tell.send(()).unwrap();
    });
    until("the connection", || input.conn().is_up());
    let (conn, sent) = mpsc::sync_channel(16);
    out.set_control_msg_cb(move |from, _| conn.send(from.clone()).unwrap());
    input.send_control(b"who am I").unwrap();
    sent.recv_timeout(WAIT).unwrap().send_control(b"go").unwrap();
    heard.recv_timeout(WAIT).unwrap();
    loop {
        if let InEvent::Subscribed { .. } =
            input.recv(Some(WAIT)).unwrap().expect("the subscription is answered")
        {
            break;
        }
    }
}

#[test]
fn the_last_handle_may_go_inside_a_callback() {
    let server = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&server);
    out.create_buffer(1, 1 << 16).unwrap();
    let ctx = Context::new(Config::default()).unwrap();
    let input = receiver(&ctx, &listener);
    let mut handles = Some((ctx, input.clone()));
    let (tell, heard) = mpsc::sync_channel(16);
    input.set_event_cb(move |_| {
        drop(handles.take());
        let _ = tell.send(());
    });
    input.subscribe(1, 1 << 16).unwrap();
    drop(input);
    heard.recv_timeout(WAIT).unwrap();
    until("the end of its connection", || out.buffer(1).unwrap().subscribers().is_empty());
}

#[test]
fn bursts_of_control_messages_wait_for_their_turn() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    let input = receiver(&ctx, &listener);
    let size = 65_535;
    out.set_control_msg_cb(move |conn, _| {
        // The callback runs on the worker, so nothing is sent between these calls.
        let sent = (0..100).take_while(|_| conn.send_control(&vec![7; size]).is_ok()).count();
        assert!(sent >= 16, "{sent}");
        while conn.send_control(b"end").is_ok() {}
    });
    input.send_control(b"go").unwrap();
    for _ in 0..16 {
        let event = input.recv(Some(WAIT)).unwrap();
        assert!(matches!(event, Some(InEvent::Control { message }) if message.len() == size));
    }
    assert!(input.conn().is_up());
}

#[test]
fn an_address_in_use_is_an_error_of_its_own() {
    let ctx = Context::new(Config::default()).unwrap();
    let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
    let again = Listener::bind(&ctx, &listener.local_addr());
    assert!(matches!(&again, Err(ListenError::AddressInUse { .. })), "{again:?}");
    assert!(matches!(Listener::bind(&ctx, "nowhere"), Err(ListenError::Refused { .. })));
}

#[test]
fn calls_after_a_shutdown_fail() {
    let ctx = Context::new(Config::default()).unwrap();
    let (_out, listener) = sender(&ctx);
    let conn = Conn::connect(&ctx, &listener.local_addr(), b"").unwrap();
    let input = RIn::new(&conn);
    ctx.shutdown(Duration::MAX);
    assert!(conn.wait_down(Some(WAIT)).unwrap().is_some());
    assert!(matches!(Listener::bind(&ctx, "127.0.0.1:0"), Err(ListenError::Refused { .. })));
    assert!(matches!(Conn::connect(&ctx, "127.0.0.1:1", b""), Err(ConnError::Down(_))));
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::ConnDown { .. })));
    assert!(matches!(input.recv(None), Err(RecvError::ShutDown)));
    assert!(matches!(listener.accept(None), Err(RecvError::ShutDown)));
    input.unsubscribe(1);
    drop((input, conn, listener));
}

/// Each wait has nothing that would end it but the end of the context.
#[test]
fn waits_end_with_their_context() {
    let (ctx, other) = (Context::new(Config::default()).unwrap(), Context::new(Config::default()).unwrap());
    let (out, listener) = sender(&ctx);
    let (idle, silent) = (ROut::new(&ctx), Listener::bind(&ctx, "127.0.0.1:0").unwrap());
    let buffer = out.create_buffer(1, 1 << 16).unwrap();
    // A subscriber that is away for long holds what it has not read.
    let away = receiver(&other, &listener);
    away.subscribe_with(1, SubscribeOptions::new().durable("n", Duration::from_secs(3600))).unwrap();
    assert!(matches!(away.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    other.shutdown(Duration::ZERO);
    until("it is away", || buffer.subscribers().is_empty() && !buffer.durable_cursors().is_empty());
    let input = receiver(&ctx, &listener);
    input.conn().close("done");
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::ConnDown { .. })));
    let mut writer = out.create_buffer(2, 1 << 16).unwrap().writer().unwrap();
    thread::scope(|scope| {
        let receives = scope.spawn(|| input.recv(None).map(drop));
        let accepts = scope.spawn(|| silent.accept(None).map(drop));
        let events = scope.spawn(|| idle.recv_event(None).map(drop));
        let fills = scope.spawn(|| {
            loop {
                match buffer.segment(1 << 12, None) {
                    Ok(segment) => _ = buffer.deliver(segment, 1 << 12, None),
                    Err(error) => return error,
                }
            }
        });
        let drains = scope.spawn(|| out.drain(None));
        ctx.shutdown(Duration::ZERO);
        assert_eq!(receives.join().unwrap(), Err(RecvError::ShutDown));
        assert_eq!(accepts.join().unwrap(), Err(RecvError::ShutDown));
        assert_eq!(fills.join().unwrap(), SegmentError::Closed);
        assert!(matches!(drains.join().unwrap(), Ok(()) | Err(WaitError::ShutDown)));
        assert_eq!(events.join().unwrap(), Err(RecvError::ShutDown));
    });
    assert_eq!(writer.append(&[b"after"]), Err(SegmentError::Closed));
    let late = out.create_buffer(3, 1 << 16).unwrap();
    assert_eq!(late.segment(1, None).map(drop), Err(SegmentError::Closed));
}

#[test]
fn places_are_given_up_in_time_on_every_worker() {
    let mut config = Config::default();
    config.tcp.tcp_num_threads = 4;
    let ctx = Context::new(config).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 1 << 16).unwrap();
    let clients = Context::new(Config::default()).unwrap();
    for round in 0_u8..4 {
        let input = receiver(&clients, &listener);
        let name = vec![round + 1];
        let hold = Duration::from_millis(100);
        input.subscribe_with(1, SubscribeOptions::new().durable(name, hold)).unwrap();
        assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
        input.conn().close("gone");
        until("its end", || out.buffer(1).unwrap().subscribers().is_empty());
        for _ in 0..100 {
            deliver(&out, 1, 4096);
        }
    }
}

#[test]
fn connections_without_an_owner_are_closed() {
    let ctx = Context::new(Config::default()).unwrap();
    let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
    listener.set_conn_cb(drop);
    let refused = Conn::connect(&ctx, &listener.local_addr(), b"");
    assert!(
        matches!(&refused, Err(ConnError::Down(why)) if why.to_string().contains("nobody")),
        "{refused:?}"
    );
}

#[test]
fn subscribers_on_all_workers_and_buffers_in_plenty() {
    let mut config = Config::default();
    config.tcp.tcp_num_threads = 4;
    let ctx = Context::new(config).unwrap();
    let (out, listener) = sender(&ctx);
    for bid in 0..1000 {
        out.create_buffer(bid, 4096).unwrap();
    }
    let inputs: Vec<_> = (0..6).map(|_| receiver(&ctx, &listener)).collect();
    for input in &inputs {
        for bid in 0..1000 {
            input.subscribe(bid, 4096).unwrap();
        }
        for _ in 0..1000 {
            assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
        }
    }
    std::thread::scope(|scope| {
        for input in &inputs {
            // Two threads receive from each.
            let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
            for _ in 0..2 {
                let count = count.clone();
                scope.spawn(move || {
                    while count.load(std::sync::atomic::Ordering::SeqCst) < 20_000 {
                        match input.recv(Some(Duration::from_millis(50))).unwrap() {
                            Some(InEvent::Data(view)) => {
                                count.fetch_add(view.len(), std::sync::atomic::Ordering::SeqCst);
                                view.consume();
                            }
                            None => {}
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
        }
        for _ in 0..20 {
            for bid in 0..1000 {
                deliver(&out, bid, 1);
            }
        }
    });
    drop(inputs);
    for bid in 0..1000 {
        out.destroy_buffer(bid).unwrap();
    }
}

#[test]
fn destroying_while_others_write_and_wait() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    for bid in 0..40 {
        out.create_buffer(bid, 1 << 16).unwrap();
        let input = receiver(&ctx, &listener);
        subscribe(&input, bid);
        let mut writer = out.buffer(bid).unwrap().writer().unwrap();
        let other = out.clone();
        std::thread::scope(|scope| {
            let writing = scope.spawn(move || {
                loop {
                    match writer.append_blocking(&[&[1; 100]], None) {
                        Ok(_) => {}
                        Err(error) => break error,
                    }
                }
            });
            scope.spawn(|| {
                loop {
                    match input.recv(Some(WAIT)).unwrap().expect("an end") {
                        InEvent::Data(view) => view.consume(),
                        InEvent::Closed { .. } => break,
                        received => panic!("{received:?}"),
                    }
                }
            });
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(2));
                other.destroy_buffer(bid).unwrap();
            });
            assert_eq!(writing.join().unwrap(), SegmentError::Closed);
        });
        assert!(input.conn().is_up());
    }
}

/// Writes until an error says that the buffer has ended, and counts `rounds`. Returns the end of the last successful delivery.
fn write_to_the_end(writer: &mut OutWriter, by_segments: bool, rounds: &AtomicU32) -> u64 {
    let mut last = 0;
    loop {
        let ended = if by_segments {
            let delivered = writer.segment(16, Some(Duration::ZERO));
            delivered.map_err(|error| error == SegmentError::Closed).and_then(|segment| {
                writer.deliver(segment, 16, None).map_err(|error| matches!(error, DeliverError::Closed))
            })
        } else {
            writer.append(&[&[1; 16]]).map_err(|error| error == SegmentError::Closed)
        };
        match ended {
            Ok(end) => last = end,
            Err(true) => return last,
            Err(false) => {}
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Releases all data until the log ends.
fn read_to_the_end(input: &RIn) {
    loop {
        match input.recv(Some(WAIT)).unwrap().expect("an end") {
            InEvent::Data(view) => view.consume(),
            InEvent::Closed { .. } => break,
            received => panic!("{received:?}"),
        }
    }
}

#[test]
fn deliveries_that_succeeded_are_part_of_the_log() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    for bid in 0..400 {
        out.create_buffer(bid, 1 << 16).unwrap();
        // With a follower of the ring its writer uses light barriers.
        let input = (bid % 4 < 2).then(|| receiver(&ctx, &listener));
        if let Some(input) = &input {
            subscribe(input, bid);
        }
        let mut writer = out.buffer(bid).unwrap().writer().unwrap();
        let rounds = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| write_to_the_end(&mut writer, bid % 2 == 1, &rounds));
            scope.spawn(|| input.as_ref().map(read_to_the_end));
            while rounds.load(Ordering::Relaxed) < 10 + bid {
                std::hint::spin_loop();
            }
            let end = out.destroy_buffer(bid).unwrap();
            let last = writing.join().unwrap();
            assert!(last <= end, "{last} was told as delivered, and the log of {bid} ended at {end}");
        });
    }
}

/// The data callback is set first, and the connection is lost before the event callback is set.
#[test]
fn an_event_callback_that_is_set_late_gets_earlier_events() {
    let ctx = Context::new(Config::default()).unwrap();
    let (_out, listener) = sender(&ctx);
    let input = receiver(&ctx, &listener);
    input.set_data_in_cb(|_, _| {});
    // More than are kept for an application that may never ask for them.
    for _ in 0..300 {
        input.subscribe(9, 1 << 16).unwrap();
        until("the subscription is refused", || input.subscriptions().is_empty());
    }
    input.conn().close("the test");
    input.conn().wait_down(Some(WAIT)).unwrap().unwrap();
    let (tells, told) = mpsc::sync_channel(512);
    input.set_event_cb(move |event| drop(tells.send(event)));
    let mut refused = 0;
    let last = loop {
        match told.recv_timeout(WAIT).unwrap() {
            InEvent::Refused { bid: 9, .. } => refused += 1,
            other => break other,
        }
    };
    // ConnDown is the last waiting event, or comes right away.
    assert!(matches!(last, InEvent::ConnDown { .. }), "{last:?}");
    assert!((255..=256).contains(&refused), "{refused}");
}

#[test]
fn a_log_begins_where_a_delivery_fits() {
    let ctx = Context::new(Config::default()).unwrap();
    let out = ROut::new(&ctx);
    let most = 1 << 12;
    let options = || BufferOptions::new().size_bytes(1 << 16).max_delivery_bytes(Some(most));
    for start in [u64::MAX, u64::MAX - most + 1] {
        let made = out.create_buffer_with(1, options().start(start));
        assert!(matches!(made, Err(BufferError::NoPositions { start: at, .. }) if at == start), "{made:?}");
    }
    out.create_buffer_with(1, options().start(u64::MAX - most)).unwrap();
    assert_eq!(deliver(&out, 1, most), u64::MAX);
    let full = out.get_output_segment(1, 1, false);
    assert!(matches!(full, Err(SegmentError::Full)), "{full:?}");
}
