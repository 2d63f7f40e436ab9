//! `multimqc-bench`: what the levels of MultiMQC are measured beside, and the tables and plots of the results.
//!
//! ```text
//!   multimqc bench ──starts──▶ multimqc-bench afxdp | nats | kafka      takes the same pushes, counts what is stored
//!         └──rows (JSON)─────▶ multimqc-bench report ──▶ tables, plots
//! ```
//!
//! `scripts/bench-multimqc` runs all of it.

#![deny(unsafe_code)]

mod afxdp;
mod broker;
mod count;
mod datagrams;
mod kafka;
mod nats;
mod report;
#[allow(unsafe_code, reason = "memory that the kernel shares, and system calls")]
mod xsk;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Programs to measure MultiMQC beside
#[derive(Debug, Parser)]
#[command(name = "multimqc-bench", version, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Takes pushes past the network stack (AF_XDP), and appends them to a file
    Afxdp(afxdp::Args),
    /// Takes pushes from a socket, and publishes each to a NATS server that it starts
    Nats(nats::Args),
    /// Takes pushes from a socket, and sends each to Kafka as a record
    Kafka(kafka::Args),
    /// Runs a Kafka broker
    KafkaBroker(broker::Args),
    /// Makes tables and plots of the rows of `multimqc bench`
    Report(report::Args),
}

fn main() -> ExitCode {
    let result = match &Args::parse().command {
        BenchCommand::Afxdp(args) => afxdp::run(args),
        BenchCommand::Nats(args) => nats::run(args),
        BenchCommand::Kafka(args) => kafka::run(args),
        BenchCommand::KafkaBroker(args) => broker::run(args),
        BenchCommand::Report(args) => report::run(args),
    };
    commands::status(Args::command, result)
}
