//! The levels of MultiMQC beside the paper's standalone middleware, in processes of their own.
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
mod control;
mod follow;
mod generate;
mod options;
mod placement;
mod process;
mod read;
mod read_frames;
pub mod row;
mod sink;
mod standalone;
mod system;
mod world;
mod write;

use commands::Failure;
use options::{Generator, Options};

/// The parts of the bench, and the programs that it starts.
#[derive(Debug, clap::Subcommand)]
pub enum Part {
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

pub fn run(part: &Part) -> Result<(), Failure> {
    match part {
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
