//! What `pub` and `sub` have in common: which broker, which configuration.

use std::path::PathBuf;

use rocketbufs::{Config, ConnError};

use super::Failure;
use rbmq::{BrokerConfig, ConnectError};

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
            other => Failure::failed(other),
        }
    }
}

/// Whether nobody listens there: the only failure that starting a broker mends. The framework passes on the system's
/// words, not its number.
fn refused(error: &ConnError) -> bool {
    error.to_string().contains("Connection refused")
}
