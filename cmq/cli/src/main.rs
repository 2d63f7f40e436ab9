//! The command `cmq`: sends and receives from a shell.

#![forbid(unsafe_code)]

mod keygen;
mod man;
mod options;
mod receive;
mod send;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use commands::Shell;

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
    /// Make a pair of keys for encryption
    Keygen(keygen::Args),
    /// Print a completion script for a shell
    #[command(after_help = "Example:
  source <(cmq completions bash)")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write one for each command into a folder
    #[command(after_help = "Example:
  cmq man | man -l -")]
    Man(commands::man::Args),
}

fn main() -> ExitCode {
    let result = match commands::parse::<Args>().command {
        Command::Send(args) => send::run(&args),
        Command::Receive(args) => receive::run(&args),
        Command::Keygen(args) => keygen::run(&args),
        Command::Completions { shell } => commands::print_completions(shell, Args::command()),
        Command::Man(args) => commands::man::run(&args, Args::command(), &man::SECTIONS),
    };
    commands::status(Args::command, result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn commands_of_the_pages_are_accepted() {
        assert_eq!(tidy::shell::refused("cmq", &Args::command()), [""; 0]);
    }
}
