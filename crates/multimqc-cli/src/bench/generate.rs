//! The generator of pushes: as many as the system takes.

use std::io::{IoSlice, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use super::options::Generator;
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
    #[arg(long, value_enum, default_value_t = Generator::Sendmmsg)]
    kind: Generator,
}

/// Prints a line when it begins, and one with the number of sent messages when it is done.
pub fn run(args: &Args) -> Result<(), Failure> {
    let socket = UdpSocket::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)).map_err(Failure::failed)?;
    if args.kind == Generator::Sendmmsg {
        socket.connect(args.to).map_err(Failure::failed)?;
    }
    println!("generating");
    std::io::stdout().flush().map_err(|error| Failure::output(&error))?;
    let end = Instant::now() + Duration::from_secs_f64(args.seconds);
    let sent = match args.kind {
        Generator::Sendmmsg => calls(args, &socket, end),
        Generator::Gso => segments(args, &socket, end).map_err(Failure::failed)?,
    };
    println!("{sent}");
    Ok(())
}

/// Many messages with each call, each a packet of its own for the kernel.
fn calls(args: &Args, socket: &UdpSocket, end: Instant) -> u64 {
    let payload = vec![0x5A; args.payload.into()];
    let mut sent = 0;
    while args.count.map_or_else(|| Instant::now() < end, |count| sent < count) {
        let most = args.count.map_or(BATCH, |count| BATCH.min((count - sent) as usize));
        let slices = [[IoSlice::new(&payload)]; BATCH];
        let mut controls: [SendAncillaryBuffer<'_, '_, '_>; BATCH] =
            std::array::from_fn(|_| SendAncillaryBuffer::default());
        let controls = controls.iter_mut();
        let pairs = slices.iter().zip(controls).take(most);
        let mut messages: Vec<MMsgHdr<'_>> =
            pairs.map(|(slice, control)| MMsgHdr::new(slice, control)).collect();
        // A refused message is one that nobody has received: the next call goes on.
        sent += sendmmsg(socket, &mut messages, SendFlags::empty()).unwrap_or(0) as u64;
        if args.count.is_some() {
            // So many that no buffer overflows.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    sent
}

/// Many messages as one packet, which the kernel cuts as late as it can.
fn segments(args: &Args, socket: &UdpSocket, end: Instant) -> std::io::Result<u64> {
    let state = UdpSocketState::new(UdpSockRef::from(socket))?;
    let payload = usize::from(args.payload);
    let count = state.max_gso_segments().min(60_000 / payload).max(1);
    let contents = vec![0x5A; count * payload];
    let transmit = Transmit {
        destination: args.to,
        ecn: None,
        contents: &contents,
        segment_size: Some(payload),
        src_ip: None,
    };
    let mut sent = 0;
    while Instant::now() < end {
        match state.try_send(UdpSockRef::from(socket), &transmit) {
            Ok(()) => sent += count as u64,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(socket, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}
