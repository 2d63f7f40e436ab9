//! Messages of RBMQ from clients that were welcome: topics, patterns, questions, and messages of the broker.

use rbmq::wire::{
    Control, Framing, GroupAction, GroupJoin, GroupMessage, Mark, MarkKind, Observe, ReplayFrom, Role, Topic,
};

use super::exchange::{Code, Exchange, Outcome, app, create};

/// The broker closes with its reason as an application.
const CLOSED: Outcome = Outcome::Bye(Code::Normal);

fn of(family: &'static str, role: Role, name: String, message: &[u8], outcome: Outcome) -> Exchange {
    Exchange { family, name, role: Some(role), bytes: app(message), outcome }
}

/// Every message of RBMQ, by name.
fn messages() -> Vec<(&'static str, Control)> {
    let topic = Topic {
        bid: 1,
        epoch: 1,
        framing: Framing::Records,
        fresh: false,
        kept: false,
        max_delivery_bytes: 1 << 10,
        topic: "t".parse().expect("a name"),
        space: None,
    };
    vec![
        ("CREATED", Control::Created { bid: 1 }),
        ("LARGEST", Control::Largest { bid: 1, max_delivery_bytes: u64::MAX }),
        ("ENDED", Control::Ended { bid: 1, end: u64::MAX }),
        ("SUBSCRIBERS", Control::Subscribers { bid: 1, count: u32::MAX }),
        ("STORED", Control::Stored { bid: 1, position: u64::MAX, synced: u64::MAX, archived: 0 }),
        (
            "NOT_STORED",
            Control::NotStored { bid: 1, is_of_archive: false, is_lost: false, reason: "no".into() },
        ),
        ("DISK", Control::Disk { bid: 1, failure: "full".into() }),
        ("TOPIC", Control::Topic(topic.clone())),
        ("TOPIC_GONE", Control::TopicGone { bid: 1, topic: topic.topic.clone() }),
        ("REJECTED", Control::Rejected { what: rbmq::wire::Rejection::Rights, reason: "no".into() }),
        ("TOPICS_DONE", Control::TopicsDone),
        ("LIMITS", Control::Limits(rbmq::wire::SubscribeLimits::default())),
        ("REPLAYED", Control::Replayed { bid: 1, replay: Some(2), start: 0 }),
        ("TOPIC_VIA", Control::TopicVia { topic, path: vec![1, 2] }),
        ("CONTINUES", Control::Continues { bid: 1, yes: true }),
    ]
}

/// Messages about groups that only a broker sends, by name.
fn of_groups() -> Vec<(&'static str, GroupMessage)> {
    vec![
        (
            "GROUP_JOINED",
            GroupMessage::Joined { bid: 1, generation: 1, max_delivery_bytes: u64::MAX, ack_ms: 1 },
        ),
        ("GROUP_REFUSED", GroupMessage::Refused { again: true, reason: "no".into() }),
        ("GROUP_MARKED", GroupMessage::Marked { count: u64::MAX, refused: u64::MAX }),
        ("GROUP_ROWS", GroupMessage::Rows { request: 1, more: true, rows: Vec::new() }),
        ("GROUP_FAILED", GroupMessage::Failed { request: 1, reason: "no".into() }),
    ]
}

/// What workers of groups ask.
fn of_workers() -> [(&'static str, Role, Vec<u8>); 4] {
    let (topic, group) = ("a/b".parse().expect("a name"), "g".parse().expect("a name"));
    let join = GroupJoin {
        topic,
        group,
        credit: u32::MAX,
        from_newest: false,
        ack_ms: 0,
        max_attempts: 1,
        dead_letter: Some("dead".parse().expect("a name")),
        ordered: true,
    };
    let mark = Mark { kind: MarkKind::Ack, position: u64::MAX, attempt: u16::MAX, ms: u32::MAX };
    let of = Some((join.topic.clone(), join.group.clone()));
    let ask = GroupMessage::Ask { request: 1, action: GroupAction::Delete, of };
    [
        ("GROUP_JOIN", Role::Subscriber, GroupMessage::Join(join).encode()),
        (
            "GROUP_MARKS",
            Role::Subscriber,
            GroupMessage::Marks { generation: u64::MAX, marks: vec![mark; 2] }.encode(),
        ),
        ("GROUP_LEAVE", Role::Subscriber, GroupMessage::Leave.encode()),
        ("GROUP_ASK", Role::Subscriber, ask.encode()),
    ]
}

/// Messages that only a broker sends, and messages that end early.
pub fn shapes() -> Vec<Exchange> {
    let mut all = Vec::new();
    for (name, message) in messages() {
        for role in [Role::Publisher, Role::Subscriber] {
            all.push(of("forged messages", role, format!("{role:?}: {name}"), &message.encode(), CLOSED));
        }
    }
    for (name, message) in of_groups() {
        for role in [Role::Publisher, Role::Subscriber] {
            all.push(of("forged messages", role, format!("{role:?}: {name}"), &message.encode(), CLOSED));
        }
    }
    let topics =
        Control::Topics { filters: vec!["a/+/b".parse().expect("a filter"), "c".parse().expect("a filter")] };
    let asks = [
        ("CREATE", Role::Publisher, create(7, 1 << 16, 1 << 12, b"a/b")),
        (
            "ASK_STORED",
            Role::Publisher,
            Control::AskStored { bid: 7, position: 1, synced: 1, archived: 0 }.encode(),
        ),
        ("TOPICS", Role::Subscriber, topics.encode()),
        ("HOLD", Role::Subscriber, Control::Hold { hold_ms: 7 }.encode()),
        ("REPLAY", Role::Subscriber, Control::Replay { bid: 7, from: ReplayFrom::Age(1) }.encode()),
        ("DOWNSTREAM", Role::Broker, Control::Downstream { bid: 7, count: 1 }.encode()),
        ("GET_SUMMARY", Role::Observer, Observe::GetSummary { request: 1 }.encode()),
        ("GET_TOPICS", Role::Observer, Observe::GetTopics { request: 1, filter: None, after: None }.encode()),
        ("GET_LIMITS", Role::Observer, Observe::GetLimits { request: 1 }.encode()),
        ("GET_GATEWAYS", Role::Observer, Observe::GetGateways { request: 1 }.encode()),
        ("GET_GROUPS", Role::Observer, Observe::GetGroups { request: 1 }.encode()),
    ];
    for (name, role, good) in asks.into_iter().chain(of_workers()) {
        for at in 0..good.len() {
            let name = format!("{name} cut after {at} of {} bytes", good.len());
            all.push(of("cut requests", role, name, &good[..at], CLOSED));
        }
        let longer = [&good[..], b"\0"].concat();
        all.push(of("cut requests", role, format!("{name} with a byte more"), &longer, CLOSED));
    }
    for kind in [0x00, 0x0a, 0x0f, 0x19, 0x23, 0x2f, 0x3e, 0x49, 0x7f, 0xff] {
        for role in [Role::Publisher, Role::Subscriber, Role::Broker, Role::Observer] {
            let name = format!("{role:?}: a request of type {kind:#04x}");
            all.push(of("cut requests", role, name, &[kind, 0, 0, 0, 0], CLOSED));
        }
    }
    all
}

/// Topics and sizes that a broker does not take.
pub fn creations() -> Vec<Exchange> {
    let named = |name: &str, topic: &[u8], outcome| {
        of("topics", Role::Publisher, format!("CREATE {name}"), &create(7, 1 << 16, 1 << 12, topic), outcome)
    };
    let sized = |name: &str, ring: u64, delivery: u64, outcome| {
        of("topics", Role::Publisher, format!("CREATE {name}"), &create(7, ring, delivery, b"sized"), outcome)
    };
    vec![
        named("without a name", b"", CLOSED),
        named("of '+'", b"+", CLOSED),
        named("of '#'", b"#", CLOSED),
        named("with a wildcard in a level", b"a/b+c/d", CLOSED),
        named("with a NUL", b"a\0b", CLOSED),
        named("with a line end", b"a\nb", CLOSED),
        named("with an escape sequence", b"\x1b[2J", CLOSED),
        named("with a delete character", b"a\x7f", CLOSED),
        named("that is no UTF-8", b"\xff\xfe", CLOSED),
        named("with half of a character", b"caf\xc3", CLOSED),
        named("with an overlong character", b"\xc0\xaf", CLOSED),
        named("with a surrogate", b"\xed\xa0\x80", CLOSED),
        named("with a leading dollar sign", b"$SYS/load", Outcome::Harmless),
        named("of slashes only", &[b'/'; 255][..], Outcome::Harmless),
        named("that climbs folders", b"../../../etc/passwd", Outcome::Harmless),
        named("of spaces", b"   ", Outcome::Harmless),
        sized("with a ring of 2^64-1 bytes", u64::MAX, 1 << 12, Outcome::Rejected),
        sized("with a ring of 2^63 bytes", 1 << 63, 1 << 12, Outcome::Rejected),
        sized("with deliveries of 2^64-1 bytes", 1 << 16, u64::MAX, Outcome::Rejected),
        sized("with deliveries of 2^63 bytes", 1 << 16, 1 << 63, Outcome::Rejected),
        sized("with a ring of 0 bytes", 0, 1 << 12, Outcome::Harmless),
        sized("with deliveries of 0 bytes", 1 << 16, 0, Outcome::Harmless),
        framed(2, "runs, which only brokers write", Outcome::Rejected),
        framed(3, "a framing that does not exist", CLOSED),
        framed(255, "the last framing", CLOSED),
    ]
}

fn framed(framing: u8, name: &str, outcome: Outcome) -> Exchange {
    let mut bytes = create(7, 1 << 16, 1 << 12, b"framed");
    bytes[5] = framing;
    of("topics", Role::Publisher, format!("CREATE with {name}"), &bytes, outcome)
}

fn topics(filters: &[&[u8]], count: u16) -> Vec<u8> {
    let mut bytes = vec![0x10];
    bytes.extend(count.to_le_bytes());
    for filter in filters {
        bytes.push(filter.len() as u8);
        bytes.extend_from_slice(filter);
    }
    bytes
}

/// Patterns that are no patterns, that cost much to match, or that are too many.
pub fn patterns() -> Vec<Exchange> {
    let pattern = |name: &str, filter: &[u8], outcome| {
        of("patterns", Role::Subscriber, format!("a pattern {name}"), &topics(&[filter], 1), outcome)
    };
    let plus = b"+/".repeat(127);
    let deep = [&b"+/".repeat(126)[..], b"#"].concat();
    let letters = [&b"a/".repeat(126)[..], b"#"].concat();
    let mut all = vec![
        pattern("without a byte", b"", CLOSED),
        pattern("with '#' before its end", b"a/#/b", CLOSED),
        pattern("with '#' in a level", b"a#", CLOSED),
        pattern("with '+' in a level", b"a/+b", CLOSED),
        pattern("of '##'", b"##", CLOSED),
        pattern("with a NUL", b"a\0", CLOSED),
        pattern("that is no UTF-8", b"\x80", CLOSED),
        pattern("of 127 times '+'", &plus[..253], Outcome::Harmless),
        pattern("of 126 times '+' and '#'", &deep, Outcome::Harmless),
        pattern("of 126 levels and '#'", &letters, Outcome::Harmless),
        pattern("of 255 slashes", &[b'/'; 255][..], Outcome::Harmless),
        pattern("for topics of the broker", b"$SYS/#", Outcome::Harmless),
    ];
    let cases: [(&str, Vec<u8>, Outcome); 4] = [
        ("65,535 patterns announced, and none sent", topics(&[], u16::MAX), CLOSED),
        ("fewer patterns announced than sent", topics(&[&b"a"[..], b"b"], 1), CLOSED),
        ("the same pattern 4,000 times", topics(&[&b"#"[..]; 4000], 4000), Outcome::Harmless),
        ("63 patterns of 127 wildcards", topics(&[&plus[..253]; 63], 63), Outcome::Harmless),
    ];
    all.extend(
        cases.map(|(name, bytes, outcome)| of("patterns", Role::Subscriber, name.into(), &bytes, outcome)),
    );
    all
}

/// Requests about buffers and positions of others, and requests of another role.
pub fn requests(bid: u32) -> Vec<Exchange> {
    let far = u64::MAX;
    let replay = |bid, from| Control::Replay { bid, from };
    let ask = |bid, at| Control::AskStored { bid, position: at, synced: at, archived: at };
    let downstream = |bid| Control::Downstream { bid, count: u32::MAX };
    let all = Control::Topics { filters: vec!["#".parse().expect("a filter")] };
    let (ok, refused) = (Outcome::Harmless, Outcome::Rejected);
    let (subscriber, publisher, broker) = (Role::Subscriber, Role::Publisher, Role::Broker);
    let mut requests: Vec<Exchange> = [
        (subscriber, "REPLAY of a buffer that does not exist", replay(u32::MAX, ReplayFrom::Oldest), ok),
        (subscriber, "REPLAY of a topic that is not kept", replay(bid, ReplayFrom::Position(far)), ok),
        (subscriber, "REPLAY from 2^64-1 ms ago", replay(bid, ReplayFrom::Age(far)), ok),
        (subscriber, "HOLD for 49 days", Control::Hold { hold_ms: u32::MAX }, ok),
        (subscriber, "DOWNSTREAM of a subscriber", downstream(bid), CLOSED),
        (publisher, "ASK_STORED of a buffer of another publisher", ask(bid, far), refused),
        (publisher, "ASK_STORED of a buffer that does not exist", ask(u32::MAX, 0), refused),
        (publisher, "TOPICS of a publisher", all, CLOSED),
        (publisher, "HOLD of a publisher", Control::Hold { hold_ms: 1 }, CLOSED),
        (publisher, "DOWNSTREAM of a publisher", downstream(bid), CLOSED),
        (broker, "DOWNSTREAM of a buffer that does not exist", downstream(0), ok),
    ]
    .into_iter()
    .map(|(role, name, message, outcome)| of("requests", role, name.into(), &message.encode(), outcome))
    .collect();
    for role in [subscriber, Role::Observer] {
        let name = format!("{role:?}: CREATE");
        requests.push(of("requests", role, name, &create(7, 1 << 16, 1 << 12, b"t"), CLOSED));
    }
    let large = vec![1; Control::MAX_BYTES + 1];
    requests.push(of("requests", publisher, "a request of 16 KiB and a byte".into(), &large, CLOSED));
    requests
}
