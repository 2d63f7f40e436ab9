//! Clients that vanish without a word: nothing is closed, and nothing comes any more.

use rbmq::wire::{Hello, Role};
use rbmq::{Event, Notice, Publisher, SlowPolicy, Subscriber, TopicOptions, TopicWriter};
use rbmq_broker::Broker;
use rocketbufs::Config;
use rocketbufs::proto::{CloseCode, Message};
use testkit::{LONG, Proxy, Raw, broker_with, until};

/// A broker without heartbeats whose subscribers may hold their publishers for ever. Only silence ends a connection.
fn broker(max_silence_ms: u32) -> Broker {
    broker_with(|config| {
        let session = &mut config.framework.session;
        (session.heartbeat_ms, session.block_timeout_ms) = (0, 0);
        (session.max_silence_ms, session.linger_ms) = (max_silence_ms, 200);
    })
}

/// A client that sends no heartbeats, and never ends a silent connection.
fn wordless() -> Config {
    let mut config = Config::default();
    (config.session.heartbeat_ms, config.session.max_silence_ms) = (0, 0);
    config
}

fn topic(publisher: &Publisher, name: &str) -> TopicWriter {
    let options = TopicOptions::default().ring_bytes(64 << 10);
    publisher.topic_with(name, options).unwrap()
}

#[test]
fn a_vanished_subscriber_stops_blocking_its_publisher() {
    let broker = broker(3000);
    let proxy = Proxy::to(&broker.addr());
    let mut writer = topic(&Publisher::connect(&broker.addr()).unwrap(), "t");
    let builder = Subscriber::builder()
        .until_ended(true)
        .slow(SlowPolicy::BlockFor { timeout: None })
        .ring_bytes(64 << 10);
    let mut subscriber = builder.config(wordless()).connect(&proxy.addr).unwrap();
    subscriber.subscribe("t").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    writer.publish(b"there").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"there");
    proxy.vanish();
    // Far more than all rings on the way have room for.
    for _ in 0..1000 {
        writer.publish_timeout(&[7; 1020], Some(LONG)).unwrap();
    }
    until("the subscriber is gone", || writer.subscribers() == 0);
}

#[test]
fn the_topic_of_a_vanished_publisher_ends_and_others_continue() {
    // The others are not silent for so long, also on a loaded machine.
    let broker = broker(10_000);
    let proxy = Proxy::to(&broker.addr());
    let vanishing = Publisher::builder().config(wordless()).connect(&proxy.addr).unwrap();
    let mut lost = topic(&vanishing, "lost");
    let mut stays = topic(&Publisher::connect(&broker.addr()).unwrap(), "stays");
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    for (writer, name) in [(&mut lost, "lost"), (&mut stays, "stays")] {
        subscriber.subscribe(name).unwrap();
        writer.wait_subscribers(1, Some(LONG)).unwrap();
        writer.publish(b"before").unwrap();
        assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"before");
    }
    proxy.vanish();
    loop {
        if let Event::Notice(Notice::Gone { topic, .. }) =
            subscriber.next_event(Some(LONG)).unwrap().expect("a notice")
        {
            assert_eq!(topic.as_str(), "lost");
            break;
        }
    }
    stays.publish(b"after").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"after");
}

#[test]
fn a_client_that_only_answers_stays_connected() {
    let broker = broker(6000);
    let proxy = Proxy::to(&broker.addr());
    let mut writer = topic(&Publisher::connect(&broker.addr()).unwrap(), "t");
    let mut subscriber =
        Subscriber::builder().until_ended(true).config(wordless()).connect(&proxy.addr).unwrap();
    subscriber.subscribe("t").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    writer.publish(b"before").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"before");
    // A PING goes out after a third of the time without a word: four answered ones are more than the whole time.
    let passed = proxy.passed();
    let both = 2 * (8 + Message::Ping(0).encode().len() as u64);
    until("PING and PONG", || proxy.passed() >= passed + 4 * both);
    writer.publish(b"after").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"after");
    assert_eq!(proxy.connections(), 1, "the connection was kept");
}

#[test]
fn a_client_that_does_not_answer_is_closed_with_the_reason() {
    let broker = broker(600);
    let hello = Hello { role: Role::Subscriber, client: 1, name: "mute".into() };
    let mut raw = Raw::connect(&broker.addr(), 1, hello.encode());
    raw.until("PING", |message| matches!(message, Message::Ping(_)).then_some(()));
    let (code, text) = raw.until("BYE", |message| match message {
        Message::Bye { code, text } => Some((code, text)),
        _ => None,
    });
    assert_eq!(code, CloseCode::Timeout);
    assert!(text.contains("session.max_silence_ms = 600"), "{text}");
}
