//! A receiver past the network stack: AF_XDP in copy mode, which works with every driver.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use commands::{Failure, Stop};

use crate::count::Count;
use crate::xsk::Receiver;

/// Ethernet, IPv4 without options, UDP.
const HEADERS: usize = 42;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    interface: String,
    #[arg(long)]
    port: u16,
    /// The file of the log
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    count: PathBuf,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::install()?;
    let mut receiver = Receiver::new(&args.interface, args.port)?;
    let (count, mut file) = (Count::create(&args.count)?, File::create(&args.file)?);
    println!("listening");
    let (mut stored, mut gathered) = (0, Vec::new());
    while !stop.asked() {
        gathered.clear();
        let frames = receiver.receive(10, |frame| {
            let length = usize::from(u16::from_be_bytes([frame[38], frame[39]])).saturating_sub(8);
            gathered.extend_from_slice(frame.get(HEADERS..HEADERS + length).unwrap_or_default());
        })?;
        if frames > 0 {
            file.write_all(&gathered)?;
            stored += frames as u64;
            count.set(stored)?;
        }
    }
    Ok(())
}
