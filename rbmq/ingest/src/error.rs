//! Why an ingest does not start.

use multimqc::{LevelError, StackError, StartError};
use multimqc_kernel::KernelError;
use rbmq_broker::FeedError;

/// Why an ingest does not start. The texts name the interface.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IngestError {
    /// The machine has no such interface.
    #[error("ingest: there is no interface {0} here")]
    NoInterface(String),
    /// The level in the kernel is required and cannot be had.
    #[error("ingest: interface {interface}: {error}{}", advice(.error))]
    Kernel {
        /// The interface.
        interface: String,
        /// The reason.
        error: KernelError,
    },
    /// The user level cannot be made.
    #[error("ingest: interface {interface}: {reason}")]
    User {
        /// The interface.
        interface: String,
        /// The reason.
        reason: String,
    },
    /// A level does not open a topic.
    #[error("ingest: interface {interface}: {error}")]
    Stack {
        /// The interface.
        interface: String,
        /// The reason.
        error: StackError,
    },
    /// The sockets cannot be opened.
    #[error("ingest: interface {interface}: {error}")]
    Sockets {
        /// The interface.
        interface: String,
        /// The reason.
        error: StartError,
    },
    /// A level cannot be read.
    #[error("ingest: {0}")]
    Level(#[from] LevelError),
    /// The broker refuses the topic.
    #[error("ingest: {0}")]
    Feed(#[from] FeedError),
    /// The configuration's: a topic without a valid name.
    #[error("ingest: {0}")]
    Topic(String),
    /// The system refused a thread or a socket.
    #[error("ingest: the system refused: {0}")]
    System(#[from] std::io::Error),
}

/// The remedy for a level that the kernel refuses.
fn advice(error: &KernelError) -> &'static str {
    match error {
        _ if is_missing_right(error) => "; run as root, or use level = \"user\"",
        KernelError::Attach { .. } => {
            "; is another program of XDP attached there? Detach it, or use level = \"user\""
        }
        _ => "",
    }
}

/// Whether the process has not the rights for the level in the kernel, or the kernel has no eBPF.
pub(crate) fn is_missing_right(error: &KernelError) -> bool {
    let denied = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    error.is_missing_right() || matches!(error, KernelError::Attach { error, .. } if denied(error))
}
