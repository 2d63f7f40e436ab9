//! Messages that are kept, and what properties of MQTT are as attributes of a record.

use std::sync::atomic::AtomicU64;

use rbmq_wire::{Attribute, AttributeTooLong, Attributes, AttributesBuf, TopicName};

use crate::protocol::Ticket;

use super::codec::{Properties, Property};

/// The type of the attribute by which a gateway knows its own messages again. Others pass it over.
const ORIGIN: u16 = 0x8001;
const ORIGIN_BYTES: usize = 32;

/// Where a message came from. Only messages that need it have it: retained ones, those of sessions that do not want their own, and those
/// that are acknowledged when they come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    /// What only the gateway can make of the rest and the topic: publishers of RBMQ can read an origin, and write any.
    pub(super) mark: u64,
    /// The session.
    pub(super) session: u64,
    /// The number of a retained message; 0: it is not retained.
    pub(super) retained: u64,
    /// The number of a message that is acknowledged when it comes back; 0: it is not.
    pub(super) number: u64,
}

impl Origin {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&ORIGIN.to_le_bytes());
        to.extend_from_slice(&(ORIGIN_BYTES as u16).to_le_bytes());
        for number in [self.mark, self.session, self.retained, self.number] {
            to.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// The origin in the attributes of a record.
    pub(super) fn find(attributes: Attributes<'_>) -> Option<Self> {
        attributes.iter().find_map(|attribute| match attribute {
            Attribute::Unknown { kind: ORIGIN, value } if value.len() == ORIGIN_BYTES => {
                let number =
                    |at: usize| value[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or_default();
                Some(Self { mark: number(0), session: number(8), retained: number(16), number: number(24) })
            }
            _ => None,
        })
    }
}

/// What a record says beside properties.
#[derive(Debug, Clone, Copy)]
pub(super) struct Publication {
    pub(super) qos: u8,
    pub(super) retain: bool,
    pub(super) origin: Option<Origin>,
    /// With which it is appended to the log of a topic on disk; none: it is only published.
    pub(super) ticket: Option<Ticket>,
    /// The present time, in ms since 1970.
    pub(super) unix_ms: u64,
}

/// Encodes the attributes of a record. Most messages have none.
///
/// # Errors
/// A user property is too long.
pub(super) fn attributes_of(
    properties: Properties<'_>,
    publication: Publication,
    to: &mut Vec<u8>,
) -> Result<(), AttributeTooLong> {
    to.clear();
    let mut buf = AttributesBuf::new();
    if publication.qos > 0 {
        buf.qos(publication.qos)?;
    }
    if publication.retain {
        buf.retain(true)?;
    }
    for property in properties.iter() {
        match property {
            Property::PayloadIsText(yes) => _ = buf.payload_is_utf8(yes)?,
            Property::MessageExpiry(seconds) => {
                _ = buf.expiry_ms(publication.unix_ms.saturating_add(u64::from(seconds) * 1000))?;
            }
            Property::ContentType(text) => _ = buf.content_type(text)?,
            Property::ResponseTopic(text) => _ = buf.reply_to(text)?,
            Property::CorrelationData(bytes) => _ = buf.correlation_data(bytes)?,
            Property::User(key, value) => _ = buf.property(key, value)?,
            _ => {}
        }
    }
    to.extend_from_slice(buf.as_bytes());
    if let Some(origin) = publication.origin {
        origin.put(to);
    }
    Ok(())
}

/// Appends the properties of a record for a subscriber. What MQTT cannot say is left out: texts with U+0000, topics with wildcards.
pub(super) fn put_properties(attributes: &[u8], unix_ms: u64, to: &mut Vec<u8>) {
    let clean = |text: &str| !text.contains('\0');
    for attribute in Attributes::checked_before(attributes).iter() {
        match attribute {
            Attribute::PayloadIsUtf8 => Property::PayloadIsText(true).put(to),
            Attribute::ExpiryMs(at) => {
                // Rounded up: 0 would say that it is worthless.
                let seconds = at.saturating_sub(unix_ms).div_ceil(1000);
                Property::MessageExpiry(seconds.try_into().unwrap_or(u32::MAX)).put(to);
            }
            Attribute::ContentType(text) if clean(text) => Property::ContentType(text).put(to),
            Attribute::ReplyTo(text) if clean(text) && !text.contains(['+', '#']) => {
                Property::ResponseTopic(text).put(to);
            }
            Attribute::CorrelationData(bytes) => Property::CorrelationData(bytes).put(to),
            Attribute::Property(key, value) if clean(key) && clean(value) => {
                Property::User(key, value).put(to)
            }
            _ => {}
        }
    }
}

/// A message that is kept, once for all sessions that wait for it.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) topic: TopicName,
    pub(super) attributes: Box<[u8]>,
    pub(super) payload: Box<[u8]>,
    /// Its number in the journal; 0: it has none.
    pub(super) number: AtomicU64,
}

impl Stored {
    pub(super) fn new(topic: TopicName, attributes: &[u8], payload: &[u8]) -> Self {
        Self { topic, attributes: attributes.into(), payload: payload.into(), number: AtomicU64::new(0) }
    }

    /// Whether it is worthless, at a time in ms since 1970.
    pub(super) fn is_expired(&self, unix_ms: u64) -> bool {
        is_expired(&self.attributes, unix_ms)
    }

    /// When it becomes worthless, in ms since 1970; none: it does not become worthless.
    pub(super) fn expiry(&self) -> Option<u64> {
        Attributes::checked_before(&self.attributes).expiry_ms()
    }

    /// What it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.topic.as_str().len() + self.attributes.len() + self.payload.len()
    }
}

/// Whether a message is worthless.
pub(super) fn is_expired(attributes: &[u8], unix_ms: u64) -> bool {
    Attributes::checked_before(attributes).expiry_ms().is_some_and(|at| at <= unix_ms)
}
