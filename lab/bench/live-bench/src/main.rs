//! The bench of RBLive, with the systems beside which it is measured: see lab/bench/README.md.

#![deny(unsafe_code)]

mod bare;
mod client;
mod delivery;
mod failure;
mod files;
mod hiredis;
mod lab;
mod latency;
mod measure;
mod media;
mod producers;
mod redis_node;
mod row;
mod servers;
mod source;
mod wrk;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use commands::Failure;

#[derive(Debug, Parser)]
#[command(version, about = "What RBLive is measured beside: see lab/bench/README.md")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Streams into Redis, RBLive nodes or files, at the rate of production
    Source(source::Args),
    /// A delivery node that subscribes to Redis
    RedisNode(redis_node::Args),
    /// The bare loop: encrypts files that are in memory, and writes them
    Bare(bare::Args),
    /// Processor time of a delivery node and of a bare loop, per Gbit that their viewers got, in this process
    Deliver(delivery::DeliverArgs),
    /// Processor time of one record: rustls, and records that are sealed without a copy
    Seal(delivery::SealArgs),
    /// From a chunk's last byte in to its first byte at a viewer
    Latency(latency::Args),
    /// Producers with TLS
    Producers(producers::Args),
    /// Measure, and write rows
    Measure(measure::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Source(args) => source::run(&args),
        Command::RedisNode(args) => redis_node::run(&args),
        Command::Bare(args) => bare::run(&args),
        Command::Deliver(args) => return commands::status(Cli::command, delivery::deliver(&args)),
        Command::Seal(args) => return commands::status(Cli::command, delivery::seal(&args)),
        Command::Latency(args) => latency::run(&args),
        Command::Producers(args) => producers::run(&args),
        Command::Measure(args) => measure::run(&args),
    };
    commands::status(Cli::command, result.map_err(Failure::failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_of_the_list_of_figures_are_accepted() {
        for words in reproduce::list::List::own().calls("live-bench") {
            let parsed = Cli::try_parse_from([vec!["live-bench".into()], words.clone()].concat());
            assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
        }
    }
}
