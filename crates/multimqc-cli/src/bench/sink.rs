//! A device that drops every frame as early as it can: what a generator costs, and how fast it is.

use multimqc_kernel::FrameSink;

use crate::failure::Failure;
use crate::stop::Stop;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    interface: String,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::install()?;
    let _sink = FrameSink::new(&args.interface).map_err(Failure::failed)?;
    println!("listening");
    stop.wait(None);
    Ok(())
}
