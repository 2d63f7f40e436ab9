//! What strangers try: markup in names, foreign pages, streams without end.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;
use testkit::{LONG, until};

use super::Site;

/// Names and messages are texts in JSON, which no browser takes for a page, and hide nothing.
#[test]
fn markup_in_names_and_messages_stays_text() {
    let site = Site::start(|_| {});
    let name = "<img src=x onerror=alert(1)>\u{202e}";
    let publisher = rbmq::Publisher::builder().name(name).connect(&site.broker.addr()).unwrap();
    let mut writer = publisher.topic("a/<script>alert(1)</script>\u{200b}").unwrap();
    writer.publish(name.as_bytes()).unwrap();
    writer.flush(Some(LONG)).unwrap();
    let page = site.until("/topics", |page| page["total"] == 1);
    assert_eq!(page["rows"][0]["topic"], "a/<script>alert(1)</script>\u{200b}");
    let topic = "a/%3Cscript%3Ealert(1)%3C/script%3E%E2%80%8B";
    let messages = site.get(&format!("/api/v1/messages?topic={topic}"));
    assert_eq!(messages.json()["logs"][0]["rows"][0]["text"], name);
    let mut answers = vec![messages, site.get("/api/v1/topics"), site.get("/api/v1/clients")];
    answers.push(site.get(&format!("/api/v1/topic?name={topic}")));
    answers.push(site.get("/api/v1/topic?name=%3Cscript%3E"));
    answers.push(site.get("/api/v1/%3Cscript%3E"));
    answers.push(site.get("/api/v1/topics?%3Cscript%3E=1"));
    for answer in answers {
        assert!(answer.head.contains("application/json") && answer.head.contains("nosniff"), "{answer:?}");
        assert!(!answer.body.contains(['\u{202e}', '\u{200b}']), "{answer:?}");
    }
}

/// A page of another site reads nothing and changes nothing, also where nobody is asked for anything.
#[test]
fn foreign_pages_get_nothing() {
    let site = Site::start(|_| {});
    let csrf = site.api("/session")["csrf"].as_str().unwrap().to_owned();
    for forged in [
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
    ] {
        for path in ["/api/v1/overview", "/api/v1/session", "/api/v1/stream/topics"] {
            assert_eq!(site.ask("GET", path, forged, "").status, 403, "{forged} {path}");
        }
        let delete = site.ask("DELETE", "/api/v1/session", &format!("{forged}X-RBMQ-CSRF: {csrf}\r\n"), "");
        assert_eq!(delete.status, 403, "{forged}");
        let login = json!({ "token": "0123456789abcdef" }).to_string();
        assert_eq!(site.ask("POST", "/api/v1/session", forged, &login).status, 403, "{forged}");
    }
    let own = "Sec-Fetch-Site: same-origin\r\nOrigin: http://127.0.0.1\r\n";
    assert_eq!(site.ask("GET", "/api/v1/overview", own, "").status, 200);
    // The name of the page leads to this machine.
    for path in ["/ui/", "/api/v1/session", "/api/v1/overview"] {
        let mut stream = site.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{path}: {answer}");
    }
}

#[test]
fn a_login_that_is_none_is_refused() {
    let site = Site::start(|_| {});
    let large = format!("{{\"token\":\"{}\"}}", "x".repeat(10_000));
    for (body, status) in [
        ("{", 400),
        ("[]", 400),
        ("{}", 400),
        ("{\"token\":1}", 400),
        ("{\"token\":\"a\",\"user\":\"b\"}", 400),
        ("{\"user\":\"a\"}", 400),
        ("{\"password\":\"x\",\"user\":\"a\"}", 401),
        ("{\"token\":\"0123456789abcdef\"}", 401),
        ("{\"other\":1}", 400),
        (&large, 413),
    ] {
        let answer = site.ask("POST", "/api/v1/session", "", body);
        assert_eq!(answer.status, status, "{body:.60}: {answer:?}");
    }
    let mut stream = site.connect();
    let form = "POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: text/plain\r\n\
                Content-Length: 2\r\n\r\n{}";
    stream.write_all(form.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

/// Whether the head of an answer is there, and the reason of a refusal.
fn is_told(text: &str) -> bool {
    text.contains("\r\n\r\n") && (text.starts_with("HTTP/1.1 200") || text.contains('}'))
}

/// The first bytes of an answer, until they are enough or it ends.
fn begin_of(stream: &mut TcpStream, is_enough: impl Fn(&str) -> bool) -> String {
    let (mut seen, mut bytes) = (Vec::new(), [0; 512]);
    loop {
        let read = stream.read(&mut bytes).unwrap_or(0);
        seen.extend_from_slice(&bytes[..read]);
        let text = String::from_utf8_lossy(&seen).into_owned();
        if read == 0 || is_enough(&text) {
            return text;
        }
    }
}

/// A thousand streams: as many as are allowed are served, and the others are told why not. Other requests find a place, and the places of
/// those that leave are free again.
#[test]
fn a_thousand_streams_take_no_more_than_their_places() {
    let site = Site::start(|config| (config.http.max_streams, config.http.max_connections) = (5, 40));
    let (mut open, mut refused, mut turned_away) = (Vec::new(), 0, 0);
    let request = "GET /api/v1/stream/overview HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    // All within the life of the first.
    for _ in 0..1_000 {
        let mut stream = site.connect();
        let _ = stream.write_all(request.as_bytes());
        let begin = begin_of(&mut stream, is_told);
        match begin.split(' ').nth(1) {
            Some("200") => open.push(stream),
            Some("503") => {
                assert!(begin.contains("http.max_streams") && begin.contains("retry-after"), "{begin}");
                refused += 1;
            }
            _ => turned_away += 1,
        }
    }
    assert!((1..=5).contains(&open.len()), "{} streams", open.len());
    assert!(refused > 800, "{refused} were told why, and {turned_away} found no place");
    assert_eq!(site.get("/api/v1/topics").status, 200);
    assert_eq!(site.get("/health").status, 200);
    drop(open);
    until("there are places again", || {
        let mut stream = site.connect();
        stream.write_all(request.as_bytes()).unwrap();
        begin_of(&mut stream, is_told).starts_with("HTTP/1.1 200")
    });
}

/// Streams leave half of the connections to others, whatever is set.
#[test]
fn streams_never_take_all_connections() {
    let site = Site::start(|config| (config.http.max_streams, config.http.max_connections) = (1_000, 8));
    let request = "GET /api/v1/stream/overview HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let mut streams: Vec<_> = (0..5).map(|_| site.connect()).collect();
    let mut answers = streams.iter_mut().map(|stream| {
        stream.write_all(request.as_bytes()).unwrap();
        begin_of(stream, is_told)
    });
    assert!(answers.any(|begin| begin.starts_with("HTTP/1.1 503")), "the fifth one is refused");
}

/// A cookie that is no session's does not hide who the client is otherwise, and is forgotten. Browsers send it to all ports of a host.
#[test]
fn a_stale_cookie_is_no_obstacle() {
    let site = Site::start(|_| {});
    let stale = "Cookie: rbmq-console=old\r\n";
    let answer = site.ask("GET", "/api/v1/overview", stale, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(
        answer.head.contains("rbmq-console=; Path=/api/") && answer.head.contains("Max-Age=0"),
        "{answer:?}"
    );
    assert!(!site.get("/api/v1/overview").head.contains("set-cookie"));
    let mut stream = site.connect();
    let request = format!("GET /api/v1/stream/overview HTTP/1.1\r\nHost: 127.0.0.1\r\n{stale}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let begin = begin_of(&mut stream, |text| {
        text.split_once("data: ").is_some_and(|(_, event)| event.contains("\n\n"))
    });
    assert!(!begin.contains("event: problem") && begin.contains("max_lag_bytes"), "{begin}");
}

/// What a page shows as a command is one: names of strangers are quoted.
#[test]
fn commands_have_quoted_names() {
    let site = Site::start(|_| {});
    let mut commands = 0;
    for file in ["topic.js", "lists.js", "overview.js", "login.js", "app.js", "parts.js"] {
        let text = site.get(&format!("/ui/{file}")).body;
        for command in text.split("`rbmq ").skip(1) {
            let command = command.split('`').next().unwrap();
            for value in command.split("${").skip(1) {
                let is_number = value.starts_with("row.first}");
                assert!(value.starts_with("quoted(") || is_number, "{file}: rbmq {command}");
                commands += 1;
            }
        }
    }
    assert!(commands >= 3, "{commands}");
}
