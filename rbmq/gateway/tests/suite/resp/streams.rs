//! Streams over the logs of a broker.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rbmq::{AttributesBuf, Publisher, StartFrom, Subscriber};
use rbmq_broker::{BrokerConfig, GatewayProtocol, Ingest, Rule};

use super::{command, subscribed};
use crate::people::{has, skip};
use crate::site::{Client, LONG, Site};

/// A folder that is removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("streams-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    /// A broker that keeps `events/#` here, with a gateway.
    pub fn site(&self) -> Site {
        self.site_with(|_| {})
    }

    /// The same with other settings.
    pub fn site_with(&self, set: impl FnOnce(&mut BrokerConfig)) -> Site {
        Site::with(GatewayProtocol::Resp, |config| {
            let mut kept = Rule::new("events/#".parse().expect("a pattern"));
            kept.keep = true;
            config.broker.keep_dir = self.0.to_str().expect("a text").into();
            config.broker.topics = vec![kept].into();
            set(config);
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The next reply that is a string.
pub(super) fn string(client: &mut Client) -> String {
    let head = client.line();
    assert!(head.starts_with('$') && head != "$-1\r\n", "{head}");
    client.line().trim_end().to_owned()
}

fn numbers_of(id: &str) -> [u64; 2] {
    let (time, position) = id.split_once('-').expect("an id");
    [time, position].map(|number| number.parse().expect("a number"))
}

fn entry(id: &str, fields: &[&str]) -> String {
    format!("*2\r\n${}\r\n{id}\r\n{}", id.len(), command(fields))
}

#[test]
fn ids_are_the_same_after_a_restart() {
    let folder = Folder::new();
    let mut ids = Vec::new();
    for restart in 0..3 {
        let site = folder.site();
        let (mut client, mut other) = (site.client(), site.client());
        // Two clients at a time, each with a pipeline.
        for round in 0..50 {
            let numbers: Vec<String> = (0..20).map(|n| format!("{restart}/{round}/{n}")).collect();
            let add = |text: &String| command(&["XADD", "events/a", "*", "n", text, "k", "v"]);
            client.send(numbers[..10].iter().map(add).collect::<String>());
            other.send(numbers[10..].iter().map(add).collect::<String>());
            for (at, text) in numbers.into_iter().enumerate() {
                ids.push((string(if at < 10 { &mut client } else { &mut other }), text));
            }
        }
        ids.sort_by_key(|(id, _)| numbers_of(id));
        assert!(ids.windows(2).all(|two| numbers_of(&two[0].0) < numbers_of(&two[1].0)), "two have one id");
        client.ask(command(&["XLEN", "events/a"]), format!(":{}\r\n", ids.len()));
        for (id, text) in ids.iter().step_by(37) {
            let expected = format!("*1\r\n{}", entry(id, &["n", text, "k", "v"]));
            client.ask(command(&["XRANGE", "events/a", id, id]), &expected);
            client.ask(command(&["XREVRANGE", "events/a", id, "-", "COUNT", "1"]), &expected);
        }
        client.send(command(&["XRANGE", "events/a", "-", "+"]));
        let all = ids.iter().map(|(id, text)| entry(id, &["n", text, "k", "v"])).collect::<String>();
        client.expect(format!("*{}\r\n{all}", ids.len()));
        let (last, middle) = (&ids[ids.len() - 1], &ids[ids.len() - 2]);
        let rest =
            format!("*1\r\n*2\r\n$8\r\nevents/a\r\n*1\r\n{}", entry(&last.0, &["n", &last.1, "k", "v"]));
        client.ask(command(&["XREAD", "STREAMS", "events/a", &middle.0]), rest);
    }
}

/// A log of which a new process knows nothing is read in parts, and each client gets its replies in order.
#[test]
fn many_read_a_long_stream_after_a_restart() {
    const ENTRIES: usize = 200;
    let folder = Folder::new();
    let payload = |n: usize| format!("{n:05}").repeat(12 << 10);
    let first = folder.site();
    let mut client = first.client();
    let ids: Vec<String> = (0..ENTRIES)
        .map(|n| {
            client.send(command(&["XADD", "events/long", "*", "payload", &payload(n)]));
            string(&mut client)
        })
        .collect();
    drop((client, first));
    let site = folder.site();
    let one = |n: usize| entry(&ids[n], &["payload", &payload(n)]);
    let (last, middle) = (ENTRIES - 1, ENTRIES / 2);
    let time = numbers_of(&ids[middle])[0].to_string();
    let since = ids.iter().position(|id| id.starts_with(&format!("{time}-"))).unwrap();
    let mut clients: Vec<Client> = (0..4).map(|_| site.client()).collect();
    for client in &mut clients {
        for words in [
            &["XREVRANGE", "events/long", "+", "-", "COUNT", "2"][..],
            &["XRANGE", "events/long", "-", "+", "COUNT", "1"],
            &["XLEN", "events/long"],
            &["PING"],
            &["XREAD", "COUNT", "1", "STREAMS", "events/long", &ids[middle]],
            &["XRANGE", "events/long", &time, "+", "COUNT", "1"],
            &["XRANGE", "events/long", "-", "+", "COUNT", "20"],
        ] {
            client.send(command(words));
        }
    }
    for client in &mut clients {
        client.expect(format!("*2\r\n{}{}", one(last), one(last - 1)));
        client.expect(format!("*1\r\n{}:{ENTRIES}\r\n+PONG\r\n", one(0)));
        client.expect(format!("*1\r\n*2\r\n$11\r\nevents/long\r\n*1\r\n{}", one(middle + 1)));
        client.expect(format!("*1\r\n{}", one(since)));
        client.expect(format!("*20\r\n{}", (0..20).map(one).collect::<String>()));
    }
}

#[test]
fn natives_and_streams_share_a_log() {
    let folder = Folder::new();
    let site = folder.site();
    let (mut listener, mut client) = (subscribed(&site, "events/b"), site.client());
    client.send(command(&["XADD", "events/b", "*", "payload", "plain"]));
    let first = string(&mut client);
    client.send(command(&["XADD", "events/b", "*", "a", "1", "b", "\u{1}2"]));
    let second = string(&mut client);
    let mut native = Subscriber::connect(&site.broker.addr()).expect("the broker listens");
    native.subscribe_from("events/b", StartFrom::Oldest).expect("a topic");
    let message = native.recv(Some(LONG)).expect("a connection").expect("in time");
    assert_eq!((&message.bytes[..], message.attributes.is_empty()), (&b"plain"[..], true));
    let message = native.recv(Some(LONG)).expect("a connection").expect("in time");
    assert_eq!(message.attributes.attributes().content_type(), Some("application/x-resp-fields"));
    assert_eq!(message.bytes, command(&["a", "1", "b", "\u{1}2"]).as_bytes());
    // A client that waits gets what natives and PUBLISH write.
    let mut waiting = site.client();
    waiting.send(command(&["XREAD", "BLOCK", "0", "STREAMS", "events/b", "$"]));
    until_blocked(&mut client, 1);
    let publisher = Publisher::connect(&site.broker.addr()).expect("the broker listens");
    let mut attributes = AttributesBuf::new();
    attributes.property("city", "Graz").expect("a short text");
    let mut writer = publisher.topic("events/b").expect("a topic");
    writer.publish_with(&attributes, b"from a native").expect("room");
    for expected in ["*1\r\n", "*2\r\n", "$8\r\n", "events/b\r\n", "*1\r\n", "*2\r\n"] {
        assert_eq!(waiting.line(), expected);
    }
    let third = string(&mut waiting);
    waiting.expect(command(&["payload", "from a native", "city", "Graz"]));
    client.send(command(&["XRANGE", "events/b", "-", "+"]));
    let all = [
        entry(&first, &["payload", "plain"]),
        entry(&second, &["a", "1", "b", "\u{1}2"]),
        entry(&third, &["payload", "from a native", "city", "Graz"]),
    ];
    client.expect(format!("*3\r\n{}", all.concat()));
    let fields = command(&["a", "1", "b", "\u{1}2"]);
    for payload in ["plain", &fields, "from a native"] {
        listener.expect(command(&["message", "events/b", payload]));
    }
}

#[test]
fn an_entry_for_a_topic_that_was_open_before_its_rule_waits_until_it_is_opened_anew() {
    let folder = Folder::new();
    let mut rules = ["late/#", "held/#"].map(|pattern| Rule::new(pattern.parse().expect("a pattern")));
    rules[1].ingest = Ingest::Merge;
    let mut site = Site::with(GatewayProtocol::Resp, |config| {
        config.broker.keep_dir = folder.0.to_str().expect("a text").into();
        config.broker.topics = rules.to_vec().into();
        config.broker.closed_linger_ms = 100;
    });
    let mut client = site.client();
    for topic in ["late/a", "held/c"] {
        client.ask(command(&["PUBLISH", topic, "x"]), ":0\r\n");
    }
    // The gateway is not the only one that publishes to it.
    let native = Publisher::connect(&site.broker.addr()).expect("the broker listens");
    let mut writer = native.topic("held/c").expect("a topic");
    writer.publish(b"y").expect("room");
    rules.iter_mut().for_each(|rule| rule.keep = true);
    let mut config = site.broker.config().clone();
    config.broker.topics = rules.to_vec().into();
    site.broker.reload(&config).expect("a rule");
    for (count, topic) in [(1, "late/a"), (2, "late/a"), (1, "late/b")] {
        client.send(command(&["XADD", topic, "*", "a", "1"]));
        string(&mut client);
        client.ask(command(&["XLEN", topic]), format!(":{count}\r\n"));
    }
    let deadline = Instant::now() + LONG;
    client.send(command(&["XADD", "held/c", "*", "a", "1"]));
    let mut line = client.line();
    assert!(line.starts_with("-ERR the topic 'held/c' is not kept yet"), "{line}");
    drop(writer);
    while line.starts_with("-ERR the topic 'held/c' is not kept yet") {
        assert!(Instant::now() < deadline, "{line}");
        std::thread::sleep(Duration::from_millis(10));
        client.send(command(&["XADD", "held/c", "*", "a", "1"]));
        line = client.line();
    }
    assert!(line.starts_with('$'), "{line}");
}

/// Waits until so many clients wait for entries.
pub(super) fn until_blocked(client: &mut Client, count: usize) {
    let deadline = Instant::now() + LONG;
    loop {
        client.send(command(&["INFO", "clients"]));
        let head = client.line();
        let len: usize = head.trim_start_matches('$').trim_end().parse().expect("a length");
        let mut text = String::new();
        while text.len() < len + 2 {
            text += &client.line();
        }
        if text.contains(&format!("blocked_clients:{count}\r\n")) {
            return;
        }
        assert!(Instant::now() < deadline, "{text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_client_that_leaves_while_it_waits_leaves_nothing_behind() {
    let folder = Folder::new();
    let site = folder.site();
    let mut client = site.client();
    let mut waiting: Vec<Client> = (0..100).map(|_| site.client()).collect();
    for (at, waiting) in waiting.iter_mut().enumerate() {
        let topic = format!("events/{}", at % 7);
        waiting.send(command(&["XREAD", "BLOCK", "0", "STREAMS", &topic, "events/z", "$", "$"]));
    }
    until_blocked(&mut client, 100);
    // What a client has sent behind its command does not keep it.
    waiting.iter_mut().step_by(2).for_each(|waiting| waiting.send(command(&["PING"])));
    drop(waiting);
    until_blocked(&mut client, 0);
    client.ask(command(&["XREAD", "BLOCK", "1", "STREAMS", "events/0", "$"]), "*-1\r\n");
}

#[test]
fn redis_cli_has_streams() {
    if !has("redis-cli") {
        return skip("streams with redis-cli (apt-get install redis-tools)");
    }
    let folder = Folder::new();
    let site = folder.site();
    let port = site.address().port().to_string();
    let text = |arguments: &[&str]| {
        let mut cli = Command::new("redis-cli");
        let output = cli.args(["-h", "127.0.0.1", "-p", &port]).args(arguments).output().expect("it runs");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
    };
    let id = text(&["XADD", "events/c", "*", "temperature", "21", "unit", "C"]);
    assert_eq!(text(&["XLEN", "events/c"]), "1", "{id}");
    assert_eq!(text(&["XRANGE", "events/c", "-", "+"]), format!("{id}\ntemperature\n21\nunit\nC"));
    assert_eq!(
        text(&["XREAD", "STREAMS", "events/c", "0"]),
        format!("events/c\n{id}\ntemperature\n21\nunit\nC")
    );
    assert_eq!(text(&["TYPE", "events/c"]), "stream");
    assert!(text(&["XINFO", "STREAM", "events/c"]).contains(&format!("last-generated-id\n{id}")));
    assert!(text(&["XADD", "elsewhere", "*", "a", "1"]).contains("keep = true"));
}
