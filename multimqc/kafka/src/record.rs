//! The key of a record: its kind, and its position in the log.
//!
//! | Offset | Bytes | Meaning |
//! |---|---|---|
//! | 0 | 4 | `MQk1` |
//! | 4 | 1 | 0: the value is the log's bytes; 1: the value is the position where a hole ends, 8 bytes; 2: the level was closed, and the value is empty; 3: as 0, and the bytes go on with the batch before |
//! | 5 | 3 | 0 |
//! | 8 | 4 | the epoch of the log |
//! | 12 | 4 | 0 |
//! | 16 | 8 | the position of the first byte |
//!
//! All numbers are little endian.

/// Bytes of a key.
pub(crate) const KEY: usize = 24;

const MAGIC: [u8; 4] = *b"MQk1";

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Kafka's offset.
    pub(crate) offset: i64,
    pub(crate) epoch: u32,
    pub(crate) position: u64,
    /// The position after the record.
    pub(crate) end: u64,
    /// The bytes; none in a hole.
    pub(crate) bytes: Option<Vec<u8>>,
    /// A batch begins here, or a hole.
    pub(crate) begins: bool,
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Hole,
    /// The level was closed here, at the end of the log. The record covers no position.
    Closed,
    /// The rest of a batch that is too large for one record.
    Rest,
}

impl Record {
    /// Whether the record is the one that a closed level writes.
    pub(crate) fn is_closed(&self) -> bool {
        self.end == self.position
    }
}

/// The key of a record.
pub(crate) fn key(epoch: u32, position: u64, kind: Kind) -> [u8; KEY] {
    let mut key = [0; KEY];
    key[..4].copy_from_slice(&MAGIC);
    key[4] = kind as u8;
    key[8..12].copy_from_slice(&epoch.to_le_bytes());
    key[16..].copy_from_slice(&position.to_le_bytes());
    key
}

/// Reads a record; `None` if it is no record of a log.
pub(crate) fn decode(offset: i64, key: &[u8], value: &[u8]) -> Option<Record> {
    let head: &[u8; KEY] = key.try_into().ok()?;
    if head[..4] != MAGIC || head[5..8] != [0; 3] || head[12..16] != [0; 4] {
        return None;
    }
    let epoch = u32::from_le_bytes(head[8..12].try_into().ok()?);
    let position = u64::from_le_bytes(head[16..].try_into().ok()?);
    let (end, bytes) = match head[4] {
        0 | 3 => (position.checked_add(value.len() as u64)?, Some(value.to_vec())),
        1 => (u64::from_le_bytes(value.try_into().ok()?), None),
        2 if value.is_empty() => {
            let end = position;
            return Some(Record { offset, epoch, position, end, bytes: None, begins: true });
        }
        _ => return None,
    };
    let begins = head[4] != Kind::Rest as u8;
    (end > position).then_some(Record { offset, epoch, position, end, bytes, begins })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_these_bytes() {
        let data = key(0x0102_0304, 0x1122, Kind::Data);
        assert_eq!(data, *b"MQk1\0\0\0\0\x04\x03\x02\x01\0\0\0\0\x22\x11\0\0\0\0\0\0");
        let record = decode(5, &data, b"abc").expect("a record");
        assert_eq!(
            (record.offset, record.epoch, record.position, record.end),
            (5, 0x0102_0304, 0x1122, 0x1125)
        );
        assert_eq!(record.bytes.as_deref(), Some(&b"abc"[..]));
        let rest = decode(6, &key(1, 10, Kind::Rest), b"abc").expect("a record");
        assert!(record.begins && !rest.begins && rest.end == 13 && rest.bytes == record.bytes);
        let hole = decode(6, &key(1, 10, Kind::Hole), &20u64.to_le_bytes()).expect("a hole");
        assert_eq!((hole.position, hole.end, hole.bytes), (10, 20, None));
        let closed = decode(7, &key(1, 20, Kind::Closed), b"").expect("a mark");
        assert!(closed.is_closed() && closed.end == 20);
    }

    #[test]
    fn other_records_are_none() {
        let good = key(1, 10, Kind::Data);
        let changed = |at: usize, byte: u8| {
            let mut key = good;
            key[at] = byte;
            key
        };
        assert_eq!(decode(0, &good, b""), None, "no bytes");
        assert_eq!(decode(0, &good[..KEY - 1], b"a"), None);
        for (at, byte) in [(0, 0), (4, 2), (4, 4), (5, 1), (12, 1)] {
            assert_eq!(decode(0, &changed(at, byte), b"a"), None, "byte {at}");
        }
        assert_eq!(decode(0, &key(1, 10, Kind::Hole), &10u64.to_le_bytes()), None, "a hole of nothing");
        assert_eq!(decode(0, &key(1, 10, Kind::Hole), b"seven.."), None);
        assert_eq!(decode(0, &key(1, u64::MAX, Kind::Data), b"a"), None, "beyond the last position");
    }
}
