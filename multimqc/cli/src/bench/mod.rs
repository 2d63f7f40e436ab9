//! `multimqc bench`: the levels beside the paper's standalone middleware, in processes of their own.
//!
//! ```text
//!   namespace of the clients                 namespace of the server
//!   ┌─────────────────────────┐   veth    ┌────────────────────────────────────┐
//!   │ generate: pushes        │ ────────▶ │ multimqc serve, or the standalone  │
//!   │ ask: pulls, round trips │ ◀──────── │ middleware: recvmsg, a file        │
//!   └─────────────────────────┘           └────────────────────────────────────┘
//! ```
//!
//! As root each side has a network namespace of its own, so the machine's network is not touched. Otherwise everything runs over the
//! loopback interface, without the level in the kernel.

mod ask;
mod check;
mod follow;
mod generate;
mod options;
mod placement;
mod process;
mod read;
mod read_frames;
mod row;
mod sink;
mod standalone;
mod system;
mod world;
mod write;

use commands::Failure;
use options::{Generator, Options};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  multimqc bench write --json write.json
  sudo multimqc bench read --json read.json --seconds 2 --reps 5
  sudo multimqc bench read --generator frames --placements together --only 'user;xdp-native'
  sudo multimqc bench check --seconds 5

Compare only rows of one run. cpu_ns_per_message is the time of the server's process; what the kernel does for a packet before the
server has it counts for whoever sends (sender_cpu_ns_per_message) or for the kernel's own threads. total_cpu_ns_per_message has all
of them: its difference to the row drop of the same generator is what a message costs the machine that receives it.")]
pub struct Args {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// How many messages per second reach the last level, by payload
    Write(Options),
    /// How many pulls per second are answered, and how long a reply takes, by level and range
    Read(Options),
    /// Whether anything is torn, or a hole silent, while every processor writes as fast as it can
    Check(check::Args),
    /// The paper's user-space middleware
    #[command(hide = true)]
    Standalone(standalone::Args),
    /// Drops what arrives at a device
    #[command(hide = true)]
    Sink(sink::Args),
    /// Reads the ring of `check`
    #[command(hide = true)]
    Follow(follow::Args),
    /// Sends pushes
    #[command(hide = true)]
    Generate(generate::Args),
    /// Sends pulls
    #[command(hide = true)]
    Ask(ask::Args),
}

pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.part {
        Part::Write(options) => write::run(options),
        Part::Read(options) if options.generator == Generator::Frames => read_frames::run(options),
        Part::Read(options) => read::run(options),
        Part::Check(args) => check::run(args),
        Part::Follow(args) => follow::run(args),
        Part::Standalone(args) => standalone::run(args),
        Part::Sink(args) => sink::run(args),
        Part::Generate(args) => generate::run(args),
        Part::Ask(args) => ask::run(args),
    }
}
