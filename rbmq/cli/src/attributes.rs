//! Attributes of messages: options of `pub`, and an object in the lines of `sub --json`.

use clap::builder::NonEmptyStringValueParser;
use commands::Failure;
use rbmq::wire::{ATTRIBUTES_HEADER_BYTES, RECORD_HEADER_BYTES};
use rbmq::{AttributeTooLong, Attributes, AttributesBuf, TopicName};
use serde::Serialize;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What each message says about its content")]
pub(super) struct AttributeArgs {
    /// The topic for answers
    #[arg(long, value_name = "TOPIC", conflicts_with = "raw")]
    reply_to: Option<TopicName>,
    /// What an answer repeats
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    correlation_data: Option<String>,
    /// The type of the content, such as application/json
    #[arg(long, value_name = "TYPE", conflicts_with = "raw", value_parser = NonEmptyStringValueParser::new())]
    content_type: Option<String>,
    /// A property; may be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "raw", value_parser = parse_property)]
    property: Vec<(String, String)>,
    /// The key of the message
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    message_key: Option<String>,
    /// Gateways keep the message for new subscribers
    #[arg(long, conflicts_with = "raw")]
    retain: bool,
}

fn parse_property(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("'{text}' is not KEY=VALUE"))?;
    Ok((key.into(), value.into()))
}

impl AttributeArgs {
    /// The attributes of each message.
    pub(super) fn read(&self) -> Result<AttributesBuf, Failure> {
        self.build().map_err(|error| Failure::Usage("pub", error.to_string()))
    }

    fn build(&self) -> Result<AttributesBuf, AttributeTooLong> {
        let mut all = AttributesBuf::new();
        if let Some(topic) = &self.reply_to {
            all.reply_to(topic.as_str())?;
        }
        if let Some(text) = &self.correlation_data {
            all.correlation_data(text.as_bytes())?;
        }
        if let Some(text) = &self.content_type {
            all.content_type(text)?;
        }
        for (key, value) in &self.property {
            all.property(key, value)?;
        }
        if let Some(text) = &self.message_key {
            all.key(text.as_bytes())?;
        }
        all.retain(self.retain)?;
        Ok(all)
    }
}

/// The bytes of a record with these attributes, but for its content.
pub(super) fn header_bytes(attributes: &AttributesBuf) -> usize {
    match attributes.as_bytes().len() {
        0 => RECORD_HEADER_BYTES,
        bytes => RECORD_HEADER_BYTES + ATTRIBUTES_HEADER_BYTES + bytes,
    }
}

/// The attributes of a message as a JSON object. Bytes that are not UTF-8 are an array.
pub(super) struct Said<'m>(pub(super) Attributes<'m>);

#[derive(Serialize)]
#[serde(untagged)]
enum Bytes<'m> {
    Text(&'m str),
    Bytes(&'m [u8]),
}

impl<'m> From<&'m [u8]> for Bytes<'m> {
    fn from(bytes: &'m [u8]) -> Self {
        std::str::from_utf8(bytes).map_or(Self::Bytes(bytes), Self::Text)
    }
}

impl Serialize for Said<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let all = self.0;
        let mut map = serializer.serialize_map(None)?;
        let mut put = |name, value: Option<Bytes<'_>>| match value {
            Some(value) => map.serialize_entry(name, &value),
            None => Ok(()),
        };
        put("content_type", all.content_type().map(Bytes::Text))?;
        put("correlation_data", all.correlation_data().map(Bytes::from))?;
        put("key", all.key().map(Bytes::from))?;
        put("reply_to", all.reply_to().map(Bytes::Text))?;
        put("topic", all.topic().map(Bytes::Text))?;
        let numbers =
            [("expiry_ms", all.expiry_ms()), ("qos", all.qos().map(u64::from)), ("time_ms", all.time_ms())];
        for (name, number) in numbers.into_iter().filter_map(|(name, number)| Some((name, number?))) {
            map.serialize_entry(name, &number)?;
        }
        for (name, flag) in [("payload_is_utf8", all.payload_is_utf8()), ("retain", all.retain())] {
            if flag {
                map.serialize_entry(name, &flag)?;
            }
        }
        let properties: Vec<_> = all.properties().collect();
        if !properties.is_empty() {
            map.serialize_entry("properties", &properties)?;
        }
        map.end()
    }
}
