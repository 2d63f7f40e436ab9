//! Requests and frames of WebSocket.

use super::mqtt::connect;
use super::peer::REQUEST;
use super::{Begin, Case};

const MASK: [u8; 4] = [0x11, 0x22, 0x33, 0x44];

fn cases<const N: usize>(family: &'static str, begin: Begin, all: [(&str, Vec<u8>, &str); N]) -> Vec<Case> {
    all.map(|(name, bytes, required)| Case::new(family, begin, name, bytes, required)).into()
}

/// A frame of a client.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        short @ ..=125 => bytes.push(0x80 | short as u8),
        long => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&(long as u16).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

const REQUESTS: &str = "WebSocket: requests";

const BAD: &str = "HTTP/1.1 400 Bad Request; closed";
const FORBIDDEN: &str = "HTTP/1.1 403 Forbidden; closed";
const METHOD: &str = "HTTP/1.1 405 Method Not Allowed; closed";
const UPGRADE: &str = "HTTP/1.1 426 Upgrade Required; closed";
const LARGE: &str = "HTTP/1.1 431 Request Header Fields Too Large; closed";

/// A good request with something else in it.
fn with(from: &str, to: &str) -> Vec<u8> {
    REQUEST.replacen(from, to, 1).into_bytes()
}

/// A good request with more fields.
fn more(fields: &str) -> Vec<u8> {
    with("\r\n\r\n", &format!("\r\n{fields}\r\n\r\n"))
}

pub fn requests() -> Vec<Case> {
    cases(
        REQUESTS,
        Begin::Request,
        [
            ("POST", with("GET", "POST"), METHOD),
            ("HTTP/1.0", with("HTTP/1.1", "HTTP/1.0"), METHOD),
            ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), BAD),
            ("no HTTP", b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00\r\n\r\n".to_vec(), BAD),
            ("a client hello of TLS", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n".to_vec(), BAD),
        ],
    )
}

pub fn fields() -> Vec<Case> {
    cases(
        REQUESTS,
        Begin::Request,
        [
            ("without Host", with("Host: localhost\r\n", ""), BAD),
            ("with two Hosts", more("Host: other"), BAD),
            ("without Upgrade", with("Upgrade: websocket\r\n", ""), UPGRADE),
            ("with another Upgrade", with("Upgrade: websocket", "Upgrade: h2c"), UPGRADE),
            ("without Connection", with("Connection: Upgrade\r\n", ""), UPGRADE),
            ("of version 8", with("Version: 13", "Version: 8"), UPGRADE),
            ("without a version", with("Sec-WebSocket-Version: 13\r\n", ""), UPGRADE),
            ("without a key", with("Sec-WebSocket-Key", "X"), BAD),
            ("with a short key", with("dGhlIHNhbXBsZSBub25jZQ==", "dGhl"), BAD),
            ("with two keys", more("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), BAD),
            ("without a protocol", with("Sec-WebSocket-Protocol: mqtt\r\n", ""), BAD),
            ("for another protocol", with("Protocol: mqtt", "Protocol: chat"), BAD),
        ],
    )
}

pub fn pages() -> Vec<Case> {
    cases(
        REQUESTS,
        Begin::Request,
        [
            ("of a page of another site", more("Origin: http://evil.example"), FORBIDDEN),
            ("of a page without a site", more("Origin: null"), FORBIDDEN),
            ("of two sites", more("Origin: http://localhost\r\nOrigin: http://evil.example"), BAD),
            (
                "of a page whose name leads here",
                with("Host: localhost", "Origin: http://evil.example\r\nHost: evil.example"),
                FORBIDDEN,
            ),
            ("with 70 fields", more(&vec!["X: y"; 70].join("\r\n")), LARGE),
            ("with a field of 9 KiB", more(&format!("X: {}", "y".repeat(9 << 10))), LARGE),
            ("with a path of 9 KiB", with("/mqtt", &"/".repeat(9 << 10)), LARGE),
            ("with a NUL", with("/mqtt", "/\0"), BAD),
            ("with a folded field", more("X: y\r\n z"), BAD),
            ("with a field without a name", more(": y"), BAD),
        ],
    )
}

pub fn cut_requests() -> Vec<Case> {
    let early = [REQUEST.as_bytes(), &frame(0x82, &connect(5, "early"))].concat();
    let answers = "HTTP/1.1 101 Switching Protocols, CONNACK 0x00, close 1000; closed";
    let mut all = vec![Case::new(REQUESTS, Begin::Request, "with frames behind it", early, answers).ending()];
    all.extend((8..REQUEST.len()).step_by(32).map(|end| {
        let (name, bytes) = (format!("a request cut after {end} bytes"), &REQUEST.as_bytes()[..end]);
        Case::new(REQUESTS, Begin::Request, &name, bytes, "closed").ending()
    }));
    all
}

const FRAMES: &str = "WebSocket: frames";

pub fn frames() -> Vec<Case> {
    let packet = frame(0x82, &connect(5, "in a frame")[..9]);
    let mut all = Case::cuts(FRAMES, Begin::Web, "a frame", &packet, "close 1000; closed");
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        let name = format!("the opcode {opcode}");
        all.push(Case::new(FRAMES, Begin::Web, &name, frame(0x80 | opcode, b"x"), "close 1002; closed"));
    }
    all.extend(cases(
        FRAMES,
        Begin::Web,
        [
            ("without a mask", vec![0x82, 1, b'x'], "close 1002; closed"),
            ("the first reserved bit", frame(0xC2, b"x"), "close 1002; closed"),
            ("the second reserved bit", frame(0xA2, b"x"), "close 1002; closed"),
            ("the third reserved bit", frame(0x92, b"x"), "close 1002; closed"),
            ("text", frame(0x81, b"x"), "close 1003; closed"),
            ("empty text", frame(0x81, b""), "close 1003; closed"),
            ("a ping in pieces", frame(0x09, b"x"), "close 1002; closed"),
            ("a close in pieces", frame(0x08, b""), "close 1002; closed"),
            ("a ping of 126 bytes", frame(0x89, &[b'x'; 126]), "close 1002; closed"),
            ("a pong of 1,000 bytes", frame(0x8A, &[b'x'; 1000]), "close 1002; closed"),
            ("a pong without a ping", frame(0x8A, b"x"), "goes on"),
            ("a continuation of nothing", frame(0x80, b"x"), "close 1002; closed"),
            (
                "a message within a message",
                [frame(0x02, &[]), frame(0x82, &[])].concat(),
                "close 1002; closed",
            ),
            ("a message that does not end", frame(0x02, &[]), "goes on"),
        ],
    ));
    all
}

pub fn lengths() -> Vec<Case> {
    let long = |second: u8, length: &[u8]| [&[0x82, second][..], length, &MASK].concat();
    cases(
        FRAMES,
        Begin::Web,
        [
            ("a length of 5 in three bytes", long(0xFE, &[0, 5]), "close 1002; closed"),
            (
                "a length of 1,000 in nine bytes",
                long(0xFF, &[0, 0, 0, 0, 0, 0, 3, 0xE8]),
                "close 1002; closed",
            ),
            ("a length of 2^63", long(0xFF, &[0x80, 0, 0, 0, 0, 0, 0, 0]), "close 1002; closed"),
            ("a length of 2^64 - 1", long(0xFF, &[0xFF; 8]), "close 1002; closed"),
            (
                "a length of 2^63 - 1, with a packet",
                [long(0xFF, &[0x7F, 255, 255, 255, 255, 255, 255, 255]), vec![0xFF; 64]].concat(),
                "close 1000; closed",
            ),
            ("1,000 pings", frame(0x89, b"ping").repeat(1000), "goes on"),
            (
                "10,000 frames without content",
                [frame(0x02, &[]), frame(0x00, &[]).repeat(10_000), frame(0x80, &[])].concat(),
                "goes on",
            ),
        ],
    )
}

/// All of them are read before the client closes its side.
pub fn whole_frames() -> Vec<Case> {
    let packet = connect(5, "in a frame");
    let bytes = packet.iter().enumerate();
    let single = bytes.flat_map(|(at, byte)| frame(if at == 0 { 0x02 } else { 0x00 }, &[*byte])).collect();
    let none = [frame(0x82, &packet), frame(0x82, &[0x00, 0])].concat();
    let all = [
        ("a packet in frames of a byte", single, "CONNACK 0x00, close 1000; closed"),
        ("a first packet that is not CONNECT", frame(0x82, &[0xC0, 0]), "close 1000; closed"),
        ("a packet that is none", none, "CONNACK 0x00, close 1000; closed"),
    ];
    cases(FRAMES, Begin::Web, all).into_iter().map(Case::ending).collect()
}

pub fn closes() -> Vec<Case> {
    const FAMILY: &str = "WebSocket: closes";
    let mut all = Vec::new();
    for (code, required) in [
        (0_u16, "close 1002; closed"),
        (999, "close 1002; closed"),
        (1000, "close 1000; closed"),
        (1001, "close 1001; closed"),
        (1004, "close 1002; closed"),
        (1005, "close 1002; closed"),
        (1006, "close 1002; closed"),
        (1011, "close 1011; closed"),
        (1015, "close 1002; closed"),
        (1016, "close 1002; closed"),
        (2999, "close 1002; closed"),
        (3000, "close 3000; closed"),
        (4999, "close 4999; closed"),
        (5000, "close 1002; closed"),
        (65_535, "close 1002; closed"),
    ] {
        let bytes = frame(0x88, &code.to_be_bytes());
        all.push(Case::new(FAMILY, Begin::Web, &format!("the code {code}"), bytes, required));
    }
    all.extend(cases(
        FAMILY,
        Begin::Web,
        [
            ("without a code", frame(0x88, b""), "close without a code; closed"),
            ("half a code", frame(0x88, &[3]), "close 1002; closed"),
            ("a reason that is no UTF-8", frame(0x88, b"\x03\xe8\xff"), "close 1007; closed"),
            (
                "a close with frames behind it",
                [frame(0x88, &[3, 0xE8]), frame(0x82, b"x")].concat(),
                "close 1000; closed",
            ),
        ],
    ));
    all
}
