//! A device that drops every frame as early as it can: the cost of a generator, and its rate.

use commands::{Failure, Stop};
use multimqc_kernel::FrameSink;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    interface: String,
    /// In traffic control
    #[arg(long)]
    behind_driver: bool,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::install()?;
    let make = if args.behind_driver { FrameSink::behind_driver } else { FrameSink::new };
    let _sink = make(&args.interface).map_err(Failure::failed)?;
    println!("listening");
    stop.wait(None);
    Ok(())
}
