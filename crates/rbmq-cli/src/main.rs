//! The `rbmq` command: a broker, and clients of it for the shell.
#![forbid(unsafe_code)]

mod absence;
mod begin;
mod bytes;
mod check;
mod client;
mod config;
mod confirm;
mod failure;
mod files;
mod input;
mod lines;
mod log;
mod man;
mod outputs;
mod printer;
mod publish;
mod reload;
mod serve;
mod sink;
mod source;
mod stdout;
mod stop;
mod subscribe;
mod supervisor;
mod terminal;
mod times;
mod top;

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use failure::Failure;

/// The position of global options in a list: behind the command's own.
const LAST: usize = 900;

/// Publish and subscribe in memory: a broker and its clients.
#[derive(Debug, Parser)]
#[command(name = "rbmq", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "Try it, each line in a terminal of its own:
  rbmq serve
  rbmq sub news
  date | rbmq pub news

Exit status: 0 done; 1 failed; 2 wrong usage; 3 done, but messages are missing (sub).")]
struct Cli {
    /// Log more to standard error (-vv: everything)
    #[arg(short, long, global = true, display_order = LAST, action = ArgAction::Count)]
    verbose: u8,
    /// Log only errors
    #[arg(short, long, global = true, display_order = LAST, conflicts_with = "verbose")]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a broker in the foreground
    Serve(serve::Args),
    /// Publish lines of standard input, or a file, to a topic
    Pub(publish::Args),
    /// Receive topics: their messages go to standard output, or to files
    Sub(subscribe::Args),
    /// Watch a broker: its topics and slow subscribers; with a topic's name, its ring
    Top(top::Args),
    /// List the topics of a broker
    Topics(top::ListArgs),
    /// Show the configuration of a broker, and where each setting comes from
    Config(config::Args),
    /// Check this machine for what would slow a broker down or stop it, and show remedies
    Check(check::Args),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  source <(rbmq completions bash)
  rbmq completions zsh > ~/.zfunc/_rbmq          # where ~/.zfunc is in $fpath
  rbmq completions fish > ~/.config/fish/completions/rbmq.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages
    Man(man::Args),
}

/// Runs the command that the arguments name. Wrong arguments end the process with status 2.
fn main() -> ExitCode {
    let cli = Cli::parse();
    let log_options = log::LogOptions { verbose: cli.verbose, quiet: cli.quiet };
    let result = log::check_variable().and_then(|()| run(cli, log_options));
    match result {
        Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(Failure::Usage(command, message)) => wrong_usage(command, message),
        Err(Failure::Failed(message)) => {
            terminal::print_error(&message);
            ExitCode::from(1)
        }
        Err(Failure::Lost(message)) => {
            terminal::print_error(&message);
            ExitCode::from(3)
        }
    }
}

/// Ends with the usage of a subcommand.
fn wrong_usage(name: &str, message: String) -> ! {
    let mut all = Cli::command();
    // The usage of a subcommand has the name of the program only after this.
    all.build();
    let command = all.find_subcommand_mut(name).expect("the subcommand is running");
    command.error(ErrorKind::ArgumentConflict, message).exit()
}

fn run(cli: Cli, log_options: log::LogOptions) -> Result<(), Failure> {
    // The log of a broker is set up with its configuration.
    if !matches!(cli.command, Command::Serve(_)) {
        log_options.start_client();
    }
    match cli.command {
        Command::Serve(args) => serve::run(&args, log_options),
        Command::Pub(args) => publish::run(&args),
        Command::Sub(args) => subscribe::run(&args, cli.quiet),
        Command::Top(args) => top::run(&args),
        Command::Topics(args) => top::list(&args),
        Command::Config(args) => config::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "rbmq", &mut script);
    std::io::stdout().write_all(&script).map_err(|error| Failure::output(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
