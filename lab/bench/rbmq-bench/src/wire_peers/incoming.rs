//! Received bytes, cut into messages and bytes of subscriptions.

use std::io::{self, Read};

use rocketbufs::proto::Message;
use rocketnet::wire::{CONTROL_WIRE, HEADER_BYTES, Header};

use crate::{error::BenchError, peers::Reader, rbmq_peers::failed};

/// Largest control message that is taken.
pub const MAX_CONTROL_BYTES: u32 = 64 * 1024;

/// The error for a message that the protocol does not have, or that these ends do not expect.
pub fn unexpected(what: impl std::fmt::Debug) -> BenchError {
    failed(io::Error::other(format!("the broker sent {what:?}, which is not expected here")))
}

/// Received bytes, and the position of the parser.
pub struct Incoming {
    reader: Reader,
    at: usize,
    /// The wire id of the current transfer, and its missing bytes.
    transfer: (u32, usize),
}

/// The next part of the received bytes.
pub enum Part<'b> {
    /// A control message.
    Control(Message),
    /// Bytes of a subscription.
    Data(u32, &'b [u8]),
}

impl Incoming {
    /// Nothing yet.
    pub fn new() -> Incoming {
        Incoming { reader: Reader::for_messages(MAX_CONTROL_BYTES as usize), at: 0, transfer: (0, 0) }
    }

    /// Reads once, behind the incomplete part. False if no bytes are available.
    pub fn read(&mut self, socket: &mut impl Read) -> Result<bool, BenchError> {
        self.reader.used(std::mem::take(&mut self.at));
        Ok(self.reader.fill(socket)?)
    }

    /// The next part; none until more is read.
    pub fn next(&mut self) -> Result<Option<Part<'_>>, BenchError> {
        let data = self.reader.data();
        loop {
            let rest = &data[self.at..];
            let (wire, left) = self.transfer;
            if left > 0 {
                let bytes = &rest[..left.min(rest.len())];
                self.transfer.1 -= bytes.len();
                self.at += bytes.len();
                return Ok((!bytes.is_empty()).then_some(Part::Data(wire, bytes)));
            }
            let Some((header, body)) = rest.split_first_chunk() else { return Ok(None) };
            let Header { wire, size, .. } = Header::decode(*header);
            if wire != CONTROL_WIRE {
                self.at += HEADER_BYTES;
                self.transfer = (wire, size as usize);
                continue;
            }
            if size > MAX_CONTROL_BYTES {
                return Err(unexpected("a control message that is too large"));
            }
            let Some(body) = body.get(..size as usize) else { return Ok(None) };
            self.at += HEADER_BYTES + body.len();
            return Ok(Some(Part::Control(Message::decode(body).map_err(failed)?)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};

    use super::*;

    fn frame(wire: u32, bytes: &[u8]) -> Vec<u8> {
        let header = Header { wire, more: wire == 7, size: bytes.len() as u32 };
        [&header.encode()[..], bytes].concat()
    }

    /// Hands out so many bytes at a time, and then says that there is nothing more yet.
    struct Trickle<'b>(&'b [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let len = self.1.min(to.len()).min(self.0.len());
            if len == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            to[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    /// The parsed messages, and the bytes of each subscription together.
    fn parts(bytes: &[u8], cut: usize) -> Result<(Vec<Message>, [Vec<u8>; 8]), BenchError> {
        let (mut incoming, mut source) = (Incoming::new(), Trickle(bytes, cut));
        let (mut messages, mut data) = (Vec::new(), [const { Vec::new() }; 8]);
        while incoming.read(&mut source)? {
            while let Some(part) = incoming.next()? {
                match part {
                    Part::Control(message) => messages.push(message),
                    Part::Data(wire, bytes) => data[wire as usize].extend_from_slice(bytes),
                }
            }
        }
        Ok((messages, data))
    }

    #[test]
    fn parts_are_the_same_for_any_cut() {
        let ping = |token| frame(CONTROL_WIRE, &Message::Ping(token).encode());
        let app = Message::App((0..=255).cycle().take(40_000).collect());
        let large: Vec<u8> = (0..=255).cycle().take(600_000).collect();
        let bytes = [
            ping(1),
            frame(7, &large),
            frame(3, &[]),
            frame(CONTROL_WIRE, &app.encode()),
            frame(3, b"abc"),
            frame(7, b"d"),
            ping(2),
        ]
        .concat();
        for cut in [1, 7, 8, 9, 4099, 256 << 10, usize::MAX] {
            let (messages, data) = parts(&bytes, cut).unwrap();
            assert_eq!(messages, [Message::Ping(1), app.clone(), Message::Ping(2)], "cut {cut}");
            assert!(data[3] == b"abc" && data[7] == [&large[..], b"d"].concat(), "cut {cut}");
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        let too_large = Header { wire: CONTROL_WIRE, more: false, size: MAX_CONTROL_BYTES + 1 }.encode();
        for bytes in [&too_large[..], &frame(CONTROL_WIRE, b"nonsense")] {
            assert!(matches!(parts(bytes, 5), Err(BenchError::System(_))));
        }
        assert!(matches!(Incoming::new().read(&mut io::empty()), Err(BenchError::Io(_))));
    }
}
