//! The paper's middleware (section IV-D): one thread writes pushes to a file, another answers pulls from it.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use commands::{Failure, Stop};
use multimqc::wire::{MTU_PAYLOAD_BYTES, PullRequest, reply_limit};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg_addr, sockopt,
};

/// Larger than every datagram, and than those that the kernel puts together.
const BUFFER_BYTES: usize = 1 << 16;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    address: IpAddr,
    #[arg(long)]
    push_port: u16,
    #[arg(long)]
    pull_port: u16,
    /// The file of the log
    #[arg(long)]
    file: PathBuf,
    /// Take many datagrams with one call, and write them with one
    #[arg(long)]
    many: bool,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::install()?;
    let fail = |error: io::Error| Failure::Failed(format!("standalone: {error}"));
    let bind = |port| {
        let socket = UdpSocket::bind(SocketAddr::new(args.address, port))?;
        sockopt::set_socket_recv_buffer_size(&socket, 4 << 20)?;
        io::Result::Ok(socket)
    };
    let (push, pull) = (bind(args.push_port).map_err(fail)?, bind(args.pull_port).map_err(fail)?);
    let file = File::options().create(true).append(true).read(true).open(&args.file).map_err(fail)?;
    let reader = file.try_clone().map_err(fail)?;
    let many = args.many;
    // Both threads end with the process.
    std::thread::spawn(move || if many { store_many(&push, file) } else { store(&push, file) });
    std::thread::spawn(move || answer(&pull, &reader));
    println!("standalone: listening");
    stop.wait(None);
    Ok(())
}

/// Each message costs one recvmsg and one write.
fn store(socket: &UdpSocket, mut file: File) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let received = {
            let mut slices = [IoSliceMut::new(&mut buffer)];
            recvmsg(socket, &mut slices, &mut RecvAncillaryBuffer::default(), RecvFlags::empty())?
        };
        file.write_all(&buffer[..received.bytes])?;
    }
}

/// As many messages as have arrived with one recvmmsg, and one write.
fn store_many(socket: &UdpSocket, mut file: File) -> io::Result<()> {
    let state = UdpSocketState::new(UdpSockRef::from(socket))?;
    let (mut bytes, mut gathered) = (vec![0; BATCH_SIZE * BUFFER_BYTES], Vec::new());
    let mut metas = [RecvMeta::default(); BATCH_SIZE];
    loop {
        let count = {
            let mut chunks = bytes.chunks_exact_mut(BUFFER_BYTES);
            let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
                std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("a buffer for each slice")));
            match state.recv(UdpSockRef::from(socket), &mut slices, &mut metas) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(socket, PollFlags::IN)], None)?;
                    continue;
                }
                Err(error) => return Err(error),
            }
        };
        gathered.clear();
        for (buffer, meta) in bytes.chunks_exact(BUFFER_BYTES).zip(&metas[..count]) {
            gathered.extend_from_slice(&buffer[..meta.len]);
        }
        file.write_all(&gathered)?;
    }
}

/// Each pull costs one recvmsg, one read and one sendmsg.
fn answer(socket: &UdpSocket, file: &File) -> io::Result<()> {
    let (mut buffer, mut reply) = (vec![0; BUFFER_BYTES], vec![0; MTU_PAYLOAD_BYTES]);
    loop {
        let received = {
            let mut slices = [IoSliceMut::new(&mut buffer)];
            recvmsg(socket, &mut slices, &mut RecvAncillaryBuffer::default(), RecvFlags::empty())?
        };
        let Some(to) = received.address.and_then(|address| SocketAddr::try_from(address).ok()) else {
            continue;
        };
        let Some(pull) = PullRequest::parse(&buffer[..received.bytes]) else { continue };
        let limit = reply_limit(received.bytes, false, MTU_PAYLOAD_BYTES);
        let length = usize::try_from(pull.length).unwrap_or(usize::MAX).min(limit);
        let found = file.read_at(&mut reply[..length], pull.start)?;
        let slices = [IoSlice::new(&reply[..found])];
        // A client that is gone gets no reply.
        let _ = sendmsg_addr(socket, &to, &slices, &mut SendAncillaryBuffer::default(), SendFlags::empty());
    }
}
