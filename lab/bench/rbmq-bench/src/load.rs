//! The load of one publisher or subscriber, as the command line of its process.

use std::path::{Path, PathBuf};

use clap::Args;
use rocketbufs::config::TransportKind;

use crate::error::BenchError;
use crate::systems::{Api, Confirm, System};

/// The options that publishers and subscribers share.
#[derive(Debug, Args)]
pub struct Load {
    /// The system between publishers and subscribers
    #[arg(long, value_enum)]
    pub system: System,
    /// Message by message, or in batches
    #[arg(long, value_enum)]
    pub api: Api,
    /// Address of the broker or relay
    #[arg(long)]
    pub addr: String,
    /// The transport of RBMQ
    #[arg(long, default_value_t)]
    pub transport: TransportKind,
    /// Bytes of a message
    #[arg(long)]
    pub size: usize,
    /// How many subscribers there are
    #[arg(long)]
    pub subscribers: u32,
    /// Bytes of a topic's ring; default: from the configuration and the message size
    #[arg(long)]
    pub ring_bytes: Option<u64>,
    /// Congestion control to set on every socket
    #[arg(long)]
    pub congestion: Option<String>,
    /// Messages per second of each publisher, instead of as many as go
    #[arg(long)]
    pub rate: Option<f64>,
    /// The confirmation that publishers wait for
    #[arg(long, value_enum)]
    pub confirm: Confirm,
    /// The folder through which subscribers report their progress to publishers of other systems
    #[arg(long)]
    pub folder: Option<PathBuf>,
}

impl Load {
    /// The folder, which other systems' workers are always given.
    pub fn folder(&self) -> Result<&Path, BenchError> {
        self.folder.as_deref().ok_or(BenchError::NoFolder)
    }
}
