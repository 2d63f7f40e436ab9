//! What `pub` and `sub` have in common: which broker, which configuration.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use rbmq::ConnectError;
use rbmq_broker::BrokerConfig;
use rocketbufs::{Config, ConnError};

use super::failure::Failure;

/// How long a stranger may take to say that it speaks HTTP.
const HTTP_PATIENCE: Duration = Duration::from_secs(3);

/// The broker and the configuration of a client.
#[derive(Debug, clap::Args)]
pub(super) struct ClientArgs {
    /// Address of the broker
    #[arg(short, long, env = "RBMQ_BROKER", default_value = "127.0.0.1:7411", value_name = "ADDRESS")]
    pub(super) broker: String,
    /// TOML file with RocketBufs' settings (and the broker's, which do not matter here)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ClientArgs {
    pub(super) fn config(&self) -> Result<Config, Failure> {
        BrokerConfig::load(self.config.as_deref()).map(|c| c.framework).map_err(Failure::failed)
    }

    /// What a failed connection means, and what to do.
    pub(super) fn explain(&self, error: &ConnectError) -> Failure {
        match error {
            ConnectError::Broker { source, .. } if refused(source) => Failure::Failed(format!(
                "{error}\nIs one running there? Start one with: rbmq serve --listen {}",
                self.broker
            )),
            ConnectError::Broker { .. } if speaks_http(&self.broker).unwrap_or(false) => {
                Failure::Failed(format!(
                    "cannot connect to the broker at {}: an HTTP server answers there\nA broker's address is that of \
                 'rbmq serve --listen', 127.0.0.1:7411 unless it is said; --http is for metrics alone",
                    self.broker
                ))
            }
            other => Failure::failed(other),
        }
    }
}

/// Whether who listens there answers a question in HTTP: many mistake a broker's other address for it.
fn speaks_http(addr: &str) -> io::Result<bool> {
    let addr = addr.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&addr, HTTP_PATIENCE)?;
    stream.set_read_timeout(Some(HTTP_PATIENCE))?;
    stream.write_all(b"HEAD / HTTP/1.0\r\n\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    Ok(&answer == b"HTTP/")
}

/// Whether nobody listens there: the only failure that starting a broker mends. The framework passes on the system's
/// words, not its number.
fn refused(error: &ConnError) -> bool {
    error.to_string().contains("Connection refused")
}
