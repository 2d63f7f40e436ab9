//! Attributes: what a record says about its payload.
//!
//! ```text
//!  type u16 │ length u16 │ value │ type u16 │ length u16 │ value │ …
//! ```
//!
//! Most records have none. Gateways need them for what other protocols put beside a message: the topic to reply to, the key, properties. The broker
//! does not read them. Types that this program does not know are passed on and passed over.

/// The header of attributes in a record: the version and the size of the attributes.
pub const ATTRIBUTES_HEADER_BYTES: usize = 4;

/// The largest size of all attributes of a record.
pub const MAX_ATTRIBUTES_BYTES: usize = (1 << 24) - 1;

/// The largest value of an attribute. Of a property, two bytes less for the key and the value together.
pub const MAX_ATTRIBUTE_BYTES: usize = u16::MAX as usize;

/// The version of attributes that this program writes and reads.
pub(crate) const VERSION: u8 = 1;

/// The bytes of the type and of the length.
pub(crate) const ATTRIBUTE_HEADER_BYTES: usize = 4;

pub(crate) const TOPIC: u16 = 1;
pub(crate) const REPLY_TO: u16 = 2;
pub(crate) const CORRELATION_DATA: u16 = 3;
pub(crate) const CONTENT_TYPE: u16 = 4;
pub(crate) const PROPERTY: u16 = 5;
pub(crate) const KEY: u16 = 6;
pub(crate) const TIME_MS: u16 = 7;
pub(crate) const EXPIRY_MS: u16 = 8;
pub(crate) const PAYLOAD_IS_UTF8: u16 = 9;
pub(crate) const RETAIN: u16 = 10;
pub(crate) const QOS: u16 = 11;

/// The name of a known type of attribute.
pub(crate) const fn name_of(kind: u16) -> &'static str {
    match kind {
        TOPIC => "topic",
        REPLY_TO => "reply_to",
        CORRELATION_DATA => "correlation_data",
        CONTENT_TYPE => "content_type",
        PROPERTY => "property",
        KEY => "key",
        TIME_MS => "time_ms",
        EXPIRY_MS => "expiry_ms",
        PAYLOAD_IS_UTF8 => "payload_is_utf8",
        RETAIN => "retain",
        QOS => "qos",
        _ => "unknown",
    }
}

/// The attributes of a record are malformed. Its publisher is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttributesError {
    /// The version is another one: a newer program wrote the record.
    #[error("its attributes have version {version}, and this program reads version 1")]
    Version {
        /// The version in the record.
        version: u8,
    },
    /// An attribute goes past the end of the attributes, or the attributes past the end of the record.
    #[error("its attributes are cut off")]
    Cut,
    /// A value has the wrong size, is not UTF-8, or is none of those that are allowed.
    #[error("its attribute {attribute} has an invalid value")]
    Value {
        /// The name of the attribute.
        attribute: &'static str,
    },
    /// An attribute that a record has at most once is there again.
    #[error("it has the attribute {attribute} twice")]
    Repeated {
        /// The name of the attribute.
        attribute: &'static str,
    },
}

/// One attribute of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attribute<'a> {
    /// The name of the message inside a space: the topic to which it was published.
    Topic(&'a str),
    /// The topic for answers.
    ReplyTo(&'a str),
    /// What the answer repeats, so that the asker knows to which question it belongs.
    CorrelationData(&'a [u8]),
    /// The type of the payload, such as `application/json`.
    ContentType(&'a str),
    /// A property of the application. A record may have many, also with the same key, and they keep their order.
    Property(&'a str, &'a str),
    /// The key of the record.
    Key(&'a [u8]),
    /// The time of the record, in ms since 1970.
    TimeMs(u64),
    /// When the record becomes worthless, in ms since 1970. RBMQ passes it on and deletes nothing.
    ExpiryMs(u64),
    /// The publisher says that the payload is UTF-8. Nobody has checked it.
    PayloadIsUtf8,
    /// New subscribers get the last record of a topic that has this attribute, where a gateway keeps it.
    Retain,
    /// The quality of service with which the record was published to a gateway.
    Qos(u8),
    /// An attribute that this program does not know.
    Unknown {
        /// The type.
        kind: u16,
        /// The value.
        value: &'a [u8],
    },
}

impl<'a> Attribute<'a> {
    fn decode(kind: u16, value: &'a [u8]) -> Option<Self> {
        let text = || std::str::from_utf8(value).ok();
        let number = || value.try_into().ok().map(u64::from_le_bytes);
        Some(match kind {
            TOPIC => Self::Topic(text()?),
            REPLY_TO => Self::ReplyTo(text()?),
            CORRELATION_DATA => Self::CorrelationData(value),
            CONTENT_TYPE => Self::ContentType(text()?),
            PROPERTY => {
                let (len, rest) = value.split_first_chunk()?;
                let (key, value) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
                Self::Property(std::str::from_utf8(key).ok()?, std::str::from_utf8(value).ok()?)
            }
            KEY => Self::Key(value),
            TIME_MS => Self::TimeMs(number()?),
            EXPIRY_MS => Self::ExpiryMs(number()?),
            PAYLOAD_IS_UTF8 if value == [1] => Self::PayloadIsUtf8,
            RETAIN if value == [1] => Self::Retain,
            QOS => match value {
                [qos] => Self::Qos(*qos),
                _ => return None,
            },
            PAYLOAD_IS_UTF8 | RETAIN => return None,
            _ => Self::Unknown { kind, value },
        })
    }
}

/// The attributes of a record, encoded and borrowed. Records without attributes have the empty value, which costs nothing.
///
/// A getter searches from the start. A record has at most one attribute of each known type, except properties.
///
/// ```
/// use rbmq_wire::{Attributes, AttributesBuf};
/// let mut buf = AttributesBuf::new();
/// buf.content_type("text/plain")?.property("city", "Graz")?;
/// let attributes = Attributes::new(buf.as_bytes())?;
/// assert_eq!(attributes.content_type(), Some("text/plain"));
/// assert_eq!(attributes.properties().next(), Some(("city", "Graz")));
/// assert_eq!(attributes.reply_to(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// No attributes.
    pub const EMPTY: Attributes<'static> = Attributes(&[]);

    /// Checks encoded attributes, without their header.
    ///
    /// # Errors
    /// The attributes are malformed.
    pub fn new(bytes: &'a [u8]) -> Result<Self, AttributesError> {
        let mut rest = bytes;
        let mut seen = 0_u16;
        while !rest.is_empty() {
            let (kind, value, behind) = split_first(rest).ok_or(AttributesError::Cut)?;
            let attribute = name_of(kind);
            let decoded = Attribute::decode(kind, value).ok_or(AttributesError::Value { attribute })?;
            if !matches!(decoded, Attribute::Unknown { .. } | Attribute::Property(..)) {
                let bit = 1 << kind;
                if seen & bit != 0 {
                    return Err(AttributesError::Repeated { attribute });
                }
                seen |= bit;
            }
            rest = behind;
        }
        Ok(Self(bytes))
    }

    /// Takes encoded attributes that [`Attributes::new`] has accepted before, without checking them again. Other bytes do no harm, but the
    /// getters find only a part of them.
    #[inline]
    pub const fn checked_before(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The encoded attributes, without their header.
    #[inline]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The size of the encoded attributes in bytes.
    #[inline]
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there are no attributes.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// All attributes, in order.
    pub fn iter(self) -> impl Iterator<Item = Attribute<'a>> + Clone {
        self.values().map_while(|(kind, value)| Attribute::decode(kind, value))
    }

    /// The name of the message inside a space.
    pub fn topic(self) -> Option<&'a str> {
        self.text(TOPIC)
    }

    /// The topic for answers.
    pub fn reply_to(self) -> Option<&'a str> {
        self.text(REPLY_TO)
    }

    /// What the answer repeats.
    pub fn correlation_data(self) -> Option<&'a [u8]> {
        self.value(CORRELATION_DATA)
    }

    /// The type of the payload.
    pub fn content_type(self) -> Option<&'a str> {
        self.text(CONTENT_TYPE)
    }

    /// The properties of the application, keys and values, in order.
    pub fn properties(self) -> impl Iterator<Item = (&'a str, &'a str)> + Clone {
        self.values().filter(|(kind, _)| *kind == PROPERTY).filter_map(|(kind, value)| {
            match Attribute::decode(kind, value)? {
                Attribute::Property(key, value) => Some((key, value)),
                _ => None,
            }
        })
    }

    /// The key.
    pub fn key(self) -> Option<&'a [u8]> {
        self.value(KEY)
    }

    /// The time, in ms since 1970.
    pub fn time_ms(self) -> Option<u64> {
        self.number(TIME_MS)
    }

    /// When the record becomes worthless, in ms since 1970.
    pub fn expiry_ms(self) -> Option<u64> {
        self.number(EXPIRY_MS)
    }

    /// Whether the publisher says that the payload is UTF-8.
    pub fn payload_is_utf8(self) -> bool {
        self.value(PAYLOAD_IS_UTF8).is_some()
    }

    /// Whether gateways keep the record for new subscribers.
    pub fn retain(self) -> bool {
        self.value(RETAIN).is_some()
    }

    /// The quality of service with which the record was published to a gateway.
    pub fn qos(self) -> Option<u8> {
        self.value(QOS)?.first().copied()
    }

    fn values(self) -> impl Iterator<Item = (u16, &'a [u8])> + Clone {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (kind, value, behind) = split_first(rest)?;
            rest = behind;
            Some((kind, value))
        })
    }

    fn value(self, wanted: u16) -> Option<&'a [u8]> {
        self.values().find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    }

    fn text(self, wanted: u16) -> Option<&'a str> {
        std::str::from_utf8(self.value(wanted)?).ok()
    }

    fn number(self, wanted: u16) -> Option<u64> {
        Some(u64::from_le_bytes(self.value(wanted)?.try_into().ok()?))
    }
}

impl std::fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The type and the value of the first attribute, and the bytes behind it; none: it is cut off.
fn split_first(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let ([a, b, c, d], rest) = bytes.split_first_chunk::<ATTRIBUTE_HEADER_BYTES>()?;
    let (value, rest) = rest.split_at_checked(u16::from_le_bytes([*c, *d]).into())?;
    Some((u16::from_le_bytes([*a, *b]), value, rest))
}

/// The offset and the size of the first attribute of a type, with its header.
pub(crate) fn place_of(bytes: &[u8], wanted: u16) -> Option<(usize, usize)> {
    let mut rest = bytes;
    while let Some((kind, value, behind)) = split_first(rest) {
        if kind == wanted {
            return Some((bytes.len() - rest.len(), ATTRIBUTE_HEADER_BYTES + value.len()));
        }
        rest = behind;
    }
    None
}
