//! The framing of a topic.

use super::DecodeError;

/// The structure of the bytes in a topic's deliveries. The broker does not read them; it passes the framing on to subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Framing {
    /// Deliveries hold whole records: `u32` length (little endian) and as many bytes.
    #[default]
    Records,
    /// Deliveries hold plain bytes: a stream without boundaries.
    Raw,
    /// Deliveries hold runs: the number of a publisher, a length, and whole records of that publisher. Only brokers write runs, for
    /// topics whose publishers share a ring.
    Merged,
}

impl Framing {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Records => 0,
            Self::Raw => 1,
            Self::Merged => 2,
        }
    }

    pub(crate) fn from_code(code: u8) -> Result<Self, DecodeError> {
        match code {
            0 => Ok(Self::Records),
            1 => Ok(Self::Raw),
            2 => Ok(Self::Merged),
            other => Err(DecodeError::value("framing", other)),
        }
    }
}

impl std::fmt::Display for Framing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Records => "records",
            Self::Raw => "raw",
            Self::Merged => "merged",
        })
    }
}
