//! The attributes of a record that is to be published.

use super::attributes::{
    ATTRIBUTE_HEADER_BYTES, Attributes, CONTENT_TYPE, CORRELATION_DATA, EXPIRY_MS, KEY, MAX_ATTRIBUTE_BYTES,
    MAX_ATTRIBUTES_BYTES, PAYLOAD_IS_UTF8, PROPERTY, QOS, REPLY_TO, RETAIN, TIME_MS, TOPIC, name_of,
    place_of,
};

/// An attribute is too long, or too many attributes are. The attributes are as they were before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttributeTooLong {
    /// The value is too long.
    #[error(
        "attribute {attribute} has {bytes} bytes; at most {MAX_ATTRIBUTE_BYTES} are possible, for a property with two \
         for the length of the key"
    )]
    Value {
        /// The name of the attribute.
        attribute: &'static str,
        /// The size of the value; of a property, of its key and value and two bytes.
        bytes: usize,
    },
    /// All attributes together are too long.
    #[error(
        "with attribute {attribute}, the attributes have {bytes} bytes; at most {MAX_ATTRIBUTES_BYTES} are possible"
    )]
    Total {
        /// The name of the attribute that was to be set.
        attribute: &'static str,
        /// The size of all attributes with it.
        bytes: usize,
    },
}

/// Attributes for records that are published. A setter replaces the former value, except [`AttributesBuf::property`], which adds one. The
/// value may be used for any number of records, and [`AttributesBuf::clear`] keeps its memory.
///
/// ```
/// use rbmq_wire::AttributesBuf;
/// let mut attributes = AttributesBuf::new();
/// attributes.reply_to("answers/7")?.correlation_data(b"\x01\x02")?.property("unit", "°C")?;
/// assert_eq!(attributes.attributes().reply_to(), Some("answers/7"));
/// # Ok::<(), rbmq_wire::AttributeTooLong>(())
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct AttributesBuf(Vec<u8>);

type Set<'b> = Result<&'b mut AttributesBuf, AttributeTooLong>;

impl AttributesBuf {
    /// No attributes.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The attributes.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes::checked_before(&self.0)
    }

    /// The encoded attributes, without their header.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether there are no attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all attributes.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Replaces all attributes with those of another record, unknown ones included.
    pub fn copy_from(&mut self, attributes: Attributes<'_>) -> &mut Self {
        self.0.clear();
        self.0.extend_from_slice(attributes.as_bytes());
        self
    }

    /// The name of the message inside a space.
    ///
    /// # Errors
    /// The value is longer than [`MAX_ATTRIBUTE_BYTES`], or all attributes are longer than [`MAX_ATTRIBUTES_BYTES`]. So it is with all setters.
    pub fn topic(&mut self, topic: &str) -> Set<'_> {
        self.set(TOPIC, topic.as_bytes())
    }

    /// The topic for answers.
    ///
    /// # Errors
    /// As [`AttributesBuf::topic`].
    pub fn reply_to(&mut self, topic: &str) -> Set<'_> {
        self.set(REPLY_TO, topic.as_bytes())
    }

    /// What the answer repeats.
    ///
    /// # Errors
    /// As [`AttributesBuf::topic`].
    pub fn correlation_data(&mut self, data: &[u8]) -> Set<'_> {
        self.set(CORRELATION_DATA, data)
    }

    /// The type of the payload, such as `application/json`.
    ///
    /// # Errors
    /// As [`AttributesBuf::topic`].
    pub fn content_type(&mut self, content_type: &str) -> Set<'_> {
        self.set(CONTENT_TYPE, content_type.as_bytes())
    }

    /// Adds a property of the application, behind those that are there.
    ///
    /// # Errors
    /// As [`AttributesBuf::topic`].
    pub fn property(&mut self, key: &str, value: &str) -> Set<'_> {
        // The key's length is cut only where the value as a whole is refused.
        let len = (key.len() as u16).to_le_bytes();
        self.replace(PROPERTY, None, &[&len, key.as_bytes(), value.as_bytes()])
    }

    /// The key.
    ///
    /// # Errors
    /// As [`AttributesBuf::topic`].
    pub fn key(&mut self, key: &[u8]) -> Set<'_> {
        self.set(KEY, key)
    }

    /// The time, in ms since 1970.
    ///
    /// # Errors
    /// As [`AttributesBuf::topic`].
    pub fn time_ms(&mut self, ms: u64) -> Set<'_> {
        self.set(TIME_MS, &ms.to_le_bytes())
    }

    /// When the record becomes worthless, in ms since 1970.
    ///
    /// # Errors
    /// As [`AttributesBuf::topic`].
    pub fn expiry_ms(&mut self, ms: u64) -> Set<'_> {
        self.set(EXPIRY_MS, &ms.to_le_bytes())
    }

    /// Whether the payload is UTF-8.
    ///
    /// # Errors
    /// As [`AttributesBuf::topic`].
    pub fn payload_is_utf8(&mut self, yes: bool) -> Set<'_> {
        self.set_flag(PAYLOAD_IS_UTF8, yes)
    }

    /// Whether gateways keep the record for new subscribers.
    ///
    /// # Errors
    /// As [`AttributesBuf::topic`].
    pub fn retain(&mut self, yes: bool) -> Set<'_> {
        self.set_flag(RETAIN, yes)
    }

    /// The quality of service.
    ///
    /// # Errors
    /// As [`AttributesBuf::topic`].
    pub fn qos(&mut self, qos: u8) -> Set<'_> {
        self.set(QOS, &[qos])
    }

    fn set_flag(&mut self, kind: u16, yes: bool) -> Set<'_> {
        if yes {
            return self.set(kind, &[1]);
        }
        if let Some((from, len)) = place_of(&self.0, kind) {
            self.0.drain(from..from + len);
        }
        Ok(self)
    }

    fn set(&mut self, kind: u16, value: &[u8]) -> Set<'_> {
        let old = place_of(&self.0, kind);
        self.replace(kind, old, &[value])
    }

    /// Removes the attribute at a place, and adds one with a value in parts.
    fn replace(&mut self, kind: u16, old: Option<(usize, usize)>, value: &[&[u8]]) -> Set<'_> {
        let attribute = name_of(kind);
        let bytes = value.iter().map(|part| part.len()).sum();
        let Some(len) = u16::try_from(bytes).ok() else {
            return Err(AttributeTooLong::Value { attribute, bytes });
        };
        let total = self.0.len() - old.map_or(0, |(_, len)| len) + ATTRIBUTE_HEADER_BYTES + bytes;
        if total > MAX_ATTRIBUTES_BYTES {
            return Err(AttributeTooLong::Total { attribute, bytes: total });
        }
        if let Some((from, len)) = old {
            self.0.drain(from..from + len);
        }
        self.0.extend_from_slice(&kind.to_le_bytes());
        self.0.extend_from_slice(&len.to_le_bytes());
        value.iter().for_each(|part| self.0.extend_from_slice(part));
        Ok(self)
    }
}

impl From<Attributes<'_>> for AttributesBuf {
    fn from(attributes: Attributes<'_>) -> Self {
        Self(attributes.as_bytes().to_vec())
    }
}

impl<'a> From<&'a AttributesBuf> for Attributes<'a> {
    fn from(buf: &'a AttributesBuf) -> Self {
        buf.attributes()
    }
}

impl std::fmt::Debug for AttributesBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.attributes().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setter_replaces_and_a_property_adds() {
        let mut buf = AttributesBuf::new();
        buf.topic("a").unwrap().property("k", "1").unwrap().key(b"x").unwrap().retain(true).unwrap();
        buf.property("k", "2").unwrap().topic("longer").unwrap().key(b"").unwrap().retain(false).unwrap();
        let attributes = Attributes::new(buf.as_bytes()).unwrap();
        assert_eq!(attributes, buf.attributes());
        assert_eq!((attributes.topic(), attributes.key()), (Some("longer"), Some(&b""[..])));
        assert!(attributes.properties().eq([("k", "1"), ("k", "2")]));
        assert!(!attributes.retain());
    }

    #[test]
    fn what_is_too_long_changes_nothing() {
        let mut buf = AttributesBuf::new();
        let most = vec![7; MAX_ATTRIBUTE_BYTES];
        buf.key(&most).unwrap();
        let before = buf.clone();
        let long = vec![7; MAX_ATTRIBUTE_BYTES + 1];
        let error = AttributeTooLong::Value { attribute: "key", bytes: 65_536 };
        assert_eq!(buf.key(&long).unwrap_err(), error);
        let text = "x".repeat(MAX_ATTRIBUTE_BYTES - 2);
        let error = AttributeTooLong::Value { attribute: "property", bytes: 65_536 };
        assert_eq!(buf.property("k", &text).unwrap_err(), error);
        assert_eq!(buf, before);
        buf.clear();
        buf.property("", &text).unwrap();
        buf.property(&text, "").unwrap();
        let one = ATTRIBUTE_HEADER_BYTES + MAX_ATTRIBUTE_BYTES;
        while buf.as_bytes().len() + one <= MAX_ATTRIBUTES_BYTES {
            buf.property("", &text).unwrap();
        }
        let left = MAX_ATTRIBUTES_BYTES - buf.as_bytes().len() - ATTRIBUTE_HEADER_BYTES;
        buf.key(&most[..left]).unwrap();
        assert_eq!(buf.as_bytes().len(), MAX_ATTRIBUTES_BYTES);
        let error = AttributeTooLong::Total { attribute: "key", bytes: MAX_ATTRIBUTES_BYTES + 1 };
        assert_eq!(buf.key(&most[..=left]).unwrap_err(), error);
        assert!(Attributes::new(buf.as_bytes()).is_ok());
    }
}
