//! One message for many: groups (paper, "Multicast IPC").
//!
//! A multicast address is a key like any other: whoever pushes to it needs nothing but, perhaps, [`Multicast::send_by`].
//! Whoever wants to receive binds the group's port (at `0.0.0.0` or `::`), and joins. Each sender has a stream of its own
//! for the group, so what one receiver lost it knows, whatever others received; one that joins later sees how many
//! messages it has missed ([`Event::Joined`](crate::Event::Joined)).

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use rustix::net::{netdevice, sockopt};

use crate::io::socket::Socket;

/// A network interface of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interface {
    /// The one that the routes say.
    Any,
    /// By its name: `eth0`.
    Name(String),
    /// By one of its IPv4 addresses.
    Address(Ipv4Addr),
}

impl FromStr for Interface {
    type Err = std::convert::Infallible;

    /// An IPv4 address, or else a name.
    fn from_str(text: &str) -> Result<Interface, Self::Err> {
        Ok(text.parse().map_or_else(|_| Interface::Name(text.to_owned()), Interface::Address))
    }
}

/// The groups of a queue, and how it sends to groups. Made by [`Cmq::multicast`](crate::Cmq::multicast).
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
    /// Receives what is sent to a group, by this interface. Several queues of one machine may have the group's port, if
    /// [`Config::reuse_address`](crate::Config::reuse_address) is set for each.
    ///
    /// # Errors
    /// The system's: no such interface, not a group, of the other IP version, joined already.
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

    /// Receives it no more. As long as another socket of this machine with the same port is a member, Linux goes on
    /// delivering to all of them.
    ///
    /// # Errors
    /// The system's: not joined by this interface.
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

    /// What this queue sends to groups leaves by this interface, and passes at most `ttl - 1` routers (1, as long as it
    /// is not set: the local network).
    ///
    /// # Errors
    /// The system's: no such interface, a `ttl` over 255.
    pub fn send_by(&self, interface: &Interface, ttl: u32) -> io::Result<()> {
        let (address, index) = self.find(interface)?;
        self.socket.send_groups_by(address, index, ttl)
    }

    /// Whether queues of this machine receive what this one sends to groups. They do, as long as this is not set.
    ///
    /// # Errors
    /// The system's.
    pub fn loopback(&self, on: bool) -> io::Result<()> {
        if self.socket.local_addr().is_ipv6() {
            sockopt::set_ipv6_multicast_loop(self.socket.fd(), on)?;
        } else {
            sockopt::set_ip_multicast_loop(self.socket.fd(), on)?;
        }
        Ok(())
    }

    /// As the system wants it: an address, or a number; both nothing for any.
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
