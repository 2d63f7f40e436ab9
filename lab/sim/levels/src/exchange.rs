//! The vectors of docs/multimqc-vectors.json, and the exchange in them with a server, for levels in user space and in the kernel.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use multimqc::{Epoch, Server, ServerConfig, ServiceConfig, Stack, TopicConfig, TopicId};
use serde_json::Value;

use crate::Lab;

/// All vectors.
pub fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/multimqc-vectors.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the vectors are there"))
        .expect("they are JSON")
}

/// The bytes of a hexadecimal text.
pub fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hex is text");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

/// The list at a JSON pointer.
pub fn list<'a>(vectors: &'a Value, path: &str) -> &'a [Value] {
    vectors.pointer(path).and_then(Value::as_array).expect("a list")
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

/// Pushes and pulls through real sockets, with a stack of these levels: the replies are those of the vectors.
pub fn through(labs: &[&dyn Lab]) {
    let vectors = vectors();
    for trusted in [false, true] {
        let server = server(labs, trusted, &vectors["exchange"]);
        let (_, _, pull) = server.addresses().topics[0];
        for (form, address) in [("plain", pull), ("header", server.addresses().header)] {
            let of_form = list(&vectors, &format!("/exchange/{form}")).iter();
            for vector in of_form.filter(|vector| vector["trusted"] == trusted) {
                let reply = ask(address.expect("a port"), &bytes(&vector["request"]));
                assert_eq!(reply, bytes(&vector["reply"]), "{form}: {}", vector["name"]);
            }
        }
    }
}
