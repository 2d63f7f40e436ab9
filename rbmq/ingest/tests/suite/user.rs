//! Ingests through sockets, which need no rights.

use std::net::UdpSocket;

use crate::common::{Got, ingest, message, push, send_stored, serve, subscribe, wait_for};
use rbmq::{SlowPolicy, StartFrom, Subscriber};
use rbmq_broker::{Broker, BrokerConfig, IngestLevel};
use rbmq_ingest::{Ingest, IngestError};
use testkit::own_port;

fn sender() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("a socket")
}

#[test]
fn datagrams_of_both_forms_are_messages() {
    let (port, plain) = (own_port(), own_port());
    let mut settings = ingest("multimqc:lo/7", IngestLevel::User, port);
    settings.push_port = Some(plain);
    let (broker, ingest) = serve(vec![settings]);
    assert!(ingest.describe()[0].contains("topic 'multimqc/7' gets multimqc:lo/7 (level user)"));
    let mut subscriber = subscribe(&broker, "multimqc/7");
    let socket = sender();
    for number in 0..100 {
        let bytes = message(number);
        if number % 2 == 0 {
            socket.send_to(&bytes, ("127.0.0.1", plain)).expect("sent");
        } else {
            socket.send_to(&push(7, number, &bytes), ("127.0.0.1", port)).expect("sent");
        }
    }
    let mut got = Got::default();
    got.until(&mut subscriber, |got| got.numbers.len() == 100);
    got.numbers.sort_unstable();
    assert!(got.numbers.iter().copied().eq(0..100));
    let values = wait_for(&broker, |values| values.messages == 100 && values.lag_bytes == 0);
    assert_eq!((values.bytes, values.holes, values.lost_messages), (got.bytes, 0, 0));
    assert!(values.is_up);
}

#[test]
fn other_topics_and_other_datagrams_are_refused_and_counted() {
    let port = own_port();
    let (broker, _ingest) = serve(vec![ingest("multimqc:lo/7", IngestLevel::User, port)]);
    let mut subscriber = subscribe(&broker, "#");
    let socket = sender();
    socket.send_to(&push(8, 0, b"wrong topic"), ("127.0.0.1", port)).expect("sent");
    socket.send_to(b"garbage", ("127.0.0.1", port)).expect("sent");
    socket.send_to(&push(7, 0, &message(5)), ("127.0.0.1", port)).expect("sent");
    let mut got = Got::default();
    got.until(&mut subscriber, |got| !got.numbers.is_empty());
    assert_eq!(got.numbers, [5]);
    wait_for(&broker, |values| values.refused == 2);
}

#[test]
fn topics_of_an_interface_share_a_port() {
    let port = own_port();
    let mut second = ingest("multimqc:lo/9", IngestLevel::User, port);
    second.topic = Some("plant/nine".into());
    let (broker, _ingest) = serve(vec![ingest("multimqc:lo/8", IngestLevel::User, port), second]);
    let socket = sender();
    for (topic, number) in [(8, 1), (9, 2), (8, 3), (9, 4)] {
        socket.send_to(&push(topic, number, &message(number)), ("127.0.0.1", port)).expect("sent");
    }
    for (topic, numbers) in [("multimqc/8", [1, 3]), ("plant/nine", [2, 4])] {
        let (mut got, mut subscriber) = (Got::default(), subscribe(&broker, topic));
        got.until(&mut subscriber, |got| got.numbers.len() == 2);
        assert_eq!(got.numbers, numbers, "{topic}");
    }
}

#[test]
fn a_full_broker_leaves_messages_in_the_level_and_a_hole_is_told() {
    let port = own_port();
    let mut settings = ingest("multimqc:lo/7", IngestLevel::User, port);
    settings.ring_bytes = 512 << 10;
    let (broker, _ingest) = serve(vec![settings]);
    // Holds its bytes as long as it reads nothing.
    let builder = Subscriber::builder().slow(SlowPolicy::BlockFor { timeout: None });
    let mut subscriber = builder.connect(&broker.addr()).expect("a connection");
    subscriber.subscribe_from("multimqc/7", StartFrom::Oldest).expect("a topic");
    let socket = sender();
    let mut sent = 0;
    let mut send = |count: u32| {
        send_stored(&broker, sent..sent + count, |number| {
            socket.send_to(&push(7, number, &message(number)), ("127.0.0.1", port)).expect("sent");
        });
        sent += count;
        sent
    };
    send(1);
    let mut got = Got::default();
    got.until(&mut subscriber, |got| got.numbers.len() == 1);
    while !wait_for(&broker, |_| true).is_full {
        send(1000);
    }
    // More than the level's ring has.
    let sent = send(20_000);
    let values = wait_for(&broker, |values| values.is_full && values.lag_bytes > 300 << 10);
    assert_eq!(values.lost_messages, 0, "nothing is known to be lost yet");
    got.until(&mut subscriber, |got| got.numbers.last() == Some(&(sent - 1)));
    let values = wait_for(&broker, |values| {
        values.lag_bytes == 0 && values.messages + values.lost_messages == u64::from(sent)
    });
    assert!(values.holes > 0 && values.lost_messages > 0, "{values:?}");
    assert!(got.numbers.is_sorted(), "in order");
    assert_eq!(got.numbers.len() as u64, values.messages, "the subscriber got what the topic got");
    assert_eq!(got.lost_bytes, values.lost_bytes, "the subscriber was told what the topic lost");
    let all: u64 = (0..sent).map(|number| 4 + message(number).len() as u64).sum();
    assert_eq!(got.bytes + got.lost_bytes, all, "every byte is accounted for");
}

#[test]
fn what_cannot_be_ingested_has_a_clear_reason() {
    let start = |ingests| {
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        config.broker.ingest = ingests;
        let broker = Broker::start(config).expect("a broker");
        Ingest::start(&broker).map(drop)
    };
    let port = own_port();
    let error =
        start(vec![ingest("multimqc:no-such0/1", IngestLevel::Auto, port)]).expect_err("no interface");
    assert_eq!(error.to_string(), "ingest: there is no interface no-such0 here");
    let (_broker, _ingest) = serve(vec![ingest("multimqc:lo/1", IngestLevel::User, port)]);
    let error = start(vec![ingest("multimqc:lo/1", IngestLevel::User, port)]).expect_err("the port is taken");
    assert!(matches!(error, IngestError::Sockets { .. }), "{error}");
    assert!(error.to_string().contains(&format!("cannot bind 0.0.0.0:{port}")), "{error}");
}
