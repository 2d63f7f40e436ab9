//! The machine, with outlets, a bus and a door in memory.

use std::time::{Duration, Instant};

use super::codec::{
    Ack, AckKind, Answer, Connect, Ending, Filters, Packet, Properties, Property, Publish, Request, Version,
    Will, decode, split,
};
use super::{Clock, Mqtt, Settings};
use crate::double::World;
use crate::protocol::{ConnId, Protocol as _};

mod bounds;
mod connect;
mod disk;
mod floor;
mod journal;
mod kills;
mod limits;
mod quality;
mod random;
mod retained;
mod shared;
mod snapshots;
mod subscribe;
mod testaments;
mod wills;

const V311: Version = Version::V311;
const V5: Version = Version::V5;

/// What a test says in CONNECT.
#[derive(Clone, Copy)]
struct Hello<'a> {
    version: Version,
    id: &'a str,
    clean: bool,
    keep_alive: u16,
    properties: &'a [Property<'a>],
    will: Option<Will<'a>>,
    login: Option<(&'a str, &'a str)>,
}

impl<'a> Hello<'a> {
    fn new(version: Version, id: &'a str) -> Self {
        Self { version, id, clean: true, keep_alive: 0, properties: &[], will: None, login: None }
    }

    /// A session that outlives its connection.
    fn lasting(version: Version, id: &'a str) -> Self {
        Self { clean: false, properties: &[Property::SessionExpiry(1000)], ..Self::new(version, id) }
    }
}

/// A machine with its world.
struct Site(World<Mqtt>);

impl Site {
    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn with(settings: Settings) -> Self {
        let at = Instant::now();
        Self(World::new(Mqtt::new(settings, Clock { at, unix_ms: 1_000_000 }, 7), at))
    }

    fn send(&mut self, conn: ConnId, packet: Packet<'_>) {
        let version = self.0.protocol.clients[&conn].version;
        self.0.feed(conn, packet.encode(version));
        self.0.deliver();
    }

    /// A new connection that has sent CONNECT.
    fn hello(&mut self, hello: Hello<'_>) -> ConnId {
        let conn = self.0.open();
        let bytes = encode_all(hello.properties);
        let connect = Connect {
            version: hello.version,
            clean_start: hello.clean,
            keep_alive: hello.keep_alive,
            properties: Properties::new(&bytes),
            client_id: hello.id,
            will: hello.will,
            user: hello.login.map(|login| login.0),
            password: hello.login.map(|login| login.1.as_bytes()),
        };
        self.0.feed(conn, Packet::Connect(connect).encode(hello.version));
        conn
    }

    /// A client that was let in.
    fn client(&mut self, hello: Hello<'_>) -> ConnId {
        let conn = self.hello(hello);
        let got = self.got(conn);
        assert!(got[0].starts_with("CONNACK") && got[0].contains(" 00"), "{got:?}");
        conn
    }

    fn plain(&mut self, version: Version, id: &str) -> ConnId {
        self.client(Hello::new(version, id))
    }

    fn subscribe_with(&mut self, conn: ConnId, id: u32, filters: &[(&str, u8)]) -> Vec<String> {
        let mut bytes = Vec::new();
        for (filter, options) in filters {
            bytes.extend_from_slice(&(filter.len() as u16).to_be_bytes());
            bytes.extend_from_slice(filter.as_bytes());
            bytes.push(*options);
        }
        let properties = if id > 0 { encode_all(&[Property::SubscriptionId(id)]) } else { Vec::new() };
        let properties = Properties::new(&properties);
        let request = Request { packet_id: 9, properties, filters: Filters::of_subscribe(&bytes) };
        self.send(conn, Packet::Subscribe(request));
        self.got(conn)
    }

    /// Subscribes to one filter, which has to be granted.
    fn subscribe(&mut self, conn: ConnId, filter: &str, options: u8) {
        let got = self.subscribe_with(conn, 0, &[(filter, options)]);
        assert_eq!(got, [format!("SUBACK #9 {:02x}", options & 3)]);
    }

    fn publish_with(&mut self, conn: ConnId, publish: Publish<'_>, properties: &[Property<'_>]) {
        let bytes = encode_all(properties);
        self.send(conn, Packet::Publish(Publish { properties: Properties::new(&bytes), ..publish }));
    }

    fn publish(&mut self, conn: ConnId, topic: &str, qos: u8, payload: &str) {
        self.publish_with(conn, message(topic, qos, payload), &[]);
    }

    fn ack(&mut self, conn: ConnId, kind: AckKind, packet_id: u16, reason: u8) {
        self.send(conn, Packet::Ack(Ack { kind, packet_id, reason, properties: Properties::default() }));
    }

    fn disconnect(&mut self, conn: ConnId, reason: u8, properties: &[Property<'_>]) {
        let bytes = encode_all(properties);
        self.send(conn, Packet::Disconnect(Ending { reason, properties: Properties::new(&bytes) }));
    }

    /// The connection breaks.
    fn lose(&mut self, conn: ConnId) {
        self.0.close(conn);
        self.0.deliver();
    }

    fn pass(&mut self, seconds: u64) {
        self.0.pass(Duration::from_secs(seconds));
        self.0.deliver();
    }

    /// What a client has got, in words.
    fn got(&mut self, conn: ConnId) -> Vec<String> {
        let version = self.0.protocol.clients.get(&conn).map_or(V5, |client| client.version);
        let bytes = self.0.got(conn);
        let (mut rest, mut words) = (&bytes[..], Vec::new());
        while let Some(frame) = split(rest, usize::MAX).expect("the gateway sends packets") {
            words.push(in_words(&decode(version, frame).expect("the gateway sends packets")));
            rest = &rest[frame.len..];
        }
        assert!(rest.is_empty());
        words
    }

    fn is_closed(&self, conn: ConnId) -> bool {
        self.0.out.closed.contains_key(&conn)
    }
}

fn message<'a>(topic: &'a str, qos: u8, payload: &'a str) -> Publish<'a> {
    let packet_id = if qos > 0 { 5 } else { 0 };
    let properties = Properties::default();
    Publish { dup: false, qos, retain: false, topic, packet_id, properties, payload: payload.as_bytes() }
}

fn encode_all(properties: &[Property<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    properties.iter().for_each(|property| property.put(&mut bytes));
    bytes
}

/// A packet of the gateway, as tests compare it.
fn in_words(packet: &Packet<'_>) -> String {
    let (mut text, properties) = match packet {
        Packet::Connack(connack) => {
            let present = if connack.session_present { " present" } else { "" };
            (format!("CONNACK{present} {:02x}", connack.reason), connack.properties)
        }
        Packet::Publish(publish) => {
            let dup = if publish.dup { " dup" } else { "" };
            let retain = if publish.retain { " retain" } else { "" };
            let id = if publish.qos > 0 { format!(" #{}", publish.packet_id) } else { String::new() };
            let payload = String::from_utf8_lossy(publish.payload);
            (
                format!("PUBLISH {} q{}{dup}{retain}{id} {payload}", publish.topic, publish.qos),
                publish.properties,
            )
        }
        Packet::Ack(ack) => {
            let name = format!("{:?}", ack.kind).to_uppercase();
            (format!("{name} #{} {:02x}", ack.packet_id, ack.reason), ack.properties)
        }
        Packet::Suback(answer) => (answer_in_words("SUBACK", answer), answer.properties),
        Packet::Unsuback(answer) => (answer_in_words("UNSUBACK", answer), answer.properties),
        Packet::Disconnect(ending) => (format!("DISCONNECT {:02x}", ending.reason), ending.properties),
        other => (format!("{other:?}").to_uppercase(), Properties::default()),
    };
    for property in properties.iter().filter(|property| !matches!(property, Property::ReasonString(_))) {
        text += &format!(" {property:?}");
    }
    text
}

fn answer_in_words(name: &str, answer: &Answer<'_>) -> String {
    let reasons: Vec<String> = answer.reasons.iter().map(|reason| format!(" {reason:02x}")).collect();
    format!("{name} #{}{}", answer.packet_id, reasons.concat())
}
