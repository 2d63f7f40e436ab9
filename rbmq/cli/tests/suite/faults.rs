//! Connections that break, brokers that end, clients of other protocols.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rbmq::wire::{Control, Hello, Role};
use rbmq::{Framing, Observer, Publisher, StartFrom, Subscriber, TopicOptions};
use rocketbufs::proto::{Message, Subscribe, Subscribed};
use rocketbufs::{Epoch, Policy, Start};
use testkit::{LONG, Process, Proxy, Raw, broker_with, patient, until};

use crate::common::{BrokerProcess, assert_same, client, lines, piped, random};

#[test]
fn both_sides_reconnect_and_nothing_is_lost() {
    let broker = BrokerProcess::start();
    let (in_proxy, out_proxy) = (Proxy::to(&broker.addr), Proxy::to(&broker.addr));
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let bytes = random(4, 30_000_000);
    let args = format!("-q x --until-closed --name me --hold 60 --rate 30MB --output {}", out.display());
    let sub = Process::start(client("sub", &out_proxy.addr, &args));
    let args = "-q x --raw --wait-subscribers 1 --timeout 60";
    let mut publisher = Process::start(piped(client("pub", &in_proxy.addr, args)));
    let (mut feed, begin) = (publisher.stdin(), bytes[..25_000_000].to_vec());
    // The last bytes follow after the last cut, so that each cut connection is replaced.
    let feeding = std::thread::spawn(move || {
        feed.write_all(&begin).unwrap();
        feed
    });
    for part in 1..4 {
        until("data passes", || out_proxy.passed() > part * 5_000_000);
        out_proxy.cut();
        out_proxy.restore();
        until("data passes", || in_proxy.passed() > part * 6_000_000);
        in_proxy.cut();
        in_proxy.restore();
    }
    feeding.join().unwrap().write_all(&bytes[25_000_000..]).unwrap();
    publisher.finish().good();
    sub.finish().good();
    assert_same(&out, &bytes);
    assert!(in_proxy.connections() >= 4 && out_proxy.connections() >= 4);
}

#[test]
fn thousands_of_long_names_are_requested_again_after_a_cut() {
    let broker = BrokerProcess::start_with(&["--config", "/dev/null"]);
    let proxy = Proxy::to(&broker.addr);
    const MANY: usize = 8_000;
    let name = |n: usize| format!("{n:0>250}");
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&proxy.addr).unwrap();
    for n in 0..MANY {
        subscriber.subscribe(&name(n)).unwrap();
    }
    let publisher = Publisher::builder().config(patient()).connect(&proxy.addr).unwrap();
    let options = || TopicOptions::default().ring_bytes(64 << 10);
    let wanted: Vec<usize> = (0..MANY).step_by(MANY / 100).chain([MANY - 1]).collect();
    let mut writers: Vec<_> =
        wanted.iter().map(|n| publisher.topic_with(&name(*n), options()).unwrap()).collect();
    for part in [&b"before"[..], b"after"] {
        for writer in &mut writers {
            writer.wait_subscribers(1, Some(LONG)).unwrap();
            writer.publish(part).unwrap();
        }
        for _ in &wanted {
            assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, part);
        }
        proxy.cut();
        until("the publisher knows", || !publisher.is_connected());
        proxy.restore();
        until("the publisher is back", || publisher.is_connected());
    }
}

#[test]
fn messages_published_while_the_broker_is_offline_arrive() {
    let broker = BrokerProcess::start();
    let proxy = Proxy::to(&broker.addr);
    let publisher = Publisher::connect(&proxy.addr).unwrap();
    let mut topic = publisher.topic("t").unwrap();
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr).unwrap();
    subscriber.subscribe("t").unwrap();
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    topic.publish(b"before").unwrap();
    topic.flush(Some(LONG)).unwrap();
    proxy.cut();
    until("the publisher knows", || !publisher.is_connected());
    topic.publish(b"meanwhile").unwrap();
    assert!(
        topic.flush(Some(Duration::from_millis(50))).is_err(),
        "the message is accepted without a broker"
    );
    proxy.restore();
    topic.flush(Some(LONG)).unwrap();
    topic.close().unwrap();
    let messages: Vec<Vec<u8>> = subscriber.into_iter().map(|m| m.unwrap().bytes).collect();
    assert_eq!(messages, [&b"before"[..], b"meanwhile"]);
}

#[test]
fn clients_continue_at_a_restarted_broker() {
    let first = BrokerProcess::start();
    let addr = first.addr.clone();
    let publisher = Publisher::connect(&addr).unwrap();
    let mut topic = publisher.topic("t").unwrap();
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&addr).unwrap();
    subscriber.subscribe("t").unwrap();
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    for n in 0..100_u32 {
        topic.publish(&n.to_le_bytes()).unwrap();
    }
    for n in 0..50_u32 {
        assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, n.to_le_bytes());
    }
    // The broker's messages are lost with it. The publisher still keeps them, and the subscriber knows its position.
    first.process.signal("KILL");
    first.process.finish();
    until("both know", || !publisher.is_connected() && !subscriber.is_connected());
    for n in 100..150_u32 {
        topic.publish(&n.to_le_bytes()).unwrap();
    }
    let second = BrokerProcess::start_at(&addr, &[]);
    for n in 50..150_u32 {
        assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, n.to_le_bytes());
    }
    topic.close().unwrap();
    assert!(subscriber.recv(Some(LONG)).unwrap().is_none());
    assert!(subscriber.ended());
    drop(second);
}

#[test]
fn a_subscriber_of_many_topics_returns_to_a_broker_with_small_control_messages() {
    let broker = broker_with(|config| config.framework.limits.max_control_bytes = 2048);
    let proxy = Proxy::to(&broker.addr());
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&proxy.addr).unwrap();
    let names: Vec<String> = (0..100).map(|n| format!("{n:0>200}")).collect();
    names.iter().for_each(|name| subscriber.subscribe(name).unwrap());
    proxy.cut();
    until("the subscriber notices", || !subscriber.is_connected());
    proxy.restore();
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    for name in [&names[0], &names[99]] {
        let mut topic = publisher.topic(name).unwrap();
        topic.publish(b"x").unwrap();
        assert_eq!(subscriber.recv(Some(LONG)).unwrap().expect("a message").topic.as_str(), *name);
    }
    assert_eq!(proxy.connections(), 2, "the client reconnects once");
}

#[test]
fn a_broker_that_shuts_down_lets_subscribers_finish() {
    let broker = BrokerProcess::start();
    let text = lines("x", 50_000);
    let mut publisher = Publisher::connect(&broker.addr).unwrap().topic("t").unwrap();
    let mut subscriber =
        Subscriber::builder().until_ended(true).ring_bytes(512 << 10).connect(&broker.addr).unwrap();
    subscriber.subscribe("t").unwrap();
    publisher.wait_subscribers(1, Some(LONG)).unwrap();
    for line in text.lines() {
        publisher.publish(line.as_bytes()).unwrap();
    }
    publisher.flush(Some(LONG)).unwrap();
    broker.process.signal("TERM");
    let mut got = String::new();
    while got.len() < text.len() {
        let batch = subscriber.next_batch(Some(LONG)).unwrap().expect("all of it");
        for record in batch.records() {
            got.push_str(std::str::from_utf8(record).unwrap());
            got.push('\n');
        }
    }
    assert_eq!(got, text);
    assert_eq!(broker.process.finish().status.code(), Some(0));
}

#[test]
fn a_broker_without_clients_ends_at_once() {
    for signal in ["TERM", "INT"] {
        let broker = BrokerProcess::start();
        broker.process.signal(signal);
        broker.process.finish().good();
    }
}

#[test]
fn garbage_on_the_port_disturbs_no_other_client() {
    let broker = BrokerProcess::start();
    let sub = broker.sub("t --until-closed");
    let mut publisher = Publisher::connect(&broker.addr).unwrap().topic("t").unwrap();
    publisher.wait_subscribers(1, Some(LONG)).unwrap();
    for seed in 0..30 {
        publisher.publish(format!("{seed}").as_bytes()).unwrap();
        let mut stranger = TcpStream::connect(&broker.addr).unwrap();
        let nonsense = match seed % 3 {
            0 => b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            1 => random(seed, 100_000),
            _ => random(seed, 7),
        };
        // The broker may end the connection in the middle of the bytes.
        let _ = stranger.write_all(&nonsense);
        if seed % 2 == 0 {
            let _ = stranger.shutdown(std::net::Shutdown::Write);
            let _ = stranger.read(&mut [0; 64]);
        }
    }
    publisher.close().unwrap();
    let text = sub.finish().good().text();
    assert_eq!(text, (0..30).map(|n| format!("{n}\n")).collect::<String>());
}

#[test]
fn a_client_of_another_protocol_gets_an_answer() {
    let broker = BrokerProcess::start();
    let ctx = rocketbufs::Context::new(rocketbufs::Config::default()).unwrap();
    let error = rocketbufs::Conn::connect(&ctx, &broker.addr, b"something else").unwrap_err();
    assert!(error.to_string().contains("not RBMQ's"), "{error}");
}

#[test]
fn a_publisher_that_sends_garbage_is_disconnected_with_the_reason() {
    let broker = BrokerProcess::start();
    let ctx = rocketbufs::Context::new(rocketbufs::Config::default()).unwrap();
    for role in [rbmq::wire::Role::Publisher, rbmq::wire::Role::Subscriber] {
        let hello = rbmq::wire::Hello { role, client: 1, name: "odd".into() }.encode();
        let conn = rocketbufs::Conn::connect(&ctx, &broker.addr, &hello).unwrap();
        rocketbufs::ROut::new(&ctx).add_conn(&conn);
        conn.send_control(b"\xee\xee").unwrap();
        let why = conn.wait_down(Some(LONG)).unwrap().expect("the peer is disconnected");
        assert!(why.to_string().contains("type of message"), "{why}");
    }
    broker.publish_all("still", b"there\n");
}

#[test]
fn the_death_of_a_publisher_is_reported() {
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&config, "[session]\nlinger_ms = 50\n").unwrap();
    let broker = BrokerProcess::start_with(&["--config", config.path().to_str().unwrap()]);
    let mut command = client("pub", &broker.addr, "t --wait-subscribers 1");
    command.stdin(std::process::Stdio::piped());
    let mut publisher = Process::start(command);
    let mut input = publisher.stdin();
    input.write_all(b"last words\n").unwrap();
    let mut sub = broker.sub("t --until-closed");
    let mut line = String::new();
    // The pipe stays open: the subscriber ends when its output has no reader.
    let mut output = sub.stdout();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "last words\n");
    publisher.signal("KILL");
    let outcome = sub.finish();
    drop(output);
    assert_eq!(outcome.status.code(), Some(3), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("its publisher is gone"), "{}", outcome.stderr);
}

#[test]
fn a_durable_subscription_keeps_its_position() {
    let broker = BrokerProcess::start();
    let mut topic = Publisher::connect(&broker.addr).unwrap().topic("t").unwrap();
    let connect =
        || Subscriber::builder().until_ended(true).durable("me", LONG).connect(&broker.addr).unwrap();
    let mut subscriber = connect();
    subscriber.subscribe("t").unwrap();
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    topic.publish(b"1").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"1");
    subscriber.close_timeout(Some(LONG));
    until("the subscriber is gone", || topic.subscribers() == 0);
    topic.publish(b"2").unwrap();
    let mut again = connect();
    again.subscribe_from("t", StartFrom::Newest).unwrap();
    // A message that was not released may come again. A message from in between must come.
    let mut next = || again.recv(Some(LONG)).unwrap().unwrap().bytes;
    let first = next();
    assert!(first == b"2" || (first == b"1" && next() == b"2"));
}

#[test]
fn a_durable_subscription_has_one_owner() {
    let broker = BrokerProcess::start();
    let mut topic = Publisher::connect(&broker.addr).unwrap().topic("t").unwrap();
    let connect = || {
        let mut subscriber =
            Subscriber::builder().until_ended(true).durable("me", LONG).connect(&broker.addr).unwrap();
        subscriber.subscribe("t").unwrap();
        subscriber
    };
    let mut first = connect();
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    let mut second = connect();
    let error = first.recv(Some(LONG)).unwrap_err();
    assert!(error.to_string().contains("taken over"), "{error}");
    topic.publish(b"1").unwrap();
    assert_eq!(second.recv(Some(LONG)).unwrap().unwrap().bytes, b"1");
}

/// A publisher that is lost before it answers leaves no readable buffer, so its topic does not linger.
#[test]
fn a_publisher_that_never_answered_leaves_no_buffer() {
    let broker = broker_with(|config| {
        config.framework.session.linger_ms = 100;
        config.broker.closed_linger_ms = 3_600_000;
    });
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    let (publisher, _) = silent_publisher(&broker.addr());
    assert_eq!(observer.topics(None).unwrap().len(), 1);
    drop(publisher);
    // Some of these are gone before the broker asks them, some before it knows what to ask for.
    for n in 0..300 {
        drop(begun_publisher(&broker.addr(), 2 + n));
    }
    until("its topic is gone", || observer.topics(None).unwrap().is_empty());
}

/// A raw publisher that has announced the topic `t`.
fn begun_publisher(addr: &str, client: u128) -> Raw {
    let hello = Hello { role: Role::Publisher, client, name: "raw".into() };
    let mut publisher = Raw::connect(addr, client, hello.encode());
    let create = Control::Create {
        bid: 3,
        framing: Framing::Records,
        ring_bytes: 64 << 10,
        max_delivery_bytes: 4096,
        min_subscribers: 0,
        topic: "t".parse().unwrap(),
    };
    publisher.say(&Message::App(create.encode()));
    publisher
}

/// A raw publisher that has not answered the broker's SUBSCRIBE, and the wire id of that subscription.
fn silent_publisher(addr: &str) -> (Raw, u32) {
    let mut publisher = begun_publisher(addr, 1);
    let wire = publisher.until("SUBSCRIBE", |message| match message {
        Message::Subscribe(subscribe) => Some(subscribe.wire),
        _ => None,
    });
    (publisher, wire)
}

/// A publisher of topic `t`, and the id under which its buffer is subscribed to.
fn raw_publisher(addr: &str) -> (Raw, u32) {
    let (mut publisher, wire) = silent_publisher(addr);
    publisher.say(&Message::Subscribed(Subscribed {
        wire,
        epoch: Epoch(9),
        start: 0,
        flow_control: true,
        restarted: false,
        without_slot: false,
        capacity: 64 << 10,
        max_delivery: 4096,
    }));
    publisher.until("CREATED", |message| matches!(message, Message::App(_)).then_some(()));
    (publisher, wire)
}

#[test]
fn a_publisher_that_returns_as_its_buffer_expires_creates_it_again() {
    let broker = BrokerProcess::start();
    let (mut publisher, wire) = raw_publisher(&broker.addr);
    // GONE, which a framework sends after its writer was away for too long. Here the writer's connection is up.
    publisher.say(&Message::Gone { wire, end: 0 });
    let why = publisher.until("BYE", |message| match message {
        Message::Bye { text, .. } => Some(text),
        _ => None,
    });
    assert!(why.contains("connect again to continue it"), "{why}");
}

/// A publisher does not read for a while, and a subscriber subscribes and unsubscribes all the time.
#[test]
fn a_publisher_stays_connected_while_its_subscribers_change() {
    const TIMES: u32 = 20_000;
    let broker = broker_with(|config| {
        // The publisher answers no PING while it does not read.
        config.framework.session.max_silence_ms = 0;
        config.framework.limits.max_control_bytes = 2048;
        config.framework.tcp.send_buffer_bytes = Some(4096);
    });
    let (mut publisher, _) = raw_publisher(&broker.addr());
    let hello = Hello { role: Role::Subscriber, client: 2, name: "restless".into() };
    let mut subscriber = Raw::connect(&broker.addr(), 2, hello.encode());
    subscriber.say(&Message::App(Control::Topics { filters: vec!["t".parse().unwrap()] }.encode()));
    let bid = subscriber.until("TOPIC", |message| match message {
        Message::App(bytes) => match Control::decode(&bytes) {
            Ok(Control::Topic(topic)) => Some(topic.bid),
            _ => None,
        },
        _ => None,
    });
    for wire in 1..=TIMES {
        subscriber.say(&Message::Subscribe(subscribe(bid, wire)));
        subscriber.say(&Message::Unsubscribe(wire));
        subscriber.until("UNSUBSCRIBED", |message| matches!(message, Message::Unsubscribed(_)).then_some(()));
    }
    for wire in [TIMES + 1, TIMES + 2] {
        subscriber.say(&Message::Subscribe(subscribe(bid, wire)));
    }
    // The publisher reads again: it is still connected, and gets the current number of subscribers.
    publisher.until("there are two", |message| match message {
        Message::App(bytes) => match Control::decode(&bytes) {
            Ok(Control::Subscribers { count, .. }) => (count == 2).then_some(()),
            other => panic!("{other:?}"),
        },
        Message::Bye { text, .. } => panic!("{text}"),
        _ => None,
    });
}

fn subscribe(bid: u32, wire: u32) -> Subscribe {
    Subscribe {
        wire,
        bid,
        capacity: 64 << 10,
        policy: Policy::Block,
        own_memory: false,
        start: Start::Newest,
        max_lag: 0,
        block_timeout_ms: 0,
        hold_ms: 0,
        name: Vec::new(),
    }
}
