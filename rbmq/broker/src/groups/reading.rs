//! The messages in a delivery of a kept log.

use bytes::Bytes;
use rbmq_wire::{RECORD_HEADER_BYTES, RUN_HEADER_BYTES, Records};
use rocketbufs::Position;
use seglog::{Read, ReadError, Reader};

/// The bit of a record's length that says that it has attributes.
const HAS_ATTRIBUTES: u32 = 1 << 31;

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// Where its record begins in the log.
    pub(super) position: Position,
    /// The bytes of the record, with its header.
    pub(super) len: u32,
    /// Its key as a number; 0: none.
    pub(super) key: u32,
}

/// The messages of a delivery, from a position on. What is no record is passed over: its publisher is at fault.
pub(super) struct Messages {
    bytes: Bytes,
    base: Position,
    at: usize,
    run_end: usize,
    from: Position,
}

/// What a log has.
pub(super) enum Next {
    Messages(Messages),
    /// Nothing up to this position: it was removed, or is damaged.
    Gap(Position),
    /// Nothing yet.
    End,
}

/// The delivery that has a position.
pub(super) fn read(reader: &mut Reader, from: Position) -> Result<Next, ReadError> {
    let batch = match reader.read(from)? {
        Read::Batch(batch) if batch.batch == batch.position => batch,
        Read::Batch(part) => match reader.read(part.batch)? {
            Read::Batch(whole) => whole,
            // It was removed meanwhile.
            _ => return Ok(Next::Gap(part.end())),
        },
        Read::Hole(hole) => return Ok(Next::Gap(hole.range.end)),
        Read::Removed { first } => return Ok(Next::Gap(first.max(from + 1))),
        _ => return Ok(Next::End),
    };
    Ok(Next::Messages(Messages::new(batch.bytes, batch.position, from)))
}

/// The bytes of a record. None: the log has them no more.
pub(super) fn record(reader: &mut Reader, position: Position, len: u32) -> Result<Option<Bytes>, ReadError> {
    match reader.read(position)? {
        Read::Batch(batch) if batch.position == position && batch.bytes.len() >= len as usize => {
            Ok(Some(batch.bytes.slice(..len as usize)))
        }
        _ => Ok(None),
    }
}

impl Messages {
    fn new(bytes: Bytes, base: Position, from: Position) -> Self {
        Self { bytes, base, at: 0, run_end: 0, from }
    }

    /// The position behind the delivery.
    pub(super) fn end(&self) -> Position {
        self.base + self.bytes.len() as u64
    }

    /// Everything below was looked at.
    pub(super) fn reached(&self) -> Position {
        self.base + self.at as u64
    }

    /// The bytes of a record that is in this delivery.
    pub(super) fn record(&self, position: Position, len: u32) -> Option<Bytes> {
        let begin = usize::try_from(position.checked_sub(self.base)?).ok()?;
        let end = begin.checked_add(len as usize)?;
        (end <= self.bytes.len()).then(|| self.bytes.slice(begin..end))
    }
}

impl Iterator for Messages {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            if self.at >= self.run_end {
                let header = self.bytes.get(self.at..)?.first_chunk::<RUN_HEADER_BYTES>()?;
                let [_, _, _, _, len @ ..] = *header;
                self.at += RUN_HEADER_BYTES;
                self.run_end = self.at + u32::from_le_bytes(len) as usize;
                if self.run_end > self.bytes.len() {
                    self.at = self.bytes.len();
                    return None;
                }
                continue;
            }
            let rest = &self.bytes[self.at..self.run_end];
            let word = rest.first_chunk::<RECORD_HEADER_BYTES>().map(|word| u32::from_le_bytes(*word));
            let len = word.map(|word| (word & !HAS_ATTRIBUTES) as usize + RECORD_HEADER_BYTES);
            let Some(len) = len.filter(|len| *len <= rest.len()) else {
                self.at = self.run_end;
                continue;
            };
            let position = self.reached();
            let record = Records::new(&rest[..len]).next_record();
            self.at += len;
            let Some(record) = record.filter(|_| position >= self.from) else { continue };
            let key = record.attributes.key().map_or(0, number);
            return Some(Found { position, len: u32::try_from(len).unwrap_or(u32::MAX), key });
        }
    }
}

/// A key as a number, which is not 0. Two keys with one number are handed out as one.
fn number(key: &[u8]) -> u32 {
    // FNV-1a.
    key.iter().fold(0x811c_9dc5, |sum: u32, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193)).max(1)
}

#[cfg(test)]
mod tests {
    use rbmq_wire::{AttributesBuf, push_record, push_record_with, run_header};

    use super::*;

    fn run(bytes: &[u8]) -> Vec<u8> {
        [&run_header(3, bytes.len()).unwrap()[..], bytes].concat()
    }

    #[test]
    fn every_record_of_every_run_is_found_from_a_position_on() {
        let mut first = Vec::new();
        push_record(&mut first, b"one");
        push_record(&mut first, b"");
        let mut keyed = AttributesBuf::default();
        keyed.key(b"anna").unwrap();
        let mut second = Vec::new();
        push_record_with(&mut second, (&keyed).into(), b"two");
        let bytes: Bytes = [run(&first), run(&[]), run(&second)].concat().into();
        let of = |from| Messages::new(bytes.clone(), 1000, from).collect::<Vec<_>>();
        let all = of(0);
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].position, all[0].len, all[0].key), (1008, 7, 0));
        assert_eq!((all[1].position, all[1].len), (1015, 4));
        assert_eq!((all[2].position, all[2].key), (1035, number(b"anna")));
        assert_eq!(of(1009), all[1..]);
        assert_eq!(of(1036), []);
        let messages = Messages::new(bytes.clone(), 1000, 0);
        assert_eq!(messages.record(1008, 7).as_deref(), Some(&first[..7]));
        assert_eq!(messages.record(1008, 700), None);
        assert_eq!(messages.record(999, 1), None);
    }

    #[test]
    fn what_is_no_record_is_passed_over() {
        let mut good = Vec::new();
        push_record(&mut good, b"good");
        let cut = [&good[..], &[9, 0, 0, 0, 1]].concat();
        let attributes = [5, 0, 0, 0x80, 9, 9, 9, 9, 9];
        let bytes: Bytes = [run(&cut), run(&[&attributes[..], &good].concat()), run(&good)].concat().into();
        assert_eq!(Messages::new(bytes.clone(), 0, 0).count(), 3);
        // A run that exceeds the delivery ends it, wherever it is cut.
        for end in 0..bytes.len() {
            assert!(Messages::new(bytes.slice(..end), 0, 0).count() <= 3);
        }
    }
}
