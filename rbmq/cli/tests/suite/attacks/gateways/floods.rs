//! Clients of gateways that send without end, too slowly, or nothing.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use access::{TokenHash, UsersFile, new_token};
use testkit::{own_addr, resident_kib, until};

use super::mqtt::{body, connect, text};
use super::peer::{Peer, REQUEST};
use super::resp::{command, words};
use super::{Begin, Bystanders, Case, MAX_GROWTH_KIB, Site};
use crate::common::BrokerProcess;

/// Connections that stay open at the same time.
const MANY: usize = 200;

fn case(name: &str, begin: Begin, bytes: Vec<u8>, required: &str) -> Case {
    Case::new("floods", begin, name, bytes, required)
}

/// More than a client may have of something.
fn excesses() -> Vec<Case> {
    redis_excesses().into_iter().chain(mqtt_excesses()).collect()
}

fn redis_excesses() -> Vec<Case> {
    let names = |verb: &str, from: u32, to: u32| {
        let names: Vec<String> = (from..to).map(|number| format!("{number}")).collect();
        let words: Vec<&[u8]> =
            std::iter::once(verb).chain(names.iter().map(String::as_str)).map(str::as_bytes).collect();
        command(&words)
    };
    let thousand = |first| names("SUBSCRIBE", first, 100_001.min(first + 1000));
    let queue = [words("MULTI"), words("PING").repeat(100_000), words("EXEC")].concat();
    let logins = words("AUTH user secret").repeat(20_000);
    [
        (
            "a transaction of 100,000 commands",
            queue,
            "100002 answers, the last -EXECABORT Transaction discarded because of previous errors.; goes on",
        ),
        (
            "150,000 channels in a command",
            names("SUBSCRIBE", 0, 150_000),
            "-ERR Protocol error: too big request; closed",
        ),
        (
            "100,001 channels",
            (0..=100).flat_map(|number| thousand(1000 * number)).collect(),
            "100001 answers, the last -ERR a client has 100000 channels and patterns at most; goes on",
        ),
        ("1,001 patterns", names("PSUBSCRIBE", 0, 1001), "-ERR a client has 1000 patterns at most; goes on"),
        (
            "100,000 names to leave",
            names("UNSUBSCRIBE", 0, 100_000),
            "-ERR Protocol error: too big request; closed",
        ),
        ("20,000 logins", logins, "20000 answers, the last +OK; goes on"),
    ]
    .map(|(name, bytes, required)| case(name, Begin::Redis, bytes, required))
    .into()
}

fn mqtt_excesses() -> [Case; 2] {
    let subscribe = |number: u32| {
        let filters: Vec<u8> =
            (0..1000).flat_map(|at| [text(format!("{number}/{at}")), vec![0]].concat()).collect();
        body(0x82, &[&[0, 7, 0], &filters])
    };
    let retained = |number: u32| body(0x33, &[&text(format!("retained/{number}")), &[0, 1, 0], b"x"]);
    let (filters, messages) = ((0..20).flat_map(subscribe), (0..100_001).flat_map(retained));
    let most = "100001 answers, the last PUBACK 0x97; goes on";
    [
        case(
            "20,000 filters",
            Begin::Mqtt(5),
            filters.collect(),
            "20 answers, the last SUBACK 0x97; goes on",
        ),
        case("100,001 retained messages", Begin::Mqtt(5), messages.collect(), most),
    ]
}

/// Writes without reading, until the gateway takes no more or closes the connection, or `limit` bytes are written.
fn pour(stream: &mut TcpStream, bytes: &[u8], limit: usize) {
    stream.set_nonblocking(true).expect("a socket");
    let (mut written, mut refused) = (0, 0);
    while written < limit && refused < 50 {
        match stream.write(&bytes[written % bytes.len()..]) {
            Ok(count) => (written, refused) = (written + count, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                refused += 1;
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            Err(_) => return,
        }
    }
}

fn connected(addr: &str, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(addr).expect("the gateway listens");
    let _ = stream.write_all(bytes);
    stream
}

/// Clients that write and read nothing: replies, messages of their own, pongs.
fn deaf(site: &Site) -> Vec<TcpStream> {
    let own = [words("HELLO 3"), words("SUBSCRIBE loud")].concat();
    let loud = command(&[b"PUBLISH", b"loud", &[b'x'; 4096]]);
    let ping = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[b'p'; 125]].concat();
    let mqtt = [connect(5, "deaf"), body(0x82, &[&[0, 7, 0], &text("loud"), &[0]])].concat();
    let all: [(&str, &[u8], Vec<u8>); 4] = [
        (&site.resp, b"", words("COMMAND").repeat(100)),
        (&site.resp, &own, loud.repeat(10)),
        (&site.mqtt, &mqtt, body(0x30, &[&text("loud"), &[0], &[b'x'; 4096]]).repeat(10)),
        (&site.web, REQUEST.as_bytes(), ping.repeat(100)),
    ];
    let mut streams = Vec::new();
    for (addr, begin, bytes) in all {
        let mut stream = connected(addr, begin);
        pour(&mut stream, &bytes, 16 << 20);
        streams.push(stream);
    }
    streams
}

/// Clients that say nothing, or stop in the middle of their first words.
fn silent(site: &Site) -> Vec<TcpStream> {
    let hello = words("HELLO 3");
    let first = [(&site.resp, hello), (&site.mqtt, connect(5, "silent")), (&site.web, REQUEST.into())];
    let each = |number: usize| {
        let (addr, bytes) = &first[number % first.len()];
        connected(addr, &bytes[..number % bytes.len()])
    };
    (0..MANY).map(each).collect()
}

#[test]
fn clients_of_gateways_that_send_without_end_are_bounded() {
    let mut site = Site::new();
    let mut bystanders = Bystanders::new(&site);
    bystanders.go_on("the start");
    let before = resident_kib(site.broker.process.id());
    for case in excesses() {
        assert_eq!(site.connect(case.begin).answer(&case), case.required, "{}", case.name);
        bystanders.go_on(&case.name);
    }
    let attackers = (deaf(&site), silent(&site));
    bystanders.go_on("clients that read nothing");
    // Another client gets in while they are connected.
    Bystanders::of(&site, "newcomers").go_on("newcomers");
    for number in 0..4 * MANY {
        drop(connected([&site.resp, &site.mqtt, &site.web][number % 3], b"\x10"));
    }
    bystanders.go_on("clients that come and go");
    let growth = resident_kib(site.broker.process.id()).saturating_sub(before);
    assert!(growth < MAX_GROWTH_KIB, "the broker has {growth} KiB more");
    drop(attackers);
    bystanders.go_on("the end");
    assert!(site.broker.process.is_running());
}

#[test]
fn a_thousand_wrong_logins_get_nobody_in_and_keep_nobody_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (users, config, resp) = (path("users.toml"), path("rbmq.toml"), own_addr());
    let good = new_token().expect("random bytes");
    std::fs::write(&users, "[[user]]\nname = 'alice'\n").expect("a file");
    std::fs::set_permissions(&users, PermissionsExt::from_mode(0o600)).expect("a file");
    let mut file = UsersFile::edit(users.as_ref()).expect("a file");
    file.add_token("t", "alice", &TokenHash::of(&good), std::time::SystemTime::now(), None).expect("a token");
    file.save().expect("a file");
    let rule = "[[access.rules]]\nusers = ['*']\npublish = ['#']\nsubscribe = ['#']\n";
    std::fs::write(&config, format!("{rule}[[gateway]]\nprotocol = 'resp'\nlisten = '{resp}'\n"))
        .expect("a file");
    let mut broker = BrokerProcess::start_with(&["--users", &users, "--config", &config]);
    until("the gateway listens", || TcpStream::connect(&resp).is_ok());
    let good = words(&format!("AUTH {}", good.expose()));
    let ends = |bytes: Vec<u8>| {
        let case = case("logins", Begin::Redis, bytes, "").ending();
        Peer::connect(&resp, Begin::Redis).answer(&case)
    };
    assert_eq!(ends([good.clone(), words("PING")].concat()), "+OK, +PONG; closed");
    let wrong = |number: u32| words(&format!("AUTH rbmq_{number}"));
    let flood: Vec<u8> = (0..1000).flat_map(wrong).chain(words("PUBLISH a b")).collect();
    assert_eq!(ends(flood), "1001 answers, the last -NOAUTH Authentication required.; closed");
    let many = [b"*11\r\n$4\r\nECHO\r\n".to_vec(), words("PING")].concat();
    assert_eq!(ends(many), "-ERR Protocol error: unauthenticated multibulk length; closed");
    let long = b"*2\r\n$4\r\nAUTH\r\n$16385\r\n".to_vec();
    assert_eq!(ends(long), "-ERR Protocol error: unauthenticated bulk length; closed");
    assert!(broker.process.is_running());
}

/// Handshakes that stop after each of their bytes, and one of a byte at a time.
#[cfg(feature = "tls")]
#[test]
fn slow_handshakes_of_tls_keep_nobody_out() {
    use std::sync::Arc;

    use crate::common::secure;
    use crate::common::setup::Setup;

    let (setup, resp) = (Setup::new(), own_addr());
    let config = setup.config(&format!("[[gateway]]\nprotocol = 'resp'\nlisten = '{resp}'\n"));
    let mut broker = BrokerProcess::start_with(&["--config", config.to_str().expect("UTF-8")]);
    until("the gateway listens", || TcpStream::connect(&resp).is_ok());
    let before = resident_kib(broker.process.id());
    let client = secure::config(&setup.file("tls/ca.pem"), None, &[]);
    let hello = || {
        let name = "127.0.0.1".try_into().expect("an address");
        let mut tls = rustls::ClientConnection::new(Arc::new(client.clone()), name).expect("a client");
        let mut bytes = Vec::new();
        tls.write_tls(&mut bytes).expect("memory");
        (tls, bytes)
    };
    let (_, first) = hello();
    let strangers: Vec<_> = (0..first.len()).map(|end| connected(&resp, &first[..end])).collect();
    let (mut tls, first) = hello();
    let mut stream = connected(&resp, b"");
    stream.set_nodelay(true).expect("a socket");
    for byte in first {
        stream.write_all(&[byte]).expect("a slow client is still a client");
    }
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).expect("a handshake");
    }
    for mut tls in
        [rustls::StreamOwned::new(tls, stream), secure::connect(client, &resp).expect("a handshake")]
    {
        tls.write_all(b"PING\r\n").expect("sent");
        let mut answer = [0; 7];
        std::io::Read::read_exact(&mut tls, &mut answer).expect("an answer");
        assert_eq!(&answer, b"+PONG\r\n");
    }
    let growth = resident_kib(broker.process.id()).saturating_sub(before);
    assert!(growth < MAX_GROWTH_KIB, "the broker has {growth} KiB more");
    drop(strangers);
    assert!(broker.process.is_running());
}
