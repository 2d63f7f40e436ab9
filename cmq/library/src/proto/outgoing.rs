//! Datagrams that are ready to be sent, of both modes and of the handshakes.
//!
//! ```text
//!   batches, flights, answers ──▶ OutgoingQueue ── take_ready ──▶ Outgoing: sent without the lock
//!                                      ▲                             │
//!                                      └── give_back: what is unsent ┘
//! ```

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::wire::{MAX_DATAGRAM, messages_ending_in, secured};

/// The most datagrams in one batch: the kernel cuts at most 64 in one call.
pub(crate) const MAX_SEGMENTS: usize = 64;
/// Empty buffers kept for later batches.
const POOLED_BUFFERS: usize = 64;
/// The largest buffer that is kept.
pub(crate) const POOLED_BUFFER_BYTES: usize = 1 << 17;

/// How many datagrams of this length one call sends.
pub(crate) fn segments_per_call(segment: usize) -> usize {
    (MAX_DATAGRAM / segment).clamp(1, MAX_SEGMENTS)
}

/// The room around each plain datagram of a batch, in which it is encrypted in place. Without encryption there is none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frame {
    /// Bytes before the plain datagram.
    pub head: usize,
    /// Bytes behind it.
    pub tail: usize,
}

impl Frame {
    /// The frame of a queue that encrypts, or of one that does not.
    pub fn new(encrypts: bool) -> Frame {
        if encrypts {
            Frame { head: secured::HEADER_BYTES, tail: secured::TAG_BYTES }
        } else {
            Frame::default()
        }
    }

    /// A plain datagram in its frame.
    pub fn wrap(self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.wrap_into(&mut bytes, write);
        bytes
    }

    /// The same, in place of what `bytes` has.
    pub fn wrap_into(self, bytes: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        bytes.clear();
        bytes.resize(self.head, 0);
        write(bytes);
        bytes.resize(bytes.len() + self.tail, 0);
    }

    /// The bytes of both.
    pub fn bytes(self) -> usize {
        self.head + self.tail
    }
}

/// A sealed batch: datagrams for one address, all `segment` bytes long except the last.
pub(crate) struct Batch {
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
    pub segment: usize,
    pub messages: u64,
    /// The bytes at the front that are already sent.
    pub sent_bytes: usize,
    frame: Frame,
    /// Where the datagrams end. Behind them a sealed batch has the number of messages that end in each of them.
    end: usize,
}

/// Bytes of the number of messages that end in a sealed datagram.
const COUNT_BYTES: usize = 2;

impl Batch {
    /// A batch of which nothing is sent.
    pub fn new(to: SocketAddr, frame: Frame, bytes: Vec<u8>, segment: usize, messages: u64) -> Batch {
        let end = bytes.len();
        Batch { to, bytes, segment, messages, sent_bytes: 0, frame, end }
    }

    /// The datagrams that are not sent yet.
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent_bytes..self.end]
    }

    /// Bytes of all datagrams.
    pub fn len(&self) -> usize {
        self.end
    }

    /// The number of all datagrams.
    pub fn datagrams(&self) -> usize {
        self.end.div_ceil(self.segment)
    }

    /// True if the datagrams must be sealed before they are sent.
    pub fn is_plain(&self) -> bool {
        self.frame.head > 0
    }

    /// Seals the datagrams in place: `seal` gets each of them, with room for what goes around it.
    pub fn seal(&mut self, mut seal: impl FnMut(usize, &mut [u8])) {
        let Frame { head, tail } = std::mem::take(&mut self.frame);
        for (number, at) in (0..self.end).step_by(self.segment).enumerate() {
            let end = (at + self.segment).min(self.end);
            if self.messages > 0 && self.segment < self.end {
                let count = messages_ending_in(&self.bytes[at + head..end - tail]) as u16;
                self.bytes.extend_from_slice(&count.to_le_bytes());
            }
            seal(number, &mut self.bytes[at..end]);
        }
    }

    /// The number of datagrams that are not sent yet.
    pub fn unsent_datagrams(&self) -> usize {
        self.unsent().len().div_ceil(self.segment)
    }

    /// Marks datagrams as sent. Returns `None` if some of this batch are unsent, and else how many belong to
    /// later batches.
    fn mark_sent(&mut self, datagrams: usize) -> Option<usize> {
        let all = self.unsent_datagrams();
        if datagrams < all {
            self.sent_bytes += datagrams * self.segment;
            return None;
        }
        Some(datagrams - all)
    }

    /// Messages of which a part is unsent.
    fn unsent_messages(&self) -> u64 {
        if self.sent_bytes == 0 {
            self.messages
        } else {
            let counts = &self.bytes[self.end..];
            if counts.is_empty() {
                let datagrams = self.unsent().chunks(self.segment);
                return datagrams.map(|framed| messages_ending_in(&framed[self.frame.head..])).sum();
            }
            let unsent = counts.chunks(COUNT_BYTES).skip(self.sent_bytes / self.segment);
            unsent.map(|count| u64::from(u16::from_le_bytes([count[0], count[1]]))).sum()
        }
    }
}

/// The batches taken out of an [`OutgoingQueue`], which are sent while other threads push.
pub(crate) struct Outgoing {
    batches: VecDeque<Batch>,
    /// The number of batches at the front that were sent or failed.
    finished: usize,
    /// Messages of the batches that were sent.
    pub sent_messages: u64,
}

impl Outgoing {
    /// Sends these batches in this order.
    pub fn new(batches: VecDeque<Batch>) -> Outgoing {
        Outgoing { batches, finished: 0, sent_messages: 0 }
    }

    /// Puts the unsent batches in front of batches that became ready during the send. Returns the finished batches.
    pub fn requeue_unsent(mut self, ready: &mut VecDeque<Batch>) -> impl Iterator<Item = Batch> + use<> {
        let rest = self.batches.split_off(self.finished);
        let later = std::mem::replace(ready, rest);
        ready.extend(later);
        self.batches.into_iter()
    }

    /// The batch that is sent next.
    pub fn first(&self) -> Option<&Batch> {
        self.batches.get(self.finished)
    }

    /// The unsent batches.
    pub fn unsent(&self) -> impl Iterator<Item = &Batch> {
        self.batches.iter().skip(self.finished)
    }

    /// Marks this many datagrams as sent.
    pub fn mark_sent(&mut self, mut datagrams: usize) {
        while datagrams > 0
            && let Some(batch) = self.batches.get_mut(self.finished)
        {
            let Some(more) = batch.mark_sent(datagrams) else { return };
            self.sent_messages += batch.messages;
            self.finished += 1;
            datagrams = more;
        }
    }

    /// Passes each batch through `keep`, in their order. It may keep a batch that it does not return.
    pub fn filter(&mut self, mut keep: impl FnMut(Batch) -> Option<Batch>) {
        for _ in 0..self.batches.len() {
            let batch = self.batches.pop_front().expect("as many as were counted");
            self.batches.extend(keep(batch));
        }
    }

    /// Fails the rest of the next batch. Returns its destination and the number of unsent messages.
    pub fn fail_first(&mut self) -> Option<(SocketAddr, u64)> {
        let batch = self.batches.get(self.finished)?;
        let lost = batch.unsent_messages();
        self.sent_messages += batch.messages - lost;
        self.finished += 1;
        Some((batch.to, lost))
    }
}

/// The batches that leave next. Everything that waits to be sent counts as pending, also outside of this queue.
pub(crate) struct OutgoingQueue {
    pub frame: Frame,
    /// Bytes that wait to be sent.
    pub pending: usize,
    ready: VecDeque<Batch>,
    pool: Vec<Vec<u8>>,
}

impl OutgoingQueue {
    /// An empty queue, of datagrams with this frame.
    pub fn new(frame: Frame) -> OutgoingQueue {
        OutgoingQueue { frame, pending: 0, ready: VecDeque::new(), pool: Vec::new() }
    }

    /// The batches that leave next.
    pub fn ready(&self) -> &VecDeque<Batch> {
        &self.ready
    }

    /// Adds a batch whose bytes count as pending already.
    pub fn push(&mut self, batch: Batch) {
        self.ready.push_back(batch);
    }

    /// Adds datagrams in their frames, all as long as the first one but the last.
    pub fn push_flight(&mut self, to: SocketAddr, bytes: Vec<u8>, segment: usize) {
        self.pending += bytes.len();
        self.ready.push_back(Batch::new(to, self.frame, bytes, segment, 0));
    }

    /// Adds a plain datagram.
    pub fn push_plain(&mut self, to: SocketAddr, bytes: &[u8]) {
        let framed = self.frame.wrap(|out| out.extend_from_slice(bytes));
        let segment = framed.len();
        self.push_flight(to, framed, segment);
    }

    /// Adds a datagram that is sent as it is, before all batches.
    pub fn push_raw(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        self.pending += bytes.len();
        let segment = bytes.len();
        self.ready.push_front(Batch::new(to, Frame::default(), bytes, segment, 0));
    }

    /// Puts batches that waited in front of the others.
    pub fn push_waiting(&mut self, batches: Vec<Batch>) {
        batches.into_iter().rev().for_each(|batch| self.ready.push_front(batch));
    }

    /// Takes the ready batches out, to send them without the lock. Call [`OutgoingQueue::give_back`] before the
    /// next call.
    pub fn take_ready(&mut self) -> Outgoing {
        Outgoing::new(std::mem::take(&mut self.ready))
    }

    /// Returns the batches that [`OutgoingQueue::take_ready`] gave out. Unsent batches go to the front.
    pub fn give_back(&mut self, outgoing: Outgoing) {
        for batch in outgoing.requeue_unsent(&mut self.ready) {
            self.discard(batch);
        }
    }

    /// Drops a batch that was sent, or cannot be sent.
    pub fn discard(&mut self, batch: Batch) {
        self.pending -= batch.len();
        self.recycle(batch.bytes);
    }

    /// Memory for another batch.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.pool.pop().unwrap_or_default()
    }

    /// Keeps the memory of a batch for another one.
    pub fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.pool.len() < POOLED_BUFFERS && bytes.capacity() <= POOLED_BUFFER_BYTES {
            bytes.clear();
            self.pool.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Header, Kind};

    /// A batch of datagrams with these numbers of messages.
    fn batch(port: u16, counts: &[u16]) -> Batch {
        let header = |&count| Header { kind: Kind::Batch, count, stream: 0, epoch: 0, first: 0, mailbox: 0 };
        let bytes: Vec<u8> = counts.iter().flat_map(|count| header(count).encode()).collect();
        let messages = counts.iter().map(|&count| u64::from(count)).sum();
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        let segment = bytes.len() / counts.len();
        Batch::new(to, Frame::default(), bytes, segment, messages)
    }

    /// Only the unsent rest of a failed batch is lost, and unsent batches stay in front of later ones.
    #[test]
    fn only_unsent_messages_fail() {
        let mut outgoing = Outgoing::new([batch(1, &[2, 2, 2, 1]), batch(2, &[9])].into());
        outgoing.mark_sent(1);
        assert_eq!(outgoing.sent_messages, 0, "a batch counts when it is done with");
        let mut ready = VecDeque::from([batch(3, &[1])]);
        assert_eq!(outgoing.requeue_unsent(&mut ready).count(), 0);
        let mut outgoing = Outgoing::new(ready);
        let waits: Vec<_> =
            outgoing.unsent().map(|batch| (batch.to.port(), batch.unsent_datagrams())).collect();
        assert_eq!(waits, [(1, 3), (2, 1), (3, 1)]);
        let (to, lost) = outgoing.fail_first().expect("a message is here");
        assert_eq!((to.port(), lost, outgoing.sent_messages), (1, 5, 2));
        outgoing.mark_sent(1);
        assert_eq!((outgoing.sent_messages, outgoing.unsent().count()), (11, 1));
        let mut ready = VecDeque::new();
        assert_eq!((outgoing.requeue_unsent(&mut ready).count(), ready.len()), (2, 1));
    }
}
