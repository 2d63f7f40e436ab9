//! Strangers at all listeners of a node: they take no places from others, little memory, and few lines of the log.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;

use testkit::{Door, connect_from, is_in_own_network};

use crate::process::{Serving, certify, serve, write_own};

/// The places of each listener.
const PLACES: u32 = 32;
/// The most lines of the log for all strangers of the test. Each listener may say that there are too many, and why some failed, and again
/// every ten seconds.
const MOST_LINES: usize = 100;

/// A node with all listeners, and where they are.
struct Node {
    serving: Serving,
    log: std::path::PathBuf,
}

impl Node {
    fn start(folder: &Path, host: &str) -> Self {
        certify(folder);
        let at = folder.display();
        let files = format!("certificate = '{at}/chain.pem'\nprivate_key = '{at}/key.pem'\n");
        let servers: String =
            ["rtmp", "rtmps", "http", "https"].map(|name| format!("{name} = '{host}:0'\n")).concat();
        let text = format!(
            "transport = 'tcp'\n[limits]\nmax_connections = {PLACES}\n[tcp]\ntcp_num_threads = 1\n\
             [[nodes]]\nname = 'all'\nid = 1\nrole = 'both'\naddress = '{host}:0'\n\
             [control]\nlisten = '{host}:0'\nmax_connections = {PLACES}\ntoken = '0123456789abcdef'\n\
             [deliver]\nlisten = '{host}:0'\nmax_connections = {PLACES}\n{files}\
             [ingest]\n{servers}{files}[ingest.limits]\nconnections = {PLACES}\nidle_ms = 600000\n\
             [ingest.keys]\n'*' = '0123456789abcdef'\n"
        );
        let [config, log] = ["rblive.toml", "log"].map(|name| folder.join(name));
        write_own(&config, &text);
        let mut command = serve(&config);
        command.arg("--insecure").stderr(File::create(&log).unwrap());
        Self { serving: Serving::start(command), log }
    }

    /// The listener whose address follows `before`, reached at `host`.
    fn door(&self, name: &'static str, before: &str, host: IpAddr) -> Door {
        let port = self.serving.address(before).parse::<SocketAddr>().unwrap().port();
        // RTMP's handshake, and messages without end in many chunk streams. A TLS handshake, and a head, without end.
        let chunk = [&[3][..], &[0; 3], &[0, 0xFF, 0xFF, 20, 0, 0, 0, 0], &[0; 128]].concat();
        let rtmp = [[&[3][..], &[0; 3072]].concat(), chunk];
        let record = [&[0x16, 3, 1, 0x40, 0, 1, 0, 0xFF, 0xFF][..], &[3; 0x3FFC]].concat();
        let tls = [record.clone(), [&[0x16, 3, 1, 0x40, 0][..], &[3; 0x4000]].concat()];
        let http = [b"PUT /live/a/0.ts HTTP/1.1\r\nHost: x\r\nX: ".to_vec(), vec![b'a'; 4096]];
        let node = [[0x7FFF_FFFF_u32.to_le_bytes(), 65_000_u32.to_le_bytes()].concat(), vec![1; 4096]];
        let (begin, serves): (_, fn(TcpStream) -> bool) = match name {
            "rtmp" => (rtmp, |stream| said(stream, &[&[3][..], &[0; 1536]].concat(), &[3])),
            "http" => (http, |stream| said(stream, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 405")),
            "control" => (http, |stream| {
                said(stream, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200")
            }),
            // The answer to a message that is none is BYE, for a breach of the protocol.
            "nodes" => (node, |mut stream| {
                let mut answer = [0; 11];
                let _ = stream.write_all(b"\xff\xff\xff\x7f\x05\0\0\0hello");
                stream.read_exact(&mut answer).is_ok() && answer[8..] == [3, 2, 0]
            }),
            // The answer to a hello that is none is an alert.
            _ => (tls, |stream| said(stream, &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0], &[0x15])),
        };
        Door { name, address: SocketAddr::new(host, port), places: PLACES, begin, serves }
    }

    fn doors(&self, host: IpAddr) -> [Door; 7] {
        [
            ("nodes", "streams of other nodes at "),
            ("rtmp", "encoders at rtmp://"),
            ("rtmps", "encoders at rtmps://"),
            ("http", "encoders at http://"),
            ("https", "encoders at https://"),
            ("viewers", "viewers at https://"),
            ("control", "control and metrics at http://"),
        ]
        .map(|(name, before)| self.door(name, before, host))
    }
}

/// Sends, and says whether the answer begins so.
fn said(mut stream: TcpStream, bytes: &[u8], expected: &[u8]) -> bool {
    let mut answer = vec![0; expected.len()];
    stream.write_all(bytes).is_ok() && stream.read_exact(&mut answer).is_ok() && answer == expected
}

/// A door that asks for a secret refuses an address that guesses, and no other one; and it refuses the pages of other web sites.
fn refuses_guesses_and_pages(door: &Door, stranger: IpAddr, client: IpAddr) {
    let begin = match door.name {
        "http" => "PUT /live/a/0.ts?key=wrongwrongwrongw",
        "control" => "PUT /streams/0000000000000001/nodes/1",
        _ => return,
    };
    let ask = |source, more: &str| {
        let mut stream = connect_from(source, door.address);
        let token = "Authorization: Bearer wrongwrongwrongw\r\nContent-Length: 0\r\nConnection: close\r\n";
        stream
            .write_all(format!("{begin} HTTP/1.1\r\nHost: localhost\r\n{token}{more}\r\n").as_bytes())
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap_or_else(|| panic!("{}: {answer}", door.name)).to_owned()
    };
    let guesses: Vec<String> = (0..40).map(|_| ask(stranger, "")).collect();
    assert!(guesses[0] == "401" && guesses.iter().any(|own| own == "429"), "{}: {guesses:?}", door.name);
    assert_eq!(ask(client, ""), "401", "{}", door.name);
    // The key or the token decides, which no other page has.
    assert_eq!(ask(client, "Origin: http://evil.example\r\n"), "401", "{}", door.name);
}

/// Strangers of these addresses are at all doors of a node, and a client of another address is served.
fn are_open_to_others(host: IpAddr, strangers: impl Fn(u32) -> IpAddr, client: IpAddr) {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), if host.is_ipv6() { "[::]" } else { "127.0.0.1" });
    for door in node.doors(host) {
        door.is_open_to_others(&strangers, client, node.serving.process.id());
        refuses_guesses_and_pages(&door, strangers(0), client);
    }
    let log = std::fs::read_to_string(&node.log).unwrap();
    assert!(log.lines().count() <= MOST_LINES, "{log}");
    let says = |what: &str| {
        log.lines().any(|line| line.contains(what) && line.contains(&strangers(0).to_string()[..9]))
    };
    assert!(says("ingest.limits.connections = 24"), "{log}");
    assert!(
        says("deliver.max_connections_per_address = 24") && says("control.max_connections = 24"),
        "{log}"
    );
}

#[test]
fn an_address_takes_no_places_from_others() {
    let address = |n| IpAddr::V4(Ipv4Addr::new(127, 0, 0, n));
    are_open_to_others(address(1), |_| address(2), address(1));
}

#[test]
fn a_network_of_one_customer_takes_no_places_from_others() {
    if is_in_own_network("strangers::a_network_of_one_customer_takes_no_places_from_others") {
        let address = |network: u128, n: u32| {
            IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | network << 64 | u128::from(n)))
        };
        are_open_to_others(Ipv6Addr::LOCALHOST.into(), |n| address(0, n + 1), address(1, 1));
    }
}
