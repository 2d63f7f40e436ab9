//! Messages that differ by a number: the first 8 bytes, little endian. All other bytes are equal, and are checked.

use clap::Args;

use super::clients::Whom;

/// The byte behind the number.
const FILL: u8 = b'.';

/// The options of a publisher of numbers.
#[derive(Debug, Args)]
pub struct Numbers {
    /// The server to connect to
    #[command(flatten)]
    pub whom: Whom,
    /// Bytes of a message, at least 8
    #[arg(long)]
    pub size: usize,
    /// Messages per second
    #[arg(long)]
    pub rate: f64,
}

/// A message of so many bytes with the number 0.
pub fn numbered(size: usize) -> Vec<u8> {
    let mut message = vec![FILL; size.max(8)];
    set_number(&mut message, 0);
    message
}

/// Gives the message another number.
pub fn set_number(message: &mut [u8], number: u64) {
    message[..8].copy_from_slice(&number.to_le_bytes());
}

/// The number of a message; None if `numbered` did not make the message.
pub fn number_in(message: &[u8]) -> Option<u64> {
    let (number, rest) = message.split_first_chunk::<8>()?;
    rest.iter().all(|byte| *byte == FILL).then(|| u64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_was_changed_has_no_number() {
        for size in [0, 8, 34] {
            let mut message = numbered(size);
            set_number(&mut message, 7);
            assert_eq!((message.len(), number_in(&message)), (size.max(8), Some(7)));
        }
        assert_eq!(number_in(&[0; 7]), None);
        let mut message = numbered(34);
        message[33] = 0;
        assert_eq!(number_in(&message), None);
    }
}
