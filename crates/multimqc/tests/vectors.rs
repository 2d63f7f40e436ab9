//! The datagrams of docs/multimqc-vectors.json, byte for byte.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{bytes, labs, vectors};
use multimqc::conformance::Lab;
use multimqc::wire::{Datagram, HEADER_BYTES, Kind, Malformed, PULL_BYTES, PullRequest, Status};
use multimqc::{Epoch, Server, ServerConfig, ServiceConfig, Stack, TopicConfig, TopicId};
use serde_json::Value;

fn list<'a>(vectors: &'a Value, form: &str, name: &str) -> &'a [Value] {
    vectors[form][name].as_array().expect("a list")
}

#[test]
fn good_datagrams_are_parsed_and_encoded() {
    for vector in list(&vectors(), "header", "good") {
        let name = vector["name"].as_str().expect("a name");
        let data = bytes(&vector["hex"]);
        let Datagram { header, body } = Datagram::parse(&data).expect(name);
        assert_eq!(header.encode(), data[..HEADER_BYTES], "{name}");
        assert_eq!(body, bytes(&vector["body"]), "{name}");
        let kind = match header.kind {
            Kind::Push => "push",
            Kind::Pull => "pull",
            Kind::Reply => "reply",
            Kind::Batch => "batch",
        };
        let status = match header.status {
            Status::Data => "data",
            Status::End => "end",
            Status::Hole => "hole",
            Status::Gone => "gone",
            Status::UnknownTopic => "unknown_topic",
            Status::OtherEpoch => "other_epoch",
        };
        assert_eq!((kind, status), (vector["kind"].as_str().unwrap(), vector["status"].as_str().unwrap()));
        let numbers = [header.topic.0.into(), header.cookie, header.sequence, header.length, header.epoch.0];
        let names = ["topic", "cookie", "sequence", "length", "epoch"];
        assert_eq!(numbers.map(Value::from), names.map(|field| vector[field].clone()), "{name}");
        assert_eq!(header.offset.to_string(), vector["offset"], "{name}");
    }
}

#[test]
fn bad_datagrams_are_refused() {
    for vector in list(&vectors(), "header", "refused") {
        let name = vector["name"].as_str().expect("a name");
        let why = match Datagram::parse(&bytes(&vector["hex"])).expect_err(name) {
            Malformed::Foreign => "foreign",
            Malformed::Version(_) => "version",
            Malformed::Broken => "broken",
            other => panic!("{name}: {other}"),
        };
        assert_eq!(why, vector["why"], "{name}");
    }
}

#[test]
fn pulls_of_the_plain_form() {
    let vectors = vectors();
    for vector in list(&vectors, "plain", "pulls") {
        let name = vector["name"].as_str().expect("a name");
        let data = bytes(&vector["hex"]);
        let pull = PullRequest::parse(&data).expect(name);
        assert_eq!(pull.encode(), data[..PULL_BYTES], "{name}");
        assert_eq!(pull.start.to_string(), vector["start"], "{name}");
        assert_eq!(pull.length.to_string(), vector["length"], "{name}");
    }
    for vector in list(&vectors, "plain", "refused") {
        assert_eq!(PullRequest::parse(&bytes(&vector["hex"])), None, "{vector}");
    }
}

/// A server of a stack with these levels, which has the pushes of the vectors in its log.
fn server(labs: &[&dyn Lab], trusted: bool, exchange: &Value) -> Server {
    let levels = labs.iter().map(|lab| lab.level(1 << 20, 4096)).collect();
    let stack = Arc::new(Stack::new(levels).expect("levels"));
    let id = TopicId(exchange["topic"].as_u64().expect("a number") as u16);
    let epoch = Epoch(exchange["epoch"].as_u64().expect("a number") as u32);
    stack.open(id, epoch).expect("the topic is opened");
    let config = ServerConfig {
        header_port: Some(0),
        topics: vec![TopicConfig { id, push_port: Some(0), pull_port: Some(0) }],
        service: ServiceConfig { trusted, ..ServiceConfig::default() },
        ..ServerConfig::default()
    };
    let server = Server::start(stack, &config, Vec::new()).expect("the server starts");
    let (_, push, _) = server.addresses().topics[0];
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (mut head, deadline) = (0, Instant::now() + Duration::from_secs(30));
    for message in exchange["pushes"].as_array().expect("a list").iter().map(bytes) {
        socket.send_to(&message, push.expect("a port")).expect("it is sent");
        head += message.len() as u64;
        while server.stack().levels().iter().any(|level| level.window(id).expect("open").head < head) {
            assert!(Instant::now() < deadline, "the log does not reach {head}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    server
}

fn ask(server: SocketAddr, request: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time-out");
    socket.send_to(request, server).expect("it is sent");
    let mut reply = vec![0; 1 << 16];
    let (size, from) = socket.recv_from(&mut reply).expect("a reply");
    assert_eq!(from, server, "a reply comes from the port of its request");
    reply.truncate(size);
    reply
}

/// Pushes and pulls through real sockets, for every subset of levels: the replies are those of the vectors.
#[test]
fn exchanges_through_every_subset_of_levels() {
    let (vectors, labs) = (vectors(), labs());
    let exchange = &vectors["exchange"];
    for chosen in 1..1_usize << labs.len() {
        let subset: Vec<&dyn Lab> =
            (0..labs.len()).filter(|at| chosen & 1 << at != 0).map(|at| &*labs[at]).collect();
        for trusted in [false, true] {
            let server = server(&subset, trusted, exchange);
            let (_, _, pull) = server.addresses().topics[0];
            for (form, address) in [("plain", pull), ("header", server.addresses().header)] {
                for vector in list(&vectors, "exchange", form).iter().filter(|v| v["trusted"] == trusted) {
                    let reply = ask(address.expect("a port"), &bytes(&vector["request"]));
                    assert_eq!(reply, bytes(&vector["reply"]), "{form}: {}", vector["name"]);
                }
            }
        }
    }
}
