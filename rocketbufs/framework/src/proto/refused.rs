//! Why a subscription is refused, by the sender or by this end.

use super::RefuseCode;
use crate::ground::limits::PolicySet;
use crate::ground::types::Position;

/// Why a subscription was refused or ended early, and by which end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedError {
    /// The sender said no.
    #[error("{}", explain(*code, *a, *b))]
    Peer {
        /// Its reason.
        code: RefuseCode,
        /// A number that belongs to it.
        a: u64,
        /// Another.
        b: u64,
    },
    /// The log begins at the last position: no byte fits.
    #[error("the log begins at the last position, {start}, where no byte fits")]
    NoPositions {
        /// Where the log begins.
        start: Position,
    },
    /// No memory for the ring here.
    #[error("no memory for the ring here: {0}")]
    Memory(String),
    /// All rings here together would take more than they may.
    #[error(
        "a ring of {asked} bytes does not fit here: {in_use} of at most {max} bytes (buffers.max_ring_bytes) are in use"
    )]
    TooManyBytes {
        /// The bytes of the refused ring.
        asked: u64,
        /// The bytes of the rings that exist.
        in_use: u64,
        /// The limit.
        max: u64,
    },
    /// Larger deliveries follow than those for which the ring may grow.
    #[error(
        "deliveries of {max_delivery} bytes need a ring of {needed}, and the ring here may have {most}: let it have more \
         (SubscribeOptions::max_size_bytes; rbmq: max_message_bytes of the subscriber), or have smaller ones published"
    )]
    Outgrown {
        /// The largest ring that the subscription takes, in bytes.
        most: u64,
        /// The largest delivery, in bytes.
        max_delivery: u64,
        /// The ring that it needs, in bytes.
        needed: u64,
    },
    /// The application does not let the ring take so much memory: see [`SubscribeOptions::growth_check`](crate::SubscribeOptions::growth_check).
    #[error("the ring may not grow here: {0}")]
    NotAllowed(String),
    /// The budget here has no room for a ring of twice the largest delivery, rounded up to a power of two.
    #[error(
        "deliveries of up to {max_delivery} bytes need a ring of {least}, twice that rounded up to a power of two; \
         the budget has {budget}: make it larger, or have the publisher make its max_delivery smaller"
    )]
    Budget {
        /// The budget, in bytes.
        budget: u64,
        /// The buffer's largest delivery, in bytes.
        max_delivery: u64,
        /// The least size of the budget, in bytes.
        least: u64,
    },
}

impl RefusedError {
    /// Returns the policies that the sender allows, if it refused the policy of the subscription because others are allowed.
    pub fn allowed_policies(&self) -> Option<PolicySet> {
        match self {
            Self::Peer { code: RefuseCode::PolicyNotAllowed, a, .. } if *a != 0 => {
                Some(PolicySet::from_bits(*a))
            }
            _ => None,
        }
    }
}

impl From<rocketring::PoolError> for RefusedError {
    fn from(error: rocketring::PoolError) -> Self {
        match error {
            rocketring::PoolError::Limit { asked, in_use, max } => Self::TooManyBytes { asked, in_use, max },
            other => Self::Memory(other.to_string()),
        }
    }
}

fn explain(code: RefuseCode, a: u64, b: u64) -> String {
    match code {
        RefuseCode::NoSuchBuffer => "the peer has no such buffer".into(),
        RefuseCode::RingTooSmall => {
            format!(
                "the ring has {a} bytes; this buffer's deliveries need one of at least {b}; let it have more \
                 (SubscribeOptions::size_bytes or max_size_bytes; rbmq: max_message_bytes of the subscriber)"
            )
        }
        RefuseCode::PolicyNotAllowed if a != 0 => {
            format!("the policy is not allowed for this buffer: ask for another one (rbmq sub: --policy); allowed: {}", PolicySet::from_bits(a))
        }
        RefuseCode::PolicyNotAllowed => {
            "the policy cannot be had for this buffer (block and drop need flow control, overwrite its absence)".into()
        }
        RefuseCode::TooMany => format!("the peer has {a} subscriptions on this connection, its limit is {b}"),
        RefuseCode::BadWireId => "the wire id is in use".into(),
        RefuseCode::NotAnOut => "the other end of this connection is no rOut".into(),
        RefuseCode::NotAllowed => {
            "the peer does not let this end read the buffer (any more); ask its operator for the right".into()
        }
        RefuseCode::TooSlow => format!("too slow: {a} bytes behind; read faster, or ask for another policy"),
    }
}
