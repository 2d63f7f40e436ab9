//! The cases of the vectors: every message with its extreme values, bytes that must be refused, and an example session.

use rocketbufs::proto::{
    CloseCode, Coverage, CoveragePart, Credit, Hello, MAX_HELLO_BYTES, MAX_NAME_BYTES, MAX_TEXT_BYTES,
    Message, RefuseCode, Start, Subscribe, Subscribed,
};
use rocketbufs::{Epoch, Policy};
use rocketnet::wire::{CONTROL_WIRE, Header};

use super::fields::{BYE_CODES, POLICIES, REFUSE_CODES, unhex};
use crate::raw;

/// Numbers in which every byte differs, so that a wrong order shows.
const LONG: u64 = 0x0102_0304_0506_0708;
const EPOCH: Epoch = Epoch(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
const LAST_WIRE: u32 = CONTROL_WIRE - 1;

fn hello(bytes: &[u8]) -> Hello {
    Hello {
        min_version: 1,
        max_version: 1,
        capabilities: 0,
        instance: 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100,
        heartbeat_ms: 5000,
        max_control_bytes: 65_536,
        hello: bytes.to_vec(),
    }
}

fn subscribe(wire: u32) -> Subscribe {
    raw::subscribe(wire, 7)
}

fn subscribed(wire: u32, start: u64) -> Subscribed {
    Subscribed { epoch: EPOCH, max_delivery: 1 << 18, ..raw::answer(wire, start, true) }
}

type Named<T> = Vec<(String, T)>;

pub fn headers() -> Named<Header> {
    [
        ("a transfer that ends at a delivery's end", 5, false, 258),
        ("a transfer that ends inside a delivery", 5, true, 258),
        ("wire id 0, the first", 0, false, 1),
        ("the last wire id of a subscription", LAST_WIRE, false, 1),
        ("a control message", CONTROL_WIRE, false, 9),
        ("the largest size", 1, true, u32::MAX),
    ]
    .map(|(name, wire, more, size)| (name.to_owned(), Header { wire, more, size }))
    .into()
}

pub fn messages() -> Named<Message> {
    let mut all = connection_messages();
    all.extend(subscribe_messages());
    all.extend(subscription_messages());
    all
}

fn connection_messages() -> Named<Message> {
    let edge = Hello {
        min_version: 1,
        max_version: 0x0102,
        capabilities: 0x0304_0506,
        heartbeat_ms: 0,
        max_control_bytes: u32::MAX,
        ..hello(&[0xAB; MAX_HELLO_BYTES])
    };
    let mut all: Named<Message> = vec![
        ("HELLO without an application's hello".into(), Message::Hello(hello(b""))),
        ("HELLO with an application's hello".into(), Message::Hello(hello(b"subscriber"))),
        ("HELLO, largest, without heartbeats".into(), Message::Hello(edge)),
        ("WELCOME".into(), Message::Welcome(hello(b"broker"))),
    ];
    for code in BYE_CODES {
        let text = if code == CloseCode::Normal { String::new() } else { "why".to_owned() };
        all.push((format!("BYE {code:?}"), Message::Bye { code, text }));
    }
    let text = format!("{}é", "x".repeat(MAX_TEXT_BYTES - 2));
    all.push(("BYE, longest text".into(), Message::Bye { code: CloseCode::Protocol, text }));
    all.push(("PING".into(), Message::Ping(LONG)));
    all.push(("PONG".into(), Message::Pong(u64::MAX)));
    all.push(("APP, empty".into(), Message::App(Vec::new())));
    all.push(("APP".into(), Message::App(b"any bytes\0\xff".to_vec())));
    all
}

fn subscribe_messages() -> Named<Message> {
    let mut all: Named<Message> = POLICIES
        .map(|policy| {
            (format!("SUBSCRIBE, {policy:?}"), Message::Subscribe(Subscribe { policy, ..subscribe(0) }))
        })
        .into();
    let oldest = Subscribe { start: Start::Oldest, ..subscribe(1) };
    let ago = Subscribe { start: Start::Ago(30_000), ..subscribe(1) };
    let last = Subscribe { start: Start::Last, ..subscribe(1) };
    let first = Subscribe { start: Start::First, ..subscribe(1) };
    let resumed = Subscribe {
        start: Start::Position(EPOCH, LONG),
        max_lag: 1 << 16,
        block_timeout_ms: 0,
        hold_ms: 60_000,
        name: b"meter-1".to_vec(),
        ..subscribe(LAST_WIRE)
    };
    let own = Subscribe { own_memory: true, policy: Policy::Disconnect, ..subscribe(1) };
    all.push(("SUBSCRIBE, Disconnect, own memory".into(), Message::Subscribe(own)));
    let longest = Subscribe { name: vec![0xFE; MAX_NAME_BYTES], bid: u32::MAX, ..subscribe(2) };
    all.push(("SUBSCRIBE from the oldest delivery".into(), Message::Subscribe(oldest)));
    all.push(("SUBSCRIBE from the last delivery".into(), Message::Subscribe(last)));
    all.push(("SUBSCRIBE from a time".into(), Message::Subscribe(ago)));
    all.push(("SUBSCRIBE from the first byte".into(), Message::Subscribe(first)));
    all.push(("SUBSCRIBE, named, from a position".into(), Message::Subscribe(resumed)));
    all.push(("SUBSCRIBE, longest name".into(), Message::Subscribe(longest)));
    for (flow_control, restarted) in [(true, false), (false, false), (true, true), (false, true)] {
        let message = Subscribed { flow_control, restarted, ..subscribed(1, LONG) };
        let name = format!("SUBSCRIBED, flow control {flow_control}, restarted {restarted}");
        all.push((name, Message::Subscribed(message)));
    }
    let without_slot = Subscribed { without_slot: true, ..subscribed(1, LONG) };
    all.push(("SUBSCRIBED, not durable".into(), Message::Subscribed(without_slot)));
    for code in REFUSE_CODES {
        let (a, b) = match code {
            RefuseCode::RingTooSmall => (4096, 8192),
            RefuseCode::TooMany => (65_536, 65_536),
            RefuseCode::TooSlow => (LONG, 0),
            _ => (0, 0),
        };
        all.push((format!("REFUSED {code:?}"), Message::Refused { wire: 3, code, a, b }));
    }
    all
}

/// A CREDIT of an application's own end.
fn credit(landed: u64, delivered: u64, consumed: u64, grant: u64) -> Credit {
    Credit { landed, delivered, consumed, grant, coverage: Coverage::ONE }
}

fn subscription_messages() -> Named<Message> {
    let coverage =
        Coverage { receivers: 258, left: 3, lost: 0xFFFF_FFFF, covered_from: LONG, ..Coverage::default() };
    let of_many = Credit { coverage, ..credit(LONG, 7, 5, LONG) };
    let parts = [(0, 1), (4096, 3), (LONG - 1, 257)]
        .map(|(since, receivers)| CoveragePart { covered_from: since, receivers });
    let of_parts = Credit { coverage: coverage.with_parts(parts), ..of_many };
    [
        ("UNSUBSCRIBE", Message::Unsubscribe(5)),
        ("UNSUBSCRIBED", Message::Unsubscribed(5)),
        ("CREDIT", Message::Credit { wire: 5, credit: credit(LONG, LONG - 1, LONG - 2, LONG + 1) }),
        ("CREDIT, the first", Message::Credit { wire: 5, credit: credit(0, 0, 0, 1 << 20) }),
        ("CREDIT of a broker", Message::Credit { wire: 5, credit: of_many }),
        ("CREDIT of a broker, with parts", Message::Credit { wire: 5, credit: of_parts }),
        ("ASK for all", Message::Ask { wire: 5, wanted: [LONG, LONG - 1, LONG - 256] }),
        ("ASK for landed", Message::Ask { wire: 5, wanted: [LONG, 0, 0] }),
        ("ASK for credit", Message::Ask { wire: 5, wanted: [LONG + 77, 0, 0] }),
        ("RECALL", Message::Recall(5)),
        ("RECALLED", Message::Recalled { wire: 5, at: LONG }),
        ("GROWN", Message::Grown { wire: 5, max_delivery: 64 << 20 }),
        ("LOST", Message::Lost { wire: 5, from: LONG, to: LONG + 4096 }),
        ("CLOSED", Message::Closed { wire: 5, end: LONG }),
        ("GONE", Message::Gone { wire: 5, end: u64::MAX }),
    ]
    .map(|(name, message)| (name.to_owned(), message))
    .into()
}

/// A CREDIT of 258 receivers that all have what begins at LONG, with this part.
fn credit_with_part(since: u64, receivers: u32) -> Vec<u8> {
    let coverage = Coverage { receivers: 258, covered_from: LONG, ..Coverage::default() };
    let mut bytes =
        Message::Credit { wire: 5, credit: Credit { coverage, ..credit(LONG, 7, 5, LONG) } }.encode();
    bytes.pop();
    [&bytes[..], &[1], &since.to_le_bytes(), &receivers.to_le_bytes()].concat()
}

fn credit_rejects() -> [(&'static str, Vec<u8>); 5] {
    let credit = Message::Credit { wire: 5, credit: credit(0, 0, 0, 0) }.encode();
    let whole = &credit[..credit.len() - 1];
    [
        ("CREDIT without its parts", whole.to_vec()),
        ("CREDIT with too many parts", [whole, &[5]].concat()),
        ("CREDIT with a part of no receivers", credit_with_part(0, 0)),
        ("CREDIT with a part of all receivers", credit_with_part(0, 258)),
        ("CREDIT with a part that begins at the start of the whole", credit_with_part(LONG, 1)),
    ]
}

/// Bytes that are no message.
pub fn rejects() -> Named<Vec<u8>> {
    let ping = Message::Ping(1).encode();
    let hello = Message::Hello(hello(b"x")).encode();
    let subscribe = Message::Subscribe(subscribe(1)).encode();
    let subscribed = Message::Subscribed(subscribed(1, 0)).encode();
    let changed = |bytes: &[u8], at: usize, value: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + value.len()].copy_from_slice(value);
        bytes
    };
    let longer = |bytes: &[u8]| [bytes, &[0]].concat();
    let mut long_text = unhex("0302000102");
    long_text.extend([b'x'; MAX_TEXT_BYTES + 1]);
    long_text[3..5].copy_from_slice(&(MAX_TEXT_BYTES as u16 + 1).to_le_bytes());
    [
        ("no bytes", Vec::new()),
        ("type 0", vec![0]),
        ("an unknown type", unhex("1c01000000")),
        ("PING without its last byte", ping[..8].to_vec()),
        ("PING with a byte too many", longer(&ping)),
        ("HELLO of another protocol (HTTP)", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("HELLO with another magic", changed(&hello, 1, b"RKTC")),
        ("HELLO without the end of its application's hello", hello[..hello.len() - 1].to_vec()),
        ("HELLO, application's hello of 1025 bytes", changed(&hello, 37, &1025_u16.to_le_bytes())),
        ("BYE with an unknown code", unhex("0308000000")),
        ("BYE with a text that is not UTF-8", unhex("0300000200c328")),
        ("BYE with a text of 513 bytes", long_text),
        (
            "SUBSCRIBE with the wire id of control messages",
            changed(&subscribe, 1, &CONTROL_WIRE.to_le_bytes()),
        ),
        ("SUBSCRIBE with the MORE bit in its wire id", changed(&subscribe, 1, &unhex("01000080"))),
        ("SUBSCRIBE with an unknown policy", changed(&subscribe, 17, &[4])),
        ("SUBSCRIBE with an unknown start", changed(&subscribe, 18, &[0xFF])),
        ("SUBSCRIBE from the newest, with an epoch", changed(&subscribe, 19, &[1])),
        ("SUBSCRIBE from the oldest, with a position", changed(&changed(&subscribe, 18, &[1]), 35, &[1])),
        ("SUBSCRIBE with a name longer than the message", changed(&subscribe, subscribe.len() - 1, &[1])),
        ("SUBSCRIBED with an unknown flag", changed(&subscribed, 29, &[8])),
        ("REFUSED with code 0", unhex("1203000000000000000000000000000000000000000000")),
        ("REFUSED with an unknown code", unhex("1203000000090000000000000000000000000000000000")),
        ("ASK without consumed", unhex("160500000001000000000000000100000000000000")),
        ("GONE with a byte too many", longer(&Message::Gone { wire: 1, end: 0 }.encode())),
    ]
    .into_iter()
    .chain(credit_rejects())
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .collect()
}

/// A step of the example session.
pub enum Step {
    Control(Message),
    Data(Header, &'static [u8]),
}

/// The example session of docs/PROTOCOL.md: the sender, the reason and the bytes of each step.
pub fn session() -> Vec<(&'static str, &'static str, Step)> {
    use Step::{Control, Data};
    // The receiver has everything from the beginning of its log on.
    let coverage = Coverage { covered_from: 4096, ..Coverage::ONE };
    let credit = |landed, consumed, grant| {
        let credit = Credit { coverage, ..credit(landed, landed, consumed, grant) };
        Control(Message::Credit { wire: 1, credit })
    };
    let data = |more, bytes: &'static [u8]| Data(Header { wire: 1, more, size: bytes.len() as u32 }, bytes);
    vec![
        (
            "receiver",
            "connects, with its versions and capabilities",
            Control(Message::Hello(hello(b"reader"))),
        ),
        (
            "sender",
            "accepts the connection",
            Control(Message::Welcome(Hello { instance: 0xA1, ..hello(b"writer") })),
        ),
        ("receiver", "subscribes to buffer 7 with wire id 1", Control(Message::Subscribe(subscribe(1)))),
        ("sender", "accepts; the log continues at 4096", Control(Message::Subscribed(subscribed(1, 4096)))),
        ("receiver", "grants the 1 MiB of its ring", credit(4096, 4096, 4096 + (1 << 20))),
        ("sender", "sends a complete delivery", data(false, b"hello")),
        ("sender", "sends the beginning of another delivery", data(true, b"wor")),
        ("sender", "sends the end of this delivery", data(false, b"ld")),
        (
            "sender",
            "asks for a confirmation that a call waits for",
            Control(Message::Ask { wire: 1, wanted: [4106, 0, 0] }),
        ),
        ("receiver", "confirms; the application has released 5 bytes", credit(4106, 4101, 4101 + (1 << 20))),
        ("sender", "sends a heartbeat", Control(Message::Ping(1))),
        ("receiver", "answers it", Control(Message::Pong(1))),
        ("receiver", "unsubscribes", Control(Message::Unsubscribe(1))),
        ("sender", "confirms; wire id 1 is free", Control(Message::Unsubscribed(1))),
        (
            "receiver",
            "closes the connection",
            Control(Message::Bye { code: CloseCode::Normal, text: "done".to_owned() }),
        ),
    ]
}
