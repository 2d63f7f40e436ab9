//! The protocol's vectors (docs/protocol-vectors.json): byte for byte, both ways, and that they are up to date.
//! UPDATE=1 writes the file.

use std::path::PathBuf;
use std::sync::Once;

use rocketbufs::fields::FieldError;
use rocketbufs::proto::Message;
use rocketnet::wire::{CONTROL_WIRE, HEADER_BYTES, Header, MORE_BIT};
use rocketring::{
    MARK_HEAD_BYTES, MARK_TAIL_BYTES, MarkError, Pool, PoolConfig, RingConfig, verify, write_marks,
};
use serde_json::{Value, json};

use crate::vectors::cases::{self, Step};
use crate::vectors::fields::{self, hex, unhex};

/// Between these lines of docs/PROTOCOL.md stands the example session.
const BEGIN: &str = "<!-- session, written by the test -->\n";
const END: &str = "<!-- end of the session -->\n";

fn committed(relative: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(relative)
}

/// The committed vectors, rewritten first if UPDATE is set.
fn vectors() -> Value {
    static WRITTEN: Once = Once::new();
    let path = committed("protocol-vectors.json");
    WRITTEN.call_once(|| {
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, as_text(&generated())).unwrap();
        }
    });
    let text = std::fs::read_to_string(&path).expect("the committed vectors");
    serde_json::from_str(&text).expect("JSON")
}

fn as_text(vectors: &Value) -> String {
    serde_json::to_string_pretty(vectors).unwrap() + "\n"
}

fn list<'a>(vectors: &'a Value, name: &str) -> &'a [Value] {
    let list = vectors[name].as_array().unwrap_or_else(|| panic!("no list {name}"));
    assert!(!list.is_empty(), "{name} is empty");
    list
}

fn bytes(vector: &Value, field: &str) -> Vec<u8> {
    unhex(vector[field].as_str().unwrap_or_else(|| panic!("no {field} in {vector}")))
}

fn error_fields(error: &FieldError) -> Value {
    match error {
        FieldError::Short { missing } => json!({"kind": "short", "missing": missing}),
        FieldError::Long { extra } => json!({"kind": "long", "extra": extra}),
        FieldError::Value { field, value } => {
            json!({"kind": "value", "field": field, "value": value.to_string()})
        }
        FieldError::Text { .. } => json!({"kind": "text"}),
        other => panic!("a name for {other:?} is missing"),
    }
}

/// The bytes of a step on the connection, header and body, and their fields.
fn on_the_wire(step: &Step) -> (Vec<u8>, Value) {
    match step {
        Step::Control(message) => {
            let body = message.encode();
            let header = Header { wire: CONTROL_WIRE, more: false, size: body.len() as u32 };
            ([&header.encode()[..], &body].concat(), fields::fields(message))
        }
        Step::Data(header, body) => {
            let what = json!({"type": "data", "wire": header.wire, "more": header.more, "bytes": hex(body)});
            ([&header.encode()[..], body].concat(), what)
        }
    }
}

/// Deliveries with their marks: position and payload.
fn marked() -> [(&'static str, u64, Vec<u8>); 4] {
    [
        ("empty", 0, Vec::new()),
        ("nine bytes, the checksum's usual test", 4096, b"123456789".to_vec()),
        ("every byte", 0x0102_0304_0506, (0..=255).collect()),
        ("as late as it gets", u64::MAX - 4096, vec![0; 3]),
    ]
}

fn with_marks(at: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [&[0; MARK_HEAD_BYTES], payload, &[0; MARK_TAIL_BYTES]].concat();
    write_marks(&mut bytes, at);
    bytes
}

/// Deliveries that must not be handed out: position, bytes.
fn torn() -> Vec<(&'static str, u64, Vec<u8>)> {
    let good = with_marks(4096, b"123456789");
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    vec![
        ("cut", 4096, good[..good.len() - 1].to_vec()),
        ("shorter than two marks", 4096, good[..31].to_vec()),
        ("at another position", 8192, good.clone()),
        ("one bit of the payload", 4096, flipped(16)),
        ("one bit of the checksum", 4096, flipped(good.len() - 8)),
        ("another position in its tail", 4096, flipped(good.len() - 16)),
        ("the last four bytes not zero", 4096, flipped(good.len() - 1)),
    ]
}

fn mark_kind(error: &MarkError) -> &'static str {
    match error {
        MarkError::Short { .. } => "short",
        MarkError::Torn { .. } => "torn",
        MarkError::Checksum { .. } => "checksum",
        other => panic!("a name for {other:?} is missing"),
    }
}

fn verified(at: u64, bytes: &[u8]) -> Result<Vec<u8>, MarkError> {
    let pool = Pool::new(PoolConfig { reservation_bytes: 1 << 20, max_bytes: 1 << 20 }).unwrap();
    let ring = pool.ring(RingConfig { capacity_bytes: 65_536, start: at, ..RingConfig::default() }).unwrap();
    let end = ring.writer().unwrap().append(&[bytes]).unwrap();
    let view = ring.view(at, end);
    let payload = verify(&view)?;
    assert_eq!(payload.total, bytes.len());
    Ok(view.to_vec().unwrap()[payload.offset..payload.offset + payload.len].to_vec())
}

fn generated() -> Value {
    let headers: Vec<Value> = (cases::headers().iter())
        .map(|(name, h)| {
            json!({"name": name, "hex": hex(&h.encode()), "wire": h.wire, "more": h.more, "size": h.size})
        })
        .collect();
    let messages: Vec<Value> = (cases::messages().iter())
        .map(|(name, m)| json!({"name": name, "hex": hex(&m.encode()), "fields": fields::fields(m)}))
        .collect();
    let rejects: Vec<Value> = (cases::rejects().iter())
        .map(|(name, bytes)| {
            let error = Message::decode(bytes).expect_err(name);
            json!({"name": name, "hex": hex(bytes), "error": error_fields(&error)})
        })
        .collect();
    let session: Vec<Value> = (cases::session().iter())
        .map(|(from, what, step)| {
            let (bytes, fields) = on_the_wire(step);
            json!({"from": from, "what": what, "hex": hex(&bytes), "fields": fields})
        })
        .collect();
    let marks: Vec<Value> = (marked().iter())
        .map(|(name, at, payload)| {
            let bytes = with_marks(*at, payload);
            json!({"name": name, "position": at.to_string(), "payload": hex(payload), "hex": hex(&bytes)})
        })
        .collect();
    let mark_rejects: Vec<Value> = (torn().iter())
        .map(|(name, at, bytes)| {
            let error = verified(*at, bytes).expect_err(name);
            json!({"name": name, "position": at.to_string(), "hex": hex(bytes), "error": mark_kind(&error)})
        })
        .collect();
    json!({
        "about": "Vectors of the RocketBufs protocol, version 1; docs/PROTOCOL.md says how to read them.",
        "version": 1,
        "constants": {
            "header_bytes": HEADER_BYTES, "control_wire": CONTROL_WIRE, "more_bit": MORE_BIT, "magic": hex(b"RKTB"),
            "mark_head_bytes": MARK_HEAD_BYTES, "mark_tail_bytes": MARK_TAIL_BYTES,
        },
        "headers": headers, "messages": messages, "rejects": rejects,
        "marks": marks, "mark_rejects": mark_rejects, "session": session,
    })
}

#[test]
fn the_vectors_are_up_to_date() {
    let (found, expected) = (as_text(&vectors()), as_text(&generated()));
    assert!(found == expected, "the vectors changed, and with them the protocol; UPDATE=1 writes them");
}

#[test]
fn headers_are_the_same_both_ways() {
    for vector in list(&vectors(), "headers") {
        let (wire, size) = (vector["wire"].as_u64().unwrap() as u32, vector["size"].as_u64().unwrap() as u32);
        let header = Header { wire, more: vector["more"].as_bool().unwrap(), size };
        let bytes = bytes(vector, "hex");
        assert_eq!(header.encode()[..], bytes, "{vector}");
        assert_eq!(Header::decode(bytes.try_into().unwrap()), header, "{vector}");
    }
}

#[test]
fn messages_are_the_same_both_ways() {
    let vectors = vectors();
    let mut kinds: Vec<u8> = Vec::new();
    for vector in list(&vectors, "messages") {
        let (bytes, message) = (bytes(vector, "hex"), fields::message(&vector["fields"]));
        assert_eq!(hex(&message.encode()), hex(&bytes), "{}", vector["name"]);
        let decoded = Message::decode(&bytes).unwrap_or_else(|e| panic!("{}: {e}", vector["name"]));
        assert_eq!(decoded, message, "{}", vector["name"]);
        assert_eq!(fields::fields(&decoded), vector["fields"], "{}", vector["name"]);
        kinds.push(bytes[0]);
    }
    // Every type has a vector, and no other byte is a type.
    for kind in 0..=u8::MAX {
        let unknown =
            matches!(Message::decode(&[kind]), Err(FieldError::Value { field: "message type", .. }));
        assert_eq!(kinds.contains(&kind), !unknown, "type {kind:#04x}");
    }
}

#[test]
fn invalid_messages_are_refused_with_the_reason() {
    for vector in list(&vectors(), "rejects") {
        let error = Message::decode(&bytes(vector, "hex")).expect_err(&vector["name"].to_string());
        assert_eq!(error_fields(&error), vector["error"], "{}", vector["name"]);
    }
}

#[test]
fn a_message_that_ends_early_or_late_is_refused() {
    for (name, message) in cases::messages() {
        // The application's own message has no end but its last byte.
        if matches!(message, Message::App(_)) {
            continue;
        }
        let bytes = message.encode();
        for end in 0..bytes.len() {
            assert!(matches!(Message::decode(&bytes[..end]), Err(FieldError::Short { .. })), "{name}, {end}");
        }
        let long = Message::decode(&[&bytes[..], &[0]].concat());
        assert_eq!(long, Err(FieldError::Long { extra: 1 }), "{name}");
    }
}

#[test]
fn marks_are_the_same_both_ways() {
    let vectors = vectors();
    let position = |v: &Value| v["position"].as_str().unwrap().parse::<u64>().unwrap();
    for vector in list(&vectors, "marks") {
        let (at, payload, marked) = (position(vector), bytes(vector, "payload"), bytes(vector, "hex"));
        assert_eq!(hex(&with_marks(at, &payload)), hex(&marked), "{}", vector["name"]);
        assert_eq!(verified(at, &marked).unwrap(), payload, "{}", vector["name"]);
    }
    for vector in list(&vectors, "mark_rejects") {
        let error = verified(position(vector), &bytes(vector, "hex")).expect_err(&vector["name"].to_string());
        assert_eq!(mark_kind(&error), vector["error"], "{}", vector["name"]);
    }
}

/// The example session as docs/PROTOCOL.md shows it: header, body in rows of sixteen bytes, and an explanation.
fn session_text() -> String {
    let spaced = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ");
    let mut text = String::from("```text\n");
    for (from, what, step) in cases::session() {
        let (bytes, fields) = on_the_wire(&step);
        let (head, body) = bytes.split_at(HEADER_BYTES);
        let kind = fields["type"].as_str().unwrap();
        text.push_str(&format!("{from}: {what}\n    {:<50}header: ", spaced(head)));
        let header = Header::decode(head.try_into().unwrap());
        let id = if kind == "data" { format!("wire id {}", header.wire) } else { "control".to_owned() };
        let more = if header.more { ", MORE" } else { "" };
        text.push_str(&format!("{id}{more}, {} bytes\n", header.size));
        for (row, part) in body.chunks(16).enumerate() {
            let note = if row == 0 { kind } else { "" };
            text.push_str(format!("    {:<50}{note}", spaced(part)).trim_end());
            text.push('\n');
        }
    }
    text + "```\n"
}

#[test]
fn the_example_session_decodes_and_is_in_the_document() {
    for step in list(&vectors(), "session") {
        let bytes = bytes(step, "hex");
        let (head, body) = bytes.split_at(HEADER_BYTES);
        let header = Header::decode(head.try_into().unwrap());
        assert_eq!(header.size as usize, body.len(), "{step}");
        if header.wire == CONTROL_WIRE {
            assert_eq!(fields::fields(&Message::decode(body).unwrap()), step["fields"]);
        } else {
            assert_eq!(hex(body), step["fields"]["bytes"].as_str().unwrap());
        }
    }
    let path = committed("PROTOCOL.md");
    let document = std::fs::read_to_string(&path).expect("docs/PROTOCOL.md");
    let (before, rest) = document.split_once(BEGIN).expect("the mark where the session begins");
    let (found, after) = rest.split_once(END).expect("the mark where it ends");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", session_text())).unwrap();
    } else {
        assert!(
            found == session_text(),
            "the session in docs/PROTOCOL.md is out of date; UPDATE=1 writes it"
        );
    }
}
