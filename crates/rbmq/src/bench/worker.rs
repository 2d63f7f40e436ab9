//! The processes that a bench consists of, each one of them this same program started as `bench worker …`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::{Api, BenchError, System, control::Control, rbmq_peers, relay, relay_peers};

/// A subscriber that waits for messages which do not come gives up after this long and reports what it has.
pub const QUIET: Duration = Duration::from_secs(5);

/// One process of a bench. Started by the bench itself, told what to do on standard input.
#[derive(Debug, Subcommand)]
pub enum Worker {
    /// The broker
    Broker {
        /// Congestion control to set on every socket
        #[arg(long)]
        congestion: Option<String>,
    },
    /// The bare fan-out relay
    Relay {
        /// Bytes read from a publisher at once
        #[arg(long)]
        read_bytes: usize,
        /// Congestion control to set on every socket
        #[arg(long)]
        congestion: Option<String>,
    },
    /// One publisher of one topic
    Publisher {
        #[command(flatten)]
        load: Load,
        /// Number of its topic
        #[arg(long)]
        topic: u8,
    },
    /// One subscriber of every topic
    Subscriber {
        #[command(flatten)]
        load: Load,
        /// How many topics there are
        #[arg(long)]
        topics: u8,
    },
}

/// What publishers and subscribers have in common.
#[derive(Debug, Args)]
pub struct Load {
    /// What is between publishers and subscribers
    #[arg(long, value_enum)]
    pub system: System,
    /// Message by message, or in batches
    #[arg(long, value_enum)]
    pub api: Api,
    /// Address of the broker or relay
    #[arg(long)]
    pub addr: String,
    /// Bytes of a message
    #[arg(long)]
    pub size: usize,
    /// How many subscribers there are
    #[arg(long)]
    pub subscribers: u32,
    /// Bytes of a topic's ring, instead of what the configuration and the message size make of it
    #[arg(long)]
    pub ring_bytes: Option<u64>,
    /// Congestion control to set on every socket
    #[arg(long)]
    pub congestion: Option<String>,
}

/// Runs one worker until the harness ends it.
///
/// # Errors
/// Whatever made the measurement impossible; the harness reports it and gives up.
pub fn run(worker: Worker) -> Result<(), BenchError> {
    let control = Control::start();
    match worker {
        Worker::Broker { congestion } => rbmq_peers::serve(&control, congestion.as_deref()),
        Worker::Relay { read_bytes, congestion } => relay::run(&control, read_bytes, congestion.as_deref()),
        Worker::Publisher { load, topic } => match load.system {
            System::Rbmq => rbmq_peers::publish(&control, &load, topic),
            System::Relay => relay_peers::publish(&control, &load, topic),
        },
        Worker::Subscriber { load, topics } => match load.system {
            System::Rbmq => rbmq_peers::subscribe(&control, &load, topics),
            System::Relay => relay_peers::subscribe(&control, &load, topics),
        },
    }
}
