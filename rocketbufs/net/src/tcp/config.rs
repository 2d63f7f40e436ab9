//! The settings of the TCP transport, and what each costs.

use std::time::Duration;

use super::certificates::Tls;
use crate::contract::TransportError;
use crate::wire::HEADER_BYTES;

/// Ranges and control buffers that one connection queues at most, whatever their size. Bounds what a stream of tiny
/// writes costs in memory (about 64 bytes each).
pub(super) const MAX_QUEUED_PIECES: usize = 4096;

/// The least staging buffer with TLS: records have up to 16.3 KiB.
const LEAST_STAGING_WITH_TLS: usize = 64 << 10;

/// The carrier of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carry {
    /// TCP.
    #[default]
    Tcp,
    /// Local sockets, over which rings are offered to be mapped: peers on this machine, and no others.
    Shm,
    /// Both: a connection to an address of this machine uses a local socket if a process listens there that may map rings of
    /// this one, and TCP otherwise.
    Auto,
}

/// The settings of one [`Tcp`](super::Tcp). All of its connections and listeners share them.
///
/// ```
/// use rocketnet::tcp::TcpConfig;
/// let config = TcpConfig { congestion_control: Some("cubic".into()), ..TcpConfig::default() };
/// assert!(config.nodelay);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpConfig {
    /// TCP_NODELAY. Default true. False lets the kernel hold small segments back until earlier ones are
    /// acknowledged: fewer packets on a slow network, tens of milliseconds of delay. Batching here comes from pending
    /// bytes, so this is rarely useful.
    pub nodelay: bool,
    /// TCP_CONGESTION of every socket: "cubic", "bbr", "reno". Default None: the system's. No other setting has more effect:
    /// with pacing (bbr) loopback is 1.5 to 2.4 times slower; pacing is good on long lossy paths.
    pub congestion_control: Option<String>,
    /// SO_SNDBUF in bytes. Default None: the kernel tunes it, which measured best. A fixed one is memory per
    /// connection; too small starves long paths, too large hides back-pressure.
    pub send_buffer_bytes: Option<usize>,
    /// SO_RCVBUF in bytes. Default None: the kernel tunes it, which measured best. See `send_buffer_bytes`.
    pub receive_buffer_bytes: Option<usize>,
    /// Bytes read from one ready connection before others get their turn, and the largest single read into a ring.
    /// Default 512 KiB, from 4 KiB to 64 MiB; costs no memory. Below 256 KiB throughput falls by up to 28 %; above
    /// 1 MiB the other connections wait.
    pub read_bytes: usize,
    /// Bytes of the buffer that small ranges and headers are read into before they are copied to their rings.
    /// Default 256 KiB, from 4 KiB to 16 MiB. One such buffer per worker. A connection with an unhandled control message before
    /// arrived data keeps at most as much for itself. With TLS at least 64 KiB. Small values cost a system call
    /// per few messages.
    pub staging_bytes: usize,
    /// Bytes of ranges that one connection queues before [`room`](crate::Transport::room) is 0. Default 1 MiB, from
    /// 4 KiB to 4 GiB − 1. Ranges stay in their rings, so it costs memory only when
    /// [`detach`](crate::Transport::detach) copies, and up to twice as much for ranges that another process wrote (up to
    /// 4 MiB of that is kept by the worker and used again). Also the largest single write. Small values cost system calls,
    /// large ones let one buffer delay the others of the connection.
    pub tx_queue_bytes: u32,
    /// Bytes of the largest control message that is accepted from a peer; a larger one ends the connection.
    /// Default 64 KiB, from 256 bytes to 16 MiB. A connection holds at most one incomplete message of this size.
    pub max_control_bytes: usize,
    /// Bytes of control messages that one connection queues; the reserve that data cannot use up. Default 1 MiB, at
    /// least `max_control_bytes`. The queue fills only when the peer does not read. Messages about readers in shared memory
    /// count too, with 1 KiB for each descriptor.
    pub tx_control_bytes: usize,
    /// Connections open at once, those that are down and not forgotten included. Default 10,000, from 1 to 1,048,576.
    /// Each costs one file descriptor and about 1 KiB.
    pub max_connections: usize,
    /// Connections that the kernel completes before they are accepted. Default 1024, at least 1 (the kernel's own limit,
    /// net.core.somaxconn, also holds). Too small: peers see delays of seconds when many connect at once.
    pub backlog: u32,
    /// Time-out of an outgoing connection. Default 10 s, for each address of a host name.
    pub connect_timeout: Duration,
    /// TCP_USER_TIMEOUT: how long sent bytes may stay unacknowledged before the connection breaks. Default None: the
    /// kernel's (about 15 minutes); the heartbeats of the layer above usually detect it earlier. At most about 49 days, at least 1 ms.
    pub user_timeout: Option<Duration>,
    /// The carrier of connections. Default [`Carry::Tcp`].
    pub carry: Carry,
    /// TLS of TCP connections, incoming and outgoing: a peer without TLS is refused. Local sockets stay as they are, since the
    /// kernel names the process at the other end. Default none.
    pub tls: Option<Tls>,
    /// Whether processes of other users may connect to local sockets. Default false: the same user, and root. Such peers see every
    /// byte of the rings that are offered to them, also of topics that they did not subscribe to.
    pub other_users: bool,
    /// Users, by name or number, whose processes may be the server at the other end of a local socket, besides the same user and
    /// root. Default none. A server sees what this process sends, passwords and tokens included.
    pub server_users: Vec<String>,
    /// The polling thread does not sleep while data arrives ([`Transport::has_new_data`](crate::Transport)). Writers of followed
    /// rings then need no fence for a message, and falling asleep costs more. Default false.
    pub busy_polls: bool,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            nodelay: true,
            congestion_control: None,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            read_bytes: 512 << 10,
            staging_bytes: 256 << 10,
            tx_queue_bytes: 1 << 20,
            max_control_bytes: 64 << 10,
            tx_control_bytes: 1 << 20,
            max_connections: 10_000,
            backlog: 1024,
            connect_timeout: Duration::from_secs(10),
            user_timeout: None,
            carry: Carry::Tcp,
            tls: None,
            other_users: false,
            server_users: Vec::new(),
            busy_polls: false,
        }
    }
}

impl TcpConfig {
    /// The size of the staging buffer: with TLS there is room for the beginning of a record, and as much again to read.
    pub(super) fn staging_with_records(&self) -> usize {
        let least = if self.tls.is_some() { LEAST_STAGING_WITH_TLS } else { 0 };
        self.staging_bytes.max(least)
    }

    /// Checks every field against its range. The error names the first field outside its range.
    pub(super) fn check(&self) -> Result<(), TransportError> {
        range("read_bytes", self.read_bytes, 4 << 10, 64 << 20)?;
        range("staging_bytes", self.staging_bytes, 4 << 10, 16 << 20)?;
        range("tx_queue_bytes", self.tx_queue_bytes as usize, 4 << 10, u32::MAX as usize)?;
        range("max_control_bytes", self.max_control_bytes, 256, 16 << 20)?;
        range("tx_control_bytes", self.tx_control_bytes, self.max_control_bytes + HEADER_BYTES, 1 << 30)?;
        range("max_connections", self.max_connections, 1, crate::slots::MAX_SLOTS)?;
        range("backlog", self.backlog as usize, 1, i32::MAX as usize)?;
        range("send_buffer_bytes", self.send_buffer_bytes.unwrap_or(1), 1, 1 << 30)?;
        range("receive_buffer_bytes", self.receive_buffer_bytes.unwrap_or(1), 1, 1 << 30)?;
        let user = self.user_timeout.map_or(1, |t| t.as_millis().min(usize::MAX as u128) as usize);
        range("user_timeout (ms)", user, 1, u32::MAX as usize)
    }
}

fn range(field: &'static str, value: usize, min: usize, max: usize) -> Result<(), TransportError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let reason = format!("must be from {min} to {max}");
    Err(TransportError::Config { field, value: value.to_string(), reason })
}
