use proptest::prelude::*;

use super::*;

fn decoded(version: Version, bytes: &[u8]) -> Result<Packet<'_>, DecodeError> {
    let frame = split(bytes, usize::MAX)?.expect("a whole packet");
    assert_eq!(frame.len, bytes.len());
    decode(version, frame)
}

fn malformed(version: Version, bytes: &[u8]) {
    assert!(
        matches!(decoded(version, bytes), Err(DecodeError::Malformed(_))),
        "{bytes:x?}: {:?}",
        decoded(version, bytes)
    );
}

fn protocol_error(version: Version, bytes: &[u8]) {
    assert!(
        matches!(decoded(version, bytes), Err(DecodeError::Protocol(_))),
        "{bytes:x?}: {:?}",
        decoded(version, bytes)
    );
}

#[test]
fn a_packet_that_is_not_whole_waits() {
    let bytes = [0x30, 0x80, 0x01];
    for len in 0..bytes.len() {
        assert_eq!(split(&bytes[..len], 1000), Ok(None));
    }
    assert_eq!(split(&bytes, 1000), Ok(None));
}

#[test]
fn a_large_packet_is_refused_by_its_first_bytes() {
    assert_eq!(split(&[0x30, 0xFF, 0x01], 100), Err(DecodeError::TooLarge { bytes: 258, most: 100 }));
    assert_eq!(DecodeError::TooLarge { bytes: 258, most: 100 }.reason(), 0x95);
}

#[test]
fn a_length_has_four_bytes_at_most() {
    assert!(matches!(split(&[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1], usize::MAX), Err(DecodeError::Malformed(_))));
    assert!(split(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F], usize::MAX).unwrap().is_none());
}

#[test]
fn a_padded_length_is_accepted_in_3_1_1_alone() {
    let bytes = [0xC0, 0x80, 0x00];
    assert_eq!(decoded(Version::V311, &bytes), Ok(Packet::Pingreq));
    malformed(Version::V5, &bytes);
}

#[test]
fn reserved_flags_are_checked() {
    for first in [0x11, 0x21, 0x41, 0x51, 0x60, 0x71, 0x80, 0x91, 0xA0, 0xB1, 0xC1, 0xD1, 0xE1, 0x00, 0xF1] {
        malformed(Version::V5, &[first, 2, 0, 1]);
    }
    malformed(Version::V311, &[0xF0, 0]);
    malformed(Version::V5, &[0x36, 5, 0, 1, b'a', 0, 1]);
    malformed(Version::V5, &[0x38, 4, 0, 1, b'a', 0]);
}

#[test]
fn texts_are_utf8_without_nul() {
    malformed(Version::V311, &[0x30, 3, 0, 1, 0]);
    malformed(Version::V311, &[0x30, 4, 0, 2, 0xC3, 0x28]);
    malformed(Version::V311, &[0x30, 5, 0, 3, 0xED, 0xA0, 0x80]);
    malformed(Version::V311, &[0x30, 3, 0, 2, b'a']);
}

#[test]
fn the_packet_id_is_never_0() {
    for first in [0x40, 0x50, 0x62, 0x70] {
        protocol_error(Version::V311, &[first, 2, 0, 0]);
    }
    protocol_error(Version::V311, &[0x82, 6, 0, 0, 0, 1, b'a', 0]);
    protocol_error(Version::V311, &[0xA2, 5, 0, 0, 0, 1, b'a']);
    protocol_error(Version::V311, &[0x32, 5, 0, 1, b'a', 0, 0]);
}

#[test]
fn subscriptions_have_filters_and_known_options() {
    protocol_error(Version::V311, &[0x82, 2, 0, 1]);
    protocol_error(Version::V5, &[0xA2, 3, 0, 1, 0]);
    malformed(Version::V311, &[0x82, 6, 0, 1, 0, 1, b'a', 3]);
    malformed(Version::V311, &[0x82, 6, 0, 1, 0, 1, b'a', 4]);
    malformed(Version::V5, &[0x82, 7, 0, 1, 0, 0, 1, b'a', 0x40]);
    protocol_error(Version::V5, &[0x82, 7, 0, 1, 0, 0, 1, b'a', 0x30]);
    assert!(decoded(Version::V5, &[0x82, 7, 0, 1, 0, 0, 1, b'a', 0x2E]).is_ok());
}

fn connect(level: u8, flags: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x10, 10 + rest.len() as u8, 0, 4, b'M', b'Q', b'T', b'T', level, flags, 0, 0];
    bytes.extend_from_slice(rest);
    bytes
}

#[test]
fn connect_is_checked() {
    assert!(decoded(Version::V311, &connect(4, 2, &[0, 0])).is_ok());
    malformed(Version::V311, &connect(4, 3, &[0, 0]));
    malformed(Version::V311, &connect(4, 0x40, &[0, 0, 0, 1, b'p']));
    assert!(decoded(Version::V311, &connect(5, 0x40, &[0, 0, 0, 0, 1, b'p'])).is_ok());
    malformed(Version::V311, &connect(4, 0x0A, &[0, 0]));
    malformed(Version::V311, &connect(4, 0x22, &[0, 0]));
    malformed(Version::V311, &connect(4, 0x1E, &[0, 0, 0, 1, b'a', 0, 0]));
    malformed(Version::V311, &connect(4, 2, &[0, 0, 9]));
    for level in [0, 3, 6] {
        assert_eq!(decoded(Version::V311, &connect(level, 2, &[0, 0])), Err(DecodeError::Version(level)));
    }
    malformed(Version::V311, &[0x10, 9, 0, 4, b'm', b'q', b't', b't', 4, 2, 0]);
}

#[test]
fn properties_are_where_they_belong_and_once() {
    let publish = |properties: &[u8]| {
        let mut bytes = vec![0x30, 4 + properties.len() as u8, 0, 1, b'a', properties.len() as u8];
        bytes.extend_from_slice(properties);
        bytes
    };
    assert!(decoded(Version::V5, &publish(&[1, 1])).is_ok());
    protocol_error(Version::V5, &publish(&[1, 1, 1, 1]));
    protocol_error(Version::V5, &publish(&[1, 2]));
    protocol_error(Version::V5, &publish(&[0x11, 0, 0, 0, 1]));
    protocol_error(Version::V5, &publish(&[0x0B, 0]));
    malformed(Version::V5, &publish(&[0x7F, 0]));
    malformed(Version::V5, &publish(&[0x02, 0, 0]));
    assert!(decoded(Version::V5, &publish(&[0x26, 0, 1, b'k', 0, 0, 0x26, 0, 1, b'k', 0, 0])).is_ok());
    protocol_error(Version::V5, &connect(5, 2, &[3, 0x21, 0, 0, 0, 0]));
    protocol_error(Version::V5, &connect(5, 2, &[5, 0x27, 0, 0, 0, 0, 0, 0]));
    protocol_error(Version::V5, &connect(5, 2, &[3, 0x16, 0, 0, 0, 0]));
}

#[test]
fn user_properties_are_bounded() {
    let packet = |count: usize| {
        let mut properties = Vec::new();
        (0..count).for_each(|_| Property::User("", "").put(&mut properties));
        let properties = Properties::new(&properties);
        let publish =
            Publish { dup: false, qos: 0, retain: false, topic: "a", packet_id: 0, properties, payload: b"" };
        Packet::Publish(publish).encode(Version::V5)
    };
    assert!(decoded(Version::V5, &packet(MAX_USER_PROPERTIES)).is_ok());
    let error = decoded(Version::V5, &packet(MAX_USER_PROPERTIES + 1)).map(|_| ()).unwrap_err();
    assert_eq!((error, error.reason()), (DecodeError::TooMany("user properties"), 0x97));
}

#[test]
fn acknowledgements_leave_out_what_says_nothing() {
    let ack = |reason, properties| {
        Packet::Ack(Ack {
            kind: AckKind::Pubrel,
            packet_id: 7,
            reason,
            properties: Properties::new(properties),
        })
    };
    assert_eq!(ack(0, &[]).encode(Version::V5), [0x62, 2, 0, 7]);
    assert_eq!(ack(0x92, &[]).encode(Version::V5), [0x62, 3, 0, 7, 0x92]);
    assert_eq!(ack(0x92, &[]).encode(Version::V311), [0x62, 2, 0, 7]);
    assert_eq!(decoded(Version::V5, &[0x62, 4, 0, 7, 0, 0]), Ok(ack(0, &[])));
    protocol_error(Version::V5, &[0x62, 3, 0, 7, 0x80]);
    protocol_error(Version::V5, &[0x40, 3, 0, 7, 0x92]);
    protocol_error(Version::V5, &[0xE0, 1, 0x01]);
}

fn text() -> impl Strategy<Value = String> {
    "[a-zß/+#$]{0,12}"
}

/// Encoded properties that the place may have.
fn properties(place: Place) -> impl Strategy<Value = Vec<u8>> {
    let one = (0..27_usize, any::<u32>(), text(), text());
    proptest::collection::vec(one, 0..6).prop_map(move |chosen| {
        let (mut bytes, mut seen) = (Vec::new(), 0_u64);
        for (kind, number, key, value) in &chosen {
            let property = property(*kind, *number, key, value);
            let repeats = matches!(property, Property::User(..));
            let orphan = matches!(property, Property::AuthData(_));
            let bit = 1_u64 << property.id();
            if property.may_be_in(place) && !orphan && (repeats || seen & bit == 0) {
                seen |= bit;
                property.put(&mut bytes);
            }
        }
        bytes
    })
}

fn property<'a>(kind: usize, number: u32, key: &'a str, value: &'a str) -> Property<'a> {
    let (flag, small) = (number & 1 == 1, number as u16 | 1);
    match kind {
        0 => Property::PayloadIsText(flag),
        1 => Property::MessageExpiry(number),
        2 => Property::ContentType(key),
        3 => Property::ResponseTopic(key),
        4 => Property::CorrelationData(value.as_bytes()),
        5 => Property::SubscriptionId(number >> 4 | 1),
        6 => Property::SessionExpiry(number),
        7 => Property::AssignedClientId(key),
        8 => Property::ServerKeepAlive(small),
        9 => Property::AuthMethod(key),
        10 => Property::AuthData(value.as_bytes()),
        11 => Property::RequestProblem(flag),
        12 => Property::WillDelay(number),
        13 => Property::RequestResponse(flag),
        14 => Property::ResponseInformation(key),
        15 => Property::ServerReference(key),
        16 => Property::ReasonString(key),
        17 => Property::ReceiveMaximum(small),
        18 => Property::TopicAliasMaximum(small),
        19 => Property::TopicAlias(small),
        20 => Property::MaximumQos(flag),
        21 => Property::RetainAvailable(flag),
        22 => Property::MaximumPacketSize(number | 1),
        23 => Property::WildcardAvailable(flag),
        24 => Property::SubscriptionIdAvailable(flag),
        25 => Property::SharedAvailable(flag),
        _ => Property::User(key, value),
    }
}

/// Encoding and decoding gives the same packet, of which no beginning is a packet.
fn round_trip(version: Version, packet: Packet<'_>) {
    let bytes = packet.encode(version);
    assert_eq!(decoded(version, &bytes), Ok(packet));
    assert!((0..bytes.len()).all(|len| split(&bytes[..len], usize::MAX) == Ok(None)));
}

proptest! {
    #[test]
    fn connect_survives(
        v5: bool, flags in 0..64_u8, keep_alive: u16, names in (text(), text(), text()), payload: Vec<u8>,
        bytes in (properties(Place::Connect), properties(Place::Will)),
    ) {
        let version = if v5 { Version::V5 } else { Version::V311 };
        let of = |bytes| if v5 { Properties::new(bytes) } else { Properties::default() };
        let will = Will { qos: flags % 3, retain: flags & 4 != 0, properties: of(&bytes.1), topic: &names.0, payload: &payload };
        let user = (flags & 8 != 0).then_some(names.1.as_str());
        let password = (flags & 16 != 0 && (v5 || user.is_some())).then_some(&payload[..]);
        let will = (flags & 32 != 0).then_some(will);
        let clean_start = flags & 1 != 0;
        let client_id = &names.2;
        let connect = Connect { version, clean_start, keep_alive, properties: of(&bytes.0), client_id, will, user, password };
        round_trip(version, Packet::Connect(connect));
    }

    #[test]
    fn publish_survives(v5: bool, flags in 0..16_u8, id in 1..=u16::MAX, topic in text(), payload: Vec<u8>, bytes in properties(Place::Publish)) {
        let (version, properties) = if v5 { (Version::V5, Properties::new(&bytes)) } else { (Version::V311, Properties::default()) };
        let qos = flags % 3;
        let (packet_id, dup) = if qos > 0 { (id, flags & 4 != 0) } else { (0, false) };
        let publish = Publish { dup, qos, retain: flags & 8 != 0, topic: &topic, packet_id, properties, payload: &payload };
        round_trip(version, Packet::Publish(publish));
        let read: Vec<Property<'_>> = properties.iter().collect();
        let mut again = Vec::new();
        read.iter().for_each(|property| property.put(&mut again));
        prop_assert_eq!(again, properties.0);
    }

    #[test]
    fn everything_else_survives(
        v5: bool, id in 1..=u16::MAX, reasons in proptest::collection::vec(0..=2_u8, 1..5), filters in proptest::collection::vec((text(), 0..3_u8), 1..5),
        ack in properties(Place::Ack), ask in (properties(Place::Subscribe), properties(Place::Unsubscribe)),
        ends in (properties(Place::Connack), properties(Place::Disconnect), properties(Place::Auth)),
    ) {
        let version = if v5 { Version::V5 } else { Version::V311 };
        let of = |bytes| if v5 { Properties::new(bytes) } else { Properties::default() };
        for kind in [AckKind::Puback, AckKind::Pubrec, AckKind::Pubrel, AckKind::Pubcomp] {
            round_trip(version, Packet::Ack(Ack { kind, packet_id: id, reason: 0, properties: of(&ack) }));
        }
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for (filter, options) in &filters {
            for (bytes, options) in [(&mut with, Some(*options)), (&mut without, None)] {
                bytes.extend_from_slice(&(filter.len() as u16).to_be_bytes());
                bytes.extend_from_slice(filter.as_bytes());
                bytes.extend(options);
            }
        }
        round_trip(version, Packet::Subscribe(Request { packet_id: id, properties: of(&ask.0), filters: Filters::of_subscribe(&with) }));
        round_trip(version, Packet::Unsubscribe(Request { packet_id: id, properties: of(&ask.1), filters: Filters::of_unsubscribe(&without) }));
        round_trip(version, Packet::Suback(Answer { packet_id: id, properties: of(&ack), reasons: &reasons }));
        let answers: &[u8] = if v5 { &reasons } else { &[] };
        round_trip(version, Packet::Unsuback(Answer { packet_id: id, properties: of(&ack), reasons: answers }));
        let reason = if v5 { 4 } else { 0 };
        round_trip(version, Packet::Disconnect(Ending { reason, properties: of(&ends.1) }));
        round_trip(version, Packet::Connack(Connack { session_present: v5, reason: 0, properties: of(&ends.0) }));
        if v5 {
            round_trip(version, Packet::Auth(Ending { reason: 0x18, properties: of(&ends.2) }));
        }
        round_trip(version, Packet::Pingreq);
        round_trip(version, Packet::Pingresp);
    }
}
