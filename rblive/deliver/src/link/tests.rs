//! The server's side of TLS against a client of rustls, over real sockets.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{AlertDescription, ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use tokio::net::TcpListener;

use super::connection::Link;
use super::{PIECE, accept};

const LIMIT: Duration = Duration::from_secs(60);

type Client = StreamOwned<ClientConnection, std::net::TcpStream>;

/// A server and a client that trusts it. `suite`: the only cipher of the client.
fn configs(suite: Option<usize>) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let mut provider = provider();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let server = ServerConfig::builder_with_provider(Arc::new(provider.clone()))
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .unwrap()
        .with_no_client_auth();
    let mut server = server.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    server.enable_secret_extraction = true;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    if let Some(suite) = suite {
        provider.cipher_suites = vec![provider.cipher_suites[suite]];
    }
    let client = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .unwrap()
        .with_root_certificates(roots);
    (Arc::new(server), Arc::new(client.with_no_client_auth()))
}

/// The ciphers of TLS 1.3 and 1.2, of which some are for certificates of another kind.
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| !format!("{:?}", suite.suite()).contains("RSA"));
    provider
}

/// Runs both ends of a connection.
fn run<S>(suite: Option<usize>, serve: impl FnOnce(Link) -> S, use_it: impl FnOnce(Client) + Send + 'static)
where
    S: Future<Output = ()>,
{
    let (server, client) = configs(suite);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let client = std::thread::spawn(move || {
            let socket = std::net::TcpStream::connect(addr).unwrap();
            socket.set_read_timeout(Some(LIMIT)).unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            use_it(StreamOwned::new(ClientConnection::new(client, name).unwrap(), socket));
        });
        let (link, http2) = accept(listener.accept().await.unwrap().0, server).await.unwrap();
        assert!(!http2);
        serve(link).await;
        client.join().unwrap();
    });
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at * 31) >> 3) as u8).collect()
}

async fn send(link: &mut Link, bytes: &[u8]) {
    for piece in bytes.chunks(PIECE) {
        link.put(piece).unwrap();
        link.flush(LIMIT).await.unwrap();
    }
}

async fn read(link: &mut Link, count: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < count {
        assert!(link.read(&mut got).await.unwrap() > 0, "{} bytes came", got.len());
    }
    got
}

#[test]
fn data_passes_both_ways_with_every_cipher() {
    let count = provider().cipher_suites.len();
    assert_eq!(count, 6, "three for each version");
    for suite in 0..count {
        let both = pattern(300_000);
        let sent = both.clone();
        let serve = async |mut link: Link| {
            assert!(read(&mut link, 300_000).await == both);
            send(&mut link, &both).await;
            assert!(link.out.is_none(), "a connection that waits has no buffer");
            link.close(LIMIT).await.unwrap();
        };
        run(Some(suite), serve, move |mut client| {
            // The first bytes leave together with the end of the handshake.
            client.write_all(&sent).unwrap();
            let mut got = Vec::new();
            client.read_to_end(&mut got).unwrap();
            assert!(got == sent);
        });
    }
}

#[test]
fn the_keys_change_before_they_have_sealed_too_much() {
    let bytes = pattern(2_000_000);
    let expected = bytes.clone();
    let serve = async |mut link: Link| {
        link.session.as_mut().unwrap().session().unwrap().set_limit(7);
        send(&mut link, &bytes).await;
        link.close(LIMIT).await.unwrap();
    };
    run(None, serve, move |mut client| {
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert!(got == expected);
    });
}

#[test]
fn a_client_changes_the_keys_of_both_directions() {
    let serve = async |mut link: Link| {
        for round in 0..50 {
            assert_eq!(read(&mut link, 4).await, b"ping", "{round}");
            send(&mut link, b"pong").await;
        }
        assert_eq!(link.read(&mut Vec::new()).await.unwrap(), 0, "the client has closed");
        link.close(LIMIT).await.unwrap();
    };
    run(None, serve, |mut client| {
        for _ in 0..50 {
            client.write_all(b"ping").unwrap();
            client.conn.refresh_traffic_keys().unwrap();
            let mut pong = [0; 4];
            client.read_exact(&mut pong).unwrap();
            assert_eq!(&pong, b"pong");
        }
        client.conn.send_close_notify();
        client.flush().unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    });
}

/// Sends what breaks the rules, and expects this alert.
fn refused(alert: AlertDescription, bad: impl FnOnce(&mut Client) + Send + 'static) {
    let serve = async |mut link: Link| {
        send(&mut link, b"hello").await;
        let mut got = Vec::new();
        while let Ok(1..) = link.read(&mut got).await {}
        assert!(got.is_empty());
        let _ = link.close(LIMIT).await;
    };
    run(None, serve, move |mut client| {
        client.read_exact(&mut [0; 5]).unwrap();
        bad(&mut client);
        let error = client.read(&mut [0]).unwrap_err();
        let own = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
        assert_eq!(own, Some(&rustls::Error::AlertReceived(alert)), "{error}");
    });
}

#[test]
fn a_client_that_breaks_the_rules_is_told_which() {
    let raw = |bytes: &'static [u8]| move |client: &mut Client| client.sock.write_all(bytes).unwrap();
    refused(
        AlertDescription::BadRecordMac,
        raw(&[23, 3, 3, 0, 17, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7]),
    );
    refused(AlertDescription::BadRecordMac, raw(&[23, 3, 3, 0, 0]));
    refused(AlertDescription::RecordOverflow, raw(&[23, 3, 3, 0x41, 1]));
    refused(AlertDescription::UnexpectedMessage, raw(&[22, 3, 3, 0, 1, 0]));
    refused(AlertDescription::UnexpectedMessage, raw(&[20, 3, 3, 0, 1, 1]));
    refused(AlertDescription::UnexpectedMessage, raw(b"GET / HTTP/1.1\r\n\r\n"));
    refused(AlertDescription::UnexpectedMessage, |client| {
        for _ in 0..33 {
            client.conn.refresh_traffic_keys().unwrap();
        }
        client.flush().unwrap();
    });
}

#[test]
fn a_connection_that_breaks_off_has_ended() {
    let serve = async |mut link: Link| {
        assert_eq!(read(&mut link, 4).await, b"ping");
        assert_eq!(link.read(&mut Vec::new()).await.unwrap(), 0);
    };
    run(None, serve, |mut client| {
        client.write_all(b"ping").unwrap();
        client.sock.shutdown(std::net::Shutdown::Write).unwrap();
        client.sock.read_to_end(&mut Vec::new()).unwrap();
    });
}
