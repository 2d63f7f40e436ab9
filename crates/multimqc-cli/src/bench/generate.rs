//! The generator of pushes: as many as the system takes, 64 with each call.

use std::io::{IoSlice, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use crate::failure::Failure;

/// Messages of one call.
const BATCH: usize = 64;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    to: SocketAddr,
    #[arg(long)]
    payload: u16,
    #[arg(long)]
    seconds: f64,
    /// Send so many messages instead
    #[arg(long)]
    count: Option<u64>,
}

/// Prints a line when it begins, and one with the number of sent messages when it is done.
pub fn run(args: &Args) -> Result<(), Failure> {
    let socket = UdpSocket::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)).map_err(Failure::failed)?;
    socket.connect(args.to).map_err(Failure::failed)?;
    println!("generating");
    std::io::stdout().flush().map_err(|error| Failure::output(&error))?;
    let payload = vec![0x5A; args.payload.into()];
    let end = Instant::now() + Duration::from_secs_f64(args.seconds);
    let mut sent = 0;
    while args.count.map_or_else(|| Instant::now() < end, |count| sent < count) {
        let most = args.count.map_or(BATCH, |count| BATCH.min((count - sent) as usize));
        let slices = [[IoSlice::new(&payload)]; BATCH];
        let mut controls: [SendAncillaryBuffer<'_, '_, '_>; BATCH] =
            std::array::from_fn(|_| SendAncillaryBuffer::default());
        let mut messages: Vec<MMsgHdr<'_>> = slices
            .iter()
            .zip(&mut controls)
            .take(most)
            .map(|(slice, control)| MMsgHdr::new(slice, control))
            .collect();
        // A refused message is one that nobody has received: the next call goes on.
        sent += sendmmsg(&socket, &mut messages, SendFlags::empty()).unwrap_or(0) as u64;
        if args.count.is_some() {
            // So many that no buffer overflows.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    println!("{sent}");
    Ok(())
}
