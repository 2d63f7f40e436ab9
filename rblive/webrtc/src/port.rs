//! The UDP port of all peers.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use socket2::SockRef;

use crate::counters::Counters;

/// The bytes of datagrams that the system is asked to hold in each direction. Without the right to more, it holds what it allows.
const BUFFER: usize = 4 << 20;

pub(crate) struct Port {
    socket: UdpSocket,
    address: SocketAddr,
    is_v6: bool,
}

impl Port {
    pub(crate) fn open(listen: &str) -> io::Result<Self> {
        let socket = UdpSocket::bind(listen)?;
        socket.set_nonblocking(true)?;
        let own = SockRef::from(&socket);
        // The system cuts what it does not allow, and says no error.
        own.set_send_buffer_size(BUFFER)?;
        own.set_recv_buffer_size(BUFFER)?;
        let address = socket.local_addr()?;
        Ok(Self { is_v6: address.is_ipv6(), socket, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next datagram, and its sender.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<(SocketAddr, &'a [u8])> {
        loop {
            match self.socket.recv_from(buffer) {
                Ok((bytes, from)) => {
                    return Some((SocketAddr::new(from.ip().to_canonical(), from.port()), &buffer[..bytes]));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // An earlier datagram was refused by its receiver, or a signal came.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted
                    ) => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends a datagram. What the system does not take is lost, as on the way.
    pub(crate) fn send(&self, to: SocketAddr, bytes: &[u8], counters: &Counters) {
        let to = match to {
            SocketAddr::V4(own) if self.is_v6 => {
                SocketAddr::new(IpAddr::V6(own.ip().to_ipv6_mapped()), own.port())
            }
            other => other,
        };
        match self.socket.send_to(bytes, to) {
            Ok(_) => {
                counters.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            Err(_) => Counters::add(&counters.unsent_datagrams),
        }
    }
}
