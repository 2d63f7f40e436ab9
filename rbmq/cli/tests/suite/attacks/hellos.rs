//! First messages with faults: of the framework's part, and of RBMQ's part.

use rbmq::wire::Role;
use rocketbufs::proto::{Hello, Message};

use super::exchange::{Code, Exchange, Outcome, control, hello, hello_with, said};

fn first(name: String, bytes: Vec<u8>, outcome: Outcome) -> Exchange {
    Exchange { family: "first messages", name, role: None, bytes, outcome }
}

/// The framework's HELLO.
pub fn hellos() -> Vec<Exchange> {
    let protocol = Outcome::Bye(Code::Protocol);
    let good = Message::Hello(hello(Role::Publisher)).encode();
    let mut all = Vec::new();
    for at in 1..good.len() {
        all.push(first(
            format!("HELLO cut after {at} of {} bytes", good.len()),
            control(&good[..at]),
            protocol,
        ));
    }
    let longer = [&good[..], b"\0"].concat();
    all.push(first("HELLO with a byte more".into(), control(&longer), protocol));
    for at in 1..5 {
        let mut bytes = good.clone();
        bytes[at] ^= 0x20;
        all.push(first(
            format!("HELLO with another byte {} of its magic", at - 1),
            control(&bytes),
            protocol,
        ));
    }
    all.push(Exchange {
        role: Some(Role::Publisher),
        ..first("a second HELLO".into(), control(&good), protocol)
    });
    let welcome = said(&Message::Welcome(hello(Role::Publisher)));
    all.push(Exchange {
        role: Some(Role::Publisher),
        ..first("WELCOME of a client".into(), welcome, protocol)
    });
    all.extend(fields());
    all
}

fn fields() -> Vec<Exchange> {
    let version = Outcome::Bye(Code::Version);
    let base = || hello(Role::Observer);
    let cases: [(&str, Hello, Outcome); 11] = [
        ("versions from 0 to 0", Hello { min_version: 0, max_version: 0, ..base() }, version),
        ("versions from 2 to 9", Hello { min_version: 2, max_version: 9, ..base() }, version),
        ("versions from 65535", Hello { min_version: u16::MAX, max_version: u16::MAX, ..base() }, version),
        ("versions from 2 to 1", Hello { min_version: 2, max_version: 1, ..base() }, version),
        (
            "versions from 0 to 65535",
            Hello { min_version: 0, max_version: u16::MAX, ..base() },
            Outcome::Harmless,
        ),
        ("all capabilities", Hello { capabilities: u32::MAX, ..base() }, Outcome::Harmless),
        ("instance 0", Hello { instance: 0, ..base() }, Outcome::Harmless),
        ("the largest heartbeat", Hello { heartbeat_ms: u32::MAX, ..base() }, Outcome::Harmless),
        ("a heartbeat of 1 ms", Hello { heartbeat_ms: 1, ..base() }, Outcome::Harmless),
        ("control messages of 4 GiB", Hello { max_control_bytes: u32::MAX, ..base() }, Outcome::Harmless),
        ("control messages of 0 bytes", Hello { max_control_bytes: 0, ..base() }, Outcome::Harmless),
    ];
    cases
        .map(|(name, hello, outcome)| {
            first(format!("HELLO with {name}"), said(&Message::Hello(hello)), outcome)
        })
        .into()
}

/// RBMQ's part of HELLO.
pub fn introductions() -> Vec<Exchange> {
    let refused = Outcome::Bye(Code::NotAccepted);
    let of = |name: String, bytes: Vec<u8>| {
        let bytes = said(&Message::Hello(hello_with(bytes)));
        Exchange { family: "introductions", ..first(name, bytes, refused) }
    };
    let good = hello(Role::Publisher).hello;
    let mut all: Vec<Exchange> = (0..good.len())
        .map(|at| of(format!("an introduction cut after {at} of {} bytes", good.len()), good[..at].to_vec()))
        .collect();
    all.push(of("an introduction with a byte more".into(), [&good[..], b"\0"].concat()));
    all.push(of("1,024 bytes of another application".into(), vec![b'x'; 1024]));
    all.push(of("an HTTP request as the introduction".into(), b"GET / HTTP/1.1\r\n\r\n".to_vec()));
    let changes: [(&str, usize, u8); 9] = [
        ("version 0", 4, 0),
        ("version 77", 4, 77),
        ("version 255", 4, 255),
        ("role 0", 5, 0),
        ("role 5", 5, 5),
        ("role 255", 5, 255),
        ("a reserved byte that is set", 6, 1),
        ("another reserved byte that is set", 7, 0x80),
        ("a name that is no UTF-8", 25, 0xff),
    ];
    for (name, at, value) in changes {
        let mut bytes = good.clone();
        bytes[at] = value;
        all.push(of(format!("an introduction with {name}"), bytes));
    }
    let mut nobody = hello_with(good);
    nobody.hello[8..24].fill(0);
    nobody.instance = 0;
    let bytes = said(&Message::Hello(nobody));
    let name = "a publisher without an instance and a client number".into();
    all.push(Exchange { family: "introductions", ..first(name, bytes, refused) });
    all
}
