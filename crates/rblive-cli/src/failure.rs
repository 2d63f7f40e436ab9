//! How a command ends when it does not succeed.

/// Why a command did not succeed. `main` turns it into a message and an exit status.
#[derive(Debug)]
pub enum Failure {
    /// The command failed. The text says whose fault the failure is and what to do.
    Failed(String),
    /// The reader of standard output has closed it.
    OutputClosed,
}

impl Failure {
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// For a failure to write to standard output.
    pub fn output(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Failed(format!("cannot write to standard output: {error}")),
        }
    }
}
