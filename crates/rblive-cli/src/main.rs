//! The command `rblive`: live video from encoders to viewers.

#![forbid(unsafe_code)]

use clap::Parser;

/// Live video from encoders to viewers, out of rings in memory
#[derive(Debug, Parser)]
#[command(name = "rblive", version, arg_required_else_help = true)]
struct Args {}

fn main() {
    Args::parse();
}
