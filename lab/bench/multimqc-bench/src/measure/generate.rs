//! The generator of pushes, and of pulls as frames: as many as the system takes.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use commands::{Failure, print};
use multimqc::wire::PullRequest;
use multimqc_kernel::{FrameSender, KernelError};
use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use super::options::Generator;
use super::world::{CLIENT_ADDRESS, CLIENT_DEVICE, CLIENT_MAC, SERVER_MAC};

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
    /// Frames that pull so many bytes, the payload, from here on
    #[arg(long)]
    pull_from: Option<u64>,
    /// Frames with numbered messages of 32 bytes, from this number on
    #[arg(long, conflicts_with = "pull_from")]
    number_from: Option<u64>,
}

/// Prints a line when it begins, and one with the number of sent messages or pulls when it is done.
pub fn run(args: &Args) -> Result<(), Failure> {
    let socket = UdpSocket::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)).map_err(Failure::failed)?;
    if args.kind == Generator::Sendmmsg {
        socket.connect(args.to).map_err(Failure::failed)?;
    }
    print("generating\n")?;
    let end = Instant::now() + Duration::from_secs_f64(args.seconds);
    let sent = match args.kind {
        Generator::Sendmmsg => calls(args, &socket, end),
        Generator::Frames => frames(args, end)?,
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

/// Frames that the kernel sends through the clients' device. A call costs milliseconds however few frames it sends, so each is as
/// long as its predecessor allows: long enough for the highest rates, and short enough that a slow receiver does not prolong the end.
fn frames(args: &Args, end: Instant) -> Result<u64, Failure> {
    const FIRST: u32 = 1 << 14;
    const MOST: u32 = 1 << 20;
    const CALL: Duration = Duration::from_millis(250);
    let frame = frame(args)?;
    let sender = sender(args, &frame).map_err(Failure::failed)?;
    let (mut sent, mut count) = (0, FIRST);
    loop {
        let began = Instant::now();
        if began >= end {
            return Ok(sent);
        }
        sender.send(&frame, count).map_err(Failure::failed)?;
        sent += u64::from(count);
        let fits = f64::from(count) * CALL.as_secs_f64() / began.elapsed().as_secs_f64();
        count = (fits as u32).clamp(FIRST, MOST);
    }
}

/// Pulls come back as replies in the same memory, so their beginnings are written each time.
fn sender(args: &Args, frame: &[u8]) -> Result<FrameSender, KernelError> {
    match (args.pull_from, args.number_from) {
        (Some(_), _) => FrameSender::rewriting(CLIENT_DEVICE, frame),
        (None, Some(first)) => FrameSender::numbering(CLIENT_DEVICE, frame, first),
        (None, None) => FrameSender::new(CLIENT_DEVICE),
    }
}

/// An Ethernet frame with a push or a pull. Its UDP checksum is 0, which says that there is none.
fn frame(args: &Args) -> Result<Vec<u8>, Failure> {
    let (IpAddr::V4(to), IpAddr::V4(from)) = (args.to.ip(), CLIENT_ADDRESS) else {
        return Err(Failure::Failed("frames are IPv4 only".into()));
    };
    let mut frame = [SERVER_MAC, CLIENT_MAC].concat();
    frame.extend(0x0800_u16.to_be_bytes());
    let mut ip = vec![0x45, 0];
    ip.extend((28 + args.payload).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip.extend(from.octets());
    ip.extend(to.octets());
    let sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    for number in [40_000, args.to.port(), 8 + args.payload, 0] {
        frame.extend(number.to_be_bytes());
    }
    let mut payload = vec![0x5A; args.payload.into()];
    if let Some(start) = args.pull_from {
        PullRequest { start, length: args.payload.into() }.encode_padded(args.payload.into(), &mut payload);
    }
    frame.extend(payload);
    Ok(frame)
}
