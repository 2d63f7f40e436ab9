//! The fate of messages: single events, and counters.

use std::net::SocketAddr;

use crate::wire::Malformed;

/// Something that happened to messages. The counters are exact; events that find no room in the event queue are dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The first datagram of a sender's stream arrived.
    Joined {
        /// The sender.
        from: SocketAddr,
        /// Messages that the sender sent to this address before. They went to an earlier receiver, or were lost.
        missed: u64,
        /// True if another epoch was known at this address: the sender was restarted.
        restarted: bool,
    },
    /// Messages were lost.
    Lost {
        /// The sender.
        from: SocketAddr,
        /// The number of the first lost message.
        first: u64,
        /// The number of lost messages.
        count: u64,
    },
    /// Messages arrived after their loss was reported, and were dropped.
    Late {
        /// The sender.
        from: SocketAddr,
        /// The number of late messages.
        count: u64,
    },
    /// Messages arrived a second time, and were dropped.
    Duplicated {
        /// The sender.
        from: SocketAddr,
        /// The number of duplicated messages.
        count: u64,
    },
    /// Messages arrived after messages that were sent later.
    Reordered {
        /// The sender.
        from: SocketAddr,
        /// The number of reordered messages.
        count: u64,
    },
    /// The sender closed its stream, and each of its messages was received or reported.
    Closed {
        /// The sender.
        from: SocketAddr,
        /// The number of messages of the stream.
        sent: u64,
    },
    /// The stream was evicted because there are too many. The next datagram of the sender begins with `Joined`.
    Evicted {
        /// The sender.
        from: SocketAddr,
    },
    /// A mailbox was full.
    Overflowed {
        /// The sender whose messages arrived when the mailbox was full.
        from: SocketAddr,
        /// The mailbox.
        id: u32,
        /// The number of dropped messages.
        count: u64,
    },
    /// Messages are not of the queue's type, and were dropped.
    Undecodable {
        /// The sender.
        from: SocketAddr,
        /// The number of dropped messages.
        count: u64,
    },
    /// A datagram does not follow the protocol.
    Malformed {
        /// The source address, which may be forged.
        from: SocketAddr,
        /// The fault of the datagram.
        why: Malformed,
    },
    /// The system did not send messages. The receiver reports them as lost.
    SendFailed {
        /// The destination.
        to: SocketAddr,
        /// The number of messages.
        messages: u64,
        /// The system's error number.
        errno: i32,
    },
}

/// Messages received from one sender, or from all senders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveCounts {
    /// Messages that arrived in time, including those that a mailbox dropped as overflowed or undecodable.
    pub received: u64,
    /// Messages that were lost. After the sender closed, `received + lost + missed` is the number that it sent.
    pub lost: u64,
    /// Messages that were sent before the first one that arrived.
    pub missed: u64,
    /// Messages that arrived a second time, and were dropped.
    pub duplicated: u64,
    /// Messages that arrived after later ones, and in time.
    pub reordered: u64,
    /// Messages that arrived after they were reported as lost, and were dropped.
    pub late: u64,
    /// Messages that a full mailbox dropped.
    pub overflowed: u64,
    /// Messages that are not of the queue's type, and were dropped.
    pub undecodable: u64,
}

impl ReceiveCounts {
    /// Adds the counts of another sender. A sender may claim any number, so the sums saturate.
    pub(crate) fn add(&mut self, other: &ReceiveCounts) {
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

/// A stream that this queue receives: the messages of one sender to one address.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderInfo {
    /// The sender's address.
    pub from: SocketAddr,
    /// The random name of the sender's run. Another epoch at the same address is a restart.
    pub epoch: u64,
    /// The sender's number for the destination: each unicast address and multicast group has its own.
    pub stream: u32,
    /// True once the sender closed the stream, and each of its messages was received or reported.
    pub closed: bool,
    /// Bytes of its datagrams, without the headers of IP and UDP.
    pub bytes: u64,
    /// The messages of the stream.
    pub counts: ReceiveCounts,
}

/// Counters of a queue since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages handed to the network.
    pub sent: u64,
    /// Datagrams sent, including those that close streams.
    pub sent_datagrams: u64,
    /// Messages that the system did not send.
    pub send_failed: u64,
    /// Messages received from all senders, including evicted ones.
    pub counts: ReceiveCounts,
    /// Datagrams received.
    pub datagrams: u64,
    /// Received datagrams that do not follow the protocol.
    pub malformed: u64,
    /// Incomplete messages that were dropped.
    pub incomplete: u64,
    /// Events that found no room in the event queue.
    pub events_dropped: u64,
    /// Bytes that wait to be sent now.
    pub pending_bytes: u64,
    /// Streams that are remembered now.
    pub senders: u64,
}
