//! Messages of the framework from clients that were welcome: subscriptions, credit, and messages of the other end.

use rbmq::wire::Role;
use rocketbufs::proto::{Coverage, Credit, Message, Start, Subscribe, Subscribed};
use rocketbufs::{Epoch, Policy};

use super::exchange::{CONTROL, Code, Exchange, Outcome, control, data, said};

const PROTOCOL: Outcome = Outcome::Bye(Code::Protocol);

fn subscriber(family: &'static str, name: String, bytes: Vec<u8>, outcome: Outcome) -> Exchange {
    Exchange { family, name, role: Some(Role::Subscriber), bytes, outcome }
}

fn subscribe(bid: u32) -> Subscribe {
    Subscribe {
        wire: 9,
        bid,
        capacity: 1 << 20,
        policy: Policy::Block,
        own_memory: false,
        start: Start::Newest,
        max_lag: 0,
        block_timeout_ms: u32::MAX,
        hold_ms: 0,
        name: Vec::new(),
    }
}

fn credit(positions: [u64; 4]) -> Message {
    let [landed, delivered, consumed, grant] = positions;
    Message::Credit {
        wire: 9,
        credit: Credit { landed, delivered, consumed, grant, coverage: Coverage::ONE },
    }
}

/// Every message with fields, by name.
fn messages() -> Vec<(&'static str, Message)> {
    let subscribed = Subscribed {
        wire: 9,
        epoch: Epoch(1),
        start: 0,
        flow_control: true,
        restarted: false,
        without_slot: false,
        capacity: 1 << 16,
        max_delivery: 1 << 12,
    };
    vec![
        ("PING", Message::Ping(1)),
        ("PONG", Message::Pong(1)),
        ("SUBSCRIBE", Message::Subscribe(subscribe(1))),
        ("SUBSCRIBED", Message::Subscribed(subscribed)),
        ("UNSUBSCRIBE", Message::Unsubscribe(9)),
        ("UNSUBSCRIBED", Message::Unsubscribed(9)),
        ("CREDIT", credit([0; 4])),
        ("LOST", Message::Lost { wire: 9, from: 0, to: 1 }),
        ("GROWN", Message::Grown { wire: 9, max_delivery: u64::MAX }),
        ("CLOSED", Message::Closed { wire: 9, end: 0 }),
        ("GONE", Message::Gone { wire: 9, end: 0 }),
    ]
}

/// Messages that end early or late, and types that do not exist.
pub fn shapes() -> Vec<Exchange> {
    let mut all = Vec::new();
    for (name, message) in messages() {
        let good = message.encode();
        for at in 1..good.len() {
            let name = format!("{name} cut after {at} of {} bytes", good.len());
            all.push(subscriber("cut messages", name, control(&good[..at]), PROTOCOL));
        }
        let longer = control(&[&good[..], b"\0"].concat());
        all.push(subscriber("cut messages", format!("{name} with a byte more"), longer, PROTOCOL));
    }
    for kind in (0..=255_u8).filter(|kind| !(1..=6).contains(kind) && !(0x10..=0x1c).contains(kind)) {
        let name = format!("a message of type {kind:#04x}");
        all.push(subscriber("unknown types", name, control(&[kind, 0, 0, 0, 0, 0, 0, 0, 0]), PROTOCOL));
    }
    all
}

/// Transfers that nobody asked for, and sizes that lie.
pub fn transfers() -> Vec<Exchange> {
    let mut all = Vec::new();
    for role in [Role::Publisher, Role::Subscriber, Role::Observer, Role::Broker] {
        for wire in [0, 9, 0x7fff_fffe, 0x8000_0009] {
            let name = format!("{role:?}: a transfer of id {wire:#x} that has no subscription");
            let bytes = data(wire, b"bytes");
            all.push(Exchange {
                family: "transfers",
                name,
                role: Some(role),
                bytes,
                outcome: Outcome::Closed,
            });
        }
        let bytes = [CONTROL.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
        let name = format!("{role:?}: a control message of 4 GiB");
        all.push(Exchange { family: "transfers", name, role: Some(role), bytes, outcome: Outcome::Closed });
        let name = format!("{role:?}: an empty control message");
        all.push(Exchange {
            family: "transfers",
            name,
            role: Some(role),
            bytes: control(b""),
            outcome: PROTOCOL,
        });
    }
    all
}

/// Subscriptions of the buffer `bid`, which is another client's, with values at and beyond their limits.
pub fn subscriptions(bid: u32) -> Vec<Exchange> {
    let of = |name: &str, change: &dyn Fn(&mut Subscribe), outcome| {
        let mut subscribe = subscribe(bid);
        change(&mut subscribe);
        let bytes = said(&Message::Subscribe(subscribe));
        subscriber("subscriptions", format!("SUBSCRIBE {name}"), bytes, outcome)
    };
    let ok = Outcome::Harmless;
    let mut all = vec![
        of("to a buffer that does not exist", &|s| s.bid = 0x7777_7777, Outcome::Refused(1)),
        of("to the last buffer number", &|s| s.bid = u32::MAX, Outcome::Refused(1)),
        of("with a ring of 0 bytes", &|s| s.capacity = 0, Outcome::Refused(2)),
        of("with a ring of 1 byte", &|s| s.capacity = 1, Outcome::Refused(2)),
        of("with a ring of 2^64-1 bytes", &|s| s.capacity = u64::MAX, ok),
        of(
            "with overwrite of a buffer with flow control",
            &|s| s.policy = Policy::Overwrite,
            Outcome::Refused(3),
        ),
        of("with the largest lag", &|s| (s.policy, s.max_lag) = (Policy::Drop, u64::MAX), ok),
        of("with a lag of a byte", &|s| (s.policy, s.max_lag) = (Policy::Disconnect, 1), ok),
        of(
            "at the last position of an unknown epoch",
            &|s| s.start = Start::Position(Epoch(5), u64::MAX),
            ok,
        ),
        of("at position 0 of an unknown epoch", &|s| s.start = Start::Position(Epoch(0), 0), ok),
        of("from 2^64-1 milliseconds ago", &|s| s.start = Start::Ago(u64::MAX), ok),
        of("with a name of 255 bytes that are no text", &|s| (s.name, s.hold_ms) = (vec![0xff; 255], 1), ok),
        of("to be held for 49 days", &|s| (s.name, s.hold_ms) = (b"n".to_vec(), u32::MAX), ok),
        of("with the id of control messages", &|s| s.wire = CONTROL, PROTOCOL),
        of("with an id above 31 bits", &|s| s.wire = 0x8000_0001, PROTOCOL),
    ];
    all.extend(raw_fields(bid));
    all.extend(sequences(bid));
    all
}

/// Fields of SUBSCRIBE that no encoder writes.
fn raw_fields(bid: u32) -> Vec<Exchange> {
    let good = Message::Subscribe(subscribe(bid)).encode();
    let cases: [(&str, usize, u8); 9] = [
        ("policy 4", 17, 4),
        ("policy 127", 17, 127),
        ("policy 255", 17, 255),
        ("start 6", 18, 6),
        ("start 255", 18, 255),
        ("an epoch without a position", 19, 1),
        ("a position without a start", 35, 1),
        ("a name that is longer than the message", 59, 200),
        ("a start in an epoch, and bytes of another start", 18, 77),
    ];
    let changed = cases.map(|(name, at, value)| {
        let mut bytes = good.clone();
        bytes[at] = value;
        subscriber("subscriptions", format!("SUBSCRIBE with {name}"), control(&bytes), PROTOCOL)
    });
    changed.into()
}

/// Messages about subscriptions in an order, or with positions, that no honest receiver has.
fn sequences(bid: u32) -> Vec<Exchange> {
    let one = Message::Subscribe(subscribe(bid));
    let of = |name: &str, messages: &[Message], outcome| {
        let bytes = messages.iter().flat_map(said).collect();
        subscriber("sequences", name.into(), bytes, outcome)
    };
    let far = u64::MAX;
    vec![
        of("the same id twice", &[one.clone(), one.clone()], Outcome::Refused(5)),
        of("UNSUBSCRIBE of an id that was never used", &[Message::Unsubscribe(77)], Outcome::Harmless),
        of(
            "UNSUBSCRIBE twice",
            &[one.clone(), Message::Unsubscribe(9), Message::Unsubscribe(9)],
            Outcome::Harmless,
        ),
        of("CREDIT of an id that was never used", &[credit([0; 4])], Outcome::Harmless),
        of("CREDIT for bytes that were not sent", &[one.clone(), credit([far, far, far, far])], PROTOCOL),
        of("CREDIT that consumed more than landed", &[one.clone(), credit([0, 0, 1, far])], PROTOCOL),
        of("a grant of 2^64-1", &[one.clone(), credit([0, 0, 0, far])], Outcome::Harmless),
        of("SUBSCRIBED of a subscriber", &[messages().remove(3).1], PROTOCOL),
        of(
            "LOST of a subscriber",
            &[one.clone(), Message::Lost { wire: 9, from: 0, to: far }],
            Outcome::Harmless,
        ),
        of(
            "CLOSED of a subscriber",
            &[one.clone(), Message::Closed { wire: 9, end: far }],
            Outcome::Harmless,
        ),
        of("GONE of a subscriber", &[one, Message::Gone { wire: 9, end: far }], Outcome::Harmless),
    ]
}
