//! Why a broker cannot start.

use rocketbufs::error::{ContextError, ListenError};

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
