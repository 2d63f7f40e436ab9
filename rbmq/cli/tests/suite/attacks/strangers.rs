//! Peers that speak another protocol, or none.

use rbmq::wire::Role;
use rocketbufs::proto::Message;

use super::exchange::{CONTROL, Code, Exchange, Outcome, control, data, hello, said};

/// The first bytes of clients of other protocols.
const PROTOCOLS: [(&str, &[u8]); 24] = [
    ("HTTP/1.1", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("HTTP/1.0 POST with a body", b"POST / HTTP/1.0\r\nContent-Length: 4\r\n\r\nbody"),
    ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
    ("WebSocket", b"GET /chat HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
    ("TLS 1.3", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb"),
    ("SSL 3.0", b"\x16\x03\x00\x00\x2f\x01\x00\x00\x2b\x03\x00"),
    ("SSL 2.0", b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x01\x00\x80"),
    ("SSH", b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"),
    ("Redis", b"*1\r\n$4\r\nPING\r\n"),
    ("Redis, as text", b"CONFIG SET dir /var/spool/cron\r\n"),
    ("MQTT 3.1.1", b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04abcd"),
    ("MQTT 5", b"\x10\x11\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x04abcd"),
    ("AMQP 0-9-1", b"AMQP\x00\x00\x09\x01"),
    ("AMQP 1.0", b"AMQP\x03\x01\x00\x00"),
    ("Kafka", b"\x00\x00\x00\x14\x00\x12\x00\x03\x00\x00\x00\x01\x00\x04test\x00\x00\x00\x00"),
    ("NATS", b"CONNECT {\"verbose\":false}\r\nPING\r\n"),
    ("STOMP", b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"),
    ("SMTP", b"EHLO attacker.example\r\n"),
    ("PostgreSQL", b"\x00\x00\x00\x29\x00\x03\x00\x00user\0postgres\0database\0postgres\0\0"),
    ("memcached", b"set key 0 900 4\r\ndata\r\n"),
    ("ZMTP", b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL\0\0\0\0\0\0\0\0"),
    ("RTMP", b"\x03\0\0\0\0\0\0\0\0abcdefghijklmnop"),
    ("LDAP", b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00"),
    ("SMB", b"\x00\x00\x00\x54\xffSMB\x72\x00\x00\x00\x00\x18\x01\x28"),
];

fn stranger(name: String, bytes: Vec<u8>, outcome: Outcome) -> Exchange {
    Exchange { family: "strangers", name, role: None, bytes, outcome }
}

/// First bytes that no client sends.
pub fn strangers() -> Vec<Exchange> {
    let protocol = Outcome::Bye(Code::Protocol);
    let mut all: Vec<Exchange> = PROTOCOLS
        .iter()
        .map(|(name, bytes)| stranger(format!("a client of {name}"), bytes.to_vec(), Outcome::Closed))
        .collect();
    let filler: [(&str, Vec<u8>); 5] = [
        ("64 KiB of zeros", vec![0; 65_536]),
        ("64 KiB of ones", vec![0xFF; 65_536]),
        ("64 KiB of a letter", vec![b'A'; 65_536]),
        ("random bytes", (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()),
        ("line ends", b"\r\n".repeat(100)),
    ];
    all.extend(filler.map(|(name, bytes)| stranger(name.into(), bytes, Outcome::Closed)));
    for wire in [0, 1, 7, 0x7fff_fffe, 0x8000_0000, 0x8000_0001, 0xffff_fffe] {
        let name = format!("a transfer of id {wire:#x} before HELLO");
        all.push(stranger(name, data(wire, b"bytes"), Outcome::Closed));
        let name = format!("an empty transfer of id {wire:#x} before HELLO");
        all.push(stranger(name, data(wire, b""), Outcome::Closed));
    }
    for size in [65_537_u32, 1 << 20, 1 << 30, u32::MAX] {
        let bytes = [CONTROL.to_le_bytes(), size.to_le_bytes()].concat();
        all.push(stranger(format!("a control message of {size} bytes"), bytes, Outcome::Closed));
    }
    all.push(stranger("an empty control message".into(), control(b""), protocol));
    for (name, message) in [
        ("WELCOME", Message::Welcome(hello(Role::Publisher))),
        ("PING", Message::Ping(1)),
        ("PONG", Message::Pong(1)),
        ("APP", Message::App(b"x".to_vec())),
        ("UNSUBSCRIBE", Message::Unsubscribe(1)),
    ] {
        all.push(stranger(format!("{name} before HELLO"), said(&message), protocol));
    }
    for kind in
        (0..=255_u8).filter(|kind| !(1..=6).contains(kind) && !(0x10..=0x1b).contains(kind)).step_by(16)
    {
        let name = format!("a message of type {kind:#04x} before HELLO");
        all.push(stranger(name, control(&[kind; 40]), protocol));
    }
    all
}
