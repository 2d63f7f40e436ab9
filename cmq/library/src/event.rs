//! The fate of messages: single events, and counters.

use std::net::SocketAddr;

use crate::key::Key;
use crate::security::PublicKey;
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
    /// The sender closed its stream, and each of its messages was received or reported. Or it ended a link of the reliable mode, whose
    /// messages are in their mailboxes.
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
    /// A handshake with another queue succeeded: its datagrams are encrypted and authentic from here on.
    Secured {
        /// The address of the other queue.
        peer: SocketAddr,
        /// Its public key.
        key: PublicKey,
        /// True if a session with it gets new keys.
        renewed: bool,
    },
    /// A handshake with another queue failed, and the messages that waited for it are lost.
    HandshakeFailed {
        /// The address of the other queue.
        to: SocketAddr,
        /// The number of messages that waited.
        messages: u64,
        /// The reason.
        why: HandshakeError,
    },
    /// A queue with a key refused a datagram.
    Refused {
        /// The source address, which may be forged.
        from: SocketAddr,
        /// The reason.
        why: Refusal,
    },
    /// Messages of the reliable mode were given up: they were not confirmed. They may have arrived all the same.
    Undelivered {
        /// The key that they were pushed to.
        to: Key,
        /// The number of the first of them, among those of the key.
        first: u64,
        /// The number of messages.
        count: u64,
        /// The reason.
        why: Undelivered,
    },
    /// The receiving queue at an address was restarted, or has forgotten this one. Messages of the reliable mode that it had not
    /// confirmed are [`Event::Undelivered`]; later ones go to the new queue.
    PeerRestarted {
        /// The address of the receiving queue.
        to: SocketAddr,
    },
    /// A queue with a key refuses the datagrams of this queue, since this queue has no key. The report may be forged.
    EncryptionRequired {
        /// The address of the other queue.
        by: SocketAddr,
    },
}

/// Why messages of the reliable mode were given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Undelivered {
    /// Nothing was confirmed for [`Reliable::give_up`](crate::Reliable::give_up): the receiver is down, cannot be reached, or does not
    /// use the reliable mode.
    #[error(
        "no confirmation came in time: the receiver is down, cannot be reached, or has the reliable mode off"
    )]
    NoAnswer,
    /// The receiver answers, and its mailbox or its memory has had no room for this long.
    #[error("the receiver had no room for too long")]
    Full,
    /// The receiver was restarted, or has forgotten the sender.
    #[error("the receiver was restarted")]
    Restarted,
}

/// The counters of a queue with the reliable mode. All zero without it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReliableCounts {
    /// Messages pushed.
    pub pushed: u64,
    /// Messages that their receivers confirmed.
    pub confirmed: u64,
    /// Messages that were given up.
    pub failed: u64,
    /// Segments sent, those that were sent again included.
    pub segments: u64,
    /// Segments that were sent again.
    pub repeated: u64,
    /// Time-outs: nothing was acknowledged for too long. The oldest segments were sent again.
    pub timeouts: u64,
    /// Segments that receivers had no room for. They leave again when there is room, and the window stays as it is.
    pub postponed: u64,
    /// Bytes of messages that are not confirmed now.
    pub unconfirmed_bytes: u64,
    /// Messages received.
    pub received: u64,
    /// Segments that arrived a second time.
    pub duplicated: u64,
    /// Segments that were refused for want of memory or credit. They come again.
    pub refused: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Datagrams for links that are not known, and acknowledgements that are not true.
    pub strange: u64,
    /// Bytes that wait for missing ones, or for room in a mailbox, now.
    pub waiting_bytes: u64,
    /// Senders that are remembered now.
    pub links: u64,
}

/// Why messages cannot be encrypted for an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The caller's: the public key of the queue at the address is not known.
    #[error(
        "the public key of the queue at this address is not known: set it with Security::peer or default_peer"
    )]
    NoKey,
    /// The caller's: the public key is none.
    #[error("the public key of the queue at this address is no key")]
    BadKey,
    /// No queue with this public key answered in time: it is down, has another key, another shared secret or no key, or does not
    /// allow this queue.
    #[error(
        "no queue with this public key answered: it is down, has another key or none, or does not allow this queue"
    )]
    NoAnswer,
    /// This queue's: too many handshakes run at a time.
    #[error("too many handshakes run at a time; push the messages again later")]
    Busy,
}

/// Why a queue with a key refused a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The sender has no key.
    #[error("the sender does not encrypt: give it a key, and the public key of this queue")]
    Plain,
    /// The datagram is not authentic: it is forged or damaged, or meant for another key.
    #[error("the datagram is forged, damaged, or meant for a queue with another key")]
    Forged,
    /// The datagram has arrived before, or is too old to tell.
    #[error("the datagram has arrived before")]
    Replayed,
    /// The session of the datagram is not known: this queue was restarted, or the session is over. The sender begins another one.
    #[error("the session is not known; the sender begins another one")]
    UnknownSession,
    /// The sender has a key that is not allowed.
    #[error("the key {0} is not allowed")]
    Stranger(PublicKey),
    /// Too many handshakes of its host are incomplete.
    #[error("too many handshakes of this host are incomplete")]
    Crowded,
}

/// The counters of a queue with a key. All zero without a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecurityCounts {
    /// Handshakes that succeeded.
    pub handshakes: u64,
    /// Handshakes that gave a session new keys.
    pub renewals: u64,
    /// Handshakes that this queue began and that got no answer.
    pub failed: u64,
    /// Sessions that exist now.
    pub sessions: u64,
    /// Sessions that made room for others.
    pub evicted: u64,
    /// Plain datagrams, which were refused.
    pub plain: u64,
    /// Datagrams that are not authentic.
    pub forged: u64,
    /// Datagrams that arrived a second time, or too late to tell.
    pub replayed: u64,
    /// Datagrams for sessions that are not known.
    pub unknown_sessions: u64,
    /// Handshakes of queues that are not allowed.
    pub strangers: u64,
    /// Handshakes that were refused because too many of the same host are incomplete.
    pub crowded: u64,
    /// Handshakes that were answered with the demand for a cookie.
    pub cookies: u64,
    /// Reports of peers that do not know a session.
    pub resets: u64,
    /// Encrypted datagrams that do not follow the format.
    pub malformed: u64,
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
    /// True for a link of the reliable mode: its sender closes it when everything is confirmed or given up. Of its counts only
    /// `received` is not 0.
    pub reliable: bool,
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
    /// Encryption.
    pub security: SecurityCounts,
    /// The reliable mode.
    pub reliable: ReliableCounts,
}
