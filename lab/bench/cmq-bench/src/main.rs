//! `cmq-bench`: the cost of messages with CMQ and with other systems.
//!
//! ```text
//!   harness (this process) ──pipes──┬── driver ── veth pair ── answerer
//!                                   └── a broker, where there is one
//! ```
//!
//! Figures 5, 6 and 7 of the paper, and its claim about many keys. Both ends are processes in network
//! namespaces of their own (`field`). The loop that sends and counts is the same for each system
//! (`benchkit::exchange`), and so is the number of outstanding messages. lab/bench/README.md describes what is
//! measured, and the limits.

#![forbid(unsafe_code)]

mod error;
mod field;
mod figures;
mod keys;
mod links;
mod memory;
mod point;
mod system;

use std::{path::PathBuf, process::ExitCode};

use benchkit::ends::End;
use clap::{CommandFactory, Parser, Subcommand};
use commands::Failure;

use error::BenchError;
use figures::Figure;

/// Measure CMQ and other systems
#[derive(Debug, Parser)]
#[command(name = "cmq-bench", version, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: BenchCommand,
}

/// The benches.
#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Exchange 1,000 messages of 4 B to 16 KiB without loss (figure 5 of the paper)
    Fig5(figures::Args),
    /// The same with 1.4 % of incoming packets dropped, and without (figure 6)
    Fig6(figures::Args),
    /// The same with CMQ's reliable mode, encryption and QUIC streams, with 0, 1, 2 and 5 % of incoming packets dropped
    Reliable(figures::Args),
    /// Measure memory over time, with loss and without (figure 7)
    Fig7(memory::Args),
    /// Measure the cost of a push with 1 to 100,000 keys
    Keys(keys::Args),
    #[command(hide = true, subcommand)]
    /// A process of a bench, started by the bench itself
    Worker(Worker),
}

/// The role of a process of a bench.
#[derive(Debug, Subcommand)]
pub enum Worker {
    /// Runs an end of an exchange.
    End(End),
    /// Pushes to many keys
    Keys(keys::Pushes),
    /// Becomes a third-party program
    BecomeServer {
        /// The program
        program: PathBuf,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    commands::status(Args::command, run(&Args::parse().command).map_err(Failure::failed))
}

/// Runs a bench, or one process of it.
///
/// # Errors
/// Why there is no result. Nothing is left behind.
fn run(command: &BenchCommand) -> Result<(), BenchError> {
    if let BenchCommand::Worker(worker) = command {
        return Ok(match worker {
            Worker::End(end) => links::run(end),
            Worker::Keys(pushes) => keys::push(pushes),
            Worker::BecomeServer { program, args } => benchkit::server::become_server(program, args),
        }?);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(BenchError::NotRoot);
    }
    match command {
        BenchCommand::Fig5(args) => figures::run(args, Figure::Five),
        BenchCommand::Fig6(args) => figures::run(args, Figure::Six),
        BenchCommand::Reliable(args) => figures::run(args, Figure::Reliable),
        BenchCommand::Fig7(args) => memory::run(args),
        BenchCommand::Keys(args) => keys::run(args),
        BenchCommand::Worker(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_of_the_list_of_figures_are_accepted() {
        for words in reproduce::list::List::own().calls("cmq-bench") {
            let parsed = Args::try_parse_from([vec!["cmq-bench".into()], words.clone()].concat());
            assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
        }
    }
}
