//! Why a bench gave no result.

use std::io;

/// Why a bench gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The system refused something; the text says what.
    #[error("the system refused: {0}")]
    Io(#[from] io::Error),
    /// A process of the bench failed.
    #[error(transparent)]
    Process(#[from] benchkit::Error),
    /// A process sent an unexpected answer.
    #[error("a process answered {said}: do the program and its peers have the same version?")]
    Answer {
        /// The answer.
        said: String,
    },
    /// Network namespaces need root.
    #[error("cmq-bench needs root, since it makes network namespaces")]
    NotRoot,
    /// Some measurements failed; the others are written.
    #[error("{failed} of {all} measurements failed; the table has the others")]
    Failed {
        /// The number of failed measurements.
        failed: usize,
        /// The number of measurements.
        all: usize,
    },
    /// The arguments select no measurement.
    #[error("nothing to measure: no selected system is installed and carries these sizes in these patterns")]
    Nothing,
}
