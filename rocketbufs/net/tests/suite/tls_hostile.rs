//! TLS with peers that have the wrong certificates, speak something else, or break off; and with another implementation of TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rocketnet::tcp::{ClientCertificates, Tcp, TcpConfig, Tls, TlsSettings};
use rocketnet::wire::{CONTROL_WIRE, Header};
use rocketnet::{ConnId, Down, Event, Transport, TransportError};
use rocketring::Waker;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::authority::{Authority, past, tls};

/// Rounds of about a millisecond before a test gives up.
const PATIENCE: usize = 60_000;

/// A transport, its connections and its events.
struct End {
    tcp: Tcp,
    conns: Vec<ConnId>,
    refused: Vec<TransportError>,
    seen: Vec<Event>,
}

impl End {
    fn new(config: TcpConfig) -> Self {
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        let tcp = Tcp::new(config, waker).expect("a valid configuration");
        Self { tcp, conns: Vec::new(), refused: Vec::new(), seen: Vec::new() }
    }

    fn with(settings: TlsSettings) -> Self {
        Self::new(TcpConfig { tls: Some(tls(settings)), ..TcpConfig::default() })
    }

    fn listening(settings: TlsSettings) -> (Self, String) {
        let mut end = Self::with(settings);
        let addr = end.tcp.listen("127.0.0.1:0").expect("a port");
        (end, addr)
    }

    fn step(&mut self) {
        let mut events = Vec::new();
        self.tcp.poll(Some(Duration::from_millis(1)), &mut events);
        for event in events {
            match event {
                Event::Incoming(accepted) => match self.tcp.adopt(accepted) {
                    Ok(conn) => self.conns.push(conn),
                    Err(error) => self.refused.push(error),
                },
                event => self.seen.push(event),
            }
        }
        for conn in &self.conns {
            self.tcp.flush(*conn);
        }
    }

    fn dial(&mut self, addr: &str) -> ConnId {
        let conn = self.tcp.connect(addr).expect("an address");
        self.conns.push(conn);
        conn
    }

    fn down(&self) -> Option<&Down> {
        self.seen.iter().find_map(|event| match event {
            Event::Down(_, why) => Some(why),
            _ => None,
        })
    }

    fn is_up(&self) -> bool {
        self.seen.iter().any(|event| matches!(event, Event::Connected(_)))
    }

    fn controls<'a>(&'a self) -> Vec<&'a [u8]> {
        let own = |event: &'a Event| match event {
            Event::Control(_, bytes) => Some(bytes.as_slice()),
            _ => None,
        };
        self.seen.iter().filter_map(own).collect()
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        for _ in 0..PATIENCE {
            if holds(self) {
                return;
            }
            self.step();
        }
        panic!("no sign of {what}; refused: {:?}, seen: {:?}", self.refused, self.seen);
    }
}

fn both(server: &mut End, client: &mut End, what: &str, mut holds: impl FnMut(&End, &End) -> bool) {
    for _ in 0..PATIENCE {
        if holds(server, client) {
            return;
        }
        server.step();
        client.step();
    }
    panic!("no sign of {what}: {:?} and {:?}", server.seen, client.seen);
}

/// The reasons that both ends get for a connection that fails.
fn failure(mut server: End, mut client: End) -> [String; 2] {
    let addr = server.tcp.listen("127.0.0.1:0").expect("a port");
    let conn = client.dial(&addr);
    // A client without TLS says something, as the layer above does.
    client.tcp.control(conn, b"hello").expect("room");
    both(&mut server, &mut client, "a failure", |server, client| {
        server.down().is_some() && client.down().is_some()
    });
    assert!(server.controls().is_empty(), "nothing passes a failed handshake");
    [&server, &client].map(|end| end.down().expect("just seen").to_string())
}

fn assert_names(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
}

#[test]
fn a_message_and_the_identity_pass_both_ways() {
    let authority = Authority::new();
    let require = |settings| TlsSettings { client_certificates: ClientCertificates::Require, ..settings };
    let (mut server, addr) = End::listening(require(authority.server()));
    let mut client = End::with(authority.sign("alice", "alice", |_| {}));
    let conn = client.dial(&addr);
    client.tcp.control(conn, b"question").expect("room");
    both(&mut server, &mut client, "the question", |server, _| server.controls() == [b"question"]);
    let other = server.conns[0];
    server.tcp.control(other, b"answer").expect("room");
    both(&mut server, &mut client, "the answer", |_, client| client.controls() == [b"answer"]);
    let of = |file: &str| CertificateDer::from_pem_file(authority.file(file)).expect("a file").to_vec();
    let (at_server, at_client) = (server.tcp.peer_identity(other), client.tcp.peer_identity(conn));
    assert_eq!(at_server.certificate.as_deref(), Some(of("alice.pem").as_slice()));
    assert_eq!(at_client.certificate.as_deref(), Some(of("server.pem").as_slice()));
    assert!(at_server.encrypted && at_client.encrypted && at_server.unix.is_none());
    assert!(client.tcp.carrier(conn).why.contains("TLS 1.3"), "{:?}", client.tcp.carrier(conn));
    client.tcp.close(conn, "done", Duration::from_secs(20));
    both(&mut server, &mut client, "the end", |server, client| {
        server.down().is_some() && client.down().is_some()
    });
    assert_eq!(server.down(), Some(&Down::PeerClosed));
}

#[test]
fn a_plain_client_is_told_that_the_listener_requires_tls() {
    let [server, client] = failure(End::with(Authority::new().server()), End::new(TcpConfig::default()));
    assert_names(&server, &["does not speak TLS", "tls.mode = \"require\" there"]);
    assert_names(&client, &["answers with TLS", "tls.mode = \"require\" here"]);
}

#[test]
fn a_tls_client_is_told_that_the_listener_has_none() {
    let [server, client] = failure(End::new(TcpConfig::default()), End::with(Authority::new().client()));
    assert_names(&server, &["begins with TLS", "\"off\" there"]);
    assert_names(&client, &["127.0.0.1", "listener without TLS", "\"off\" here"]);
}

#[test]
fn a_server_of_an_unknown_authority_is_refused() {
    let [server, client] =
        failure(End::with(Authority::new().server()), End::with(Authority::new().client()));
    assert_names(&client, &["not accepted", "tls.ca", "--ca"]);
    assert_names(&server, &["does not trust the authority", "tls.ca there"]);
}

#[test]
fn a_server_with_another_name_is_refused_unless_it_is_expected() {
    let authority = Authority::new();
    let elsewhere = || End::with(authority.sign("elsewhere", "broker.example", |_| {}));
    let [server, client] = failure(elsewhere(), End::with(authority.client()));
    assert_names(&client, &["127.0.0.1", "broker.example", "tls.server_name", "--server-name"]);
    assert_names(&server, &["refuses this end's certificate"]);

    let named = TlsSettings { server_name: Some("broker.example".into()), ..authority.client() };
    let (mut server, mut client) = (elsewhere(), End::with(named));
    let addr = server.tcp.listen("127.0.0.1:0").expect("a port");
    client.dial(&addr);
    both(&mut server, &mut client, "a connection", |_, client| client.is_up());
}

#[test]
fn a_client_without_the_certificate_that_is_required_is_refused() {
    let authority = Authority::new();
    let require = |who| TlsSettings { client_certificates: who, ..authority.server() };
    let [server, client] =
        failure(End::with(require(ClientCertificates::Require)), End::with(authority.client()));
    assert_names(&server, &["presented no certificate", "keygen client"]);
    assert_names(&client, &["requires a certificate", "tls.cert"]);
    let other = Authority::new();
    let stranger = TlsSettings { ca: Some(authority.ca()), ..other.sign("mallory", "mallory", |_| {}) };
    let [server, client] = failure(End::with(require(ClientCertificates::Optional)), End::with(stranger));
    assert_names(&server, &["not accepted", "tls.ca here"]);
    assert_names(&client, &["does not trust the authority"]);

    let (mut server, addr) = End::listening(require(ClientCertificates::Optional));
    let mut client = End::with(authority.client());
    client.dial(&addr);
    both(&mut server, &mut client, "a connection", |_, client| client.is_up());
    assert!(server.tcp.peer_identity(server.conns[0]).certificate.is_none());
}

/// Starts a server of rustls that serves one connection.
fn rustls_server(
    authority: &Authority,
    file: &str,
    protocol: &[u8],
    serve: impl FnOnce(StreamOwned<ServerConnection, TcpStream>) + Send + 'static,
) -> (String, std::thread::JoinHandle<()>) {
    let chain = vec![CertificateDer::from_pem_file(authority.file(&format!("{file}.pem"))).expect("a file")];
    let key = PrivateKeyDer::from_pem_file(authority.file(&format!("{file}-key.pem"))).expect("a file");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let config = config.with_protocol_versions(&[&rustls::version::TLS13]).expect("a version");
    let mut config = config.with_no_client_auth().with_single_cert(chain, key).expect("a certificate");
    config.alpn_protocols = vec![protocol.to_vec()];
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("its address").to_string();
    let thread = std::thread::spawn(move || {
        let (socket, _) = listener.accept().expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("an option");
        serve(StreamOwned::new(ServerConnection::new(Arc::new(config)).expect("a configuration"), socket));
    });
    (addr, thread)
}

/// A client of rustls; an empty protocol is not named.
fn rustls_client(
    authority: &Authority,
    addr: &str,
    protocol: &[u8],
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.ca()).expect("a file")).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let config = config.with_protocol_versions(&[&rustls::version::TLS13]).expect("a version");
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols.extend((!protocol.is_empty()).then(|| protocol.to_vec()));
    let socket = TcpStream::connect(addr).expect("a listener");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("an option");
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("a configuration"), socket)
}

fn message(text: &[u8]) -> Vec<u8> {
    let header = Header { wire: CONTROL_WIRE, more: false, size: text.len() as u32 };
    [&header.encode(), text].concat()
}

#[test]
fn an_expired_certificate_is_refused_where_it_is_read_and_where_it_is_shown() {
    let authority = Authority::new();
    let expired = authority.sign("old", "127.0.0.1", past);
    let error = Tls::new(expired).expect_err("it has expired").to_string();
    assert_names(&error, &["old.pem", "has expired", "2002", "replace it"]);
    let (addr, thread) = rustls_server(&authority, "old", b"rocketbufs/1", |mut stream| {
        let _ = stream.read(&mut [0]);
    });
    let mut client = End::with(authority.client());
    client.dial(&addr);
    client.until("a failure", |client| client.down().is_some());
    assert_names(&client.down().expect("seen").to_string(), &["expired", "Replace it there"]);
    drop(client);
    thread.join().expect("no panic");
}

#[test]
fn files_that_do_not_fit_are_named_with_what_to_do() {
    let authority = Authority::new();
    let (one, other) = (authority.server(), authority.sign("other", "a.example", |_| {}));
    let said = |settings: TlsSettings| Tls::new(settings).expect_err("it does not fit").to_string();
    let mixed = TlsSettings { key: other.key.clone(), ..one.clone() };
    assert_names(&said(mixed), &["other-key.pem", "server.pem", "does not belong"]);
    let missing = TlsSettings { cert: Some("/nowhere/cert.pem".into()), ..one.clone() };
    assert_names(&said(missing), &["tls.cert", "/nowhere/cert.pem", "No such file"]);
    let swapped = TlsSettings { cert: one.key.clone(), ..one.clone() };
    assert_names(&said(swapped), &["tls.cert", "server-key.pem", "no certificate"]);
    let swapped = TlsSettings { key: one.cert.clone(), ..one.clone() };
    assert_names(&said(swapped), &["tls.key", "server.pem", "no private key"]);
    let half = TlsSettings { key: None, ..one.clone() };
    assert_names(&said(half), &["tls.cert is set and tls.key is not"]);
    let unknown = TlsSettings { ca: None, client_certificates: ClientCertificates::Require, ..one.clone() };
    assert_names(&said(unknown), &["tls.client_certificates is set and tls.ca is not"]);
    let name = TlsSettings { server_name: Some("a b".into()), ..one };
    assert_names(&said(name), &["tls.server_name = a b"]);
    let error = End::with(authority.client()).tcp.listen("127.0.0.1:0").expect_err("it has no certificate");
    assert_names(&error.to_string(), &["tls.cert", "keygen server"]);
}

#[test]
fn a_peer_of_another_protocol_or_of_none_is_told_so() {
    for protocol in [&b"h2"[..], b""] {
        let authority = Authority::new();
        let (mut server, addr) = End::listening(authority.server());
        let thread = std::thread::spawn({
            let mut client = rustls_client(&authority, &addr, protocol);
            move || client.read(&mut [0]).expect_err("it is refused").to_string()
        });
        server.until("a failure", |server| server.down().is_some());
        assert_names(&server.down().expect("seen").to_string(), &["not this protocol", "ALPN"]);
        assert_names(&thread.join().expect("no panic"), &["NoApplicationProtocol"]);
    }
}

#[test]
fn a_revoked_certificate_is_refused_by_either_end() {
    let authority = Authority::new();
    let number =
        |number: u64| move |params: &mut rcgen::CertificateParams| params.serial_number = Some(number.into());
    let with_list = |settings| TlsSettings { crl: Some(authority.file("crl.pem")), ..settings };
    let ask = |settings| TlsSettings { client_certificates: ClientCertificates::Require, ..settings };
    authority.revoke(&[7, 300], 3000);
    let server = || End::with(ask(with_list(authority.sign("server", "127.0.0.1", number(1)))));
    let [at_server, at_client] = failure(server(), End::with(authority.sign("alice", "alice", number(300))));
    assert_names(&at_server, &["Revoked", "tls.crl"]);
    assert_names(&at_client, &["was revoked"]);
    let [at_server, at_client] = failure(
        End::with(authority.sign("server", "127.0.0.1", number(7))),
        End::with(with_list(authority.client())),
    );
    assert_names(&at_client, &["Revoked", "tls.crl"]);
    assert_names(&at_server, &["was revoked"]);

    let (mut server, mut client) =
        (server(), End::with(with_list(authority.sign("bob", "bob", number(301)))));
    let addr = server.tcp.listen("127.0.0.1:0").expect("a port");
    client.dial(&addr);
    both(&mut server, &mut client, "a connection", |server, client| {
        client.is_up() && !server.conns.is_empty()
    });
}

#[test]
fn lists_of_revoked_certificates_are_refused_where_they_say_nothing() {
    let authority = Authority::new();
    let with = |crl| TlsSettings { crl, ..authority.client() };
    let said = |settings: TlsSettings| Tls::new(settings).expect_err("it is no list").to_string();
    assert_names(
        &said(with(Some("/nowhere/crl.pem".into()))),
        &["tls.crl", "cannot read", "/nowhere/crl.pem"],
    );
    assert_names(&said(with(Some(authority.ca()))), &["tls.crl", "no list of revoked certificates"]);
    assert_names(
        &said(with(Some(authority.revoke(&[1], 2026)))),
        &["tls.crl", "has expired", "keygen revoke"],
    );
    let alone = TlsSettings { ca: None, ..with(Some(authority.revoke(&[1], 3000))) };
    assert_names(&said(alone), &["tls.crl is set and tls.ca is not"]);

    // The list of another authority with the same name.
    let other = Authority::new();
    let other_list = TlsSettings { crl: Some(other.revoke(&[1], 3000)), ..authority.client() };
    let [_, at_client] = failure(End::with(authority.server()), End::with(other_list));
    assert_names(&at_client, &["revocation list", "BadSignature", "tls.crl", "keygen revoke"]);
}

#[test]
fn keys_change_tickets_are_ignored_and_both_ends_agree_on_the_end() {
    let authority = Authority::new();
    authority.server();
    let (addr, thread) = rustls_server(&authority, "server", b"rocketbufs/1", |mut stream| {
        for round in 0..20 {
            stream.write_all(&message(&[round; 100])).expect("a peer");
            stream.conn.refresh_traffic_keys().expect("a connection");
            let mut got = [0; 108];
            stream.read_exact(&mut got).expect("an answer");
            assert_eq!(got[8..], [round; 100]);
        }
        stream.conn.send_close_notify();
        stream.flush().expect("a peer");
        assert_eq!(stream.read(&mut [0]).expect("an end in order"), 0);
    });
    let mut client = End::with(authority.client());
    let conn = client.dial(&addr);
    for round in 0..20 {
        client.until("a message", |client| client.controls().len() == round + 1);
        let answer = client.controls()[round].to_vec();
        client.tcp.control(conn, &answer).expect("room");
    }
    client.until("the end", |client| client.down().is_some());
    assert_eq!(client.down(), Some(&Down::PeerClosed));
    drop(client);
    // The end of a transport that is dropped has no close_notify, as that of a killed process.
    assert!(thread.join().is_err());
}

#[test]
fn a_stream_that_is_cut_is_no_end_in_order() {
    let authority = Authority::new();
    let (mut server, addr) = End::listening(authority.server());
    let thread = std::thread::spawn({
        let mut client = rustls_client(&authority, &addr, b"rocketbufs/1");
        move || {
            client.write_all(&message(b"hello")).expect("a peer");
            client.sock.shutdown(Shutdown::Write).expect("a socket");
            let _ = client.sock.read_to_end(&mut Vec::new());
        }
    });
    server.until("the end", |server| server.down().is_some());
    assert_eq!(server.controls(), [b"hello"]);
    assert!(
        matches!(server.down(), Some(Down::Broken(why)) if why.contains("close_notify")),
        "{:?}",
        server.down()
    );
    drop(server);
    thread.join().expect("no panic");
}

/// A record that no key fits.
const CHANGED: [u8; 22] = [23, 3, 3, 0, 17, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8];

/// Everything comes with the end of the handshake, in one piece.
#[test]
fn a_message_before_a_changed_record_is_taken_however_much_comes_at_once() {
    let authority = Authority::new();
    let (mut server, addr) = End::listening(authority.server());
    let mut client = rustls_client(&authority, &addr, b"rocketbufs/1");
    client.sock.set_nonblocking(true).expect("an option");
    client.conn.write_tls(&mut client.sock).expect("a peer");
    while client.conn.is_handshaking() {
        server.step();
        match client.conn.read_tls(&mut client.sock) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => {
                assert!(read.expect("a peer") > 0);
                client.conn.process_new_packets().expect("a handshake");
            }
        }
    }
    client.conn.writer().write_all(&message(b"hello")).expect("memory");
    let mut bytes = Vec::new();
    while client.conn.wants_write() {
        client.conn.write_tls(&mut bytes).expect("memory");
    }
    client.sock.write_all(&[&bytes[..], &CHANGED].concat()).expect("a peer");
    server.until("the end", |server| server.down().is_some());
    assert_eq!(server.controls(), [b"hello"]);
    assert_names(&server.down().expect("seen").to_string(), &["BadRecordMac", "changed on the way"]);
}

#[test]
fn changed_records_end_the_connection_and_the_peer_is_told() {
    let authority = Authority::new();
    let (mut server, addr) = End::listening(authority.server());
    let thread = std::thread::spawn({
        let mut client = rustls_client(&authority, &addr, b"rocketbufs/1");
        move || {
            client.write_all(&message(b"hello")).expect("a peer");
            client.sock.write_all(&CHANGED).expect("a peer");
            client.read(&mut [0]).expect_err("an alert").to_string()
        }
    });
    server.until("the end", |server| server.down().is_some());
    assert_eq!(server.controls(), [b"hello"]);
    assert_names(&server.down().expect("seen").to_string(), &["BadRecordMac", "changed on the way"]);
    assert_names(&thread.join().expect("no panic"), &["BadRecordMac"]);
}

#[test]
fn garbage_in_the_handshake_ends_that_connection_alone() {
    let authority = Authority::new();
    let (mut server, addr) = End::listening(authority.server());
    let garbage: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        b"\x17\x03\x03\x00\x01\x00",
        b"\x00",
        &[0xff; 3_000],
    ];
    for bytes in garbage {
        let mut peer = TcpStream::connect(&addr).expect("a listener");
        let known = server.seen.len();
        peer.write_all(bytes).expect("a listener");
        peer.shutdown(Shutdown::Write).expect("a socket");
        server.until("a failure", |server| server.seen.len() > known);
        assert!(matches!(server.seen.last(), Some(Event::Down(_, Down::Tls(_)))), "{:?}", server.seen.last());
    }
    let mut client = End::with(authority.client());
    client.dial(&addr);
    both(&mut server, &mut client, "a connection", |_, client| client.is_up());
}

#[test]
fn unfinished_handshakes_are_few_and_end_in_time() {
    let authority = Authority::new();
    let settings = TlsSettings { max_handshakes: 3, ..authority.server() };
    let connect_timeout = Duration::from_millis(300);
    let config = TcpConfig { tls: Some(tls(settings)), connect_timeout, ..TcpConfig::default() };
    let mut server = End::new(config);
    let addr = server.tcp.listen("127.0.0.1:0").expect("a port");
    let silent: Vec<_> = (0..5).map(|_| TcpStream::connect(&addr).expect("a listener")).collect();
    server.until("refusals", |server| server.conns.len() == 3 && server.refused.len() == 2);
    assert_names(&server.refused[0].to_string(), &["3 TLS handshakes", "tls.max_handshakes"]);
    server.until("the deadlines", |server| server.seen.len() == 3);
    assert_names(&server.down().expect("seen").to_string(), &["did not complete its handshake"]);
    drop(silent);
    let mut client = End::with(authority.client());
    client.dial(&addr);
    both(&mut server, &mut client, "a connection", |_, client| client.is_up());
}

#[test]
fn new_certificates_are_for_new_connections() {
    let authority = Authority::new();
    let certificates = tls(authority.server());
    let mut server = End::new(TcpConfig { tls: Some(certificates.clone()), ..TcpConfig::default() });
    let addr = server.tcp.listen("127.0.0.1:0").expect("a port");
    let mut client = End::with(authority.client());
    let old = client.dial(&addr);
    both(&mut server, &mut client, "a connection", |_, client| client.is_up());
    let seen_old = client.tcp.peer_identity(old).certificate;

    authority.server();
    certificates.reload().expect("good files");
    client.seen.clear();
    let new = client.dial(&addr);
    both(&mut server, &mut client, "a connection", |_, client| client.is_up());
    let seen_new = client.tcp.peer_identity(new).certificate;
    assert!(seen_new.is_some() && seen_new != seen_old);
    client.tcp.control(old, b"still here").expect("room");
    both(&mut server, &mut client, "a message", |server, _| server.controls() == [b"still here"]);

    std::fs::write(authority.file("server.pem"), "no certificate").expect("a file");
    assert_names(&certificates.reload().expect_err("a bad file").to_string(), &["server.pem"]);
    client.seen.clear();
    client.dial(&addr);
    both(&mut server, &mut client, "a connection", |_, client| client.is_up());
}

#[test]
fn openssl_connects_to_the_listener() {
    if Command::new("openssl").arg("version").output().is_err() {
        let said =
            writeln!(io::stderr(), "SKIPPED: TLS with openssl (it is not installed; scripts/setup --tests)");
        return said.expect("standard error");
    }
    let authority = Authority::new();
    let (mut server, addr) = End::listening(authority.server());
    let run = |version: &str, input: Vec<u8>| {
        let mut command = Command::new("openssl");
        command
            .args(["s_client", "-connect", &addr, version, "-alpn", "rocketbufs/1", "-CAfile"])
            .arg(authority.ca());
        command.args(["-verify_return_error", "-verify_ip", "127.0.0.1"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("openssl");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(&input).expect("openssl reads");
        (child, stdin)
    };
    let (child, stdin) = run("-tls1_3", message(b"hello from openssl"));
    server.until("a message", |server| server.controls() == [b"hello from openssl"]);
    // The end of its input makes openssl close in order.
    drop(stdin);
    server.until("the end", |server| server.down().is_some());
    assert_eq!(server.down(), Some(&Down::PeerClosed));
    let output = child.wait_with_output().expect("openssl ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_names(&text, &["TLSv1.3", "Verify return code: 0 (ok)", "ALPN protocol: rocketbufs/1"]);

    server.seen.clear();
    let (child, stdin) = run("-tls1_2", Vec::new());
    server.until("a failure", |server| server.down().is_some());
    drop(stdin);
    assert!(matches!(server.down(), Some(Down::Tls(_))), "{:?}", server.down());
    assert!(!child.wait_with_output().expect("openssl ends").status.success());
}
