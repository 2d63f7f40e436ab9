//! The header of a chunk.

use std::ops::BitOr;

/// The length of a header in bytes.
pub const HEADER_BYTES: usize = 64;
const MAGIC: &[u8; 4] = b"RBLC";
const VERSION: u8 = 2;

/// The kind of a chunk's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// JSON: a [`Description`](super::Description) of the stream.
    Description = 1,
    /// The initialization segment of a rendition.
    Init = 2,
    /// A part of a segment, or a whole segment.
    Media = 3,
    /// Nothing: the stream has ended.
    End = 4,
}

/// Properties of a chunk, a set of bits.
///
/// ```
/// use rblive::content::Flags;
/// let flags = Flags::INDEPENDENT | Flags::FIRST_PART;
/// assert!(flags.contains(Flags::INDEPENDENT) && !flags.contains(Flags::LAST_PART));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u16);

impl Flags {
    /// No property.
    pub const NONE: Self = Self(0);
    /// The media begins with a key frame.
    pub const INDEPENDENT: Self = Self(1);
    /// The media does not continue the timeline or the coding of the media before it.
    pub const DISCONTINUITY: Self = Self(2);
    /// The first part of its segment.
    pub const FIRST_PART: Self = Self(4);
    /// The last part of its segment.
    pub const LAST_PART: Self = Self(8);
    const ALL: u16 = 15;

    /// Whether all properties of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits, as in the header.
    pub fn bits(self) -> u16 {
        self.0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The header of a chunk.
///
/// ```
/// use rblive::content::{Flags, Header, Kind};
///
/// let header = Header { flags: Flags::INDEPENDENT, sequence: 7, payload_bytes: 1000, ..Header::new(Kind::Media) };
/// assert_eq!(Header::decode(&header.encode()), Ok(header));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of the payload.
    pub kind: Kind,
    /// Properties of the media.
    pub flags: Flags,
    /// The rendition that the payload belongs to: an id of the description. 0 in a chunk of the whole stream.
    pub rendition: u16,
    /// The number of the segment. The segments of all renditions with one number cover the same time.
    pub sequence: u64,
    /// The number of the part within its segment, from 0.
    pub part: u32,
    /// The duration of the media in microseconds.
    pub duration_us: u32,
    /// The first presentation time of the media in microseconds.
    pub start_us: u64,
    /// When the last byte of the media came in: nanoseconds since 1970. 0 if unknown. Of an initialization segment with `discontinuities`: the
    /// time of day at `start_us` on that timeline, so that nodes that come later say the same times as the others.
    pub produced_ns: u64,
    /// The bytes of the payload.
    pub payload_bytes: u32,
    /// The number of the timeline to which the segment belongs, for `EXT-X-DISCONTINUITY-SEQUENCE`: each segment with
    /// [`Flags::DISCONTINUITY`] has one more than the segment before. A restarted source begins above all numbers that it gave before.
    /// So the number never goes back for viewers, even if their delivery node was restarted in between. 0: the source does not number
    /// timelines, and each server numbers them itself.
    pub discontinuities: u64,
}

/// Why bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The bytes are fewer than a header has.
    #[error("a chunk begins with a header of 64 bytes, there are {0}")]
    Short(usize),
    /// The first bytes are not those of a header.
    #[error("the chunk is none of RBLive's: it begins with other bytes than RBLC")]
    Magic,
    /// The sender is of another version.
    #[error("the chunk has version {0}; this version reads {VERSION}. Use the same version on all nodes")]
    Version(u8),
    /// The kind is unknown.
    #[error("{0} is no kind of chunk; there are 1 to 4")]
    Kind(u8),
    /// A reserved bit or byte is not zero.
    #[error("reserved bits of the chunk's header are set")]
    Reserved,
}

impl Header {
    /// A header of this kind, in which all else is zero.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            flags: Flags::NONE,
            rendition: 0,
            sequence: 0,
            part: 0,
            duration_us: 0,
            start_us: 0,
            produced_ns: 0,
            payload_bytes: 0,
            discontinuities: 0,
        }
    }

    /// The bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.kind as u8;
        bytes[6..8].copy_from_slice(&self.flags.0.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.rendition.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.part.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.duration_us.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.start_us.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.produced_ns.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[52..60].copy_from_slice(&self.discontinuities.to_le_bytes());
        bytes
    }

    /// Decodes the first bytes of a chunk. The caller must check that the chunk has the bytes of the payload.
    ///
    /// # Errors
    /// [`HeaderError`]; the chunk may not be used then.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(HeaderError::Short(bytes.len()))?;
        if bytes[..4] != *MAGIC {
            return Err(HeaderError::Magic);
        }
        if bytes[4] != VERSION {
            return Err(HeaderError::Version(bytes[4]));
        }
        let kind = match bytes[5] {
            1 => Kind::Description,
            2 => Kind::Init,
            3 => Kind::Media,
            4 => Kind::End,
            other => return Err(HeaderError::Kind(other)),
        };
        let flags = u16::from_le_bytes(array(bytes, 6));
        let zero = bytes[10..16].iter().chain(&bytes[60..]).all(|byte| *byte == 0);
        if !zero || flags & !Flags::ALL != 0 {
            return Err(HeaderError::Reserved);
        }
        Ok(Self {
            kind,
            flags: Flags(flags),
            rendition: u16::from_le_bytes(array(bytes, 8)),
            sequence: u64::from_le_bytes(array(bytes, 16)),
            part: u32::from_le_bytes(array(bytes, 24)),
            duration_us: u32::from_le_bytes(array(bytes, 28)),
            start_us: u64::from_le_bytes(array(bytes, 32)),
            produced_ns: u64::from_le_bytes(array(bytes, 40)),
            payload_bytes: u32::from_le_bytes(array(bytes, 48)),
            discontinuities: u64::from_le_bytes(array(bytes, 52)),
        })
    }
}

/// The `N` bytes from `at` on.
fn array<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the offsets are within the header")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers() -> impl Strategy<Value = Header> {
        let kinds =
            prop_oneof![Just(Kind::Description), Just(Kind::Init), Just(Kind::Media), Just(Kind::End)];
        let small = (kinds, 0..=Flags::ALL, any::<u16>(), any::<u64>(), any::<u32>(), any::<u32>());
        (small, any::<[u64; 3]>(), any::<u32>()).prop_map(|(small, times, payload_bytes)| {
            let (kind, flags, rendition, sequence, part, duration_us) = small;
            let [start_us, produced_ns, discontinuities] = times;
            Header {
                kind,
                flags: Flags(flags),
                rendition,
                sequence,
                part,
                duration_us,
                start_us,
                produced_ns,
                payload_bytes,
                discontinuities,
            }
        })
    }

    proptest! {
        #[test]
        fn a_header_is_what_was_encoded(header in headers()) {
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn accepted_bytes_are_encoded_to_the_same_bytes(header in headers(), at in 0..HEADER_BYTES, byte: u8) {
            let mut bytes = header.encode();
            bytes[at] = byte;
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }

    #[test]
    fn errors_name_the_cause() {
        let good = Header::new(Kind::Media).encode();
        assert_eq!(Header::decode(&good[..63]), Err(HeaderError::Short(63)));
        let changed = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            Header::decode(&bytes)
        };
        assert_eq!(changed(0, b'X'), Err(HeaderError::Magic));
        assert_eq!(changed(4, 1), Err(HeaderError::Version(1)));
        assert_eq!(changed(5, 5), Err(HeaderError::Kind(5)));
        assert_eq!(changed(6, 16), Err(HeaderError::Reserved));
        assert_eq!(changed(12, 1), Err(HeaderError::Reserved));
        assert_eq!(changed(63, 1), Err(HeaderError::Reserved));
    }
}
