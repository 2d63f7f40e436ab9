//! What can be wrong with bytes that a peer sent.

use rocketbufs::fields::FieldError;

/// What is wrong with the bytes of a peer: the fault of whoever sent them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A field is missing, or says what it cannot say.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// They do not begin with `RBMQ`: the peer speaks something else.
    #[error("the peer's hello is not RBMQ's; it is another program")]
    NotRbmq,
    /// The version is not spoken here.
    #[error("the peer speaks version {theirs} of RBMQ, this end speaks {ours}; update the older of the two")]
    Version {
        /// What the peer said.
        theirs: u8,
        /// What this build speaks.
        ours: u8,
    },
    /// A topic's name that no topic can have.
    #[error(transparent)]
    Topic(#[from] super::TopicError),
    /// A filter that no filter can be.
    #[error(transparent)]
    Filter(#[from] super::FilterError),
}

impl DecodeError {
    /// A field has a value that it cannot have.
    pub(crate) fn value(field: &'static str, value: impl Into<u64>) -> Self {
        FieldError::value(field, value).into()
    }
}
