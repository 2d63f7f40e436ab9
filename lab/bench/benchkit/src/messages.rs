//! Numbered messages whose content depends on the number.
//!
//! ```text
//!   message n   [ n, u64 little endian ][ random bytes of template n mod count ]
//! ```
//!
//! Templates are made once, so that a publisher writes only the number and a subscriber compares with one `memcmp`.
//! Neither of them should limit a measured rate.

/// Bytes of the number that each message begins with.
pub const NUMBER_BYTES: usize = 8;

/// About as many bytes of templates as stay in a core's own cache.
const TEMPLATE_BYTES: usize = 64 * 1024;

/// The least number of templates, so that neighbouring messages of any size differ.
const LEAST_TEMPLATES: usize = 3;

/// A message's size as an argument.
///
/// # Errors
/// The text is no number, or a message of that size has no room for the message's number.
pub fn size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size) if size >= NUMBER_BYTES => Ok(size),
        _ => Err(format!("a message has at least {NUMBER_BYTES} bytes")),
    }
}

/// The messages of one topic.
pub struct Messages {
    size: usize,
    count: u64,
    templates: Vec<u8>,
}

impl Messages {
    /// Messages of `size` bytes, at least [`NUMBER_BYTES`].
    pub fn new(size: usize) -> Messages {
        let count = (TEMPLATE_BYTES / size).max(LEAST_TEMPLATES);
        Messages { size, count: count as u64, templates: random_bytes(1, count * size) }
    }

    fn start_of(&self, number: u64) -> usize {
        (number % self.count) as usize * self.size
    }

    /// Message number `number`.
    #[inline]
    pub fn numbered(&mut self, number: u64) -> &[u8] {
        let start = self.start_of(number);
        let message = &mut self.templates[start..start + self.size];
        message[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
        message
    }

    /// The message's number; none unless its length and every byte are those of a message of that number.
    #[inline]
    pub fn number_of(&self, message: &[u8]) -> Option<u64> {
        let (number, content) = message.split_first_chunk::<NUMBER_BYTES>()?;
        let number = u64::from_le_bytes(*number);
        let start = self.start_of(number);
        (content == &self.templates[start + NUMBER_BYTES..start + self.size]).then_some(number)
    }
}

/// splitmix64: reproducible on every machine, and without a repetition in any length that a bench needs.
pub fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bytes.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_known_by_its_number_and_every_byte() {
        for size in [8, 9, 64, 65_536] {
            let (mut made, known) = (Messages::new(size), Messages::new(size));
            for number in [0, 1, 2, 3, 1_000_000, u64::MAX] {
                let mut message = made.numbered(number).to_vec();
                assert_eq!(known.number_of(&message), Some(number), "{size}");
                assert_eq!(known.number_of(&message[..size - 1]), None, "{size}");
                if size > NUMBER_BYTES {
                    message[size - 1] ^= 1;
                    assert_eq!(known.number_of(&message), None, "{size}");
                }
            }
        }
    }

    #[test]
    fn the_content_of_another_number_is_wrong() {
        let (mut made, known) = (Messages::new(64), Messages::new(64));
        let mut message = made.numbered(7).to_vec();
        message[..NUMBER_BYTES].copy_from_slice(&8_u64.to_le_bytes());
        assert_eq!(known.number_of(&message), None);
    }

    #[test]
    fn a_message_has_room_for_its_number() {
        assert_eq!(size("8"), Ok(8));
        assert!(size("7").is_err() && size("x").is_err());
    }
}
