//! The command `cmq`: sends and receives from a shell.

#![forbid(unsafe_code)]

mod options;
mod receive;
mod send;

use std::process::ExitCode;

use clap::Parser;

/// An asynchronous message queue over UDP
#[derive(Debug, Parser)]
#[command(name = "cmq", version, max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 success, 1 failure, 2 wrong usage, 3 messages were lost (receive --strict)."
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

/// The subcommands.
#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Send the lines of standard input, or a number of messages
    Send(send::Args),
    /// Write received messages to standard output, one in each line
    Receive(receive::Args),
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Send(args) => send::run(&args),
        Command::Receive(args) => receive::run(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("cmq: {error}");
        ExitCode::FAILURE
    })
}
