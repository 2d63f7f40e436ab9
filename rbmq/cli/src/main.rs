//! The `rbmq` command: a broker, and clients of it for the shell.
#![forbid(unsafe_code)]

mod absence;
mod acl;
mod archive;
mod attributes;
mod begin;
mod bytes;
mod check;
mod client;
mod cluster;
mod config;
mod confirm;
mod console;
mod files;
mod gateway;
mod groups;
#[cfg(feature = "tls")]
mod keygen;
mod log;
mod login;
mod man;
mod member;
mod outputs;
mod prompt;
mod publish;
mod reload;
mod reload_desk;
mod secrets;
mod serve;
mod sink;
mod source;
mod space_outputs;
mod subscribe;
mod supervisor;
mod times;
mod top;
mod users;
mod worker;

use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use commands::{Failure, Shell};

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
    /// Serve clients of Redis and MQTT beside a broker, which may be on another machine
    Gateway(gateway::Args),
    /// Publish lines of standard input, or a file, to a topic
    Pub(publish::Args),
    /// Receive topics: their messages go to standard output, or to files
    Sub(subscribe::Args),
    /// Watch a broker: its topics and slow subscribers; with a topic's name, its ring
    Top(top::Args),
    /// List the topics of a broker
    Topics(top::ListArgs),
    /// List, show, reset and delete the groups of workers that share topics
    Groups(groups::Args),
    /// Show the configuration of a broker, and where each setting comes from
    Config(config::Args),
    /// Give a user of a broker a password, or remove the user
    Passwd(users::PasswdArgs),
    /// Make, list and revoke tokens of a broker's users
    Token(users::TokenArgs),
    /// Explain what the rules of access give to a user
    Acl(acl::Args),
    /// Look at a cluster of brokers, and move its topics
    Cluster(cluster::Args),
    /// Check this machine for what would slow a broker down or stop it, and show remedies
    Check(check::Args),
    /// Make certificates for TLS: an authority, servers, clients
    #[cfg(feature = "tls")]
    Keygen(keygen::Args),
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
    #[command(after_help = "Examples:
  rbmq man | man -l -
  rbmq man /usr/local/share/man/man1")]
    Man(commands::man::Args),
}

/// Runs the command that the arguments name. Wrong arguments end the process with status 2.
fn main() -> ExitCode {
    #[cfg(feature = "planted-bugs")]
    plant();
    let cli: Cli = commands::parse();
    let log_options = log::LogOptions { verbose: cli.verbose, quiet: cli.quiet };
    let result = log::check_variable().and_then(|()| run(cli, log_options));
    commands::status(Cli::command, result)
}

/// Switches on the bug that a test has planted.
#[cfg(feature = "planted-bugs")]
fn plant() {
    let bug = std::env::var("RBMQ_PLANTED").ok().and_then(|bug| bug.parse().ok());
    bug.into_iter()
        .for_each(|bug| rocketbufs::planted::ACTIVE.store(bug, std::sync::atomic::Ordering::Relaxed));
}

fn run(cli: Cli, log_options: log::LogOptions) -> Result<(), Failure> {
    // The log of a server is set up with its configuration.
    if !matches!(cli.command, Command::Serve(_) | Command::Gateway(_)) {
        log_options.start_client();
    }
    match cli.command {
        Command::Serve(args) => serve::run(&args, log_options),
        Command::Gateway(args) => gateway::run(&args, log_options),
        Command::Pub(args) => publish::run(&args),
        Command::Sub(args) => subscribe::run(&args, cli.quiet),
        Command::Top(args) => top::run(&args),
        Command::Topics(args) => top::list(&args),
        Command::Groups(args) => groups::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Passwd(args) => users::passwd(&args),
        Command::Token(args) => users::token(&args),
        Command::Acl(args) => acl::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Check(args) => check::run(&args),
        #[cfg(feature = "tls")]
        Command::Keygen(args) => keygen::run(&args),
        Command::Man(args) => commands::man::run(&args, Cli::command(), &man::SECTIONS),
        Command::Completions { shell } => commands::print_completions(shell, Cli::command()),
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
        assert_eq!(tidy::shell::refused("rbmq", &Cli::command()), [""; 0]);
    }
}
