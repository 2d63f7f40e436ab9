//! What can go wrong, one enum for each operation.

use std::io;

use crate::config::ConfigError;

/// Why a queue could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address is of no network interface here, or somebody has it: choose another.
    #[error("cannot take the address: {0}")]
    Bind(io::Error),
    /// A setting is out of its range.
    #[error("configuration: {0}")]
    Config(#[from] ConfigError),
    /// The system refused a socket option or a thread.
    #[error("the system refused: {0}")]
    System(io::Error),
}

/// Why a message was not taken. Nothing of it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// An outcome, not a failure: `pending_bytes` wait for the network already. Push it again later, or not at all.
    #[error("as many bytes wait to be sent as may; push again later")]
    Full,
    /// The caller's: it is larger than `max_message`, or than a datagram and `large` is `Refuse`.
    #[error("the message has {size} bytes, at most {limit} can be sent")]
    TooLarge {
        /// Bytes of the encoded message.
        size: usize,
        /// The most there may be.
        limit: usize,
    },
    /// The caller's: its type cannot be encoded (postcard cannot write a sequence whose length is not known before).
    #[error("the message cannot be encoded")]
    Encode,
    /// The caller's: the address is of the other IP version than the queue's, or its port is 0.
    #[error("this queue cannot send to that address")]
    Address,
}
