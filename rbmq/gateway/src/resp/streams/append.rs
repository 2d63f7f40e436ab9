//! Entries of clients on their way to the log, and their replies.

use super::super::reply::Reply;
use super::ids::Id;

/// An entry whose reply the client has not got yet.
#[derive(Debug)]
pub(in crate::resp) struct Append {
    pub(super) number: u64,
    /// None: it is not stored yet.
    pub(super) answer: Option<Answer>,
    /// The client wants no reply.
    pub(super) is_muted: bool,
}

/// What came of an entry.
#[derive(Debug)]
pub(super) enum Answer {
    Id(Id),
    /// There is no such stream, and none was to be made.
    Nothing,
    Error(String),
}

impl Answer {
    pub(super) fn write(&self, reply: &mut Reply<'_>) {
        match self {
            Self::Id(id) => reply.bulk(id.to_string()),
            Self::Nothing => reply.null(),
            Self::Error(text) => reply.error(text),
        }
    }
}
