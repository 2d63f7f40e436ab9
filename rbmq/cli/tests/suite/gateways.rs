//! Gateways of `rbmq serve`: clients of Redis and MQTT beside those of the broker, and the broker's own listener for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rbmq::{ConfirmLevel, Publisher};
use rbmq_broker::http::Endpoint;
use rbmq_broker::{Broker, BrokerConfig, GatewayProtocol, GatewaySettings};
use rbmq_gateway::mqtt::codec::AckKind;
use testkit::{LONG, Process, own_addr, patient, until};

use crate::common::operator::Operated;
use crate::common::{client, piped, rbmq};
use crate::mqtt_kills::{Client, Got, Message};
use crate::scale::ring_files;

/// A client that speaks RESP.
pub(crate) struct Redis(BufReader<TcpStream>);

impl Redis {
    pub(crate) fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the gateway");
        stream.set_read_timeout(Some(LONG)).expect("a time-out");
        Self(BufReader::new(stream))
    }

    pub(crate) fn say(&mut self, command: &str) {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("sent");
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }

    /// The same client, to send only.
    pub(crate) fn sender(&self) -> TcpStream {
        self.0.get_ref().try_clone().expect("a descriptor")
    }

    /// Whether an answer comes in time.
    pub(crate) fn has_answer(&mut self, patience: Duration) -> bool {
        self.0.get_ref().set_read_timeout(Some(patience)).expect("a time-out");
        let has_some = self.0.fill_buf().is_ok();
        self.0.get_ref().set_read_timeout(Some(LONG)).expect("a time-out");
        has_some
    }

    pub(crate) fn lines(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.line()).collect()
    }
}

/// The answer for a page, with its head.
fn get(http: &str, page: &str) -> String {
    let mut stream = TcpStream::connect(http).expect("the endpoint");
    stream.set_read_timeout(Some(LONG)).expect("a time-out");
    let request = format!("GET {page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// A line of the metrics.
pub(crate) fn metric(http: &str, begin: &str) -> Option<u64> {
    let answer = get(http, "/metrics");
    answer.lines().find_map(|line| line.strip_prefix(begin)?.trim().parse().ok())
}

#[test]
fn clients_of_redis_and_of_the_broker_share_topics() {
    let broker = Operated::start_with(&["--gateway", "resp:127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let address = broker.wait_said("rbmq: redis clients at ");
    let http = broker.wait_said("rbmq: metrics on http://").trim_end_matches("/metrics").to_owned();
    let mut redis = Redis::connect(&address);
    redis.say("SUBSCRIBE news");
    assert_eq!(redis.lines(6), ["*3", "$9", "subscribe", "$4", "news", ":1"]);
    let mut publisher = Process::start(piped(client("pub", &broker.addr, "news")));
    publisher.feed(b"hello\n");
    assert_eq!(redis.lines(7), ["*3", "$7", "message", "$4", "news", "$5", "hello"]);
    publisher.finish().good();
    let mut subscriber = Process::start(client("sub", &broker.addr, "news other --count 1"));
    broker.wait_log("subscriber ");
    let mut other = Redis::connect(&address);
    // The subscription of the process is in force at any time from here on.
    until("a message arrives", || {
        other.say("PUBLISH other 22.5");
        assert_eq!(other.line(), ":0");
        !subscriber.is_running()
    });
    assert_eq!(subscriber.finish().good().text(), "22.5\n");
    let of = |name: &str| metric(&http, &format!("rbmq_gateway_{name}{{gateway=\"resp:{address}\"}}"));
    until("both are counted", || of("connections") == Some(2) && of("messages_out_total") == Some(1));
    let top = |args: &str| {
        Process::start(client("top", &broker.addr, &format!("--once --interval 0.1 {args}"))).finish().good()
    };
    let json: serde_json::Value = serde_json::from_str(&top("--json").text()).expect("an object");
    let row = &json["gateways"][0];
    assert_eq!(
        (row["gateway"].as_str(), &row["is_serving"]),
        (Some(&*format!("resp:{address}")), &true.into())
    );
    assert_eq!((row["connections"].as_u64(), row["messages_out"].as_u64()), (Some(2), Some(1)));
    let text = top("").text();
    assert!(text.contains(&format!("resp:{address} · 2 clients · in ")), "{text}");
    assert_eq!((of("accepted_total"), of("up")), (Some(2), Some(1)));
    broker.end();
    assert_eq!(redis.line(), "", "the gateway has closed the connection");
}

/// The publisher is told that all is well, as MQTT has no word for it.
#[test]
fn the_log_says_when_a_session_has_no_room() {
    let dir = tempfile::tempdir().expect("a folder");
    let (config, mqtt) = (dir.path().join("rbmq.toml"), own_addr());
    let gateway = format!("[[gateway]]\nprotocol = 'mqtt'\nlisten = '{mqtt}'\nmax_queued_messages = 2\n");
    std::fs::write(&config, gateway).expect("a file");
    let broker = Operated::start(&config, &["--http", "127.0.0.1:0"]);
    let http = broker.wait_said("rbmq: metrics on http://").trim_end_matches("/metrics").to_owned();
    broker.wait_said("rbmq: mqtt clients at ");
    let (mut subscriber, _) = Client::connect(&mqtt, "sub\nscriber").expect("the gateway");
    subscriber.subscribe("t", 1);
    let (mut publisher, _) = Client::connect(&mqtt, "publisher").expect("the gateway");
    drop(subscriber);
    let name = format!("rbmq_gateway_dropped_total{{gateway=\"mqtt:{mqtt}\"}}");
    let mut id = 0;
    // The gateway may not know yet that the subscriber has left, whose window has room.
    until("a message has no room", || {
        id += 1;
        publisher.publish(Message::new("t", "x", 1, id)).expect("sent");
        assert_eq!(publisher.next().expect("an answer"), Got::Ack(AckKind::Puback, id));
        metric(&http, &name) > Some(0)
    });
    broker.wait_log("2 wait already for the session of the client \"sub\\nscriber\"");
    broker.end();
}

/// Whoever watches the broker sees that a port serves nobody any more.
/// A gateway maps the logs of spaces. Other topics cost no descriptor, and come to its clients as copies.
#[test]
fn topics_outside_of_spaces_cost_a_broker_with_a_gateway_no_descriptor() {
    const TOPICS: usize = 200;
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("rbmq.toml");
    std::fs::write(&config, "[[broker.topics]]\npattern = 'own/#'\n").expect("a file");
    let broker = Operated::start(&config, &["--gateway", "resp:127.0.0.1:0"]);
    let address = broker.wait_said("rbmq: redis clients at ");
    let mut redis = Redis::connect(&address);
    redis.say("SUBSCRIBE own/7");
    assert_eq!(redis.lines(6)[2], "subscribe");
    let publisher = Publisher::builder().config(patient()).connect(&broker.addr).expect("the broker listens");
    let topics: Vec<_> = (0..TOPICS)
        .map(|topic| {
            let mut topic = publisher.topic(&format!("own/{topic}")).expect("the broker takes it");
            let end = topic.publish(b"hello").expect("published");
            topic.confirm(end, ConfirmLevel::Accepted, Some(LONG)).expect("the broker has a ring for it");
            topic
        })
        .collect();
    assert_eq!(redis.lines(7)[6], "hello");
    let files = ring_files(broker.pid()).len();
    assert!((1..TOPICS / 4).contains(&files), "{files} files for the rings of {TOPICS} topics");
    drop(topics);
    broker.end();
}

/// Messages of native clients can be larger than any that a gateway takes. Its clients miss them, and nothing else.
#[test]
fn a_message_that_is_too_large_for_a_gateway_stops_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("rbmq.toml");
    let keep = dir.path().join("kept");
    let rules = format!(
        "[broker]\nkeep_dir = '{}'\n[[broker.topics]]\npattern = 'own/#'\n[[broker.topics]]\npattern = 'kept/#'\nkeep = true\n",
        keep.display()
    );
    std::fs::write(&config, rules).expect("a file");
    let broker = Operated::start(&config, &["--gateway", "resp:127.0.0.1:0"]);
    let address = broker.wait_said("rbmq: redis clients at ");
    let publisher = Publisher::builder().config(patient()).connect(&broker.addr).expect("the broker listens");
    for name in ["own/t", "kept/t"] {
        let mut redis = Redis::connect(&address);
        redis.say(&format!("SUBSCRIBE {name}"));
        assert_eq!(redis.lines(6)[2], "subscribe");
        let mut topic = publisher.topic(name).expect("the broker takes it");
        for message in [b"before".to_vec(), vec![b'x'; 20 << 20], b"after".to_vec()] {
            let end = topic.publish(&message).expect("published");
            topic.confirm(end, ConfirmLevel::Accepted, Some(LONG)).expect("the broker has it");
        }
        let mut lines = std::iter::from_fn(|| Some(redis.line()));
        assert_eq!(
            lines.find(|line| line == "before" || line.is_empty()).as_deref(),
            Some("before"),
            "{name}"
        );
        assert_eq!(lines.find(|line| line == "after" || line.is_empty()).as_deref(), Some("after"), "{name}");
    }
    // The stream of a kept topic is read from both ends, and across it by a client that may be disconnected for what it asks.
    for (end, of) in [("before", "XRANGE kept/t - +"), ("after", "XREVRANGE kept/t + -")] {
        let mut redis = Redis::connect(&address);
        redis.say(&format!("{of} COUNT 1"));
        let mut lines = std::iter::from_fn(|| Some(redis.line()));
        assert_eq!(lines.find(|line| line == end || line.is_empty()).as_deref(), Some(end), "{of}");
        let mut across = Redis::connect(&address);
        across.say(&format!("{of} COUNT 10"));
        assert!(!across.line().is_empty(), "{of}");
        redis.say("PING");
        assert!(std::iter::from_fn(|| Some(redis.line())).any(|line| line == "+PONG"), "{of}");
    }
    // A topic of a space has the ring of the space.
    let mut topic = publisher.topic("t").expect("the broker takes it");
    let error = topic.publish(&vec![0; 20 << 20]).expect_err("too large").to_string();
    assert!(error.contains("too large"), "{error}");
    broker.end();
}

#[test]
fn a_broker_whose_gateway_fails_is_not_ready() {
    let mut config = BrokerConfig::default();
    config.broker.listen = "127.0.0.1:0".into();
    config.http.listen = "127.0.0.1:0".into();
    let broker = Broker::start(config).unwrap();
    let endpoint = Endpoint::start(broker.watch(), &broker.config().http).unwrap();
    let http = endpoint.addr().to_string();
    let gate = broker.gate().unwrap();
    let open = |address: &str| gate.open(&GatewaySettings::new(GatewayProtocol::Resp), address, || {});
    let sees = |status: &str, names: &str, up: u64| {
        let ready = get(&http, "/ready");
        assert!(ready.starts_with(&format!("HTTP/1.1 {status} ")) && ready.contains(names), "{ready}");
        assert_eq!(ready.contains("stopped_gateways"), up == 0, "{ready}");
        let metrics = get(&http, "/metrics");
        let lines: Vec<_> = metrics.lines().filter(|line| line.starts_with("rbmq_gateway_up{")).collect();
        let other = "rbmq_gateway_up{gateway=\"resp:b:2\"} 1";
        assert_eq!(lines, [&format!("rbmq_gateway_up{{gateway=\"resp:a:1\"}} {up}"), other]);
        assert!(get(&http, "/health").contains("\"healthy\":true"));
    };
    let (one, _other) = (open("a:1"), open("b:2"));
    sees("200", "\"ready\":true", 1);
    std::thread::spawn(move || {
        let _entrance = one;
        panic!("a fault of a gateway");
    })
    .join()
    .unwrap_err();
    sees("503", "\"stopped_gateways\":[\"resp:a:1\"]", 0);
    let _again = open("a:1");
    sees("200", "\"ready\":true", 1);
}

#[test]
fn a_gateway_that_others_can_reach_needs_tls_and_users() {
    for (args, says) in [
        (
            &["--gateway", "resp:0.0.0.0:0"][..],
            "can reach the gateway (resp) at 0.0.0.0:0, and it has neither TLS",
        ),
        (&["--gateway", "smtp"], "'smtp' is no protocol of gateways"),
        (&["--gateway", "resp", "--gateway", "resp"], "is the address of another endpoint"),
    ] {
        let args = ["serve", "--listen", "127.0.0.1:0"].into_iter().chain(args.iter().copied());
        let refused = Process::start(rbmq(args)).finish();
        assert!(!refused.status.success() && refused.stderr.contains(says), "{says}: {}", refused.stderr);
    }
}

/// With TLS and users at the broker's address, a part of its process still reaches it, and another process does not.
#[cfg(feature = "tls")]
#[test]
fn the_listener_of_the_process_takes_nobody_else() {
    use rbmq::{Publisher, StartFrom, Subscriber};

    let setup = crate::common::setup::Setup::new();
    let users = setup.text("users.toml");
    let mut passwd = Process::start(piped(rbmq(["passwd", "--users", &users, "--stdin", "anna"])));
    passwd.feed(b"correct horse\n");
    passwd.finish().good();
    let file = setup.config(&format!("[users]\nfile = '{users}'\n[broker]\nlisten = '127.0.0.1:0'\n"));
    let broker = Broker::start(BrokerConfig::load(Some(&file)).unwrap()).unwrap();
    assert!(Publisher::connect(&broker.addr()).is_err(), "it is encrypted");
    let gate = broker.gate().unwrap();
    let publisher = Publisher::builder().config(gate.config()).connect(gate.address()).unwrap();
    let mut writer = publisher.topic("a").unwrap();
    writer.publish(b"hello").unwrap();
    writer.flush(Some(LONG)).unwrap();
    let mut subscriber = Subscriber::builder().config(gate.config()).connect(gate.address()).unwrap();
    subscriber.subscribe_from("a", StartFrom::Oldest).unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"hello");
    for transport in ["shm", "tcp"] {
        let mut stranger = client("pub", gate.address(), "a");
        stranger.env("ROCKETBUFS_TRANSPORT", transport);
        let refused = Process::start(stranger).finish();
        let says = if transport == "shm" { "only parts of the broker's own process" } else { "refused" };
        assert!(!refused.status.success() && refused.stderr.contains(says), "{}", refused.stderr);
    }
}

/// Messages of all sizes, from one client to another and back, until both say that they leave.
#[cfg(feature = "tls")]
#[test]
fn clients_of_both_versions_of_tls_meet() {
    use crate::common::{BrokerProcess, secure, setup::Setup};
    use rustls::version::{TLS12, TLS13};

    let (setup, address) = (Setup::new(), own_addr());
    let file = setup.config(&format!("[[gateway]]\nprotocol = 'resp'\nlisten = '{address}'\n"));
    let _broker = BrokerProcess::start_with(&["--config", file.to_str().expect("UTF-8")]);
    until("the gateway listens", || TcpStream::connect(&address).is_ok());
    let connect = |version| {
        let config = secure::config_of(version, &setup.file("tls/ca.pem"), None, &[]);
        secure::connect(config, &address).expect("a handshake")
    };
    let mut clients = [connect(&TLS13), connect(&TLS12)];
    for client in &mut clients {
        client.write_all(b"SUBSCRIBE a\r\n").expect("sent");
        expect(client, b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
    }
    for (turn, size) in [1, 100, 16_383, 16_384, 16_385, 70_000, 200_000].into_iter().enumerate() {
        let payload: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
        let head = format!("*3\r\n$7\r\nPUBLISH\r\n$1\r\na\r\n${size}\r\n");
        let mut other = secure::connect(
            secure::config_of(
                if turn % 2 == 0 { &TLS12 } else { &TLS13 },
                &setup.file("tls/ca.pem"),
                None,
                &[],
            ),
            &address,
        )
        .expect("a handshake");
        other.write_all(&[head.as_bytes(), &payload, b"\r\n"].concat()).expect("sent");
        let message = format!("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n${size}\r\n");
        for client in &mut clients {
            expect(client, &[message.as_bytes(), &payload, b"\r\n"].concat());
        }
        expect(&mut other, b":2\r\n");
    }
    for mut client in clients {
        client.write_all(b"QUIT\r\n").expect("sent");
        // Without the word of TLS that nothing follows, it would be an error.
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).expect("an end in order");
        assert_eq!(rest, b"+OK\r\n");
    }
}

#[cfg(feature = "tls")]
fn expect(client: &mut crate::common::secure::Secure, bytes: &[u8]) {
    let mut got = vec![0; bytes.len()];
    client.read_exact(&mut got).expect("an answer");
    assert!(got == bytes, "{}", String::from_utf8_lossy(&got[..got.len().min(100)]));
}

/// Its socket is full when its limit is reached: it goes on when both have room again.
#[cfg(feature = "tls")]
#[test]
fn a_limited_client_over_tls_that_reads_late_gets_everything() {
    use crate::common::{secure, setup::Setup};

    const COUNT: usize = 1600;
    let setup = Setup::new();
    let tls = setup.text("tls");
    let text = format!(
        "[[gateway]]\nprotocol = 'resp'\nlisten = '127.0.0.1:0'\ntls = 'require'\ncert = '{tls}/server.pem'\nkey = '{tls}/server-key.pem'\n\
         max_lag_bytes = '32 MiB'\nframes_bytes = '64 MiB'\n[quotas]\naddress_out_bytes_per_s = '4 MiB'\nrate_burst_ms = 100\n"
    );
    std::fs::write(setup.file("rbmq.toml"), text).expect("a file");
    let broker = Operated::start(&setup.file("rbmq.toml"), &[]);
    let address = broker.wait_said("rbmq: redis clients at ");
    let config = secure::config(&setup.file("tls/ca.pem"), None, &[]);
    let mut client = secure::connect(config, &address).expect("a handshake");
    client.write_all(b"SUBSCRIBE t\r\n").expect("sent");
    expect(&mut client, b"*3\r\n$9\r\nsubscribe\r\n$1\r\nt\r\n:1\r\n");
    let publisher = Publisher::connect(&broker.addr).expect("the broker listens");
    let mut writer = publisher.topic("t").expect("a topic");
    (0..COUNT).for_each(|number| _ = writer.publish(format!("{number:10000}").as_bytes()).expect("room"));
    // By then the buffers of the system are full.
    std::thread::sleep(std::time::Duration::from_secs(4));
    for number in 0..COUNT {
        let message = format!("*3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$10000\r\n{number:10000}\r\n");
        expect(&mut client, message.as_bytes());
    }
    broker.end();
}
