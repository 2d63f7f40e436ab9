//! Why a command does not succeed.

use std::error::Error;
use std::fmt::Display;
use std::io;

/// Why a command did not succeed. [`status`](crate::status()) turns it into a message and an exit status. All errors convert into
/// `Failed`; those of standard output go through [`Failure::output`] instead.
#[derive(Debug)]
pub enum Failure {
    /// The arguments of the subcommand with this name do not fit together. Exit status 2, with the usage.
    Usage(&'static str, String),
    /// The command failed. The text says whose fault the failure is and what to do. Exit status 1.
    Failed(String),
    /// The command is done, but some of its data is missing. Exit status 3.
    Incomplete(String),
    /// The reader of standard output has closed it, as `head` does. Exit status 0, without a message.
    OutputClosed,
}

impl Failure {
    /// A failure with the text of an error.
    pub fn failed(error: impl Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// A failure to write to standard output.
    pub fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Failed(format!("cannot write to standard output: {error}")),
        }
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::failed(error)
    }
}
