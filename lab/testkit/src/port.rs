//! Ports that stay free between two brokers at the same address.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

/// The sockets that reserve ports, up to the end of the process.
static RESERVED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// An address of the loopback that no other process gets as its free port. A socket that is bound and does not listen holds the
/// port; listeners with SO_REUSEADDR, as brokers have, can bind the port nevertheless.
///
/// # Panics
/// There is no free port.
pub fn reserved_addr() -> String {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    set_socket_reuseaddr(&socket, true).expect("an option of the socket");
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let addr = SocketAddrV4::try_from(getsockname(&socket).expect("an address")).expect("an IPv4 address");
    RESERVED.lock().expect("no panic").push(socket);
    addr.to_string()
}
