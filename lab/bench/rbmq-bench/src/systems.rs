//! The compared systems, their interfaces and their confirmations.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

/// A system between publishers and subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// RBMQ's broker and client library
    Rbmq,
    /// A bare fan-out relay, which writes all bytes to every subscriber
    Relay,
    /// Redis' publish and subscribe
    Redis,
    /// Redis with a thread for each core that reads and writes beside the main thread (paper 2, figure 3)
    RedisThreads,
    /// An independent Redis server for each core; each topic is at one of them
    RedisServers,
    /// NATS without its streams
    Nats,
    /// RabbitMQ over AMQP 0-9-1
    Rabbitmq,
    /// RBMQ's gateway for clients of Redis, in its broker's process
    Resp,
    /// RBMQ's gateway for clients of MQTT, in its broker's process; as Mosquitto
    Mqtt,
    /// Mosquitto over MQTT 3.1.1: QoS 0, and QoS 1 with `--confirm accepted --api message`
    Mosquitto,
}

impl System {
    /// Whether the system has this interface with these confirmations.
    pub fn has(self, api: Api, confirm: Confirm) -> bool {
        match self {
            System::Rbmq => api != Api::Wire || confirm == Confirm::None,
            System::Relay => api == Api::Batch && confirm == Confirm::None,
            System::Redis
            | System::RedisThreads
            | System::RedisServers
            | System::Nats
            | System::Rabbitmq
            | System::Resp => confirm != Confirm::Consumed,
            // Confirmed is QoS 1, in which messages differ by their ids.
            System::Mqtt | System::Mosquitto => match confirm {
                Confirm::None => true,
                Confirm::Accepted => api == Api::Message,
                Confirm::Consumed => false,
            },
        }
    }

    /// The system's interface of this kind: for all systems but ours, batches are already on the wire.
    pub fn own(self, api: Api) -> Api {
        if api == Api::Wire && self != System::Rbmq { Api::Batch } else { api }
    }
}

/// How a program hands messages over and takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// A public call for each published message, an item for each received message
    Message,
    /// Many messages per call, published and received
    Batch,
    /// Batches without a client library, as other systems' are always: RBMQ's broker alone
    Wire,
}

/// The confirmation that a publisher waits for. At most a megabyte is unconfirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confirm {
    /// Nothing
    None,
    /// The broker has them
    Accepted,
    /// Every subscriber has given them back
    Consumed,
}

/// The settings of servers.
#[derive(Debug, Clone, Default, Args)]
pub struct Setup {
    /// The servers keep their default limits for slow clients
    #[arg(long)]
    pub limits: bool,
    /// The server keeps messages, in its folder
    #[arg(long)]
    pub keep: bool,
    /// Redis has TLS, with the certificates of this folder
    #[arg(long)]
    pub certificates: Option<PathBuf>,
}
