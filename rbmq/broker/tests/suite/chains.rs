//! Brokers that receive from each other: every message comes once and in order, by any route.

use std::time::Duration;

use rbmq::wire::{Control, Hello, Role, Topic};
use rbmq::{Event, Framing, Publisher, StartFrom, Subscriber, TopicFilter, TopicWriter};
use rbmq_broker::{Broker, Ingest, UpstreamSettings};
use rocketbufs::proto::{Message, RefuseCode, Subscribe, Subscribed};
use rocketbufs::{Config, Conn, Context, Epoch, InEvent, RIn};
use testkit::{LONG, Proxy, Raw, broker_with, introduction, own_addr, rule, until};

fn broker(upstreams: &[&str]) -> Broker {
    broker_at(&own_addr(), upstreams)
}

fn broker_at(addr: &str, upstreams: &[&str]) -> Broker {
    // How long a log is waited for before it comes by another way.
    broker_that_waits(500, addr, upstreams)
}

fn broker_that_waits(linger_ms: u32, addr: &str, upstreams: &[&str]) -> Broker {
    broker_with(|config| {
        config.broker.listen = addr.into();
        config.broker.upstream = upstreams.iter().map(|addr| UpstreamSettings::new(addr)).collect();
        config.framework.session.linger_ms = linger_ms;
    })
}

fn merging(pattern: &str) -> Broker {
    broker_with(|config| {
        config.broker.topics = vec![rule(pattern, |rule| rule.ingest = Ingest::Merge)].into();
    })
}

fn topic(at: &Broker, name: &str) -> TopicWriter {
    Publisher::connect(&at.addr()).unwrap().topic(name).unwrap()
}

fn subscriber(at: &Broker, name: &str) -> Subscriber {
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&at.addr()).unwrap();
    subscriber.subscribe(name).unwrap();
    subscriber
}

/// Waits until a broker knows another way to the only log of its only topic.
fn has_spare_way(at: &Broker) {
    until("another way", || at.topics().iter().any(|topic| topic.alternate_paths == 1));
}

fn publish(topic: &mut TopicWriter, numbers: std::ops::Range<u32>) {
    for n in numbers {
        topic.publish(&n.to_le_bytes()).unwrap();
    }
}

/// Receives exactly these numbers.
fn expect(subscriber: &mut Subscriber, numbers: std::ops::Range<u32>) {
    for n in numbers {
        let message =
            subscriber.recv(Some(LONG)).unwrap().unwrap_or_else(|| panic!("no message came in place of {n}"));
        assert_eq!(message.bytes, n.to_le_bytes(), "in place of {n}");
    }
}

#[test]
fn a_chain_forwards_everything_and_counts_subscribers_not_brokers() {
    let a = broker(&[]);
    let b = broker(&[&a.addr()]);
    let c = broker(&[&b.addr()]);
    let mut news = topic(&a, "news");
    let mut end = subscriber(&c, "news");
    news.wait_subscribers(1, Some(LONG)).unwrap();
    assert_eq!(news.subscribers(), 1);
    let mut near = subscriber(&a, "news");
    news.wait_subscribers(2, Some(LONG)).unwrap();
    let writer = std::thread::spawn(move || {
        publish(&mut news, 0..50_000);
        news.close().unwrap();
    });
    expect(&mut end, 0..50_000);
    expect(&mut near, 0..50_000);
    assert_eq!(end.recv(Some(LONG)).unwrap(), None);
    assert!(end.ended() && near.recv(Some(LONG)).unwrap().is_none());
    writer.join().unwrap();
}

#[test]
fn a_publisher_that_joins_a_merged_topic_learns_of_subscribers_behind_other_brokers() {
    let a = merging("news");
    let b = broker(&[&a.addr()]);
    let _ends = [(); 2].map(|()| subscriber(&b, "news"));
    let first = topic(&a, "news");
    first.wait_subscribers(2, Some(LONG)).unwrap();
    let second = topic(&a, "news");
    second.wait_subscribers(2, Some(LONG)).unwrap();
    assert_eq!(second.subscribers(), 2);
}

#[test]
fn brokers_do_not_count_as_subscribers_of_a_merged_topic() {
    let a = merging("news");
    let (_b, c) = (broker(&[&a.addr()]), broker(&[&a.addr()]));
    let first = topic(&a, "news");
    until("both brokers have it", || a.topics()[0].subscribers == 2);
    let second = topic(&a, "news");
    let waited = second.wait_subscribers(1, Some(Duration::from_millis(200)));
    assert!(waited.is_err(), "there are {} subscribers", second.subscribers());
    let _end = subscriber(&c, "news");
    for writer in [first, second] {
        writer.wait_subscribers(1, Some(LONG)).unwrap();
        assert_eq!(writer.subscribers(), 1);
    }
}

#[test]
fn downstream_subscribers_that_join_while_a_merged_topic_opens_are_counted() {
    let a = merging("news/#");
    let b = broker(&[&a.addr()]);
    for n in 0..6 {
        let name = format!("news/{n}");
        let wait = || {
            let writer = topic(&a, &name);
            writer.wait_subscribers(3, Some(LONG)).unwrap();
            writer
        };
        std::thread::scope(|scope| {
            let writers = [(); 2].map(|()| scope.spawn(wait));
            let _ends = [(); 3].map(|()| subscriber(&b, &name));
            let writers = writers.map(|writer| writer.join().unwrap());
            assert_eq!(writers.map(|writer| writer.subscribers()), [3; 2], "{name}");
        });
    }
}

#[test]
fn brokers_may_start_in_any_order() {
    let addr = own_addr();
    let b = broker(&[&addr]);
    let mut end = subscriber(&b, "news");
    let a = broker_at(&addr, &[]);
    let mut news = topic(&a, "news");
    news.wait_subscribers(1, Some(LONG)).unwrap();
    publish(&mut news, 0..100);
    expect(&mut end, 0..100);
}

#[test]
fn a_cycle_of_brokers_makes_no_loop() {
    let (a, b, c) = {
        // Each broker has the next one's address, so two addresses must be known before any broker runs.
        let addrs = [(); 3].map(|()| own_addr());
        (
            broker_at(&addrs[0], &[&addrs[1], &addrs[2]]),
            broker_at(&addrs[1], &[&addrs[2], &addrs[0]]),
            broker_at(&addrs[2], &[&addrs[0], &addrs[1]]),
        )
    };
    let mut everywhere: Vec<Subscriber> = [&a, &b, &c].map(|at| subscriber(at, "news")).into();
    let mut writers: Vec<TopicWriter> = [&a, &b, &c].map(|at| topic(at, "news")).into();
    // A subscriber whose log gets a shorter path leaves the longer one when its application reads.
    until("every writer has three subscribers", || {
        for subscriber in &mut everywhere {
            while let Some(event) = subscriber.next_event(Some(Duration::ZERO)).unwrap() {
                assert!(matches!(event, Event::Notice(_)), "nothing is published");
            }
        }
        writers.iter().all(|writer| writer.subscribers() == 3)
    });
    for (n, writer) in (0_u32..).zip(&mut writers) {
        publish(writer, n * 1000..(n + 1) * 1000);
    }
    for subscriber in &mut everywhere {
        let mut next = [0_u32, 1000, 2000];
        for _ in 0..3000 {
            let message = subscriber.recv(Some(LONG)).unwrap().expect("three thousand");
            let n = u32::from_le_bytes(message.bytes.as_slice().try_into().unwrap());
            let expected = &mut next[n as usize / 1000];
            assert_eq!(n, *expected);
            *expected += 1;
        }
        assert_eq!(subscriber.recv(Some(Duration::from_millis(50))).unwrap(), None, "a message too many");
    }
}

#[test]
fn a_lost_path_is_replaced_without_a_gap_or_a_repetition() {
    let a = broker(&[]);
    let b = broker(&[&a.addr()]);
    let c = broker(&[&a.addr()]);
    let d = broker(&[&b.addr(), &c.addr()]);
    let mut news = topic(&a, "news");
    let mut end = subscriber(&d, "news");
    news.wait_subscribers(1, Some(LONG)).unwrap();
    let (go_on, wait) = std::sync::mpsc::sync_channel::<()>(1);
    let writer = std::thread::spawn(move || {
        for part in 0..40 {
            publish(&mut news, part * 1000..(part + 1) * 1000);
            std::thread::sleep(Duration::from_millis(20));
            // Not to its end before both ways were lost.
            if part == 30 {
                wait.recv().unwrap();
            }
        }
        news.close().unwrap();
    });
    expect(&mut end, 0..5_000);
    // The log may come by either route: one broker is lost and returns as another process, then the other broker is lost.
    has_spare_way(&d);
    let addr = b.addr();
    drop(b);
    expect(&mut end, 5_000..12_000);
    let b = broker_at(&addr, &[&a.addr()]);
    expect(&mut end, 12_000..15_000);
    has_spare_way(&d);
    drop(c);
    go_on.send(()).unwrap();
    expect(&mut end, 15_000..40_000);
    assert_eq!(end.recv(Some(LONG)).unwrap(), None);
    writer.join().unwrap();
    drop((a, b, d));
}

#[test]
fn a_cut_between_brokers_loses_nothing() {
    let a = broker(&[]);
    let proxy = Proxy::to(&a.addr());
    // The second broker ends no log, however long its reconnect takes.
    let b = broker_that_waits(600_000, &own_addr(), &[&proxy.addr]);
    let mut news = topic(&a, "news");
    let mut end = subscriber(&b, "news");
    news.wait_subscribers(1, Some(LONG)).unwrap();
    let writer = std::thread::spawn(move || {
        for part in 0..30 {
            publish(&mut news, part * 1000..(part + 1) * 1000);
            std::thread::sleep(Duration::from_millis(10));
        }
        news.close().unwrap();
    });
    for part in 0..30 {
        expect(&mut end, part * 1000..(part + 1) * 1000);
        if part % 10 == 5 {
            proxy.cut();
            proxy.restore();
        }
    }
    writer.join().unwrap();
}

#[test]
fn a_subscriber_continues_at_another_broker_of_the_chain() {
    let a = broker(&[]);
    let b = broker(&[&a.addr()]);
    let mut news = topic(&a, "news");
    let mut first = subscriber(&b, "news");
    news.wait_subscribers(1, Some(LONG)).unwrap();
    publish(&mut news, 0..1000);
    expect(&mut first, 0..499);
    let last = first.recv(Some(LONG)).unwrap().expect("number 499");
    drop(first);
    let mut second = Subscriber::builder().until_ended(true).connect(&a.addr()).unwrap();
    second.subscribe_from("news", StartFrom::Positions(vec![(last.epoch, last.end)])).unwrap();
    expect(&mut second, 500..1000);
}

/// The id of a broker. A client that introduces itself as a broker gets it.
fn told_id(broker: &Broker) -> u128 {
    let ctx = Context::new(Config::default()).unwrap();
    let hello = Hello { role: Role::Broker, client: 1, name: "curious".into() };
    let conn = Conn::connect_start(&ctx, &broker.addr(), &hello.encode()).unwrap();
    let rin = RIn::new(&conn);
    conn.wait_up(Some(LONG)).unwrap();
    conn.send_control(&Control::Topics { filters: vec![TopicFilter::all()] }.encode()).unwrap();
    loop {
        let Some(InEvent::Control { message }) = rin.recv(Some(LONG)).unwrap() else { panic!("not told") };
        if let Control::TopicVia { path, .. } = Control::decode(&message).unwrap() {
            return path[1];
        }
    }
}

/// Accepts the next connection, and introduces itself as the process `instance`.
fn welcome(listener: &std::net::TcpListener, instance: u128) -> Raw {
    let mut raw = Raw::of(listener.accept().unwrap().0);
    assert!(matches!(raw.hear(), Some(Message::Hello(_))));
    raw.say(&Message::Welcome(introduction(instance, 65_536, Vec::new())));
    raw
}

/// A broker below two raw upstream brokers, processes 1 and 2.
fn below_two() -> (Broker, [Raw; 2]) {
    let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [a, b] = [0, 1].map(|n| listeners[n].local_addr().unwrap().to_string());
    let broker = broker(&[&a, &b]);
    (broker, [0, 1].map(|n| welcome(&listeners[n], 1 + n as u128)))
}

/// Waits until it subscribes to something.
fn subscribes(raw: &mut Raw) -> Subscribe {
    raw.until("SUBSCRIBE", |message| match message {
        Message::Subscribe(subscribe) => Some(subscribe),
        _ => None,
    })
}

/// An offer of a buffer.
fn offer(bid: u32, topic: &str) -> Control {
    let topic = Topic {
        bid,
        epoch: bid.into(),
        framing: Framing::Records,
        fresh: true,
        kept: false,
        max_delivery_bytes: 1024,
        topic: topic.parse().unwrap(),
        space: None,
    };
    Control::TopicVia { topic, path: vec![1] }
}

#[test]
fn no_client_takes_over_the_position_of_another_broker() {
    let a = broker(&[]);
    let b = broker(&[&a.addr()]);
    let mut writer = topic(&a, "news");
    let mut reader = subscriber(&b, "news");
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    // Everything that a client can learn: the first broker's process, and the second broker's id.
    let ctx = Context::new(Config::default()).unwrap();
    let hello = Hello { role: Role::Subscriber, client: 1, name: "curious".into() };
    let instance = Conn::connect(&ctx, &a.addr(), &hello.encode()).unwrap().peer_instance();
    let hello = Hello { role: Role::Publisher, client: told_id(&b), name: "forger".into() };
    let mut forger = Raw::connect(&b.addr(), instance, hello.encode());
    forger.say(&Message::App(offer(77, "forged").encode()));
    let why = forger.until("the end", |message| match message {
        Message::Bye { text, .. } => Some(text),
        Message::Subscribe(_) => panic!("the broker trusts a false id"),
        _ => None,
    });
    assert!(why.contains("only subscribers or brokers send"), "{why}");
    publish(&mut writer, 0..10);
    expect(&mut reader, 0..10);
}

#[test]
fn another_broker_sends_the_requested_topics_only() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let _broker = broker_with(|config| {
        let topics = vec!["a/#".parse().unwrap()];
        config.broker.upstream = vec![UpstreamSettings { topics, ..UpstreamSettings::new(&addr) }];
    });
    let mut pushy = welcome(&listener, 1);
    for (bid, topic) in [(1, "b"), (2, "a/x")] {
        pushy.say(&Message::App(offer(bid, topic).encode()));
    }
    assert_eq!(subscribes(&mut pushy).bid, 2);
}

#[test]
fn a_refused_path_is_replaced_by_another_one() {
    let (_broker, [mut first, mut second]) = below_two();
    first.say(&Message::App(offer(5, "news").encode()));
    let wire = subscribes(&mut first).wire;
    // Once it takes the second of these, it has the first as another way.
    for (bid, topic) in [(5, "news"), (6, "more")] {
        second.say(&Message::App(offer(bid, topic).encode()));
    }
    assert_eq!(subscribes(&mut second).bid, 6);
    first.say(&Message::Refused { wire, code: RefuseCode::NoSuchBuffer, a: 0, b: 0 });
    assert_eq!(subscribes(&mut second).bid, 5);
}

#[test]
fn a_path_that_is_a_prefix_of_the_current_one_replaces_it() {
    let (_broker, [mut near, mut far]) = below_two();
    let Control::TopicVia { topic, .. } = offer(5, "news") else { panic!("an offer") };
    far.say(&Message::App(Control::TopicVia { topic, path: vec![1, 2] }.encode()));
    assert_eq!(subscribes(&mut far).bid, 5);
    near.say(&Message::App(offer(5, "news").encode()));
    assert_eq!(subscribes(&mut near).bid, 5);
}

#[test]
fn a_log_with_another_epoch_than_announced_is_not_used() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let _broker = broker(&[&listener.local_addr().unwrap().to_string()]);
    let mut wrong = welcome(&listener, 1);
    wrong.say(&Message::App(offer(5, "news").encode()));
    let wire = subscribes(&mut wrong).wire;
    wrong.say(&Message::Subscribed(Subscribed {
        wire,
        epoch: Epoch(99),
        start: 0,
        flow_control: true,
        restarted: false,
        without_slot: false,
        capacity: 64 << 10,
        max_delivery: 1024,
    }));
    // The same log as buffer 5.
    let Control::TopicVia { topic, path } = offer(5, "more") else { panic!("an offer") };
    let again = Control::TopicVia { topic: Topic { bid: 7, ..topic }, path };
    wrong.say(&Message::App(again.encode()));
    assert_eq!(subscribes(&mut wrong).bid, 7);
}
