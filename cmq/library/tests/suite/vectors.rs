//! The datagrams of docs/cmq-vectors.json, byte for byte.

use cmq::wire::{Body, Datagram, HEADER_BYTES, Kind, Malformed};
use serde_json::Value;

fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cmq-vectors.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the vectors are there"))
        .expect("they are JSON")
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hex is text");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

#[test]
fn good_datagrams_are_parsed_and_encoded() {
    for vector in vectors()["datagrams"].as_array().expect("a list") {
        let name = vector["name"].as_str().expect("a name");
        let data = bytes(&vector["hex"]);
        let Datagram { header, body } = Datagram::parse(&data).expect(name);
        assert_eq!(header.encode(), data[..HEADER_BYTES], "{name}");
        assert_eq!(header.epoch.to_string(), vector["epoch"], "{name}");
        let numbers = [header.stream.into(), header.first, header.mailbox.into()];
        assert_eq!(
            numbers.map(Value::from),
            ["stream", "first", "mailbox"].map(|n| vector[n].clone()),
            "{name}"
        );
        let kind = match body {
            Body::Batch(messages) => {
                let expected: Vec<Vec<u8>> =
                    vector["messages"].as_array().expect(name).iter().map(bytes).collect();
                assert_eq!(messages.iter().collect::<Vec<_>>(), expected, "{name}");
                "batch"
            }
            Body::Fragment(fragment) => {
                assert_eq!(
                    (fragment.total, fragment.index),
                    (
                        vector["total"].as_u64().expect(name) as u32,
                        vector["index"].as_u64().expect(name) as u32
                    )
                );
                assert_eq!(
                    (fragment.bytes, u64::from(header.count)),
                    (&bytes(&vector["bytes"])[..], vector["fragment_length"].as_u64().expect(name))
                );
                "fragment"
            }
            Body::Segment(_) => "segment",
            Body::Ack(_) => "ack",
            Body::End(_) => "end",
            Body::Close => {
                assert_eq!(header.kind, Kind::Close);
                "close"
            }
        };
        assert_eq!(kind, vector["kind"], "{name}");
    }
}

#[test]
fn bad_datagrams_are_refused() {
    for vector in vectors()["refused"].as_array().expect("a list") {
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
fn segments_are_parsed_and_encoded() {
    let vectors = &vectors()["reliable"];
    let vector = &vectors["segment"];
    let data = bytes(&vector["hex"]);
    let Datagram { header, body: Body::Segment(segment) } = Datagram::parse(&data).expect("a segment") else {
        panic!("it is a segment")
    };
    let texts = [header.epoch, segment.receiver].map(|epoch| Value::from(epoch.to_string()));
    assert_eq!(texts, [vector["epoch"].clone(), vector["receiver"].clone()]);
    let numbers =
        [header.stream.into(), header.first, header.mailbox.into(), segment.run.into(), segment.offset];
    let names = ["stream", "number", "mailbox", "run", "offset"];
    assert_eq!(numbers.map(Value::from), names.map(|name| vector[name].clone()));
    assert_eq!(segment.bytes, bytes(&vector["bytes"]));
    let mut again = Vec::new();
    segment.write(header.link(), header.first, header.mailbox, &mut again);
    assert_eq!(again, data);
}

#[test]
fn acknowledgements_and_ends_are_parsed_and_encoded() {
    use cmq::wire::reliable::{Ack, Arrived, Credit, End};
    let vectors = &vectors()["reliable"];
    for vector in [&vectors["ack"], &vectors["refusal"]] {
        let data = bytes(&vector["hex"]);
        let Datagram { header, body: Body::Ack(ack) } = Datagram::parse(&data).expect("an acknowledgement")
        else {
            panic!("it is an acknowledgement")
        };
        let (taken, refused): (Vec<_>, Vec<_>) = (ack.ranges().collect(), ack.refused().collect());
        let credits: Vec<Credit> = ack.credits().collect();
        assert_eq!((serde_json::json!(taken), ack.reset), (vector["ranges"].clone(), false));
        assert_eq!(serde_json::json!(refused), vector["refused"]);
        let listed: Vec<_> =
            credits.iter().map(|credit| (credit.mailbox, credit.run, credit.limit)).collect();
        assert_eq!(serde_json::json!(listed), vector["credits"]);
        let arrived = Arrived { taken: &taken, refused: &refused };
        assert_eq!(Ack::encode(header.link(), ack.receiver, false, arrived, &credits), data);
    }

    let vector = &vectors["end"];
    let data = bytes(&vector["hex"]);
    let Datagram { header, body: Body::End(end) } = Datagram::parse(&data).expect("an end") else {
        panic!("it is an end")
    };
    let texts = [header.epoch, end.receiver].map(|epoch| Value::from(epoch.to_string()));
    assert_eq!(texts, [vector["epoch"].clone(), vector["receiver"].clone()]);
    assert_eq!(
        [u64::from(header.stream), header.first].map(Value::from),
        [vector["stream"].clone(), vector["segments"].clone()]
    );
    let mut again = Vec::new();
    End { receiver: end.receiver }.write(header.link(), header.first, &mut again);
    assert_eq!(again, data);
    for refused in vectors["refused"].as_array().expect("a list") {
        let name = refused["name"].as_str().expect("a name");
        assert_eq!(Datagram::parse(&bytes(&refused["hex"])).expect_err(name), Malformed::Broken, "{name}");
    }
}
