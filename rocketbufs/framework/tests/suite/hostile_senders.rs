//! Senders that mean harm, and brokers that stand between: an rIn against peers that speak byte by byte.

use std::net::TcpListener;

use rocketbufs::error::RefusedError;
use rocketbufs::proto::{CloseCode, Message, RefuseCode};
use rocketbufs::{Budget, Config, Conn, Context, InEvent, Listener, RIn, ROut, SubscribeOptions};
use rocketnet::wire::Header;

use crate::raw::{Frame, Raw, WAIT, answer, frame, hello, subscribe};

/// An rIn over a connection to a raw sender.
fn pair(ctx: &Context) -> (RIn, Raw) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let conn = Conn::connect_start(ctx, &listener.local_addr().unwrap().to_string(), b"").unwrap();
    let mut raw = Raw::accept(&listener);
    raw.say(&Message::Welcome(hello()));
    conn.wait_up(Some(WAIT)).unwrap();
    (RIn::new(&conn), raw)
}

/// Subscribed to buffer 1 from `start`; returns the id on the wire.
fn subscribed(input: &RIn, raw: &mut Raw, start: u64, flow_control: bool) -> u32 {
    input.subscribe(1, 1 << 16).unwrap();
    let wire = raw.answer(start, flow_control);
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    wire
}

fn conn_down(input: &RIn) -> String {
    loop {
        let received = input.recv(Some(WAIT)).unwrap().expect("the connection goes down");
        if let InEvent::ConnDown { reason: why } = received {
            return why.to_string();
        }
    }
}

#[test]
fn breaches_of_the_protocol_end_the_connection() {
    let ctx = Context::new(Config::default()).unwrap();
    type Act = fn(&mut Raw, u32);
    let max = u64::MAX;
    let acts: &[Act] = &[
        |raw, wire| raw.say(&Message::Subscribed(answer(wire, 0, true))),
        |raw, wire| raw.say(&Message::Subscribed(answer(wire + 1, 0, true))),
        |raw, wire| raw.say(&Message::Unsubscribed(wire)),
        |raw, wire| raw.say(&Message::Lost { wire, from: 0, to: u64::MAX }),
        |raw, wire| {
            raw.data(wire, false, &[1; 100]);
            raw.say(&Message::Lost { wire, from: 0, to: 99 });
        },
        |raw, wire| raw.say(&Message::Lost { wire, from: 1, to: 0 }),
        |raw, wire| raw.say(&Message::Lost { wire, from: 500, to: 200 }),
        |raw, wire| raw.say(&Message::Recalled { wire, at: 0 }),
        |raw, wire| raw.say(&Message::Closed { wire, end: 1 }),
        |raw, wire| raw.say(&Message::Gone { wire, end: u64::MAX }),
        |raw, wire| {
            raw.data(wire, true, &[1; 100]);
            raw.say(&Message::Closed { wire, end: 100 });
        },
        |raw, wire| raw.send(&Header { wire, more: false, size: u32::MAX }.encode()),
        |raw, wire| raw.data(wire + 1, false, &[1]),
        |raw, _| raw.say(&Message::Hello(hello())),
        |raw, wire| {
            raw.data(wire, false, b"unread");
            raw.say(&Message::Closed { wire, end: 6 });
            raw.data(wire, false, b"more");
        },
        |raw, wire| {
            raw.data(wire, false, b"unread");
            raw.say(&Message::Closed { wire, end: 6 });
            raw.say(&Message::Gone { wire, end: 6 });
        },
    ];
    for (i, act) in acts.iter().enumerate() {
        let (input, mut raw) = pair(&ctx);
        let wire = subscribed(&input, &mut raw, 0, true);
        act(&mut raw, wire);
        let why = conn_down(&input);
        assert!(why.len() > 10, "{i}: {why}");
    }
    // These messages are no errors: absolute positions are maxima.
    let (input, mut raw) = pair(&ctx);
    let wire = subscribed(&input, &mut raw, 0, true);
    raw.say(&Message::Ask { wire, wanted: [max; 3] });
    raw.say(&Message::Ask { wire: wire + 7, wanted: [1; 3] });
    raw.data(wire, false, b"still");
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Data(view)) if view.len() == 5));
}

#[test]
fn a_log_that_begins_at_the_last_position_is_refused() {
    let ctx = Context::new(Config::default()).unwrap();
    for flow_control in [true, false] {
        let (input, mut raw) = pair(&ctx);
        input.subscribe(1, 1 << 16).unwrap();
        raw.answer(u64::MAX, flow_control);
        let answer = input.recv(Some(WAIT)).unwrap();
        let refused = RefusedError::NoPositions { start: u64::MAX };
        assert!(
            matches!(&answer, Some(InEvent::Refused { bid: 1, error }) if *error == refused),
            "{answer:?}"
        );
    }
}

/// Such a relay has lost its writer: it knows of no delivery that began before the resume.
#[test]
fn a_log_that_is_gone_after_a_resume_inside_a_delivery_ends_with_the_last_whole_one() {
    let ctx = Context::new(Config::default()).unwrap();
    let (input, mut raw) = pair(&ctx);
    let wire = subscribed(&input, &mut raw, 0, true);
    raw.data(wire, false, &[1; 100]);
    raw.data(wire, true, &[2; 50]);
    raw.ping(1);
    let data = input.recv(Some(WAIT)).unwrap();
    assert!(matches!(data, Some(InEvent::Data(view)) if view.len() == 100));
    drop(raw);
    conn_down(&input);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let conn = Conn::connect_start(&ctx, &listener.local_addr().unwrap().to_string(), b"").unwrap();
    let mut raw = Raw::accept(&listener);
    raw.say(&Message::Welcome(hello()));
    input.resume(&conn);
    let wire = raw.answer(150, true);
    raw.data(wire, true, &[2; 25]);
    raw.say(&Message::Gone { wire, end: 150 });
    let end = input.recv(Some(WAIT)).unwrap();
    assert!(matches!(end, Some(InEvent::Gone { bid: 1, end: 100 })), "{end:?}");
}

#[test]
fn the_reason_of_a_peer_is_one_line() {
    let ctx = Context::new(Config::default()).unwrap();
    for code in [CloseCode::Normal, CloseCode::NotAccepted, CloseCode::Limit] {
        let (input, mut raw) = pair(&ctx);
        raw.say(&Message::Bye { code, text: "bye\r\n INFO all is well\x1b[2J".into() });
        let why = conn_down(&input);
        assert!(why.ends_with("bye\\r\\n INFO all is well\\u{1b}[2J"), "{why}");
    }
}

#[test]
fn logs_may_begin_and_end_anywhere() {
    let ctx = Context::new(Config::default()).unwrap();
    for flow_control in [true, false] {
        for start in [u64::MAX - 1, u64::MAX - 10, u64::MAX - (1 << 16), u64::MAX - (1 << 17) - 5] {
            let (input, mut raw) = pair(&ctx);
            let wire = subscribed(&input, &mut raw, start, flow_control);
            for _ in 0..20 {
                raw.data(wire, true, &[3; 1000]);
                raw.data(wire, false, &[4; 2000]);
            }
            raw.say(&Message::Lost { wire, from: 0, to: u64::MAX - (1 << 17) });
            raw.say(&Message::Lost { wire, from: 0, to: u64::MAX });
            raw.data(wire, false, &[5; 100]);
            raw.say(&Message::Bye { code: CloseCode::Normal, text: "done".into() });
            conn_down(&input);
        }
    }
    let odd = [(0, 0), (u64::MAX, u64::MAX), (0, u64::MAX), (1, 1)];
    for (capacity, max_delivery) in odd {
        let (input, mut raw) = pair(&ctx);
        input.subscribe(1, 1 << 16).unwrap();
        let wire = raw.until("SUBSCRIBE", |frame| match frame {
            Frame::Control(Message::Subscribe(subscribe)) => Some(subscribe.wire),
            _ => None,
        });
        let odd = rocketbufs::proto::Subscribed { capacity, max_delivery, ..answer(wire, 0, true) };
        raw.say(&Message::Subscribed(odd));
        raw.data(wire, false, b"x");
        assert!(input.recv(Some(WAIT)).unwrap().is_some());
    }
    let gone = (0..2000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        ctx.memory_in_use() == 0
    });
    assert!(gone, "{} bytes of rings are left", ctx.memory_in_use());
}

#[test]
fn a_subscribe_right_behind_the_welcome_waits_for_the_application() {
    let ctx = Context::new(Config::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let conn = Conn::connect_start(&ctx, &listener.local_addr().unwrap().to_string(), b"").unwrap();
    let mut raw = Raw::accept(&listener);
    let both = [
        frame(&Message::Welcome(hello())),
        frame(&Message::Subscribe(subscribe(1, 5))),
        frame(&Message::App(b"order".to_vec())),
    ];
    raw.send(&both.concat());
    conn.wait_up(Some(WAIT)).unwrap();
    let out = ROut::new(&ctx);
    out.create_buffer(5, 1 << 16).unwrap();
    let (told, heard) = std::sync::mpsc::sync_channel(16);
    out.set_control_msg_cb(move |_, bytes| told.send(bytes.to_vec()).unwrap());
    out.add_conn(&conn);
    raw.subscribed();
    assert_eq!(heard.recv_timeout(WAIT).unwrap(), b"order");
}

#[test]
fn a_refusal_and_an_unsubscribe_may_cross() {
    let ctx = Context::new(Config::default()).unwrap();
    let (input, mut raw) = pair(&ctx);
    let wire = subscribed(&input, &mut raw, 0, true);
    input.subscribe(2, 1 << 16).unwrap();
    let crossing = raw.until("SUBSCRIBE", |frame| match frame {
        Frame::Control(Message::Subscribe(subscribe)) => Some(subscribe.wire),
        _ => None,
    });
    input.unsubscribe(2);
    raw.until("UNSUBSCRIBE", |frame| match frame {
        Frame::Control(Message::Unsubscribe(wire)) => (wire == crossing).then_some(()),
        _ => None,
    });
    raw.say(&Message::Refused { wire: crossing, code: RefuseCode::NoSuchBuffer, a: 0, b: 0 });
    raw.say(&Message::Unsubscribed(crossing));
    raw.data(wire, false, b"still here");
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Data(view)) if view.len() == 10));
}

/// A broker whose buffer 70 is spliced from buffer 1 of a raw publisher.
fn broker(ctx: &Context) -> (ROut, Listener, RIn, Raw) {
    let out = ROut::new(ctx);
    let listener = Listener::bind(ctx, "127.0.0.1:0").unwrap();
    let to = out.clone();
    listener.set_conn_cb(move |conn| to.add_conn(&conn));
    let (input, raw) = pair(ctx);
    input.subscribe(1, 1 << 16).unwrap();
    out.splice_as(&input, 1, 70).unwrap();
    (out, listener, input, raw)
}

#[test]
fn the_last_positions_of_a_log_do_no_harm_behind_a_broker() {
    let ctx = Context::new(Config::default()).unwrap();
    for (start, lost) in [(u64::MAX - 1000, None), (0, Some(u64::MAX - 1000)), (0, Some(u64::MAX))] {
        let (out, listener, _input, mut publisher) = broker(&ctx);
        out.create_buffer(71, 1 << 16).unwrap();
        let wire = publisher.answer(start, true);
        let leaf = RIn::new(&Conn::connect(&ctx, &listener.local_addr(), b"").unwrap());
        for bid in [70, 71] {
            leaf.subscribe(bid, 1 << 16).unwrap();
            assert!(matches!(leaf.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
        }
        if let Some(to) = lost {
            publisher.say(&Message::Lost { wire, from: start, to });
        }
        // As much as there are positions for, and more.
        (0..20).for_each(|_| publisher.data(wire, false, &[1; 100]));
        // The broker's worker still works.
        out.buffer(71).unwrap().writer().unwrap().append(&[b"honest"]).unwrap();
        loop {
            match leaf.recv(Some(WAIT)).unwrap().expect("the honest buffer's data") {
                InEvent::Data(view) if view.bid() == 71 => break,
                InEvent::ConnDown { reason: why } => panic!("{start} {lost:?}: {why}"),
                _ => {}
            }
        }
    }
}

#[test]
fn subscribers_of_a_log_that_never_comes_are_refused() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener, _input, mut publisher) = broker(&ctx);
    let leaf = RIn::new(&Conn::connect(&ctx, &listener.local_addr(), b"").unwrap());
    leaf.subscribe(70, 1 << 16).unwrap();
    // A subscription that is withdrawn while it waits, a subscription that keeps waiting, and an id that is used twice.
    let mut raw = Raw::up(&listener.local_addr());
    raw.say(&Message::Subscribe(subscribe(1, 70)));
    raw.say(&Message::Subscribe(subscribe(1, 70)));
    raw.until("REFUSED", |frame| match frame {
        Frame::Control(Message::Refused { code, .. }) => {
            assert_eq!(code, RefuseCode::BadWireId);
            Some(())
        }
        _ => None,
    });
    raw.say(&Message::Unsubscribe(1));
    raw.until("UNSUBSCRIBED", |frame| {
        matches!(frame, Frame::Control(Message::Unsubscribed(1))).then_some(())
    });
    let wire = publisher.until("SUBSCRIBE", |frame| match frame {
        Frame::Control(Message::Subscribe(subscribe)) => Some(subscribe.wire),
        _ => None,
    });
    publisher.say(&Message::Refused { wire, code: RefuseCode::NoSuchBuffer, a: 0, b: 0 });
    match leaf.recv(Some(WAIT)).unwrap() {
        Some(InEvent::Refused { bid: 70, error }) => {
            assert_eq!(error, RefusedError::Peer { code: RefuseCode::NoSuchBuffer, a: 0, b: 0 });
        }
        other => panic!("{other:?}"),
    }
    raw.say(&Message::Ping(1));
    assert!(matches!(raw.hear(), Some(Frame::Control(Message::Pong(1)))));
    drop(out);
}

#[test]
fn a_subscription_that_left_while_it_waited_does_not_come_back() {
    let ctx = Context::new(Config::default()).unwrap();
    let (_out, listener, _input, mut publisher) = broker(&ctx);
    let mut raw = Raw::up(&listener.local_addr());
    raw.say(&Message::Subscribe(subscribe(1, 70)));
    raw.say(&Message::Unsubscribe(1));
    raw.ping(1);
    let wire = publisher.answer(0, true);
    publisher.data(wire, false, b"data");
    publisher.ping(2);
    raw.say(&Message::Ping(3));
    assert!(matches!(raw.hear(), Some(Frame::Control(Message::Pong(3)))));
}

#[test]
fn destroying_a_spliced_buffer_answers_waiters_for_its_log() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener, _input, _publisher) = broker(&ctx);
    let mut raw = Raw::up(&listener.local_addr());
    raw.say(&Message::Subscribe(subscribe(1, 70)));
    raw.ping(1);
    out.destroy_buffer(70).unwrap();
    raw.until("REFUSED", |frame| match frame {
        Frame::Control(Message::Refused { code: RefuseCode::NoSuchBuffer, .. }) => Some(()),
        _ => None,
    });
}

#[test]
fn a_storm_of_holes_costs_a_broker_no_memory() {
    let ctx = Context::new(Config::default()).unwrap();
    let (_out, _listener, input, mut publisher) = broker(&ctx);
    let wire = publisher.answer(0, true);
    let mut at = 0;
    for _ in 0..40 {
        let mut bytes = Vec::new();
        for _ in 0..1000 {
            bytes.extend(Header { wire, more: true, size: 1 }.encode());
            bytes.push(0);
            bytes.extend(frame(&Message::Lost { wire, from: at, to: at + 3 }));
            at += 3;
        }
        publisher.send(&bytes);
    }
    publisher.ping(1);
    let mut told = 0;
    let mut from_to = 0;
    while let Some(received) = input.recv(Some(std::time::Duration::ZERO)).unwrap() {
        told += 1;
        if let InEvent::Lost { from, to, .. } = received {
            assert!(from <= from_to && to > from);
            from_to = to;
        }
    }
    assert_eq!(from_to, at);
    assert!(told < 5000, "{told} events wait for somebody who does not listen");
}

/// Subscribed to a buffer with a budget; returns the id on the wire.
fn lent(input: &RIn, raw: &mut Raw, bid: u32, budget: &Budget) -> u32 {
    let options = SubscribeOptions::new().size_bytes(1 << 16).budget(Some(budget.clone()));
    input.subscribe_with(bid, options).unwrap();
    let wire = raw.answer(0, true);
    assert!(matches!(input.recv(Some(WAIT)).unwrap(), Some(InEvent::Subscribed { .. })));
    wire
}

/// The next grant of this subscription.
fn granted(raw: &mut Raw, wire: u32) -> u64 {
    raw.until("CREDIT", |frame| match frame {
        Frame::Control(Message::Credit { wire: of, credit }) if of == wire && credit.grant > 0 => {
            Some(credit.grant)
        }
        Frame::Control(Message::Recall(_)) => panic!("called back"),
        _ => None,
    })
}

#[test]
fn unused_grants_are_recalled() {
    let mut config = Config::default();
    config.buffers.idle_trim_ms = 20;
    // So that nothing comes where nothing is called back.
    config.session.heartbeat_ms = 0;
    let ctx = Context::new(config).unwrap();
    let (input, mut raw) = pair(&ctx);
    let budget = Budget::new(1 << 20);
    let wire = lent(&input, &mut raw, 1, &budget);
    raw.say(&Message::Ask { wire, wanted: [1000, 0, 0] });
    assert_eq!(granted(&mut raw, wire), 1 << 16);
    raw.until("RECALL", |frame| matches!(frame, Frame::Control(Message::Recall(_))).then_some(()));
    raw.say(&Message::Recalled { wire, at: 0 });
    raw.ping(1);
    assert_eq!((budget.in_use_bytes(), ctx.memory_in_use()), (0, 0));
}

#[test]
fn used_grants_are_not_recalled() {
    let ctx = Context::new(Config::default()).unwrap();
    let (input, mut raw) = pair(&ctx);
    // The budget is enough for one ring, and nothing is granted before there is data.
    let budget = Budget::new(1 << 13);
    let (first, second) = (lent(&input, &mut raw, 1, &budget), lent(&input, &mut raw, 2, &budget));
    raw.say(&Message::Ask { wire: first, wanted: [4000, 0, 0] });
    assert_eq!(granted(&mut raw, first), 4000);
    raw.say(&Message::Ask { wire: second, wanted: [8000, 0, 0] });
    // The first subscription keeps its grant although the second waits, and its data comes.
    raw.say(&Message::Ask { wire: first, wanted: [4000, 0, 0] });
    raw.data(first, false, &[7; 4000]);
    let Some(InEvent::Data(view)) = input.recv(Some(WAIT)).unwrap() else { panic!("data") };
    view.consume();
    assert_eq!(granted(&mut raw, second), 8000);
}
