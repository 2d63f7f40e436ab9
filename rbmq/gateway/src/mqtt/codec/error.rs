//! Versions, and what is wrong with bytes.

use super::reason;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// MQTT 3.1.1.
    V311,
    /// MQTT 5.
    V5,
}

/// Bytes are no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes cannot be parsed.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// The packet may not have this content.
    #[error("protocol error: {0}")]
    Protocol(&'static str),
    /// The packet is too large.
    #[error("a packet of {bytes} bytes is too large; the limit is {most} bytes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest size.
        most: usize,
    },
    /// The packet has more of something than the limit.
    #[error("too many {0}")]
    TooMany(&'static str),
    /// CONNECT asks for a version that is not 3.1.1 or 5. The level that it asks for is attached.
    #[error("version {0} of the protocol is not supported")]
    Version(u8),
}

impl DecodeError {
    /// The reason code of MQTT 5.
    pub fn reason(&self) -> u8 {
        match self {
            Self::Malformed(_) => reason::MALFORMED,
            Self::Protocol(_) => reason::PROTOCOL,
            Self::TooLarge { .. } => reason::PACKET_TOO_LARGE,
            Self::TooMany(_) => reason::QUOTA,
            Self::Version(_) => reason::VERSION,
        }
    }
}
