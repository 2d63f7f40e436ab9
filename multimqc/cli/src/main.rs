//! The command `multimqc`: a server, and clients of it for the shell.
#![forbid(unsafe_code)]

mod client;
mod config;
mod control;
mod interface;
mod kafka;
mod limits;
mod man;
mod pull;
mod push;
mod report;
mod serve;
mod stat;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use commands::{Failure, Shell, print};

/// A multilevel cache for streams of small messages over UDP.
#[derive(Debug, Parser)]
#[command(name = "multimqc", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "Try it, each line in a terminal of its own:
  multimqc serve --levels user
  multimqc pull --follow
  date | multimqc push
  multimqc stat

Exit status: 0 done; 1 failed; 2 wrong usage; 3 bytes are missing, or were not written yet (pull).")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve topics in the foreground
    Serve(Box<serve::Args>),
    /// Send lines of standard input, or a number of messages
    Push(push::Args),
    /// Write a range of a topic to standard output
    Pull(pull::Args),
    /// Show the levels of a server, and how long a byte stays in each
    Stat(stat::Args),
    /// Remove the programs and rings that a server with kernel.keep has left in the kernel
    #[command(after_help = "Example:
  sudo multimqc detach /sys/fs/bpf/multimqc")]
    Detach {
        /// The folder: kernel.keep in the server's configuration
        folder: PathBuf,
    },
    /// Print a configuration file with every setting at its default
    Config,
    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  source <(multimqc completions bash)
  multimqc completions zsh > ~/.zfunc/_multimqc      # where ~/.zfunc is in $fpath")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write one for each command into a folder
    #[command(after_help = "Examples:
  multimqc man | man -l -
  multimqc man ~/.local/share/man/man1")]
    Man(commands::man::Args),
}

/// Runs the command that the arguments name. Wrong arguments end the process with status 2.
fn main() -> ExitCode {
    let result = match commands::parse::<Cli>().command {
        Command::Serve(args) => serve::run(&args),
        Command::Push(args) => push::run(&args),
        Command::Pull(args) => pull::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Detach { folder } => detach(&folder),
        Command::Config => print(config::EXAMPLE),
        Command::Completions { shell } => commands::print_completions(shell, Cli::command()),
        Command::Man(args) => commands::man::run(&args, Cli::command(), &man::SECTIONS),
    };
    commands::status(Cli::command, result)
}

fn detach(folder: &Path) -> Result<(), Failure> {
    match multimqc_kernel::detach(folder).map_err(Failure::failed)? {
        true => print("multimqc: detached\n"),
        false => print("multimqc: nothing was attached\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_of_the_pages_are_accepted() {
        assert_eq!(tidy::shell::refused("multimqc", &Cli::command()), [""; 0]);
    }
}
