//! RESP over sockets, with bare clients.

mod groups;
pub mod streams;

use std::io::Write;
use std::time::Duration;

use rbmq::{Publisher, Subscriber};
use rbmq_broker::{GatewayProtocol, Rule};

use crate::site::{Client, LONG, Site};

/// A command.
fn command(words: &[&str]) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words.collect::<String>())
}

fn subscribed(site: &Site, channel: &str) -> Client {
    let mut client = site.client();
    let reply = format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len());
    client.ask(command(&["SUBSCRIBE", channel]), reply);
    client
}

fn message(channel: &str, payload: &str) -> String {
    command(&["message", channel, payload])
}

/// Whoever publishes after the reply to `SUBSCRIBE` is heard, in a loop that would show a gap.
#[test]
fn what_is_published_after_the_reply_arrives() {
    let site = Site::new(GatewayProtocol::Resp);
    let mut publisher = site.client();
    for round in 0..100 {
        let channel = format!("channel/{round}");
        let mut client = subscribed(&site, &channel);
        publisher.ask(command(&["PUBLISH", &channel, "x"]), ":1\r\n");
        client.expect(message(&channel, "x"));
    }
}

#[test]
fn natives_and_clients_of_redis_meet() {
    let site = Site::new(GatewayProtocol::Resp);
    let mut client = subscribed(&site, "news/eu");
    let publisher = Publisher::connect(&site.broker.addr()).expect("the broker listens");
    publisher.topic("news/eu").expect("a topic").publish(b"from a native").expect("room");
    client.expect(message("news/eu", "from a native"));
    let mut native = Subscriber::connect(&site.broker.addr()).expect("the broker listens");
    native.subscribe("a%2Bb").expect("a topic");
    while !native.is_settled() {
        native.next_event(Some(Duration::from_millis(1))).expect("the broker listens");
    }
    site.client().ask(command(&["PUBLISH", "a+b", "to a native"]), ":0\r\n");
    let message = native.recv(Some(LONG)).expect("a message").expect("in time");
    assert_eq!(message.bytes, b"to a native");
}

/// A stream of commands in one piece, of all sizes: each is answered, and each arrives in order.
#[test]
fn a_pipeline_arrives_in_order() {
    let site = Site::new(GatewayProtocol::Resp);
    let (mut two, mut publisher) = (subscribed(&site, "c"), site.client());
    let mut three = site.client();
    three.send(command(&["HELLO", "3"]));
    while three.line() != "*0\r\n" {}
    three.ask(command(&["PSUBSCRIBE", "c*"]), ">3\r\n$10\r\npsubscribe\r\n$2\r\nc*\r\n:1\r\n");
    let payload = |n: usize| format!("{n} {}", "x".repeat(n * 37 % 3000));
    let mut stream = publisher.split();
    let writer = std::thread::spawn(move || {
        for n in 0..5000 {
            stream.write_all(command(&["PUBLISH", "c", &payload(n)]).as_bytes()).expect("the gateway reads");
        }
    });
    let reader = std::thread::spawn(move || {
        for n in 0..5000 {
            let payload = payload(n);
            let head = format!(">4\r\n$8\r\npmessage\r\n$2\r\nc*\r\n$1\r\nc\r\n${}\r\n", payload.len());
            three.expect(head + &payload + "\r\n");
        }
    });
    let answers = std::thread::spawn(move || (0..5000).for_each(|_| publisher.expect(":2\r\n")));
    for n in 0..5000 {
        two.expect(message("c", &payload(n)));
    }
    [writer, reader, answers].into_iter().for_each(|one| one.join().expect("all is as it should be"));
}

/// Others lose messages of more than 128 KiB without a word, and the subscriber with them.
#[test]
fn the_largest_message_arrives_and_a_larger_one_is_refused() {
    let site = Site::with(GatewayProtocol::Resp, |config| {
        config.framework.buffers.size_bytes = 4 << 20;
        config.outside.gateway[0].max_message_bytes = Some(1 << 20);
    });
    let (mut client, mut publisher) = (subscribed(&site, "c"), site.client());
    for size in [128 << 10, (128 << 10) + 1, 1 << 20] {
        let payload = "y".repeat(size);
        publisher.ask(command(&["PUBLISH", "c", &payload]), ":1\r\n");
        client.expect(message("c", &payload));
    }
    publisher.ask(
        "*3\r\n$7\r\nPUBLISH\r\n$1\r\nc\r\n$1048577\r\n",
        "-ERR Protocol error: invalid bulk length\r\n",
    );
    assert!(publisher.has_ended());
    site.client().ask(command(&["PUBLISH", "c", "still here"]), ":1\r\n");
    client.expect(message("c", "still here"));
}

/// A space of the configuration takes what the gateway takes, or what its ring has room for.
#[test]
fn spaces_with_and_without_a_size_take_messages() {
    let site = Site::with(GatewayProtocol::Resp, |config| {
        let rules = [("large/#", None), ("small/#", Some(256 << 10))].map(|(pattern, ring_bytes)| {
            let mut rule = Rule::new(pattern.parse().expect("a pattern"));
            (rule.space, rule.ring_bytes) = (true, ring_bytes);
            rule
        });
        config.broker.topics = rules.to_vec().into();
    });
    let (mut large, mut small) = (subscribed(&site, "large/a"), subscribed(&site, "small/a"));
    let mut publisher = site.client();
    let largest = "y".repeat(256 << 10);
    publisher.ask(command(&["PUBLISH", "large/a", &largest]), ":1\r\n");
    large.expect(message("large/a", &largest));
    publisher.send(command(&["PUBLISH", "small/a", &largest]));
    let refusal = publisher.line();
    assert!(refusal.starts_with("-ERR") && refusal.contains("bytes"), "{refusal}");
    publisher.ask(command(&["PUBLISH", "small/a", &largest[..8 << 10]]), ":1\r\n");
    small.expect(message("small/a", &largest[..8 << 10]));
}

/// `SPUBLISH` is told from `PUBLISH` on the way through the broker.
#[test]
fn shard_channels_are_apart() {
    let site = Site::new(GatewayProtocol::Resp);
    let (mut plain, mut shard, mut publisher) = (subscribed(&site, "c"), site.client(), site.client());
    shard.ask(command(&["SSUBSCRIBE", "c"]), "*3\r\n$10\r\nssubscribe\r\n$1\r\nc\r\n:1\r\n");
    for (verb, payload) in [("PUBLISH", "1"), ("SPUBLISH", "2"), ("PUBLISH", "3"), ("SPUBLISH", "4")] {
        publisher.ask(command(&[verb, "c", payload]), ":1\r\n");
    }
    plain.expect(message("c", "1") + &message("c", "3"));
    shard.expect(command(&["smessage", "c", "2"]) + &command(&["smessage", "c", "4"]));
}
