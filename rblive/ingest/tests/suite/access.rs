//! Users, a web-hook, and attempts that fail.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use access::PasswordHash;
use peers::Secret;
use rblive_ingest::{IngestSettings, User};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use testkit::own_addr;

use crate::http::{exchange, head, put, put_at};
use crate::material::{RATE, SMALL, ts};
use crate::node::{KEY, Node};
use crate::rtmp::{Peer, handshake};

/// Requests that a hook got: the signature, and the body.
type Calls = Arc<Mutex<Vec<(String, String)>>>;

/// A web server that gives the same answer each time.
fn hook(answer: &str) -> (SocketAddr, Calls) {
    let answer = answer.to_owned();
    hook_that(move |_| answer.clone())
}

/// A web server whose answer depends on the body.
fn hook_that(answers: impl Fn(&str) -> String + Send + 'static) -> (SocketAddr, Calls) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, calls) = (listener.local_addr().unwrap(), Calls::default());
    let seen = calls.clone();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            let mut reader = BufReader::new(socket.try_clone().unwrap());
            let (mut length, mut signature) = (0, String::new());
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let line = line.trim_end();
                if line.is_empty() {
                    break;
                }
                let (name, value) = line.split_once(": ").unwrap_or((line, ""));
                match name.to_ascii_lowercase().as_str() {
                    "content-length" => length = value.parse().unwrap(),
                    "x-rblive-signature" => signature = value.to_owned(),
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let body = String::from_utf8(body).unwrap();
            let answer = answers(&body);
            seen.lock().unwrap().push((signature, body));
            // The caller may have given up.
            let _ = socket.write_all(answer.as_bytes());
        }
    });
    (address, calls)
}

fn asks(address: SocketAddr) -> Node {
    Node::with(|settings| {
        settings.hook.url = format!("http://{address}/publish?from=rblive");
        settings.hook.secret = "hook secret".to_owned();
        settings.limits.idle_ms = 600_000;
    })
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn a_hook_is_asked_and_told() {
    let (address, calls) = hook(&answer("200 OK", ""));
    let node = asks(address);
    let mut peer = Peer::accepted(&node);
    peer.stream(0..2);
    // The node has subscribed to the stream then, which ends soon.
    node.wait_for_frames(usize::from(RATE));
    peer.leave();
    node.wait_for_end();
    node.wait("the hook is told of the end", || calls.lock().unwrap().len() == 2);
    let calls = calls.lock().unwrap();
    for ((signature, body), action) in calls.iter().zip(["publish", "unpublish"]) {
        assert!(
            body.contains(&format!(r#""action":"{action}","stream":"camera","protocol":"rtmp""#)),
            "{body}"
        );
        assert!(
            body.contains(&format!(r#""key":"{KEY}""#)) && body.contains(r#""address":"127.0.0.1""#),
            "{body}"
        );
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, b"hook secret");
        let tag = aws_lc_rs::hmac::sign(&key, body.as_bytes());
        let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(signature, &format!("sha256={hex}"));
    }
}

#[test]
fn a_hook_refuses_and_renames() {
    for (answer, status) in [
        (answer("200 OK", r#"{"allow": false, "reason": "not today"}"#), 403),
        (answer("401 Unauthorized", ""), 403),
        (answer("200 OK", "OK"), 503),
        (answer("200 OK", r#"{"stream": "../etc"}"#), 503),
        ("rubbish\r\n\r\n".to_owned(), 503),
        (String::new(), 503),
    ] {
        let node = asks(hook(&answer).0);
        assert_eq!(put(&node, "0.ts", &ts(SMALL, 0..RATE)), status, "{answer}");
        assert!(!Peer::publish(&node, "camera", KEY).1, "{answer}");
    }
    let node = asks(hook(&answer("200 OK", r#"{"stream": "camera"}"#)).0);
    let (mut peer, accepted) = Peer::publish(&node, "another", KEY);
    assert!(accepted);
    peer.stream(0..2);
    node.wait_for_frames(usize::from(RATE));
}

/// A node whose only door is a hook, which opens for a key.
fn opens_for_a_key() -> (Node, Calls) {
    let is_known = format!(r#""key":"{KEY}""#);
    let (address, calls) =
        hook_that(move |body| answer(if body.contains(&is_known) { "200 OK" } else { "403 Forbidden" }, ""));
    let node = Node::with(|settings| {
        settings.keys.clear();
        settings.hook.url = format!("http://{address}/");
    });
    (node, calls)
}

/// The status of a PUT without a key.
fn put_without(node: &Node, path: &str, body: &[u8]) -> u16 {
    let head = String::from_utf8(head("PUT", path, body.len())).unwrap();
    let head = head.replace(&format!("Authorization: Bearer {KEY}\r\n"), "");
    exchange(node.addresses().http.unwrap(), &[head.as_bytes(), body].concat())
}

#[test]
fn a_hook_is_asked_for_every_client_that_writes_to_a_stream() {
    let (node, calls) = opens_for_a_key();
    assert_eq!(put(&node, "0.ts", &ts(SMALL, 0..RATE)), 201);
    assert_eq!(put_without(&node, "/live/camera/1.ts", &ts(SMALL, RATE..2 * RATE)), 403);
    assert_eq!(put(&node, "1.ts", &ts(SMALL, 2 * RATE..3 * RATE)), 201);
    assert_eq!(calls.lock().unwrap().len(), 2, "its answer for a publisher holds while the stream is there");
    node.wait_for_end();
    assert_eq!(node.frames(), (0..RATE).chain(2 * RATE..3 * RATE).collect::<Vec<_>>());
}

#[test]
fn a_hook_is_asked_for_the_stream_of_a_playlist_with_renditions() {
    let (node, calls) = opens_for_a_key();
    let playlist = b"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n0/media.m3u8\n";
    assert_eq!(put_at(&node, "show/0/0.ts", &ts(SMALL, 0..RATE)), 201);
    assert_eq!(put_without(&node, "/live/show/master.m3u8", playlist), 403);
    assert_eq!(put_at(&node, "show/master.m3u8", playlist), 201);
    assert_eq!(put_at(&node, "show/master.m3u8", playlist), 201);
    assert_eq!(put_without(&node, "/live/show/master.m3u8", playlist), 201, "the renditions are known");
    assert_eq!(calls.lock().unwrap().len(), 3);
}

#[test]
fn a_hook_is_asked_for_each_rendition_of_a_playlist() {
    let (address, calls) = hook_that(|body| {
        let is_refused = body.contains(r#""stream":"show/1""#);
        answer(if is_refused { "403 Forbidden" } else { "200 OK" }, "")
    });
    let node = Node::with(|settings| {
        (settings.hook.url, settings.limits.idle_ms) = (format!("http://{address}/"), 60_000);
        // A refused rendition is none: the encoder of another one may push the same playlist.
        settings.limits.failed_attempts = 1;
    });
    let playlist = |rendition: u8| {
        let names = format!("0/m.m3u8\n#EXT-X-STREAM-INF:BANDWIDTH=2\n{rendition}/m.m3u8");
        format!("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{names}\n")
    };
    assert_eq!(put_at(&node, "show/0/0.ts", &ts(SMALL, 0..RATE)), 201);
    assert_eq!(put_at(&node, "show/master.m3u8", playlist(1).as_bytes()), 403);
    assert_eq!(put_at(&node, "show/master.m3u8", playlist(2).as_bytes()), 201);
    let calls = calls.lock().unwrap();
    let asked: Vec<_> = calls.iter().map(|(_, body)| body.split('"').nth(7).unwrap()).collect();
    assert_eq!(
        asked,
        ["show/0", "show", "show/1", "show", "show/2"],
        "what is published was allowed already"
    );
}

#[test]
fn without_an_answer_nobody_publishes() {
    let gone = own_addr().parse().unwrap();
    assert_eq!(put(&asks(gone), "0.ts", &ts(SMALL, 0..RATE)), 503);
    // This server accepts connections, and is silent.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let node = Node::with(|settings| {
        (settings.hook.url, settings.hook.timeout_ms) = (format!("http://{address}/"), 300);
    });
    assert_eq!(put(&node, "0.ts", &ts(SMALL, 0..RATE)), 503);
}

/// The head of a request of a user.
fn basic(path: &str, credentials: &str, length: usize) -> Vec<u8> {
    let head = String::from_utf8(head("PUT", path, length)).unwrap();
    head.replace(&format!("Bearer {KEY}"), &format!("Basic {credentials}")).into_bytes()
}

/// The user anna alone may publish, with the password "pass word".
fn admit_anna(settings: &mut IngestSettings, streams: &str) {
    settings.keys.clear();
    let hash = PasswordHash::of(&Secret::from("pass word".to_owned())).unwrap();
    let user = User { password: hash.to_string(), streams: vec![streams.to_owned()] };
    settings.users.insert("anna".to_owned(), user);
}

#[test]
fn users_publish_their_streams() {
    let node = Node::with(|settings| admit_anna(settings, "cam*"));
    let address = node.addresses().http.unwrap();
    let body = ts(SMALL, 0..RATE);
    // base64 of "anna:pass word" and "anna:wrong".
    let (right, wrong) = ("YW5uYTpwYXNzIHdvcmQ=", "YW5uYTp3cm9uZw==");
    let status = |path: &str, credentials: &str| {
        exchange(address, &[&basic(path, credentials, body.len())[..], &body].concat())
    };
    assert_eq!(status("/live/camera/0.ts", wrong), 401);
    assert_eq!(status("/live/other/0.ts", right), 401);
    assert_eq!(status("/live/camera/0.ts", right), 201);
    assert_eq!(put(&node, "1.ts", &body), 401, "a key opens nothing");
}

#[test]
fn guesses_at_once_are_the_attempts_of_one_address_too() {
    let node = Node::with(|settings| {
        admit_anna(settings, "*");
        settings.limits.failed_attempts = 3;
    });
    let address = node.addresses().http.unwrap();
    // base64 of "anna:wrong".
    let guess = move || exchange(address, &basic("/live/camera/0.ts", "YW5uYTp3cm9uZw==", 0));
    let all: Vec<_> = (0..24).map(|_| std::thread::spawn(guess)).collect();
    let all: Vec<u16> = all.into_iter().map(|guessed| guessed.join().unwrap()).collect();
    let checked = all.iter().filter(|status| **status == 401).count();
    assert!((3..=4).contains(&checked), "{checked} of {all:?}: two are checked at once");
    assert_eq!(all.iter().filter(|status| **status == 429).count(), 24 - checked);
}

#[test]
fn an_address_has_a_few_attempts() {
    let node = Node::with(|settings| settings.limits.failed_attempts = 3);
    for _ in 0..3 {
        assert!(!Peer::publish(&node, "camera", "wrong").1);
    }
    assert!(!Peer::publish(&node, "camera", KEY).1, "the right key comes too late");
    assert_eq!(put(&node, "0.ts", &ts(SMALL, 0..RATE)), 429);
}

#[test]
fn a_renewed_certificate_is_used_and_a_damaged_one_is_not() {
    let node = Node::start();
    assert!(node.ingest.reload().is_ok());
    std::fs::write(node.folder.path().join("key.pem"), "rubbish").unwrap();
    let error = node.ingest.reload().unwrap_err().to_string();
    assert!(error.contains("key.pem"), "{error}");
}

/// Behind a proxy the clients are judged, and not the proxy.
/// Cameras, older encoders, and the proxies of some distributions, speak TLS 1.2.
#[test]
fn encoders_with_tls_1_2_are_served() {
    let node = Node::start();
    let file = std::fs::read(node.folder.path().join("ca.pem")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&file).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let old = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12]);
    let client = Arc::new(old.unwrap().with_root_certificates(roots).with_no_client_auth());
    let put = head("PUT", "/live/camera/0.ts", 0);
    let addresses = node.addresses();
    for (address, sent, answered) in
        [(addresses.https, put, &b"HTTP/1.1 400"[..]), (addresses.rtmps, handshake(), &[3])]
    {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = rustls::ClientConnection::new(client.clone(), name).unwrap();
        let socket = TcpStream::connect(address.unwrap()).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, socket);
        stream.write_all(&sent).unwrap();
        let mut got = vec![0; answered.len()];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, answered);
        assert_eq!(stream.conn.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_2));
    }
}

#[test]
fn attempts_behind_a_proxy_count_for_the_client() {
    let node = Node::with(|settings| {
        settings.proxies = vec!["127.0.0.1".to_owned()];
        settings.limits.failed_attempts = 2;
        settings.limits.connections = 4;
    });
    let put = |client: &str, key: &str| {
        let file = ts(SMALL, 0..RATE);
        let head = String::from_utf8(head("PUT", "/live/camera/0.ts", file.len())).unwrap().replace(KEY, key);
        let (line, fields) = head.split_once("\r\n").unwrap();
        // A client says of itself what it likes, also what is no text.
        let said = [b"\r\nX-Forwarded-For: \xff, ", client.as_bytes(), b"\r\n"].concat();
        exchange(node.addresses().http.unwrap(), &[line.as_bytes(), &said, fields.as_bytes(), &file].concat())
    };
    for status in [401, 401, 429] {
        assert_eq!(put("192.0.2.1", "wrong"), status);
    }
    assert_eq!(put("192.0.2.1", KEY), 429);
    assert_eq!(put("192.0.2.2", KEY), 201);
}
