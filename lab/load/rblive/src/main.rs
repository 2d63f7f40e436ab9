//! The command `rblive-load`: publishers and viewers, to measure servers of live video.

#![forbid(unsafe_code)]

mod push;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Publishers and viewers, to measure servers of live video
#[derive(Debug, Parser)]
#[command(name = "rblive-load", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "Exit status: 0 done; 1 failed, or a viewer had an error; 2 wrong usage.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Publish live streams without an encoder, whose every byte watch can check
    Push(push::Args),
    /// Be many viewers of a live stream on any HLS server, and check all that they get
    Watch(watch::Args),
}

/// Runs the command that the arguments name. Wrong arguments end the process with status 2.
fn main() -> ExitCode {
    let result = match commands::parse::<Cli>().command {
        Command::Push(args) => push::run(&args),
        Command::Watch(args) => watch::run(&args),
    };
    commands::status(Cli::command, result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
