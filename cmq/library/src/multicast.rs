//! Multicast: one message for many receivers (paper, "Multicast IPC").
//!
//! A multicast address is a key like any other. A sender pushes to it, and may choose the interface with
//! [`Multicast::set_interface`]. A receiver binds the port of the group (at `0.0.0.0` or `::`) and joins the
//! group. Each sender has a stream of its own for each group, so each receiver sees its own losses. A
//! receiver that joins later sees how many messages it has missed ([`Event::Joined`](crate::Event::Joined)).

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use rustix::net::{netdevice, sockopt};

use crate::io::socket::Socket;

/// A network interface of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interface {
    /// The interface that the routing table selects.
    Any,
    /// An interface by its name, for example `eth0`.
    Name(String),
    /// An interface by one of its IPv4 addresses.
    Address(Ipv4Addr),
}

impl FromStr for Interface {
    type Err = std::convert::Infallible;

    /// Parses an IPv4 address, or else a name.
    fn from_str(text: &str) -> Result<Interface, Self::Err> {
        Ok(text.parse().map_or_else(|_| Interface::Name(text.to_owned()), Interface::Address))
    }
}

/// The multicast settings of a queue. Returned by [`Cmq::multicast`](crate::Cmq::multicast).
#[derive(Clone, Copy)]
pub struct Multicast<'a> {
    pub(crate) socket: &'a Socket,
}

impl std::fmt::Debug for Multicast<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Multicast").finish_non_exhaustive()
    }
}

impl Multicast<'_> {
    /// Joins a group at an interface. Several queues of one machine may share the port of the group, if each
    /// has [`Config::reuse_address`](field@crate::Config::reuse_address).
    ///
    /// # Errors
    /// The system's: no such interface, not a multicast address, another IP version, or already joined.
    pub fn join(&self, group: IpAddr, interface: &Interface) -> io::Result<()> {
        let (address, index) = self.find(interface)?;
        match group {
            IpAddr::V4(group) => {
                sockopt::set_ip_add_membership_with_ifindex(self.socket.fd(), &group, &address, index)?;
            }
            IpAddr::V6(group) => sockopt::set_ipv6_add_membership(self.socket.fd(), &group, index)?,
        }
        Ok(())
    }

    /// Leaves a group. Linux continues to deliver to this queue while another socket of this machine with the
    /// same port is a member.
    ///
    /// # Errors
    /// The system's: the group was not joined at this interface.
    pub fn leave(&self, group: IpAddr, interface: &Interface) -> io::Result<()> {
        let (address, index) = self.find(interface)?;
        match group {
            IpAddr::V4(group) => {
                sockopt::set_ip_drop_membership_with_ifindex(self.socket.fd(), &group, &address, index)?;
            }
            IpAddr::V6(group) => sockopt::set_ipv6_drop_membership(self.socket.fd(), &group, index)?,
        }
        Ok(())
    }

    /// Sends multicast messages by this interface, across at most `ttl - 1` routers. The initial `ttl` is 1:
    /// the local network.
    ///
    /// # Errors
    /// The system's: no such interface, or a `ttl` over 255.
    pub fn set_interface(&self, interface: &Interface, ttl: u32) -> io::Result<()> {
        let (address, index) = self.find(interface)?;
        self.socket.set_multicast(address, index, ttl)
    }

    /// Sets whether queues of this machine receive datagrams that this queue sends to groups. Initially they do.
    ///
    /// # Errors
    /// The system's.
    pub fn set_loopback(&self, on: bool) -> io::Result<()> {
        if self.socket.local_addr().is_ipv6() {
            sockopt::set_ipv6_multicast_loop(self.socket.fd(), on)?;
        } else {
            sockopt::set_ip_multicast_loop(self.socket.fd(), on)?;
        }
        Ok(())
    }

    /// The interface as the system takes it: an address, or an index. Both are empty for any interface.
    fn find(&self, interface: &Interface) -> io::Result<(Ipv4Addr, u32)> {
        match interface {
            Interface::Any => Ok((Ipv4Addr::UNSPECIFIED, 0)),
            Interface::Address(address) => Ok((*address, 0)),
            Interface::Name(name) => {
                let index = netdevice::name_to_index(self.socket.fd(), name)
                    .map_err(|error| io::Error::other(format!("interface {name}: {error}")))?;
                Ok((Ipv4Addr::UNSPECIFIED, index))
            }
        }
    }
}
