//! Clients of MQTT whose broker is killed: what was acknowledged is there again.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use rbmq::{BlockReason, Observer, StartFrom, Subscriber};
use rbmq_gateway::mqtt::codec::{
    Ack, AckKind, Connect, Filters, Packet, Properties, Property, Publish, Request, Version, Will, decode,
    split,
};
use testkit::{LONG, Process, own_addr, until};

use crate::common::BrokerProcess;
use crate::kept::{broker_with_file_limits, limit_files};

/// A broker with a gateway of MQTT that keeps its sessions in the folder.
pub(crate) struct Site {
    broker: Option<BrokerProcess>,
    config: String,
    pub(crate) mqtt: String,
}

impl Site {
    fn new(dir: &Path) -> Self {
        Self::with(dir, "")
    }

    /// With rules of topics.
    pub(crate) fn with(dir: &Path, rules: &str) -> Self {
        let mqtt = own_addr();
        let path = dir.join("rbmq.toml");
        let keep = dir.join("kept");
        let text = format!(
            "[broker]\nkeep_dir = '{}'\n{rules}[[gateway]]\nprotocol = 'mqtt'\nlisten = '{mqtt}'\nmax_inflight = 20\n\
             max_queued_messages = 100000\n",
            keep.display()
        );
        std::fs::write(&path, text).expect("a file");
        let config = path.to_str().expect("UTF-8").to_owned();
        let broker = Some(BrokerProcess::start_with(&["--config", &config]));
        Self { broker, config, mqtt }
    }

    /// Another broker follows the one that is killed.
    pub(crate) fn kill(&mut self) {
        if let Some(broker) = self.broker.take() {
            broker.process.signal("KILL");
            broker.process.finish();
        }
        self.broker = Some(BrokerProcess::start_with(&["--config", &self.config]));
    }

    /// The next broker has files that can be limited.
    fn limit(&mut self, addr: &str) -> Process {
        if let Some(broker) = self.broker.take() {
            broker.process.signal("KILL");
            broker.process.finish();
        }
        broker_with_file_limits(addr, &self.config)
    }

    /// A client with a session that lasts, and whether it was there.
    pub(crate) fn client(&self, id: &str) -> (Client, bool) {
        let mut client = None;
        until("the gateway listens", || {
            client = Client::connect(&self.mqtt, id).ok();
            client.is_some()
        });
        client.expect("a client")
    }
}

/// What a client reads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Message { topic: String, payload: String, qos: u8, id: u16, retain: bool },
    Ack(AckKind, u16),
}

/// A client with a session that lasts.
pub struct Client {
    pub(crate) stream: TcpStream,
    bytes: Vec<u8>,
}

impl Client {
    /// A client, and whether its session was there.
    pub fn connect(addr: &str, id: &str) -> io::Result<(Self, bool)> {
        Self::connect_with(addr, id, None)
    }

    /// The same, with a will.
    pub fn connect_with(addr: &str, id: &str, will: Option<Will<'_>>) -> io::Result<(Self, bool)> {
        let stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(LONG))?;
        stream.set_nodelay(true)?;
        let mut client = Self { stream, bytes: Vec::new() };
        let mut properties = Vec::new();
        Property::SessionExpiry(3600).put(&mut properties);
        client.send(Packet::Connect(Connect {
            version: Version::V5,
            clean_start: false,
            keep_alive: 0,
            properties: Properties::new(&properties),
            client_id: id,
            will,
            user: None,
            password: None,
        }))?;
        let present = client.read(|packet| match packet {
            Packet::Connack(connack) if connack.reason == 0 => connack.session_present,
            other => panic!("{other:?}"),
        })?;
        Ok((client, present))
    }

    fn send(&mut self, packet: Packet<'_>) -> io::Result<()> {
        self.stream.write_all(&packet.encode(Version::V5))
    }

    pub(crate) fn ack(&mut self, kind: AckKind, packet_id: u16) -> io::Result<()> {
        self.send(Packet::Ack(Ack { kind, packet_id, reason: 0, properties: Properties::default() }))
    }

    pub fn subscribe(&mut self, filter: &str, qos: u8) {
        assert_eq!(self.ask_for(filter, qos), qos);
    }

    /// Subscribes. Returns the reason.
    pub(crate) fn ask_for(&mut self, filter: &str, qos: u8) -> u8 {
        let mut bytes = vec![0, filter.len() as u8];
        bytes.extend_from_slice(filter.as_bytes());
        bytes.push(qos);
        let (properties, filters) = (Properties::default(), Filters::of_subscribe(&bytes));
        self.send(Packet::Subscribe(Request { packet_id: 1, properties, filters })).expect("sent");
        let reason = self.read(|packet| match packet {
            Packet::Suback(answer) => answer.reasons[0],
            other => panic!("{other:?}"),
        });
        reason.expect("an answer")
    }

    pub(crate) fn publish(&mut self, message: Message<'_>) -> io::Result<()> {
        let Message { topic, payload, qos, id, retain, dup } = message;
        let properties = Properties::default();
        let payload = payload.as_bytes();
        self.send(Packet::Publish(Publish { dup, qos, retain, topic, packet_id: id, properties, payload }))
    }

    /// The next packet.
    fn read<T>(&mut self, take: impl FnOnce(Packet<'_>) -> T) -> io::Result<T> {
        loop {
            if let Some(frame) = split(&self.bytes, usize::MAX).expect("packets") {
                let len = frame.len;
                let taken = take(decode(Version::V5, frame).expect("a packet"));
                self.bytes.drain(..len);
                return Ok(taken);
            }
            let mut more = [0; 4096];
            match self.stream.read(&mut more)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.bytes.extend_from_slice(&more[..count]),
            }
        }
    }

    pub(crate) fn next(&mut self) -> io::Result<Got> {
        self.read(|packet| match packet {
            Packet::Publish(publish) => Got::Message {
                topic: publish.topic.to_owned(),
                payload: String::from_utf8_lossy(publish.payload).into_owned(),
                qos: publish.qos,
                id: publish.packet_id,
                retain: publish.retain,
            },
            Packet::Ack(ack) if ack.reason == 0 => Got::Ack(ack.kind, ack.packet_id),
            other => panic!("{other:?}"),
        })
    }

    /// The reason of the next acknowledgement.
    pub(crate) fn reason(&mut self) -> u8 {
        let reason = self.read(|packet| match packet {
            Packet::Ack(ack) => ack.reason,
            other => panic!("{other:?}"),
        });
        reason.expect("an answer")
    }

    /// The next message, which is acknowledged.
    pub(crate) fn message(&mut self) -> (String, u8) {
        loop {
            match self.next().expect("a message") {
                Got::Message { payload, qos: 0, .. } => return (payload, 0),
                Got::Message { payload, qos, id, .. } => {
                    let kind = if qos == 2 { AckKind::Pubrec } else { AckKind::Puback };
                    self.ack(kind, id).expect("sent");
                    return (payload, qos);
                }
                Got::Ack(AckKind::Pubrel, id) => self.ack(AckKind::Pubcomp, id).expect("sent"),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a str,
    pub(crate) qos: u8,
    pub(crate) id: u16,
    pub(crate) retain: bool,
    pub(crate) dup: bool,
}

impl<'a> Message<'a> {
    pub(crate) fn new(topic: &'a str, payload: &'a str, qos: u8, id: u16) -> Self {
        Self { topic, payload, qos, id, retain: false, dup: false }
    }
}

#[test]
fn a_session_gets_after_the_kill_what_was_acknowledged_before() {
    const COUNT: u16 = 100;
    let dir = tempfile::tempdir().expect("a folder");
    let mut site = Site::new(dir.path());
    for (id, qos) in [("one", 1), ("two", 2)] {
        let (mut subscriber, present) = site.client(id);
        assert!(!present);
        subscriber.subscribe("t/#", qos);
    }
    let (mut publisher, _) = site.client("publisher");
    for id in 1..=COUNT {
        publisher.publish(Message::new("t/a", &id.to_string(), 1, id)).expect("sent");
    }
    for id in 1..=COUNT {
        assert_eq!(publisher.next().expect("an answer"), Got::Ack(AckKind::Puback, id));
    }
    let retained = Message { retain: true, ..Message::new("kept", "value", 1, 500) };
    publisher.publish(retained).expect("sent");
    assert_eq!(publisher.next().expect("an answer"), Got::Ack(AckKind::Puback, 500));
    let twice = Message::new("t/b", "once", 2, 600);
    publisher.publish(twice).expect("sent");
    assert_eq!(publisher.next().expect("an answer"), Got::Ack(AckKind::Pubrec, 600));
    site.kill();
    // It may not have got the PUBREC, and asks again.
    let (mut publisher, present) = site.client("publisher");
    assert!(present);
    publisher.publish(Message { dup: true, ..twice }).expect("sent");
    assert_eq!(publisher.next().expect("an answer"), Got::Ack(AckKind::Pubrec, 600));
    publisher.ack(AckKind::Pubrel, 600).expect("sent");
    assert_eq!(publisher.next().expect("an answer"), Got::Ack(AckKind::Pubcomp, 600));
    for (id, qos) in [("one", 1), ("two", 2)] {
        let (mut subscriber, present) = site.client(id);
        assert!(present);
        for number in 1..=COUNT {
            assert_eq!(subscriber.message(), (number.to_string(), 1));
        }
        assert_eq!(subscriber.message(), ("once".to_owned(), qos));
    }
    let (mut late, _) = site.client("late");
    late.subscribe("kept", 1);
    let Got::Message { payload, retain: true, .. } = late.next().expect("a message") else {
        panic!("a retained message")
    };
    assert_eq!(payload, "value");
    whoever_comes_back_has_his_session(&mut site);
}

fn whoever_comes_back_has_his_session(site: &mut Site) {
    site.kill();
    // What they have acknowledged does not come again.
    let (mut subscriber, present) = site.client("one");
    assert!(present);
    let (mut publisher, _) = site.client("publisher");
    publisher.publish(Message::new("t/a", "last", 1, 1)).expect("sent");
    while subscriber.message().0 != "last" {}
    // A broker that stops in order keeps them too.
    let broker = site.broker.take().expect("a broker");
    broker.process.signal("TERM");
    broker.process.finish().good();
    site.kill();
    assert!(site.client("one").1);
}

#[test]
fn what_was_acknowledged_of_a_topic_on_disk_is_in_its_file() {
    const COUNT: u16 = 50;
    let dir = tempfile::tempdir().expect("a folder");
    let rules = "[[broker.topics]]\npattern = 'k/#'\nkeep = true\n\
                 [[broker.topics]]\npattern = 's/#'\nkeep = true\nspace = true\nring_bytes = '16 MiB'\n";
    let mut site = Site::with(dir.path(), rules);
    let mut numbers = 0;
    for topic in ["k/a", "s/a", "k/b", "s/b"] {
        // The last two have a session that wants them.
        if topic == "k/b" {
            site.client("subscriber").0.subscribe("+/b", 2);
        }
        let (mut publisher, _) = site.client("publisher");
        for id in 1..=COUNT {
            let qos = if numbers < COUNT { 1 } else { 2 };
            publisher.publish(Message::new(topic, &id.to_string(), qos, id)).expect("sent");
        }
        let kind = if numbers < COUNT { AckKind::Puback } else { AckKind::Pubrec };
        for id in 1..=COUNT {
            assert_eq!(publisher.next().expect("an answer"), Got::Ack(kind, id));
        }
        site.kill();
        let broker = site.broker.as_ref().expect("a broker");
        let text = broker.sub(&format!("{topic} --from oldest --count {COUNT}")).finish().good().text();
        let expected: String = (1..=COUNT).map(|id| format!("{id}\n")).collect();
        assert_eq!(text, expected, "{topic}");
        if kind == AckKind::Pubrec {
            let (mut publisher, _) = site.client("publisher");
            for id in 1..=COUNT {
                publisher.ack(AckKind::Pubrel, id).expect("sent");
                assert_eq!(publisher.next().expect("an answer"), Got::Ack(AckKind::Pubcomp, id));
            }
        }
        numbers += COUNT;
    }
    let (mut subscriber, present) = site.client("subscriber");
    assert!(present);
    for id in (1..=COUNT).chain(1..=COUNT) {
        assert_eq!(subscriber.message(), (id.to_string(), 2));
    }
}

/// A limit on the size of files has the effect of a full disk. Rings are files too, so they are made before.
#[test]
fn a_full_disk_acknowledges_nothing_and_loses_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut site = Site::new(dir.path());
    let mut broker = site.limit(&own_addr());
    let mut log = broker.stderr().lines().map_while(Result::ok);
    site.client("one").0.subscribe("t/#", 1);
    let (mut publisher, _) = site.client("publisher");
    if !limit_files(&broker, Some(64 << 10)) {
        return;
    }
    let large = "x".repeat(10_000);
    let mut acknowledged = 0;
    // The journal takes some of them.
    for id in 1..=20 {
        publisher.publish(Message::new("t/a", &format!("{id} {large}"), 1, id)).expect("sent");
    }
    let told = log.by_ref().find(|line| line.contains("the journal takes nothing"));
    assert!(told.expect("the log says so").contains("File too large"));
    publisher.stream.set_read_timeout(Some(Duration::from_millis(1200))).expect("a socket");
    while let Ok(Got::Ack(AckKind::Puback, id)) = publisher.next() {
        acknowledged += 1;
        assert_eq!(id, acknowledged);
    }
    assert!(acknowledged < 20, "{acknowledged}");
    assert!(limit_files(&broker, None));
    // The rest of the log would fill its pipe.
    let rest = std::thread::spawn(move || log.any(|line| line.contains("the journal works again")));
    publisher.stream.set_read_timeout(Some(LONG)).expect("a socket");
    while acknowledged < 20 {
        acknowledged += 1;
        assert_eq!(publisher.next().expect("an answer"), Got::Ack(AckKind::Puback, acknowledged));
    }
    assert!(rest.join().expect("a reader"));
    broker.signal("KILL");
    broker.finish();
    site.kill();
    let (mut subscriber, present) = site.client("one");
    assert!(present);
    for id in 1..=20 {
        assert_eq!(subscriber.message().0, format!("{id} {large}"));
    }
}

/// The disk of a topic fails, and that of the journal, which has nothing to write, does not.
#[test]
fn messages_wait_for_the_full_disk_of_their_topic() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut site = Site::with(dir.path(), "[[broker.topics]]\npattern = 'k/#'\nkeep = true\n");
    let addr = own_addr();
    let mut broker = site.limit(&addr);
    let log = broker.stderr();
    let drain = std::thread::spawn(move || log.lines().map_while(Result::ok).count());
    let (mut publisher, _) = site.client("publisher");
    let large = "x".repeat(10_000);
    let send = |publisher: &mut Client, ids: std::ops::RangeInclusive<u16>| {
        for id in ids {
            publisher.publish(Message::new("k/a", &format!("{id} {large}"), 1, id)).expect("sent");
        }
    };
    // Rings are files too.
    send(&mut publisher, 1..=1);
    assert_eq!(publisher.next().expect("an answer"), Got::Ack(AckKind::Puback, 1));
    if !limit_files(&broker, Some(64 << 10)) {
        return;
    }
    send(&mut publisher, 2..=20);
    let mut observer = Observer::connect(&addr).expect("the broker listens");
    until("the disk is full", || {
        let topics = observer.topics(None).expect("topics");
        topics.iter().any(|topic| topic.blocked_by == Some(BlockReason::Disk))
    });
    // The last ones come when the gateway knows it, and are published when it knows that it is over.
    publisher.stream.set_read_timeout(Some(Duration::from_millis(1200))).expect("a socket");
    let mut acknowledged = 1;
    for ids in [21..=30, 31..=40] {
        send(&mut publisher, ids);
        while let Ok(Got::Ack(AckKind::Puback, id)) = publisher.next() {
            acknowledged += 1;
            assert_eq!(id, acknowledged);
        }
    }
    assert!(acknowledged < 20, "{acknowledged}");
    assert!(limit_files(&broker, None));
    publisher.stream.set_read_timeout(Some(LONG)).expect("a socket");
    while acknowledged < 40 {
        acknowledged += 1;
        assert_eq!(publisher.next().expect("an answer"), Got::Ack(AckKind::Puback, acknowledged));
    }
    let mut subscriber = Subscriber::connect(&addr).expect("the broker listens");
    subscriber.subscribe_from("k/a", StartFrom::Oldest).expect("a topic");
    for id in 1..=40 {
        let message = subscriber.recv(Some(LONG)).expect("a message").expect("in time");
        assert!(message.bytes == format!("{id} {large}").as_bytes(), "{id}");
    }
    drop(broker);
    drain.join().expect("a reader");
}
