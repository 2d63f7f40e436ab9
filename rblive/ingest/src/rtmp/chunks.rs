//! RTMP's chunk stream: messages in interleaved pieces.

use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};

/// The most chunk streams of a connection; encoders use fewer than eight.
const MAX_STREAMS: usize = 32;
/// The size that a peer may announce: one that is larger than any message means the same as any other such size.
const CHUNKS: RangeInclusive<u32> = 1..=0x7FFF_FFFF;
const FIRST_CHUNK: usize = 128;
/// Payload bytes that this side sends in one chunk.
pub(super) const OUT_CHUNK: usize = 4096;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) stream: u32,
    pub(super) timestamp: u32,
    pub(super) payload: Bytes,
}

/// Why a chunk stream cannot be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkStreamError {
    /// A message is too large.
    #[error(
        "the encoder announced a message of {0} bytes, more than limits.message_bytes, or than 16384 before its publish"
    )]
    TooLarge(usize),
    /// The messages that are on the way are too large together.
    #[error("the encoder has more than {0} bytes in unfinished messages")]
    TooMuch(usize),
    /// Too many chunk streams.
    #[error("the encoder uses more than {MAX_STREAMS} chunk streams")]
    TooManyStreams,
    /// A chunk without a header continues nothing.
    #[error("the encoder's chunk stream {0} begins with a chunk that continues another one")]
    NoHeader(u32),
    /// A chunk size is not allowed.
    #[error("the encoder announced chunks of {0} bytes")]
    ChunkSize(u32),
}

#[derive(Debug, Default)]
struct Stream {
    id: u32,
    timestamp: u32,
    delta: u32,
    /// The extended timestamp or delta of the newest header.
    extended: Option<u32>,
    length: usize,
    kind: u8,
    message_stream: u32,
    partial: BytesMut,
}

/// Reads messages. The received bytes of unfinished messages are kept in memory, at most `max_partial`.
#[derive(Debug)]
pub(super) struct Reader {
    chunk: usize,
    max_message: usize,
    max_partial: usize,
    partial: usize,
    streams: Vec<Stream>,
}

/// A chunk's header, and how long it is.
struct Head {
    bytes: usize,
    format: u8,
    id: u32,
    /// Timestamp or delta, length and kind, message stream.
    time: u32,
    length: usize,
    kind: u8,
    message_stream: u32,
}

fn be24(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]])
}

impl Reader {
    /// A reader for a peer that is not admitted yet: all of its unfinished messages have so many bytes together.
    pub(super) fn new(max_bytes: usize) -> Self {
        let (chunk, max_message, max_partial) = (FIRST_CHUNK, max_bytes, max_bytes);
        Self { chunk, max_message, max_partial, partial: 0, streams: Vec::new() }
    }

    /// The peer is admitted: its messages may be so large, and its unfinished messages together twice as large.
    pub(super) fn admit(&mut self, max_message: usize) {
        (self.max_message, self.max_partial) = (max_message, max_message.saturating_mul(2));
    }

    /// Sets the size of the next chunks, which the peer has announced.
    pub(super) fn set_chunk(&mut self, size: u32) -> Result<(), ChunkStreamError> {
        self.chunk = size as usize;
        CHUNKS.contains(&size).then_some(()).ok_or(ChunkStreamError::ChunkSize(size))
    }

    /// Drops the unfinished message of a chunk stream, which the peer has given up.
    pub(super) fn abort(&mut self, id: u32) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
            self.partial -= stream.partial.len();
            stream.partial.clear();
        }
    }

    /// Removes one chunk from the beginning of `input`. `None`: the chunk is not complete. Otherwise returns the message that it completes,
    /// if any.
    pub(super) fn chunk(
        &mut self,
        input: &mut BytesMut,
    ) -> Result<Option<Option<Message>>, ChunkStreamError> {
        let Some(head) = parse_head(input) else { return Ok(None) };
        let index = self.stream(&head)?;
        let stream = &self.streams[index];
        let fresh = stream.partial.is_empty();
        let (length, extended) = match head.format {
            0 | 1 => (head.length, head.time == 0xFF_FFFF),
            2 => (stream.length, head.time == 0xFF_FFFF),
            _ => (stream.length, stream.extended.is_some()),
        };
        if length > self.max_message {
            return Err(ChunkStreamError::TooLarge(length));
        }
        let has_time = match input.get(head.bytes..head.bytes + 4) {
            _ if !extended => false,
            None => return Ok(None),
            Some(four) => head.format < 3 || fresh || stream.repeats_time(four),
        };
        let header = head.bytes + if has_time { 4 } else { 0 };
        let taken = self.chunk.min(length.saturating_sub(stream.partial.len()));
        if input.len() < header + taken {
            return Ok(None);
        }
        let time = match has_time {
            true => u32::from_be_bytes(input[head.bytes..header].try_into().expect("four bytes")),
            false => head.time,
        };
        let stream = &mut self.streams[index];
        if head.format < 3 {
            stream.begin(&head, length, extended.then_some(time), time);
        } else if fresh {
            stream.timestamp = stream.timestamp.wrapping_add(stream.delta);
        }
        let _ = input.split_to(header);
        self.partial += taken;
        if self.partial > self.max_partial {
            return Err(ChunkStreamError::TooMuch(self.max_partial));
        }
        stream.partial.extend_from_slice(&input.split_to(taken));
        if stream.partial.len() < stream.length {
            return Ok(Some(None));
        }
        let payload = stream.partial.split().freeze();
        self.partial -= payload.len();
        let (kind, message_stream, timestamp) = (stream.kind, stream.message_stream, stream.timestamp);
        Ok(Some(Some(Message { kind, stream: message_stream, timestamp, payload })))
    }

    /// The stream of a chunk. A new header within a message drops the unfinished message.
    fn stream(&mut self, head: &Head) -> Result<usize, ChunkStreamError> {
        let found = self.streams.iter().position(|stream| stream.id == head.id);
        if let Some(index) = found {
            if head.format < 3 {
                self.abort(head.id);
            }
            return Ok(index);
        }
        if head.format != 0 && head.format != 1 {
            return Err(ChunkStreamError::NoHeader(head.id));
        }
        if self.streams.len() == MAX_STREAMS {
            return Err(ChunkStreamError::TooManyStreams);
        }
        self.streams.push(Stream { id: head.id, ..Stream::default() });
        Ok(self.streams.len() - 1)
    }
}

impl Stream {
    /// Whether these bytes, in a chunk that continues a message, repeat the timestamp. Some encoders leave it out there.
    fn repeats_time(&self, four: &[u8]) -> bool {
        [self.extended.unwrap_or(self.timestamp), self.timestamp]
            .iter()
            .any(|time| time.to_be_bytes() == *four)
    }

    fn begin(&mut self, head: &Head, length: usize, extended: Option<u32>, time: u32) {
        self.extended = extended;
        self.length = length;
        if head.format == 0 {
            (self.timestamp, self.delta, self.message_stream) = (time, 0, head.message_stream);
        } else {
            self.delta = time;
            self.timestamp = self.timestamp.wrapping_add(time);
        }
        if head.format < 2 {
            self.kind = head.kind;
        }
    }
}

fn parse_head(input: &[u8]) -> Option<Head> {
    let first = *input.first()?;
    let (id, at) = match first & 0x3F {
        0 => (64 + u32::from(*input.get(1)?), 2),
        1 => (64 + u32::from(*input.get(1)?) + 256 * u32::from(*input.get(2)?), 3),
        id => (u32::from(id), 1),
    };
    let format = first >> 6;
    let bytes = at + [11, 7, 3, 0][usize::from(format)];
    let rest = input.get(at..bytes)?;
    let mut head = Head { bytes, format, id, time: 0, length: 0, kind: 0, message_stream: 0 };
    if format < 3 {
        head.time = be24(rest);
    }
    if format < 2 {
        (head.length, head.kind) = (be24(&rest[3..]) as usize, rest[6]);
    }
    if format == 0 {
        head.message_stream = u32::from_le_bytes(rest[7..11].try_into().expect("four bytes"));
    }
    Some(head)
}

/// Writes a message with timestamp 0 in chunks of [`OUT_CHUNK`].
pub(super) fn write(chunk_stream: u8, kind: u8, message_stream: u32, payload: &[u8], to: &mut Vec<u8>) {
    write_at(0, chunk_stream, kind, message_stream, payload, to);
}

/// Writes a message with a timestamp in chunks of [`OUT_CHUNK`].
pub(super) fn write_at(
    timestamp: u32,
    chunk_stream: u8,
    kind: u8,
    message_stream: u32,
    payload: &[u8],
    to: &mut Vec<u8>,
) {
    let extended = (timestamp >= 0xFF_FFFF).then_some(timestamp.to_be_bytes());
    to.push(chunk_stream);
    to.extend(&timestamp.min(0xFF_FFFF).to_be_bytes()[1..]);
    to.extend(&(payload.len() as u32).to_be_bytes()[1..]);
    to.push(kind);
    to.extend(message_stream.to_le_bytes());
    to.extend(extended.iter().flatten());
    for (index, piece) in payload.chunks(OUT_CHUNK).enumerate() {
        if index > 0 {
            to.push(0xC0 | chunk_stream);
            to.extend(extended.iter().flatten());
        }
        to.extend(piece);
    }
}
