//! Frames.
//!
//! ```text
//!   │ FIN, opcode │ MASK, length │ 0, 2 or 8 bytes of length │ mask, from clients │ payload … │
//! ```

/// The longest payload of a ping, pong or close.
const MAX_CONTROL_BYTES: usize = 125;

/// The longest header of a frame.
const MAX_HEAD_BYTES: usize = 14;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The rules that a client has broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Reserved bits, of an extension that was not agreed on.
    #[error("a frame has reserved bits, of an extension that was not agreed on")]
    Reserved,
    /// An unknown opcode.
    #[error("a frame has the unknown opcode {0}")]
    Opcode(u8),
    /// A frame without a mask.
    #[error("a frame of a client has no mask")]
    Unmasked,
    /// Text in the place of bytes.
    #[error("a frame has text; the protocol is binary")]
    Text,
    /// A ping, pong or close that is in pieces or too long.
    #[error("a ping, pong or close is in pieces, or has more than 125 bytes")]
    Control,
    /// The continuation of nothing.
    #[error("a frame continues a message, and none has begun")]
    Continuation,
    /// A message within another one.
    #[error("a message begins before the one before it has ended")]
    Interrupted,
    /// A length that is not the shortest, or exceeds 2^63.
    #[error("the length of a frame takes more bytes than it needs, or exceeds 2^63")]
    Length,
    /// A code that no close has.
    #[error("a close has a code that cannot be sent")]
    Code,
    /// A reason that is no UTF-8.
    #[error("the reason of a close is no UTF-8")]
    Reason,
}

impl Fault {
    /// The code of the close that tells the client.
    pub fn code(self) -> u16 {
        match self {
            Self::Text => 1003,
            Self::Reason => 1007,
            _ => 1002,
        }
    }
}

/// Why nothing more is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The client has closed, with this code if it gave one.
    Closed(Option<u16>),
    /// The client has broken the rules.
    Fault(Fault),
}

/// The payload of a ping, pong or close.
#[derive(Debug, Clone, Copy)]
struct Payload {
    bytes: [u8; MAX_CONTROL_BYTES],
    len: usize,
}

impl Payload {
    const EMPTY: Self = Self { bytes: [0; MAX_CONTROL_BYTES], len: 0 };

    fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The header has checked that there is room.
    fn extend(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// A frame whose payload is being read.
#[derive(Debug, Clone, Copy)]
struct Frame {
    opcode: u8,
    left: u64,
    /// The mask of the next bytes.
    mask: [u8; 4],
}

/// Reads the frames of a client.
#[derive(Debug)]
pub struct Reader {
    head: [u8; MAX_HEAD_BYTES],
    /// So many bytes of a header are there.
    have: usize,
    frame: Option<Frame>,
    /// A message has begun, and its last frame has not come.
    is_inside: bool,
    control: Payload,
    /// The last ping that was not answered.
    ping: Option<Payload>,
    end: Option<End>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            head: [0; MAX_HEAD_BYTES],
            have: 0,
            frame: None,
            is_inside: false,
            control: Payload::EMPTY,
            ping: None,
            end: None,
        }
    }
}

impl Reader {
    /// Reads what a client has sent. What belongs to the protocol is at the front of `bytes` afterwards: returns how much that is.
    pub fn read(&mut self, bytes: &mut [u8]) -> usize {
        let (mut at, mut data) = (0, 0);
        while at < bytes.len() && self.end.is_none() {
            let Some(mut frame) = self.frame.take() else {
                self.take_head(bytes[at]);
                at += 1;
                continue;
            };
            let rest = bytes.len() - at;
            let step = usize::try_from(frame.left).map_or(rest, |left| left.min(rest));
            let payload = &mut bytes[at..at + step];
            frame.unmask(payload);
            match frame.opcode & 8 {
                0 => {
                    bytes.copy_within(at..at + step, data);
                    data += step;
                }
                _ => self.control.extend(payload),
            }
            at += step;
            frame.left -= step as u64;
            self.go_on(frame);
        }
        data
    }

    /// Takes the last ping that was not answered: the client expects no answer to those before it.
    pub fn take_ping(&mut self, answer: impl FnOnce(&[u8])) {
        if let Some(ping) = self.ping.take() {
            answer(ping.get());
        }
    }

    /// Whether a ping is to be answered.
    pub fn has_ping(&self) -> bool {
        self.ping.is_some()
    }

    /// Why nothing more is read.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Takes a byte of a header.
    fn take_head(&mut self, byte: u8) {
        self.head[self.have] = byte;
        self.have += 1;
        let head = &self.head[..self.have];
        let done = match head {
            [first] => self.check_first(*first).map(|()| None),
            [first, second] => check_second(*first, *second).map(|()| self.frame_of(head)),
            _ => Ok(self.frame_of(head)),
        };
        match done {
            Ok(None) => {}
            Ok(Some(_)) if !is_shortest(head) => self.end = Some(End::Fault(Fault::Length)),
            Ok(Some(frame)) => {
                self.is_inside = match frame.opcode & 8 {
                    0 => head[0] & FIN == 0,
                    _ => self.is_inside,
                };
                self.have = 0;
                self.go_on(frame);
            }
            Err(fault) => self.end = Some(End::Fault(fault)),
        }
    }

    fn check_first(&self, first: u8) -> Result<(), Fault> {
        match first & 0xf {
            _ if first & RESERVED != 0 => Err(Fault::Reserved),
            TEXT => Err(Fault::Text),
            CONTINUATION if !self.is_inside => Err(Fault::Continuation),
            BINARY if self.is_inside => Err(Fault::Interrupted),
            CLOSE | PING | PONG if first & FIN == 0 => Err(Fault::Control),
            CONTINUATION | BINARY | CLOSE | PING | PONG => Ok(()),
            other => Err(Fault::Opcode(other)),
        }
    }

    /// The frame of a header, if all of the header is there.
    fn frame_of(&self, head: &[u8]) -> Option<Frame> {
        let more = length_bytes(head[1]);
        let mask = head.get(2 + more..2 + more + 4)?.try_into().ok()?;
        let left = match more {
            0 => u64::from(head[1] & !MASKED),
            _ => head[2..2 + more].iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
        };
        Some(Frame { opcode: head[0] & 0xf, left, mask })
    }

    /// Reads on in a frame, or does what it says.
    fn go_on(&mut self, frame: Frame) {
        if frame.left > 0 {
            self.frame = Some(frame);
            return;
        }
        let control = std::mem::replace(&mut self.control, Payload::EMPTY);
        match frame.opcode {
            PING => self.ping = Some(control),
            CLOSE => self.end = Some(closed(control.get())),
            _ => {}
        }
    }
}

impl Frame {
    /// Takes the mask off, of the next bytes of the payload.
    fn unmask(&mut self, bytes: &mut [u8]) {
        let [a, b, c, d] = self.mask;
        let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
        let (words, rest) = bytes.as_chunks_mut::<8>();
        for word in words {
            *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
        }
        for (byte, mask) in rest.iter_mut().zip(self.mask.iter().cycle()) {
            *byte ^= mask;
        }
        let odd = rest.len() % 4;
        self.mask.rotate_left(odd);
    }
}

/// How many bytes the length has beside the seven bits.
fn length_bytes(second: u8) -> usize {
    match second & !MASKED {
        126 => 2,
        127 => 8,
        _ => 0,
    }
}

fn check_second(first: u8, second: u8) -> Result<(), Fault> {
    if second & MASKED == 0 {
        return Err(Fault::Unmasked);
    }
    let is_long = usize::from(second & !MASKED) > MAX_CONTROL_BYTES;
    if first & 8 != 0 && is_long { Err(Fault::Control) } else { Ok(()) }
}

/// Whether a length takes as few bytes as it can, and is one that may be.
fn is_shortest(head: &[u8]) -> bool {
    match length_bytes(head[1]) {
        2 => head[2] != 0 || head[3] > 125,
        8 => head[2] & 0x80 == 0 && head[2..8].iter().any(|byte| *byte != 0),
        _ => true,
    }
}

/// What the payload of a close says.
fn closed(payload: &[u8]) -> End {
    match payload {
        [] => End::Closed(None),
        [_] => End::Fault(Fault::Code),
        [high, low, reason @ ..] => match u16::from_be_bytes([*high, *low]) {
            _ if std::str::from_utf8(reason).is_err() => End::Fault(Fault::Reason),
            code @ (1000..=1003 | 1007..=1014 | 3000..=4999) => End::Closed(Some(code)),
            _ => End::Fault(Fault::Code),
        },
    }
}

/// Appends the header of a frame with so many bytes of the protocol.
pub fn header(to: &mut Vec<u8>, len: usize) {
    to.push(FIN | BINARY);
    match (u8::try_from(len), u16::try_from(len)) {
        (Ok(short @ ..=125), _) => to.push(short),
        (_, Ok(middle)) => {
            to.push(126);
            to.extend_from_slice(&middle.to_be_bytes());
        }
        _ => {
            to.push(127);
            to.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
}

/// Appends the answer to a ping.
pub fn pong(to: &mut Vec<u8>, payload: &[u8]) {
    to.extend_from_slice(&[FIN | PONG, u8::try_from(payload.len()).unwrap_or(0)]);
    to.extend_from_slice(payload);
}

/// Appends a close with a code; none as the answer to one without.
pub fn close(to: &mut Vec<u8>, code: Option<u16>) {
    to.extend_from_slice(&[FIN | CLOSE, if code.is_some() { 2 } else { 0 }]);
    code.into_iter().for_each(|code| to.extend_from_slice(&code.to_be_bytes()));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame of a client.
    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        header(&mut frame, payload.len());
        (frame[0], frame[1]) = (first, frame[1] | MASKED);
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    /// What a reader makes of bytes that come in pieces of so many.
    fn read(bytes: &[u8], piece: usize) -> (Vec<u8>, Vec<Vec<u8>>, Option<End>) {
        let (mut reader, mut data, mut pings) = (Reader::default(), Vec::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut piece = piece.to_vec();
            let count = reader.read(&mut piece);
            data.extend_from_slice(&piece[..count]);
            reader.take_ping(|ping| pings.push(ping.to_vec()));
        }
        (data, pings, reader.end())
    }

    #[test]
    fn the_vectors_of_the_standard() {
        let hello = [0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        assert_eq!(read(&[&[0x82, 0x85], &hello[..]].concat(), 100).0, b"Hello");
        assert_eq!(read(&[&[0x89, 0x85], &hello[..]].concat(), 1).1, [b"Hello"]);
        assert_eq!(masked(0x82, b"Hello"), [&[0x82, 0x85], &hello[..]].concat());
        for (len, expected) in [
            (125, &[0x82, 125][..]),
            (256, &[0x82, 126, 1, 0]),
            (65_535, &[0x82, 126, 255, 255]),
            (65_536, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let mut head = Vec::new();
            header(&mut head, len);
            assert_eq!(head, expected);
        }
        let mut answers = Vec::new();
        pong(&mut answers, b"Hello");
        close(&mut answers, Some(1002));
        close(&mut answers, None);
        assert_eq!(answers, b"\x8a\x05Hello\x88\x02\x03\xea\x88\x00");
    }

    #[test]
    fn broken_rules_end_the_connection() {
        let faults: &[(&[u8], Fault)] = &[
            (&[0xc2], Fault::Reserved),
            (&[0x83], Fault::Opcode(3)),
            (&[0x8b], Fault::Opcode(11)),
            (&[0x81], Fault::Text),
            (&[0x82, 5], Fault::Unmasked),
            (&[0x80], Fault::Continuation),
            (&[0x09], Fault::Control),
            (&[0x89, 0xfe], Fault::Control),
            (&[0x82, 0xfe, 0, 125, 0, 0, 0, 0], Fault::Length),
            (&[0x82, 0xff, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0], Fault::Length),
            (&[0x82, 0xff, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Fault::Length),
            (&[2, 0x80, 0, 0, 0, 0, 0x82], Fault::Interrupted),
        ];
        for (bytes, fault) in faults {
            for piece in [1, 100] {
                assert_eq!(read(bytes, piece).2, Some(End::Fault(*fault)), "{bytes:?}");
            }
        }
        for (payload, end) in [
            (&b""[..], End::Closed(None)),
            (b"\x03\xe8bye", End::Closed(Some(1000))),
            (b"\x03", End::Fault(Fault::Code)),
            (b"\x03\xed", End::Fault(Fault::Code)),
            (b"\x03\xe8\xff", End::Fault(Fault::Reason)),
        ] {
            // Nothing counts after a close.
            let bytes = [masked(0x88, payload), masked(0x82, b"late")].concat();
            assert_eq!(read(&bytes, 3), (Vec::new(), Vec::new(), Some(end)));
        }
        assert_eq!([Fault::Text, Fault::Reason, Fault::Unmasked].map(Fault::code), [1003, 1007, 1002]);
    }

    proptest! {
        /// However messages are split over frames, pings lie between them, and bytes arrive: the stream is the same.
        #[test]
        fn the_stream_is_the_same_however_it_is_cut(
            messages in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..300), 1..120_usize), 1..6),
            piece in 1..40_usize,
        ) {
            let (mut bytes, mut expected, mut pings) = (Vec::new(), Vec::new(), Vec::new());
            for (message, step) in &messages {
                expected.extend_from_slice(message);
                for (at, part) in message.chunks(*step).enumerate() {
                    let is_last = (at + 1) * step >= message.len();
                    bytes.extend(masked(if at == 0 { BINARY } else { CONTINUATION } | if is_last { FIN } else { 0 }, part));
                    bytes.extend(masked(FIN | PING, &part[..part.len().min(100)]));
                    // Any piece has the end of one ping at most.
                    bytes.extend(masked(FIN | PONG, &[0; 40]));
                    pings.push(part[..part.len().min(100)].to_vec());
                }
            }
            prop_assert_eq!(read(&bytes, piece), (expected, pings, None));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), piece in 1..50_usize) {
            let (data, _, end) = read(&bytes, piece);
            prop_assert!(data.len() <= bytes.len());
            prop_assert_eq!(end, read(&bytes, 200).2);
        }
    }
}
