//! A false etcd, whose answers are the test's.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use etcd::{EtcdError, News, Txn};

use super::{client, long};

/// Long enough for an answer of this machine under load.
const PATIENT: Duration = testkit::LONG;

/// A server that answers the n-th request with the n-th text, each with a connection of its own or not, and then closes.
struct False {
    url: String,
    requests: std::sync::mpsc::Receiver<String>,
}

/// Reads a request up to the end of its body.
fn request(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().expect("a length");
        }
        head += &line;
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8(body).expect("text"))
}

impl False {
    /// Answers one request of each connection.
    fn start(answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (sender, requests) = std::sync::mpsc::sync_channel(100);
        std::thread::spawn(move || {
            for answer in answers {
                let Ok((stream, _)) = listener.accept() else { return };
                let mut reader = BufReader::new(stream);
                let Some(text) = request(&mut reader) else { continue };
                let _ = sender.send(text);
                // The client may have seen enough before the end.
                let _ = reader.get_mut().write_all(&answer);
            }
        });
        Self { url, requests }
    }

    fn of(answer: impl Into<Vec<u8>>) -> Self {
        Self::start(vec![answer.into()])
    }
}

fn with_body(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn ok(body: &str) -> Vec<u8> {
    with_body("200 OK", body)
}

/// The error of a range of the only endpoint, which answers so.
fn error_of(answer: impl Into<Vec<u8>>) -> EtcdError {
    let server = False::of(answer);
    client(&[server.url], PATIENT).range("/rbmq/").expect_err("the answer makes no sense")
}

const HEADER: &str = r#""header":{"revision":"7"}"#;

#[test]
fn an_answer_that_makes_no_sense_says_so() {
    let long_head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(40_000));
    let many_fields = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(100));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (answer, expected) in [
        (b"SSH-2.0-OpenSSH\r\n\r\n".to_vec(), "it is not HTTP/1.1"),
        (long_head.into_bytes(), "too long"),
        (many_fields.into_bytes(), "it is not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n".to_vec(), "unknown Transfer-Encoding"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_vec(), "wrong Content-Length"),
        (format!("{chunked}zz\r\n").into_bytes(), "a chunk without a size"),
        (format!("{chunked}1\r\nabc\r\n").into_bytes(), "longer than it says"),
        (ok("[]"), "no object of JSON"),
        (ok("<html>"), "no JSON"),
        (ok("{}"), "there is no revision"),
        (ok(r#"{"header":{"revision":"x"}}"#), "revision is no number"),
        (ok(&format!(r#"{{{HEADER},"kvs":7}}"#)), "kvs is no list"),
        (ok(&format!(r#"{{{HEADER},"kvs":[{{"key":"?"}}]}}"#)), "key is no base64"),
        (ok(&format!(r#"{{{HEADER},"more":true}}"#)), "more than 200000 keys"),
        (with_body("302 Found", ""), "cannot answer (status 302)"),
        (
            b"HTTP/1.1 307 X\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n".to_vec(),
            "redirects to",
        ),
        (with_body("503 Service Unavailable", "<html>"), "(status 503): no reason given"),
        (with_body("200 OK", &"[".repeat(200_000)), "no JSON"),
    ] {
        let error = error_of(answer).to_string();
        assert!(error.contains(expected) && error.contains("etcd at http://127.0.0.1:"), "{error}");
    }
}

#[test]
fn a_body_has_a_limit_and_a_cut_answer_is_an_error() {
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let endless = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}", chunk.repeat(200));
    // The client asks again for fewer keys, and at last for one.
    let server = False::start(vec![endless.into_bytes(); 3]);
    let error = client(&[server.url], PATIENT).range("/rbmq/").unwrap_err().to_string();
    assert!(error.contains("more than 8388608 bytes"), "{error}");
    assert_eq!(server.requests.iter().count(), 3);
    for cut in
        ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "HTTP/1.1 200 OK\r\n\r\n{"]
    {
        let error = error_of(cut);
        assert!(!error.to_string().is_empty(), "{error}");
    }
}

#[test]
fn a_server_that_says_nothing_has_its_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let error = client(&[url], Duration::from_millis(50)).range("/a").unwrap_err();
    assert!(matches!(error, EtcdError::TimedOut { .. }), "{error}");
    drop(listener);
}

#[test]
fn the_next_endpoint_is_asked_after_one_that_fails() {
    let broken = False::of(with_body("503 Service Unavailable", r#"{"message":"no leader","code":14}"#));
    let good = False::of(ok(&format!("{{{HEADER}}}")));
    let nobody = format!("http://{}", testkit::own_addr());
    let mut client = client(&[nobody, broken.url, good.url], PATIENT);
    assert_eq!(client.range("/a").unwrap().revision, 7);
    assert!(broken.requests.recv().unwrap().contains("Grpc-Metadata-hasleader: true"));
}

#[test]
fn what_one_endpoint_refuses_another_one_is_not_asked() {
    let refusing =
        False::of(with_body("403 Forbidden", r#"{"error":"permission denied\u001b[1m","code":7}"#));
    let other = False::of(ok(&format!("{{{HEADER}}}")));
    let error = client(&[refusing.url, other.url], PATIENT).range("/a").unwrap_err();
    assert!(matches!(&error, EtcdError::Refused { code: 7, .. }), "{error}");
    assert!(error.to_string().ends_with("permission denied[1m"), "{error:?}");
    assert!(other.requests.try_recv().is_err());
}

#[test]
fn a_connection_that_has_ended_is_made_anew_and_errors_may_have_trailers() {
    let trailer = "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n\
                   1b\r\n{\"message\":\"gone\",\"code\":5}\r\n0\r\nA: b\r\n\r\n";
    let server =
        False::start(vec![ok(&format!("{{{HEADER}}}")), trailer.into(), ok(&format!("{{{HEADER}}}"))]);
    let mut client = client(&[server.url], PATIENT);
    assert!(!client.txn(&Txn::default()).unwrap());
    assert!(client.revoke(5).unwrap_err().to_string().ends_with("refuses: gone"));
    assert_eq!(client.range("/a").unwrap().revision, 7);
}

/// A watch that gets this text as its body.
fn watch_of(body: &str) -> (etcd::Watch, False) {
    let server = False::of(format!("HTTP/1.1 200 OK\r\n\r\n{body}"));
    let watch = client(std::slice::from_ref(&server.url), PATIENT).watch("/a", 3).unwrap();
    (watch, server)
}

#[test]
fn a_watch_takes_what_comes_and_ends_with_what_makes_no_sense() {
    let event = |revision: u64| {
        format!("{{\"result\":{{\"header\":{{\"revision\":\"{revision}\"}},\"events\":[{{}}]}}}}\n")
    };
    // Revisions that are skipped, and go back: the watch is a hint.
    let created = format!("{{\"result\":{{{HEADER},\"created\":true}}}}\n");
    let (mut watch, server) = watch_of(&format!("{created}{}{}", event(900), event(5)));
    assert_eq!(watch.wait(long()).unwrap(), News::Changed { revision: 900 });
    assert_eq!(watch.wait(long()).unwrap(), News::Changed { revision: 5 });
    assert!(watch.wait(long()).is_err(), "it has ended");
    assert!(server.requests.recv().unwrap().contains("\"start_revision\":\"3\""));
    let endless = "x".repeat(5 << 20);
    for (body, expected) in [
        ("{\"error\":{\"message\":\"no leader\"}}\n", "the watch has ended: no leader"),
        (
            "{\"result\":{\"header\":{\"revision\":\"7\"},\"canceled\":true,\"cancel_reason\":\"compacted\"}}\n",
            "etcd has ended the watch: compacted",
        ),
        ("{\"result\":{}}\n", "there is no revision"),
        ("nonsense\n", "makes no sense"),
        (endless.as_str(), "more than 4194304 bytes"),
    ] {
        let error = watch_of(body).0.wait(long()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_silent_watch_says_that_there_is_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut reader = BufReader::new(listener.accept().unwrap().0);
        request(&mut reader).unwrap();
        let stream = reader.get_mut();
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5").unwrap();
        reader
    });
    let mut watch = client(&[url], PATIENT).watch("/a", 1).unwrap();
    // The size of a chunk has come in part, and stays.
    assert_eq!(watch.wait(Instant::now() + Duration::from_millis(20)).unwrap(), News::None);
    let mut reader = server.join().unwrap();
    let body = "{\"result\":{\"header\":{\"revision\":\"8\"},\"events\":[{}]}}\n    ";
    reader.get_mut().write_all(format!("0\r\n{body:80}\r\n").as_bytes()).unwrap();
    assert_eq!(watch.wait(long()).unwrap(), News::Changed { revision: 8 });
}
