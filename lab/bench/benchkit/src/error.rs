//! Why a process of a bench failed.

use std::io;

/// Why a process of a bench failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something; the text says what.
    #[error("the system refused: {0}")]
    Io(#[from] io::Error),
    /// A worker ended; its own message is on standard error.
    #[error("the {role} ended unexpectedly; see its message above")]
    WorkerGone {
        /// The role of the worker.
        role: String,
    },
    /// A worker does not answer.
    #[error(
        "the {role} did not answer in time: the system under test stands still, or the machine is overloaded"
    )]
    WorkerSilent {
        /// The role of the worker.
        role: String,
    },
    /// A worker sent an unexpected line: another version, or a program that is no worker.
    #[error("the {role} printed {line:?}, which is no answer: do program and worker have the same version?")]
    WorkerSaid {
        /// The role of the worker.
        role: String,
        /// The line.
        line: String,
    },
    /// A process does not begin as it should.
    #[error("{role} did not say {words:?}: {said}")]
    NeverSaid {
        /// The program.
        role: String,
        /// The words that were waited for.
        words: String,
        /// The standard error of the program.
        said: String,
    },
    /// Nothing arrived for minutes, and the harness did not end the run.
    #[error("no message and no command of the harness arrived for ten minutes")]
    Silence,
    /// The system under test delivered a wrong message. The result is void.
    #[error("after {after} messages another one arrived than was sent")]
    Wrong {
        /// The number of correct messages before.
        after: u64,
    },
}
