//! What strangers try: markup in names, foreign pages, streams without end.

use std::io::{Read, Write};

use serde_json::json;
use testkit::until;

use super::Site;

/// Names are texts in JSON, which no browser takes for a page, and hide nothing.
#[test]
fn markup_in_names_stays_text() {
    let site = Site::start(|_| {});
    let name = "<img src=x onerror=alert(1)>\u{202e}";
    let publisher = rbmq::Publisher::builder().name(name).connect(&site.broker.addr()).unwrap();
    let _writer = publisher.topic("a/<script>alert(1)</script>\u{200b}").unwrap();
    let page = site.until("/topics", |page| page["total"] == 1);
    assert_eq!(page["rows"][0]["topic"], "a/<script>alert(1)</script>\u{200b}");
    let mut answers = vec![site.get("/api/v1/topics"), site.get("/api/v1/clients")];
    answers.push(site.get("/api/v1/topic?name=a/%3Cscript%3Ealert(1)%3C/script%3E%E2%80%8B"));
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

/// A thousand streams: as many as are allowed are served, and the others are told why not. Other requests find a place, and the places of
/// those that leave are free again.
#[test]
fn a_thousand_streams_take_no_more_than_their_places() {
    let site = Site::start(|config| (config.http.max_streams, config.http.max_connections) = (5, 40));
    let (mut open, mut refused, mut turned_away) = (Vec::new(), 0, 0);
    for _ in 0..1_000 {
        let mut stream = site.connect();
        let request = "GET /api/v1/stream/overview HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        let mut first = [0; 512];
        let read = stream.write_all(request.as_bytes()).and_then(|()| stream.read(&mut first)).unwrap_or(0);
        match std::str::from_utf8(&first[..read]).unwrap().split(' ').nth(1) {
            Some("200") => open.push(stream),
            Some("503") => {
                let text = String::from_utf8_lossy(&first[..read]).into_owned();
                assert!(text.contains("http.max_streams") && text.contains("retry-after"), "{text}");
                refused += 1;
            }
            _ => turned_away += 1,
        }
    }
    assert_eq!((open.len(), refused + turned_away), (5, 995));
    assert!(refused > 900, "{refused} were told why, and {turned_away} found no place");
    assert_eq!(site.get("/api/v1/topics").status, 200);
    assert_eq!(site.get("/health").status, 200);
    drop(open);
    until("there are places again", || {
        let mut stream = site.connect();
        let request = "GET /api/v1/stream/overview HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        let mut first = [0; 64];
        stream.write_all(request.as_bytes()).unwrap();
        let read = stream.read(&mut first).unwrap_or(0);
        first[..read].starts_with(b"HTTP/1.1 200")
    });
}
