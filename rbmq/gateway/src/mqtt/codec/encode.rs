//! Encoding of packets.

use super::error::Version;
use super::packet::{Ack, AckKind, Answer, Connack, Connect, Ending, Packet, Publish, Request};
use super::property::Properties;
use super::reason;
use super::write::{put_binary, put_varint, varint_bytes};

fn put_properties(to: &mut Vec<u8>, version: Version, properties: Properties<'_>) {
    if version == Version::V5 {
        put_varint(to, properties.0.len() as u32);
        to.extend_from_slice(properties.0);
    }
}

/// The bytes of properties with their length.
fn properties_bytes(version: Version, properties: Properties<'_>) -> usize {
    match version {
        Version::V311 => 0,
        Version::V5 => varint_bytes(properties.0.len()) + properties.0.len(),
    }
}

impl Publish<'_> {
    /// Appends everything but the payload.
    pub fn put_head(&self, version: Version, to: &mut Vec<u8>) {
        let flags = u8::from(self.dup) << 3 | self.qos << 1 | u8::from(self.retain);
        to.push(0x30 | flags);
        let id = if self.qos > 0 { 2 } else { 0 };
        let remaining =
            2 + self.topic.len() + id + properties_bytes(version, self.properties) + self.payload.len();
        put_varint(to, remaining as u32);
        put_binary(to, self.topic.as_bytes());
        if self.qos > 0 {
            to.extend_from_slice(&self.packet_id.to_be_bytes());
        }
        put_properties(to, version, self.properties);
    }
}

impl Packet<'_> {
    /// Appends the packet as a connection of this version has it. CONNECT names its own version.
    pub fn put(&self, version: Version, to: &mut Vec<u8>) {
        let mut body = Vec::new();
        let first = match self {
            Self::Publish(publish) => {
                publish.put_head(version, to);
                to.extend_from_slice(publish.payload);
                return;
            }
            Self::Connect(connect) => put_connect(connect, &mut body),
            Self::Connack(connack) => put_connack(connack, version, &mut body),
            Self::Ack(ack) => put_ack(ack, version, &mut body),
            Self::Subscribe(request) => put_request(request, version, &mut body, 0x82),
            Self::Suback(answer) => put_answer(answer, version, &mut body, 0x90),
            Self::Unsubscribe(request) => put_request(request, version, &mut body, 0xA2),
            Self::Unsuback(answer) => put_answer(answer, version, &mut body, 0xB0),
            Self::Pingreq => 0xC0,
            Self::Pingresp => 0xD0,
            Self::Disconnect(ending) => put_ending(ending, version, &mut body, 0xE0),
            Self::Auth(ending) => put_ending(ending, version, &mut body, 0xF0),
        };
        to.push(first);
        put_varint(to, body.len() as u32);
        to.extend_from_slice(&body);
    }

    /// The packet alone.
    pub fn encode(&self, version: Version) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put(version, &mut bytes);
        bytes
    }
}

fn put_connect(connect: &Connect<'_>, to: &mut Vec<u8>) -> u8 {
    put_binary(to, b"MQTT");
    to.push(if connect.version == Version::V5 { 5 } else { 4 });
    let will = connect.will.map_or(0, |will| 4 | will.qos << 3 | u8::from(will.retain) << 5);
    let (user, password) = (connect.user.is_some(), connect.password.is_some());
    to.push(will | u8::from(connect.clean_start) << 1 | u8::from(user) << 7 | u8::from(password) << 6);
    to.extend_from_slice(&connect.keep_alive.to_be_bytes());
    put_properties(to, connect.version, connect.properties);
    put_binary(to, connect.client_id.as_bytes());
    if let Some(will) = &connect.will {
        put_properties(to, connect.version, will.properties);
        put_binary(to, will.topic.as_bytes());
        put_binary(to, will.payload);
    }
    for field in [connect.user.map(str::as_bytes), connect.password].into_iter().flatten() {
        put_binary(to, field);
    }
    0x10
}

fn put_connack(connack: &Connack<'_>, version: Version, to: &mut Vec<u8>) -> u8 {
    to.extend_from_slice(&[connack.session_present.into(), connack.reason]);
    put_properties(to, version, connack.properties);
    0x20
}

fn put_ack(ack: &Ack<'_>, version: Version, to: &mut Vec<u8>) -> u8 {
    to.extend_from_slice(&ack.packet_id.to_be_bytes());
    let first = match ack.kind {
        AckKind::Puback => 0x40,
        AckKind::Pubrec => 0x50,
        AckKind::Pubrel => 0x62,
        AckKind::Pubcomp => 0x70,
    };
    put_ending(&Ending { reason: ack.reason, properties: ack.properties }, version, to, first)
}

fn put_request(request: &Request<'_>, version: Version, to: &mut Vec<u8>, first: u8) -> u8 {
    to.extend_from_slice(&request.packet_id.to_be_bytes());
    put_properties(to, version, request.properties);
    to.extend_from_slice(request.filters.bytes);
    first
}

fn put_answer(answer: &Answer<'_>, version: Version, to: &mut Vec<u8>, first: u8) -> u8 {
    to.extend_from_slice(&answer.packet_id.to_be_bytes());
    put_properties(to, version, answer.properties);
    if first == 0x90 || version == Version::V5 {
        to.extend_from_slice(answer.reasons);
    }
    first
}

/// Leaves out what says nothing.
fn put_ending(ending: &Ending<'_>, version: Version, to: &mut Vec<u8>, first: u8) -> u8 {
    let plain = ending.properties.is_empty();
    if version == Version::V5 && !(plain && ending.reason == reason::SUCCESS) {
        to.push(ending.reason);
        if !plain {
            put_properties(to, version, ending.properties);
        }
    }
    first
}
