//! Local sockets: their names, the users at the other end, and descriptors that go with the bytes.
//!
//! A listener on `127.0.0.1:7411` has the name `rocketbufs/127.0.0.1:7411` in the abstract namespace. A killed process leaves no
//! file behind, and the namespace belongs to the network's ports. Any process may take such a name, so both ends ask the
//! kernel for the other end's user.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use super::config::TcpConfig;
use super::inet;
use crate::contract::UnixPeer;

/// Descriptors of one message; one is sent with each offer.
const MAX_FILES: usize = 4;
/// Attempts to find a port whose name is free too.
const PORT_TRIES: u32 = 1000;

fn name(addr: &SocketAddr) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("rocketbufs/{addr}").as_bytes())
}

fn open() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Listens under the name of one address.
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) addr: SocketAddr,
    /// Holds the port that the system chose. Otherwise the system would give it to another listener, whose clients would
    /// connect here first.
    _port: Option<OwnedFd>,
}

impl Listener {
    /// Port 0 takes a free one.
    pub(super) fn new(addr: &SocketAddr, config: &TcpConfig) -> Result<Self, Errno> {
        for _ in 0..PORT_TRIES {
            let (addr, port) = match addr.port() {
                0 => inet::take_port(addr).map(|(port, addr)| (addr, Some(port)))?,
                _ => (*addr, None),
            };
            let socket = open()?;
            match rustix::net::bind(&socket, &name(&addr)?) {
                Err(Errno::ADDRINUSE) if port.is_some() => continue,
                bound => bound?,
            }
            // Checked by `TcpConfig::check` to be at most i32::MAX.
            rustix::net::listen(&socket, config.backlog as i32)?;
            return Ok(Self { socket, addr, _port: port });
        }
        Err(Errno::ADDRINUSE)
    }
}

/// The names of local listeners that this address would reach.
pub(super) fn names(addr: &SocketAddr) -> Vec<SocketAddr> {
    if !is_here(addr.ip()) {
        return Vec::new();
    }
    let all = [addr.ip(), IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    all.into_iter().map(|ip| SocketAddr::new(ip, addr.port())).collect()
}

/// Whether an address is one of this machine: only those can be bound.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

/// The reason why the listener under a name cannot be used.
pub(super) struct Unusable {
    /// Whether there is a listener.
    pub(super) listens: bool,
    pub(super) why: String,
}

/// Connects to the listener under the address's name, if its user may be the server. With it comes who that is.
pub(super) fn connect(addr: &SocketAddr, config: &TcpConfig) -> Result<(OwnedFd, String), Unusable> {
    let absent = |e: Errno| Unusable { listens: false, why: format!("shared memory: {e}") };
    let socket = open().map_err(absent)?;
    name(addr).and_then(|name| rustix::net::connect(&socket, &name)).map_err(absent)?;
    let who = check_server(socket.as_fd(), config).map_err(|why| Unusable { listens: true, why })?;
    Ok((socket, who))
}

/// Refuses a process that connects unless it is of the same user or root, or other users may connect. A process that connects may
/// map rings of this one.
pub(super) fn check_client(socket: BorrowedFd<'_>, config: &TcpConfig) -> Result<(), String> {
    let (theirs, ours) = users(socket)?;
    if theirs == ours || theirs == 0 || config.other_users {
        return Ok(());
    }
    let who = peer_name(socket);
    Err(format!("{who} is not user {ours}, and shm.other_users does not let other users connect"))
}

/// Describes the process that listens, if it may be the server: it is of the same user or root, or of a user that the configuration
/// names. It gets the passwords and tokens of this process, and a name in the abstract namespace belongs to whoever takes it first.
pub(super) fn check_server(socket: BorrowedFd<'_>, config: &TcpConfig) -> Result<String, String> {
    let (theirs, ours) = users(socket)?;
    let who = peer_name(socket);
    if theirs == ours || theirs == 0 || is_named(theirs, &config.server_users) {
        return Ok(who);
    }
    Err(format!(
        "{who} is not user {ours}, and over shared memory a server is of the same user, of root, or of a user in shm.server_users: \
         name that user there if it is the right one, or let transport = \"tcp\" carry the data"
    ))
}

/// The users at the other end and at this one.
fn users(socket: BorrowedFd<'_>) -> Result<(u32, u32), String> {
    let peer = sockopt::socket_peercred(socket).map_err(|e| format!("the peer's user is unknown: {e}"))?;
    Ok((peer.uid.as_raw(), rustix::process::geteuid().as_raw()))
}

/// Whether a list of numbers and names has this user. The names are those of `/etc/passwd`, which is read each time: a user may be
/// made after this process has started.
fn is_named(user: u32, names: &[String]) -> bool {
    let number = user.to_string();
    let has = |name: &str| names.iter().any(|wanted| wanted == name);
    // A name of digits alone would be taken for a number.
    let is_user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| name.parse::<u32>().is_err());
        fields.nth(1) == Some(&number) && name.is_some_and(has)
    };
    !names.is_empty() && (has(&number) || passwd().lines().any(is_user))
}

fn passwd() -> String {
    std::fs::read_to_string("/etc/passwd").unwrap_or_default()
}

/// Describes the other end, for people.
pub(super) fn peer_name(socket: BorrowedFd<'_>) -> String {
    match sockopt::socket_peercred(socket) {
        Ok(peer) => format!("user {}, process {}", peer.uid.as_raw(), peer.pid.as_raw_nonzero()),
        Err(e) => format!("an unknown process: {e}"),
    }
}

/// The process at the other end. None if the kernel does not tell.
pub(super) fn peer(socket: BorrowedFd<'_>) -> Option<UnixPeer> {
    let peer = sockopt::socket_peercred(socket).ok()?;
    let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or(0);
    Some(UnixPeer { pid, uid: peer.uid.as_raw(), gid: peer.gid.as_raw() })
}

/// Sends bytes of which the first carries a descriptor, if there is one.
pub(super) fn send_with(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    file: Option<BorrowedFd<'_>>,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let pushed = file.is_none_or(|_| control.push(SendAncillaryMessage::ScmRights(file.as_slice())));
    debug_assert!(pushed, "there is space for one descriptor");
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)
}

/// Reads bytes and their descriptors; None in place of a descriptor for which this process has no room. The error says what the
/// peer did wrong.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    files: &mut VecDeque<Option<OwnedFd>>,
) -> Result<Result<usize, String>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let before = files.len();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            files.extend(came.map(Some));
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        if files.len() > before {
            return Ok(Err("more than belong to one message".into()));
        }
        files.push_back(None);
    }
    if files.len() > MAX_FILES {
        return Ok(Err("more than were announced".into()));
    }
    Ok(Ok(got.bytes))
}
