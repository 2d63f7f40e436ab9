//! Why messages and datagrams went no further.

use cmq::{HandshakeError, Refusal, Undelivered};

/// Why messages were given up (`CMQ_EVENT_UNDELIVERED`, `cmq_fate`), a handshake failed (`CMQ_EVENT_HANDSHAKE_FAILED`), or a datagram was
/// refused (`CMQ_EVENT_REFUSED`). More reasons may be added.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum cmq_reason {
    /// No reason: the message was not given up.
    CMQ_REASON_NONE = 0,
    /// The other queue did not answer in time: it is down or cannot be reached; or it has the reliable mode off; or it has another key,
    /// another shared secret or none, or does not allow this queue.
    CMQ_REASON_NO_ANSWER = 1,
    /// Given up: the receiver answers, and has had no room for the messages for too long.
    CMQ_REASON_FULL = 2,
    /// Given up: the receiver was restarted, or has forgotten the sender.
    CMQ_REASON_RESTARTED = 3,
    /// No handshake: the public key of the queue at the address is not known. Set `peers` or `default_peer`.
    CMQ_REASON_NO_KEY = 4,
    /// No handshake: the public key of the queue at the address is no key.
    CMQ_REASON_BAD_KEY = 5,
    /// No handshake: too many run at a time. Push the messages again later.
    CMQ_REASON_BUSY = 6,
    /// Refused: the sender does not encrypt.
    CMQ_REASON_PLAIN = 7,
    /// Refused: the datagram is forged or damaged, or meant for another key.
    CMQ_REASON_FORGED = 8,
    /// Refused: the datagram has arrived before, or is too old to tell.
    CMQ_REASON_REPLAYED = 9,
    /// Refused: the session is not known. The sender begins another one.
    CMQ_REASON_UNKNOWN_SESSION = 10,
    /// Refused: the key of the sender is not allowed.
    CMQ_REASON_STRANGER = 11,
    /// Refused: too many handshakes of the sender's host are incomplete.
    CMQ_REASON_CROWDED = 12,
    /// A reason that this version of the library cannot describe.
    CMQ_REASON_OTHER = 13,
}

use cmq_reason::*;

impl From<Undelivered> for cmq_reason {
    fn from(why: Undelivered) -> Self {
        match why {
            Undelivered::NoAnswer => CMQ_REASON_NO_ANSWER,
            Undelivered::Full => CMQ_REASON_FULL,
            Undelivered::Restarted => CMQ_REASON_RESTARTED,
            _ => CMQ_REASON_OTHER,
        }
    }
}

impl From<HandshakeError> for cmq_reason {
    fn from(why: HandshakeError) -> Self {
        match why {
            HandshakeError::NoKey => CMQ_REASON_NO_KEY,
            HandshakeError::BadKey => CMQ_REASON_BAD_KEY,
            HandshakeError::NoAnswer => CMQ_REASON_NO_ANSWER,
            HandshakeError::Busy => CMQ_REASON_BUSY,
            _ => CMQ_REASON_OTHER,
        }
    }
}

impl From<Refusal> for cmq_reason {
    fn from(why: Refusal) -> Self {
        match why {
            Refusal::Plain => CMQ_REASON_PLAIN,
            Refusal::Forged => CMQ_REASON_FORGED,
            Refusal::Replayed => CMQ_REASON_REPLAYED,
            Refusal::UnknownSession => CMQ_REASON_UNKNOWN_SESSION,
            Refusal::Stranger(_) => CMQ_REASON_STRANGER,
            Refusal::Crowded => CMQ_REASON_CROWDED,
            _ => CMQ_REASON_OTHER,
        }
    }
}
