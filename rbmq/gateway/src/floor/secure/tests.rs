//! Connections with TLS over sockets, with a client of rustls.

use std::io::Write;
use std::net::TcpListener;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, SignatureAlgorithm, SignatureScheme,
    SupportedProtocolVersion,
};

use super::*;

const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;

/// A server that everybody believes: who it is, is not the question here.
#[derive(Debug)]
struct Anybody;

impl ResolvesServerCert for Anybody {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::new(CertifiedKey::new(vec![CertificateDer::from(vec![0; 300])], Arc::new(Self))))
    }
}

impl SigningKey for Anybody {
    fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(Self))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for Anybody {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(vec![0; 64])
    }

    fn scheme(&self) -> SignatureScheme {
        SCHEME
    }
}

type Verified = Result<HandshakeSignatureValid, rustls::Error>;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Verified {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Verified {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SCHEME]
    }
}

/// A connection before its handshake, and its client with the other end of the socket.
fn strangers(version: &'static SupportedProtocolVersion) -> (Secure, ClientConnection, TcpStream) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[version]);
    let server = server.expect("a version").with_no_client_auth();
    let mut server = server.with_cert_resolver(Arc::new(Anybody));
    server.enable_secret_extraction = true;
    let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]);
    let client = client.expect("a version").dangerous().with_custom_certificate_verifier(Arc::new(Anybody));
    let client = Arc::new(client.with_no_client_auth());
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (stream, _) = listener.accept().expect("one has connected");
    stream.set_nonblocking(true).expect("a socket");
    let handshake = Handshake::accept(Arc::new(server)).expect("settings");
    let client = ClientConnection::new(client, "localhost".try_into().expect("a name")).expect("settings");
    (Secure::new(stream, handshake), client, socket)
}

/// Reads what arrives, and waits until something does.
fn read(secure: &mut Secure, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        secure.stream.set_nonblocking(false)?;
        secure.stream.set_read_timeout(Some(std::time::Duration::from_secs(60)))?;
        let arrived = secure.stream.peek(&mut [0])?;
        secure.stream.set_nonblocking(true)?;
        match secure.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && arrived > 0 => {}
            other => return other,
        }
    }
}

/// Waits until so many bytes have arrived.
fn arrives(secure: &Secure, count: usize) {
    let mut buffer = vec![0; 64 << 10];
    while secure.stream.peek(&mut buffer).unwrap_or(0) < count {
        std::thread::yield_now();
    }
}

/// A connection whose client has said `b"hello"`.
fn pair(version: &'static SupportedProtocolVersion) -> (Secure, ClientConnection, TcpStream) {
    let (mut secure, mut client, mut socket) = strangers(version);
    let talk = std::thread::spawn(move || {
        let mut stream = rustls::Stream::new(&mut client, &mut socket);
        stream.write_all(b"hello").and_then(|()| stream.flush()).expect("it listens");
        (client, socket)
    });
    let mut buffer = vec![0; 64 << 10];
    assert_eq!(read(&mut secure, &mut buffer).expect("its data"), 5);
    assert_eq!(buffer[..5], *b"hello");
    let (client, socket) = talk.join().expect("no panic");
    (secure, client, socket)
}

#[test]
fn a_client_that_reads_nothing_holds_one_record() {
    for version in [&TLS13, &TLS12] {
        let (mut secure, _client, _socket) = pair(version);
        assert_eq!(secure.memory(), 0, "{version:?}");
        let data = vec![b'd'; 1 << 20];
        while secure.write(&[IoSlice::new(&data)]).is_ok() {}
        assert!(secure.has_waiting());
        let most = tls13::HEADER + tls13::MAX_SEALED;
        assert!(secure.memory() <= most, "{version:?}: {} bytes wait", secure.memory());
    }
}

#[test]
fn what_waits_of_a_handshake_and_of_a_record_counts() {
    let (mut secure, mut client, mut socket) = strangers(&TLS13);
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("a hello");
    socket.write_all(&hello[..hello.len() - 1]).expect("room");
    let mut buffer = vec![0; 64 << 10];
    arrives(&secure, hello.len() - 1);
    assert_eq!(secure.read(&mut buffer).expect_err("no data").kind(), io::ErrorKind::WouldBlock);
    assert!(secure.memory() >= hello.len() - 1, "{} bytes", secure.memory());
    for version in [&TLS13, &TLS12] {
        let (mut secure, mut client, mut socket) = pair(version);
        client.writer().write_all(&[7; 9000]).expect("room");
        let mut record = Vec::new();
        client.write_tls(&mut record).expect("a record");
        let (first, last) = record.split_at(8000);
        socket.write_all(first).expect("room");
        arrives(&secure, first.len());
        assert_eq!(secure.read(&mut buffer).expect_err("no data").kind(), io::ErrorKind::WouldBlock);
        assert_eq!(secure.memory(), first.len(), "no more than that");
        socket.write_all(last).expect("room");
        arrives(&secure, last.len());
        assert_eq!(secure.read(&mut buffer[..1000]).expect("its data"), 1000);
        assert!(secure.may_have_more() && secure.memory() >= 8000, "what the reader had no room for");
        let mut count = 1000;
        while count < 9000 {
            count += secure.read(&mut buffer[..1000]).expect("the rest");
        }
        assert_eq!((count, secure.memory()), (9000, 0), "{version:?}");
    }
}

#[test]
fn what_arrives_in_front_of_a_fault_is_read_before_it() {
    for version in [&TLS13, &TLS12] {
        let (mut secure, mut client, mut socket) = pair(version);
        client.writer().write_all(b"last").expect("room");
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).expect("a record");
        bytes.extend([22, 3, 3, 0, 1, 1]);
        bytes.extend([0; 5000]);
        socket.write_all(&bytes).expect("room");
        let mut buffer = vec![0; 64 << 10];
        arrives(&secure, bytes.len());
        assert_eq!(secure.read(&mut buffer).expect("its data"), 4, "{version:?}");
        assert!(secure.may_have_more());
        let error = secure.read(&mut buffer).expect_err("it broke the rules");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{version:?}: {error}");
        assert!(!secure.is_made() && secure.memory() == 0);
    }
}
