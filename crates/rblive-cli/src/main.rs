//! The command `rblive`: live video from encoders to viewers.

#![forbid(unsafe_code)]

mod config;
mod control;
mod deliver;
mod demo;
mod failure;
mod man;
mod serve;
mod stop;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use failure::Failure;
use tracing_subscriber::EnvFilter;

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
    Man {
        /// Folder for one page per command
        #[arg(value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// Runs the command that the arguments name. Wrong arguments end the process with status 2.
fn main() -> ExitCode {
    let filter = std::env::var("RBLIVE_LOG").unwrap_or_else(|_| "warn".to_owned());
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(EnvFilter::new(filter)).init();
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Config => print(config::example().as_bytes()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "rblive", &mut script);
            print(&script)
        }
        Command::Man { dir } => man::run(dir, Cli::command()),
    };
    let message = match result {
        Ok(()) | Err(Failure::OutputClosed) => return ExitCode::SUCCESS,
        Err(Failure::Failed(message)) => message,
    };
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "rblive: {message}");
    ExitCode::FAILURE
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
