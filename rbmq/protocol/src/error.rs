//! Errors of decoding.

use rocketbufs::fields::FieldError;

/// Bytes of a peer cannot be decoded. The peer is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A field is missing or has an invalid value.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The hello does not begin with `RBMQ`. The peer is another program.
    #[error("the peer's hello is not RBMQ's; it is another program")]
    NotRbmq,
    /// The peer has another version of the protocol.
    #[error("the peer speaks version {theirs} of RBMQ, this end speaks {ours}; update the older of the two")]
    Version {
        /// The version of the peer.
        theirs: u8,
        /// The version of this program.
        ours: u8,
    },
    /// The name of a topic is not valid.
    #[error(transparent)]
    Topic(#[from] super::TopicError),
    /// A filter is not valid.
    #[error(transparent)]
    Filter(#[from] super::FilterError),
    /// The pattern of a space is not valid.
    #[error(transparent)]
    Space(#[from] super::SpaceError),
}

impl DecodeError {
    /// A field has an invalid value.
    pub(crate) fn value(field: &'static str, value: impl Into<u64>) -> Self {
        FieldError::value(field, value).into()
    }
}
