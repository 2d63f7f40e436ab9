//! MQTT over WebSocket: clients that write their own frames.

use rbmq_broker::GatewayProtocol;

use crate::site::{Client, Site};

const REQUEST: &str = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// CONNECT of MQTT 3.1.1, with a clean session and the client id `c`.
const CONNECT: &[u8] = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c";
const CONNACK: &[u8] = b"\x20\x02\x00\x00";
const PINGREQ: &[u8] = b"\xc0\x00";
const PINGRESP: &[u8] = b"\xd0\x00";

pub fn site(origins: &[&str]) -> Site {
    Site::with(GatewayProtocol::Mqtt, |config| {
        let gateway = &mut config.outside.gateway[0];
        gateway.websocket = true;
        gateway.origins = origins.iter().map(|&origin| origin.into()).collect();
    })
}

/// A frame of a client.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [1, 2, 0xf3, 4];
    let mut frame = vec![first];
    match payload.len() {
        short @ ..=125 => frame.push(0x80 | short as u8),
        middle @ ..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// The payload of a frame of the gateway, and the first byte of its header.
fn next(client: &mut Client) -> (u8, Vec<u8>) {
    let head = client.take(2);
    let len = match head[1] {
        126 => u64::from(u16::from_be_bytes(client.take(2).try_into().expect("two"))),
        127 => u64::from_be_bytes(client.take(8).try_into().expect("eight")),
        short => short.into(),
    };
    (head[0], client.take(len as usize))
}

/// The next bytes in frames of the gateway, as many as are expected.
fn expect(client: &mut Client, expected: &[u8]) {
    let mut got = Vec::new();
    while got.len() < expected.len() {
        let (first, payload) = next(client);
        assert_eq!(first, 0x82, "{payload:?}");
        got.extend(payload);
    }
    assert!(got == expected, "{} bytes that are others", got.len());
}

/// A client that has become one of WebSocket.
fn open(site: &Site) -> Client {
    let mut client = site.client();
    client.send(REQUEST);
    assert_eq!(client.line(), "HTTP/1.1 101 Switching Protocols\r\n");
    while client.line() != "\r\n" {}
    client
}

/// A client that is connected by MQTT too, with a letter as its client id.
fn connect(site: &Site, id: u8) -> Client {
    let mut client = open(site);
    client.send(frame(0x82, &[&CONNECT[..CONNECT.len() - 1], &[id]].concat()));
    expect(&mut client, CONNACK);
    client
}

#[test]
fn packets_of_mqtt_cross_frames_and_pings_come_between() {
    let site = site(&[]);
    let mut client = open(&site);
    // Three frames of one message, byte by byte, and a ping within.
    let begin = [frame(0x02, &CONNECT[..3]), frame(0x89, b"alive?"), frame(0x00, &CONNECT[3..9])].concat();
    for byte in begin {
        client.send([byte]);
    }
    assert_eq!(next(&mut client), (0x8a, b"alive?".to_vec()));
    // The end of one packet and the next one in a frame.
    let subscribe = b"\x82\x06\x00\x01\x00\x01t\x00";
    client.send(frame(0x80, &[&CONNECT[9..], &subscribe[..]].concat()));
    expect(&mut client, &[CONNACK, b"\x90\x03\x00\x01\x00"].concat());
    // A message that takes several frames both ways.
    let large = vec![b'x'; 200_000 - 3];
    let publish = [&b"\x30\xc0\x9a\x0c\x00\x01t"[..], &large].concat();
    client.send(publish.chunks(70_000).enumerate().fold(Vec::new(), |mut all, (at, part)| {
        all.extend(frame(if at == 0 { 0x02 } else { 0x00 }, part));
        all
    }));
    client.send(frame(0x80, b""));
    expect(&mut client, &publish);
    client.send(frame(0x88, b"\x03\xe8bye"));
    assert_eq!(next(&mut client), (0x88, b"\x03\xe8".to_vec()));
    assert!(client.has_ended());
}

#[test]
fn a_client_that_says_goodbye_by_mqtt_gets_a_close() {
    let site = site(&[]);
    let mut client = connect(&site, b'c');
    client.send(frame(0x82, b"\xe0\x00"));
    assert_eq!(next(&mut client), (0x88, b"\x03\xe8".to_vec()));
    client.send(frame(0x88, b"\x03\xe8"));
    assert!(client.has_ended());
}

#[test]
fn hostile_frames_get_a_code_and_others_go_on() {
    let site = site(&[]);
    let mut other = connect(&site, b'o');
    let frames: &[(&[u8], u16)] = &[
        (b"\x82\x05hello", 1002),
        (b"\xc2\x80\0\0\0\0", 1002),
        (b"\x83\x80\0\0\0\0", 1002),
        (b"\x80\x80\0\0\0\0", 1002),
        (b"\x09\x80\0\0\0\0", 1002),
        (b"\x89\xfe\x00\x7e", 1002),
        (b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 1002),
        (b"\x02\x80\0\0\0\0\x82", 1002),
        (b"\x88\x81\0\0\0\0x", 1002),
        (b"\x88\x83\0\0\0\0\x03\xe8\xff", 1007),
        (b"\x81\x85\0\0\0\0hello", 1003),
    ];
    for (bytes, code) in frames {
        let mut client = connect(&site, b'c');
        client.send(bytes);
        assert_eq!(next(&mut client), (0x88, code.to_be_bytes().to_vec()), "{bytes:?}");
        assert!(client.has_ended());
    }
    // The longest frame there can be is none of the gateway's memory. What is in it is no MQTT.
    let mut client = connect(&site, b'c');
    client.send(b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0");
    client.send(b"\xf0\xff\xff\xff\xff\x7f");
    let (first, payload) = next(&mut client);
    assert_eq!((first, payload), (0x88, b"\x03\xe8".to_vec()));
    other.send(frame(0x82, PINGREQ));
    expect(&mut other, PINGRESP);
}

#[test]
fn requests_that_are_none_of_websocket_or_of_other_sites_are_refused() {
    let site = site(&["https://dash.example"]);
    let page = |origin: &str| REQUEST.replace("Host:", &format!("Origin: {origin}\r\nHost:"));
    for (request, status) in [
        (page("https://evil.example"), "403 Forbidden"),
        (page("null"), "403 Forbidden"),
        (page("https://dash.example"), "101 Switching Protocols"),
        (REQUEST.replace("GET", "POST"), "405 Method Not Allowed"),
        (REQUEST.replace(": mqtt", ": chat"), "400 Bad Request"),
        (REQUEST.replace("Version: 13", "Version: 12"), "426 Upgrade Required"),
        (REQUEST.replace("/mqtt", &"/".repeat(9000)), "431 Request Header Fields Too Large"),
        (String::from_utf8(CONNECT.to_vec()).expect("ASCII"), "400 Bad Request"),
    ] {
        let mut client = site.client();
        client.send(&request);
        assert_eq!(client.line(), format!("HTTP/1.1 {status}\r\n"), "{request:?}");
    }
}
