//! Clients of a broker that lies, floods and breaks the protocol: their errors name the broker, and their memory stays bounded.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rbmq::wire::{Control, Framing, Observe, RefuseCode, Rejection, Topic};
use rbmq::{
    Event, Notice, ObserveError, Observer, Publisher, ReceiveError, Subscriber, TopicName, TopicOpenError,
    TopicStats,
};
use rocketbufs::proto::Message;
use rocketbufs::{Config, Conn, Context, InEvent, Listener, RIn, ROut};
use testkit::{LONG, Process, Raw, introduction};

use crate::common::client;

/// A listener in the place of a broker, which handles clients' messages with `answer`.
struct Impostor {
    addr: String,
    _parts: (Context, Listener, ROut),
}

impl Impostor {
    /// For subscribers and observers.
    fn start(answer: impl Fn(&Conn, &[u8]) + Send + Sync + 'static) -> Self {
        let ctx = Context::new(Config::default()).unwrap();
        let (out, listener) = (ROut::new(&ctx), Listener::bind(&ctx, "127.0.0.1:0").unwrap());
        out.set_control_msg_cb(move |conn, message| answer(conn, message));
        let to = out.clone();
        listener.set_conn_cb(move |conn| to.add_conn(&conn));
        Self { addr: listener.local_addr(), _parts: (ctx, listener, out) }
    }

    /// An impostor for publishers, which has an rIn.
    fn start_receiving(answer: impl Fn(&RIn, &[u8]) + Send + Sync + 'static) -> Self {
        let answer = Arc::new(answer);
        let ctx = Context::new(Config::default()).unwrap();
        let (out, listener) = (ROut::new(&ctx), Listener::bind(&ctx, "127.0.0.1:0").unwrap());
        listener.set_conn_cb(move |conn| {
            let answer = answer.clone();
            RIn::new(&conn).set_control_msg_cb(move |rin, message| answer(rin, message));
        });
        Self { addr: listener.local_addr(), _parts: (ctx, listener, out) }
    }
}

fn topic(bid: u32, name: &str) -> Control {
    let topic = name.parse().unwrap();
    Control::Topic(Topic {
        bid,
        epoch: u128::from(bid),
        framing: Framing::Records,
        fresh: false,
        kept: false,
        max_delivery_bytes: 1 << 10,
        topic,
        space: None,
    })
}

/// A listener that accepts clients one by one, and accepts control messages of at most `max` bytes.
fn terse(max: u32) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut peer = Raw::of(stream.unwrap());
            assert!(matches!(peer.hear(), Some(Message::Hello(_))));
            peer.say(&Message::Welcome(introduction(1, max, Vec::new())));
            std::thread::spawn(move || while peer.hear().is_some() {});
        }
    });
    addr
}

/// Sends as many as leave; a connection that has no room for more gets no more.
fn flood(conn: &Conn, messages: impl Iterator<Item = Control>) {
    for message in messages {
        if conn.send_control(&message.encode()).is_err() {
            return;
        }
    }
}

#[test]
fn a_flood_of_refusals_is_reported_as_such() {
    let reason = || Control::Rejected { what: Rejection::Rights, reason: "no\x1b[2J\r\nrbmq: done".into() };
    let broker = Impostor::start(move |conn, _| {
        flood(conn, (0..3000).map(|_| reason()));
        flood(conn, std::iter::once(Control::TopicsDone));
    });
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr).unwrap();
    subscriber.subscribe("t").unwrap();
    let (mut refused, mut patience) = (0, LONG);
    while let Some(item) = subscriber.next_event(Some(patience)).unwrap() {
        patience = Duration::from_secs(1);
        match item {
            Event::Notice(Notice::Refused { .. }) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!((1..=3000).contains(&refused), "{refused}");
    let outcome = Process::start(client("sub", &broker.addr, "t")).finish();
    assert_eq!(outcome.status.code(), Some(1));
    assert_eq!(outcome.stderr, "rbmq: the broker refused: no\\u{1b}[2J\\r\\nrbmq: done\n");
}

#[test]
fn missing_topics_and_topics_larger_than_memory_are_ignored() {
    let broker = Impostor::start(|conn, _| {
        let huge = |bid| match topic(bid, "t") {
            Control::Topic(topic) => Control::Topic(Topic { max_delivery_bytes: u64::MAX, ..topic }),
            other => other,
        };
        flood(conn, (0..100).map(|bid| topic(bid, "other")));
        flood(conn, (100..200).map(|bid| topic(bid, "t")));
        flood(
            conn,
            [huge(300), Control::Continues { bid: 7, yes: true }, Control::Continues { bid: 7, yes: false }]
                .into_iter(),
        );
        flood(conn, (0..200).map(|bid| Control::TopicGone { bid, topic: "t".parse().unwrap() }));
        flood(conn, std::iter::once(Control::TopicsDone));
    });
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr).unwrap();
    subscriber.subscribe("t").unwrap();
    match subscriber.recv(Some(LONG)) {
        Err(ReceiveError::Refused { topic: Some(topic), reason }) => {
            assert!(topic.as_str() == "t" && reason.contains("cannot subscribe"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(subscriber.recv(Some(Duration::from_millis(100))), Ok(None));
    assert!(subscriber.is_connected());
}

#[test]
fn a_message_that_the_broker_cannot_take_is_a_refusal_without_a_reconnect() {
    let addr = terse(20);
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&addr).unwrap();
    subscriber.subscribe("a/topic/with/a/long/name").unwrap();
    match subscriber.next_event(Some(LONG)).unwrap() {
        Some(Event::Notice(Notice::Refused { reason, .. })) => {
            assert!(reason.contains("at most 19"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
    assert!(subscriber.is_connected());
    match Publisher::connect(&addr).unwrap().topic("t").map(drop) {
        Err(TopicOpenError::Refused { reason, .. }) => assert!(reason.contains("at most 19"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn garbage_ends_the_connection_and_the_error_names_the_broker() {
    let broker = Impostor::start(|conn, _| drop(conn.send_control(b"\xee nonsense")));
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr).unwrap();
    subscriber.subscribe("t").unwrap();
    match subscriber.next_event(Some(LONG)).unwrap() {
        Some(Event::Notice(Notice::Disconnected(why))) => {
            assert!(why.contains("0xee is no valid type"), "{why}")
        }
        other => panic!("{other:?}"),
    }
    let broker = Impostor::start(|conn, _| flood(conn, std::iter::once(Control::Created { bid: 0 })));
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr).unwrap();
    subscriber.subscribe("t").unwrap();
    match subscriber.next_event(Some(LONG)).unwrap() {
        Some(Event::Notice(Notice::Disconnected(why))) => {
            assert!(why.contains("not for subscribers"), "{why}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_publisher_is_not_misled_about_others_buffers() {
    let broker = Impostor::start_receiving(|rin, message| {
        let Ok(Control::Create { bid, .. }) = Control::decode(message) else { return };
        let conn = &rin.conn();
        let reason = || "\x1b]0;title\x07".to_owned();
        flood(conn, (0..1000).map(|n| Control::Created { bid: 1000 + n }));
        flood(conn, (0..1000).map(|n| Control::Ended { bid: 1000 + n, end: u64::MAX }));
        flood(conn, [Control::Refused { bid, code: RefuseCode::Internal, reason: reason() }].into_iter());
    });
    let publisher = Publisher::connect(&broker.addr).unwrap();
    match publisher.topic("t").map(drop) {
        Err(TopicOpenError::Refused { code: RefuseCode::Internal, .. }) => {}
        other => panic!("{other:?}"),
    }
    let outcome = Process::start(client("pub", &broker.addr, "t")).finish();
    assert_eq!(outcome.status.code(), Some(1));
    assert_eq!(outcome.stderr, "rbmq: the broker refused topic 't': \\u{1b}]0;title\\u{7}\n");
}

#[test]
fn a_broker_that_dies_before_its_last_answer_had_everything() {
    let lives = AtomicU64::new(0);
    let broker = Impostor::start_receiving(move |rin, message| {
        let Ok(Control::Create { bid, .. }) = Control::decode(message) else { return };
        let conn = rin.conn();
        if lives.fetch_add(1, Ordering::Relaxed) > 0 {
            // The answer of a broker without the buffers of the previous one.
            let reason = "there is no such buffer".to_owned();
            return flood(&conn, [Control::Refused { bid, code: RefuseCode::Internal, reason }].into_iter());
        }
        rin.set_data_in_cb(|_, _| {});
        rin.set_event_cb(move |event| match event {
            InEvent::Subscribed { bid, .. } => flood(&conn, [Control::Created { bid }].into_iter()),
            InEvent::Closed { .. } => conn.close("killed"),
            _ => {}
        });
        rin.subscribe(bid, 1 << 20).unwrap();
    });
    let publisher = Publisher::connect(&broker.addr).unwrap();
    publisher.topic("t").unwrap().close_timeout(Some(LONG)).unwrap();
}

#[test]
fn an_observer_waits_no_longer_than_its_time_out() {
    // The impostor answers requests that were not sent, and never those that were.
    let broker = Impostor::start(|conn, message| {
        let Ok(asked) = Observe::decode(message) else { return };
        let (conn, request) = (conn.clone(), asked.request().wrapping_add(1));
        std::thread::spawn(move || {
            let page = Observe::TopicsPage { request, rows: Vec::new(), next: None }.encode();
            // Slowly, because a peer that reads slower than it gets messages may be disconnected.
            while conn.is_up() && conn.send_control(&page).is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    });
    let timeout = Some(Duration::from_millis(300));
    let mut observer = Observer::builder().timeout(timeout).connect(&broker.addr).unwrap();
    assert!(matches!(observer.topics(None), Err(ObserveError::TimedOut { .. })));
}

/// Answers with page after page of the same topics.
fn endless(rows: usize) -> (Impostor, Arc<AtomicU64>) {
    let said = Arc::new(AtomicU64::new(0));
    let bytes = said.clone();
    let broker = Impostor::start(move |conn, message| {
        let Ok(asked) = Observe::decode(message) else { return };
        let topic: TopicName = "t".parse().unwrap();
        let rows = vec![TopicStats::new(topic.clone()); rows];
        let page = Observe::TopicsPage { request: asked.request(), rows, next: Some(topic) }.encode();
        bytes.fetch_add(page.len() as u64, Ordering::Relaxed);
        drop(conn.send_control(&page));
    });
    (broker, said)
}

#[test]
fn an_observer_limits_an_endless_list() {
    let (broker, said) = endless(100);
    match Observer::connect(&broker.addr).unwrap().topics(None) {
        Err(ObserveError::Endless) => {}
        other => panic!("{:?}", other.map(|topics| topics.len())),
    }
    let said = said.load(Ordering::Relaxed);
    assert!((32 << 20..66 << 20).contains(&said), "{said} bytes");
    // Pages without anything take time instead.
    let (broker, _) = endless(0);
    let timeout = Some(Duration::from_millis(20));
    let mut observer = Observer::builder().timeout(timeout).connect(&broker.addr).unwrap();
    assert!(matches!(observer.topics(None), Err(ObserveError::TimedOut { .. })));
}
