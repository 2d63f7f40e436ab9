//! Packets of MQTT that the standards do not allow, or that ask for too much.

use super::{Begin, Case};

const V5: Begin = Begin::Mqtt(5);

/// A text with its length.
pub fn text(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    [&(text.len() as u16).to_be_bytes()[..], text].concat()
}

/// A number of up to four bytes.
pub fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let more = if value > 0x7F { 0x80 } else { 0 };
        bytes.push((value & 0x7F) as u8 | more);
        value >>= 7;
        if value == 0 {
            return bytes;
        }
    }
}

/// A packet of these parts.
pub fn body(first: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&[first][..], &number(body.len()), &body].concat()
}

/// A good CONNECT.
pub fn connect(version: u8, client: &str) -> Vec<u8> {
    let properties: &[u8] = if version == 5 { &[0] } else { &[] };
    body(0x10, &[&text("MQTT"), &[version, 2, 0, 0], properties, &text(client)])
}

/// PUBLISH of QoS 0.
fn publish(topic: impl AsRef<[u8]>, properties: &[u8]) -> Vec<u8> {
    body(0x30, &[&text(topic), &number(properties.len()), properties, b"x"])
}

/// PUBLISH of QoS 1 or 2.
fn publish_with(qos: u8, topic: impl AsRef<[u8]>, id: u16, properties: &[u8]) -> Vec<u8> {
    let head = [&text(topic)[..], &id.to_be_bytes()].concat();
    body(0x30 | qos << 1, &[&head, &number(properties.len()), properties, b"x"])
}

/// SUBSCRIBE to a filter.
fn subscribe(properties: &[u8], filter: impl AsRef<[u8]>, options: u8) -> Vec<u8> {
    body(0x82, &[&[0, 7], &number(properties.len()), properties, &text(filter), &[options]])
}

fn cases<const N: usize>(family: &'static str, begin: Begin, all: [(&str, Vec<u8>, &str); N]) -> Vec<Case> {
    all.map(|(name, bytes, required)| Case::new(family, begin, name, bytes, required)).into()
}

pub fn headers() -> Vec<Case> {
    const FAMILY: &str = "MQTT: headers";
    let mut all = Case::cuts(FAMILY, V5, "PUBLISH", &publish("topic", &[1, 1]), "closed");
    all.extend(cases(
        FAMILY,
        V5,
        [
            ("a packet of kind 0", vec![0, 0], "DISCONNECT 0x81; closed"),
            ("a second CONNECT", connect(5, "again"), "DISCONNECT 0x82; closed"),
            ("CONNACK", vec![0x20, 3, 0, 0, 0], "DISCONNECT 0x82; closed"),
            ("SUBACK", vec![0x90, 4, 0, 1, 0, 0], "DISCONNECT 0x82; closed"),
            ("UNSUBACK", vec![0xB0, 4, 0, 1, 0, 0], "DISCONNECT 0x82; closed"),
            ("PINGRESP", vec![0xD0, 0], "DISCONNECT 0x82; closed"),
            ("PINGREQ with flags", vec![0xC1, 0], "DISCONNECT 0x81; closed"),
            ("PINGREQ with a body", vec![0xC0, 1, 0], "DISCONNECT 0x81; closed"),
            ("SUBSCRIBE without its flag", vec![0x80, 7, 0, 1, 0, 0, 1, b'a', 0], "DISCONNECT 0x81; closed"),
            ("UNSUBSCRIBE without its flag", vec![0xA0, 6, 0, 1, 0, 0, 1, b'a'], "DISCONNECT 0x81; closed"),
            ("PUBREL without its flag", vec![0x60, 2, 0, 1], "DISCONNECT 0x81; closed"),
            ("PUBACK with flags", vec![0x42, 2, 0, 1], "DISCONNECT 0x81; closed"),
            ("DISCONNECT with flags", vec![0xE1, 0], "DISCONNECT 0x81; closed"),
            ("AUTH", vec![0xF0, 0], "DISCONNECT 0x82; closed"),
            ("AUTH, again", vec![0xF0, 2, 0x19, 0], "DISCONNECT 0x82; closed"),
            ("AUTH with a method", body(0xF0, &[&[0x18, 5, 0x15], &text("ab")]), "DISCONNECT 0x82; closed"),
            ("AUTH with flags", vec![0xF1, 0], "DISCONNECT 0x81; closed"),
            ("a length of five bytes", vec![0x30, 0x80, 0x80, 0x80, 0x80, 1], "DISCONNECT 0x81; closed"),
            (
                "a length of five bytes, all of them ones",
                vec![0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
                "DISCONNECT 0x81; closed",
            ),
            ("a length of 256 MiB", vec![0x30, 0xFF, 0xFF, 0xFF, 0x7F], "DISCONNECT 0x95; closed"),
            ("a length of 2 MiB", vec![0x30, 0x80, 0x80, 0x80, 1], "DISCONNECT 0x95; closed"),
            ("a length in more bytes than it needs", vec![0xC0, 0x80, 0], "DISCONNECT 0x81; closed"),
            ("DISCONNECT with an odd reason", vec![0xE0, 1, 0x05], "DISCONNECT 0x82; closed"),
            (
                "DISCONNECT that prolongs a session without expiry",
                vec![0xE0, 7, 0, 5, 0x11, 0, 0, 1, 0],
                "DISCONNECT 0x82; closed",
            ),
            (
                "DISCONNECT with a reference of servers",
                body(0xE0, &[&[0, 4, 0x1C], &text("x")]),
                "DISCONNECT 0x82; closed",
            ),
            ("packets behind DISCONNECT", [&[0xE0, 0][..], &publish("topic", &[])].concat(), "closed"),
        ],
    ));
    all
}

pub fn publishes() -> Vec<Case> {
    const FAMILY: &str = "MQTT 5: PUBLISH";
    cases(
        FAMILY,
        V5,
        [
            ("QoS 3", body(0x36, &[&text("topic"), &[0, 1, 0], b"x"]), "DISCONNECT 0x81; closed"),
            ("a duplicate of QoS 0", body(0x38, &[&text("topic"), &[0], b"x"]), "DISCONNECT 0x81; closed"),
            ("the packet id 0 of QoS 1", publish_with(1, "topic", 0, &[]), "DISCONNECT 0x82; closed"),
            ("the packet id 0 of QoS 2", publish_with(2, "topic", 0, &[]), "DISCONNECT 0x82; closed"),
            ("an empty packet", vec![0x30, 0], "DISCONNECT 0x81; closed"),
            (
                "a topic that is longer than the packet",
                vec![0x30, 3, 0xFF, 0xFF, b'a'],
                "DISCONNECT 0x81; closed",
            ),
            (
                "properties that are longer than the packet",
                vec![0x30, 4, 0, 1, b'a', 9],
                "DISCONNECT 0x81; closed",
            ),
            ("a topic with +", publish("a/+", &[]), "DISCONNECT 0x90; closed"),
            ("a topic with #", publish("#", &[]), "DISCONNECT 0x90; closed"),
            ("a topic with U+0000", publish("a\0b", &[]), "DISCONNECT 0x81; closed"),
            ("a topic that is no UTF-8", publish(b"\xff\xfe", &[]), "DISCONNECT 0x81; closed"),
            ("a topic with a surrogate", publish(b"\xed\xa0\x80", &[]), "DISCONNECT 0x81; closed"),
            ("a topic with an overlong slash", publish(b"\xc0\xaf", &[]), "DISCONNECT 0x81; closed"),
            ("a topic with a control character", publish("a\x07", &[]), "DISCONNECT 0x90; closed"),
            ("a topic of 256 bytes", publish(vec![b't'; 256], &[]), "DISCONNECT 0x90; closed"),
            ("a topic of 65,535 bytes", publish(vec![b't'; 65_535], &[]), "DISCONNECT 0x90; closed"),
            (
                "a topic of 256 bytes, of QoS 1",
                publish_with(1, vec![b't'; 256], 1, &[]),
                "PUBACK 0x90; goes on",
            ),
            ("a topic of the broker, of QoS 1", publish_with(1, "$SYS/x", 1, &[]), "PUBACK 0x87; goes on"),
            (
                "a topic of the broker, of QoS 2",
                publish_with(2, "$share/g/x", 1, &[]),
                "PUBREC 0x87; goes on",
            ),
        ],
    )
}

pub fn aliases() -> Vec<Case> {
    const FAMILY: &str = "MQTT 5: PUBLISH";
    let twice = |property: &[u8]| publish("topic", &property.repeat(2));
    cases(
        FAMILY,
        V5,
        [
            ("neither topic nor alias", publish("", &[]), "DISCONNECT 0x82; closed"),
            ("the alias 0", publish("topic", &[0x23, 0, 0]), "DISCONNECT 0x94; closed"),
            ("the alias 101", publish("topic", &[0x23, 0, 101]), "DISCONNECT 0x94; closed"),
            ("the alias 65,535", publish("topic", &[0x23, 0xFF, 0xFF]), "DISCONNECT 0x94; closed"),
            ("an alias without a topic", publish("", &[0x23, 0, 1]), "DISCONNECT 0x82; closed"),
            ("an alias twice", twice(&[0x23, 0, 1]), "DISCONNECT 0x82; closed"),
        ],
    )
}

pub fn properties() -> Vec<Case> {
    const FAMILY: &str = "MQTT 5: PUBLISH";
    let twice = |property: &[u8]| publish("topic", &property.repeat(2));
    let users = |count| [&[0x26][..], &text("a"), &text("b")].concat().repeat(count);
    cases(
        FAMILY,
        V5,
        [
            ("a payload format twice", twice(&[1, 1]), "DISCONNECT 0x82; closed"),
            ("an expiry twice", twice(&[2, 0, 0, 0, 1]), "DISCONNECT 0x82; closed"),
            ("a content type twice", twice(&[3, 0, 1, b'x']), "DISCONNECT 0x82; closed"),
            ("a response topic twice", twice(&[8, 0, 1, b'x']), "DISCONNECT 0x82; closed"),
            ("correlation data twice", twice(&[9, 0, 1, b'x']), "DISCONNECT 0x82; closed"),
            ("a payload format of 2", publish("topic", &[1, 2]), "DISCONNECT 0x82; closed"),
            (
                "a response topic with a wildcard",
                publish("topic", &[8, 0, 1, b'#']),
                "DISCONNECT 0x82; closed",
            ),
            ("a subscription id", publish("topic", &[0x0B, 1]), "DISCONNECT 0x82; closed"),
            ("a property of CONNECT", publish("topic", &[0x11, 0, 0, 0, 1]), "DISCONNECT 0x82; closed"),
            ("a property that does not exist", publish("topic", &[0x7F, 0]), "DISCONNECT 0x81; closed"),
            (
                "a property with a number of five bytes",
                publish("topic", &[0x80, 0x80, 0x80, 0x80, 1]),
                "DISCONNECT 0x81; closed",
            ),
            ("half a property", publish("topic", &[2, 0]), "DISCONNECT 0x81; closed"),
            ("1,000 user properties", publish("topic", &users(1000)), "goes on"),
            ("1,001 user properties", publish("topic", &users(1001)), "DISCONNECT 0x97; closed"),
            ("10,000 user properties", publish("topic", &users(10_000)), "DISCONNECT 0x97; closed"),
            (
                "a user property with U+0000",
                publish("topic", &[0x26, 0, 1, 0, 0, 1, b'x']),
                "DISCONNECT 0x81; closed",
            ),
            ("an expiry of 0", publish("topic", &[2, 0, 0, 0, 0]), "goes on"),
            ("an expiry without an end", publish("topic", &[2, 0xFF, 0xFF, 0xFF, 0xFF]), "goes on"),
        ],
    )
}

pub fn subscribes() -> Vec<Case> {
    const FAMILY: &str = "MQTT 5: SUBSCRIBE";
    cases(
        FAMILY,
        V5,
        [
            ("no filter", body(0x82, &[&[0, 7, 0]]), "DISCONNECT 0x82; closed"),
            ("the packet id 0", body(0x82, &[&[0, 0, 0], &text("a"), &[0]]), "DISCONNECT 0x82; closed"),
            ("QoS 3", subscribe(&[], "a", 3), "DISCONNECT 0x81; closed"),
            ("reserved bits", subscribe(&[], "a", 0x40), "DISCONNECT 0x81; closed"),
            ("the retain handling 3", subscribe(&[], "a", 0x30), "DISCONNECT 0x82; closed"),
            ("a filter without options", body(0x82, &[&[0, 7, 0], &text("a")]), "DISCONNECT 0x81; closed"),
            ("the subscription id 0", subscribe(&[0x0B, 0], "a", 0), "DISCONNECT 0x82; closed"),
            ("two subscription ids", subscribe(&[0x0B, 1, 0x0B, 2], "a", 0), "DISCONNECT 0x82; closed"),
            (
                "the largest subscription id",
                subscribe(&[0x0B, 0xFF, 0xFF, 0xFF, 0x7F], "a", 0),
                "SUBACK 0x00; goes on",
            ),
            (
                "a subscription id of five bytes",
                subscribe(&[0x0B, 0x80, 0x80, 0x80, 0x80, 1], "a", 0),
                "DISCONNECT 0x81; closed",
            ),
            ("a property of PUBLISH", subscribe(&[0x23, 0, 1], "a", 0), "DISCONNECT 0x82; closed"),
        ],
    )
}

pub fn filters() -> Vec<Case> {
    const FAMILY: &str = "MQTT 5: SUBSCRIBE";
    let of = |filter: &str| subscribe(&[], filter, 0);
    let many = |count: usize| {
        let filters: Vec<u8> =
            (0..count).flat_map(|at| [text(format!("many/{at}")), vec![0]].concat()).collect();
        body(0x82, &[&[0, 7, 0], &filters])
    };
    cases(
        FAMILY,
        V5,
        [
            ("an empty filter", of(""), "SUBACK 0x8f; goes on"),
            ("# before the end", of("a/#/b"), "SUBACK 0x8f; goes on"),
            ("# within a level", of("a#"), "SUBACK 0x8f; goes on"),
            ("+ within a level", of("a+/b"), "SUBACK 0x8f; goes on"),
            ("U+0000", of("a\0"), "DISCONNECT 0x81; closed"),
            ("bytes that are no UTF-8", subscribe(&[], b"\xff", 0), "DISCONNECT 0x81; closed"),
            ("a control character", of("a\x1b"), "SUBACK 0x8f; goes on"),
            ("256 bytes", subscribe(&[], vec![b'f'; 256], 0), "SUBACK 0x8f; goes on"),
            ("33 levels with wildcards", of(&["+"; 33].join("/")), "SUBACK 0x8f; goes on"),
            ("128 levels with wildcards", of(&["+"; 128].join("/")), "SUBACK 0x8f; goes on"),
            ("the broker's topics", of("$space/#"), "SUBACK 0x87; goes on"),
            ("a group without a name", of("$share//a"), "SUBACK 0x8f; goes on"),
            ("a group without a filter", of("$share/group"), "SUBACK 0x8f; goes on"),
            ("a group with an empty filter", of("$share/group/"), "SUBACK 0x8f; goes on"),
            ("a group with a wildcard in its name", of("$share/g+/a"), "SUBACK 0x8f; goes on"),
            ("a group with the broker's topics", of("$share/g/$SYS/#"), "SUBACK 0x87; goes on"),
            ("a group without own messages", subscribe(&[], "$share/g/a", 4), "DISCONNECT 0x82; closed"),
            ("1,001 filters", many(1001), "SUBACK 0x97; goes on"),
            ("5,000 filters", many(5000), "SUBACK 0x97; goes on"),
            ("UNSUBSCRIBE without a filter", body(0xA2, &[&[0, 7, 0]]), "DISCONNECT 0x82; closed"),
            (
                "UNSUBSCRIBE from what was not subscribed to",
                body(0xA2, &[&[0, 7, 0], &text("never")]),
                "UNSUBACK 0x11; goes on",
            ),
            (
                "UNSUBSCRIBE from what is no filter",
                body(0xA2, &[&[0, 7, 0], &text("a/#/b")]),
                "UNSUBACK 0x11; goes on",
            ),
            (
                "UNSUBSCRIBE with the packet id 0",
                body(0xA2, &[&[0, 0, 0], &text("a")]),
                "DISCONNECT 0x82; closed",
            ),
        ],
    )
}

pub fn acknowledgements() -> Vec<Case> {
    const FAMILY: &str = "MQTT 5: acknowledgements";
    let unreleased =
        |count: u16| (1..=count).flat_map(|id| publish_with(2, "topic", id, &[])).collect::<Vec<u8>>();
    cases(
        FAMILY,
        V5,
        [
            ("PUBACK of nothing", vec![0x40, 2, 0, 1], "goes on"),
            ("PUBREC of nothing", vec![0x50, 2, 0, 1], "PUBREL 0x92; goes on"),
            ("PUBREL of nothing", vec![0x62, 2, 0, 1], "PUBCOMP 0x92; goes on"),
            ("PUBCOMP of nothing", vec![0x70, 2, 0, 1], "goes on"),
            ("PUBACK of the packet id 0", vec![0x40, 2, 0, 0], "DISCONNECT 0x82; closed"),
            ("PUBREL of the packet id 0", vec![0x62, 2, 0, 0], "DISCONNECT 0x82; closed"),
            ("PUBACK without a packet id", vec![0x40, 1, 0], "DISCONNECT 0x81; closed"),
            ("PUBACK with an odd reason", vec![0x40, 3, 0, 1, 0x55], "DISCONNECT 0x82; closed"),
            ("PUBREL with a reason of PUBACK", vec![0x62, 3, 0, 1, 0x10], "DISCONNECT 0x82; closed"),
            ("PUBACK with bytes behind its end", vec![0x40, 5, 0, 1, 0, 0, 0], "DISCONNECT 0x81; closed"),
            (
                "PUBACK with a property of PUBLISH",
                vec![0x40, 7, 0, 1, 0, 3, 0x23, 0, 1],
                "DISCONNECT 0x82; closed",
            ),
            (
                "QoS 2 twice with one packet id",
                [unreleased(1), unreleased(1)].concat(),
                "PUBREC, PUBREC; goes on",
            ),
            (
                "1,000 messages of QoS 2 that are not released",
                unreleased(1000),
                "1000 answers, the last PUBREC; goes on",
            ),
            (
                "1,001 messages of QoS 2 that are not released",
                unreleased(1001),
                "1001 answers, the last DISCONNECT 0x93; closed",
            ),
            (
                "5,000 messages of QoS 2 that are not released",
                unreleased(5000),
                "1001 answers, the last DISCONNECT 0x93; closed",
            ),
        ],
    )
}

pub fn old() -> Vec<Case> {
    const FAMILY: &str = "MQTT 3.1.1";
    let publish = |first: u8, topic: &[u8], rest: &[u8]| body(first, &[&text(topic), rest]);
    let subscribe = |rest: &[u8]| body(0x82, &[&[0, 7], rest]);
    cases(
        FAMILY,
        Begin::Mqtt(4),
        [
            ("a second CONNECT", connect(4, "again"), "closed"),
            ("AUTH, which is of MQTT 5", vec![0xF0, 0], "closed"),
            ("CONNACK", vec![0x20, 2, 0, 0], "closed"),
            ("DISCONNECT with a reason of MQTT 5", vec![0xE0, 1, 4], "closed"),
            ("PUBACK with a reason of MQTT 5", vec![0x40, 3, 0, 1, 0], "closed"),
            ("QoS 3", publish(0x36, b"topic", &[0, 1]), "closed"),
            ("the packet id 0 of QoS 1", publish(0x32, b"topic", &[0, 0]), "closed"),
            ("a topic with +", publish(0x30, b"a/+", b""), "closed"),
            ("an empty topic", publish(0x30, b"", b""), "closed"),
            ("a topic with U+0000", publish(0x30, b"a\0b", b""), "closed"),
            ("a topic of 256 bytes", publish(0x30, &vec![b't'; 256], b""), "closed"),
            ("a topic of the broker, of QoS 1", publish(0x32, b"$SYS/x", &[0, 1]), "PUBACK; goes on"),
            ("no filter", subscribe(&[]), "closed"),
            ("options of MQTT 5", subscribe(&[0, 1, b'a', 0x04]), "closed"),
            ("a filter that is none", subscribe(&[0, 2, b'#', b'a', 0]), "SUBACK 0x80; goes on"),
            ("the broker's topics", subscribe(&[0, 3, b'$', b'x', b'/', 0]), "SUBACK 0x80; goes on"),
            ("PUBREL of nothing", vec![0x62, 2, 0, 1], "PUBCOMP; goes on"),
            ("a length of five bytes", vec![0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1], "closed"),
            ("a length of 256 MiB", vec![0x30, 0xFF, 0xFF, 0xFF, 0x7F], "closed"),
        ],
    )
}
