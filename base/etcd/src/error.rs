//! Why a call of etcd has no result.

use std::io;

use super::endpoint::Endpoint;

/// Why a call of etcd has no result. A change may have been made nevertheless, unless etcd refused it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// Nobody answers there: the fault of the network, of the address, or of an etcd that is down.
    #[error("etcd at {endpoint}: {source}")]
    Unreachable {
        /// Where.
        endpoint: String,
        /// The system's error.
        source: io::Error,
    },
    /// There was no answer in time. An etcd without a majority of its members answers so.
    #[error("etcd at {endpoint} did not answer in time")]
    TimedOut {
        /// Where.
        endpoint: String,
    },
    /// The answer makes no sense: there is no etcd at this address, or something between changes what it says.
    #[error("etcd at {endpoint} gives an answer that makes no sense: {problem}")]
    Answer {
        /// Where.
        endpoint: String,
        /// What is wrong.
        problem: String,
    },
    /// etcd cannot do it now.
    #[error("etcd at {endpoint} cannot answer (status {status}): {message}")]
    Unavailable {
        /// Where.
        endpoint: String,
        /// The status of HTTP.
        status: u16,
        /// Its words.
        message: String,
    },
    /// etcd will not do it, also not at another endpoint: user, password or rights are wrong, or a lease is gone.
    #[error("etcd at {endpoint} refuses: {message}")]
    Refused {
        /// Where.
        endpoint: String,
        /// The code of gRPC: 5 not found, 7 no right, 16 not logged in.
        code: i64,
        /// Its words.
        message: String,
    },
}

/// The code of gRPC for a caller that is not logged in.
const UNAUTHENTICATED: i64 = 16;

/// Codes of gRPC after which another endpoint would say the same: wrong argument, not found, no right, not possible in this state, not logged in.
const FINAL: [i64; 5] = [3, 5, 7, 9, UNAUTHENTICATED];

/// The words of an answer that is longer than this client takes.
pub(crate) const TOO_LONG: &str = "the answer has more than";

impl EtcdError {
    /// What went wrong on a connection.
    pub(crate) fn of_io(endpoint: &Endpoint, error: io::Error) -> Self {
        let endpoint = endpoint.to_string();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TimedOut { endpoint },
            io::ErrorKind::InvalidData if error.get_ref().is_some_and(|inner| inner.is::<Senseless>()) => {
                Self::Answer { endpoint, problem: error.to_string() }
            }
            _ => Self::Unreachable { endpoint, source: error },
        }
    }

    /// Whether a shorter answer would have come: etcd and this client have limits.
    pub(crate) fn is_too_long(&self) -> bool {
        match self {
            Self::Answer { problem, .. } => problem.contains(TOO_LONG),
            Self::Unavailable { message, .. } => message.contains("larger than max"),
            _ => false,
        }
    }

    /// Whether another endpoint would answer the same.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// Whether the token is no more valid, as after a restart of etcd.
    pub(crate) fn wants_login(&self) -> bool {
        // etcd 3.4 answers an old revision of its users with code 3.
        matches!(self, Self::Refused { code, message, .. }
            if *code == UNAUTHENTICATED || message.contains("revision of auth store"))
    }

    /// An answer of etcd that is an error.
    pub(crate) fn of_status(endpoint: &Endpoint, status: u16, code: i64, message: String) -> Self {
        let endpoint = endpoint.to_string();
        match FINAL.contains(&code) || matches!(status, 401 | 403) {
            true => Self::Refused { endpoint, code, message },
            false => Self::Unavailable { endpoint, status, message },
        }
    }
}

/// Marks an [`io::Error`] as an answer that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Senseless(pub(crate) String);

/// An error of the connection for an answer that makes no sense.
pub(crate) fn senseless(problem: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Senseless(problem.into()))
}
