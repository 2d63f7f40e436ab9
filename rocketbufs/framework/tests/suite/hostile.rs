//! Hostile receivers and clients of other protocols: each loses only its own connection, and an honest subscriber continues.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rocketbufs::proto::{CloseCode, Message, RefuseCode, Start};
use rocketbufs::{Config, Context, Epoch, Listener, Policy};
use rocketnet::wire::{CONTROL_WIRE, Header};

use crate::raw::{self, Frame, Raw, credit, frame, hello, subscribe};
use crate::victim::Victim;

#[test]
fn foreign_bytes_are_recognised() {
    let victim = Victim::new(|_| {});
    let memory = victim.ctx.memory_in_use();
    let wrong_magic = {
        let mut bytes = frame(&Message::Hello(hello()));
        bytes[9] ^= 1;
        bytes
    };
    let old = Message::Hello(rocketbufs::proto::Hello { min_version: 7, max_version: 9, ..hello() });
    let turned = Message::Hello(rocketbufs::proto::Hello { min_version: 2, max_version: 1, ..hello() });
    let cases: &[(Vec<u8>, Option<CloseCode>)] = &[
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), None),
        (vec![0xFF; 4096], None),
        (vec![0; 64], None),
        (wrong_magic, Some(CloseCode::Protocol)),
        (frame(&old), Some(CloseCode::Version)),
        (frame(&turned), Some(CloseCode::Version)),
        (frame(&Message::Welcome(hello())), Some(CloseCode::Protocol)),
        (frame(&Message::Ping(1)), Some(CloseCode::Protocol)),
        (Header { wire: CONTROL_WIRE, more: false, size: u32::MAX }.encode().to_vec(), None),
        (Header { wire: CONTROL_WIRE, more: false, size: 0 }.encode().to_vec(), Some(CloseCode::Protocol)),
        (Header { wire: 5, more: true, size: u32::MAX }.encode().to_vec(), None),
        (
            [frame(&Message::Hello(hello())), frame(&Message::Hello(hello()))].concat(),
            Some(CloseCode::Protocol),
        ),
    ];
    for (bytes, expected) in cases {
        let mut raw = victim.silent();
        raw.send(bytes);
        let bye = raw.bye();
        assert_eq!(bye.as_ref().map(|(code, _)| *code), *expected, "{bye:?} to {bytes:?}");
        assert!(bye.is_none_or(|(_, text)| text.len() > 10), "BYE has no reason");
        victim.goes_on();
    }
    assert_eq!(victim.ctx.memory_in_use(), memory);
}

#[test]
fn silent_connections_are_closed() {
    let ctx = Context::new(Config::from_toml("[session]\nhandshake_timeout_ms = 50").unwrap()).unwrap();
    let listener = Listener::bind(&ctx, "127.0.0.1:0").unwrap();
    // The first connection of an idle context, and others.
    for _ in 0..2 {
        let mut half = Raw::silent(&listener.local_addr());
        half.send(&frame(&Message::Hello(hello()))[..5]);
        assert_eq!(half.bye().map(|(code, _)| code), Some(CloseCode::Timeout));
    }
}

#[test]
fn nonsense_about_a_subscription_is_refused_or_ends_the_connection() {
    let victim = Victim::new(|_| {});
    let max = u64::MAX;
    let wires: &[(Message, &str)] = &[
        (credit(1, [max, 0, 0], 0), "was sent"),
        (credit(1, [0, max, 0], max), "landed"),
        (credit(1, [0, 0, max], max), "delivered"),
        (Message::Subscribed(raw::answer(1, 0, true)), "not asked for"),
        (Message::Unsubscribed(1), "in use"),
        (Message::Hello(hello()), "second"),
        (Message::Welcome(hello()), "second"),
    ];
    for (message, reason) in wires {
        let mut raw = victim.up();
        raw.say(&Message::Subscribe(subscribe(1, 1)));
        raw.subscribed();
        raw.say(message);
        let (code, text) = raw.bye().unwrap();
        assert!(code == CloseCode::Protocol && text.contains(reason), "{code:?} {text}");
        victim.goes_on();
    }
}

#[test]
fn impossible_subscriptions_are_refused_with_a_code() {
    let victim = Victim::new(|_| {});
    let max = u64::MAX;
    let mut raw = victim.up();
    let refused = |raw: &mut Raw, message: raw_subscribe::Subscribe| {
        raw.say(&Message::Subscribe(message));
        raw.until("REFUSED", |frame| match frame {
            Frame::Control(Message::Refused { code, .. }) => Some(code),
            _ => None,
        })
    };
    use rocketbufs::proto as raw_subscribe;
    let base = || subscribe(1, 1);
    assert_eq!(refused(&mut raw, subscribe(1, 77)), RefuseCode::NoSuchBuffer);
    let small = raw_subscribe::Subscribe { capacity: 0, ..base() };
    assert_eq!(refused(&mut raw, small), RefuseCode::RingTooSmall);
    let overwrite = raw_subscribe::Subscribe { policy: Policy::Overwrite, ..base() };
    assert_eq!(refused(&mut raw, overwrite), RefuseCode::PolicyNotAllowed);
    raw.say(&Message::Subscribe(base()));
    raw.subscribed();
    assert_eq!(refused(&mut raw, base()), RefuseCode::BadWireId);
    // Messages for unknown ids, and messages of the other role, do no harm.
    for message in [
        credit(9, [max; 3], max),
        Message::Unsubscribe(9),
        Message::Ask { wire: 9, wanted: [max; 3] },
        Message::Recall(9),
        Message::Recall(1),
        Message::Recalled { wire: 9, at: max },
        Message::Lost { wire: 1, from: 0, to: max },
        Message::Closed { wire: 1, end: max },
        Message::Gone { wire: 9, end: max },
        Message::Refused { wire: 9, code: RefuseCode::TooSlow, a: max, b: max },
        Message::Pong(max),
        Message::App(vec![1; 60_000]),
    ] {
        raw.say(&message);
    }
    raw.ping(1);
    victim.goes_on();
}

#[test]
fn numbers_at_the_end_of_their_range_do_no_harm() {
    let victim = Victim::new(|_| {});
    let epoch = victim.out.buffer(1).unwrap().info().unwrap().epoch;
    let mut raws = Vec::new();
    for (epoch, position) in [(epoch, u64::MAX), (epoch, 1 << 63), (Epoch(1), u64::MAX), (epoch, 1)] {
        for policy in [Policy::Block, Policy::Drop, Policy::Disconnect] {
            let mut raw = victim.up();
            raw.say(&Message::Subscribe(rocketbufs::proto::Subscribe {
                capacity: u64::MAX,
                policy,
                start: Start::Position(epoch, position),
                max_lag: u64::MAX,
                block_timeout_ms: u32::MAX - 1,
                hold_ms: u32::MAX,
                name: vec![policy as u8; 255],
                ..subscribe(0x7FFF_FFFE, 1)
            }));
            let start = raw.subscribed().start;
            raw.say(&credit(0x7FFF_FFFE, [start; 3], u64::MAX));
            raw.ping(1);
            raws.push(raw);
        }
        victim.goes_on();
        raws.clear();
    }
    assert_eq!(
        victim.out.buffer(1).unwrap().subscribers().iter().filter(|sub| sub.name.is_empty()).count(),
        1
    );
    victim.goes_on();
}

#[test]
fn floods_end_at_limits_that_are_named() {
    let victim = Victim::new(|config| {
        config.limits.max_subscriptions_per_connection = 100;
        config.limits.max_held_subscriptions = 10;
    });
    let mut raw = victim.up();
    for wire in 1..=150 {
        let name = format!("name {wire}").into_bytes();
        let held = rocketbufs::proto::Subscribe { hold_ms: 100, name, ..subscribe(wire, 1) };
        raw.say(&Message::Subscribe(held));
    }
    let mut refused = 0;
    raw.say(&Message::Ping(1));
    raw.until("PONG", |frame| match frame {
        Frame::Control(Message::Refused { code, a, b, .. }) => {
            assert_eq!((code, a, b), (RefuseCode::TooMany, 100, 100));
            refused += 1;
            None
        }
        Frame::Control(Message::Pong(_)) => Some(()),
        _ => None,
    });
    assert_eq!(refused, 50);
    drop(raw);
    victim.goes_on();
    // Ten places are kept, and not for longer than was asked.
    let mut written = 0;
    while written < 1 << 20 {
        victim.goes_on();
        written += 100;
    }
}

#[test]
fn peers_that_flood_and_never_read_are_disconnected() {
    let victim = Victim::new(|config| config.tcp.send_buffer_bytes = Some(4096));
    let bytes: Vec<u8> = (0..1000).flat_map(|token| frame(&Message::Ping(token))).collect();
    let mut raw = victim.up();
    rustix::net::sockopt::set_socket_recv_buffer_size(&raw.stream, 4096).unwrap();
    let mut rounds = 0;
    use std::io::Write;
    while raw.stream.write_all(&bytes).is_ok() {
        rounds += 1;
        assert!(rounds < 100_000, "the connection never ends");
    }
    victim.goes_on();
}

#[test]
fn slow_readers_hold_no_writer_for_ever() {
    let victim = Victim::new(|config| config.session.block_timeout_ms = 300);
    let mut lazy: Vec<Raw> = (0..5).map(|_| victim.up()).collect();
    for raw in &mut lazy {
        raw.say(&Message::Subscribe(subscribe(1, 1)));
        let start = raw.subscribed().start;
        raw.say(&credit(1, [start; 3], u64::MAX));
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (slow, done) = (&mut lazy[0].stream, &done);
        scope.spawn(move || {
            use std::io::Read;
            let mut byte = [0];
            while !done.load(Relaxed) && slow.read(&mut byte).is_ok_and(|n| n > 0) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for _ in 0..2000 {
            victim.goes_on();
        }
        done.store(true, Relaxed);
    });
    let names = victim.out.buffer(1).unwrap().subscribers();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn a_name_can_be_taken_over_and_the_old_subscriber_gets_a_reason() {
    let victim = Victim::new(|_| {});
    let named = || rocketbufs::proto::Subscribe { hold_ms: 1000, name: b"me".to_vec(), ..subscribe(3, 1) };
    let mut first = victim.up();
    first.say(&Message::Subscribe(named()));
    first.subscribed();
    let mut second = victim.up();
    second.say(&Message::Subscribe(named()));
    second.subscribed();
    let (code, text) = first.bye().unwrap();
    assert!(code == CloseCode::TakenOver && text.contains("'me'"), "{text}");
    second.ping(5);
    victim.goes_on();
    // Twice on one connection: it takes itself over.
    second.say(&Message::Subscribe(rocketbufs::proto::Subscribe { wire: 4, ..named() }));
    assert_eq!(second.bye().map(|(code, _)| code), Some(CloseCode::TakenOver));
    victim.goes_on();
}

#[test]
fn a_peer_with_very_many_subscriptions_leaves_quickly() {
    let victim = Victim::new(|_| {});
    let mut raw = victim.up();
    let count = 30_000;
    let bytes: Vec<u8> =
        (1..=count).flat_map(|wire| frame(&Message::Subscribe(subscribe(wire, 1)))).collect();
    let mut writing = raw.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut writing, &bytes));
    for _ in 0..count {
        raw.subscribed();
    }
    writer.join().unwrap().unwrap();
    victim.goes_on();
    drop(raw);
    while victim.out.buffer(1).unwrap().subscribers().len() > 1 {
        victim.goes_on();
    }
}

#[test]
fn who_never_finishes_a_handshake_makes_room() {
    let victim = Victim::new(|config| {
        config.limits.max_connections = 4;
        config.tcp.tcp_num_threads = 1;
        config.session.handshake_timeout_ms = 60_000;
    });
    // The honest subscriber has one place. These take the others from each other.
    let mut idle: Vec<Raw> = (0..10).map(|_| victim.silent()).collect();
    let mut good: Vec<Raw> = (0..3).map(|_| victim.up()).collect();
    for raw in &mut idle {
        assert_eq!(raw.bye(), None);
    }
    // Established connections stay.
    let (code, text) = victim.silent().bye().unwrap();
    assert!(code == CloseCode::Limit && text.contains("limits.max_connections"), "{text}");
    good.iter_mut().for_each(|raw| raw.ping(1));
    victim.goes_on();
}

#[test]
fn a_host_that_connects_without_end_takes_places_from_itself() {
    let victim = Victim::new(|config| {
        config.limits.max_connections = 6;
        config.tcp.tcp_num_threads = 1;
        config.session.handshake_timeout_ms = 60_000;
    });
    // The oldest of all strangers. The honest subscriber has a place too, so the others have four.
    let mut slow = Raw::silent_from([127, 0, 0, 2], &victim.addr());
    let mut flood: Vec<Raw> = (0..20).map(|_| victim.silent()).collect();
    for raw in flood.iter_mut().take(16) {
        assert_eq!(raw.bye(), None);
    }
    slow.say(&Message::Hello(hello()));
    assert!(matches!(slow.hear(), Some(Frame::Control(Message::Welcome(_)))));
    flood[19].say(&Message::Hello(hello()));
    assert!(matches!(flood[19].hear(), Some(Frame::Control(Message::Welcome(_)))));
    victim.goes_on();
}

#[test]
fn peers_that_never_read_their_refusal_take_no_places() {
    let victim = Victim::new(|config| {
        config.limits.max_connections = 4;
        config.tcp.tcp_num_threads = 1;
        config.session.close_linger_ms = 600_000;
    });
    let rubbish: Vec<Raw> = (0..300)
        .map(|_| {
            let mut raw = victim.silent();
            raw.say(&Message::Ping(1));
            raw
        })
        .collect();
    let mut good: Vec<Raw> = (0..3).map(|_| victim.up()).collect();
    good.iter_mut().for_each(|raw| raw.ping(1));
    victim.goes_on();
    drop(rubbish);
}
