//! Batches that are being sent.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::wire::messages_ending_in;

/// A sealed batch: datagrams for one address, all `segment` bytes long except the last.
pub(crate) struct Batch {
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
    pub segment: usize,
    pub messages: u64,
    /// The bytes at the front that are already sent.
    pub sent_bytes: usize,
}

impl Batch {
    /// The datagrams that are not sent yet.
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent_bytes..]
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
            self.unsent().chunks(self.segment).map(messages_ending_in).sum()
        }
    }
}

/// The batches taken out of a [`Batcher`](super::batcher::Batcher), which are sent while other threads push.
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

    /// Fails the rest of the next batch. Returns its destination and the number of unsent messages.
    pub fn fail_first(&mut self) -> Option<(SocketAddr, u64)> {
        let batch = self.batches.get(self.finished)?;
        let lost = batch.unsent_messages();
        self.sent_messages += batch.messages - lost;
        self.finished += 1;
        Some((batch.to, lost))
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
        Batch { to, segment: bytes.len() / counts.len(), bytes, messages, sent_bytes: 0 }
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
