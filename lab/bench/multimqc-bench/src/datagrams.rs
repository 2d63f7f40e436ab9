//! Datagrams from a socket, as many as have arrived with one call (recvmmsg).

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;

/// Larger than every datagram, and than those that the kernel puts together.
const BUFFER_BYTES: usize = 1 << 16;

/// A socket with buffers.
pub struct Datagrams {
    socket: UdpSocket,
    state: UdpSocketState,
    bytes: Vec<u8>,
}

impl Datagrams {
    pub fn bind(address: IpAddr, port: u16) -> io::Result<Datagrams> {
        let socket = UdpSocket::bind(SocketAddr::new(address, port))?;
        sockopt::set_socket_recv_buffer_size(&socket, 4 << 20)?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(Datagrams { socket, state, bytes: vec![0; BATCH_SIZE * BUFFER_BYTES] })
    }

    /// Waits at most this long for datagrams, and hands out each. Returns how many there were.
    pub fn receive(&mut self, patience: Duration, mut each: impl FnMut(&[u8])) -> io::Result<usize> {
        let wait = rustix::time::Timespec::try_from(patience).map_err(io::Error::other)?;
        if poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&wait))? == 0 {
            return Ok(0);
        }
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut chunks = self.bytes.chunks_exact_mut(BUFFER_BYTES);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("a buffer for each slice")));
        let count = match self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut metas) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut datagrams = 0;
        for (buffer, meta) in self.bytes.chunks_exact(BUFFER_BYTES).zip(&metas[..count]) {
            for datagram in buffer[..meta.len].chunks(meta.stride.max(1)) {
                each(datagram);
                datagrams += 1;
            }
        }
        Ok(datagrams)
    }
}
