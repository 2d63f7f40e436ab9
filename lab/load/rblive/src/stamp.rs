//! Frames whose every byte can be checked, for programs that measure servers.
//!
//! A frame is one NAL unit of H.264, which every server passes on as it is. No byte but the first one is below 128, so that the unit
//! needs no escapes in any container.
//!
//! ```text
//!   NAL header | "rblive" | stream | number | time | size | CRC-32C of all other bytes | filler
//!       1           6         5        9       9      5              5
//! ```

/// The first bytes of a stamp, without the ASCII range.
const MAGIC: [u8; 6] = [b'r' | 0x80, b'b' | 0x80, b'l' | 0x80, b'i' | 0x80, b'v' | 0x80, b'e' | 0x80];
const CRC_AT: usize = 1 + MAGIC.len() + 5 + 9 + 9 + 5;
/// The size of a frame without filler.
pub const MIN_BYTES: usize = CRC_AT + 5;
/// The size of the filler's source.
const NOISE: usize = 1 << 16;

/// The data that a frame carries about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the stream.
    pub stream: u32,
    /// Consecutive within a stream.
    pub number: u64,
    /// When the frame was made, in nanoseconds since 1970.
    pub time_ns: u64,
}

/// Makes frames.
///
/// ```
/// use rblive_load::stamp::{self, Stamp, Stamper};
///
/// let stamp = Stamp { stream: 1, number: 7, time_ns: 0 };
/// let mut frame = Vec::new();
/// Stamper::new().write(stamp, 0x65, 5000, &mut frame);
/// assert_eq!(stamp::read(&frame), Some(Ok(stamp)));
/// frame[4000] ^= 1;
/// assert!(matches!(stamp::read(&frame), Some(Err(_))));
/// ```
#[derive(Debug)]
pub struct Stamper {
    noise: Vec<u8>,
}

impl Default for Stamper {
    fn default() -> Self {
        Self::new()
    }
}

impl Stamper {
    /// Prepares the filler.
    pub fn new() -> Self {
        // Incompressible, so that nothing on the way gets smaller.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8 | 0x80
        };
        Self { noise: (0..2 * NOISE).map(|_| next()).collect() }
    }

    /// Appends a frame of `bytes` bytes, at least [`MIN_BYTES`]. `header` is the header of the NAL unit.
    pub fn write(&self, stamp: Stamp, header: u8, bytes: usize, to: &mut Vec<u8>) {
        let begin = to.len();
        to.push(header);
        to.extend(MAGIC);
        put(u64::from(stamp.stream), 5, to);
        put(stamp.number, 9, to);
        put(stamp.time_ns, 9, to);
        put(bytes as u64, 5, to);
        let head = crc32c::crc32c(&to[begin..]);
        to.extend([0; 5]);
        let mut left = bytes.saturating_sub(MIN_BYTES);
        let mut at = (stamp.number as usize).wrapping_mul(61) % NOISE;
        while left > 0 {
            let now = left.min(NOISE);
            to.extend_from_slice(&self.noise[at..at + now]);
            (left, at) = (left - now, 0);
        }
        let crc = crc32c::crc32c_append(head, &to[begin + MIN_BYTES..]);
        to[begin + CRC_AT..begin + MIN_BYTES].copy_from_slice(&crc_field(crc));
    }
}

/// Reads a NAL unit. `None`: it is no stamped frame. An error: it was one, and has been changed.
pub fn read(unit: &[u8]) -> Option<Result<Stamp, String>> {
    if !unit.get(1..)?.starts_with(&MAGIC) {
        return None;
    }
    let Some(head) = unit.get(..MIN_BYTES) else {
        return Some(Err("a frame is cut within its stamp".into()));
    };
    let at = 1 + MAGIC.len();
    let (stream, number, time_ns) =
        (get(&head[at..at + 5]), get(&head[at + 5..at + 14]), get(&head[at + 14..at + 23]));
    let size = get(&head[at + 23..CRC_AT]);
    if size != unit.len() as u64 {
        return Some(Err(format!("frame {number} had {size} bytes and has {}", unit.len())));
    }
    let computed = crc32c::crc32c_append(crc32c::crc32c(&head[..CRC_AT]), &unit[MIN_BYTES..]);
    if crc_field(computed) != head[CRC_AT..] {
        return Some(Err(format!("frame {number} has other bytes than it was made of")));
    }
    Some(Ok(Stamp { stream: stream as u32, number, time_ns }))
}

/// Appends the low bits of a number, seven to a byte.
fn put(value: u64, bytes: u32, to: &mut Vec<u8>) {
    to.extend((0..bytes).rev().map(|group| 0x80 | (value >> (7 * group)) as u8));
}

fn crc_field(crc: u32) -> [u8; 5] {
    std::array::from_fn(|group| 0x80 | (u64::from(crc) >> (28 - 7 * group)) as u8)
}

fn get(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7F))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_found() {
        let stamp = Stamp { stream: u32::MAX, number: 12_345, time_ns: 1_790_000_000_123_456_789 };
        for bytes in [MIN_BYTES, MIN_BYTES + 1, 3000, 200_000] {
            let mut unit = Vec::new();
            Stamper::new().write(stamp, 0x65, bytes, &mut unit);
            assert_eq!((unit.len(), read(&unit)), (bytes, Some(Ok(stamp))));
            assert!(unit[1..].iter().all(|byte| *byte >= 128));
            assert!(matches!(read(&unit[..bytes - 1]), Some(Err(_))));
            for at in (0..bytes).step_by(if bytes > 5000 { 997 } else { 1 }) {
                let mut changed = unit.clone();
                changed[at] ^= 1;
                assert!(!matches!(read(&changed), Some(Ok(_))), "byte {at} of {bytes}");
            }
        }
        assert_eq!(read(b"another unit"), None);
    }
}
