//! Why a transport stream is refused.

use crate::codec::ConfigError;

/// After as many bytes without a packet, the input is no transport stream.
pub(super) const MAX_UNSYNCED_BYTES: u64 = 64 * 188;

/// Why a stream cannot be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TsError {
    /// No packets are found.
    #[error(
        "the encoder's bytes are no MPEG transport stream: no packet begins within {MAX_UNSYNCED_BYTES} bytes"
    )]
    NotTs,
    /// A frame is too large.
    #[error("the encoder sent a frame of more than {0} bytes")]
    TooLarge(usize),
    /// A configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}
