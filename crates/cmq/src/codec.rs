//! How a message becomes bytes and comes back.
//!
//! Types with serde are written with [postcard](https://docs.rs/postcard): its format is specified and stable since
//! 1.0, compact (variable-length integers, no field names), and read straight from the datagram. bincode, the other
//! candidate, has ended: its last release refuses to compile.

use std::panic::catch_unwind;

use bytes::{Buf, Bytes, BytesMut};
use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::proto::lent::Lent;

/// Two functions: a type of messages needs no trait, and raw bytes no second kind of queue.
pub(crate) struct Codec<T> {
    pub encode: Encode<T>,
    /// The message in these bytes, which lie in the second ones.
    pub decode: fn(&[u8], &mut Shared<'_>) -> Option<T>,
}

/// How a message becomes bytes.
pub(crate) enum Encode<T> {
    /// It is bytes.
    Is(fn(&T) -> &[u8]),
    /// Appends it; false if it cannot be encoded.
    By(fn(&T, &mut Vec<u8>) -> bool),
}

impl<T> Clone for Encode<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Encode<T> {}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Codec<T> {}

/// The most that is allocated for copies of several datagrams.
const ROOM: usize = 16 << 10;

/// Copies of datagrams that came together, for one mailbox: several share what is allocated, and nothing is allocated that is
/// much larger than what they are.
#[derive(Default)]
pub(crate) struct Copies {
    room: BytesMut,
    bytes: usize,
}

impl Copies {
    fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if self.room.capacity() < bytes.len() {
            // Twice as much with each.
            self.room = BytesMut::with_capacity(self.bytes.min(ROOM).max(bytes.len()));
        }
        self.bytes += bytes.len();
        self.room.extend_from_slice(bytes);
        self.room.split().freeze()
    }
}

/// The bytes of one datagram; if messages are kept as they are and all of them are kept, they stay where they are, or are copied
/// once.
pub(crate) struct Shared<'a> {
    all: &'a [u8],
    /// What they lie in, if that may be kept as it is.
    lent: Option<&'a Lent>,
    copy: Option<Bytes>,
    /// Where they are copied to, if they may share it with other datagrams.
    copies: Option<&'a mut Copies>,
    whole: bool,
}

impl<'a> Shared<'a> {
    /// Messages will be parts of these bytes; `whole`: they may share a copy of all of them. Else each has its own, so that
    /// a few do not keep what was dropped.
    pub fn new(
        all: &'a [u8],
        whole: bool,
        lent: Option<&'a Lent>,
        copies: Option<&'a mut Copies>,
    ) -> Shared<'a> {
        Shared { all, lent, copy: None, copies, whole }
    }

    /// The part as a value that owns the copy together with the others.
    fn part(&mut self, part: &[u8]) -> Bytes {
        if !self.whole {
            return Bytes::copy_from_slice(part);
        }
        let (all, lent, copies) = (self.all, self.lent, &mut self.copies);
        let copy = self.copy.get_or_insert_with(|| match (lent, copies) {
            (Some(lent), _) => lent.part(all),
            (None, Some(copies)) => copies.copy(all),
            (None, None) => Bytes::copy_from_slice(all),
        });
        let start = part.as_ptr().addr() - all.as_ptr().addr();
        if start + part.len() < all.len() {
            return copy.slice(start..start + part.len());
        }
        // The last one has it, and nobody counts once more.
        let mut last = self.copy.take().unwrap_or_default();
        last.advance(start);
        last
    }
}

/// Any serde type, by postcard.
pub(crate) fn serde<T: Serialize + DeserializeOwned>() -> Codec<T> {
    Codec {
        encode: Encode::By(|message, out| postcard::serialize_with_flavor(message, Append(out)).is_ok()),
        // A type that panics on what somebody sent must not take the queue's thread with it.
        decode: |bytes, _| match catch_unwind(|| postcard::take_from_bytes(bytes)) {
            Ok(Ok((message, []))) => Some(message),
            _ => None,
        },
    }
}

/// Bytes as they are.
pub(crate) fn raw() -> Codec<Bytes> {
    Codec { encode: Encode::Is(|message| message), decode: |bytes, shared| Some(shared.part(bytes)) }
}

/// Writes behind what is in the vector already.
struct Append<'a>(&'a mut Vec<u8>);

impl Flavor for Append<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_raw_bytes_come_back() {
        let codec = serde::<(u32, String)>();
        let message = (7, "seven".to_owned());
        let mut bytes = vec![9];
        let Encode::By(encode) = codec.encode else { panic!("it has to be written") };
        assert!(encode(&message, &mut bytes));
        assert_eq!(bytes, *b"\x09\x07\x05seven");
        assert_eq!((codec.decode)(&bytes[1..], &mut Shared::new(&bytes, true, None, None)), Some(message));
        assert_eq!(
            (codec.decode)(&bytes, &mut Shared::new(&bytes, true, None, None)),
            None,
            "bytes are left over"
        );

        let codec = raw();
        let mut shared = Shared::new(b"onetwo", true, None, None);
        let all = shared.all;
        assert_eq!((codec.decode)(&all[..3], &mut shared).unwrap(), b"one"[..]);
        assert_eq!((codec.decode)(&all[3..], &mut shared).unwrap(), b"two"[..]);
        assert_eq!((codec.decode)(&all[6..], &mut shared).unwrap(), b""[..]);
    }

    /// Each datagram's messages are right, and what is allocated follows what was copied.
    #[test]
    fn datagrams_share_allocations() {
        let mut copies = Copies::default();
        let datagrams: Vec<Vec<u8>> = (1..=100).map(|byte| vec![byte; 1000]).collect();
        let mut kept = Vec::new();
        for datagram in &datagrams {
            let mut shared = Shared::new(datagram, true, None, Some(&mut copies));
            let [one, other] = [&datagram[..400], &datagram[400..]].map(|part| shared.part(part));
            kept.push([one, other]);
            assert!(copies.room.capacity() <= (kept.len() * 1000).min(ROOM), "{}", kept.len());
        }
        assert!(kept.iter().zip(&datagrams).all(|(kept, datagram)| kept.concat() == *datagram));
        let follows = |pair: &[[Bytes; 2]]| pair[0][1].as_ptr().addr() + 600 == pair[1][0].as_ptr().addr();
        let apart = kept.windows(2).filter(|pair| !follows(pair)).count();
        assert!((1..20).contains(&apart), "{apart}");
    }
}
