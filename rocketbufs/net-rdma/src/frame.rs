//! The messages between two transports on one connection.
//!
//! ```text
//!   frame    u32 receives posted so far │ u32 zero │ record … record          at most 1,024 bytes, little endian
//!   record   u8 kind │ u8 more │ u16 size │ size bytes
//!
//!   CONTROL  a message of the session above, or the next part of one (`more`)
//!   KEY      u32 wire │ u32 key │ u64 address │ u64 capacity: where to write ranges of this id from now on;
//!            capacity 0: ranges of this id are discarded, and need not be sent
//!   REVOKE   u32 wire: the key is no longer valid
//!   WANT     u32 wire: there is a range for this id, and no KEY, or the sender does not know how far the peer has
//!            handled ranges of it: a frame is the answer. If the peer does not know the id, the connection ends
//!   CLOSE    the last record
//! ```
//!
//! The module is not for applications: it is public for the fuzz targets.
//!
//! Both ends put into the private data of the handshake: `"RKBR"`, u16 version, u16 zero, u32 receives.

use rocketnet::WireId;

use crate::config::FRAME_BYTES;

/// Bytes before the first record.
pub const FRAME_HEAD: usize = 8;
const RECORD_HEAD: usize = 4;
const MAGIC: [u8; 4] = *b"RKBR";
const VERSION: u16 = 1;
/// The smallest number of receives of an end: with fewer the reserve would be all of them.
const MIN_RECEIVES: u32 = 8;

const CONTROL: u8 = 1;
const KEY: u8 = 2;
const REVOKE: u8 = 3;
const WANT: u8 = 4;
const CLOSE: u8 = 5;

/// The target of ranges of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The key of the registration.
    pub key: u32,
    /// The address of positions that are multiples of the capacity.
    pub address: u64,
    /// A power of two; 0: ranges of this id are discarded.
    pub capacity: u64,
}

/// A ring without flow control is written in at least this many pieces, so that one piece never fills it.
const PIECES: u64 = 4;

impl Key {
    /// How many of the `left` bytes from a position on go in one piece, which does not cross the end of the ring. `laps`: the
    /// ring has no flow control. The capacity is not 0.
    pub fn piece(&self, at: u64, left: u64, laps: bool) -> u64 {
        let to_end = self.capacity - (at & (self.capacity - 1));
        let most = if laps { (self.capacity / PIECES).max(1) } else { self.capacity };
        left.min(to_end).min(most)
    }
}

/// A record of a frame; see [the module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// A control message of the session, or a part of one.
    Control {
        /// The bytes.
        part: &'a [u8],
        /// The rest follows in the next record.
        more: bool,
    },
    /// Where to write ranges of an id from now on.
    Key(WireId, Key),
    /// The key of an id is no longer valid.
    Revoke(WireId),
    /// The sender has a range for this id.
    Want(WireId),
    /// The last record.
    Close,
}

/// An invalid frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// An empty frame, to be filled by [`push`] and completed by [`set_posted`].
pub fn empty() -> Vec<u8> {
    vec![0; FRAME_HEAD]
}

/// How many bytes of a control message still fit into a frame of this length.
pub fn control_room(len: usize) -> usize {
    (FRAME_BYTES as usize).saturating_sub(len + RECORD_HEAD)
}

/// Appends a record, if it fits.
pub fn push(frame: &mut Vec<u8>, record: Record<'_>) -> bool {
    let mut numbers = Vec::new();
    let (kind, more, body) = match record {
        Record::Control { part, more } => (CONTROL, more, part),
        Record::Key(wire, Key { key, address, capacity }) => {
            numbers.extend(wire.to_le_bytes());
            numbers.extend(key.to_le_bytes());
            numbers.extend(address.to_le_bytes());
            numbers.extend(capacity.to_le_bytes());
            (KEY, false, &numbers[..])
        }
        Record::Revoke(wire) | Record::Want(wire) => {
            numbers.extend(wire.to_le_bytes());
            (if matches!(record, Record::Want(_)) { WANT } else { REVOKE }, false, &numbers[..])
        }
        Record::Close => (CLOSE, false, &[][..]),
    };
    if frame.len() + RECORD_HEAD + body.len() > FRAME_BYTES as usize {
        return false;
    }
    frame.extend([kind, u8::from(more)]);
    // At most a frame.
    frame.extend((body.len() as u16).to_le_bytes());
    frame.extend(body);
    true
}

/// Sets the number of posted receives.
pub fn set_posted(frame: &mut [u8], posted: u32) {
    frame[..4].copy_from_slice(&posted.to_le_bytes());
}

/// How many receives the peer has posted, and its records.
///
/// # Errors
/// The bytes are too few for a frame.
pub fn split(frame: &[u8]) -> Result<(u32, Records<'_>), Malformed> {
    let (head, rest) = frame.split_at_checked(FRAME_HEAD).ok_or(Malformed)?;
    Ok((u32_at(head, 0)?, Records(rest)))
}

/// The records of a frame, up to the first invalid one.
#[derive(Debug, Clone)]
pub struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.record().inspect_err(|_| self.0 = &[]))
    }
}

impl<'a> Records<'a> {
    fn record(&mut self) -> Result<Record<'a>, Malformed> {
        let (head, rest) = self.0.split_at_checked(RECORD_HEAD).ok_or(Malformed)?;
        let size = u16::from_le_bytes([head[2], head[3]]);
        let (body, rest) = rest.split_at_checked(size.into()).ok_or(Malformed)?;
        self.0 = rest;
        let record = match (head[0], body.len()) {
            (CONTROL, _) => Record::Control { part: body, more: head[1] & 1 != 0 },
            (KEY, 24) => {
                let (key, address, capacity) = (u32_at(body, 4)?, u64_at(body, 8)?, u64_at(body, 16)?);
                let is_capacity = capacity == 0 || capacity.is_power_of_two();
                if !is_capacity || address.checked_add(capacity).is_none() {
                    return Err(Malformed);
                }
                Record::Key(u32_at(body, 0)?, Key { key, address, capacity })
            }
            (REVOKE, 4) => Record::Revoke(u32_at(body, 0)?),
            (WANT, 4) => Record::Want(u32_at(body, 0)?),
            (CLOSE, 0) => Record::Close,
            _ => return Err(Malformed),
        };
        Ok(record)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Malformed> {
    let bytes = bytes.get(at..at + 4).ok_or(Malformed)?;
    Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| Malformed)?))
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Malformed> {
    let bytes = bytes.get(at..at + 8).ok_or(Malformed)?;
    Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| Malformed)?))
}

/// The private data of an end.
pub fn greeting(receives: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    bytes[8..].copy_from_slice(&receives.to_le_bytes());
    bytes
}

/// The peer's number of receives, from its private data.
///
/// # Errors
/// Why the private data is not a peer's.
pub fn read_greeting(bytes: &[u8]) -> Result<u32, String> {
    let Some((head, receives)) = bytes.get(..12).and_then(|bytes| bytes.split_at_checked(8)) else {
        return Err("it says too little for a RocketBufs peer".into());
    };
    if head[..4] != MAGIC {
        return Err("it is no RocketBufs peer".into());
    }
    let version = u16::from_le_bytes([head[4], head[5]]);
    if version != VERSION {
        return Err(format!("it speaks version {version} of this transport, this end {VERSION}"));
    }
    match u32_at(receives, 0) {
        Ok(receives @ MIN_RECEIVES..=0xFFFF) => Ok(receives),
        _ => Err("its receives are too few or too many".into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn records_come_back() {
        let mut frame = empty();
        let key = Key { key: 7, address: 0x7F00_0000_1000, capacity: 1 << 20 };
        let records = [
            Record::Control { part: b"hello", more: true },
            Record::Key(5, key),
            Record::Revoke(6),
            Record::Want(0x7FFF_FFFE),
            Record::Control { part: b"", more: false },
            Record::Close,
        ];
        for record in records {
            assert!(push(&mut frame, record));
        }
        set_posted(&mut frame, 99);
        let (posted, found) = split(&frame).expect("a frame");
        assert_eq!((posted, found.map(|r| r.expect("a record")).collect::<Vec<_>>()), (99, records.to_vec()));
        let room = control_room(frame.len());
        assert!(!push(&mut frame, Record::Control { part: &vec![0; room + 1], more: false }));
        assert!(push(&mut frame, Record::Control { part: &vec![0; room], more: false }));
        assert_eq!(frame.len(), FRAME_BYTES as usize);
    }

    #[test]
    fn foreign_bytes_are_recognised() {
        assert_eq!(read_greeting(&greeting(256)), Ok(256));
        let mut longer = greeting(64).to_vec();
        longer.resize(56, 0);
        assert_eq!(read_greeting(&longer), Ok(64));
        let mut newer = greeting(64);
        newer[4] = 9;
        for (bytes, part) in [
            (&b"short"[..], "too little"),
            (&[0; 56], "no RocketBufs"),
            (&newer, "version 9"),
            (&greeting(1), "receives"),
        ] {
            assert!(read_greeting(bytes).expect_err("no peer").contains(part));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_records_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((_, records)) = split(&bytes) {
                prop_assert!(records.count() <= bytes.len());
            }
            let _ = read_greeting(&bytes);
        }
    }
}
