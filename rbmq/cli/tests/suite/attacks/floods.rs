//! Peers that send too much, too slowly, or nothing, and do not stop.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use rbmq::wire::{Control, Role};
use rocketbufs::proto::Message;

use super::exchange::{app, create, hello, said};
use super::{Bystanders, MAX_GROWTH_KIB, resident_kib};
use crate::common::BrokerProcess;

/// Connections that stay open at the same time, below the usual limit on descriptors of a process.
const HALF_OPEN: usize = 400;

/// Runs an attack while others publish and receive. The broker's memory stays bounded.
fn attack(what: &str, run: impl FnOnce(&str) -> Vec<TcpStream>) {
    let mut broker = BrokerProcess::start();
    let mut bystanders = Bystanders::new(&broker.addr);
    bystanders.go_on("the start");
    let before = resident_kib(broker.process.id());
    let attackers = run(&broker.addr);
    bystanders.go_on(what);
    // Another client gets in while the attackers are connected.
    Bystanders::of(&broker.addr, "newcomers").go_on(what);
    let growth = resident_kib(broker.process.id()).saturating_sub(before);
    assert!(growth < MAX_GROWTH_KIB, "{what}: the broker has {growth} KiB more");
    drop(attackers);
    bystanders.go_on(what);
    assert!(broker.process.is_running());
}

fn connected(addr: &str, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(addr).expect("a broker listens");
    let _ = stream.write_all(bytes);
    stream
}

fn welcome(addr: &str, role: Role) -> TcpStream {
    let mut stream = connected(addr, &said(&Message::Hello(hello(role))));
    let mut head = [0; 8];
    stream.read_exact(&mut head).expect("WELCOME");
    stream
}

/// Writes without reading, until the broker takes no more or closes the connection, or `limit` bytes are written.
fn pour(stream: &mut TcpStream, bytes: &[u8], limit: usize) {
    stream.set_nonblocking(true).expect("a socket");
    let (mut written, mut refused) = (0, 0);
    while written < limit && refused < 100 {
        match stream.write(bytes) {
            // The rest of a frame that was cut is lost, and the next frame is garbage: an attack too.
            Ok(count) => (written, refused) = (written + count, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                refused += 1;
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            Err(_) => return,
        }
    }
}

#[test]
fn connections_that_say_nothing() {
    attack("silent connections", |addr| (0..HALF_OPEN).map(|_| connected(addr, b"")).collect());
}

#[test]
fn connections_that_stop_inside_their_first_message() {
    let first = said(&Message::Hello(hello(Role::Publisher)));
    attack("half first messages", |addr| {
        (0..HALF_OPEN).map(|n| connected(addr, &first[..1 + n % (first.len() - 1)])).collect()
    });
}

#[test]
fn connections_that_come_and_go() {
    let first = said(&Message::Hello(hello(Role::Subscriber)));
    attack("a storm of connections", |addr| {
        (0..4 * HALF_OPEN).for_each(|n| drop(connected(addr, if n % 2 == 0 { &first } else { b"" })));
        Vec::new()
    });
}

#[test]
fn first_messages_of_a_byte_at_a_time() {
    attack("slow first messages", |addr| {
        let mut stream = connected(addr, b"");
        stream.set_nodelay(true).expect("a socket");
        for byte in said(&Message::Hello(hello(Role::Subscriber))) {
            stream.write_all(&[byte]).expect("a slow client is still a client");
        }
        stream.read_exact(&mut [0; 8]).expect("WELCOME");
        vec![stream]
    });
}

#[test]
fn topics_without_end() {
    attack("a flood of CREATE", |addr| {
        let mut stream = welcome(addr, Role::Publisher);
        for bid in 0..40 {
            let some: Vec<u8> = (0..1000)
                .flat_map(|n| {
                    let bid = bid * 1000 + n;
                    app(&create(bid, 1 << 16, 1 << 12, format!("flood/{bid}").as_bytes()))
                })
                .collect();
            pour(&mut stream, &some, some.len());
        }
        vec![stream]
    });
}

#[test]
fn patterns_without_end() {
    let pattern: String = "+/".repeat(100) + "#";
    let topics = Control::Topics { filters: vec![pattern.parse().expect("a filter"); 60] };
    attack("a flood of patterns", |addr| {
        let mut stream = welcome(addr, Role::Subscriber);
        pour(&mut stream, &app(&topics.encode()), 32 << 20);
        vec![stream]
    });
}

#[test]
fn questions_whose_answers_nobody_reads() {
    for (role, question) in [
        (Role::Subscriber, said(&Message::Ping(1))),
        (Role::Publisher, app(&Control::AskStored { bid: 1, position: 1, synced: 1, archived: 1 }.encode())),
        (Role::Observer, app(&rbmq::wire::Observe::GetSummary { request: 1 }.encode())),
    ] {
        attack("a flood of questions", |addr| {
            let mut stream = welcome(addr, role);
            pour(&mut stream, &question.repeat(100), 32 << 20);
            vec![stream]
        });
    }
}
