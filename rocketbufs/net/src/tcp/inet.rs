//! Sockets of the Internet families before they have a purpose.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// A non-blocking stream socket of the address's family.
pub(super) fn open(addr: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

/// A free port of this machine, and the socket that has it and does not listen.
pub(super) fn take_port(addr: &SocketAddr) -> Result<(OwnedFd, SocketAddr), Errno> {
    let socket = open(addr)?;
    rustix::net::bind(&socket, addr)?;
    let bound = rustix::net::getsockname(&socket)?;
    Ok((socket, SocketAddr::try_from(bound)?))
}
