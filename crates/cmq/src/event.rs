//! What happens to messages, told one by one, and counted.

use std::net::SocketAddr;

use crate::wire::Malformed;

/// Something that a program may want to know. Counters say the same exactly; events are dropped when nobody reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The first datagram of a sender's stream.
    Joined {
        /// The sender.
        from: SocketAddr,
        /// Messages that it had sent to this address before: to a receiver that was here earlier, or lost.
        missed: u64,
        /// This address had another sender before: it was restarted.
        restarted: bool,
    },
    /// Messages did not come.
    Lost {
        /// The sender.
        from: SocketAddr,
        /// The number of the first of them.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Messages came after they had been reported as lost, and were dropped.
    Late {
        /// The sender.
        from: SocketAddr,
        /// How many.
        count: u64,
    },
    /// Messages came a second time, and were dropped.
    Duplicated {
        /// The sender.
        from: SocketAddr,
        /// How many.
        count: u64,
    },
    /// Messages came after such that were pushed later.
    Reordered {
        /// The sender.
        from: SocketAddr,
        /// How many.
        count: u64,
    },
    /// The sender has closed, and everything that it sent came or was reported.
    Closed {
        /// The sender.
        from: SocketAddr,
        /// How many messages it had sent to this address.
        sent: u64,
    },
    /// The sender was silent longest of too many, and is forgotten; what it sends next begins with `Joined`.
    Forgotten {
        /// The sender.
        from: SocketAddr,
    },
    /// A mailbox was full.
    Overflowed {
        /// The sender of the messages that came then.
        from: SocketAddr,
        /// The mailbox.
        id: u32,
        /// How many messages were dropped.
        count: u64,
    },
    /// Messages that are not of this queue's type, and were dropped.
    Undecodable {
        /// The sender.
        from: SocketAddr,
        /// How many.
        count: u64,
    },
    /// A datagram that is not of this protocol.
    Malformed {
        /// Where it came from, as far as it can be believed.
        from: SocketAddr,
        /// What is wrong with it.
        why: Malformed,
    },
    /// The system did not send messages; the receiver will report them as lost.
    SendFailed {
        /// Whom they were for.
        to: SocketAddr,
        /// How many.
        messages: u64,
        /// The system's number of the error.
        errno: i32,
    },
}

/// What was counted for one sender, or for all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that were put into mailboxes, or dropped there because they were full or undecodable.
    pub received: u64,
    /// Messages that did not come. `received + lost + missed` is what the sender has sent, once it closed.
    pub lost: u64,
    /// Messages that were sent before the first that came.
    pub missed: u64,
    /// Messages that came twice, and were dropped.
    pub duplicated: u64,
    /// Messages that came after such that were pushed later, and were in time.
    pub reordered: u64,
    /// Messages that came after they were reported as lost, and were dropped.
    pub late: u64,
    /// Messages dropped because a mailbox was full.
    pub overflowed: u64,
    /// Messages dropped because they are not of the queue's type.
    pub undecodable: u64,
}

impl Counts {
    /// Adds what another has counted. Senders may claim to have sent anything, so sums end at the largest number.
    pub fn add(&mut self, other: &Counts) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.received, other.received);
        add(&mut self.lost, other.lost);
        add(&mut self.missed, other.missed);
        add(&mut self.duplicated, other.duplicated);
        add(&mut self.reordered, other.reordered);
        add(&mut self.late, other.late);
        add(&mut self.overflowed, other.overflowed);
        add(&mut self.undecodable, other.undecodable);
    }
}

/// One sender's stream, as it is known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    /// Its address.
    pub from: SocketAddr,
    /// Its random name; another one at the same address is a restart.
    pub epoch: u64,
    /// Its number for the address it sends to: it has one for each unicast address and multicast group.
    pub stream: u32,
    /// Whether it said that it is done, and everything came or is reported.
    pub closed: bool,
    /// Bytes of its datagrams, without the headers of IP and UDP.
    pub bytes: u64,
    /// What was counted.
    pub counts: Counts,
}

/// What a queue has done since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages handed to the network.
    pub sent: u64,
    /// Datagrams these were in, and closing ones.
    pub sent_datagrams: u64,
    /// Messages that the system did not send.
    pub send_failed: u64,
    /// What was counted for all senders, also those that are forgotten.
    pub counts: Counts,
    /// Datagrams that came.
    pub datagrams: u64,
    /// Datagrams that were not of this protocol.
    pub malformed: u64,
    /// Incomplete messages that were given up.
    pub incomplete: u64,
    /// Events that nobody read in time.
    pub events_dropped: u64,
    /// Bytes that wait to be sent, now.
    pub pending_bytes: u64,
    /// Senders that are remembered, now.
    pub senders: u64,
}
