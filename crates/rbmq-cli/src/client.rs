//! Options that all client commands share: the broker and the configuration.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use rbmq::ConnectError;
use rbmq_broker::BrokerConfig;
use rocketbufs::Config;

use super::failure::Failure;

/// How long a server may take to answer a request in HTTP.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// The broker and the configuration of a client.
#[derive(Debug, clap::Args)]
pub(super) struct ClientArgs {
    /// Address of the broker
    #[arg(short, long, env = "RBMQ_BROKER", default_value = "127.0.0.1:7411", value_name = "ADDRESS")]
    pub(super) broker: String,
    /// TOML file with RocketBufs' settings (settings of the broker are ignored here)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ClientArgs {
    pub(super) fn config(&self) -> Result<Config, Failure> {
        BrokerConfig::load(self.config.as_deref()).map(|c| c.framework).map_err(Failure::failed)
    }

    /// The failure to connect, with its likely cause and what to do.
    pub(super) fn explain(&self, error: &ConnectError) -> Failure {
        let ConnectError::Broker { .. } = error else { return Failure::failed(error) };
        match probe(&self.broker) {
            Err(probed) if probed.kind() == io::ErrorKind::ConnectionRefused => Failure::Failed(format!(
                "{error}\nIs one running there? Start one with: rbmq serve --listen {}",
                self.broker
            )),
            Ok(true) => Failure::Failed(format!(
                "cannot connect to the broker at {}: an HTTP server answers there\nThe address of a broker is that of 'rbmq \
                 serve --listen' (default 127.0.0.1:7411); --http is for metrics only",
                self.broker
            )),
            _ => Failure::failed(error),
        }
    }
}

/// Whether an HTTP server listens at the address, a common mistake: a broker has one for metrics.
fn probe(addr: &str) -> io::Result<bool> {
    let addr = addr.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&addr, PROBE_TIMEOUT)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.write_all(b"HEAD / HTTP/1.0\r\n\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    Ok(&answer == b"HTTP/")
}
