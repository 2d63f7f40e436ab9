//! A UDP socket that receives and sends many datagrams with one call: recvmmsg with UDP_GRO, and sendmmsg.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use rustix::net::{self, sockopt};
use socket2::{Domain, Type};

/// The most buffers that one call fills. Each can hold several datagrams of one sender, which the kernel has put together.
pub(crate) const BATCH: usize = quinn_udp::BATCH_SIZE;
/// Larger than every datagram, so that none is cut.
const BUFFER_BYTES: usize = 1 << 16;

pub(crate) struct Socket {
    udp: UdpSocket,
    state: UdpSocketState,
}

/// The datagrams of one receive call.
pub(crate) struct Received {
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH],
    count: usize,
}

/// Replies, to be sent with one call.
#[derive(Default)]
pub(crate) struct Replies {
    bytes: Vec<u8>,
    to: Vec<(SocketAddr, std::ops::Range<usize>)>,
}

impl Socket {
    /// A socket that receives only datagrams from `interface`, if one is named.
    pub fn bind(
        address: SocketAddr,
        interface: Option<&str>,
        receive_buffer_bytes: usize,
    ) -> io::Result<Socket> {
        let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
        // The interface is set before the address, since sockets of different interfaces may have the same address.
        if let Some(interface) = interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        socket.bind(&address.into())?;
        let udp = UdpSocket::from(socket);
        sockopt::set_socket_recv_buffer_size(&udp, receive_buffer_bytes)?;
        let state = UdpSocketState::new(UdpSockRef::from(&udp))?;
        // `UdpSocketState` forbids fragments, and a reply over IPv4 may be longer than a tunnel or a line of DSL takes.
        sockopt::set_ip_mtu_discover(&udp, sockopt::Ipv4PathMtuDiscovery::WANT)?;
        datagrams::check_calls(&udp, &state)?;
        Ok(Socket { udp, state })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }

    /// Receives the datagrams that have arrived. Never waits.
    pub fn receive(&self, into: &mut Received) -> io::Result<()> {
        into.count = 0;
        let mut chunks = into.bytes.chunks_exact_mut(BUFFER_BYTES);
        let mut slices: [IoSliceMut<'_>; BATCH] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("a buffer for each slice")));
        into.count = self.state.recv(UdpSockRef::from(&self.udp), &mut slices, &mut into.metas)?;
        Ok(())
    }

    /// Sends replies. Returns how many were not sent. A client that gets no reply asks again.
    pub fn send(&self, replies: &mut Replies) -> usize {
        let (mut done, mut unsent) = (0, 0);
        while done < replies.to.len() {
            match self.send_from(replies, done) {
                Ok(more) if more > 0 => done += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    unsent += replies.to.len() - done;
                    break;
                }
                // One that cannot be sent, as its client may forge, holds up no other.
                _ => (done, unsent) = (done + 1, unsent + 1),
            }
        }
        replies.bytes.clear();
        replies.to.clear();
        unsent
    }

    fn send_from(&self, replies: &Replies, first: usize) -> io::Result<usize> {
        let rest = &replies.to[first..];
        if let [(to, range)] = rest {
            net::sendto(&self.udp, &replies.bytes[range.clone()], net::SendFlags::empty(), to)?;
            return Ok(1);
        }
        let datagrams = rest.iter().map(|(to, range)| (*to, &replies.bytes[range.clone()]));
        datagrams::send_many(&self.udp, datagrams)
    }
}

impl Received {
    pub fn new() -> Received {
        Received { bytes: vec![0; BATCH * BUFFER_BYTES], metas: [RecvMeta::default(); BATCH], count: 0 }
    }

    /// Whether the last call filled all buffers.
    pub fn is_full(&self) -> bool {
        self.count == BATCH
    }

    /// The datagrams of the last call, with their senders.
    pub fn iter(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        let filled = self.bytes.chunks_exact(BUFFER_BYTES).zip(&self.metas).take(self.count);
        filled.flat_map(|(buffer, meta)| {
            let bytes = &buffer[..meta.len];
            // An empty datagram has no chunks, but is counted too.
            let empty = bytes.is_empty().then_some(bytes);
            bytes.chunks(meta.stride.max(1)).chain(empty).map(|datagram| (meta.addr, datagram))
        })
    }
}

impl Replies {
    pub fn add(&mut self, to: SocketAddr, bytes: &[u8]) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.to.push((to, begin..self.bytes.len()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reply_that_cannot_be_sent_holds_up_no_other() {
        let server = Socket::bind("127.0.0.1:0".parse().unwrap(), None, 1 << 16).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // A broadcast, which the socket may not send.
        let nobody = "255.255.255.255:9".parse().unwrap();
        let mut replies = Replies::default();
        for (to, text) in
            [(client.local_addr().unwrap(), b"one"), (nobody, b"two"), (client.local_addr().unwrap(), b"six")]
        {
            replies.add(to, text);
        }
        assert_eq!(server.send(&mut replies), 1);
        for text in [b"one", b"six"] {
            let mut got = [0; 3];
            assert_eq!(client.recv(&mut got).unwrap(), 3);
            assert_eq!(&got, text);
        }
    }
}
