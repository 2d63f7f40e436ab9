//! The errors of the kernel level.

use std::io;
use std::path::PathBuf;

use multimqc::{TooSmall, TopicId};

/// Why a call failed. The texts say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The configuration's: the value is out of its range.
    #[error("{name} = {value}: {why}")]
    Config {
        /// The setting.
        name: &'static str,
        /// The refused value.
        value: u64,
        /// Its range.
        why: &'static str,
    },
    /// The configuration's: the level overwrites bytes before the next level has them.
    #[error(transparent)]
    TooSmall(#[from] TooSmall),
    /// The configuration's: another topic has the port.
    #[error("port {0} belongs to another topic")]
    PortTaken(u16),
    /// The configuration's: there are as many topics as the level was made for.
    #[error("no room for topic {topic}: the level has {max_topics}, its limit (max_topics)")]
    TooManyTopics {
        /// The topic that was to be opened.
        topic: TopicId,
        /// The limit.
        max_topics: u32,
    },
    /// The configuration's: the kernel would not have the memory.
    #[error(
        "the rings of {topics} topics need {needed} bytes of the kernel's memory, and {available} are free: fewer topics (max_topics), \
         or smaller rings (ring_bytes)"
    )]
    NoMemory {
        /// The setting `max_topics`.
        topics: u32,
        /// Bytes of all rings.
        needed: u64,
        /// Bytes that are available.
        available: u64,
    },
    /// The caller's: the ring that was kept from before has other sizes.
    #[error("{path} keeps a ring of other sizes ({difference}): detach it first, or use its sizes")]
    OtherSizes {
        /// Where it is.
        path: PathBuf,
        /// Kept and wanted.
        difference: String,
    },
    /// The caller's: another process has the level.
    #[error("{0} is used by another process")]
    InUse(PathBuf),
    /// The caller's: there is no such interface here.
    #[error("interface {name}: {error}")]
    Interface {
        /// The name.
        name: String,
        /// The reason.
        error: io::Error,
    },
    /// The machine's: a program is attached already, or the interface cannot have this kind.
    #[error("cannot attach to {interface} as {mode}: {error}")]
    Attach {
        /// The interface.
        interface: String,
        /// The kind of hook.
        mode: &'static str,
        /// The reason.
        error: io::Error,
    },
    /// The object's: it cannot be used.
    #[error("eBPF object: {0}")]
    Object(String),
    /// The kernel's verifier refused a program.
    #[error("the kernel refuses program {program}: {error}\n{log}")]
    Verifier {
        /// The program.
        program: String,
        /// The reason.
        error: io::Error,
        /// The end of the verifier's explanation.
        log: String,
    },
    /// The machine's: usually a missing right (CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or root).
    #[error("cannot {what}: {error}")]
    Call {
        /// The operation that was tried.
        what: &'static str,
        /// The reason.
        error: io::Error,
    },
}

impl KernelError {
    /// For `map_err`.
    pub(crate) fn call(what: &'static str) -> impl Fn(io::Error) -> KernelError {
        move |error| KernelError::Call { what, error }
    }

    /// Whether the process lacks the rights to use eBPF, or the kernel has no eBPF.
    pub fn is_missing_right(&self) -> bool {
        match self {
            // The verifier returns EACCES for programs that it refuses.
            KernelError::Call { error, .. } | KernelError::Verifier { error, .. } => {
                matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS))
            }
            _ => false,
        }
    }
}
