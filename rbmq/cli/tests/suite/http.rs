//! The HTTP endpoint: its pages, its sums, and that a client that misuses it does not disturb others.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use testkit::{LONG, Process, until};

use crate::common::operator::Operated;
use crate::common::{client, lines, piped, rbmq};

/// The answer to these bytes, up to the end of the connection.
fn exchange(addr: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    // The server may have closed the connection before it read everything.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn request(addr: &str, method: &str, path: &str) -> (u16, String) {
    request_with(addr, method, path, "")
}

/// With more header lines.
fn request_with(addr: &str, method: &str, path: &str, headers: &str) -> (u16, String) {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    let answer = exchange(addr, head.as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub(crate) fn get(addr: &str, path: &str) -> (u16, String) {
    request(addr, "GET", path)
}

/// The samples by name and labels. Checks the types and the help of the text.
fn metrics(addr: &str) -> BTreeMap<String, f64> {
    let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1\r\n";
    let (status, text) = request_with(addr, "GET", "/metrics", accept);
    assert_eq!(status, 200, "{text}");
    assert!(text.ends_with("# EOF\n"), "the text is complete");
    let mut samples = BTreeMap::new();
    let mut described = Vec::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(help.len() > 5, "{line}");
            described.push(name.to_owned());
        } else if let Some((sample, value)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) {
            let name = sample.split('{').next().unwrap();
            let family = name.strip_suffix("_total").unwrap_or(name);
            assert!(described.iter().any(|d| d == family), "{name} has no HELP");
            assert!(samples.insert(sample.to_owned(), value.parse().unwrap()).is_none(), "twice: {sample}");
        }
    }
    samples
}

fn watched(args: &[&str]) -> (Operated, String) {
    let broker = Operated::start_with(&[&["--http", "127.0.0.1:0"], args].concat());
    let line = broker.wait_said("rbmq: metrics on http://");
    (broker, line.trim_end_matches("/metrics").to_owned())
}

fn publish(broker: &Operated, args: &str, text: &str) {
    let mut publisher = Process::start(piped(client("pub", &broker.addr, args)));
    publisher.feed(text.as_bytes());
    publisher.finish().good();
}

/// The name of a web page may lead to this machine, so that its scripts read whatever has this name.
#[test]
fn pages_are_not_for_web_sites_whose_name_leads_here() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rbmq.toml");
    std::fs::write(&path, "[http]\nnames = ['metrics.example.org']\n").unwrap();
    let (broker, http) = watched(&["--config", path.to_str().unwrap()]);
    let status = |path: &str, host: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        exchange(&http, head.as_bytes()).split(' ').nth(1).unwrap().to_owned()
    };
    for path in ["/topics", "/metrics", "/"] {
        assert_eq!(status(path, "evil.example:7412"), "403", "{path}");
        for known in [&*http, "localhost:7412", "broker:7412", "[::1]", "metrics.example.org"] {
            assert_eq!(status(path, known), "200", "{path} {known}");
        }
    }
    assert_eq!(status("/health", "evil.example:7412"), "200", "it tells nothing");
    broker.end();
}

#[test]
fn a_scraper_without_open_metrics_gets_the_older_format() {
    let (broker, http) = watched(&[]);
    let (status, text) = get(&http, "/metrics");
    assert_eq!(status, 200, "{text}");
    assert!(
        text.contains("\n# TYPE rbmq_received_bytes_total counter\nrbmq_received_bytes_total 0\n"),
        "{text}"
    );
    assert!(!text.contains("# EOF"));
    broker.end();
}

#[test]
fn rings_of_publishers_on_this_machine_are_counted_as_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("rbmq.toml");
    std::fs::write(&config, "transport = \"auto\"\n").unwrap();
    let (broker, http) = watched(&["--config", config.to_str().unwrap()]);
    assert_eq!(metrics(&http)["rbmq_mapped_rings"], 0.0);
    let mut command = client("pub", &broker.addr, "news --wait-subscribers 1");
    command.env("ROCKETBUFS_TRANSPORT", "auto");
    let publisher = Process::start(piped(command));
    until("the ring of the publisher is mapped", || {
        let all = metrics(&http);
        all["rbmq_mapped_rings"] == 1.0 && all["rbmq_mapped_ring_bytes"] > 0.0
    });
    publisher.signal("INT");
    publisher.finish();
    broker.end();
}

#[test]
fn the_counters_match_the_sent_bytes() {
    let (broker, http) = watched(&[]);
    const COUNT: usize = 200_000;
    let text = lines("news", COUNT);
    // Of each line its newline is taken away and four bytes of length put before it.
    let bytes = (text.len() + 3 * COUNT) as f64;
    let sub = || {
        let mut command = client("sub", &broker.addr, "news --ring-bytes 65536");
        command.stdout(std::process::Stdio::null());
        Process::start(command)
    };
    let subs = [sub(), sub()];
    let mut publisher = Process::start(piped(client("pub", &broker.addr, "news --wait-subscribers 2")));
    let mut input = publisher.stdin();
    input.write_all(text.as_bytes()).unwrap();
    until("all of it is counted", || {
        let all = metrics(&http);
        let of = |name: &str| all.get(&format!("{name}{{topic=\"news\"}}")).copied();
        of("rbmq_topic_delivered_bytes_total") >= Some(2.0 * bytes)
            && of("rbmq_topic_lag_bytes") == Some(0.0)
            && of("rbmq_topic_unsent_bytes") == Some(0.0)
    });
    let all = metrics(&http);
    assert_eq!(all["rbmq_topic_received_bytes_total{topic=\"news\"}"], bytes);
    assert_eq!(all["rbmq_topic_delivered_bytes_total{topic=\"news\"}"], 2.0 * bytes);
    assert_eq!(all["rbmq_topic_unsent_bytes{topic=\"news\"}"], 0.0);
    assert_eq!(all["rbmq_topic_lag_bytes{topic=\"news\"}"], 0.0);
    assert_eq!(all["rbmq_received_bytes_total"], bytes);
    assert_eq!(all["rbmq_delivered_bytes_total"], 2.0 * bytes);
    assert_eq!(all["rbmq_topic_received_bytes_total{topic=\"#others\"}"], 0.0);
    assert_eq!(all["rbmq_topics"], 1.0);
    assert_eq!(all["rbmq_connections_total{role=\"publisher\"}"], 1.0);
    assert_eq!(all["rbmq_connections_total{role=\"subscriber\"}"], 2.0);
    assert_eq!(all["rbmq_topic_lost_bytes_total{topic=\"news\"}"], 0.0);
    assert!(all["rbmq_ring_bytes"] > 0.0 && all["rbmq_limit{setting=\"broker.max_topics\"}"] == 10_000.0);
    assert!(all["process_resident_memory_bytes"] > 0.0 && all["process_open_fds"] > 3.0);
    assert_eq!(all["rbmq_draining"], 0.0);
    for sub in subs {
        sub.signal("INT");
        sub.finish().good();
    }
    drop(input);
    publisher.finish().good();
    // Bytes of a subscriber that has left still count.
    assert_eq!(metrics(&http)["rbmq_topic_delivered_bytes_total{topic=\"news\"}"], 2.0 * bytes);
    broker.end();
}

/// A name that turns the text around it or has marks that are not seen looks everywhere like what it is.
#[test]
fn the_name_of_a_topic_moves_and_hides_nothing() {
    let (broker, http) = watched(&[]);
    let topic = "anna/\u{202e}gnp.exe\u{200b}";
    let escaped = r"anna/\u202egnp.exe\u200b";
    let args = format!("{topic} --wait-subscribers 1");
    let publisher = Process::start(piped(client("pub", &broker.addr, &args)));
    until("the topic is listed", || get(&http, "/topics").1.contains(escaped));
    let (_, metrics) = get(&http, "/metrics");
    assert!(metrics.contains(r##"{topic="#anna/\\u{202e}gnp.exe\\u{200b}"}"##), "{metrics}");
    let topics = |args| Process::start(piped(client("topics", &broker.addr, args))).finish().good().text();
    let (listed, json) = (topics(""), topics("--json"));
    assert!(listed.contains(r"anna/\u{202e}gnp.exe\u{200b}") && json.contains(escaped), "{listed}{json}");
    broker.wait_log(r"topic 'anna/\u{202e}gnp.exe\u{200b}'");
    for seen in [get(&http, "/topics").1, metrics, listed, json, broker.log()] {
        assert!(!seen.contains(['\u{202e}', '\u{200b}']), "{seen}");
    }
    publisher.signal("INT");
    publisher.finish();
    broker.end();
}

#[test]
fn topics_beyond_the_limit_are_one_sum() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rbmq.toml");
    std::fs::write(&path, "[broker]\nmax_topics = 4\n[http]\nmax_topic_series = 2\n").unwrap();
    let (broker, http) = watched(&["--config", path.to_str().unwrap()]);
    for topic in ["a", "b\"\\c", "c", "d"] {
        publish(&broker, topic, "12345678\n");
        // The first topics have series of their own.
        metrics(&http);
    }
    let refused = {
        let mut publisher = Process::start(piped(client("pub", &broker.addr, "e")));
        publisher.feed(b"x\n");
        publisher.finish()
    };
    assert_eq!(refused.status.code(), Some(1));
    let all = metrics(&http);
    let received: Vec<(&str, f64)> = all
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("rbmq_topic_received_bytes_total")?, *value)))
        .collect();
    let expected = [("{topic=\"#others\"}", 24.0), ("{topic=\"a\"}", 12.0), ("{topic=\"b\\\"\\\\c\"}", 12.0)];
    assert_eq!(received, expected);
    assert_eq!(all["rbmq_refusals_total{reason=\"buffer_limit\"}"], 1.0);
    assert_eq!(all["rbmq_topics"], 4.0);
    let (status, topics) = get(&http, "/topics");
    let topics: serde_json::Value = serde_json::from_str(&topics).unwrap();
    assert_eq!((status, topics["topics"].as_array().unwrap().len()), (200, 4));
    broker.end();
}

#[test]
fn the_table_of_a_merged_topic_has_metrics_with_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rbmq.toml");
    let text = "[broker]\nmerge_table_entries = 8\n[[broker.topics]]\npattern = \"m\"\ningest = \"merge\"\n";
    std::fs::write(&path, text).unwrap();
    let (broker, http) = watched(&["--config", path.to_str().unwrap()]);
    let mut sub = rbmq::Subscriber::builder().until_ended(true).connect(&broker.addr).unwrap();
    sub.subscribe("m").unwrap();
    let publisher = rbmq::Publisher::connect(&broker.addr).unwrap();
    let mut writer = publisher.topic("m").unwrap();
    let _other = publisher.topic("spliced").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    let of = |all: &BTreeMap<String, f64>, what: &str| {
        all.get(&format!("rbmq_topic_merge_table_{what}{{topic=\"m\"}}")).copied()
    };
    assert_eq!(of(&metrics(&http), "entries"), Some(0.0));
    until("the ring is full", || {
        let _ = writer.publish_timeout(b"x", Some(Duration::ZERO));
        let _ = writer.flush(Some(Duration::from_millis(1)));
        of(&metrics(&http), "entries") == Some(8.0)
    });
    let all = metrics(&http);
    assert_eq!(of(&all, "limit"), Some(8.0));
    // No other topic has a table.
    assert_eq!(all.keys().filter(|name| name.starts_with("rbmq_topic_merge_table_")).count(), 2);
    broker.end();
}

#[test]
fn losses_are_counted_by_policy() {
    let (broker, http) = watched(&[]);
    let slow = "slow --policy drop --max-lag 65536 --rate 1000 --ring-bytes 65536";
    let mut sub = Process::start(client("sub", &broker.addr, slow));
    publish(&broker, "slow --wait-subscribers 1 --ring-bytes 262144", &lines(&"x".repeat(100), 40_000));
    until("a loss", || metrics(&http)["rbmq_lost_bytes_total{policy=\"drop\"}"] > 0.0);
    let all = metrics(&http);
    assert!(all["rbmq_topic_lost_bytes_total{topic=\"slow\"}"] > 0.0);
    assert_eq!(all["rbmq_lost_bytes_total{policy=\"block\"}"], 0.0);
    assert!(sub.is_running());
    drop(sub);
    broker.end();
}

#[test]
fn a_broker_that_drains_lives_but_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rbmq.toml");
    std::fs::write(&path, "[broker]\ndrain_timeout_ms = 60000\n").unwrap();
    let (broker, http) = watched(&["--config", path.to_str().unwrap()]);
    assert_eq!(get(&http, "/health").0, 200);
    assert_eq!(get(&http, "/ready"), (200, "{\"draining\":false,\"ready\":true}\n".into()));
    // A subscriber that reads so slowly that the broker waits until the drain timeout.
    let slow = "slow --rate 10 --ring-bytes 65536 --from oldest";
    let sub = Process::start(client("sub", &broker.addr, slow));
    let mut publisher = Process::start(piped(client("pub", &broker.addr, "slow --wait-subscribers 1")));
    let mut input = publisher.stdin();
    // More than its ring takes, which is 512 KiB as the publisher's deliveries may be large; less than the broker's.
    input.write_all(lines(&"x".repeat(100), 9_000).as_bytes()).unwrap();
    // A lag alone could be that of the first lines, for which the subscriber still has room.
    until("the broker has everything, and the subscriber has no room for the rest", || {
        let all = metrics(&http);
        let of = |name: &str| all.get(&format!("{name}{{topic=\"slow\"}}")).copied().unwrap_or(0.0);
        of("rbmq_topic_received_bytes_total") > 900_000.0 && of("rbmq_topic_unsent_bytes") > 100_000.0
    });
    broker.signal("TERM");
    until("the broker is not ready", || get(&http, "/ready").0 == 503);
    assert_eq!(get(&http, "/health").0, 200);
    assert_eq!(metrics(&http)["rbmq_draining"], 1.0);
    drop((sub, publisher, input));
    broker.end();
}

#[test]
fn unknown_paths_and_methods_are_refused() {
    let (broker, http) = watched(&[]);
    assert_eq!(get(&http, "/").0, 200);
    assert_eq!(get(&http, "/metrics?x=1").0, 200);
    assert_eq!(get(&http, "/../../etc/passwd").0, 404);
    assert_eq!(get(&http, "/metrics/").0, 404);
    for method in ["POST", "PUT", "DELETE", "TRACE", "BREW"] {
        assert_eq!(request(&http, method, "/metrics").0, 405, "{method}");
    }
    assert_eq!(request(&http, "HEAD", "/metrics"), (200, String::new()));
    broker.end();
}

#[test]
fn garbage_disturbs_no_other_connection() {
    let (broker, http) = watched(&[]);
    let long = "x".repeat(100_000);
    let many = "a: b\r\n".repeat(1_000);
    for hostile in [
        "\r\n\r\n\r\n".into(),
        "\0\u{1}\u{2}\r\n\r\n".into(),
        format!("GET /{long} HTTP/1.1\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nx: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{many}\r\n"),
        "GET / HTTP/9.9\r\n\r\n".into(),
        "GET http://[ HTTP/1.1\r\n\r\n".into(),
        format!("POST /metrics HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n{long}"),
        format!("POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{long}"),
        "GET / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n"
            .into(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
        "RBMQ".into(),
    ] {
        let mut stream = TcpStream::connect(&http).unwrap();
        let _ = stream.write_all(hostile.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let head = answer.lines().next().unwrap_or_default();
        let begin: String = hostile.chars().take(40).collect();
        assert!(
            head.is_empty() || head.starts_with("HTTP/1.1 4") || head.contains("1.1 200"),
            "{begin:?}: {head}"
        );
    }
    assert_eq!(get(&http, "/health").0, 200);
    broker.end();
}

#[test]
fn silent_connections_are_closed_and_connections_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rbmq.toml");
    std::fs::write(&path, "[http]\nmax_connections = 4\nheader_timeout_ms = 500\n").unwrap();
    let (broker, http) = watched(&["--config", path.to_str().unwrap()]);
    let mut silent: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(&http).unwrap()).collect();
    silent[1].write_all(b"GET /met").unwrap();
    for stream in &mut silent {
        stream.set_read_timeout(Some(LONG)).unwrap();
        // An answer (408) or nothing, and the end.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    // More connections than the limit: the surplus is closed, and the others are answered afterwards.
    let mut held: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&http).unwrap()).collect();
    for stream in &mut held {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let answered =
        || exchange(&http, b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n").contains("200 OK");
    until("there is room again", answered);
    until("refused connections are counted", || metrics(&http)["rbmq_http_refused_connections_total"] >= 1.0);
    broker.end();
}

#[test]
fn connections_that_were_given_no_page_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let (file, token) = (dir.path().join("rbmq.toml"), dir.path().join("token"));
    std::fs::write(&token, "0123456789abcdef\n").unwrap();
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let settings = format!(
        "[http]\ntoken_file = '{}'\nmax_connections = 4\nheader_timeout_ms = 600000\n",
        token.display()
    );
    std::fs::write(&file, settings).unwrap();
    let (broker, http) = watched(&["--config", file.to_str().unwrap()]);
    let mut known = TcpStream::connect(&http).unwrap();
    known.set_read_timeout(Some(LONG)).unwrap();
    let mut ask = || {
        let request = b"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n";
        known.write_all(request).unwrap();
        let mut head = [0; 12];
        known.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        let mut rest = BufReader::new(&mut known);
        while !rest.fill_buf().unwrap().trim_ascii_end().ends_with(b"}") {
            let bytes = rest.buffer().len();
            rest.consume(bytes);
        }
    };
    ask();
    // Silent ones, slow ones, and those that were refused a page and stay connected.
    let strangers: Vec<TcpStream> = (0..30)
        .map(|n| {
            let mut stream = TcpStream::connect(&http).unwrap();
            let _ = stream.write_all([&b""[..], b"GET /met", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"][n % 3]);
            stream
        })
        .collect();
    let token = "Authorization: Bearer 0123456789abcdef\r\n";
    assert_eq!(request_with(&http, "GET", "/health", token).0, 200);
    ask();
    drop(strangers);
    broker.end();
}

#[test]
fn every_page_asks_for_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let (file, token) = (dir.path().join("rbmq.toml"), dir.path().join("token"));
    std::fs::write(&token, "0123456789abcdef\n").unwrap();
    std::fs::write(&file, format!("[http]\ntoken_file = '{}'\n", token.display())).unwrap();
    let set_mode =
        |mode| std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    set_mode(0o600);
    let (broker, http) = watched(&["--config", file.to_str().unwrap()]);
    for path in ["/", "/metrics", "/health", "/ready", "/topics", "/other"] {
        assert_eq!(get(&http, path).0, 401, "{path}");
        let with =
            |token: &str| request_with(&http, "GET", path, &format!("Authorization: Bearer {token}\r\n")).0;
        assert_eq!(with("0123456789abcdeX"), 401, "{path}");
        assert_eq!(with("0123456789abcdef"), if path == "/other" { 404 } else { 200 }, "{path}");
    }
    let bearer =
        |token: &str| request_with(&http, "GET", "/metrics", &format!("Authorization: Bearer {token}\r\n"));
    let counted = bearer("0123456789abcdef").1.contains("\nrbmq_http_wrong_tokens_total 6\n");
    assert!(counted, "each wrong one is counted, and the right ones make up for them");
    let guesses: Vec<u16> = (0..20).map(|_| bearer("0123456789abcdeX").0).collect();
    let looked_at = guesses.iter().filter(|status| **status == 401).count();
    assert!(looked_at < 10 && guesses.contains(&429), "{guesses:?}");
    broker.wait_log("refused at the HTTP endpoint: the token is wrong");
    broker.end();
    set_mode(0o644);
    let args =
        ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config", file.to_str().unwrap()];
    let outcome = Process::start(rbmq(args)).finish();
    assert!(outcome.stderr.contains("everybody on this machine can read it"), "{}", outcome.stderr);
}

#[test]
fn an_unusable_address_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let start = |http: &str| {
        let outcome = Process::start(rbmq(["serve", "--listen", "127.0.0.1:0", "--http", http])).finish();
        assert_eq!(outcome.status.code(), Some(1));
        outcome.stderr
    };
    assert!(start(&addr).contains("cannot listen for HTTP on 127.0.0.1:"));
    let error = start("nowhere");
    assert!(error.contains("http.listen = \"nowhere\": it must be an IP address and a port"), "{error}");
    assert!(error.contains("(argument)"), "{error}");
}

#[test]
fn garbage_on_the_port_is_counted_and_logged() {
    let (broker, http) = watched(&[]);
    let of = |reason: &str| format!("rbmq_refused_connections_total{{reason=\"{reason}\"}}");
    // Every reason has its sample from the beginning.
    assert!(
        ["protocol", "version", "silent", "left", "limit"]
            .iter()
            .all(|reason| metrics(&http)[&of(reason)] == 0.0)
    );
    exchange(&broker.addr, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    exchange(&broker.addr, &[0xff; 64]);
    exchange(&broker.addr, &[0; 4096]);
    drop(TcpStream::connect(&broker.addr).unwrap());
    until("refused connections are counted", || {
        let metrics = metrics(&http);
        metrics[&of("protocol")] == 3.0 && metrics[&of("left")] == 1.0
    });
    broker.wait_log("a connection was refused");
    broker
        .wait_log("the peer is no rbmq client: curl, browsers and Prometheus must use the address of --http");
    broker.wait_log("a connection ended before its hello");
    // Clients are none of them.
    publish(&broker, "news", "hello\n");
    assert_eq!(metrics(&http)[&of("protocol")], 3.0);
}

#[test]
fn clients_recognise_an_http_server() {
    let (_broker, http) = watched(&[]);
    // A server that never answers.
    let patient = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = patient.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in patient.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                if lines.any(|line| line.is_ok_and(|line| line.is_empty())) {
                    let _ = stream.write_all(b"HTTP/1.0 404 Not Found\r\n\r\n");
                }
            });
        }
    });
    for (command, addr, args) in [("sub", &http, "x"), ("pub", &http, "x"), ("top", &silent, "--once")] {
        let mut client = client(command, addr, args);
        client.stdin(Stdio::null()).env("ROCKETBUFS_SESSION_CONNECT_TIMEOUT_MS", "100ms");
        let outcome = Process::start(client).finish();
        assert_eq!(outcome.status.code(), Some(1));
        assert!(outcome.stderr.contains("an HTTP server answers there"), "{}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 2, "{}", outcome.stderr);
    }
}
