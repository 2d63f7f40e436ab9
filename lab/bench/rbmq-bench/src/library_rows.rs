//! The rows of `rbmq-bench libraries`.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::report::{Figures, Setting};

/// A client library in one way of using it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Library {
    /// RBMQ's
    Rbmq,
    /// redis, blocking, with pipelines of up to 128 commands
    RedisPipelined,
    /// redis, asynchronous, with its connection manager and up to 256 calls under way
    RedisManager,
    /// async-nats
    AsyncNats,
    /// lapin, with RabbitMQ
    Lapin,
    /// rumqttc, with Mosquitto
    Rumqttc,
    /// zenoh, with its router
    Zenoh,
    /// RBMQ's in C
    RbmqC,
    /// hiredis, with pipelines of up to 128 commands
    Hiredis,
    /// nats.c
    NatsC,
    /// librabbitmq, with RabbitMQ
    Librabbitmq,
    /// libzmq, with its proxy
    Libzmq,
}

impl Library {
    /// The language of the ends.
    pub fn is_c(self) -> bool {
        use Library::{Hiredis, Librabbitmq, Libzmq, NatsC, RbmqC};
        matches!(self, RbmqC | Hiredis | NatsC | Librabbitmq | Libzmq)
    }
}

/// The kind of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// As many messages as go
    Full,
    /// Messages at a rate that every library carries, for the processor time
    Paced,
    /// Round trips of one message at a time
    Trips,
}

/// A measurement: a flat object in the JSON. See lab/bench/README.md.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub library: Library,
    pub library_version: String,
    pub load: Kind,
    /// Whether more than the library held the publisher back.
    pub held_back: bool,
    pub size_bytes: u32,
    pub subscribers: u32,
    pub rep: u32,
    /// Messages per second that the publisher was to hand over; 0: as many as go.
    pub asked_per_s: f64,
    #[serde(flatten)]
    pub figures: Figures,
    /// Messages published in the whole measurement and never received, summed over subscribers.
    pub dropped: u64,
    /// Messages received in the whole measurement, summed over subscribers.
    pub received: u64,
    /// Subscribers whose connection the server ended.
    pub cut_off: u64,
    /// Of round trips only.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub max_us: Option<f64>,
    #[serde(flatten)]
    pub setting: Setting,
}

impl Row {
    /// Messages per second that each subscriber got.
    pub fn to_each(&self) -> f64 {
        self.figures.delivered_per_s / f64::from(self.subscribers.max(1))
    }

    /// CPU time of all processes per message that a subscriber got, in microseconds.
    pub fn cpu_us(&self) -> f64 {
        let publisher = self.figures.publisher_cpu_s_per_million / f64::from(self.subscribers.max(1));
        publisher + self.figures.broker_cpu_s_per_million + self.figures.subscriber_cpu_s_per_million
    }
}
