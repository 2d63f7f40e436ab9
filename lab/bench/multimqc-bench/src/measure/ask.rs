//! The client of the read bench: pulls, one at a time for round trips, and many at a time for the rate.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use commands::{Failure, print};
use multimqc::wire::PullRequest;

/// How long a reply is waited for.
const LOST: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    to: SocketAddr,
    #[arg(long)]
    start: u64,
    #[arg(long)]
    length: u16,
    #[arg(long)]
    seconds: f64,
    /// Pulls that are under way at a time
    #[arg(long)]
    window: u32,
}

/// Prints a line when it begins, and then the replies, the lost pulls, and the median and 99th percentile of the round trips
/// in nanoseconds (0 with several pulls at a time).
pub fn run(args: &Args) -> Result<(), Failure> {
    let fail = |error: io::Error| Failure::Failed(format!("pulls to {}: {error}", args.to));
    let socket = UdpSocket::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)).map_err(fail)?;
    socket.connect(args.to).map_err(fail)?;
    socket.set_read_timeout(Some(LOST)).map_err(fail)?;
    print("asking\n")?;
    let mut request = Vec::new();
    PullRequest { start: args.start, length: args.length.into() }
        .encode_padded(args.length.into(), &mut request);
    let end = Instant::now() + Duration::from_secs_f64(args.seconds);
    let mut counted = Counted::default();
    while Instant::now() < end {
        counted.turn(&socket, &request, args).map_err(fail)?;
    }
    counted.round_trips.sort_unstable();
    let at = |part: usize| {
        let last = counted.round_trips.len().saturating_sub(1);
        counted.round_trips.get(last * part / 100).copied().unwrap_or(0)
    };
    println!("{} {} {} {}", counted.replies, counted.lost, at(50), at(99));
    Ok(())
}

#[derive(Default)]
struct Counted {
    replies: u64,
    lost: u64,
    round_trips: Vec<u64>,
}

impl Counted {
    /// A window of pulls and their replies.
    fn turn(&mut self, socket: &UdpSocket, request: &[u8], args: &Args) -> io::Result<()> {
        let mut reply = [0; 2048];
        let begin = Instant::now();
        for _ in 0..args.window {
            socket.send(request)?;
        }
        for arrived in 0..args.window {
            match socket.recv(&mut reply) {
                Ok(bytes) if bytes == usize::from(args.length) => self.replies += 1,
                Ok(bytes) => return Err(io::Error::other(format!("a reply of {bytes} bytes"))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.lost += u64::from(args.window - arrived);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        if args.window == 1 {
            self.round_trips.push(begin.elapsed().as_nanos() as u64);
        }
        Ok(())
    }
}
