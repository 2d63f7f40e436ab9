//! Connections that are resumed without certificates, with another implementation of TLS at either end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rocketnet::tcp::{ClientCertificates, Tcp, TcpConfig, Tls, TlsSettings};
use rocketnet::wire::{CONTROL_WIRE, Header};
use rocketnet::{ConnId, Event, Transport};
use rocketring::Waker;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use crate::authority::{Authority, tls};

/// Rounds of about a millisecond before a test gives up.
const PATIENCE: usize = 60_000;

struct End {
    tcp: Tcp,
    events: Vec<Event>,
    conns: Vec<ConnId>,
}

impl End {
    fn new(tls: Tls) -> Self {
        let config = TcpConfig { tls: Some(tls), ..TcpConfig::default() };
        let tcp =
            Tcp::new(config, Arc::new(Waker::new().expect("an eventfd"))).expect("a valid configuration");
        Self { tcp, events: Vec::new(), conns: Vec::new() }
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        for _ in 0..PATIENCE {
            if holds(self) {
                return;
            }
            let mut events = Vec::new();
            self.tcp.poll(Some(Duration::from_millis(1)), &mut events);
            for event in events {
                match event {
                    Event::Incoming(accepted) => self.conns.push(self.tcp.adopt(accepted).expect("room")),
                    event => self.events.push(event),
                }
            }
            for conn in &self.conns {
                self.tcp.flush(*conn);
            }
        }
        panic!("no sign of {what}: {:?}", self.events);
    }

    fn heard(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Control(..))).count()
    }
}

fn message(text: &[u8]) -> Vec<u8> {
    let header = Header { wire: CONTROL_WIRE, more: false, size: text.len() as u32 };
    [&header.encode(), text].concat()
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A client of rustls that keeps its sessions, with the certificate `alice`.
fn client(authority: &Authority) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.ca()).expect("a file")).expect("a certificate");
    let chain = vec![CertificateDer::from_pem_file(authority.file("alice.pem")).expect("a file")];
    let key = PrivateKeyDer::from_pem_file(authority.file("alice-key.pem")).expect("a file");
    let config = ClientConfig::builder_with_provider(provider());
    let config = config.with_protocol_versions(&[&rustls::version::TLS13]).expect("a version");
    let mut config =
        config.with_root_certificates(roots).with_client_auth_cert(chain, key).expect("a certificate");
    config.alpn_protocols = vec![b"rocketbufs/1".to_vec()];
    config.enable_early_data = true;
    Arc::new(config)
}

/// Connects with rustls, exchanges a message each way, and says how the handshake went.
fn visit(server: &mut End, addr: &str, config: &Arc<ClientConfig>) -> HandshakeKind {
    let (addr, config, before) = (addr.to_owned(), config.clone(), server.heard());
    let thread = std::thread::spawn(move || {
        let socket = TcpStream::connect(addr).expect("a listener");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("an option");
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let conn = ClientConnection::new(config, name).expect("a configuration");
        let mut stream = StreamOwned::new(conn, socket);
        assert!(stream.conn.early_data().is_none(), "a ticket never allows early data");
        stream.write_all(&message(b"hello")).expect("a peer");
        stream.read_exact(&mut [0; 10]).expect("an answer");
        stream.conn.handshake_kind().expect("complete")
    });
    server.until("a message", |server| server.heard() > before);
    let conn = *server.conns.last().expect("a connection");
    let of_alice = server.tcp.peer_identity(conn).certificate;
    assert!(of_alice.is_some(), "a resumed connection has the certificate of the first");
    server.tcp.control(conn, b"hi").expect("room");
    server.until("the end of the visit", |_| thread.is_finished());
    thread.join().expect("no panic")
}

fn asking(authority: &Authority) -> TlsSettings {
    TlsSettings { client_certificates: ClientCertificates::Require, ..authority.server() }
}

#[test]
fn a_client_resumes_its_session_until_a_reload() {
    let authority = Authority::new();
    authority.sign("alice", "alice", |_| {});
    let certificates = tls(asking(&authority));
    let mut server = End::new(certificates.clone());
    let addr = server.tcp.listen("127.0.0.1:0").expect("a port");
    let alice = client(&authority);
    let mut visit = |alice: &Arc<ClientConfig>| visit(&mut server, &addr, alice);
    assert_eq!(visit(&alice), HandshakeKind::Full);
    for _ in 0..5 {
        assert_eq!(visit(&alice), HandshakeKind::Resumed);
    }
    assert_eq!(visit(&client(&authority)), HandshakeKind::Full, "a client without a ticket");
    certificates.reload().expect("good files");
    assert_eq!(visit(&alice), HandshakeKind::Full);
    assert_eq!(visit(&alice), HandshakeKind::Resumed);
}

#[test]
fn nothing_is_resumed_without_a_time_for_it() {
    let authority = Authority::new();
    authority.sign("alice", "alice", |_| {});
    let mut server = End::new(tls(TlsSettings { resumption: Duration::ZERO, ..asking(&authority) }));
    let addr = server.tcp.listen("127.0.0.1:0").expect("a port");
    let alice = client(&authority);
    for _ in 0..3 {
        assert_eq!(visit(&mut server, &addr, &alice), HandshakeKind::Full);
    }
}

#[test]
fn this_end_resumes_its_sessions_at_a_server() {
    let authority = Authority::new();
    authority.server();
    let chain = vec![CertificateDer::from_pem_file(authority.file("server.pem")).expect("a file")];
    let key = PrivateKeyDer::from_pem_file(authority.file("server-key.pem")).expect("a file");
    let config = ServerConfig::builder_with_provider(provider());
    let config = config.with_protocol_versions(&[&rustls::version::TLS13]).expect("a version");
    let mut config = config.with_no_client_auth().with_single_cert(chain, key).expect("a certificate");
    config.alpn_protocols = vec![b"rocketbufs/1".to_vec()];
    config.max_early_data_size = 1 << 14;
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("its address").to_string();
    let thread = std::thread::spawn(move || {
        let serve = |_| {
            let (socket, _) = listener.accept().expect("a connection");
            socket.set_read_timeout(Some(Duration::from_secs(20))).expect("an option");
            let conn = ServerConnection::new(config.clone()).expect("a configuration");
            let mut stream = StreamOwned::new(conn, socket);
            // The tickets leave with the first bytes.
            stream.write_all(&message(b"welcome")).expect("a peer");
            stream.read_exact(&mut [0; 13]).expect("an answer");
            assert!(stream.conn.early_data().is_none(), "there is no early data");
            stream.conn.handshake_kind().expect("complete")
        };
        (0..3).map(serve).collect::<Vec<_>>()
    });
    let mut client = End::new(tls(authority.client()));
    for round in 0..3 {
        let conn = client.tcp.connect(&addr).expect("an address");
        client.conns = vec![conn];
        client.until("a welcome", |client| client.heard() == round + 1);
        assert!(client.tcp.peer_identity(conn).certificate.is_some());
        client.tcp.control(conn, b"hello").expect("room");
        let ended =
            |client: &End| client.events.iter().filter(|event| matches!(event, Event::Down(..))).count();
        client.until("the end", |client| ended(client) == round + 1);
    }
    let kinds = thread.join().expect("no panic");
    assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed]);
}
