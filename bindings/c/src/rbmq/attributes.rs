//! Attributes of records: what a record says about its content.

use std::ffi::{c_char, c_void};

use rbmq::{Attribute, AttributeTooLong, Attributes, AttributesBuf};

use crate::raw::{Versioned, answer, array, array_mut, bytes, options, place, put, rb_bool};
use crate::status::rb_status::{RB_ERR_ARGUMENT, RB_ERR_MALFORMED, RB_ERR_TOO_LARGE};
use crate::status::{Failure, Outcome, call, rb_status};

/// A property of a record. Texts are UTF-8, without a zero at their end.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_property {
    /// The key, which may come several times.
    pub key: *const c_char,
    /// The bytes of the key.
    pub key_len: usize,
    /// The value.
    pub value: *const c_char,
    /// The bytes of the value.
    pub value_len: usize,
}

/// What a record says about its content, to be published with it, or as `rbmq_attributes_read` reads it. NULL, zero and false: the record does
/// not say it. Texts are UTF-8, without a zero at their end. `rbmq_attributes attributes = {.size = sizeof attributes};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_attributes {
    /// `sizeof(rbmq_attributes)`.
    pub size: usize,
    /// Attributes of a received message, which are passed on, also those that this library does not know. Fields that are set replace
    /// them, and properties come behind them.
    pub encoded: *const c_void,
    /// The number of bytes.
    pub encoded_len: usize,
    /// The name of the message inside a space.
    pub topic: *const c_char,
    /// The bytes of the name.
    pub topic_len: usize,
    /// The topic for answers.
    pub reply_to: *const c_char,
    /// The bytes of the topic for answers.
    pub reply_to_len: usize,
    /// What an answer repeats.
    pub correlation_data: *const c_void,
    /// The number of bytes.
    pub correlation_data_len: usize,
    /// The type of the content, such as "application/json".
    pub content_type: *const c_char,
    /// The bytes of the type.
    pub content_type_len: usize,
    /// The key of the record.
    pub key: *const c_void,
    /// The number of bytes.
    pub key_len: usize,
    /// The properties, to be published. `rbmq_attributes_read` leaves it NULL: `rbmq_attributes_properties` has those of a message.
    pub properties: *const rbmq_property,
    /// How many there are.
    pub properties_count: usize,
    /// The time of the record, in ms since 1970.
    pub time_ms: u64,
    /// When the record becomes worthless, in ms since 1970.
    pub expiry_ms: u64,
    /// Whether the content is said to be UTF-8. Nobody has checked it.
    pub payload_is_utf8: rb_bool,
    /// Whether gateways keep the record for new subscribers.
    pub retain: rb_bool,
    /// Whether `qos` is set.
    pub has_qos: rb_bool,
    /// The quality of service with which the record came to a gateway.
    pub qos: u8,
}

// SAFETY: integers, pointers and `rb_bool`s, and the first field is the size.
unsafe impl Versioned for rbmq_attributes {}

impl From<AttributeTooLong> for Failure {
    #[cold]
    fn from(error: AttributeTooLong) -> Self {
        Failure::of(RB_ERR_TOO_LARGE, error)
    }
}

/// Bytes of the caller, if there are any.
fn given<'a>(data: *const c_void, len: usize, what: &str) -> Result<Option<&'a [u8]>, Failure> {
    if data.is_null() && len == 0 { Ok(None) } else { bytes(data, len, what).map(Some) }
}

fn given_text<'a>(data: *const c_char, len: usize, what: &str) -> Result<Option<&'a str>, Failure> {
    let wrong = |_| Failure::of(RB_ERR_ARGUMENT, format!("{what} is not UTF-8"));
    given(data.cast(), len, what)?.map(|text| std::str::from_utf8(text).map_err(wrong)).transpose()
}

/// Attributes of the caller. NULL is none.
pub(crate) fn attributes_of(from: *const rbmq_attributes) -> Result<AttributesBuf, Failure> {
    let mut to = AttributesBuf::new();
    if from.is_null() {
        return Ok(to);
    }
    let from = options(from, "the attributes")?;
    to.copy_from(checked(from.encoded, from.encoded_len)?);
    if let Some(topic) = given_text(from.topic, from.topic_len, "the topic")? {
        to.topic(topic)?;
    }
    if let Some(topic) = given_text(from.reply_to, from.reply_to_len, "the topic for answers")? {
        to.reply_to(topic)?;
    }
    if let Some(data) = given(from.correlation_data, from.correlation_data_len, "the correlation data")? {
        to.correlation_data(data)?;
    }
    if let Some(text) = given_text(from.content_type, from.content_type_len, "the type of the content")? {
        to.content_type(text)?;
    }
    if let Some(key) = given(from.key, from.key_len, "the key")? {
        to.key(key)?;
    }
    for property in array(from.properties, from.properties_count, "the array of properties")? {
        let key = given_text(property.key, property.key_len, "the key of a property")?;
        let value = given_text(property.value, property.value_len, "the value of a property")?;
        to.property(key.unwrap_or_default(), value.unwrap_or_default())?;
    }
    set_numbers(&mut to, &from)?;
    Ok(to)
}

fn set_numbers(to: &mut AttributesBuf, from: &rbmq_attributes) -> Outcome {
    if from.time_ms != 0 {
        to.time_ms(from.time_ms)?;
    }
    if from.expiry_ms != 0 {
        to.expiry_ms(from.expiry_ms)?;
    }
    if from.payload_is_utf8.is_set() {
        to.payload_is_utf8(true)?;
    }
    if from.retain.is_set() {
        to.retain(true)?;
    }
    if from.has_qos.is_set() {
        to.qos(from.qos)?;
    }
    Ok(())
}

/// Encoded attributes that the caller has from a message.
fn checked<'a>(data: *const c_void, len: usize) -> Result<Attributes<'a>, Failure> {
    let malformed = |error| Failure::of(RB_ERR_MALFORMED, error);
    Attributes::new(bytes(data, len, "the encoded attributes")?).map_err(malformed)
}

/// Reads the attributes of a message or record: its `attributes` and `attributes_len`. What the message does not say is NULL, zero or false.
///
/// The pointers in `*to` are valid as long as the message. Any thread. Fails with `RB_ERR_MALFORMED` for bytes that no message had.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_attributes_read(
    attributes: *const c_void,
    len: usize,
    to: *mut rbmq_attributes,
) -> rb_status {
    answer(to, "the place for the attributes", || {
        let from = checked(attributes, len)?;
        let text = |text: Option<&str>| {
            text.map_or((std::ptr::null(), 0), |text| (text.as_ptr().cast::<c_char>(), text.len()))
        };
        let bytes = |bytes: Option<&[u8]>| {
            bytes.map_or((std::ptr::null(), 0), |bytes| (bytes.as_ptr().cast::<c_void>(), bytes.len()))
        };
        let (topic, topic_len) = text(from.topic());
        let (reply_to, reply_to_len) = text(from.reply_to());
        let (correlation_data, correlation_data_len) = bytes(from.correlation_data());
        let (content_type, content_type_len) = text(from.content_type());
        let (key, key_len) = bytes(from.key());
        Ok(rbmq_attributes {
            size: size_of::<rbmq_attributes>(),
            encoded: attributes,
            encoded_len: len,
            topic,
            topic_len,
            reply_to,
            reply_to_len,
            correlation_data,
            correlation_data_len,
            content_type,
            content_type_len,
            key,
            key_len,
            properties: std::ptr::null(),
            properties_count: 0,
            time_ms: from.time_ms().unwrap_or(0),
            expiry_ms: from.expiry_ms().unwrap_or(0),
            payload_is_utf8: from.payload_is_utf8().into(),
            retain: from.retain().into(),
            has_qos: from.qos().is_some().into(),
            qos: from.qos().unwrap_or(0),
        })
    })
}

/// Reads the properties of a message or record, in order: the first `max` of them into `properties`; `*count` gets how many there are.
///
/// The pointers are valid as long as the message. Any thread. Fails as `rbmq_attributes_read`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_attributes_properties(
    attributes: *const c_void,
    len: usize,
    properties: *mut rbmq_property,
    max: usize,
    count: *mut usize,
) -> rb_status {
    call(|| {
        place(count, "the place for the number of properties")?;
        let mut places = array_mut(properties, max, "the place for the properties")?.iter_mut();
        let mut found = 0;
        for attribute in checked(attributes, len)?.iter() {
            let Attribute::Property(key, value) = attribute else { continue };
            found += 1;
            if let Some(to) = places.next() {
                let (key_len, value_len) = (key.len(), value.len());
                let (key, value) = (key.as_ptr().cast(), value.as_ptr().cast());
                *to = rbmq_property { key, key_len, value, value_len };
            }
        }
        put(count, found);
        Ok(())
    })
}
