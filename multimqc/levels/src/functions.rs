//! Input and output functions (section III-D of the paper): code of the application between the network and the log.
//!
//! ```text
//!   push ─▶ InputFunction: keep, replace or drop ─▶ log ─▶ OutputFunction: filter or transform ─▶ reply
//! ```
//!
//! An input function sees whole messages. An output function sees a range of the log, and works on records of one size, since the log
//! does not keep the ends of messages. [`DropRange`] and [`ExtractField`] can be used at both ends. [`Record`] makes the log keep the
//! ends of messages.

use std::ops::RangeInclusive;

/// The part of a message that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The message as it came.
    Keep,
    /// The bytes that the function appended to its output. None of them drops the message.
    Replace,
    /// Nothing.
    Drop,
}

/// Decides which bytes of each message are stored. Called by the threads that receive, so it must be fast and must not wait.
pub trait InputFunction: Send + Sync {
    /// Decides about a message. `out` may hold other messages: the function only appends to it, and only for [`Decision::Replace`].
    fn store(&self, message: &[u8], out: &mut Vec<u8>) -> Decision;
}

/// Decides which bytes of a range of the log are sent. Called by the threads that reply.
pub trait OutputFunction: Send + Sync {
    /// Appends the bytes to send for `bytes` to `out`, at most as many as `bytes` has: a longer result is cut.
    fn send(&self, bytes: &[u8], out: &mut Vec<u8>);
}

/// Stores each message behind its length, a little-endian `u32`, so that the log keeps the ends of messages. For input only. The
/// kernel level can do the same by itself.
///
/// ```
/// use multimqc::functions::{Decision, InputFunction, Record};
///
/// let mut out = Vec::new();
/// assert_eq!(Record.store(b"21.5", &mut out), Decision::Replace);
/// assert_eq!(out, b"\x04\0\0\x0021.5");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record;

/// Bytes of the length before a record.
pub const RECORD_HEADER_BYTES: usize = 4;

impl InputFunction for Record {
    fn store(&self, message: &[u8], out: &mut Vec<u8>) -> Decision {
        let length = message.len() as u32;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(message);
        Decision::Replace
    }
}

/// The type of a number in a message. All are little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberType {
    /// An unsigned byte.
    U8,
    /// Two bytes, unsigned.
    U16,
    /// Four bytes, unsigned.
    U32,
    /// Four bytes, signed.
    I32,
    /// Eight bytes, signed.
    I64,
    /// Four bytes, floating point.
    F32,
    /// Eight bytes, floating point.
    F64,
}

impl NumberType {
    /// The type with this name: `u8`, `u16`, `u32`, `i32`, `i64`, `f32` or `f64`.
    pub fn from_name(name: &str) -> Option<NumberType> {
        Some(match name {
            "u8" => NumberType::U8,
            "u16" => NumberType::U16,
            "u32" => NumberType::U32,
            "i32" => NumberType::I32,
            "i64" => NumberType::I64,
            "f32" => NumberType::F32,
            "f64" => NumberType::F64,
            _ => return None,
        })
    }

    /// The number at `at`, as a floating-point number. None if the bytes end before.
    fn read(self, bytes: &[u8], at: usize) -> Option<f64> {
        let rest = bytes.get(at..)?;
        Some(match self {
            NumberType::U8 => (*rest.first()?).into(),
            NumberType::U16 => u16::from_le_bytes(*rest.first_chunk()?).into(),
            NumberType::U32 => u32::from_le_bytes(*rest.first_chunk()?).into(),
            NumberType::I32 => i32::from_le_bytes(*rest.first_chunk()?).into(),
            NumberType::I64 => i64::from_le_bytes(*rest.first_chunk()?) as f64,
            NumberType::F32 => f32::from_le_bytes(*rest.first_chunk()?).into(),
            NumberType::F64 => f64::from_le_bytes(*rest.first_chunk()?),
        })
    }
}

/// Drops messages, or records, whose number lies in a range, such as readings without news. A message that is too short for the number
/// is kept, since its number is unknown.
#[derive(Debug, Clone, PartialEq)]
pub struct DropRange {
    /// Where the number begins in the message or the record.
    pub at: usize,
    /// The type of the number.
    pub number: NumberType,
    /// The values to drop.
    pub range: RangeInclusive<f64>,
    /// Bytes of a record, for the output function: at least 1.
    pub record_bytes: usize,
}

impl DropRange {
    fn drops(&self, record: &[u8]) -> bool {
        self.number.read(record, self.at).is_some_and(|value| self.range.contains(&value))
    }
}

impl InputFunction for DropRange {
    fn store(&self, message: &[u8], _out: &mut Vec<u8>) -> Decision {
        if self.drops(message) { Decision::Drop } else { Decision::Keep }
    }
}

impl OutputFunction for DropRange {
    fn send(&self, bytes: &[u8], out: &mut Vec<u8>) {
        let records = bytes.chunks(self.record_bytes.max(1));
        records.filter(|record| !self.drops(record)).for_each(|record| out.extend_from_slice(record));
    }
}

/// Keeps only one field of each message or record. A message that is too short to have the field is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractField {
    /// Where the field begins in the message or the record.
    pub at: usize,
    /// Bytes of the field.
    pub bytes: usize,
    /// Bytes of a record, for the output function: at least 1.
    pub record_bytes: usize,
}

impl ExtractField {
    fn field<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        record.get(self.at..)?.get(..self.bytes)
    }
}

impl InputFunction for ExtractField {
    fn store(&self, message: &[u8], out: &mut Vec<u8>) -> Decision {
        match self.field(message) {
            Some(field) => {
                out.extend_from_slice(field);
                Decision::Replace
            }
            None => Decision::Drop,
        }
    }
}

impl OutputFunction for ExtractField {
    fn send(&self, bytes: &[u8], out: &mut Vec<u8>) {
        let fields = bytes.chunks(self.record_bytes.max(1)).filter_map(|record| self.field(record));
        fields.for_each(|field| out.extend_from_slice(field));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPERATURE: DropRange =
        DropRange { at: 2, number: NumberType::I32, range: -5.0..=5.0, record_bytes: 6 };

    fn reading(sensor: u16, value: i32) -> Vec<u8> {
        [&sensor.to_le_bytes()[..], &value.to_le_bytes()].concat()
    }

    #[test]
    fn values_in_the_range_are_dropped() {
        let mut out = Vec::new();
        for (value, decision) in [(-5, Decision::Drop), (5, Decision::Drop), (6, Decision::Keep)] {
            assert_eq!(TEMPERATURE.store(&reading(1, value), &mut out), decision);
        }
        assert_eq!(TEMPERATURE.store(b"short", &mut out), Decision::Keep);
        assert!(out.is_empty());
        let records = [reading(1, 0), reading(2, 100), reading(3, -1), reading(4, -100)].concat();
        TEMPERATURE.send(&records, &mut out);
        assert_eq!(out, [reading(2, 100), reading(4, -100)].concat());
    }

    #[test]
    fn a_field_is_extracted() {
        let value = ExtractField { at: 2, bytes: 4, record_bytes: 6 };
        let mut out = b"before".to_vec();
        assert_eq!(value.store(&reading(1, 258), &mut out), Decision::Replace);
        assert_eq!(value.store(b"short", &mut out), Decision::Drop);
        assert_eq!(out, b"before\x02\x01\0\0");
        out.clear();
        value.send(&[reading(1, 1), reading(2, 2)].concat(), &mut out);
        assert_eq!(out, [1, 0, 0, 0, 2, 0, 0, 0]);
        let far = ExtractField { at: usize::MAX, bytes: usize::MAX, record_bytes: 0 };
        assert_eq!(far.store(b"message", &mut out), Decision::Drop);
    }

    #[test]
    fn numbers_of_all_types() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 0x80];
        assert_eq!(NumberType::U8.read(&bytes, 1), Some(2.0));
        assert_eq!(NumberType::U16.read(&bytes, 0), Some(513.0));
        assert_eq!(NumberType::U32.read(&bytes, 0), Some(67_305_985.0));
        assert_eq!(NumberType::I32.read(&bytes, 4), Some(-2_147_023_355.0));
        assert!(NumberType::I64.read(&bytes, 0).is_some_and(|value| value < 0.0));
        assert_eq!(NumberType::F32.read(&1.5_f32.to_le_bytes(), 0), Some(1.5));
        assert_eq!(NumberType::F64.read(&1.5_f64.to_le_bytes(), 0), Some(1.5));
        assert_eq!(NumberType::F64.read(&bytes, 1), None);
    }
}
