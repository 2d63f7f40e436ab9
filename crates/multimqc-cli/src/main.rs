//! The command `multimqc`: a server, and clients of it for the shell.
#![forbid(unsafe_code)]

mod bench;
mod config;
mod control;
mod failure;
mod kafka;
mod pull;
mod push;
mod report;
mod serve;
mod stat;
mod stop;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use failure::Failure;

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
    /// Measure this machine: the levels beside a middleware in user space
    Bench(bench::Args),
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
}

/// Runs the command that the arguments name. Wrong arguments end the process with status 2.
fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Push(args) => push::run(&args),
        Command::Pull(args) => pull::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Detach { folder } => detach(&folder),
        Command::Config => print(config::EXAMPLE.as_bytes()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "multimqc", &mut script);
            print(&script)
        }
    };
    let (message, status) = match result {
        Ok(()) | Err(Failure::OutputClosed) => return ExitCode::SUCCESS,
        Err(Failure::Failed(message)) => (message, 1),
        Err(Failure::Missing(message)) => (message, 3),
    };
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "multimqc: {message}");
    ExitCode::from(status)
}

fn detach(folder: &Path) -> Result<(), Failure> {
    match multimqc_kernel::detach(folder).map_err(Failure::failed)? {
        true => print(b"multimqc: detached\n"),
        false => print(b"multimqc: nothing was attached\n"),
    }
}

fn print(bytes: &[u8]) -> Result<(), Failure> {
    std::io::stdout().write_all(bytes).map_err(|error| Failure::output(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
