//! The shared types of the parsers of all peers' protocols.

use crate::error::BenchError;

/// A protocol as the code that connects sees it.
#[derive(Clone, Copy)]
pub struct Protocol {
    /// Its name on the command line and in the rows.
    pub name: &'static str,
    /// Its parser: the item at the front of the bytes, none if they are not this protocol's.
    pub parse: fn(&[u8]) -> Option<Next<'_>>,
}

impl Protocol {
    /// The item at the front of the bytes.
    ///
    /// # Errors
    /// The bytes are not this protocol's, or the server reports an error.
    pub fn next(self, data: &[u8]) -> Result<Next<'_>, BenchError> {
        (self.parse)(data).ok_or_else(|| self.malformed(data))
    }

    /// The error for bytes that do not belong here.
    pub fn malformed(self, data: &[u8]) -> BenchError {
        let shown = &data[..data.len().min(120)];
        BenchError::PeerSaid { peer: self.name.to_owned(), said: shown.escape_ascii().to_string() }
    }
}

/// The next item at the front of the bytes that a server sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'b> {
    /// A message.
    Message {
        /// The topic, as it is called at this system.
        topic: &'b [u8],
        /// The published bytes.
        payload: &'b [u8],
        /// Bytes of the whole item.
        len: usize,
    },
    /// Something else.
    Other {
        /// Its bytes.
        len: usize,
        /// The answer that the server expects.
        answer: Option<&'static [u8]>,
        /// The server's confirmation of published messages.
        accepted: Accepted,
    },
    /// The rest is still to come.
    More,
}

/// A server's confirmation of published messages.
#[derive(Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Nothing.
    No,
    /// The server has one more message.
    One,
    /// The server has this message, and all messages before it if `and_before`.
    Number {
        /// The message's number, from 1.
        number: u64,
        /// Whether those before it are meant too.
        and_before: bool,
    },
}

impl Next<'_> {
    pub fn ignored(len: usize) -> Next<'static> {
        Next::Other { len, answer: None, accepted: Accepted::No }
    }
}

/// The name that topic number `number` has at the peers. All are equally long.
pub fn topic_name(number: u8) -> String {
    format!("bench.{number:03}")
}

/// The number of a topic that `topic_name` made.
pub fn topic_number(name: &[u8]) -> Option<u8> {
    std::str::from_utf8(name.strip_prefix(b"bench.")?).ok()?.parse().ok()
}

/// A decimal number, most significant digit first: faster than the general formatting, as client libraries are.
#[inline]
pub fn push_number(to: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    to.extend_from_slice(&digits[at..]);
}

/// Reads a decimal number at the front, up to 18 digits. Returns it and how many digits there were.
#[inline]
pub fn number(data: &[u8]) -> Option<(usize, usize)> {
    let digits = data.iter().take(18).take_while(|byte| byte.is_ascii_digit()).count();
    let value = data[..digits].iter().fold(0, |value, digit| value * 10 + usize::from(digit - b'0'));
    (digits > 0).then_some((value, digits))
}

/// The line at the front, without its end, and the bytes with it; none if there is no end within `most` bytes.
pub fn line(data: &[u8], most: usize) -> Option<(&[u8], usize)> {
    let end = data[..data.len().min(most)].windows(2).position(|pair| pair == b"\r\n")?;
    Some((&data[..end], end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_of_topics() {
        assert_eq!((0..=255).find(|&n| topic_number(topic_name(n).as_bytes()) != Some(n)), None);
        assert_eq!(topic_number(b"bench.256"), None);
        assert_eq!(topic_number(b"other.001"), None);
    }

    #[test]
    fn numbers_are_decimal() {
        let mut text = Vec::new();
        for n in [0, 7, 10, 524_288, usize::MAX] {
            push_number(&mut text, n);
            text.push(b' ');
        }
        assert_eq!(text, format!("0 7 10 524288 {} ", usize::MAX).as_bytes());
        assert_eq!(number(b"524288\r"), Some((524_288, 6)));
        assert_eq!(number(b"x"), None);
    }
}
