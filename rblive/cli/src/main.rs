//! The command `rblive`: live video from encoders to viewers.

#![forbid(unsafe_code)]

mod cluster;
mod config;
mod control;
mod deliver;
mod demo;
mod exposure;
mod kept;
mod man;
mod serve;
mod token;

use std::io::{BufRead, BufReader, Read};
use std::process::ExitCode;

use access::PasswordHash;
use clap::{CommandFactory, Parser, Subcommand};
use commands::{Failure, Shell, print};
use peers::{MAX_PASSWORD_BYTES, Secret};
use tracing::level_filters::LevelFilter;

/// Live video from encoders to viewers, out of rings in memory
#[derive(Debug, Parser)]
#[command(name = "rblive", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "Exit status: 0 done; 1 failed; 2 wrong usage.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node in the foreground: it forwards streams to other nodes, and delivers them to viewers
    Serve(serve::Args),
    /// Push a live picture through three nodes in this process, to be watched in a browser (needs ffmpeg)
    Demo(demo::Args),
    /// See and change a cluster of nodes: members, drain
    Cluster(cluster::Args),
    /// List the recordings that nodes keep
    Kept(kept::Args),
    /// Print a token with which viewers may watch a stream, where deliver.token_key is set
    Token(token::Args),
    /// Print the hash of a password, read from standard input, for ingest.users
    #[command(after_help = "Example:
  printf %s \"$PASSWORD\" | rblive password")]
    Password,
    /// Print a configuration file with every setting at its default
    Config,
    /// Print a completion script for a shell
    #[command(after_help = "Example:
  source <(rblive completions bash)")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write one page for each command into a folder
    #[command(after_help = "Example:
  rblive man | man -l -")]
    Man(commands::man::Args),
}

/// Runs the command that the arguments name. Wrong arguments end the process with status 2.
fn main() -> ExitCode {
    let command = commands::parse::<Cli>().command;
    // A server starts its own.
    if !matches!(command, Command::Serve(_)) {
        commands::log::start(config::LOG, LevelFilter::WARN);
    }
    let result = match command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Kept(args) => kept::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Password => password(),
        Command::Config => print(config::example()),
        Command::Completions { shell } => commands::print_completions(shell, Cli::command()),
        Command::Man(args) => commands::man::run(&args, Cli::command(), &man::SECTIONS),
    };
    commands::status(Cli::command, result)
}

/// Hashes the first line of standard input.
fn password() -> Result<(), Failure> {
    let mut line = String::new();
    // A byte more than the longest with its end, so that a longer one is refused.
    let input = std::io::stdin().lock().take(MAX_PASSWORD_BYTES as u64 + 3);
    BufReader::new(input).read_line(&mut line).map_err(Failure::failed)?;
    let password = line.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(Failure::Failed("the password is empty; write one to standard input".to_owned()));
    }
    if password.len() > MAX_PASSWORD_BYTES {
        let error = format!("the password is too long; the limit is {MAX_PASSWORD_BYTES} bytes");
        return Err(Failure::Failed(error));
    }
    let hash = PasswordHash::of(&Secret::from(password.to_owned())).map_err(Failure::failed)?;
    print(format!("{hash}\n"))
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
        assert_eq!(tidy::shell::refused("rblive", &Cli::command()), [""; 0]);
    }
}
