//! The messages in the bytes of a stream.
//!
//! ```text
//!   bytes ──▶ rest of a message whose begin is kept ──▶ whole messages, in place ──▶ begin of the next message: kept
//! ```
//!
//! Messages are delivered while their mailbox has room. A message whose mailbox has no room waits here, and its bytes are not credited
//! to the sender.

use crate::event::ReliableCounts;
use crate::key::Key;
use crate::proto::sink::{Room, Sink};
use crate::wire::reliable::LONG;
use crate::wire::{Messages, RECORD_BYTES};

/// Bytes of a short and of a long length.
pub(super) const LONG_BYTES: usize = RECORD_BYTES + 4;

/// The destination of messages.
pub(crate) struct Feed<'a, S> {
    pub from: Key,
    pub max_message: usize,
    pub counts: &'a mut ReliableCounts,
    pub sink: &'a mut S,
}

/// The state between two segments.
#[derive(Default)]
pub(crate) struct Records {
    /// The begin of a message, or messages that wait for room.
    kept: Vec<u8>,
    stalled: bool,
    /// The stream announced a message that is too large. Its further bytes are ignored.
    broken: bool,
}

/// The beginning and the end of the message at the front of some bytes. `None`: its length is not complete.
fn first(bytes: &[u8]) -> Option<(usize, usize)> {
    let short = u16::from_le_bytes(*bytes.first_chunk()?);
    if short != LONG {
        return Some((RECORD_BYTES, RECORD_BYTES + usize::from(short)));
    }
    let long = u32::from_le_bytes(*bytes.get(RECORD_BYTES..)?.first_chunk()?);
    Some((LONG_BYTES, LONG_BYTES + long as usize))
}

impl Records {
    /// True if no message waits for room, and the stream is not broken.
    pub fn is_clear(&self) -> bool {
        !self.stalled && !self.broken
    }

    /// True if messages wait for room.
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.kept.len()
    }

    /// Bytes that wait for room.
    pub fn undelivered(&self) -> usize {
        if self.stalled { self.kept.len() } else { 0 }
    }

    /// Adds the next bytes.
    pub fn feed<S: Sink>(&mut self, mut bytes: &[u8], feed: &mut Feed<'_, S>) {
        if self.broken {
            return;
        }
        if self.stalled {
            let mut kept = std::mem::take(&mut self.kept);
            kept.extend_from_slice(bytes);
            self.stalled = false;
            let left = self.deliver(&kept, feed);
            kept.drain(..kept.len() - left);
            self.kept = kept;
            return;
        }
        // The rest of the message that was begun.
        while !self.kept.is_empty() && !bytes.is_empty() {
            let wanted = match first(&self.kept) {
                Some((begin, end)) if end - begin > feed.max_message => break,
                Some((_, end)) => end - self.kept.len(),
                None => 1,
            };
            let (now, later) = bytes.split_at(wanted.min(bytes.len()));
            self.kept.extend_from_slice(now);
            bytes = later;
            if first(&self.kept).is_some_and(|(_, end)| end <= self.kept.len()) {
                break;
            }
        }
        if !self.kept.is_empty() {
            let kept = std::mem::take(&mut self.kept);
            let left = self.deliver(&kept, feed);
            self.kept.extend_from_slice(&kept[kept.len() - left..]);
            if self.stalled {
                self.kept.extend_from_slice(bytes);
            }
            if self.stalled || bytes.is_empty() {
                return;
            }
        }
        let left = self.deliver(bytes, feed);
        self.kept.extend_from_slice(&bytes[bytes.len() - left..]);
    }

    /// Delivers the whole messages at the front, while there is room. Returns how many bytes are left.
    fn deliver<S: Sink>(&mut self, bytes: &[u8], feed: &mut Feed<'_, S>) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.broken {
            let (count, end) = self.run(&bytes[at..], feed);
            if count > 0 {
                let messages = Messages::from_parts(count, &bytes[at..at + end], false);
                feed.sink.deliver(feed.from, messages, None);
                feed.counts.received += count as u64;
                at += end;
                continue;
            }
            let Some((begin, end)) = first(&bytes[at..]) else { break };
            if end - begin > feed.max_message {
                self.broken = true;
                break;
            }
            if end > bytes.len() - at {
                break;
            }
            if !feed.sink.room(feed.from.id).fits(1, end - begin) {
                self.stalled = true;
                break;
            }
            feed.sink.deliver(feed.from, Messages::reassembled(&bytes[at + begin..at + end]), None);
            feed.counts.received += 1;
            at += end;
        }
        if self.broken {
            return 0;
        }
        bytes.len() - at
    }

    /// The short messages at the front that a mailbox has room for: how many, and where they end.
    fn run<S: Sink>(&self, bytes: &[u8], feed: &mut Feed<'_, S>) -> (usize, usize) {
        let room: Room = feed.sink.room(feed.from.id);
        let (mut count, mut at, mut size) = (0, 0, 0);
        while let Some((RECORD_BYTES, end)) = first(&bytes[at..]) {
            let length = end - RECORD_BYTES;
            if at + end > bytes.len() || length > feed.max_message || !room.fits(count + 1, size + length) {
                break;
            }
            (count, at, size) = (count + 1, at + end, size + length);
        }
        (count, at)
    }
}
