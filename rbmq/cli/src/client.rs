//! Options that all client commands share: the broker and the configuration.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use commands::Failure;
use rbmq::ConnectError;
use rbmq_broker::{BrokerConfig, ClusterSettings};
use rocketbufs::Config;
use rocketbufs::config::ConfigError;
use rocketbufs::error::{ConnError, DownReason};

use super::login::LoginArgs;
use super::secrets;

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
    #[command(flatten)]
    pub(super) login: LoginArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

/// TLS of a client. Each option overrides the configuration's.
#[derive(Debug, clap::Args)]
pub(super) struct TlsArgs {
    /// Encrypt the connection, and verify the broker's certificate (tls.mode = "require")
    #[arg(long)]
    tls: bool,
    /// The authority that signed the broker's certificate (implies --tls; default: those of the system)
    #[arg(long, value_name = "FILE")]
    ca: Option<String>,
    /// Certificate of this client, if the broker requires one (implies --tls)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<String>,
    /// Key of this client's certificate
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<String>,
    /// Name that the broker's certificate is for, if not the host of its address (implies --tls)
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
}

impl TlsArgs {
    /// Sets the given options.
    pub(super) fn apply(&self, config: &mut Config) -> Result<(), ConfigError> {
        let files = [
            ("tls.ca", &self.ca),
            ("tls.cert", &self.cert),
            ("tls.key", &self.key),
            ("tls.server_name", &self.server_name),
        ];
        let given = files.iter().any(|(_, value)| value.is_some());
        for (name, value) in files {
            if let Some(value) = value {
                config.set(name, value)?;
            }
        }
        if self.tls || given { config.set("tls.mode", "require") } else { Ok(()) }
    }
}

impl ClientArgs {
    pub(super) fn config(&self) -> Result<Config, Failure> {
        let mut config = BrokerConfig::load(self.config.as_deref()).map_err(Failure::failed)?.framework;
        self.tls.apply(&mut config).map_err(Failure::failed)?;
        if config.tls.key.is_some() {
            secrets::protect();
        }
        Ok(config)
    }

    /// The cluster that the configuration names.
    pub(super) fn cluster(&self) -> Result<ClusterSettings, Failure> {
        let config = BrokerConfig::load(self.config.as_deref()).map_err(Failure::failed)?;
        if !config.cluster.is_used() {
            let message = "--cluster needs the file of a member, with the section [cluster]: --config FILE";
            return Err(Failure::Usage("top", message.into()));
        }
        Ok(config.cluster)
    }

    /// The failure to connect, with its likely cause and what to do.
    pub(super) fn explain(&self, error: &ConnectError) -> Failure {
        explain(&self.broker, error)
    }
}

/// The failure to connect to a broker, with its likely cause and what to do.
pub(super) fn explain(broker: &str, error: &ConnectError) -> Failure {
    let ConnectError::Broker { source, .. } = error else { return Failure::failed(error) };
    // A broker answered. Another connection would count as a refused one there.
    if matches!(source, ConnError::Down(DownReason::Peer { .. })) {
        return Failure::failed(error);
    }
    match probe(broker) {
        // The broker of another user is there, for shared memory.
        Err(_) if error.to_string().contains("shm.server_users") => Failure::failed(error),
        Err(probed) if probed.kind() == io::ErrorKind::ConnectionRefused => Failure::Failed(format!(
            "{error}\nIs one running there? Start one with: rbmq serve --listen {broker}"
        )),
        Ok(true) => Failure::Failed(format!(
            "cannot connect to the broker at {broker}: an HTTP server answers there\nThe address of a broker is that of 'rbmq \
             serve --listen' (default 127.0.0.1:7411); --http is for metrics and the console"
        )),
        _ => Failure::failed(error),
    }
}

/// Whether an HTTP server listens at the address, a common mistake: a broker has one for metrics.
fn probe(addr: &str) -> io::Result<bool> {
    let mut stream = Err(io::ErrorKind::NotFound.into());
    for addr in peers::resolve(addr).map_err(io::Error::other)? {
        stream = stream.or_else(|_| TcpStream::connect_timeout(&addr, PROBE_TIMEOUT));
    }
    let mut stream = stream?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.write_all(b"HEAD / HTTP/1.0\r\n\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    Ok(&answer == b"HTTP/")
}
