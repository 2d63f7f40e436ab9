//! TLS, HTTP/1.1 and HTTP/2.

use std::io::{Read, Write};
use std::sync::Arc;

use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rblive_deliver::Settings;
use rustls::HandshakeKind;
use rustls::pki_types::ServerName;

use crate::kept::{AT, record};
use crate::lab::{Files, Got, Lab, NAME, media, tls};

#[test]
fn a_connection_carries_many_requests_and_a_new_certificate_is_used_after_a_reload() {
    let files = Files::new();
    let lab = Lab::new(files.settings(), 256 << 10, 5);
    let before = files.client(b"http/1.1");
    let get = |path: &str| {
        let mut own = tls(lab.server.addr(), before.clone());
        write!(own, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        Got::read(own)
    };
    lab.segments(0..2, 100_000);
    lab.playlist_with("\n1.m4s\n", get);
    let mut kept = tls(lab.server.addr(), before.clone());
    let whole = [media(1, 0, 100_000), media(1, 1, 100_000)].concat();
    for _ in 0..3 {
        write!(kept, "GET /live/{NAME}/1/1.m4s HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            kept.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let mut body = vec![0; whole.len()];
        kept.read_exact(&mut body).unwrap();
        assert!(body == whole);
    }
    assert_eq!(kept.conn.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    files.renew();
    lab.server.reload().unwrap();
    let mut after = tls(lab.server.addr(), files.client(b"http/1.1"));
    write!(after, "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    assert_eq!(Got::read(after).body, b"ok\n");
    write!(kept, "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    assert_eq!(Got::read(kept).body, b"ok\n", "existing connections go on");
    std::fs::write(files.0.path().join("key.pem"), "rubbish").unwrap();
    let error = lab.server.reload().unwrap_err().to_string();
    assert!(error.contains("key.pem") && error.contains("PEM"), "{error}");
}

/// Thousands of viewers may come back at once, for example after a network was gone; none of them is to cost a whole handshake.
#[test]
fn every_viewer_that_comes_back_resumes_its_session() {
    let files = Files::new();
    let lab = Lab::new(files.settings(), 256 << 10, 5);
    let health = |client: &rustls::ClientConfig| {
        let mut own = tls(lab.server.addr(), client.clone());
        write!(own, "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        own.read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(b"ok\n"));
        own.conn.handshake_kind()
    };
    let viewers: Vec<_> = (0..600).map(|_| files.client(b"http/1.1")).collect();
    assert!(viewers.iter().all(|viewer| health(viewer) == Some(HandshakeKind::Full)));
    let resumed = viewers.iter().filter(|viewer| health(viewer) == Some(HandshakeKind::Resumed));
    assert_eq!(resumed.count(), viewers.len());
    files.renew();
    lab.server.reload().unwrap();
    let again = files.client(b"http/1.1");
    assert_eq!(health(&again), Some(HandshakeKind::Full), "tickets end with the certificate");
}

#[test]
fn http2_serves_the_same() {
    let (files, root) = (Files::new(), tempfile::tempdir().unwrap());
    record(root.path(), 300_000);
    let settings = Settings { kept: vec![root.path().to_owned()], ..files.settings() };
    let lab = Lab::new(settings, 256 << 10, 5);
    lab.segments(0..2, 100_000);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(lab.server.addr()).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(files.client(b"h2")));
        let stream = connector.connect(ServerName::try_from("localhost").unwrap(), socket).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let ask = |method: &'static str, path: String| {
            let mut sender = sender.clone();
            async move {
                let uri = format!("https://localhost{path}");
                let request =
                    hyper::Request::builder().method(method).uri(uri).body(Empty::<bytes::Bytes>::new());
                let answer = sender.send_request(request.unwrap()).await.unwrap();
                (answer.status().as_u16(), answer.into_body().collect().await.unwrap().to_bytes())
            }
        };
        let whole = [media(1, 0, 100_000), media(1, 1, 100_000)].concat();
        while ask("GET", format!("/live/{NAME}/1/1.m4s")).await.0 != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let all: Vec<_> = (0..8).map(|_| tokio::spawn(ask("GET", format!("/live/{NAME}/1/1.m4s")))).collect();
        for one in all {
            let (status, body) = one.await.unwrap();
            assert!(status == 200 && body == whole);
        }
        let all: Vec<_> = (0..8).map(|_| tokio::spawn(ask("GET", format!("{AT}/1/1.m4s")))).collect();
        for one in all {
            let (status, body) = one.await.unwrap();
            assert!(status == 200 && body == media(1, 0, 300_000), "a recording");
        }
        assert_eq!(ask("HEAD", format!("/live/{NAME}/1/1.m4s")).await, (200, bytes::Bytes::new()));
        assert_eq!(ask("GET", "/live/none/index.m3u8".into()).await.0, 404);
        assert_eq!(ask("DELETE", "/".into()).await.0, 405);
    });
}

/// What the server answers over HTTP/2.
fn http2(lab: &Lab, client: rustls::ClientConfig, path: &str) -> bytes::Bytes {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(lab.server.addr()).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
        let stream = connector.connect(ServerName::try_from("localhost").unwrap(), socket).await.unwrap();
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let uri = format!("https://localhost{path}");
        let request = hyper::Request::builder().uri(uri).body(Empty::<bytes::Bytes>::new());
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        answer.into_body().collect().await.unwrap().to_bytes()
    })
}

/// Older televisions and telephones, and the proxies of some distributions, speak TLS 1.2.
#[test]
fn viewers_with_tls_1_2_get_the_same() {
    let files = Files::new();
    let lab = Lab::new(files.settings(), 256 << 10, 5);
    lab.segments(0..2, 100_000);
    let whole = [media(1, 0, 100_000), media(1, 1, 100_000)].concat();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let old = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12]);
    let mut client = old.unwrap().with_root_certificates(files.roots()).with_no_client_auth();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    let get = |path: &str| {
        let mut own = tls(lab.server.addr(), client.clone());
        write!(own, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let got = Got::read(&mut own);
        assert_eq!(own.conn.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_2));
        got
    };
    lab.playlist_with("\n1.m4s\n", get);
    let segment = get(&format!("/live/{NAME}/1/1.m4s"));
    assert!(segment.whole && segment.body == whole);
    assert!(!get("/hls.js").body.is_empty());
    client.alpn_protocols = vec![b"h2".to_vec()];
    assert!(http2(&lab, client.clone(), &format!("/live/{NAME}/1/1.m4s")) == whole);
}
