//! Replies, in the version of the protocol that the client asked for.

use std::fmt;
use std::io::Write as _;

/// The most digits of a number.
pub(super) const DIGITS: usize = 20;

/// The digits of a number, which are written to the end of `digits`. Each message and each entry has some, so they are not formatted as text for
/// people is.
pub(super) fn decimal(digits: &mut [u8; DIGITS], mut number: u64) -> &[u8] {
    let mut at = DIGITS;
    while at == DIGITS || number > 0 {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    &digits[at..]
}

/// Appends the length or number of a line that begins with `sign`.
fn number(out: &mut Vec<u8>, sign: u8, number: i64) {
    let signs = if number < 0 { &[sign, b'-'][..] } else { &[sign] };
    out.extend_from_slice(signs);
    out.extend_from_slice(decimal(&mut [0; DIGITS], number.unsigned_abs()));
    out.extend_from_slice(b"\r\n");
}

/// Appends a string with its length.
pub(super) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    bulk_header(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends what comes before a string of so many bytes.
pub(super) fn bulk_header(out: &mut Vec<u8>, len: usize) {
    number(out, b'$', len as i64);
}

/// Writes replies to a client.
pub(super) struct Reply<'a> {
    out: &'a mut Vec<u8>,
    is_resp3: bool,
}

impl<'a> Reply<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, is_resp3: bool) -> Self {
        Self { out, is_resp3 }
    }

    /// A word without line breaks, as `OK`.
    pub(super) fn word(&mut self, word: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(word.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    pub(super) fn ok(&mut self) {
        self.word("OK");
    }

    /// An error, with its code first. Line breaks, which clients may have sent, become blanks.
    pub(super) fn error(&mut self, text: impl fmt::Display) {
        self.out.push(b'-');
        let begin = self.out.len();
        let _ = write!(self.out, "{text}");
        self.out[begin..]
            .iter_mut()
            .filter(|byte| matches!(byte, b'\r' | b'\n'))
            .for_each(|byte| *byte = b' ');
        self.out.extend_from_slice(b"\r\n");
    }

    pub(super) fn integer(&mut self, value: i64) {
        number(self.out, b':', value);
    }

    /// A count, which fits into an integer.
    pub(super) fn count(&mut self, count: usize) {
        self.integer(count as i64);
    }

    pub(super) fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        bulk(self.out, bytes.as_ref());
    }

    /// Values that are written already.
    pub(super) fn raw(&mut self, values: &[u8]) {
        self.out.extend_from_slice(values);
    }

    pub(super) fn null(&mut self) {
        self.out.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// The bytes that were written.
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// So many values follow.
    pub(super) fn array(&mut self, len: usize) {
        number(self.out, b'*', len as i64);
    }

    /// The array that is none.
    pub(super) fn null_array(&mut self) {
        self.out.extend_from_slice(if self.is_resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// So many keys with values follow.
    pub(super) fn map(&mut self, len: usize) {
        if self.is_resp3 {
            number(self.out, b'%', len as i64);
        } else {
            self.array(2 * len);
        }
    }

    /// So many values follow, which are no reply.
    pub(super) fn push(&mut self, len: usize) {
        number(self.out, if self.is_resp3 { b'>' } else { b'*' }, len as i64);
    }

    /// A text for people.
    pub(super) fn text(&mut self, text: &str) {
        if self.is_resp3 {
            number(self.out, b'=', text.len() as i64 + 4);
            self.out.extend_from_slice(b"txt:");
            self.out.extend_from_slice(text.as_bytes());
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text);
        }
    }
}
