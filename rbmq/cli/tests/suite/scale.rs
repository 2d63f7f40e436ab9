//! Thousands of topics and hundreds of connections: none is refused, and idle ones cost next to nothing.
//! `rbmq-bench scale` does the same with the promised numbers.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rbmq::{ConfirmLevel, Publisher, StartFrom, Subscriber, TopicOptions, TopicWriter};
use rbmq_gateway::mqtt::codec::{Properties, Will};
use rocketbufs::config::TransportKind;
use rocketbufs::{Config, Context};
use testkit::{LONG, own_addr, patient, until};

use crate::common::BrokerProcess;
use crate::mqtt_kills::Client;

const TOPICS: usize = 2000;
const RING_BYTES: u64 = 128 << 10;
/// Fills each ring twice, in deliveries of which two make a page.
const DELIVERIES: usize = 128;
const DELIVERY: [u8; 2000] = [7; 2000];

/// The most bytes of the history of all idle rings: a quarter of the rings.
const IDLE_BYTES: u64 = 64 << 20;
/// The last transfer stays in each ring: at most the largest delivery, and a begun page at either end.
const LAST_BYTES: u64 = TOPICS as u64 * (RING_BYTES / 4 + 8192);

/// The files with the rings of a process.
pub fn ring_files(pid: u32) -> Vec<fs::Metadata> {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs").flatten();
    let rings = fds.map(|fd| fd.path()).filter(|path| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("memfd:rocketring"))
    });
    rings.filter_map(|path| fs::metadata(path).ok()).collect()
}

/// Bytes that the rings of a process have backed.
fn ring_bytes(pid: u32) -> u64 {
    ring_files(pid).iter().map(|file| file.blocks() * 512).sum()
}

fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    // Pages of the program's file come and go.
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    of("RssAnon:") + of("RssShmem:")
}

fn name(topic: usize) -> String {
    format!("scale/{topic}")
}

/// A broker with default settings, except `settings`.
fn broker(settings: &str) -> (BrokerProcess, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rbmq.toml");
    fs::write(&file, settings).unwrap();
    (BrokerProcess::start_with(&["-q", "--config", file.to_str().unwrap()]), dir)
}

fn topics(context: &Context, addr: &str) -> (Vec<Publisher>, Vec<TopicWriter>) {
    let (mut publishers, mut topics) = (Vec::new(), Vec::new());
    for topic in 0..TOPICS {
        if topic % 1000 == 0 {
            publishers.push(Publisher::builder().context(context).connect(addr).unwrap());
        }
        let options = TopicOptions::default().ring_bytes(RING_BYTES);
        topics.push(publishers.last().unwrap().topic_with(&name(topic), options).unwrap());
    }
    (publishers, topics)
}

/// Receives until every topic was heard of, and nothing was lost.
fn hear_of_all(subscriber: &mut Subscriber, bytes: &mut usize) {
    let mut heard = HashSet::new();
    let deadline = Instant::now() + LONG;
    while heard.len() < TOPICS {
        assert!(Instant::now() < deadline, "heard of {} topics only", heard.len());
        if let Some(batch) =
            subscriber.next_batch(Some(Duration::from_secs(1))).expect("nothing is lost or refused")
        {
            heard.insert(batch.topic().clone());
            *bytes += batch.as_slice().len();
        }
    }
}

#[test]
fn thousands_of_topics_rest_cheaply_and_are_announced_at_once() {
    let (broker, _dir) = broker(&format!("[buffers]\nidle_retain_bytes = {IDLE_BYTES}\nidle_trim_ms = 50\n"));
    let context = Context::new(patient()).unwrap();
    let (publishers, mut topics) = topics(&context, &broker.addr);
    let mut first = Subscriber::builder().until_ended(true).config(patient()).connect(&broker.addr).unwrap();
    for topic in 0..TOPICS {
        first.subscribe(&name(topic)).unwrap();
    }
    for topic in &topics {
        topic.wait_subscribers(1, Some(LONG)).unwrap();
    }
    let reader = std::thread::spawn(move || {
        let (mut left, deadline) = (TOPICS * DELIVERIES * (DELIVERY.len() + 4), Instant::now() + 2 * LONG);
        while left > 0 {
            assert!(Instant::now() < deadline, "{left} bytes did not come");
            let batch = first.next_batch(Some(Duration::from_secs(1))).expect("nothing is lost or refused");
            left -= batch.map_or(0, |batch| batch.as_slice().len());
        }
        first
    });
    for topic in &mut topics {
        for _ in 0..DELIVERIES {
            topic.publish(&DELIVERY).unwrap();
        }
    }
    let first = reader.join().unwrap();
    let pid = broker.process.id();
    until("the broker's rings give their memory back", || ring_bytes(pid) <= IDLE_BYTES.max(LAST_BYTES));
    assert!(
        resident_bytes(pid) < 2 * IDLE_BYTES.max(LAST_BYTES),
        "{} bytes are resident",
        resident_bytes(pid)
    );

    // A late subscriber gets all topics at once, and at least the last delivery of each.
    let mut late = Subscriber::builder().until_ended(true).config(patient()).connect(&broker.addr).unwrap();
    late.subscribe_from("scale/#", StartFrom::Oldest).unwrap();
    let mut bytes = 0;
    hear_of_all(&mut late, &mut bytes);
    assert!(bytes >= TOPICS * DELIVERY.len(), "{bytes} bytes of history");
    late.close_timeout(Some(LONG));
    first.close_timeout(Some(LONG));
    // Idle topics work again.
    let mut again = Subscriber::builder().until_ended(true).config(patient()).connect(&broker.addr).unwrap();
    again.subscribe_from(&name(0), StartFrom::Oldest).unwrap();
    topics[0].publish(b"after the rest").unwrap();
    while again.recv(Some(LONG)).unwrap().expect("the topic continues").bytes != b"after the rest" {}
    drop((topics, publishers));
}

/// A subscriber with a context of its own, so that its memory is measured apart from the publishers'.
fn subscriber_of_all(addr: &str, budget_bytes: u64) -> Subscriber {
    let context = Context::new(patient()).unwrap();
    let builder = Subscriber::builder().until_ended(true).context(&context).budget_bytes(budget_bytes);
    let mut subscriber = builder.connect(addr).unwrap();
    subscriber.subscribe("scale/#").unwrap();
    subscriber
}

#[test]
fn a_subscriber_of_all_topics_that_takes_nothing_stays_within_its_budget() {
    const BUDGET_BYTES: u64 = 8 << 20;
    const EACH: usize = 16 * (DELIVERY.len() + 4);
    let (broker, _dir) = broker("");
    let context = Context::new(patient()).unwrap();
    let (publishers, mut topics) = topics(&context, &broker.addr);
    let mut subscriber = subscriber_of_all(&broker.addr, BUDGET_BYTES);
    for topic in &topics {
        topic.wait_subscribers(1, Some(LONG)).unwrap();
    }
    let held = |subscriber: &Subscriber| subscriber.context().memory_in_use();
    assert_eq!(held(&subscriber), 0, "a topic without data has no ring");
    for _ in 0..16 {
        for topic in &mut topics {
            topic.publish(&DELIVERY).unwrap();
        }
    }
    until("received data fills the budget", || held(&subscriber) > BUDGET_BYTES / 2);
    // A subscriber that reads nothing for long, and then little at a time, gets everything within its budget.
    let (mut got, mut batches) = (std::collections::HashMap::new(), 0_usize);
    let deadline = Instant::now() + 2 * LONG;
    while got.values().sum::<usize>() < TOPICS * EACH {
        assert!(Instant::now() < deadline, "{} topics, {batches} batches", got.len());
        if let Some(batch) =
            subscriber.next_batch(Some(Duration::from_secs(1))).expect("nothing is lost or refused")
        {
            *got.entry(batch.topic().clone()).or_insert(0) += batch.as_slice().len();
        }
        batches += 1;
        if batches % 64 == 0 {
            assert!(held(&subscriber) <= BUDGET_BYTES, "{} bytes of rings", held(&subscriber));
        }
    }
    assert!(got.len() == TOPICS && got.values().all(|bytes| *bytes == EACH));
    until("rings at rest go", || held(&subscriber) == 0);
    drop((topics, publishers));
}

#[test]
fn a_budget_that_no_delivery_fits_is_refused_with_the_arithmetic() {
    let (broker, _dir) = broker("");
    let publisher = Publisher::builder().config(patient()).connect(&broker.addr).unwrap();
    let _topic = publisher.topic(&name(0)).unwrap();
    let mut subscriber = subscriber_of_all(&broker.addr, 100_000);
    let error = subscriber.next_batch(Some(LONG)).unwrap_err().to_string();
    assert!(error.contains("the budget has 100000") && error.contains("524288"), "{error}");
}

#[test]
fn hundreds_of_connections_cost_little() {
    const CONNECTIONS: usize = 200;
    let (broker, _dir) = broker("");
    let context = Context::new(patient()).unwrap();
    let (mut publishers, mut subscribers) = (Vec::new(), Vec::new());
    let mut connect = |count: usize| {
        for _ in 0..count / 2 {
            publishers.push(Publisher::builder().context(&context).connect(&broker.addr).unwrap());
            subscribers.push(
                Subscriber::builder().until_ended(true).context(&context).connect(&broker.addr).unwrap(),
            );
        }
    };
    // The first connections allocate the memory that is made once.
    connect(20);
    let before = resident_bytes(broker.process.id());
    connect(CONNECTIONS);
    let each = resident_bytes(broker.process.id()).saturating_sub(before) / CONNECTIONS as u64;
    assert!(each <= 64 << 10, "a connection costs {each} bytes");
    assert!(
        publishers.iter().all(Publisher::is_connected) && subscribers.iter().all(Subscriber::is_connected)
    );
}

/// The tables of a gateway are as full with so many clients as with 100,000.
const CLIENTS: u64 = 390;

/// What a client of MQTT costs that has subscribed to one filter and says nothing, with a will or without.
fn bytes_of_a_quiet_client(will: Option<Will<'_>>) -> u64 {
    let address = own_addr();
    let (broker, _dir) = broker(&format!("[[gateway]]\nprotocol = \"mqtt\"\nlisten = \"{address}\"\n"));
    let connect = |number: u64| {
        let id = format!("device-{number:08}");
        let (mut client, _) = Client::connect_with(&address, &id, will).expect("the gateway listens");
        client.subscribe(&format!("devices/{id}/commands"), 1);
        client
    };
    until("the gateway listens", || std::net::TcpStream::connect(&address).is_ok());
    bytes_of_each(broker.process.id(), CLIENTS, connect)
}

/// What each client adds to the memory of a process.
fn bytes_of_each<C>(pid: u32, clients: u64, connect: impl Fn(u64) -> C) -> u64 {
    // The first one touches the memory that is there once.
    let first = connect(clients);
    let before = resident_bytes(pid);
    let others: Vec<C> = (0..clients).map(connect).collect();
    let each = resident_bytes(pid).saturating_sub(before) / clients;
    drop((first, others));
    each
}

/// 100,000 of them need no more than 400 MiB.
#[test]
fn a_client_of_mqtt_that_says_nothing_costs_little() {
    let each = bytes_of_a_quiet_client(None);
    assert!(each <= 4 << 10, "a client costs {each} bytes");
}

/// The bytes of a handshake go when it is over.
#[cfg(feature = "tls")]
#[test]
fn a_client_of_mqtt_with_tls_that_says_nothing_costs_little() {
    use std::io::{Read, Write};

    use crate::common::{secure, setup::Setup};

    let (setup, address) = (Setup::new(), own_addr());
    let file = setup.config(&format!("[[gateway]]\nprotocol = \"mqtt\"\nlisten = \"{address}\"\n"));
    let broker = BrokerProcess::start_with(&["-q", "--config", file.to_str().unwrap()]);
    until("the gateway listens", || std::net::TcpStream::connect(&address).is_ok());
    let config = secure::config(&setup.file("tls/ca.pem"), None, &[]);
    let each = bytes_of_each(broker.process.id(), CLIENTS, |number| {
        let (id, filter) = (format!("device-{number:08}"), format!("devices/device-{number:08}/commands"));
        let text = |text: &str| [&[0, text.len() as u8][..], text.as_bytes()].concat();
        let connect = [&b"\x10\x1b\0\x04MQTT\x04\x02\0\0"[..], &text(&id)].concat();
        let body = [&[0, 1][..], &text(&filter), &[1]].concat();
        let mut client = secure::connect(config.clone(), &address).expect("a handshake");
        client.write_all(&[&connect[..], &[0x82, body.len() as u8], &body].concat()).expect("sent");
        let mut answers = [0; 4 + 5];
        client.read_exact(&mut answers).expect("CONNACK, SUBACK");
        assert_eq!(answers, *b"\x20\x02\0\0\x90\x03\0\x01\x01");
        client
    });
    assert!(each <= 6 << 10, "a client costs {each} bytes");
}

#[test]
fn a_will_of_a_client_of_mqtt_costs_little() {
    let (topic, payload, properties) = ("devices/gone", &b"device is gone"[..], Properties::default());
    let each = bytes_of_a_quiet_client(Some(Will { qos: 1, retain: false, properties, topic, payload }));
    assert!(each <= 4 << 10, "a client with a will costs {each} bytes");
}

#[test]
fn publishers_that_are_merged_take_no_descriptors_for_rings_and_no_memory_at_rest() {
    const PUBLISHERS: usize = 40;
    // Rings that others on this machine map are a file each, and keep their memory; these are the broker's alone.
    let settings = "transport = \"auto\"\nbroker.topics = [{ pattern = \"#\", ingest = \"merge\" }]\n\
                    [buffers]\nidle_trim_ms = 50\n";
    let (broker, _dir) = broker(settings);
    let context = Context::new(Config { transport: TransportKind::Auto, ..patient() }).unwrap();
    let options = || TopicOptions::default().ring_bytes(RING_BYTES);
    let join = |deliveries| {
        let publisher = Publisher::builder().context(&context).connect(&broker.addr).unwrap();
        let mut topic = publisher.topic_with("all", options()).unwrap();
        for _ in 0..deliveries {
            topic.publish(&DELIVERY).unwrap();
        }
        topic.confirm(topic.position(), ConfirmLevel::Accepted, Some(LONG)).unwrap();
        (publisher, topic)
    };
    let pid = broker.process.id();
    // The topic's own ring is full then.
    let first = join(PUBLISHERS * DELIVERIES);
    let (files, bytes) = (ring_files(pid).len(), ring_bytes(pid));
    let others: Vec<_> = (1..PUBLISHERS).map(|_| join(DELIVERIES)).collect();
    assert_eq!(ring_files(pid).len(), files);
    // The last transfer stays in each ring.
    let last = PUBLISHERS as u64 * (RING_BYTES / 4 + 8192);
    until("their rings give their memory back", || ring_bytes(pid) <= bytes + last);
    drop((first, others));
}
