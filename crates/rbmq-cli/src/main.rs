//! The `rbmq` command: a broker, and clients of it for the shell.
#![forbid(unsafe_code)]

mod absence;
mod begin;
mod bytes;
mod check;
mod client;
mod config;
mod confirm;
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
mod times;
mod top;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

/// Where options stand in a list that every command has: behind its own.
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
    /// Tell more on standard error (-vv: everything)
    #[arg(short, long, global = true, display_order = LAST, action = ArgAction::Count)]
    verbose: u8,
    /// Tell only errors
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
    /// Watch a broker: its topics, and who is slow; with a topic's name, its ring
    Top(top::Args),
    /// List the topics of a broker
    Topics(top::ListArgs),
    /// Show what a broker would work with, and who set it
    Config(config::Args),
    /// Say what of this machine will hurt a broker, and how to mend it
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

/// How a command ends when it does not end well.
#[derive(Debug)]
enum Failure {
    /// The arguments of this subcommand do not fit together.
    Usage(&'static str, String),
    /// It failed; the text says whose fault it is and what to do.
    Failed(String),
    /// It is done, but messages are missing.
    Lost(String),
    /// Whoever read the output has stopped reading.
    OutputClosed,
}

impl Failure {
    fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// For a failure to write to standard output.
    fn output(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Failed(format!("cannot write to standard output: {error}")),
        }
    }
}

/// Runs the command that the arguments name. Arguments that are wrong end the process with status 2.
fn main() -> ExitCode {
    let cli = Cli::parse();
    let wishes = log::Wishes { verbose: cli.verbose, quiet: cli.quiet };
    let result = log::check_variable().and_then(|()| run(cli, wishes));
    match result {
        Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(Failure::Usage(command, message)) => wrong_usage(command, message),
        Err(Failure::Failed(message)) => {
            tell(&message);
            ExitCode::from(1)
        }
        Err(Failure::Lost(message)) => {
            tell(&message);
            ExitCode::from(3)
        }
    }
}

/// Ends with the usage of a subcommand.
fn wrong_usage(name: &str, message: String) -> ! {
    let mut all = Cli::command();
    // Before that a subcommand does not know whose it is.
    all.build();
    let command = all.find_subcommand_mut(name).expect("it is running");
    command.error(ErrorKind::ArgumentConflict, message).exit()
}

fn run(cli: Cli, wishes: log::Wishes) -> Result<(), Failure> {
    // A broker's log is a matter of its configuration.
    if !matches!(cli.command, Command::Serve(_)) {
        wishes.start_client();
    }
    match cli.command {
        Command::Serve(args) => serve::run(&args, wishes),
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

/// Whether words may be coloured there: on a terminal whose owner has not said otherwise (`NO_COLOR`).
fn colors(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !is_dumb() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether the terminal shows what it is sent and does nothing else.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Says something on standard error. Nobody needs to be there to read it, and no peer's words move the cursor.
fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "rbmq: {}", printable(text));
}

/// A text with its control characters written as escapes, but for ends of lines.
fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => safe.push('\n'),
            other if other.is_control() => safe.extend(other.escape_debug()),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_peers_say_cannot_move_the_cursor() {
        assert_eq!(printable("refused:\n\x1b[2J\u{9b}2Jä 'x'"), "refused:\n\\u{1b}[2J\\u{9b}2Jä 'x'");
    }
}
