//! Strangers at all listeners of a broker: they take no places from others, little memory, and few lines of the log.

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::Stdio;

use rbmq::wire::Role;
use rocketbufs::proto::Message;
use testkit::{Door, Process, Raw, is_in_own_network};

use super::exchange::hello;
use crate::common::rbmq;
use crate::common::setup::Setup;

/// The places of each listener.
const PLACES: u32 = 32;
/// The most lines of the log for all strangers at the listeners of one broker, which says the same thing every ten seconds at most.
const MOST_LINES: usize = 100;

fn is_answered(mut stream: TcpStream, bytes: &[u8], expected: &[u8]) -> bool {
    let mut answer = vec![0; expected.len()];
    stream.write_all(bytes).is_ok() && stream.read_exact(&mut answer).is_ok() && answer == expected
}

/// A listener of a broker, with or without TLS, by the line in which the broker says where it is.
fn door(name: &'static str, encrypted: bool, line: &str, host: IpAddr) -> Door {
    let address = line.rsplit([' ', '/']).find_map(|part| part.trim().parse::<SocketAddr>().ok());
    let address = SocketAddr::new(host, address.unwrap_or_else(|| panic!("{line}")).port());
    let record = [&[0x16, 3, 1, 0x40, 0, 1, 0, 0xFF, 0xFF][..], &[3; 0x3FFC]].concat();
    let (begin, serves): (_, fn(TcpStream) -> bool) = match name {
        _ if encrypted => (
            [record, [&[0x16, 3, 1, 0x40, 0][..], &[3; 0x4000]].concat()],
            // The answer to a hello that is none is an alert.
            |stream| is_answered(stream, &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0], &[0x15]),
        ),
        "http" => ([b"GET /health HTTP/1.1\r\nHost: x\r\nX: ".to_vec(), vec![b'a'; 4096]], |stream| {
            is_answered(stream, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200")
        }),
        _ => {
            ([[0x7FFF_FFFF_u32.to_le_bytes(), 65_000_u32.to_le_bytes()].concat(), vec![1; 4096]], |stream| {
                let mut peer = Raw::of(stream);
                peer.say(&Message::Hello(hello(Role::Subscriber)));
                matches!(peer.hear(), Some(Message::Welcome(_)))
            })
        }
    };
    Door { name, address, places: PLACES, begin, serves }
}

fn are_open_to_others(encrypted: bool, host: IpAddr, strangers: impl Fn(u32) -> IpAddr, client: IpAddr) {
    let setup = Setup::new();
    let more = format!(
        "[limits]\nmax_connections = {PLACES}\n[tcp]\ntcp_num_threads = 1\n[session]\nhandshake_timeout_ms = 600000\n\
         [http]\nmax_connections = {PLACES}\nheader_timeout_ms = 600000\n"
    );
    let config = setup.config(&more);
    if !encrypted {
        std::fs::write(&config, more).expect("a file");
    }
    let (listen, log) = (if host.is_ipv6() { "[::]:0" } else { "127.0.0.1:0" }, setup.file("log"));
    let config = config.to_str().expect("UTF-8");
    let mut command = rbmq(["serve", "--insecure", "--listen", listen, "--http", listen, "--config", config]);
    command.stdout(Stdio::piped()).stderr(File::create(&log).expect("a file"));
    let mut broker = Process::start(command);
    let mut lines = broker.stdout().lines().map(|line| line.expect("text"));
    let mut find =
        |what: &str| lines.find(|line| line.contains(what)).expect("the broker says where it listens");
    let doors = [("clients", "listening on"), ("http", "metrics on")]
        .map(|(name, what)| door(name, encrypted, find(what).trim_end_matches("/metrics"), host));
    for door in &doors {
        door.is_open_to_others(&strangers, client, broker.id());
    }
    broker.signal("TERM");
    broker.finish().good();
    let log = std::fs::read_to_string(&log).expect("a log");
    assert!(log.lines().count() <= MOST_LINES, "{log}");
    assert!(log.contains("http.max_connections = 24") && log.contains("limits.max_connections"), "{log}");
}

#[test]
fn an_address_takes_no_places_from_others() {
    let address = |n| IpAddr::V4(Ipv4Addr::new(127, 0, 0, n));
    for encrypted in [false, true] {
        are_open_to_others(encrypted, address(1), |_| address(2), address(1));
    }
}

#[test]
fn a_network_of_one_customer_takes_no_places_from_others() {
    if is_in_own_network("attacks::places::a_network_of_one_customer_takes_no_places_from_others") {
        let address = |network: u128, n: u32| {
            IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | network << 64 | u128::from(n)))
        };
        for encrypted in [false, true] {
            are_open_to_others(encrypted, Ipv6Addr::LOCALHOST.into(), |n| address(0, n + 1), address(1, 1));
        }
    }
}
