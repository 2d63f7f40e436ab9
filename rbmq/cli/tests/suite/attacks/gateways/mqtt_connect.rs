//! First packets of MQTT.

use super::mqtt::{body, connect, number, text};
use super::{Begin, Case};

fn cases<const N: usize>(family: &'static str, all: [(&str, Vec<u8>, &str); N]) -> Vec<Case> {
    all.map(|(name, bytes, required)| Case::new(family, Begin::Stranger, name, bytes, required)).into()
}

/// CONNECT with these flags, properties, and what follows.
fn opening(version: u8, flags: u8, properties: &[u8], rest: &[&[u8]]) -> Vec<u8> {
    let length = if version == 5 { number(properties.len()) } else { Vec::new() };
    body(0x10, &[&text("MQTT"), &[version, flags, 0, 0], &length, properties, &rest.concat()])
}

pub fn first_packets() -> Vec<Case> {
    const FAMILY: &str = "MQTT: first packets";
    let mut all = Case::cuts(FAMILY, Begin::Stranger, "CONNECT", &connect(5, "cut"), "closed");
    for (kind, name, required) in [
        (0x00, "a packet of kind 0", "closed"),
        (0x20, "CONNACK", "closed"),
        (0x30, "PUBLISH", "closed"),
        (0x40, "PUBACK", "closed"),
        (0x50, "PUBREC", "closed"),
        (0x62, "PUBREL", "closed"),
        (0x70, "PUBCOMP", "closed"),
        (0x82, "SUBSCRIBE", "closed"),
        (0x90, "SUBACK", "closed"),
        (0xA2, "UNSUBSCRIBE", "closed"),
        (0xB0, "UNSUBACK", "closed"),
        (0xC0, "PINGREQ", "closed"),
        (0xD0, "PINGRESP", "closed"),
        (0xE0, "DISCONNECT", "closed"),
        (0xF0, "AUTH", "closed"),
    ] {
        all.push(Case::new(FAMILY, Begin::Stranger, name, vec![kind, 0], required));
    }
    all.extend(cases(
        FAMILY,
        [
            ("CONNECT of 128 KiB", body(0x10, &[&vec![0; 128 << 10]]), "closed"),
            ("CONNECT of 256 MiB", vec![0x10, 0xFF, 0xFF, 0xFF, 0x7F], "closed"),
            ("CONNECT with a length of five bytes", vec![0x10, 0x80, 0x80, 0x80, 0x80, 1], "closed"),
            ("a client hello of TLS", b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03".to_vec(), "closed"),
            ("a request of HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), "closed"),
            ("a command of Redis", b"*1\r\n$4\r\nPING\r\n".to_vec(), "closed"),
            ("64 KiB of zeros", vec![0; 64 << 10], "closed"),
            ("64 KiB of ones", vec![0xFF; 64 << 10], "closed"),
        ],
    ));
    all
}

pub fn connects() -> Vec<Case> {
    let named = |name: &str, level: u8| body(0x10, &[&text(name), &[level, 2, 0, 0, 0, 0, 0]]);
    cases(
        "MQTT: CONNECT",
        [
            ("an empty CONNECT", vec![0x10, 0], "closed"),
            (
                "flags of the fixed header",
                [&[0x11][..], &connect(5, "x")[1..]].concat(),
                "CONNACK 0x81; closed",
            ),
            ("another name of the protocol", named("HTTP", 5), "CONNACK 0x81; closed"),
            ("an empty name of the protocol", named("", 5), "closed"),
            ("MQTT 3.1", named("MQIsdp", 3), "CONNACK 0x01; closed"),
            ("version 0", named("MQTT", 0), "CONNACK 0x01; closed"),
            ("version 3", named("MQTT", 3), "CONNACK 0x01; closed"),
            ("version 6", named("MQTT", 6), "CONNACK 0x84; closed"),
            ("version 255", named("MQTT", 255), "CONNACK 0x84; closed"),
            ("a version of a bridge", named("MQTT", 0x84), "CONNACK 0x84; closed"),
            ("the reserved flag, in 3.1.1", opening(4, 3, &[], &[&text("x")]), "closed"),
            ("the reserved flag", opening(5, 3, &[], &[&text("x")]), "CONNACK 0x81; closed"),
            (
                "a password without a user, in 3.1.1",
                opening(4, 0x42, &[], &[&text("x"), &text("p")]),
                "closed",
            ),
        ],
    )
}

pub fn clients() -> Vec<Case> {
    cases(
        "MQTT: CONNECT",
        [
            ("a user that is missing", opening(5, 0x82, &[], &[&text("x")]), "CONNACK 0x81; closed"),
            (
                "a user and a password of a broker without users",
                opening(5, 0xC2, &[], &[&text("x"), &text("u"), &text("p")]),
                "CONNACK 0x00; goes on",
            ),
            (
                "a user that is no UTF-8",
                opening(5, 0x82, &[], &[&text("x"), &text(b"\xff")]),
                "CONNACK 0x81; closed",
            ),
            ("bytes behind the end", opening(5, 2, &[], &[&text("x"), b"more"]), "CONNACK 0x81; closed"),
            ("no client id", opening(5, 2, &[], &[]), "CONNACK 0x81; closed"),
            (
                "an empty client id of a session, in 3.1.1",
                opening(4, 0, &[], &[&text("")]),
                "CONNACK 0x02; closed",
            ),
            ("a client id with U+0000", opening(5, 2, &[], &[&text("a\0b")]), "CONNACK 0x81; closed"),
            ("a client id that is no UTF-8", opening(5, 2, &[], &[&text(b"\xff")]), "CONNACK 0x81; closed"),
            (
                "a client id with a surrogate",
                opening(5, 2, &[], &[&text(b"\xed\xbf\xbf")]),
                "CONNACK 0x81; closed",
            ),
            (
                "a client id with control characters",
                opening(5, 2, &[], &[&text("\x1b[31m\n")]),
                "CONNACK 0x00; goes on",
            ),
            (
                "a client id of 1,025 bytes",
                opening(5, 2, &[], &[&text(vec![b'c'; 1025])]),
                "CONNACK 0x85; closed",
            ),
            (
                "a client id of 60,000 bytes, in 3.1.1",
                opening(4, 2, &[], &[&text(vec![b'c'; 60_000])]),
                "CONNACK 0x02; closed",
            ),
        ],
    )
}

pub fn wills() -> Vec<Case> {
    let will = |flags: u8, topic: &[u8]| {
        opening(5, flags | 2, &[], &[&text("x"), &[0], &text(topic), &text("gone")])
    };
    let with = |properties: &[u8]| {
        let length = number(properties.len());
        opening(5, 6, &[], &[&text("x"), &length, properties, &text("t"), &text("gone")])
    };
    cases(
        "MQTT: wills",
        [
            ("QoS 3", will(0x1C, b"t"), "CONNACK 0x81; closed"),
            ("QoS 1 without a will", opening(5, 0x0A, &[], &[&text("x")]), "CONNACK 0x81; closed"),
            ("retain without a will", opening(5, 0x22, &[], &[&text("x")]), "CONNACK 0x81; closed"),
            ("retain without a will, in 3.1.1", opening(4, 0x22, &[], &[&text("x")]), "closed"),
            ("a will that is missing", opening(5, 6, &[], &[&text("x")]), "CONNACK 0x81; closed"),
            ("a topic with a wildcard", will(4, b"t/#"), "CONNACK 0x90; closed"),
            ("a topic with U+0000", will(4, b"t\0"), "CONNACK 0x81; closed"),
            ("an empty topic", will(4, b""), "CONNACK 0x90; closed"),
            ("a topic of the broker", will(4, b"$SYS/x"), "CONNACK 0x87; closed"),
            ("a topic of 256 bytes", will(4, &vec![b't'; 256]), "CONNACK 0x90; closed"),
            (
                "a payload that is longer than the packet",
                opening(5, 6, &[], &[&text("x"), &[0], &text("t"), &[0xFF, 0xFF]]),
                "CONNACK 0x81; closed",
            ),
            ("a delay twice", with(&[0x18, 0, 0, 0, 1, 0x18, 0, 0, 0, 1]), "CONNACK 0x82; closed"),
            ("an alias of topics", with(&[0x23, 0, 1]), "CONNACK 0x82; closed"),
            ("a response topic with a wildcard", with(&[8, 0, 1, b'+']), "CONNACK 0x82; closed"),
            ("a delay without an end", with(&[0x18, 0xFF, 0xFF, 0xFF, 0xFF]), "CONNACK 0x00; goes on"),
        ],
    )
}

pub fn properties() -> Vec<Case> {
    let with = |properties: &[u8]| opening(5, 2, properties, &[&text("x")]);
    let twice = |property: &[u8]| with(&property.repeat(2));
    let users = |count| with(&[&[0x26][..], &text("a"), &text("b")].concat().repeat(count));
    cases(
        "MQTT: properties of CONNECT",
        [
            ("a session expiry twice", twice(&[0x11, 0, 0, 0, 1]), "CONNACK 0x82; closed"),
            ("a receive maximum twice", twice(&[0x21, 0, 1]), "CONNACK 0x82; closed"),
            ("a receive maximum of 0", with(&[0x21, 0, 0]), "CONNACK 0x82; closed"),
            ("a maximum packet size twice", twice(&[0x27, 0, 0, 1, 0]), "CONNACK 0x82; closed"),
            ("a maximum packet size of 0", with(&[0x27, 0, 0, 0, 0]), "CONNACK 0x82; closed"),
            ("a maximum packet size of 1", with(&[0x27, 0, 0, 0, 1]), "CONNACK 0x00; goes on"),
            ("an alias maximum twice", twice(&[0x22, 0, 1]), "CONNACK 0x82; closed"),
            ("request response twice", twice(&[0x19, 1]), "CONNACK 0x82; closed"),
            ("request response of 2", with(&[0x19, 2]), "CONNACK 0x82; closed"),
            ("request problem of 2", with(&[0x17, 2]), "CONNACK 0x82; closed"),
            (
                "a method of authentication",
                with(&[&[0x15][..], &text("SCRAM-SHA-256")].concat()),
                "CONNACK 0x8c; closed",
            ),
            ("a method of authentication twice", twice(&[0x15, 0, 1, b'x']), "CONNACK 0x82; closed"),
            ("data of an authentication without a method", with(&[0x16, 0, 1, b'x']), "CONNACK 0x82; closed"),
            ("a property of CONNACK", with(&[0x24, 1]), "CONNACK 0x82; closed"),
            ("a property of PUBLISH", with(&[0x23, 0, 1]), "CONNACK 0x82; closed"),
            ("a property that does not exist", with(&[0x7E, 0]), "CONNACK 0x81; closed"),
            ("a property with a number of two bytes", with(&[0xA6, 0x80, 0, 0, 0]), "CONNACK 0x81; closed"),
            ("half a property", with(&[0x11, 0]), "CONNACK 0x81; closed"),
            (
                "properties that are longer than the packet",
                body(0x10, &[&text("MQTT"), &[5, 2, 0, 0, 100]]),
                "CONNACK 0x81; closed",
            ),
            (
                "properties whose length has five bytes",
                body(0x10, &[&text("MQTT"), &[5, 2, 0, 0, 0x80, 0x80, 0x80, 0x80, 1]]),
                "CONNACK 0x81; closed",
            ),
            ("1,001 user properties", users(1001), "CONNACK 0x97; closed"),
            ("10,000 user properties", users(10_000), "closed"),
            ("a user property that is no UTF-8", with(&[0x26, 0, 1, 0xFF, 0, 0]), "CONNACK 0x81; closed"),
        ],
    )
}
