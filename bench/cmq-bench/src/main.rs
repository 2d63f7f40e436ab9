//! `cmq-bench`: what messages cost with CMQ, and with what could be in its place.
//!
//! ```text
//!   harness (this process) ──pipes──┬── driver ── veth pair ── answerer
//!                                   └── a broker, where there is one
//! ```
//!
//! Figures 5, 6 and 7 of the paper, and its claim about many keys. Both ends are processes in network namespaces of
//! their own (`field`); the loop that sends and counts is the same for every system (`benchkit::exchange`), and so is
//! the number of messages outstanding. What is measured, and what cannot be seen this way, is in bench/README.md.

#![forbid(unsafe_code)]

mod error;
mod field;
mod figures;
mod keys;
mod links;
mod memory;
mod point;
mod system;
mod table;

use std::{path::PathBuf, process::ExitCode};

use benchkit::ends::End;
use clap::{Parser, Subcommand};

use error::BenchError;

/// Measure CMQ beside others
#[derive(Debug, Parser)]
#[command(name = "cmq-bench", version, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: BenchCommand,
}

/// What to measure.
#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Exchanges of 1,000 messages of 4 B to 16 KiB without loss (figure 5 of the paper)
    Fig5(figures::Args),
    /// The same with 1.4 % of incoming packets dropped, and without (figure 6)
    Fig6(figures::Args),
    /// Memory over time, with loss and without (figure 7)
    Fig7(memory::Args),
    /// What a push costs with 1 to 100,000 keys
    Keys(keys::Args),
    #[command(hide = true, subcommand)]
    /// One process of a bench; started by the bench itself
    Worker(Worker),
}

/// What a process of a bench does.
#[derive(Debug, Subcommand)]
pub enum Worker {
    /// One of the two ends of an exchange
    End(End),
    /// Pushes to many keys
    Keys(keys::Pushes),
    /// Becomes somebody else's program
    BecomeServer {
        /// Which
        program: PathBuf,
        /// What it is told
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(&Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cmq-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a bench, or one process of it.
///
/// # Errors
/// Why there is no result; nothing stays behind.
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
        BenchCommand::Fig5(args) => figures::run(args, false),
        BenchCommand::Fig6(args) => figures::run(args, true),
        BenchCommand::Fig7(args) => memory::run(args),
        BenchCommand::Keys(args) => keys::run(args),
        BenchCommand::Worker(_) => Ok(()),
    }
}
