//! Failures of the clients.

use std::io;
use std::net::SocketAddr;

use commands::Failure;

/// A failure of a client's socket.
pub fn server_failed(server: SocketAddr, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            Failure::Failed(format!("nobody listens at {server}; start one with `multimqc serve`"))
        }
        _ => Failure::Failed(format!("{server}: {error}")),
    }
}
