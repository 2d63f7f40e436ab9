//! A UDP socket. The kernel cuts a batch into equal datagrams (UDP_SEGMENT) and coalesces received ones
//! (UDP_GRO), and one call carries several (sendmmsg, recvmmsg). quinn-udp detects what the kernel supports.
//! Without segmentation batches leave by sendmmsg.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};
use rustix::net::{self, sockopt};

use super::lock;
use super::receive_buffers::ReceiveBuffers;
use crate::config::{Config, MIN_DATAGRAM};
use crate::error::OpenError;
use crate::proto::outgoing::Batch;
use crate::wire::MAX_DATAGRAM;

/// The most datagrams in one sendmmsg.
const MAX_SENDMMSG: usize = 64;

/// The socket of a queue.
pub(crate) struct Socket {
    udp: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
    segmentation_offload: bool,
    multicast_interface: Mutex<MulticastInterface>,
}

/// The interface for multicast: one of its addresses, or its index. Both are empty for the choice of the
/// routing table.
#[derive(Clone, Copy)]
struct MulticastInterface {
    address: Ipv4Addr,
    index: u32,
}

impl Socket {
    pub fn bind(addr: SocketAddr, config: &Config) -> Result<Socket, OpenError> {
        let family = if addr.is_ipv4() { net::AddressFamily::INET } else { net::AddressFamily::INET6 };
        let flags = net::SocketFlags::CLOEXEC;
        let made = net::socket_with(family, net::SocketType::DGRAM, flags, Some(net::ipproto::UDP));
        let fd = made.map_err(|e| OpenError::System(e.into()))?;
        let system = |e: rustix::io::Errno| OpenError::System(e.into());
        if config.reuse_address {
            sockopt::set_socket_reuseaddr(&fd, true).map_err(system)?;
        }
        if let Some(bytes) = config.receive_buffer {
            sockopt::set_socket_recv_buffer_size(&fd, bytes).map_err(system)?;
        }
        if let Some(bytes) = config.send_buffer {
            sockopt::set_socket_send_buffer_size(&fd, bytes).map_err(system)?;
        }
        net::bind(&fd, &addr).map_err(|e| OpenError::Bind(e.into()))?;
        let udp = UdpSocket::from(fd);
        let state = UdpSocketState::new(UdpSockRef::from(&udp)).map_err(OpenError::System)?;
        discover_mtu(&udp, addr.is_ipv6()).map_err(system)?;
        let local = udp.local_addr().map_err(OpenError::System)?;
        let multicast_interface = Mutex::new(MulticastInterface { address: Ipv4Addr::UNSPECIFIED, index: 0 });
        let segmentation_offload = config.segmentation_offload;
        datagrams::check_calls(&udp, &state).map_err(OpenError::System)?;
        Ok(Socket { udp, state, local, segmentation_offload, multicast_interface })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }

    /// Sets the interface and the TTL of multicast datagrams.
    pub fn set_multicast(&self, address: Ipv4Addr, index: u32, ttl: u32) -> io::Result<()> {
        let mut multicast_interface = lock(&self.multicast_interface);
        let by = MulticastInterface { address, index };
        set_multicast_interface(&self.udp, self.local.is_ipv6(), by)?;
        if self.local.is_ipv6() {
            sockopt::set_ipv6_multicast_hops(&self.udp, ttl)?;
        } else {
            sockopt::set_ip_multicast_ttl(&self.udp, ttl)?;
        }
        *multicast_interface = by;
        Ok(())
    }

    /// True if this socket can send to the address.
    pub fn reaches(&self, to: SocketAddr) -> bool {
        to.port() != 0 && (self.local.is_ipv6() || to.is_ipv4())
    }

    /// The address as the system calls of this socket take it.
    fn as_sent(&self, to: SocketAddr) -> SocketAddr {
        match (self.local.is_ipv6(), to.ip()) {
            (true, IpAddr::V4(ip)) => SocketAddr::new(ip.to_ipv6_mapped().into(), to.port()),
            _ => to,
        }
    }

    /// Sends the rest of the first batch, or several batches of one datagram in one call. Returns how many
    /// datagrams were sent.
    pub fn send<'a>(&self, mut batches: impl Iterator<Item = &'a Batch>) -> io::Result<usize> {
        let Some(first) = batches.next() else { return Ok(0) };
        if first.unsent_datagrams() > 1 {
            return self.send_segments(first);
        }
        let Some(second) = batches.next().filter(|b| b.unsent_datagrams() == 1) else {
            net::sendto(&self.udp, first.unsent(), net::SendFlags::empty(), &self.as_sent(first.to))?;
            return Ok(1);
        };
        let more = batches.take_while(|b| b.unsent_datagrams() == 1);
        let all = [first, second].into_iter().chain(more).take(MAX_SENDMMSG);
        datagrams::send_many(&self.udp, all.map(|b| (self.as_sent(b.to), b.unsent())))
    }

    /// Sends the datagrams of one batch, cut by the kernel if it can. Returns how many were sent.
    fn send_segments(&self, batch: &Batch) -> io::Result<usize> {
        let destination = self.as_sent(batch.to);
        if self.segmentation_offload && self.state.max_gso_segments() > 1 {
            let transmit = Transmit {
                destination,
                ecn: None,
                contents: batch.unsent(),
                segment_size: Some(batch.segment),
                src_ip: None,
            };
            match self.state.try_send(UdpSockRef::from(&self.udp), &transmit) {
                Ok(()) => return Ok(batch.unsent_datagrams()),
                // The device cannot segment. quinn-udp remembers that.
                Err(_) if self.state.max_gso_segments() == 1 => {}
                Err(error) => return Err(error),
            }
        }
        let all = batch.unsent().chunks(batch.segment).map(|bytes| (destination, bytes));
        datagrams::send_many(&self.udp, all)
    }

    /// Receives the available datagrams. False if there are none.
    pub fn receive(&self, into: &mut ReceiveBuffers) -> io::Result<bool> {
        let socket = UdpSockRef::from(&self.udp);
        into.fill(|slices, metas| match self.state.recv(socket, slices, metas) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            received => received,
        })?;
        Ok(into.has_datagrams())
    }

    /// The largest datagram on the path to an address, as far as the kernel knows: the MTU of the interface,
    /// or less if a router reported less.
    pub fn path(&self, to: SocketAddr) -> usize {
        let headers = if to.is_ipv4() { 28 } else { 48 };
        let mtu = path_mtu(to, *lock(&self.multicast_interface)).unwrap_or(0);
        mtu.saturating_sub(headers).clamp(MIN_DATAGRAM, MAX_DATAGRAM)
    }
}

/// Disables IP fragmentation and enables path MTU discovery.
fn discover_mtu(udp: &UdpSocket, ipv6: bool) -> rustix::io::Result<()> {
    sockopt::set_ip_mtu_discover(udp, sockopt::Ipv4PathMtuDiscovery::DO)?;
    if ipv6 {
        sockopt::set_ipv6_mtu_discover(udp, sockopt::Ipv6PathMtuDiscovery::DO)?;
    }
    Ok(())
}

fn set_multicast_interface(udp: &UdpSocket, ipv6: bool, by: MulticastInterface) -> rustix::io::Result<()> {
    if ipv6 {
        sockopt::set_ipv6_multicast_if(udp, by.index)
    } else {
        sockopt::set_ip_multicast_if_with_ifindex(udp, &Ipv4Addr::UNSPECIFIED, &by.address, by.index)
    }
}

/// The path MTU, from a socket of its own, since only a connected socket knows it. For a group it is the MTU
/// of the multicast interface.
fn path_mtu(to: SocketAddr, multicast_interface: MulticastInterface) -> io::Result<usize> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let probe = UdpSocket::bind((any, 0))?;
    if to.ip().is_multicast() {
        set_multicast_interface(&probe, to.is_ipv6(), multicast_interface)?;
    }
    probe.connect(to)?;
    let mtu = if to.is_ipv4() { sockopt::ip_mtu(&probe)? } else { sockopt::ipv6_mtu(&probe)? };
    Ok(mtu as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loopback interface has a larger MTU than others, and no route leads the group there.
    #[test]
    fn the_path_to_a_group_is_that_of_the_multicast_interface() {
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let socket = Socket::bind(any, &Config::default()).expect("a socket");
        let (group, loopback) =
            (SocketAddr::from(([239, 1, 2, 3], 9)), SocketAddr::from(([127, 0, 0, 1], 9)));
        socket.set_multicast(Ipv4Addr::LOCALHOST, 0, 1).expect("a message is here");
        assert_eq!(socket.path(group), socket.path(loopback));
        assert!(socket.path(group) > 9000, "{}", socket.path(group));
    }
}
