//! Entries in deliveries, and records as fields.
//!
//! ```text
//!   XADD k * payload X      the record X, without attributes: what PUBLISH and native clients write too
//!   XADD k * a 1 b 2        the payload *4 ⏎ $1 ⏎ a ⏎ $1 ⏎ 1 ⏎ $1 ⏎ b ⏎ $1 ⏎ 2 ⏎, with a content type that says so
//! ```
//!
//! The payload of an entry with fields is the array as clients get it, so it is sent as it lies in the log.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use rbmq_broker::KeptBatch;
use rbmq_wire::{Attribute, Attributes, RUN_HEADER_BYTES, Record, Records, Runs};
use rocketbufs::Position;

use super::super::reply::{DIGITS, bulk, bulk_header, decimal};
use super::ids::Id;

/// The content type of a record with fields.
pub(in crate::resp) const FIELDS_TYPE: &str = "application/x-resp-fields";

/// The same as attributes.
pub(in crate::resp) const FIELDS: &[u8] = b"\x04\x00\x19\x00application/x-resp-fields";

/// The field of a record that has none.
pub(in crate::resp) const PAYLOAD: &[u8] = b"payload";

/// Calls `with` with each record of a delivery and its position, in order.
pub(super) fn each<'a>(
    batch: &'a KeptBatch,
    mut with: impl FnMut(Position, Record<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut runs = Runs::new(batch.bytes());
    loop {
        let base = batch.position() + (runs.offset() + RUN_HEADER_BYTES) as u64;
        let Some(run) = runs.next() else { return ControlFlow::Continue(()) };
        let mut records = Records::new(run.bytes);
        loop {
            let position = base + records.offset() as u64;
            match records.next_record() {
                Some(record) => with(position, record)?,
                // Malformed ones, of native publishers, are no entries.
                None if records.skip_malformed().is_none() => break,
                None => {}
            }
        }
    }
}

/// The last records of a delivery before a position, at most so many, in order.
pub(super) fn last(batch: &KeptBatch, before: Position, most: usize) -> VecDeque<(Position, Record<'_>)> {
    let mut found = VecDeque::new();
    let _ = each(batch, |position, record| {
        if position >= before {
            return ControlFlow::Break(());
        }
        if found.len() == most {
            found.pop_front();
        }
        found.push_back((position, record));
        ControlFlow::Continue(())
    });
    found
}

/// Appends an entry, as XRANGE and others have it.
pub(super) fn write(out: &mut Vec<u8>, id: Id, record: &Record<'_>) {
    out.extend_from_slice(b"*2\r\n");
    write_id(out, id);
    let Record { attributes, payload } = record;
    if attributes.is_empty() {
        out.extend_from_slice(b"*2\r\n");
        bulk(out, PAYLOAD);
        return bulk(out, payload);
    }
    // Most have nothing but the content type.
    let has_fields = attributes.as_bytes() == FIELDS || attributes.content_type() == Some(FIELDS_TYPE);
    if has_fields && is_fields(payload) {
        return out.extend_from_slice(payload);
    }
    write_attributes(out, *attributes, payload);
}

/// Appends an id, as a string.
fn write_id(out: &mut Vec<u8>, id: Id) {
    let (mut time, mut position) = ([0; DIGITS], [0; DIGITS]);
    let (time, position) = (decimal(&mut time, id.time), decimal(&mut position, id.position));
    bulk_header(out, time.len() + 1 + position.len());
    for part in [time, b"-", position, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// The fields of a record that a native client or one of another protocol has written.
fn write_attributes(out: &mut Vec<u8>, attributes: Attributes<'_>, payload: &[u8]) {
    let mut fields: Vec<u8> = Vec::new();
    let mut count = 0;
    let mut field = |name: &str, value: &[u8]| {
        count += 1;
        bulk(&mut fields, name.as_bytes());
        bulk(&mut fields, value);
    };
    for attribute in attributes.iter() {
        match attribute {
            Attribute::ReplyTo(topic) => field("reply_to", topic.as_bytes()),
            Attribute::CorrelationData(data) => field("correlation_data", data),
            Attribute::ContentType(of) => field("content_type", of.as_bytes()),
            Attribute::Property(key, value) => field(key, value.as_bytes()),
            Attribute::Key(key) => field("key", key),
            Attribute::TimeMs(ms) => field("time_ms", ms.to_string().as_bytes()),
            Attribute::ExpiryMs(ms) => field("expiry_ms", ms.to_string().as_bytes()),
            _ => {}
        }
    }
    out.extend_from_slice(format!("*{}\r\n", 2 * (count + 1)).as_bytes());
    bulk(out, PAYLOAD);
    bulk(out, payload);
    out.extend_from_slice(&fields);
}

/// Whether bytes are an array of an even number of strings and nothing else. Whoever publishes may have written anything, and it goes to clients as
/// it is.
pub fn is_fields(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let Some(count) = number(&mut rest, b'*').filter(|count| count % 2 == 0) else { return false };
    for _ in 0..count {
        let string = number(&mut rest, b'$').and_then(|len| rest.split_at_checked(len));
        let Some((_, behind)) = string else { return false };
        let Some(behind) = behind.strip_prefix(b"\r\n") else { return false };
        rest = behind;
    }
    rest.is_empty()
}

/// Takes a line with a sign and a number, as replies have it.
fn number(rest: &mut &[u8], sign: u8) -> Option<usize> {
    let line = rest.strip_prefix(&[sign])?;
    let digits = line.iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
    let behind = line[digits..].strip_prefix(b"\r\n")?;
    let is_canonical = digits == 1 || line.first() != Some(&b'0');
    let value = line[..digits].iter().fold(0, |value, digit| value * 10 + usize::from(digit - b'0'));
    *rest = behind;
    (is_canonical && digits > 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rbmq_wire::AttributesBuf;

    use super::*;

    #[test]
    fn the_content_type_is_as_it_is_encoded() {
        let mut encoded = AttributesBuf::new();
        encoded.content_type(FIELDS_TYPE).expect("a short text");
        assert_eq!(encoded.as_bytes(), FIELDS);
    }

    #[test]
    fn ids_are_written_as_they_are_shown() {
        for (time, position) in [(0, 0), (1_764_417_600_123, 8), (u64::MAX, u64::MAX)] {
            let (mut written, mut expected) = (Vec::new(), Vec::new());
            let id = Id { time, position };
            write_id(&mut written, id);
            bulk(&mut expected, id.to_string().as_bytes());
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn only_whole_arrays_of_strings_are_fields() {
        for good in [&b"*0\r\n"[..], b"*2\r\n$1\r\na\r\n$0\r\n\r\n", b"*2\r\n$2\r\n\r\n\r\n$1\r\nb\r\n"] {
            assert!(is_fields(good), "{}", good.escape_ascii());
        }
        for bad in [
            &b""[..],
            b"*1\r\n$1\r\na\r\n",
            b"*2\r\n$1\r\na\r\n$1\r\nb\r\n+",
            b"*2\r\n$1\r\na\r\n",
            b"*2\r\n$1\r\na\r\n:1\r\n",
            b"*2\r\n$9999999999\r\na\r\n$1\r\nb\r\n",
            b"*\r\n",
            b"*02\r\n$1\r\na\r\n$1\r\nb\r\n",
            b"*-1\r\n",
            b"*2\r\n$1\r\nab\r\n$1\r\nb\r\n",
        ] {
            assert!(!is_fields(bad), "{}", bad.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn what_a_client_would_be_sent_is_its_array(words in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..5)) {
            let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
            words.iter().for_each(|word| bulk(&mut bytes, word));
            prop_assert_eq!(is_fields(&bytes), words.len() % 2 == 0);
            bytes.pop();
            prop_assert!(!is_fields(&bytes));
        }

        #[test]
        fn anything_can_be_looked_at(bytes in r"[*$0-9a\r\n]{0,30}") {
            let _ = is_fields(bytes.as_bytes());
        }
    }
}
