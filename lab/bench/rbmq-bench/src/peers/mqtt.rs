//! MQTT 3.1.1 with QoS 0 or 1: what Mosquitto and RBMQ's gateway speak.
//!
//! ```text
//!   QoS 0   0x30, length, u16 9, bench.000, payload            published and delivered; nothing comes back
//!   QoS 1   0x32, length, u16 9, bench.000, u16 id, payload    the other end answers 0x40, 2, u16 id
//! ```

use std::{io::Write, net::TcpStream};

use super::{
    message::{Accepted, Next, Protocol, topic_name},
    socket::Reader,
};
use crate::error::BenchError;

/// The protocol.
pub const PROTOCOL: Protocol = Protocol { name: "mqtt", parse: next };

/// CONNECT: protocol 4, a clean session, no keep-alive, no name.
const CONNECT: &[u8] = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00";
const PUBLISH: u8 = 0x30;
/// With QoS 1, and with QoS 1 once more after the connection was lost.
const PUBLISH_1: u8 = 0x32;
const PUBLISH_1_AGAIN: u8 = 0x3a;
const PUBACK: u8 = 0x40;
/// Bytes of a packet's id.
const ID: usize = 2;
const CONNACK: u8 = 0x20;
const SUBACK: u8 = 0x90;

#[inline]
pub fn begin(to: &mut Vec<u8>, topic: &str, size: usize) {
    to.push(PUBLISH);
    push_length(to, 2 + topic.len() + size);
    push_name(to, topic);
}

/// With QoS 1, and id 0: `set_id` comes after it.
#[inline]
pub fn begin_acked(to: &mut Vec<u8>, topic: &str, size: usize) {
    to.push(PUBLISH_1);
    push_length(to, 2 + topic.len() + ID + size);
    push_name(to, topic);
    to.extend_from_slice(&[0; ID]);
}

/// Gives a whole packet with a payload of `size` bytes the id of message number `number`.
#[inline]
pub fn set_id(packet: &mut [u8], size: usize, number: u64) {
    let at = packet.len() - size - ID;
    let id = (number % u64::from(u16::MAX)) as u16 + 1;
    packet[at..at + ID].copy_from_slice(&id.to_be_bytes());
}

/// Answers a whole packet with a payload of `size` bytes.
#[inline]
pub fn acknowledge(packet: &[u8], size: usize, to: &mut Vec<u8>) {
    let at = packet.len() - size - ID;
    to.extend_from_slice(&[PUBACK, ID as u8, packet[at], packet[at + 1]]);
}

pub fn delivered(topic: &str, size: usize) -> Vec<u8> {
    let mut prefix = Vec::new();
    begin(&mut prefix, topic, size);
    prefix
}

fn push_name(to: &mut Vec<u8>, name: &str) {
    to.extend_from_slice(&u16::try_from(name.len()).expect("names of the bench are short").to_be_bytes());
    to.extend_from_slice(name.as_bytes());
}

/// A length: seven bits in each byte, the lowest first.
#[inline]
fn push_length(to: &mut Vec<u8>, mut length: usize) {
    while length > 127 {
        to.push((length & 127) as u8 | 128);
        length >>= 7;
    }
    to.push(length as u8);
}

/// The length behind the first byte, and the place behind it; Some(None) if it is incomplete.
#[inline]
fn length(data: &[u8]) -> Option<Option<(usize, usize)>> {
    let mut length = 0;
    for (at, byte) in data.iter().enumerate().skip(1) {
        length |= usize::from(byte & 127) << (7 * (at - 1));
        match byte & 128 {
            0 => return Some(Some((length, at + 1))),
            _ if at == 4 => return None,
            _ => {}
        }
    }
    Some(None)
}

pub fn open(socket: &mut TcpStream) -> Result<(), BenchError> {
    socket.write_all(CONNECT)?;
    Reader::small().expect(PROTOCOL, socket, |next| matches!(next, Next::Other { .. }))
}

pub fn open_subscriber(
    socket: &mut TcpStream,
    reader: &mut Reader,
    topics: &[u8],
    qos: u8,
) -> Result<(), BenchError> {
    open(socket)?;
    let mut filters = 1_u16.to_be_bytes().to_vec();
    for topic in topics {
        push_name(&mut filters, &topic_name(*topic));
        filters.push(qos);
    }
    let mut packet = vec![0x82];
    push_length(&mut packet, filters.len());
    packet.extend_from_slice(&filters);
    socket.write_all(&packet)?;
    reader.expect(PROTOCOL, socket, |next| matches!(next, Next::Other { .. }))
}

#[inline]
pub fn next(data: &[u8]) -> Option<Next<'_>> {
    let Some(first) = data.first() else { return Some(Next::More) };
    let Some((length, from)) = length(data)? else { return Some(Next::More) };
    let end = from + length;
    if data.len() < end {
        return Some(Next::More);
    }
    match *first {
        first @ (PUBLISH | PUBLISH_1 | PUBLISH_1_AGAIN) => {
            let body = &data[from..end];
            let (name, body) = body.split_first_chunk::<2>()?;
            let (topic, rest) = body.split_at_checked(usize::from(u16::from_be_bytes(*name)))?;
            let payload = if first == PUBLISH { rest } else { rest.get(ID..)? };
            Some(Next::Message { topic, payload, len: end })
        }
        PUBACK if length == ID => Some(Next::Other { len: end, answer: None, accepted: Accepted::One }),
        // The last byte is the answer.
        CONNACK if length == 2 && data[end - 1] == 0 => Some(Next::ignored(end)),
        SUBACK if length > 2 && data[end - 1] < 0x80 => Some(Next::ignored(end)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_parsed_wherever_they_are_cut() {
        for size in [0, 1, 116, 117, 20_000] {
            let mut whole = delivered("bench.001", size);
            whole.extend(vec![b'p'; size]);
            for cut in 0..whole.len() {
                assert_eq!(next(&whole[..cut]), Some(Next::More), "{size} {cut}");
            }
            let len = whole.len();
            whole.push(PUBLISH);
            let payload = vec![b'p'; size];
            assert_eq!(next(&whole), Some(Next::Message { topic: b"bench.001", payload: &payload, len }));
        }
    }

    #[test]
    fn acknowledged_packets_have_ids_and_answers() {
        let mut packet = Vec::new();
        begin_acked(&mut packet, "bench.001", 3);
        packet.extend_from_slice(b"abc");
        set_id(&mut packet, 3, 0x1233);
        let len = packet.len();
        assert_eq!(next(&packet), Some(Next::Message { topic: b"bench.001", payload: b"abc", len }));
        let mut answer = Vec::new();
        acknowledge(&packet, 3, &mut answer);
        assert_eq!(answer, [0x40, 2, 0x12, 0x34]);
        let accepted = Next::Other { len: 4, answer: None, accepted: Accepted::One };
        assert_eq!(next(&answer), Some(accepted));
        let ids = [0, 65_534, 65_535].map(|number| {
            set_id(&mut packet, 3, number);
            [packet[len - 5], packet[len - 4]]
        });
        assert_eq!(ids, [[0, 1], [0xff, 0xff], [0, 1]]);
    }

    #[test]
    fn refusals_are_errors() {
        assert_eq!(next(b"\x20\x02\x00\x00"), Some(Next::ignored(4)));
        assert_eq!(next(b"\x90\x03\x00\x01\x00"), Some(Next::ignored(5)));
        assert_eq!(next(b"\x90\x03\x00\x01\x80"), None);
        assert_eq!(next(b"\x30\x80\x80\x80\x80\x01"), None);
        assert_eq!(next(b"\x30\x01\x00"), None);
    }
}
