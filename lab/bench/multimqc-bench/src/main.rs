//! `multimqc-bench`: the levels of MultiMQC and what they are measured beside, by rows.
//!
//! ```text
//!   multimqc-bench write | read ──starts──▶ multimqc serve
//!              │                └─starts──▶ multimqc-bench afxdp | nats | kafka      takes the same pushes, counts what is stored
//!              └──rows (JSON)─────────────▶ reproduce ──▶ tables, plots
//! ```
//!
//! `scripts/reproduce` runs all of it.

#![deny(unsafe_code)]

mod afxdp;
mod broker;
mod count;
mod datagrams;
#[cfg(feature = "kafka")]
mod kafka;
mod measure;
mod nats;
#[allow(unsafe_code, reason = "memory that the kernel shares, and system calls")]
mod xsk;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Measures this machine: the levels of MultiMQC beside a middleware in user space and other systems
#[derive(Debug, Parser)]
#[command(name = "multimqc-bench", version, max_term_width = 100)]
#[command(after_help = "Examples:
  multimqc-bench write --json write.json
  sudo multimqc-bench read --json read.json --seconds 2 --reps 5
  sudo multimqc-bench read --generator frames --placements together --only 'user;xdp-native'
  sudo multimqc-bench check --seconds 5

Compare only rows of one run. cpu_ns_per_message is the time of the server's process; what the kernel does for a packet before the
server has it counts for whoever sends (sender_cpu_ns_per_message) or for the kernel's own threads. total_cpu_ns_per_message has all
of them: its difference to the row drop of the same generator is what a message costs the machine that receives it.")]
struct Args {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    #[command(flatten)]
    Measure(measure::Part),
    /// Takes pushes past the network stack (AF_XDP), and appends them to a file
    Afxdp(afxdp::Args),
    /// Takes pushes from a socket, and publishes each to a NATS server that it starts
    Nats(nats::Args),
    /// Takes pushes from a socket, and sends each to Kafka as a record
    #[cfg(feature = "kafka")]
    Kafka(kafka::Args),
    /// Runs a Kafka broker
    KafkaBroker(broker::Args),
}

fn main() -> ExitCode {
    let result = match &Args::parse().command {
        BenchCommand::Measure(part) => measure::run(part),
        BenchCommand::Afxdp(args) => afxdp::run(args),
        BenchCommand::Nats(args) => nats::run(args),
        #[cfg(feature = "kafka")]
        BenchCommand::Kafka(args) => kafka::run(args),
        BenchCommand::KafkaBroker(args) => broker::run(args),
    };
    commands::status(Args::command, result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_of_the_list_of_figures_are_accepted() {
        for words in reproduce::list::List::own().calls("multimqc-bench") {
            let parsed = Args::try_parse_from([vec!["multimqc-bench".into()], words.clone()].concat());
            assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
        }
    }
}
