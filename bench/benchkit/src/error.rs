//! Why a process of a bench did not do what it was asked.

use std::io;

/// Why a process of a bench did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something; the text says what.
    #[error("the system refused: {0}")]
    Io(#[from] io::Error),
    /// A worker ended; its own message is on standard error.
    #[error("the {role} ended unasked; see its message above")]
    WorkerGone {
        /// Which one.
        role: &'static str,
    },
    /// A worker does not answer.
    #[error(
        "the {role} did not answer in time: the system under test stands still, or the machine is overloaded"
    )]
    WorkerSilent {
        /// Which one.
        role: &'static str,
    },
    /// A worker of another version, or a program that is no worker.
    #[error("the {role} said {line:?}, which is not an answer: are program and worker of one version?")]
    WorkerSaid {
        /// Which one.
        role: &'static str,
        /// What it said.
        line: String,
    },
    /// Nothing came for minutes and nobody said that it was over.
    #[error("nothing arrived for ten minutes and the harness said nothing")]
    Silence,
    /// The system under test delivered something else than was sent: its fault, and the result is worth nothing.
    #[error("after {after} messages another one arrived than was sent")]
    Wrong {
        /// Messages that were right before.
        after: u64,
    },
}
