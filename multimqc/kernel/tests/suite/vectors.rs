//! The vectors of docs/multimqc-vectors.json through the program in XDP, and through a server with the kernel level: the same bytes as
//! from every other level.

use multimqc::wire::{Datagram, HEADER_BYTES, HEADER_PORT, PULL_PORT, PUSH_PORT, PullRequest, reply_limit};
use multimqc::{Epoch, TopicId};
use multimqc_conformance::exchange::{self, bytes, list, vectors};
use multimqc_conformance::{Disk, User};
use multimqc_kernel::{Config, Kernel, Ports};
use serde_json::Value;

use crate::common;
use crate::common::labs::InKernel;
use crate::common::model::{Model, ModelTopic};
use crate::common::packet::{HEADERS, Packet};

const PORTS: Ports = Ports { push: PUSH_PORT, pull: PULL_PORT, header: HEADER_PORT };

#[test]
fn good_and_bad_datagrams_have_the_outcome_of_the_model() {
    let Some(kernel) = common::kernel(Config::default().ring_bytes(4096).batch_bytes(1024)) else { return };
    let (id, epoch) = (TopicId(7), Epoch(5));
    kernel.open(id, PORTS, 0, epoch).expect("a topic");
    let topic = ModelTopic { id, ports: PORTS, epoch, start: 0, log: Vec::new() };
    let mut model = Model {
        topics: vec![topic],
        ring_bytes: 4096,
        max_reply: 1472,
        trusted: false,
        reasons: Default::default(),
    };
    let vectors = vectors();
    let lists = [
        ("/header/good", HEADER_PORT),
        ("/header/refused", HEADER_PORT),
        ("/plain/pulls", PULL_PORT),
        ("/plain/refused", PULL_PORT),
    ];
    for (path, port) in lists {
        for vector in list(&vectors, path) {
            let frame = Packet::new(port, &bytes(&vector["hex"])).frame();
            let expected = model.expect(&frame);
            let run = kernel.run(&frame, 1).expect("it runs");
            assert_eq!((run.verdict, run.packet), expected, "{path}: {}", vector["name"]);
        }
    }
}

/// Whether the level has all bytes that the reply may have, and so answers.
fn is_held(vector: &Value, form: &str, log: u64) -> bool {
    let request = bytes(&vector["request"]);
    let limit = reply_limit(request.len(), vector["trusted"] == true, 1472);
    let (start, length, limit, known) = if form == "plain" {
        let pull = PullRequest::parse(&request).expect("a pull");
        (pull.start, pull.length, limit, true)
    } else {
        let header = Datagram::parse(&request).expect("a pull").header;
        let known = header.topic == TopicId(7) && header.epoch.admits(Epoch(5));
        (header.offset, header.length.into(), limit - HEADER_BYTES, known)
    };
    let n = length.min(limit as u64);
    known && n > 0 && start + n <= log
}

#[test]
fn the_exchange_gives_the_same_replies() {
    let vectors = vectors();
    let open = |config: Config| {
        let kernel: Kernel = common::kernel(config.ring_bytes(4096).batch_bytes(1024))?;
        let topic = kernel.open(TopicId(7), PORTS, 0, Epoch(5)).expect("a topic");
        for push in list(&vectors, "/exchange/pushes") {
            kernel.run(&Packet::new(PUSH_PORT, &bytes(push)).frame(), 1).expect("it runs");
        }
        assert_eq!(topic.window().head, 64);
        Some(kernel)
    };
    let Some(careful) = open(Config::default()) else { return };
    let Some(trusting) = open(Config::default().trusted(Some(([10, 1, 2, 3].into(), 32)))) else { return };
    let mut answered = 0;
    for (form, port) in [("plain", PULL_PORT), ("header", HEADER_PORT)] {
        for vector in list(&vectors, &format!("/exchange/{form}")) {
            let kernel = if vector["trusted"] == true { &trusting } else { &careful };
            let frame = Packet::new(port, &bytes(&vector["request"])).frame();
            let run = kernel.run(&frame, 1).expect("it runs");
            if is_held(vector, form, 64) {
                assert_eq!(run.verdict, common::TX, "{}", vector["name"]);
                assert_eq!(run.packet[HEADERS..], bytes(&vector["reply"]), "{}", vector["name"]);
                answered += 1;
            } else {
                assert_eq!((run.verdict, run.packet), (common::PASS, frame), "{}", vector["name"]);
            }
        }
    }
    assert_eq!(answered, 8, "the others are for the next level");
}

/// The test of the levels in user space, with the kernel level alone and before them.
#[test]
fn exchanges_through_a_server() {
    if common::kernel(Config::default()).is_some() {
        exchange::through(&[&InKernel::default()]);
        exchange::through(&[&InKernel::default(), &User, &Disk::default()]);
    }
}
