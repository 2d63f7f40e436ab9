//! The datagrams of docs/multimqc-vectors.json, byte for byte.

use multimqc::wire::{Datagram, HEADER_BYTES, Kind, Malformed, PULL_BYTES, PullRequest, Status};
use multimqc_conformance::Lab;
use multimqc_conformance::exchange::{self, bytes, list, vectors};
use serde_json::Value;

#[test]
fn good_datagrams_are_parsed_and_encoded() {
    for vector in list(&vectors(), "/header/good") {
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
    for vector in list(&vectors(), "/header/refused") {
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
    for vector in list(&vectors, "/plain/pulls") {
        let name = vector["name"].as_str().expect("a name");
        let data = bytes(&vector["hex"]);
        let pull = PullRequest::parse(&data).expect(name);
        assert_eq!(pull.encode(), data[..PULL_BYTES], "{name}");
        assert_eq!(pull.start.to_string(), vector["start"], "{name}");
        assert_eq!(pull.length.to_string(), vector["length"], "{name}");
    }
    for vector in list(&vectors, "/plain/refused") {
        assert_eq!(PullRequest::parse(&bytes(&vector["hex"])), None, "{vector}");
    }
}

#[test]
fn exchanges_through_every_subset_of_levels() {
    let labs = crate::labs();
    for chosen in 1..1_usize << labs.len() {
        let subset: Vec<&dyn Lab> =
            (0..labs.len()).filter(|at| chosen & 1 << at != 0).map(|at| &*labs[at]).collect();
        exchange::through(&subset);
    }
}
