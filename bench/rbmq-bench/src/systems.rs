//! What the benches compare: systems, their interfaces and their confirmations.

use clap::ValueEnum;
use serde::Serialize;

/// A system between publishers and subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// RBMQ's broker and client library
    Rbmq,
    /// A bare fan-out relay: reads, and writes the same bytes to everybody
    Relay,
    /// Redis' publish and subscribe
    Redis,
    /// Redis with a thread for each core that reads and writes beside its own (paper 2, figure 3)
    RedisThreads,
    /// As many Redis servers as there are cores, which know nothing of each other; each topic is at one of them
    RedisServers,
    /// NATS without its streams
    Nats,
    /// RabbitMQ over AMQP 0-9-1
    Rabbitmq,
}

impl System {
    /// As on the command line and in the rows.
    pub fn name(self) -> &'static str {
        match self {
            System::Rbmq => "rbmq",
            System::Relay => "relay",
            System::Redis => "redis",
            System::RedisThreads => "redis-threads",
            System::RedisServers => "redis-servers",
            System::Nats => "nats",
            System::Rabbitmq => "rabbitmq",
        }
    }

    /// Whether it can be measured this way at all.
    pub fn has(self, api: Api, confirm: Confirm) -> bool {
        match self {
            System::Rbmq => api != Api::Wire || confirm == Confirm::None,
            System::Relay => api == Api::Batch && confirm == Confirm::None,
            System::Redis | System::RedisThreads | System::RedisServers | System::Nats | System::Rabbitmq => {
                confirm != Confirm::Consumed
            }
        }
    }

    /// What it has of this kind: of all but ours batches are on the wire already.
    pub fn own(self, api: Api) -> Api {
        if api == Api::Wire && self != System::Rbmq { Api::Batch } else { api }
    }
}

/// How a program hands messages over and takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// One public call per message published, one item per message received
    Message,
    /// Many messages are handed over and taken at once
    Batch,
    /// Batches without a client library, as other systems' are always: RBMQ's broker alone
    Wire,
}

impl Api {
    pub fn name(self) -> &'static str {
        match self {
            Api::Message => "message",
            Api::Batch => "batch",
            Api::Wire => "wire",
        }
    }
}

/// What a publisher waits to hear about its messages. At most a megabyte is on its way meanwhile.
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

impl Confirm {
    pub fn name(self) -> &'static str {
        match self {
            Confirm::None => "none",
            Confirm::Accepted => "accepted",
            Confirm::Consumed => "consumed",
        }
    }
}
