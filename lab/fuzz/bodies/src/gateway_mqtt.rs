//! Packets of MQTT.

use rbmq_gateway::mqtt::codec::{DecodeError, Frame, Packet, Version, decode, split};

/// The largest packet.
const MOST: usize = 1 << 16;

/// The first byte chooses the version. Accepted packets mean the same when they are encoded and decoded again, and their parts can be visited. No
/// packet is longer than its bytes.
pub fn gateway_mqtt(data: &[u8]) {
    let Some((&version, mut rest)) = data.split_first() else { return };
    let version = if version & 1 == 0 { Version::V311 } else { Version::V5 };
    while let Ok(Some(frame)) = split(rest, MOST) {
        assert!(frame.len <= rest.len() && frame.body.len() < frame.len);
        rest = &rest[frame.len..];
        match decode(version, frame) {
            Ok(packet) => means_the_same(version, packet),
            Err(error) => assert!(error.reason() >= 0x80),
        }
    }
}

fn means_the_same(version: Version, packet: Packet<'_>) {
    let of_connection = match packet {
        Packet::Connect(connect) => connect.version,
        _ => version,
    };
    let bytes = packet.encode(of_connection);
    let again: Result<Option<Frame<'_>>, DecodeError> = split(&bytes, usize::MAX);
    let frame = again.expect("an encoded packet has a length").expect("an encoded packet is whole");
    assert_eq!(frame.len, bytes.len());
    assert_eq!(decode(of_connection, frame), Ok(packet));
    if let Packet::Subscribe(request) | Packet::Unsubscribe(request) = packet {
        assert!(request.filters.iter().count() > 0);
    }
    if let Packet::Publish(publish) = packet {
        let mut again = Vec::new();
        publish.properties.iter().for_each(|property| property.put(&mut again));
        let same = rbmq_gateway::mqtt::codec::Properties::new(&again);
        assert!(same.iter().eq(publish.properties.iter()));
    }
}
