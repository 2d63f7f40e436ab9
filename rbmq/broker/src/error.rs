//! Why a broker cannot start.

use rocketbufs::error::{ContextError, ListenError};

use super::kept::KeepError;

/// Why a broker cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The framework has no memory or threads, or refuses its configuration.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The broker cannot listen on its address.
    #[error("{0}{advice}", advice = advice(.0))]
    Listen(ListenError),
    /// The logs on disk cannot be used, for example because another broker uses the folder.
    #[error("{0} (broker.keep_dir)")]
    Keep(#[from] KeepError),
    /// The broker cannot log in at an upstream broker.
    #[error("{0} (broker.upstream)")]
    Upstream(String),
    /// The users cannot be used.
    #[error("{0} (users.file)")]
    Users(#[from] access::AccessError),
    /// A rule of topics wants an archive, and the broker was started without one.
    #[error(
        "the rule of pattern '{0}' wants an archive, and this program has none: rbmq has object stores, and Kafka if it was built with \
         the feature 'kafka' (cargo build -p rbmq-cli --features kafka), other programs give Broker::start_with one"
    )]
    NoArchive(String),
    /// The audit log cannot be opened.
    #[error(
        "cannot open the audit log: {0} (audit.file); its folder must exist and be writable for this user"
    )]
    Audit(std::io::Error),
    /// A rule of access is not valid.
    #[error("[[access.rules]], rule {number}: {0}", number = .0.rule + 1)]
    Access(#[from] access::RuleError),
    /// The system has no random numbers.
    #[error("no random numbers: {0}")]
    Random(String),
    /// The system refused a thread.
    #[error("cannot start the broker's thread: {0}")]
    Thread(std::io::Error),
}

/// The remedy for an address that cannot be used.
fn advice(error: &ListenError) -> &'static str {
    match error {
        ListenError::AddressInUse { .. } => {
            "; is another broker running there? Choose another address with --listen"
        }
        _ => "",
    }
}
