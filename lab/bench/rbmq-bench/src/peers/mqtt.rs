//! MQTT 3.1.1 with QoS 0: what Mosquitto and RBMQ's gateway speak.
//!
//! ```text
//!   publisher   0x30, length, u16 9, bench.000, payload        nothing comes back
//!   subscriber  the same
//! ```

use std::{io::Write, net::TcpStream};

use super::{
    message::{Next, Protocol, topic_name},
    socket::Reader,
};
use crate::error::BenchError;

/// The protocol.
pub const PROTOCOL: Protocol = Protocol { name: "mqtt", parse: next };

/// CONNECT: protocol 4, a clean session, no keep-alive, no name.
const CONNECT: &[u8] = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00";
const PUBLISH: u8 = 0x30;
const CONNACK: u8 = 0x20;
const SUBACK: u8 = 0x90;

#[inline]
pub fn begin(to: &mut Vec<u8>, topic: &str, size: usize) {
    to.push(PUBLISH);
    push_length(to, 2 + topic.len() + size);
    push_name(to, topic);
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

pub fn open_subscriber(socket: &mut TcpStream, reader: &mut Reader, topics: &[u8]) -> Result<(), BenchError> {
    open(socket)?;
    let mut filters = 1_u16.to_be_bytes().to_vec();
    for topic in topics {
        push_name(&mut filters, &topic_name(*topic));
        filters.push(0);
    }
    let mut packet = vec![0x82];
    push_length(&mut packet, filters.len());
    packet.extend_from_slice(&filters);
    socket.write_all(&packet)?;
    reader.expect(PROTOCOL, socket, |next| matches!(next, Next::Other { .. }))
}

/// The protocol does not tell it.
pub fn version(socket: &mut TcpStream) -> Result<String, BenchError> {
    open(socket)?;
    Ok("3.1.1".to_owned())
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
        PUBLISH => {
            let body = &data[from..end];
            let (name, body) = body.split_first_chunk::<2>()?;
            let (topic, payload) = body.split_at_checked(usize::from(u16::from_be_bytes(*name)))?;
            Some(Next::Message { topic, payload, len: end })
        }
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
    fn refusals_are_errors() {
        assert_eq!(next(b"\x20\x02\x00\x00"), Some(Next::ignored(4)));
        assert_eq!(next(b"\x90\x03\x00\x01\x00"), Some(Next::ignored(5)));
        assert_eq!(next(b"\x90\x03\x00\x01\x80"), None);
        assert_eq!(next(b"\x30\x80\x80\x80\x80\x01"), None);
        assert_eq!(next(b"\x30\x01\x00"), None);
    }
}
