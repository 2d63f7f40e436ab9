//! How messages are encoded and decoded.
//!
//! serde types are written with [postcard](https://docs.rs/postcard). Its format is specified, stable since
//! 1.0, compact (variable-length integers, no field names), and read straight from the datagram. The last
//! release of bincode, the other candidate, refuses to compile.

use std::panic::catch_unwind;

use bytes::{Buf, Bytes, BytesMut};
use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::proto::shared_buffer::SharedBuffer;

/// An encoder and a decoder as plain functions: a message type needs no trait, and raw bytes need no second
/// queue type.
pub(crate) struct Codec<T> {
    pub encode: Encode<T>,
    /// Decodes the message in these bytes, which lie in the payload.
    pub decode: fn(&[u8], &mut Payload<'_>) -> Option<T>,
}

/// How a message is encoded.
pub(crate) enum Encode<T> {
    /// The message is bytes already.
    AsBytes(fn(&T) -> &[u8]),
    /// Appends the message to the buffer. False if it cannot be encoded.
    With(fn(&T, &mut Vec<u8>) -> bool),
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

/// The largest allocation that copies of several datagrams share.
const MAX_CHUNK: usize = 16 << 10;

/// Copies of the datagrams of one call, for one mailbox. Several copies share an allocation, which is never
/// much larger than the copies in it.
#[derive(Default)]
pub(crate) struct CopyArena {
    chunk: BytesMut,
    bytes: usize,
}

impl CopyArena {
    fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if self.chunk.capacity() < bytes.len() {
            // Each chunk is twice as large as the copies before it.
            self.chunk = BytesMut::with_capacity(self.bytes.min(MAX_CHUNK).max(bytes.len()));
        }
        self.bytes += bytes.len();
        self.chunk.extend_from_slice(bytes);
        self.chunk.split().freeze()
    }
}

/// The bytes of one datagram. Decoded raw messages are parts of the datagram's buffer, or of one copy, if all
/// of them are kept.
pub(crate) struct Payload<'a> {
    all: &'a [u8],
    /// The buffer they lie in, if it may be shared.
    buffer: Option<&'a SharedBuffer>,
    copy: Option<Bytes>,
    /// Where they are copied to, if the copy may share an allocation with other datagrams.
    arena: Option<&'a mut CopyArena>,
    may_share: bool,
}

impl<'a> Payload<'a> {
    /// The bytes of a datagram. With `may_share` its messages share one copy of all bytes. Otherwise each
    /// message has its own, so that a few kept messages do not pin the memory of dropped ones.
    pub fn new(
        all: &'a [u8],
        may_share: bool,
        buffer: Option<&'a SharedBuffer>,
        arena: Option<&'a mut CopyArena>,
    ) -> Payload<'a> {
        Payload { all, buffer, copy: None, arena, may_share }
    }

    /// A part of the payload as an owned value.
    fn slice(&mut self, part: &[u8]) -> Bytes {
        if !self.may_share {
            return Bytes::copy_from_slice(part);
        }
        let (all, buffer, arena) = (self.all, self.buffer, &mut self.arena);
        let copy = self.copy.get_or_insert_with(|| match (buffer, arena) {
            (Some(buffer), _) => buffer.slice(all),
            (None, Some(arena)) => arena.copy(all),
            (None, None) => Bytes::copy_from_slice(all),
        });
        let start = part.as_ptr().addr() - all.as_ptr().addr();
        if start + part.len() < all.len() {
            return copy.slice(start..start + part.len());
        }
        // The last message takes the copy itself, which saves a reference count.
        let mut last = self.copy.take().unwrap_or_default();
        last.advance(start);
        last
    }
}

/// The codec of a serde type.
pub(crate) fn serde<T: Serialize + DeserializeOwned>() -> Codec<T> {
    Codec {
        encode: Encode::With(|message, out| postcard::serialize_with_flavor(message, Append(out)).is_ok()),
        // A `Deserialize` that panics on received bytes must not end the background thread.
        decode: |bytes, _| match catch_unwind(|| postcard::take_from_bytes(bytes)) {
            Ok(Ok((message, []))) => Some(message),
            _ => None,
        },
    }
}

/// The codec of raw bytes.
pub(crate) fn raw() -> Codec<Bytes> {
    Codec { encode: Encode::AsBytes(|message| message), decode: |bytes, payload| Some(payload.slice(bytes)) }
}

/// Appends to a vector.
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
    fn types_and_raw_bytes_round_trip() {
        let codec = serde::<(u32, String)>();
        let message = (7, "seven".to_owned());
        let mut bytes = vec![9];
        let Encode::With(encode) = codec.encode else { panic!("a serde message is encoded by a function") };
        assert!(encode(&message, &mut bytes));
        assert_eq!(bytes, *b"\x09\x07\x05seven");
        assert_eq!((codec.decode)(&bytes[1..], &mut Payload::new(&bytes, true, None, None)), Some(message));
        assert_eq!(
            (codec.decode)(&bytes, &mut Payload::new(&bytes, true, None, None)),
            None,
            "bytes are left over"
        );

        let codec = raw();
        let mut payload = Payload::new(b"onetwo", true, None, None);
        let all = payload.all;
        assert_eq!((codec.decode)(&all[..3], &mut payload).unwrap(), b"one"[..]);
        assert_eq!((codec.decode)(&all[3..], &mut payload).unwrap(), b"two"[..]);
        assert_eq!((codec.decode)(&all[6..], &mut payload).unwrap(), b""[..]);
    }

    /// The messages of each datagram are right, and allocations follow what was copied.
    #[test]
    fn datagrams_share_allocations() {
        let mut arena = CopyArena::default();
        let datagrams: Vec<Vec<u8>> = (1..=100).map(|byte| vec![byte; 1000]).collect();
        let mut kept = Vec::new();
        for datagram in &datagrams {
            let mut payload = Payload::new(datagram, true, None, Some(&mut arena));
            let [one, other] = [&datagram[..400], &datagram[400..]].map(|part| payload.slice(part));
            kept.push([one, other]);
            assert!(arena.chunk.capacity() <= (kept.len() * 1000).min(MAX_CHUNK), "{}", kept.len());
        }
        assert!(kept.iter().zip(&datagrams).all(|(kept, datagram)| kept.concat() == *datagram));
        let follows = |pair: &[[Bytes; 2]]| pair[0][1].as_ptr().addr() + 600 == pair[1][0].as_ptr().addr();
        let apart = kept.windows(2).filter(|pair| !follows(pair)).count();
        assert!((1..20).contains(&apart), "{apart}");
    }
}
