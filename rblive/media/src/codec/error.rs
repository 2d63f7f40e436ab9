//! Why a decoder configuration is refused.

/// Why a configuration is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The bytes end too early or contradict each other.
    #[error("the encoder's {0} configuration is damaged")]
    Damaged(&'static str),
    /// The configuration is valid, but not supported.
    #[error("the encoder's {0} is not supported")]
    Unsupported(&'static str),
}
