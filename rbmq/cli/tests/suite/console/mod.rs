//! The console and its interface: that it shows the broker as it is, and to nobody else.

mod administration;
mod attacks;
mod browser;
mod groups;
mod logins;
mod messages;
mod reloads;
mod traces;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use rbmq_broker::http::Endpoint;
use rbmq_broker::{Broker, BrokerConfig};
use serde_json::Value;
use testkit::{LONG, broker_with, until};

/// A broker with an endpoint.
struct Site {
    broker: Broker,
    endpoint: Endpoint,
}

/// An answer.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The reason of a refusal.
    fn why(&self) -> String {
        self.json()["error"].as_str().unwrap_or_default().to_owned()
    }

    /// The cookie that the answer sets, as a browser sends it.
    fn cookie(&self) -> String {
        let line = self.head.lines().find(|line| line.to_lowercase().starts_with("set-cookie:")).unwrap();
        line.split_once(": ").unwrap().1.split(';').next().unwrap().to_owned()
    }
}

fn connect(addr: &str) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// The bytes of a request with more lines in its head.
fn request(method: &str, path: &str, more: &str, body: &str) -> String {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{more}");
    match body {
        "" => format!("{head}\r\n"),
        body => format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"),
    }
}

/// The answer that comes over a connection.
fn answer(mut stream: TcpStream) -> Answer {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// The answer to a request with more lines in its head.
fn ask(addr: &str, method: &str, path: &str, more: &str, body: &str) -> Answer {
    let mut stream = connect(addr);
    // The endpoint may have closed the connection before it read everything.
    let _ = stream.write_all(request(method, path, more, body).as_bytes());
    answer(stream)
}

impl Site {
    fn start(change: impl FnOnce(&mut BrokerConfig)) -> Self {
        let broker = broker_with(|config| {
            config.http.listen = "127.0.0.1:0".into();
            change(config);
        });
        let endpoint = Endpoint::start(broker.watch(), &broker.config().http).unwrap();
        Self { broker, endpoint }
    }

    fn connect(&self) -> TcpStream {
        connect(&self.endpoint.addr().to_string())
    }

    /// The answer to a request with more lines in its head.
    fn ask(&self, method: &str, path: &str, more: &str, body: &str) -> Answer {
        ask(&self.endpoint.addr().to_string(), method, path, more, body)
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "")
    }

    /// The answer of the interface, which must be good.
    fn api(&self, path: &str) -> Value {
        let answer = self.get(&format!("/api/v1{path}"));
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    /// Asks as a page does that changes something, of somebody who need not log in.
    fn ask_own(&self, method: &str, path: &str) -> Answer {
        let csrf = self.api("/session")["csrf"].as_str().unwrap().to_owned();
        self.ask(method, path, &format!("X-RBMQ-CSRF: {csrf}\r\n"), "")
    }

    fn begin_trace(&self, query: &str) -> Answer {
        self.ask_own("POST", &format!("/api/v1/trace?{query}"))
    }

    /// Waits until a path shows something.
    fn until(&self, path: &str, mut is: impl FnMut(&Value) -> bool) -> Value {
        let mut shown = Value::Null;
        until(&format!("{path} shows it"), || {
            shown = self.api(path);
            is(&shown)
        });
        shown
    }
}

/// A broker that keeps the topics of a pattern in a folder.
fn keeping(folder: &Path, pattern: &str) -> Site {
    keeping_and(folder, pattern, |_| {})
}

/// The same, with a changed configuration.
fn keeping_and(folder: &Path, pattern: &str, change: impl FnOnce(&mut BrokerConfig)) -> Site {
    Site::start(|config| {
        config.broker.keep_dir = folder.display().to_string();
        let mut rule = rbmq_broker::Rule::new(pattern.parse().unwrap());
        (rule.ingest, rule.keep) = (rbmq_broker::Ingest::Merge, true);
        config.broker.topics = vec![rule].into();
        change(config);
    })
}

/// The answers have the fields of the description, and no others.
#[test]
fn every_answer_is_as_described() {
    let folder = tempfile::tempdir().unwrap();
    let site = keeping(folder.path(), "#");
    let publisher = rbmq::Publisher::connect(&site.broker.addr()).unwrap();
    let _news = publisher.topic("news").unwrap();
    site.until("/topics", |page| page["total"] == 1);
    let _worker = rbmq::Subscriber::builder().group("g").join(&site.broker.addr(), "news").unwrap();
    site.until("/groups", |page| page["rows"][0]["workers"] == 1);
    let clients = site.until("/clients", |page| page["rows"][0]["conn"].is_u64());
    assert_eq!(site.begin_trace("topic=news").status, 200);
    let described = site.api("/openapi.json");
    let paths = described["paths"].as_object().unwrap();
    let mut seen = 0;
    // A program says how it reads its configuration again, and this test does not.
    let is_here = |path: &str| !path.contains("/stream/") && !path.ends_with("/reload");
    for (path, methods) in paths.iter().filter(|(path, _)| is_here(path)) {
        let operation = &methods["get"];
        let fields = &operation["responses"]["200"]["content"]["application/json"]["schema"]["properties"];
        let needed = operation["parameters"].as_array().unwrap().iter().filter(|own| own["required"] == true);
        let value = |own: &Value| match own["name"].as_str().unwrap() {
            "group" => "group=g".to_owned(),
            "conn" => format!("conn={}", clients["rows"][0]["conn"]),
            name => format!("{name}=news"),
        };
        let of_rights = path.ends_with("/rights").then(|| "operation=observe".to_owned());
        let query: Vec<_> = needed.map(value).chain(of_rights).collect();
        let answer = site.get(&format!("{path}?{}", query.join("&")));
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert!(answer.head.contains("application/json") && answer.head.contains("nosniff"), "{path}");
        let json = answer.json();
        for (name, value) in json.as_object().unwrap().iter().filter(|_| !path.ends_with("openapi.json")) {
            let kind = match value {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            };
            let described = &fields[name]["type"];
            let may = described.as_array().cloned().unwrap_or_else(|| vec![described.clone()]);
            assert!(may.contains(&kind.into()), "{path}: {name} is {kind}, and described as {described}");
            seen += 1;
        }
        let missing = fields.as_object().unwrap().keys().find(|name| json.get(name).is_none());
        assert!(missing.is_none() || path.ends_with("/cluster"), "{path} has no {missing:?}");
    }
    assert!(seen > 30, "{seen} fields");
}

#[test]
fn a_slow_subscriber_is_found_with_the_ring_that_it_holds() {
    let site = Site::start(|_| {});
    let publisher = rbmq::Publisher::builder().name("sensor").connect(&site.broker.addr()).unwrap();
    let mut writer = publisher.topic("sensors/kitchen").unwrap();
    let mut subscriber =
        rbmq::Subscriber::builder().name("slow one").ring_bytes(65536).connect(&site.broker.addr()).unwrap();
    subscriber.subscribe("sensors/#").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    // The subscriber takes nothing, and its ring is full.
    let page = site.until("/topics?sort=lag", |page| {
        for _ in 0..1_000 {
            let _ = writer.publish_timeout(&[7; 1_000], Some(Duration::ZERO));
        }
        let _ = writer.flush(Some(Duration::from_millis(1)));
        page["rows"][0]["max_lag_bytes"].as_u64() > Some(100_000)
    });
    let row = &page["rows"][0];
    assert_eq!((&row["topic"], &row["slowest"]["name"]), (&"sensors/kitchen".into(), &"slow one".into()));
    let topic = site.api("/topic?name=sensors/kitchen");
    let ring = &topic["buffers"][0];
    let cursor = &ring["subscriptions"][0];
    assert_eq!((&ring["publisher"], &cursor["client"]), (&"sensor".into(), &"slow one".into()));
    assert!(cursor["landed"].as_u64() < ring["head"].as_u64(), "{topic}");
    let clients = site.until("/clients?search=SLOW", |page| page["matched"] == 1);
    let client = &clients["rows"][0];
    assert_eq!((&client["role"], &client["subscriptions"]), (&"subscriber".into(), &1.into()), "{clients}");
    assert!(client["max_lag_bytes"].as_u64() > Some(0), "{clients}");
    assert_eq!(site.api("/clients?role=publisher")["rows"][0]["name"], "sensor");
    let overview = site.until("/overview", |overview| overview["slowest"][0]["topic"] == "sensors/kitchen");
    assert!(overview["alarms"].as_array().is_some(), "{overview}");
}

/// Ten thousand topics cost what one page shows.
#[test]
fn lists_are_searched_sorted_and_cut_at_the_broker() {
    let site = Site::start(|_| {});
    let publisher = rbmq::Publisher::connect(&site.broker.addr()).unwrap();
    let builder = |n: usize| publisher.topic(&format!("plant/{n:04}/Temperature")).unwrap();
    let _writers: Vec<_> = (0..1_000).map(builder).collect();
    site.until("/topics", |page| page["total"] == 1_000);
    let page = site.get("/api/v1/topics?sort=name&offset=995&limit=10");
    let rows = page.json()["rows"].as_array().unwrap().clone();
    let names: Vec<_> = rows.iter().map(|row| row["topic"].as_str().unwrap()).collect();
    assert_eq!((names.len(), names[0]), (5, "plant/0995/Temperature"));
    assert!(page.body.len() < 10_000, "{} bytes", page.body.len());
    assert_eq!(site.api("/topics?search=0042/tEMP")["matched"], 1);
    assert_eq!(site.api("/topics?filter=plant/%2B/Humidity")["matched"], 0);
    assert_eq!(site.api("/topics?filter=plant/%23&limit=0")["matched"], 1_000);
    for wrong in ["sort=x", "limit=501", "offset=-1", "filter=a%23", "x=1", "search=%ff"] {
        let answer = site.get(&format!("/api/v1/topics?{wrong}"));
        assert_eq!(answer.status, 400, "{wrong}: {answer:?}");
        assert!(answer.why().len() > 10, "{wrong}: {answer:?}");
    }
    assert_eq!(site.get("/api/v1/topic?name=nowhere").status, 404);
    assert_eq!(site.get("/api/v1/topic?name=a%00b").status, 400);
}

/// The broker has topics level by level: `a/b` before `a-b`. Names sort otherwise.
#[test]
fn topics_have_rates_whatever_their_names() {
    let site = Site::start(|_| {});
    let publisher = rbmq::Publisher::connect(&site.broker.addr()).unwrap();
    let names = ["a/b", "a-b", "a", "a/b-c", "a/b/c", "a.b"];
    let _writers: Vec<_> = names.iter().map(|name| publisher.topic(name).unwrap()).collect();
    site.until("/topics", |page| page["total"] == names.len());
    let page = site.until("/topics?sort=name", |page| {
        let rows = page["rows"].as_array().unwrap();
        rows.iter().filter(|row| row["in_bytes_per_s"].is_number()).count() == names.len()
    });
    let shown: Vec<_> =
        page["rows"].as_array().unwrap().iter().map(|row| row["topic"].as_str().unwrap()).collect();
    assert!(shown.is_sorted(), "{shown:?}");
    for name in names {
        assert_eq!(site.api(&format!("/topic?name={name}"))["row"]["topic"], name);
    }
}

/// A topic of a space has no ring of its own, and is not said to be missing.
#[test]
fn a_topic_of_a_space_is_looked_for_in_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(|config| {
        config.broker.keep_dir = folder.path().display().to_string();
        let mut rule = rbmq_broker::Rule::new("d/#".parse().unwrap());
        (rule.space, rule.keep) = (true, true);
        config.broker.topics = vec![rule].into();
    });
    let publisher = rbmq::Publisher::connect(&site.broker.addr()).unwrap();
    let mut writer = publisher.topic("d/1").unwrap();
    writer.publish(b"hello").unwrap();
    writer.flush(Some(LONG)).unwrap();
    let answer = site.get("/api/v1/topic?name=d/1");
    assert_eq!(answer.status, 404, "{answer:?}");
    let why = answer.why();
    let log = why.split('\'').nth(3).unwrap_or_else(|| panic!("{why}"));
    let topic = site.api(&format!("/topic?name={}", log.replace('#', "%23")));
    assert_eq!(topic["topic"], log);
    assert!(site.get("/api/v1/topic?name=nowhere").why().contains("no such topic"));
}

/// A page of the clients begins behind the last one of the page before, whatever these do.
#[test]
fn all_clients_are_shown() {
    let site = Site::start(|_| {});
    let addr = site.broker.addr();
    let _publishers: Vec<_> = (0..300).map(|_| rbmq::Publisher::connect(&addr).unwrap()).collect();
    let _subscribers: Vec<_> = (0..300).map(|_| rbmq::Subscriber::connect(&addr).unwrap()).collect();
    let _observer = rbmq::Observer::connect(&addr).unwrap();
    let page = site.until("/clients?sort=connection&limit=500", |page| page["total"] == 601);
    assert_eq!(page["is_cut"], false);
    let of_role = |role: &str| site.api(&format!("/clients?role={role}&limit=1"))["matched"].as_u64();
    assert_eq!(
        (of_role("publisher"), of_role("subscriber"), of_role("observer")),
        (Some(300), Some(300), Some(1))
    );
    let numbers: Vec<_> = page["rows"].as_array().unwrap().iter().map(|row| row["conn"].as_u64()).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
}

#[test]
fn kept_topics_and_settings_are_shown_with_what_decides_about_them() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(|config| {
        config.broker.keep_dir = folder.path().display().to_string();
        let mut rule = rbmq_broker::Rule::new("kept/#".parse().unwrap());
        (rule.ingest, rule.keep, rule.keep_ms) = (rbmq_broker::Ingest::Merge, true, Some(60_000));
        config.broker.topics = vec![rule].into();
    });
    let publisher = rbmq::Publisher::connect(&site.broker.addr()).unwrap();
    let mut writer = publisher.topic("kept/a").unwrap();
    writer.publish(b"hello").unwrap();
    writer.flush(Some(LONG)).unwrap();
    let page = site.until("/kept", |page| page["rows"][0]["end"].as_u64() > Some(0));
    let row = &page["rows"][0];
    assert_eq!(
        (&row["topic"], &row["keep_ms"], &row["first"]),
        (&"kept/a".into(), &60_000.into(), &0.into())
    );
    site.until("/overview", |page| page["kept"]["topics"] == 1);
    let setting = &site.api("/settings?search=http.max_streams")["rows"][0];
    assert_eq!((&setting["value"], &setting["is_default"]), (&"32".into(), &true.into()), "{setting}");
    assert_eq!(site.api("/cluster")["is_alone"], true);
}

/// A stream has the state at once, and again when it is another one.
#[test]
fn a_stream_tells_of_changes() {
    let site = Site::start(|_| {});
    let mut stream = site.connect();
    let head = "GET /api/v1/stream/topics?sort=name HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut seen = String::new();
    let mut read_until = |wanted: &str| {
        let mut bytes = [0; 4096];
        while !seen.contains(wanted) {
            let n = stream.read(&mut bytes).unwrap();
            assert!(n > 0, "the stream ended: {seen}");
            seen.push_str(&String::from_utf8_lossy(&bytes[..n]));
        }
        seen.clone()
    };
    let begun = read_until("\"total\":0");
    assert!(begun.contains("text/event-stream") && begun.contains("retry: 1000\ndata: {"), "{begun}");
    let publisher = rbmq::Publisher::connect(&site.broker.addr()).unwrap();
    let _writer = publisher.topic("news").unwrap();
    read_until("\"topic\":\"news\"");
}

#[test]
fn the_files_of_the_page_come_with_a_strict_policy_or_not_at_all() {
    let site = Site::start(|_| {});
    let page = site.get("/ui/");
    assert_eq!(page.status, 200);
    for wanted in
        ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "trusted-types 'none'"]
    {
        assert!(page.head.contains(wanted), "{}", page.head);
    }
    let moved = site.get("/ui");
    assert!(moved.status == 308 && moved.head.contains("location: /ui/"), "{moved:?}");
    let tag = page.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    assert_eq!(site.ask("GET", "/ui/", &format!("If-None-Match: {tag}\r\n"), "").status, 304);
    assert_eq!(site.get("/ui/../../etc/passwd").status, 404);
    assert_eq!(site.ask("POST", "/ui/", "", "{}").status, 405);
    assert_eq!(site.ask("DELETE", "/api/v1/topics", "", "").status, 405);
    assert!(site.get("/").body.contains("/ui"));
    let off = Site::start(|config| config.http.console = rbmq_broker::EndpointConsole::Off);
    assert!(!off.get("/").body.contains("/ui"));
    for path in ["/ui/", "/ui", "/api/v1/session", "/api/v1/topics"] {
        assert_eq!(off.get(path).status, 404, "{path}");
    }
    assert_eq!(off.get("/topics").status, 200);
}
