//! What leaves: batches as they are handed to the system, some now and perhaps others later.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::wire::ends;

/// What leaves in one call: datagrams for one address, all `segment` bytes long but the last.
pub(crate) struct Batch {
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
    pub segment: usize,
    pub messages: u64,
    /// Bytes of the first datagrams, which have left already.
    pub left: usize,
}

impl Batch {
    /// The datagrams that have not left yet.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.left..]
    }

    /// How many these are.
    pub fn datagrams(&self) -> usize {
        self.rest().len().div_ceil(self.segment)
    }

    /// So many datagrams are with the network: whether these are all, and else how many are left to be told of.
    fn leave(&mut self, datagrams: usize) -> Option<usize> {
        let all = self.datagrams();
        if datagrams < all {
            self.left += datagrams * self.segment;
            return None;
        }
        Some(datagrams - all)
    }

    /// Messages of which not everything has left.
    fn messages_left(&self) -> u64 {
        if self.left == 0 { self.messages } else { self.rest().chunks(self.segment).map(ends).sum() }
    }
}

/// What was ready when it was taken out, to be sent while others push.
pub(crate) struct Due {
    batches: VecDeque<Batch>,
    /// Of these so many are done with, whether they left or not.
    done: usize,
    /// Messages that left.
    pub messages: u64,
}

impl Due {
    /// These, in this order.
    pub fn new(batches: VecDeque<Batch>) -> Due {
        Due { batches, done: 0, messages: 0 }
    }

    /// Puts what is not done with before everything that became ready meanwhile; what is done with.
    pub fn back(mut self, ready: &mut VecDeque<Batch>) -> impl Iterator<Item = Batch> + use<> {
        let rest = self.batches.split_off(self.done);
        let later = std::mem::replace(ready, rest);
        ready.extend(later);
        self.batches.into_iter()
    }

    /// What leaves next.
    pub fn first(&self) -> Option<&Batch> {
        self.batches.get(self.done)
    }

    /// Everything that leaves.
    pub fn rest(&self) -> impl Iterator<Item = &Batch> {
        self.batches.iter().skip(self.done)
    }

    /// So many datagrams are with the network.
    pub fn left(&mut self, mut datagrams: usize) {
        while datagrams > 0
            && let Some(batch) = self.batches.get_mut(self.done)
        {
            let Some(more) = batch.leave(datagrams) else { return };
            self.messages += batch.messages;
            self.done += 1;
            datagrams = more;
        }
    }

    /// The next batch does not leave any more, nor what is left of it; whom it was for, and how many messages these are.
    pub fn give_up(&mut self) -> Option<(SocketAddr, u64)> {
        let batch = self.batches.get(self.done)?;
        let lost = batch.messages_left();
        self.messages += batch.messages - lost;
        self.done += 1;
        Some((batch.to, lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Header, Kind};

    /// A batch of datagrams with so many messages each.
    fn batch(port: u16, counts: &[u16]) -> Batch {
        let header = |&count| Header { kind: Kind::Batch, count, stream: 0, epoch: 0, first: 0, mailbox: 0 };
        let bytes: Vec<u8> = counts.iter().flat_map(|count| header(count).encode()).collect();
        let messages = counts.iter().map(|&count| u64::from(count)).sum();
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        Batch { to, segment: bytes.len() / counts.len(), bytes, messages, left: 0 }
    }

    /// Of a batch that left in part only the rest is lost; what was not done with leaves before what came later.
    #[test]
    fn what_is_given_up_is_what_did_not_leave() {
        let mut due = Due::new([batch(1, &[2, 2, 2, 1]), batch(2, &[9])].into());
        due.left(1);
        assert_eq!(due.messages, 0, "a batch counts when it is done with");
        let mut ready = VecDeque::from([batch(3, &[1])]);
        assert_eq!(due.back(&mut ready).count(), 0);
        let mut due = Due::new(ready);
        let waits: Vec<_> = due.rest().map(|batch| (batch.to.port(), batch.datagrams())).collect();
        assert_eq!(waits, [(1, 3), (2, 1), (3, 1)]);
        let (to, lost) = due.give_up().expect("it is there");
        assert_eq!((to.port(), lost, due.messages), (1, 5, 2));
        due.left(1);
        assert_eq!((due.messages, due.rest().count()), (11, 1));
        let mut ready = VecDeque::new();
        assert_eq!((due.back(&mut ready).count(), ready.len()), (2, 1));
    }
}
