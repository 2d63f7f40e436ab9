//! Errors, one enum for each operation.

use std::io;

use crate::config::ConfigError;

/// Why a queue could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The caller's: the address belongs to no network interface of this machine, or another socket uses it.
    #[error("cannot bind the address: {0}")]
    Bind(io::Error),
    /// The caller's: a setting is out of its range.
    #[error("configuration: {0}")]
    Config(#[from] ConfigError),
    /// The system refused a socket option or a thread.
    #[error("the system refused: {0}")]
    System(io::Error),
}

/// Why a push failed. No part of the message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// An outcome, not a failure: [`pending_bytes`](crate::Config::pending_bytes) already wait for the network. Push the
    /// message again later, or drop it.
    #[error("the limit of pending bytes is reached; push the message again later")]
    Full,
    /// The caller's: the message is larger than `max_message`, or larger than a datagram with
    /// [`Oversize::Reject`](crate::Oversize::Reject).
    #[error("the message has {size} bytes; the limit is {limit}")]
    TooLarge {
        /// Bytes of the encoded message.
        size: usize,
        /// The largest size that can be sent.
        limit: usize,
    },
    /// The caller's: the type cannot be encoded. postcard cannot write a sequence whose length is not known in advance.
    #[error("the message cannot be encoded")]
    Encode,
    /// The caller's: the address has another IP version than this queue, or its port is 0.
    #[error("this queue cannot send to the address: another IP version, or port 0")]
    Address,
    /// The caller's: a queue with a key cannot send to a group, whose members have different keys, and no reliable message can be sent
    /// to one.
    #[error("encrypted and reliable messages cannot be sent to a group")]
    Multicast,
    /// The caller's: [`Config::reliable`](field@crate::Config::reliable) is `None`.
    #[error("the reliable mode of this queue is off: turn it on (`reliable`) when the queue is opened")]
    ReliableOff,
}
