//! Messages as JSON and back, so that the vectors can be read in any language: 64-bit numbers are decimal texts (not
//! every JSON reader has them), 128-bit names 32 hexadecimal digits, byte strings hexadecimal.

use rocketbufs::proto::{
    CloseCode, Coverage, CoveragePart, Credit, Hello, MAX_COVERAGE_PARTS, Message, RefuseCode, Start,
    Subscribe, Subscribed,
};
use rocketbufs::{Epoch, Policy};
use serde_json::{Value, json};

/// Every code of BYE, in the order of its numbers.
pub const BYE_CODES: [CloseCode; 8] = [
    CloseCode::Normal,
    CloseCode::Version,
    CloseCode::Protocol,
    CloseCode::NotAccepted,
    CloseCode::Timeout,
    CloseCode::Limit,
    CloseCode::ShuttingDown,
    CloseCode::TakenOver,
];

/// Every code of REFUSED, in the order of its numbers.
pub const REFUSE_CODES: [RefuseCode; 8] = [
    RefuseCode::NoSuchBuffer,
    RefuseCode::RingTooSmall,
    RefuseCode::PolicyNotAllowed,
    RefuseCode::TooMany,
    RefuseCode::BadWireId,
    RefuseCode::NotAnOut,
    RefuseCode::TooSlow,
    RefuseCode::NotAllowed,
];

/// Every policy, in the order of its numbers.
pub const POLICIES: [Policy; 4] = [Policy::Block, Policy::Drop, Policy::Disconnect, Policy::Overwrite];

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b' ').collect();
    assert!(digits.len().is_multiple_of(2), "half a byte in {text}");
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).expect("hexadecimal");
    digits.chunks(2).map(byte).collect()
}

fn hello_fields(kind: &str, h: &Hello) -> Value {
    json!({
        "type": kind, "min_version": h.min_version, "max_version": h.max_version, "capabilities": h.capabilities,
        "instance": format!("{:032x}", h.instance), "heartbeat_ms": h.heartbeat_ms,
        "max_control_bytes": h.max_control_bytes, "hello": hex(&h.hello),
    })
}

fn subscribe_fields(s: &Subscribe) -> Value {
    let start = match s.start {
        Start::Newest => json!("newest"),
        Start::Oldest => json!("oldest"),
        Start::Last => json!("last"),
        Start::First => json!("first"),
        Start::Ago(ms) => json!({"ago_ms": ms.to_string()}),
        Start::Position(epoch, position) => {
            json!({"epoch": epoch.to_string(), "position": position.to_string()})
        }
        other => panic!("no test vector format for {other:?}"),
    };
    json!({
        "type": "SUBSCRIBE", "wire": s.wire, "bid": s.bid, "capacity": s.capacity.to_string(),
        "policy": s.policy as u8, "own_memory": s.own_memory, "start": start, "max_lag": s.max_lag.to_string(),
        "block_timeout_ms": s.block_timeout_ms, "hold_ms": s.hold_ms, "name": hex(&s.name),
    })
}

/// A message's fields.
pub fn fields(message: &Message) -> Value {
    match message {
        Message::Hello(h) => hello_fields("HELLO", h),
        Message::Welcome(h) => hello_fields("WELCOME", h),
        Message::Bye { code, text } => json!({"type": "BYE", "code": *code as u16, "text": text}),
        Message::Ping(token) => json!({"type": "PING", "token": token.to_string()}),
        Message::Pong(token) => json!({"type": "PONG", "token": token.to_string()}),
        Message::App(bytes) => json!({"type": "APP", "bytes": hex(bytes)}),
        Message::Subscribe(s) => subscribe_fields(s),
        Message::Subscribed(s) => json!({
            "type": "SUBSCRIBED", "wire": s.wire, "epoch": s.epoch.to_string(), "start": s.start.to_string(),
            "flow_control": s.flow_control, "restarted": s.restarted, "without_slot": s.without_slot, "capacity": s.capacity.to_string(),
            "max_delivery": s.max_delivery.to_string(),
        }),
        Message::Refused { wire, code, a, b } => json!({
            "type": "REFUSED", "wire": wire, "code": *code as u16, "a": a.to_string(), "b": b.to_string(),
        }),
        Message::Unsubscribe(wire) => json!({"type": "UNSUBSCRIBE", "wire": wire}),
        Message::Unsubscribed(wire) => json!({"type": "UNSUBSCRIBED", "wire": wire}),
        Message::Credit { wire, credit: c } => json!({
            "type": "CREDIT", "wire": wire, "landed": c.landed.to_string(),
            "delivered": c.delivered.to_string(), "consumed": c.consumed.to_string(),
            "grant": c.grant.to_string(), "receivers": c.coverage.receivers, "left": c.coverage.left,
            "lost": c.coverage.lost, "since": c.coverage.covered_from.to_string(), "parts": parts_fields(&c.coverage),
        }),
        Message::Ask { wire, wanted: [landed, delivered, consumed] } => json!({
            "type": "ASK", "wire": wire, "landed": landed.to_string(), "delivered": delivered.to_string(),
            "consumed": consumed.to_string(),
        }),
        Message::Recall(wire) => json!({"type": "RECALL", "wire": wire}),
        Message::Recalled { wire, at } => json!({"type": "RECALLED", "wire": wire, "at": at.to_string()}),
        Message::Grown { wire, max_delivery } => json!({
            "type": "GROWN", "wire": wire, "max_delivery": max_delivery.to_string(),
        }),
        Message::Lost { wire, from, to } => json!({
            "type": "LOST", "wire": wire, "from": from.to_string(), "to": to.to_string(),
        }),
        Message::Closed { wire, end } => json!({"type": "CLOSED", "wire": wire, "end": end.to_string()}),
        Message::Gone { wire, end } => json!({"type": "GONE", "wire": wire, "end": end.to_string()}),
        other => panic!("a vector for {other:?} is missing"),
    }
}

fn text<'a>(v: &'a Value, field: &str) -> &'a str {
    v[field].as_str().unwrap_or_else(|| panic!("{field} of {v} is no text"))
}

fn long(v: &Value, field: &str) -> u64 {
    text(v, field).parse().expect("a decimal number")
}

fn name(v: &Value, field: &str) -> u128 {
    u128::from_str_radix(text(v, field), 16).expect("a hexadecimal number")
}

fn short<T: TryFrom<u64, Error: std::fmt::Debug>>(v: &Value, field: &str) -> T {
    let number = v[field].as_u64().unwrap_or_else(|| panic!("{field} of {v} is no number"));
    T::try_from(number).expect("in range")
}

fn flag(v: &Value, field: &str) -> bool {
    v[field].as_bool().expect("true or false")
}

fn code<T: Copy>(codes: &[T], first: usize, v: &Value) -> T {
    codes[short::<usize>(v, "code") - first]
}

fn hello(v: &Value) -> Hello {
    Hello {
        min_version: short(v, "min_version"),
        max_version: short(v, "max_version"),
        capabilities: short(v, "capabilities"),
        instance: name(v, "instance"),
        heartbeat_ms: short(v, "heartbeat_ms"),
        max_control_bytes: short(v, "max_control_bytes"),
        hello: unhex(text(v, "hello")),
    }
}

fn subscribe(v: &Value) -> Subscribe {
    let start = match v["start"].as_str() {
        Some("newest") => Start::Newest,
        Some("oldest") => Start::Oldest,
        Some("last") => Start::Last,
        Some("first") => Start::First,
        _ if v["start"]["ago_ms"].is_string() => Start::Ago(long(&v["start"], "ago_ms")),
        _ => Start::Position(Epoch(name(&v["start"], "epoch")), long(&v["start"], "position")),
    };
    Subscribe {
        wire: short(v, "wire"),
        bid: short(v, "bid"),
        capacity: long(v, "capacity"),
        policy: POLICIES[short::<usize>(v, "policy")],
        own_memory: v["own_memory"] == true,
        start,
        max_lag: long(v, "max_lag"),
        block_timeout_ms: short(v, "block_timeout_ms"),
        hold_ms: short(v, "hold_ms"),
        name: unhex(text(v, "name")),
    }
}

/// The message with these fields.
pub fn message(v: &Value) -> Message {
    let wire = || short::<u32>(v, "wire");
    match text(v, "type") {
        "HELLO" => Message::Hello(hello(v)),
        "WELCOME" => Message::Welcome(hello(v)),
        "BYE" => Message::Bye { code: code(&BYE_CODES, 0, v), text: text(v, "text").to_owned() },
        "PING" => Message::Ping(long(v, "token")),
        "PONG" => Message::Pong(long(v, "token")),
        "APP" => Message::App(unhex(text(v, "bytes"))),
        "SUBSCRIBE" => Message::Subscribe(subscribe(v)),
        "SUBSCRIBED" => Message::Subscribed(Subscribed {
            wire: wire(),
            epoch: Epoch(name(v, "epoch")),
            start: long(v, "start"),
            flow_control: flag(v, "flow_control"),
            restarted: flag(v, "restarted"),
            without_slot: flag(v, "without_slot"),
            capacity: long(v, "capacity"),
            max_delivery: long(v, "max_delivery"),
        }),
        "REFUSED" => {
            let code = code(&REFUSE_CODES, 1, v);
            Message::Refused { wire: wire(), code, a: long(v, "a"), b: long(v, "b") }
        }
        "UNSUBSCRIBE" => Message::Unsubscribe(wire()),
        "UNSUBSCRIBED" => Message::Unsubscribed(wire()),
        "CREDIT" => Message::Credit {
            wire: wire(),
            credit: Credit {
                landed: long(v, "landed"),
                delivered: long(v, "delivered"),
                consumed: long(v, "consumed"),
                grant: long(v, "grant"),
                coverage: coverage_of(v),
            },
        },
        "ASK" => Message::Ask {
            wire: wire(),
            wanted: [long(v, "landed"), long(v, "delivered"), long(v, "consumed")],
        },
        "RECALL" => Message::Recall(wire()),
        "RECALLED" => Message::Recalled { wire: wire(), at: long(v, "at") },
        "GROWN" => Message::Grown { wire: wire(), max_delivery: long(v, "max_delivery") },
        "LOST" => Message::Lost { wire: wire(), from: long(v, "from"), to: long(v, "to") },
        "CLOSED" => Message::Closed { wire: wire(), end: long(v, "end") },
        "GONE" => Message::Gone { wire: wire(), end: long(v, "end") },
        other => panic!("no message is called {other}"),
    }
}

fn parts_fields(coverage: &Coverage) -> Vec<Value> {
    let part =
        |part: CoveragePart| json!({"since": part.covered_from.to_string(), "receivers": part.receivers});
    coverage.parts.iter().map(part).collect()
}

fn coverage_of(v: &Value) -> Coverage {
    let mut parts = [CoveragePart::default(); MAX_COVERAGE_PARTS];
    for (part, v) in parts.iter_mut().zip(v["parts"].as_array().unwrap()) {
        *part = CoveragePart { covered_from: long(v, "since"), receivers: short(v, "receivers") };
    }
    let (receivers, left, lost) = (short(v, "receivers"), short(v, "left"), short(v, "lost"));
    Coverage { receivers, left, lost, covered_from: long(v, "since"), ..Coverage::default() }
        .with_parts(parts)
}
