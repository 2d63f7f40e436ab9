//! Packets and their decoding.

use super::error::{DecodeError, Version};
use super::property::{Place, Properties};
use super::read::Reader;
use super::reason;

/// A packet of either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// CONNECT.
    Connect(Connect<'a>),
    /// CONNACK.
    Connack(Connack<'a>),
    /// PUBLISH.
    Publish(Publish<'a>),
    /// PUBACK, PUBREC, PUBREL or PUBCOMP.
    Ack(Ack<'a>),
    /// SUBSCRIBE.
    Subscribe(Request<'a>),
    /// SUBACK.
    Suback(Answer<'a>),
    /// UNSUBSCRIBE.
    Unsubscribe(Request<'a>),
    /// UNSUBACK.
    Unsuback(Answer<'a>),
    /// PINGREQ.
    Pingreq,
    /// PINGRESP.
    Pingresp,
    /// DISCONNECT.
    Disconnect(Ending<'a>),
    /// AUTH.
    Auth(Ending<'a>),
}

/// CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect<'a> {
    /// The version of the connection.
    pub version: Version,
    /// Whether an old session is forgotten. In 3.1.1 the session also ends with the connection.
    pub clean_start: bool,
    /// Seconds; 0: none.
    pub keep_alive: u16,
    /// Properties.
    pub properties: Properties<'a>,
    /// The name of the session; empty: the server chooses.
    pub client_id: &'a str,
    /// What is published if the connection ends without DISCONNECT.
    pub will: Option<Will<'a>>,
    /// The user's name.
    pub user: Option<&'a str>,
    /// The password.
    pub password: Option<&'a [u8]>,
}

/// A will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Will<'a> {
    /// QoS of the message.
    pub qos: u8,
    /// Whether it is retained.
    pub retain: bool,
    /// Properties.
    pub properties: Properties<'a>,
    /// The topic.
    pub topic: &'a str,
    /// The content.
    pub payload: &'a [u8],
}

/// CONNACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connack<'a> {
    /// Whether there was a session.
    pub session_present: bool,
    /// The reason code (5) or return code (3.1.1).
    pub reason: u8,
    /// Properties.
    pub properties: Properties<'a>,
}

/// PUBLISH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Whether it may have been sent before.
    pub dup: bool,
    /// QoS.
    pub qos: u8,
    /// Whether it is retained.
    pub retain: bool,
    /// The topic; empty with an alias.
    pub topic: &'a str,
    /// The packet id; 0 if the QoS is 0.
    pub packet_id: u16,
    /// Properties.
    pub properties: Properties<'a>,
    /// The content.
    pub payload: &'a [u8],
}

/// The steps of acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckKind {
    /// PUBACK: QoS 1 is done.
    Puback,
    /// PUBREC: QoS 2 was received.
    Pubrec,
    /// PUBREL: PUBREC was received.
    Pubrel,
    /// PUBCOMP: QoS 2 is done.
    Pubcomp,
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Which of them.
    pub kind: AckKind,
    /// The packet id.
    pub packet_id: u16,
    /// The reason code; 0 in 3.1.1.
    pub reason: u8,
    /// Properties.
    pub properties: Properties<'a>,
}

/// SUBSCRIBE or UNSUBSCRIBE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The packet id.
    pub packet_id: u16,
    /// Properties.
    pub properties: Properties<'a>,
    /// The filters.
    pub filters: Filters<'a>,
}

/// The filters of a SUBSCRIBE or UNSUBSCRIBE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filters<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) options: bool,
}

/// What a client wants of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedFilter<'a> {
    /// The text of the filter.
    pub filter: &'a str,
    /// Options; as from 0 in an UNSUBSCRIBE.
    pub options: SubscribeOptions,
}

/// Options of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// The highest QoS of its messages.
    pub qos: u8,
    /// Whether the client's own messages are left out.
    pub no_local: bool,
    /// Whether messages have the flag retain as published.
    pub retain_as_published: bool,
    /// When retained messages are sent: 0 always, 1 for a new subscription, 2 never.
    pub retain_handling: u8,
}

impl SubscribeOptions {
    pub(in crate::mqtt) fn from_bits(bits: u8) -> Self {
        Self {
            qos: bits & 3,
            no_local: bits & 4 != 0,
            retain_as_published: bits & 8 != 0,
            retain_handling: bits >> 4 & 3,
        }
    }

    /// The bits in a packet.
    pub(in crate::mqtt) fn bits(self) -> u8 {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        self.qos | flag(self.no_local, 4) | flag(self.retain_as_published, 8) | self.retain_handling << 4
    }
}

impl<'a> Filters<'a> {
    /// Filters of a SUBSCRIBE as they are in the packet: length, text, options.
    pub fn of_subscribe(bytes: &'a [u8]) -> Self {
        Self { bytes, options: true }
    }

    /// Filters of an UNSUBSCRIBE as they are in the packet: length, text.
    pub fn of_unsubscribe(bytes: &'a [u8]) -> Self {
        Self { bytes, options: false }
    }

    /// The filters, in order.
    pub fn iter(&self) -> impl Iterator<Item = WantedFilter<'a>> + use<'a> {
        let (mut rest, options) = (Reader::new(self.bytes), self.options);
        // They were checked: an error is their end.
        std::iter::from_fn(move || {
            let filter = rest.text().ok()?;
            let bits = if options { rest.u8().ok()? } else { 0 };
            Some(WantedFilter { filter, options: SubscribeOptions::from_bits(bits) })
        })
    }

    fn read(from: &mut Reader<'a>, version: Version, options: bool) -> Result<Self, DecodeError> {
        let bytes = from.rest();
        let mut rest = Reader::new(bytes);
        if rest.is_empty() {
            return Err(DecodeError::Protocol("no filter"));
        }
        while !rest.is_empty() {
            rest.text()?;
            if options {
                let bits = rest.u8()?;
                let reserved = if version == Version::V5 { 0xC0 } else { 0xFC };
                if bits & reserved != 0 || bits & 3 == 3 {
                    return Err(DecodeError::Malformed("options of a subscription that do not exist"));
                }
                if bits & 0x30 == 0x30 {
                    return Err(DecodeError::Protocol("a retain handling that does not exist"));
                }
            }
        }
        Ok(Self { bytes, options })
    }
}

/// SUBACK or UNSUBACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The packet id.
    pub packet_id: u16,
    /// Properties.
    pub properties: Properties<'a>,
    /// A reason code for each filter; none in an UNSUBACK of 3.1.1.
    pub reasons: &'a [u8],
}

/// DISCONNECT or AUTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending<'a> {
    /// The reason code; 0 in 3.1.1.
    pub reason: u8,
    /// Properties.
    pub properties: Properties<'a>,
}

/// Decodes what follows the fixed header.
pub(super) fn decode_body<'a>(
    version: Version,
    first: u8,
    body: &mut Reader<'a>,
) -> Result<Packet<'a>, DecodeError> {
    let (kind, flags) = (first >> 4, first & 15);
    let wanted = match kind {
        3 => flags,
        6 | 8 | 10 => 2,
        _ => 0,
    };
    if flags != wanted {
        return Err(DecodeError::Malformed("reserved flags of the fixed header"));
    }
    Ok(match kind {
        1 => Packet::Connect(connect(body)?),
        2 => Packet::Connack(connack(version, body)?),
        3 => Packet::Publish(publish(version, flags, body)?),
        4 => Packet::Ack(ack(version, AckKind::Puback, body)?),
        5 => Packet::Ack(ack(version, AckKind::Pubrec, body)?),
        6 => Packet::Ack(ack(version, AckKind::Pubrel, body)?),
        7 => Packet::Ack(ack(version, AckKind::Pubcomp, body)?),
        8 => Packet::Subscribe(request(version, Place::Subscribe, body)?),
        9 => Packet::Suback(answer(version, true, body)?),
        10 => Packet::Unsubscribe(request(version, Place::Unsubscribe, body)?),
        11 => Packet::Unsuback(answer(version, version == Version::V5, body)?),
        12 => Packet::Pingreq,
        13 => Packet::Pingresp,
        14 => Packet::Disconnect(ending(version, Place::Disconnect, body)?),
        15 if version == Version::V5 => Packet::Auth(ending(version, Place::Auth, body)?),
        _ => return Err(DecodeError::Malformed("a packet that does not exist")),
    })
}

fn properties<'a>(
    version: Version,
    place: Place,
    body: &mut Reader<'a>,
) -> Result<Properties<'a>, DecodeError> {
    match version {
        Version::V311 => Ok(Properties::default()),
        Version::V5 => Properties::read(body, place),
    }
}

fn connect<'a>(body: &mut Reader<'a>) -> Result<Connect<'a>, DecodeError> {
    let (name, level) = (body.text()?, body.u8()?);
    let version = match (name, level) {
        ("MQTT", 4) => Version::V311,
        ("MQTT", 5) => Version::V5,
        ("MQTT" | "MQIsdp", level) => return Err(DecodeError::Version(level)),
        _ => return Err(DecodeError::Malformed("the name of another protocol")),
    };
    let (flags, keep_alive) = (body.u8()?, body.u16()?);
    if flags & 1 != 0 {
        return Err(DecodeError::Malformed("the reserved flag of CONNECT"));
    }
    let (has_user, has_password) = (flags & 0x80 != 0, flags & 0x40 != 0);
    if version == Version::V311 && has_password && !has_user {
        return Err(DecodeError::Malformed("a password without a user"));
    }
    let properties_ = properties(version, Place::Connect, body)?;
    let client_id = body.text()?;
    let (retain, qos) = (flags & 0x20 != 0, flags >> 3 & 3);
    let will = if flags & 4 != 0 {
        if qos == 3 {
            return Err(DecodeError::Malformed("a will of QoS 3"));
        }
        let properties = properties(version, Place::Will, body)?;
        Some(Will { qos, retain, properties, topic: body.text()?, payload: body.binary()? })
    } else if qos != 0 || retain {
        return Err(DecodeError::Malformed("flags of a will without a will"));
    } else {
        None
    };
    let user = if has_user { Some(body.text()?) } else { None };
    let password = if has_password { Some(body.binary()?) } else { None };
    let clean_start = flags & 2 != 0;
    Ok(Connect { version, clean_start, keep_alive, properties: properties_, client_id, will, user, password })
}

fn connack<'a>(version: Version, body: &mut Reader<'a>) -> Result<Connack<'a>, DecodeError> {
    let flags = body.u8()?;
    if flags > 1 {
        return Err(DecodeError::Malformed("reserved flags of CONNACK"));
    }
    let reason = body.u8()?;
    Ok(Connack {
        session_present: flags == 1,
        reason,
        properties: properties(version, Place::Connack, body)?,
    })
}

fn publish<'a>(version: Version, flags: u8, body: &mut Reader<'a>) -> Result<Publish<'a>, DecodeError> {
    let (dup, qos, retain) = (flags & 8 != 0, flags >> 1 & 3, flags & 1 != 0);
    if qos == 3 {
        return Err(DecodeError::Malformed("QoS 3"));
    }
    if dup && qos == 0 {
        return Err(DecodeError::Malformed("a duplicate of QoS 0"));
    }
    let topic = body.text()?;
    let packet_id = if qos > 0 { body.packet_id()? } else { 0 };
    let properties = properties(version, Place::Publish, body)?;
    Ok(Publish { dup, qos, retain, topic, packet_id, properties, payload: body.rest() })
}

fn ack<'a>(version: Version, kind: AckKind, body: &mut Reader<'a>) -> Result<Ack<'a>, DecodeError> {
    let packet_id = body.packet_id()?;
    let Ending { reason, properties } = ending(version, Place::Ack, body)?;
    let known = match kind {
        AckKind::Puback | AckKind::Pubrec => matches!(
            reason,
            0x00 | 0x10
                | 0x80
                | 0x83
                | 0x87
                | reason::TOPIC_INVALID
                | reason::ID_IN_USE
                | reason::QUOTA
                | 0x99
        ),
        AckKind::Pubrel | AckKind::Pubcomp => matches!(reason, reason::SUCCESS | reason::ID_UNKNOWN),
    };
    if !known {
        return Err(DecodeError::Protocol("a reason code that this packet cannot have"));
    }
    Ok(Ack { kind, packet_id, reason, properties })
}

fn request<'a>(version: Version, place: Place, body: &mut Reader<'a>) -> Result<Request<'a>, DecodeError> {
    let packet_id = body.packet_id()?;
    let properties = properties(version, place, body)?;
    Ok(Request { packet_id, properties, filters: Filters::read(body, version, place == Place::Subscribe)? })
}

fn answer<'a>(version: Version, reasons: bool, body: &mut Reader<'a>) -> Result<Answer<'a>, DecodeError> {
    let packet_id = body.packet_id()?;
    let properties = properties(version, Place::Ack, body)?;
    Ok(Answer { packet_id, properties, reasons: if reasons { body.rest() } else { &[] } })
}

/// A reason code and properties, which may both be left out.
fn ending<'a>(version: Version, place: Place, body: &mut Reader<'a>) -> Result<Ending<'a>, DecodeError> {
    if version == Version::V311 || body.is_empty() {
        return Ok(Ending { reason: reason::SUCCESS, properties: Properties::default() });
    }
    let reason = body.u8()?;
    let known = match place {
        Place::Auth => matches!(reason, 0x00 | 0x18 | 0x19),
        Place::Disconnect => {
            matches!(reason, 0x00 | 0x04 | 0x80..=0x83 | 0x87 | 0x89 | 0x8B | 0x8D..=0x8F | 0x90 | 0x93..=0xA2)
        }
        _ => true,
    };
    if !known {
        return Err(DecodeError::Protocol("a reason code that this packet cannot have"));
    }
    let properties = if body.is_empty() { Properties::default() } else { Properties::read(body, place)? };
    Ok(Ending { reason, properties })
}
