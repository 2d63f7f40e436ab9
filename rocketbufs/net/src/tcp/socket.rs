//! Making sockets: addresses, options, listening, connecting.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{ops, process};

use rustix::io::Errno;
use rustix::net::{Shutdown, sockopt};

use super::config::{Carry, TcpConfig};
use super::{inet, local};
use crate::contract::TransportError;

/// Where to connect to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    Inet(SocketAddr),
    Local(SocketAddr),
}

/// A socket that ends with this value: its peer learns it, and its address is free.
///
/// A child of `fork` has a copy of each descriptor, until it runs another program or for its whole life, and a socket of which there is a
/// copy outlives its closing. A shut one is at its end whoever has it. A copy that the child drops shuts nothing. Who watches the socket with
/// epoll takes it out first: the copy would keep it there.
pub(super) struct Own<T: AsFd> {
    socket: T,
    /// The process that made it.
    process: u32,
}

impl<T: AsFd> Own<T> {
    pub fn new(socket: T) -> Self {
        Self { socket, process: process::id() }
    }
}

impl<T: AsFd> ops::Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.socket
    }
}

impl<T: AsFd> AsFd for Own<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<T: AsFd> Drop for Own<T> {
    fn drop(&mut self) {
        if process::id() == self.process {
            // Fails only for a socket that was never connected, or whose peer is gone.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        }
    }
}

/// The socket of a connection.
pub(super) struct Socket {
    pub fd: Own<OwnedFd>,
    /// A local socket: descriptors can be passed over it.
    pub local: bool,
    /// Why this carrier was chosen.
    pub why: String,
}

const ALLOWED_CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

fn os(what: &'static str) -> impl FnOnce(Errno) -> TransportError {
    move |source| TransportError::Os { what, source: source.into() }
}

/// The socket addresses of `host:port`; asks the system's resolver for a name, which may take long.
pub(super) fn resolve(addr: &str) -> Result<Vec<SocketAddr>, TransportError> {
    let bad =
        |error: peers::AddressError| TransportError::Address { addr: addr.into(), reason: error.to_string() };
    peers::resolve(addr).map_err(bad)
}

/// Sets the options that must be set before the TCP handshake: the buffers decide the window's scale.
fn set_early(fd: BorrowedFd<'_>, config: &TcpConfig) -> Result<(), TransportError> {
    if let Some(bytes) = config.send_buffer_bytes {
        sockopt::set_socket_send_buffer_size(fd, bytes).map_err(os("setting SO_SNDBUF"))?;
    }
    if let Some(bytes) = config.receive_buffer_bytes {
        sockopt::set_socket_recv_buffer_size(fd, bytes).map_err(os("setting SO_RCVBUF"))?;
    }
    let Some(name) = &config.congestion_control else { return Ok(()) };
    sockopt::set_tcp_congestion(fd, name).map_err(|e| {
        let allowed = std::fs::read_to_string(ALLOWED_CONGESTION_CONTROL).unwrap_or_default();
        let reason = format!("{e}; allowed here are: {}", allowed.trim());
        TransportError::Config { field: "congestion_control", value: name.clone(), reason }
    })
}

/// Sets every option of a connection's socket.
pub(super) fn set_options(fd: BorrowedFd<'_>, config: &TcpConfig) -> Result<(), TransportError> {
    set_early(fd, config)?;
    sockopt::set_tcp_nodelay(fd, config.nodelay).map_err(os("setting TCP_NODELAY"))?;
    if let Some(timeout) = config.user_timeout {
        // Checked by `TcpConfig::check` to be at most u32::MAX.
        let ms = timeout.as_millis() as u32;
        sockopt::set_tcp_user_timeout(fd, ms).map_err(os("setting TCP_USER_TIMEOUT"))?;
    }
    Ok(())
}

/// Sets the one option that matters on a local socket: its receiver reads from the sender's buffer.
pub(super) fn set_local_options(fd: BorrowedFd<'_>, config: &TcpConfig) -> Result<(), TransportError> {
    let Some(bytes) = config.send_buffer_bytes else { return Ok(()) };
    sockopt::set_socket_send_buffer_size(fd, bytes).map_err(os("setting SO_SNDBUF"))
}

/// Tries the options on a temporary socket, so that a wrong setting is found at construction.
pub(super) fn try_options(config: &TcpConfig) -> Result<(), TransportError> {
    let fd = inet::open(&SocketAddr::from(([127, 0, 0, 1], 0))).map_err(os("opening a socket"))?;
    set_options(fd.as_fd(), config)
}

/// Listens on the first usable address.
pub(super) fn listen(addr: &str, config: &TcpConfig) -> Result<TcpListener, TransportError> {
    let mut last = Errno::INVAL;
    for one in resolve(addr)? {
        match listen_on(&one, config)? {
            Ok(listener) => return Ok(listener),
            Err(e) => last = e,
        }
    }
    Err(TransportError::Listen { addr: addr.into(), what: "cannot listen there", source: last.into() })
}

/// The inner error is of this address alone.
fn listen_on(addr: &SocketAddr, config: &TcpConfig) -> Result<Result<TcpListener, Errno>, TransportError> {
    let fd = match inet::open(addr) {
        Ok(fd) => fd,
        Err(e) => return Ok(Err(e)),
    };
    set_early(fd.as_fd(), config)?;
    let bound = sockopt::set_socket_reuseaddr(&fd, true)
        .and_then(|()| rustix::net::bind(&fd, addr))
        // Checked by `TcpConfig::check` to be at most i32::MAX.
        .and_then(|()| rustix::net::listen(&fd, config.backlog as i32));
    Ok(bound.map(|()| TcpListener::from(fd)))
}

/// The ways to reach an address, the preferred one first.
pub(super) fn targets(found: &[SocketAddr], config: &TcpConfig) -> Vec<Target> {
    let local = found.iter().filter(|_| config.carry != Carry::Tcp).flat_map(local::names);
    let inet = found.iter().filter(|_| config.carry != Carry::Shm).copied();
    local.map(Target::Local).chain(inet.map(Target::Inet)).collect()
}

/// Begins to connect to one address. The error says why it cannot be reached.
pub(super) fn connect(addr: &SocketAddr, config: &TcpConfig) -> Result<Socket, String> {
    let fd = inet::open(addr).map_err(|e| e.to_string())?;
    set_options(fd.as_fd(), config).map_err(|e| e.to_string())?;
    match rustix::net::connect(&fd, addr) {
        Ok(()) | Err(Errno::INPROGRESS) => {
            let why = match config.carry {
                Carry::Tcp => "configured",
                Carry::Shm | Carry::Auto => "the address is not one of this machine",
            };
            Ok(Socket { fd: Own::new(fd), local: false, why: why.into() })
        }
        Err(e) => Err(e.to_string()),
    }
}

/// Connects to a peer of this machine.
pub(super) fn connect_local(addr: &SocketAddr, config: &TcpConfig) -> Result<Socket, local::Unusable> {
    let (fd, who) = local::connect(addr, config)?;
    let unusable = |e: TransportError| local::Unusable { listens: true, why: e.to_string() };
    set_local_options(fd.as_fd(), config).map_err(unusable)?;
    Ok(Socket { fd: Own::new(fd), local: true, why: format!("the peer is on this machine ({who})") })
}

/// The result of connecting, once the socket is writable. A socket can connect to itself by chance, on a local port without a
/// listener; that is an error.
pub(super) fn connected(socket: &Socket) -> io::Result<()> {
    sockopt::socket_error(&socket.fd)?.map_err(io::Error::from)?;
    let own = rustix::net::getsockname(&socket.fd)?;
    if !socket.local && rustix::net::getpeername(&socket.fd)? == Some(own) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(())
}
