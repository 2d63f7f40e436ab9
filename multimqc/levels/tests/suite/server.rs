//! A server over real sockets.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use multimqc::functions::{DropRange, ExtractField, NumberType};
use multimqc::wire::{Datagram, HEADER_BYTES, Header, Kind, Status};
use multimqc::{
    Batch, Epoch, Fetched, Functions, MAX_OFFSET, Puller, Pusher, Server, ServerConfig, ServiceConfig, Stack,
    StartError, TopicConfig, TopicId,
};
use multimqc_conformance::{Lab, User, pattern};
use testkit::{LONG, until};

const TOPIC: TopicId = TopicId(3);

fn config() -> ServerConfig {
    ServerConfig {
        header_port: Some(0),
        topics: vec![TopicConfig { id: TOPIC, push_port: Some(0), pull_port: Some(0) }],
        ..ServerConfig::default()
    }
}

fn start(config: &ServerConfig, functions: Vec<(TopicId, Functions)>) -> Server {
    let stack = Arc::new(Stack::new(vec![User.level(1 << 20, 4096)]).expect("a level"));
    Server::start(stack, config, functions).expect("the server starts")
}

fn header_address(server: &Server) -> SocketAddr {
    server.addresses().header.expect("it is configured")
}

fn head(server: &Server) -> u64 {
    server.stack().head(TOPIC).expect("the topic is open")
}

#[test]
fn clients_push_and_pull() {
    let server = start(&config(), Vec::new());
    let mut pusher = Pusher::connect(header_address(&server), TOPIC).expect("a socket");
    let mut puller = Puller::connect(header_address(&server), TOPIC).expect("a socket");
    assert_eq!(puller.fetch(0, 10, Some(LONG)).expect("a socket"), Some(Fetched::End(0)));
    let mut sent = 0;
    for round in 1..=100 {
        let message = pattern(sent, round * 40);
        pusher.push(&message).expect("it is sent");
        sent += message.len() as u64;
        until("the message arrives", || head(&server) == sent);
    }
    let mut at = 0;
    while at < sent {
        let fetched = puller.fetch(at, 4000, Some(LONG)).expect("a socket").expect("a reply");
        let Fetched::Data(bytes) = fetched else { panic!("{fetched:?} at {at}") };
        assert_eq!(bytes, pattern(at, bytes.len()));
        at += bytes.len() as u64;
    }
    assert!(puller.epoch() != Epoch::ANY);
    let end = puller.fetch(MAX_OFFSET, 1, Some(LONG)).expect("a socket");
    assert_eq!(end, Some(Fetched::End(sent)), "the way to the newest byte");
    let report = server.report();
    assert_eq!((report.pushes, report.refused, report.senders.lost), (100, 0, 0));
    assert_eq!(report.replies, report.pulls);
    let mut other = Puller::connect(header_address(&server), TopicId(9)).expect("a socket");
    assert_eq!(other.fetch(0, 1, Some(LONG)).expect("a socket"), Some(Fetched::UnknownTopic));
    assert!(pusher.push(&[]).is_err() && pusher.push(&vec![0; 65_500]).is_err());
}

#[test]
fn holes_and_lost_history_are_reported() {
    let server = start(&config(), Vec::new());
    let stack = server.stack();
    stack.write(TOPIC, Batch { offset: 1000, bytes: b"after the hole" }).expect("room");
    let mut puller = Puller::connect(header_address(&server), TOPIC).expect("a socket");
    let mut fetch = |at| format!("{:?}", puller.fetch(at, 5, Some(LONG)).expect("a socket"));
    assert_eq!(fetch(400), "Some(Hole(600))");
    assert_eq!(fetch(1000), format!("{:?}", Some(Fetched::Data(b"after"))));
    stack.write(TOPIC, Batch { offset: 1 << 40, bytes: b"far" }).expect("room");
    assert_eq!(fetch(1014), "Some(Gone(4294967295))");
    assert_eq!(fetch(1 << 40), format!("{:?}", Some(Fetched::Data(b"far"))));
}

/// Of a hundred pushes every tenth does not arrive.
#[test]
fn losses_are_known() {
    let server = start(&config(), Vec::new());
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for sequence in (0..100).filter(|n| n % 10 != 5) {
        let header = header(Kind::Push, sequence, 0, 4);
        socket
            .send_to(&[&header.encode()[..], b"ping"].concat(), header_address(&server))
            .expect("it is sent");
    }
    until("90 messages arrive", || head(&server) == 360);
    assert_eq!(server.report().senders.lost, 10);
}

fn header(kind: Kind, sequence: u32, offset: u64, length: u32) -> Header {
    let (status, cookie, epoch) = (Status::Data, 77, Epoch::ANY);
    Header { kind, topic: TOPIC, status, cookie, sequence, offset, length, epoch }
}

#[test]
fn a_reply_is_never_longer_than_its_request() {
    let server = start(&config(), Vec::new());
    server.stack().append(TOPIC, &mut std::iter::once(&[7; 10_000][..])).expect("room");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(LONG)).expect("a time-out");
    let (_, _, pull) = server.addresses().topics[0];
    let mut reply = vec![0; 1 << 16];
    for padding in [0, 1, 31, 1000, 1472, 5000] {
        let mut request = header(Kind::Pull, 1, 0, 10_000).encode().to_vec();
        request.resize(HEADER_BYTES + padding, 0);
        socket.send_to(&request, header_address(&server)).expect("it is sent");
        let (size, _) = socket.recv_from(&mut reply).expect("a reply");
        assert_eq!(size, request.len().min(1472), "as much as is allowed");
        let datagram = Datagram::parse(&reply[..size]).expect("a reply");
        assert_eq!(datagram.body.len(), size - HEADER_BYTES);
        let mut request = [0_u64.to_le_bytes(), 10_000_u64.to_le_bytes()].concat();
        request.resize(16 + padding, 0);
        socket.send_to(&request, pull.expect("a port")).expect("it is sent");
        let (size, _) = socket.recv_from(&mut reply).expect("a reply");
        assert_eq!(size, request.len().min(1472));
    }
    assert_eq!(server.report().unsent, 0);
}

#[test]
fn other_datagrams_are_counted_and_not_answered() {
    let server = start(&config(), Vec::new());
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (_, push, pull) = server.addresses().topics[0];
    let send = |bytes: &[u8], to| assert_eq!(socket.send_to(bytes, to).expect("it is sent"), bytes.len());
    send(b"GET / HTTP/1.1", header_address(&server));
    send(b"", header_address(&server));
    send(b"MQ", header_address(&server));
    let mut newer = header(Kind::Pull, 0, 0, 1).encode();
    newer[2] = 9;
    send(&newer, header_address(&server));
    send(&header(Kind::Reply, 0, 0, 0).reply(Status::End, 0, Epoch(1)).encode(), header_address(&server));
    send(&[&header(Kind::Batch, 0, 99, 4).encode()[..], b"ping"].concat(), header_address(&server));
    send(b"short", pull.expect("a port"));
    send(b"", push.expect("a port"));
    until("all are counted", || {
        let report = server.report();
        (report.foreign, report.version, report.broken, report.refused) == (2, 1, 2, 3)
    });
    assert_eq!((server.report().replies, head(&server)), (0, 0));
}

#[test]
fn batches_are_stored_where_configured() {
    let service = ServiceConfig { accept_batches: true, ..ServiceConfig::default() };
    let server = start(&ServerConfig { service, ..config() }, Vec::new());
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let mut lost = header(Kind::Batch, 0, 8, 4);
    socket.send_to(&[&lost.encode()[..], b"ping"].concat(), header_address(&server)).expect("it is sent");
    until("the batch is stored", || head(&server) == 12);
    lost.epoch = Epoch(server.stack().epoch(TOPIC).expect("open").0.wrapping_add(1));
    lost.offset = 12;
    socket.send_to(&[&lost.encode()[..], b"ping"].concat(), header_address(&server)).expect("it is sent");
    until("a batch of another log is refused", || server.report().refused == 1);
    let counters = server.stack().levels()[0].counters(TOPIC);
    assert_eq!((counters.holes, counters.hole_bytes, counters.bytes), (1, 8, 4));
}

#[test]
fn functions_filter_and_transform() {
    let quiet = DropRange { at: 0, number: NumberType::U8, range: 0.0..=9.0, record_bytes: 4 };
    let second = ExtractField { at: 1, bytes: 1, record_bytes: 4 };
    let functions = Functions { input: Some(Box::new(quiet)), output: Some(Box::new(second)) };
    let server = start(&config(), vec![(TOPIC, functions)]);
    let mut pusher = Pusher::connect(header_address(&server), TOPIC).expect("a socket");
    for value in [3, 50, 7, 60, 70] {
        pusher.push(&[value, value + 1, 0, 0]).expect("it is sent");
    }
    until("all arrive", || server.report().pushes == 5);
    assert_eq!((head(&server), server.report().filtered, server.report().refused), (12, 2, 0));
    let mut puller = Puller::connect(header_address(&server), TOPIC).expect("a socket");
    let fetched = puller.fetch(0, 12, Some(LONG)).expect("a socket");
    assert_eq!(fetched, Some(Fetched::Data(&[51, 61, 71])));
    let fetched = puller.fetch(8, 8, Some(LONG)).expect("a socket");
    assert_eq!(fetched, Some(Fetched::End(12)), "half of the range was not written yet");
    let fetched = puller.fetch(0, 1, Some(LONG)).expect("a socket");
    assert_eq!(fetched, Some(Fetched::Hole(1)), "nothing of the range is sent");
}

#[test]
fn a_port_in_use_is_named() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = taken.local_addr().expect("it is bound").port();
    let stack = Arc::new(Stack::new(vec![User.level(1 << 20, 4096)]).expect("a level"));
    let config = ServerConfig { header_port: Some(port), ..config() };
    match Server::start(stack, &config, Vec::new()) {
        Err(error @ StartError::Bind { .. }) => {
            assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two sockets have one address"),
    }
}
