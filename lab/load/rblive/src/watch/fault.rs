//! Faults that viewers report.

use std::fmt;

/// The kind of a fault, by which faults are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The server cannot be reached, or a connection broke, or an answer took too long.
    Connection,
    /// An answer has another status than 200.
    Status,
    /// A playlist is not valid, or cannot be followed.
    Playlist,
    /// A segment left the playlist, or the server, before the viewer had it.
    Expired,
    /// The playout buffer ran empty.
    Late,
    /// Bytes differ from the expected ones.
    Content,
}

/// A fault that a viewer found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    pub message: String,
}

impl Fault {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// A fault of the connection.
    pub fn connection(error: impl fmt::Display) -> Self {
        Self::new(Kind::Connection, error.to_string())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "connection",
            Self::Status => "status",
            Self::Playlist => "playlist",
            Self::Expired => "expired",
            Self::Late => "late",
            Self::Content => "content",
        })
    }
}
