//! Every type has a queue of events and a descriptor to wait on; callbacks can be removed again.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc;
use std::time::Duration;

use rocketbufs::config::TransportKind;
use rocketbufs::error::ControlError;
use rocketbufs::{Conn, ConnEvent, Context, InEvent, Listener, OutEvent, RIn, ROut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ends::{self, WAIT, context, pattern, receiver, ring_of, sender, subscribe, write};

const BID: u32 = 7;
const NOTHING: Option<Duration> = Some(Duration::ZERO);

/// Waits until the descriptor is readable, as an event loop does.
fn wait_for(descriptor: BorrowedFd<'_>, what: &str) {
    let limit = Timespec { tv_sec: WAIT.as_secs() as i64, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(ready, 1, "waited in vain for {what}");
}

fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    let at_once = Timespec::default();
    poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&at_once)).unwrap() == 1
}

/// The next event that is none of a subscriber's progress, which comes as often as the subscriber tells.
fn next_event(out: &ROut) -> OutEvent {
    loop {
        wait_for(out.pollable().unwrap(), "an event of the rOut");
        match out.recv_event(NOTHING).unwrap() {
            Some(OutEvent::SubscriberProgress(_)) | None => {}
            Some(event) => return event,
        }
    }
}

#[test]
fn one_event_loop_serves_both_ends_without_a_callback() {
    for transport in [TransportKind::Tcp, TransportKind::Shm] {
        let (source, ctx) = (context(transport), context(transport));
        let out = ROut::new(&source);
        out.create_buffer(BID, 1 << 16).unwrap();
        assert!(!is_readable(out.pollable().unwrap()));
        let listener = Listener::bind(&source, "127.0.0.1:0").unwrap();
        let conn = Conn::connect_start(&ctx, &listener.local_addr(), b"hello").unwrap();
        wait_for(listener.pollable().unwrap(), "a connection");
        let taken = listener.accept(NOTHING).unwrap().unwrap();
        assert!(!is_readable(listener.pollable().unwrap()), "there was one connection only");
        out.add_conn(&taken);

        wait_for(conn.pollable().unwrap(), "the connection to be up");
        assert_eq!(conn.recv_event(NOTHING).unwrap(), Some(ConnEvent::Up));
        assert!(!is_readable(conn.pollable().unwrap()));

        let input = RIn::new(&conn);
        input.subscribe(BID, 1 << 16).unwrap();
        wait_for(input.pollable().unwrap(), "the answer");
        assert!(matches!(input.recv(NOTHING).unwrap(), Some(InEvent::Subscribed { bid: BID, .. })));
        let event = next_event(&out);
        assert!(matches!(event, OutEvent::Subscribed { bid: BID, .. }), "{event:?}");

        let mut segment = out.get_output_segment(BID, 5, false).unwrap();
        segment.bytes_mut().copy_from_slice(b"hello");
        out.deliver(segment, 5, Some(99)).unwrap();
        wait_for(input.pollable().unwrap(), "data");
        let Some(InEvent::Data(view)) = input.recv(NOTHING).unwrap() else { panic!("no data") };
        assert_eq!(view.to_vec().unwrap(), b"hello");
        view.consume();
        let event = next_event(&out);
        assert!(matches!(event, OutEvent::DataOut { bid: BID, context: 99 }), "{event:?}");

        input.send_control(b"up").unwrap();
        let event = next_event(&out);
        assert!(matches!(&event, OutEvent::Control { message, .. } if message == b"up"), "{event:?}");
        out.send_control(&taken, b"down").unwrap();
        wait_for(input.pollable().unwrap(), "a control message");
        let event = input.recv(NOTHING).unwrap();
        assert!(matches!(&event, Some(InEvent::Control { message }) if message == b"down"), "{event:?}");
        assert!(!is_readable(input.pollable().unwrap()));

        taken.close("that was all");
        wait_for(conn.pollable().unwrap(), "the end of the connection");
        let down = conn.recv_event(NOTHING).unwrap();
        assert!(
            matches!(&down, Some(ConnEvent::Down { reason }) if reason.to_string().contains("that was all")),
            "{down:?}"
        );
        assert_eq!(conn.recv_event(None).unwrap(), None, "nothing comes behind the end");
        let (unsubscribed, gone) = (next_event(&out), next_event(&out));
        assert!(matches!(unsubscribed, OutEvent::Unsubscribed { bid: BID, .. }), "{unsubscribed:?}");
        assert!(matches!(gone, OutEvent::ConnDown { .. }), "{gone:?}");
    }
}

/// A descriptor that belongs to nothing stays usable: it is only never readable.
#[test]
fn a_descriptor_outlives_the_events_that_made_it_readable() {
    let ctx = context(TransportKind::Tcp);
    let (_, listener) = sender(&ctx);
    let conn = Conn::connect(&ctx, &listener.local_addr(), b"").unwrap();
    assert!(is_readable(conn.pollable().unwrap()), "the connection is up");
    let copy = conn.pollable().unwrap().try_clone_to_owned().unwrap();
    assert_eq!(conn.recv_event(NOTHING).unwrap(), Some(ConnEvent::Up));
    assert!(!is_readable(copy.as_fd()));
}

/// Reads all data up to `end`, from the position `at` where the previous kind of reader stopped.
fn read_to(input: &RIn, mut at: u64, end: u64) {
    while at < end {
        match input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Data(view)) => {
                assert_eq!(view.position(), at, "bytes are missing or came twice");
                assert!(view.to_vec().unwrap() == pattern(at, view.len()));
                at = view.end();
                view.consume();
            }
            other => panic!("at {at} of {end}: {other:?}"),
        }
    }
}

#[test]
fn data_waits_for_recv_after_its_callback_was_removed() {
    let (source, ctx) = (context(TransportKind::Tcp), context(TransportKind::Tcp));
    let (out, listener) = sender(&source);
    out.create_buffer(BID, 1 << 16).unwrap();
    let input = receiver(&ctx, &listener);
    let start = subscribe(&input, BID, ring_of(1 << 16));
    let mut at = start;
    for _ in 0..50 {
        let (told, tells) = mpsc::sync_channel(1 << 16);
        let gives_back = input.clone();
        input.set_data_in_cb(move |bid, seg| {
            gives_back.data_consumed(bid, seg.len() as u64).unwrap();
            told.send((seg.position(), seg.len() as u64)).unwrap();
        });
        let writer = {
            let out = out.clone();
            std::thread::spawn(move || write(&out, BID, 20_000, 100))
        };
        // While data comes; the callback's part of the channel goes with it, so that this ends.
        let (first, len) = tells.recv_timeout(WAIT).unwrap();
        assert_eq!(first, at);
        at += len;
        input.unset_data_in_cb();
        for (from, len) in tells.iter() {
            assert_eq!(from, at);
            at += len;
        }
        writer.join().unwrap();
        let end = out.buffer(BID).unwrap().info().unwrap().head;
        read_to(&input, at, end);
        at = end;
    }
}

/// A view that a callback takes along keeps its bytes when the callback has returned and the application has released them.
#[test]
fn a_view_may_outlive_its_callback() {
    let (source, ctx) = (context(TransportKind::Tcp), context(TransportKind::Tcp));
    let (out, listener) = sender(&source);
    out.create_buffer(BID, 1 << 16).unwrap();
    let input = receiver(&ctx, &listener);
    let (told, tells) = mpsc::sync_channel(1 << 10);
    let gives_back = input.clone();
    input.set_data_in_cb(move |bid, seg| {
        let held = seg.to_view();
        gives_back.data_consumed(bid, seg.len() as u64).unwrap();
        assert!(seg.to_view().is_none(), "the bytes were released");
        let _ = told.try_send((held.unwrap(), seg.position(), seg.end()));
    });
    let subscription = input.subscribe_with(BID, ring_of(1 << 16)).unwrap();
    while subscription.position().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    write(&out, BID, 100, 100);
    let (view, from, end) = tells.recv_timeout(WAIT).unwrap();
    assert_eq!((view.position(), view.end()), (from, end));
    // The writer fills the ring and is held by the view.
    let buffer = out.buffer(BID).unwrap();
    while let Ok(segment) = buffer.segment(1000, Some(Duration::from_millis(100))) {
        buffer.deliver(segment, 1000, None).unwrap();
    }
    assert!(view.as_slice().unwrap() == pattern(from, view.len()));
    drop(view);
    input.unset_data_in_cb();
    drop(tells);
    assert!(buffer.segment(1000, Some(WAIT)).is_ok(), "the space returns");
}

#[test]
fn events_before_an_event_callback_come_first_and_after_it_they_wait_again() {
    let (source, ctx) = (context(TransportKind::Tcp), context(TransportKind::Tcp));
    let (out, listener) = sender(&source);
    let input = receiver(&ctx, &listener);
    for bid in 1..=3 {
        out.create_buffer(bid, 1 << 16).unwrap();
        subscribe(&input, bid, ring_of(1 << 16));
    }
    let (told, tells) = mpsc::sync_channel(1 << 16);
    out.set_event_cb(move |event| told.send(event).unwrap());
    out.create_buffer(4, 1 << 16).unwrap();
    subscribe(&input, 4, ring_of(1 << 16));
    for wanted in 1..=4 {
        let event = tells.recv_timeout(WAIT).unwrap();
        assert!(matches!(event, OutEvent::Subscribed { bid, .. } if bid == wanted), "{event:?}");
    }
    out.unset_event_cb();
    assert!(tells.recv().is_err(), "the callback and its captured values still exist");
    out.create_buffer(5, 1 << 16).unwrap();
    subscribe(&input, 5, ring_of(1 << 16));
    assert!(matches!(out.recv_event(Some(WAIT)).unwrap(), Some(OutEvent::Subscribed { bid: 5, .. })));
}

#[test]
fn untaken_events_are_bounded_and_counted() {
    let (source, ctx) = (context(TransportKind::Tcp), context(TransportKind::Tcp));
    let (out, listener) = sender(&source);
    out.create_buffer(BID, 1 << 16).unwrap();
    let input = receiver(&ctx, &listener);
    const TIMES: usize = 3_000;
    for _ in 0..TIMES {
        subscribe(&input, BID, ring_of(1 << 16));
        input.unsubscribe(BID);
    }
    let (mut missed, mut seen) = (0, BTreeMap::<&str, usize>::new());
    while missed as usize + seen.values().sum::<usize>() < 2 * TIMES {
        match out.recv_event(Some(WAIT)).unwrap().expect("every event is taken or counted") {
            OutEvent::Missed { events } => missed += events,
            OutEvent::Subscribed { .. } => *seen.entry("subscribed").or_default() += 1,
            OutEvent::Unsubscribed { .. } => *seen.entry("unsubscribed").or_default() += 1,
            OutEvent::SubscriberProgress(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(missed > 0, "so many events do not wait");
}

#[test]
fn connections_wait_again_when_their_callback_was_removed() {
    let ctx: Context = context(TransportKind::Tcp);
    let (_, listener) = sender(&ctx);
    listener.unset_conn_cb();
    let conn = Conn::connect_start(&ctx, &listener.local_addr(), b"late").unwrap();
    let offered = listener.accept(Some(WAIT)).unwrap().unwrap();
    assert_eq!(offered.peer_hello(), b"late");
    offered.reject("not today");
    assert!(matches!(conn.recv_event(Some(WAIT)).unwrap(), Some(ConnEvent::Down { .. })));
}

/// A peer may speak before the application has set its callbacks.
#[test]
fn control_messages_wait_for_the_callback_or_the_queue_of_an_rout() {
    const MESSAGES: u32 = 20;
    for by_callback in [true, false] {
        let mut config = ends::config(TransportKind::Tcp);
        config.tcp.tcp_num_threads = 2;
        let (source, ctx) = (Context::new(config).unwrap(), context(TransportKind::Tcp));
        let (out, listener) = sender(&source);
        out.create_buffer(BID, 1 << 16).unwrap();
        // Of both workers.
        let inputs = [receiver(&ctx, &listener), receiver(&ctx, &listener)];
        for input in &inputs {
            (0..MESSAGES).for_each(|n| input.send_control(&n.to_le_bytes()).unwrap());
            // The answer comes after the messages were read.
            subscribe(input, BID, ring_of(1 << 16));
        }
        let (tells, told) = mpsc::sync_channel(100);
        if by_callback {
            out.set_control_msg_cb(move |conn, message| tells.send((conn.id(), message.to_vec())).unwrap());
        }
        inputs.iter().for_each(|input| input.send_control(&MESSAGES.to_le_bytes()).unwrap());
        let next = || match by_callback {
            true => told.recv_timeout(WAIT).unwrap(),
            false => loop {
                if let OutEvent::Control { conn, message } = next_event(&out) {
                    break (conn, message);
                }
            },
        };
        let mut of_conn = BTreeMap::<u64, Vec<Vec<u8>>>::new();
        for _ in 0..2 * (MESSAGES + 1) {
            let (conn, message) = next();
            of_conn.entry(conn).or_default().push(message);
        }
        let sent: Vec<_> = (0..=MESSAGES).map(|n| n.to_le_bytes().to_vec()).collect();
        assert_eq!(of_conn.len(), 2);
        of_conn.values().for_each(|messages| assert_eq!(*messages, sent, "by callback: {by_callback}"));
    }
}

/// A peer that speaks to an application which never listens costs bounded memory, and stays connected.
#[test]
fn control_messages_for_a_deaf_rout_are_bounded() {
    let (source, ctx) = (context(TransportKind::Tcp), context(TransportKind::Tcp));
    let (out, listener) = sender(&source);
    out.create_buffer(BID, 1 << 16).unwrap();
    let input = receiver(&ctx, &listener);
    let most = source.config().limits.max_control_bytes as usize - 1;
    let message = vec![1; most];
    let mut sent = 0;
    while sent < 80 {
        // The send queue may be full for a moment.
        match input.send_control(&message) {
            Ok(()) => sent += 1,
            Err(ControlError::Full { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    subscribe(&input, BID, ring_of(1 << 16));
    let mut waiting = 0;
    while let Some(event) = out.recv_event(NOTHING).unwrap() {
        waiting += u32::from(matches!(event, OutEvent::Control { .. }));
    }
    assert!((1..=64).contains(&waiting), "{waiting} messages of {most} bytes waited");
    assert!(input.conn().is_up());
}
