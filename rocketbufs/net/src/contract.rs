//! The contract between RocketBufs and its transports.
//!
//! One [`Transport`] belongs to one worker thread, which alone calls it; nothing in it is shared. The transport owns the
//! connections of that worker. Every call returns at once; [`Transport::poll`] returns events.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rocketring::{GrowError, MapError, PeerDoorbell, PeerRing, Pool, Position, Ring, RingReceiver, Trimmed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Names a connection of one transport. Never used again for another connection of the same transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// The 31-bit id of a subscription on the wire, chosen by the receiver (DESIGN, *Ids*).
pub type WireId = u32;

/// The promises of a transport. The sessions above adapt to them and rely on nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promises {
    /// Writes and control messages of one connection land in the order in which they were queued.
    /// Where false, a session keeps one range in flight per buffer, and waits for [`Event::Landed`] before a
    /// control message that must follow data.
    pub ordered: bool,
    /// The peer's processor takes no part in a write.
    pub one_sided: bool,
    /// [`Event::Landed`] follows every write. Where false (a stream), `landed` travels with credit.
    pub reports_landed: bool,
    /// The largest single write, in bytes.
    pub max_write_bytes: u64,
    /// The largest control message, in bytes.
    pub max_control_bytes: usize,
}

/// A range of a ring to be written to the peer. The bytes belong to the ring; the transport reads them where they
/// lie. The caller keeps them stable until the peer has them ([`Event::Landed`], or the peer's own report where
/// [`Promises::reports_landed`] is false) or until [`Transport::detach`] returns.
#[derive(Clone)]
pub struct SourceRange {
    /// The ring that holds the bytes.
    pub ring: Ring,
    /// First position.
    pub from: Position,
    /// The end of the range (exclusive); at most [`Promises::max_write_bytes`] after `from`.
    pub to: Position,
    /// The peer maps this ring ([`Transport::offer`] returned true for this id), and gets only the position of the range.
    pub mapped: bool,
}

/// The connection's queue has no room for the write or message: an outcome, not a failure. Try again after
/// [`Event::Writable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull;

/// Why a range was not queued: an outcome, not a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotWritten {
    /// As [`QueueFull`].
    QueueFull,
    /// Another process writes the source ring, and has overwritten the range, or is about to. The lost bytes are below
    /// [`Ring::tail`] now.
    Overwritten,
}

/// Describes the sender of an unknown wire id, if it is recognised. HTTP servers begin with the protocol's name.
fn foreign_protocol(wire: WireId) -> &'static str {
    match &wire.to_le_bytes() {
        b"HTTP" => "is an HTTP server, which does not speak this protocol",
        [TLS_HANDSHAKE, 3, 0..=4, _] => {
            "begins with TLS, which this end does not expect: set tls.mode = \"require\" here, or \"off\" there"
        }
        [TLS_ALERT, 3, 0..=4, _] => {
            "answers with TLS, which it requires: set tls.mode = \"require\" here (rbmq: --tls)"
        }
        _ => "does not speak this protocol or is out of step",
    }
}

/// The first byte of a handshake and of an alert of TLS, which precede its version (3, and a small number).
const TLS_HANDSHAKE: u8 = 22;
const TLS_ALERT: u8 = 21;

/// Whether a stream that begins with this instead of a wire id is a client's beginning of TLS.
pub(crate) fn begins_tls(wire: WireId) -> bool {
    matches!(wire.to_le_bytes(), [TLS_HANDSHAKE, 3, 0..=4, _])
}

/// Whether a stream that begins with this instead of a wire id is the answer of a server that expects TLS.
pub(crate) fn answers_tls(wire: WireId) -> bool {
    matches!(wire.to_le_bytes(), [TLS_ALERT, 3, 0..=4, _])
}

/// Why a connection ended, and whose fault it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Down {
    /// The peer closed in order.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// This end closed it.
    #[error("closed here: {0}")]
    Local(String),
    /// The network or the peer's machine failed.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The peer passed descriptors without a message that needs them, or none where a message needs one.
    #[error("the peer's descriptors do not match its messages: {0}")]
    Descriptors(String),
    /// The peer sent a wire id that it never got or that is no longer valid.
    #[error("the peer {} (data for unknown wire id {wire:#x})", foreign_protocol(*.0), wire = .0)]
    UnknownWire(WireId),
    /// The peer wrote past its grant.
    #[error("the peer wrote {size} bytes at position {at} of wire id {wire:#x}, {over} past its credit")]
    Overrun {
        /// The subscription.
        wire: WireId,
        /// Where the write began.
        at: Position,
        /// Its size.
        size: u64,
        /// How far it went past the grant.
        over: u64,
    },
    /// A control message larger than this end accepts.
    #[error("the peer sent a control message of {size} bytes; the limit here is {max}")]
    ControlTooLarge {
        /// The announced size.
        size: u64,
        /// The largest accepted size.
        max: u64,
    },
    /// TLS with the peer failed: its handshake, or a record that is not what the peer sealed. The text says whose fault it is.
    #[error("TLS: {0}")]
    Tls(String),
    /// The connection could not be made.
    #[error("could not connect to {addr}: {reason}")]
    Refused {
        /// The address.
        addr: String,
        /// The system's error.
        reason: String,
    },
}

/// An event. Events of one connection are in order.
#[derive(Debug)]
pub enum Event {
    /// A connection of [`Transport::connect`] is established.
    Connected(ConnId),
    /// A listener accepted a connection (only the listening transport reports it; see [`Transport::adopt`]).
    Incoming(Accepted),
    /// Bytes landed in the ring of this wire id: its head, and perhaps its boundary, moved. Reported at most once for each
    /// id in one poll, however many ranges arrived.
    Arrived(ConnId, WireId),
    /// An ordered control message. The bytes are the receiver's.
    Control(ConnId, Vec<u8>),
    /// The peer offers its ring for this wire id to be mapped, in order before the control message that followed
    /// [`Transport::offer`]. The receiver of a ring that is made of it may be bound; ranges then land where the peer wrote
    /// them.
    Offered(ConnId, WireId, Offered),
    /// Bytes landed as with [`Event::Arrived`], without a message from the peer: this end follows the ring that it maps
    /// ([`Transport::follow`]). This is no sign of life of the connection's peer.
    Followed(ConnId, WireId),
    /// A reader follows the ring from which this id is written, and must be woken by this doorbell; without a doorbell it
    /// need not be woken. Number 0 is the peer itself, other numbers are readers to which the peer passes the ring on.
    Watched(ConnId, WireId, u32, Option<Arc<PeerDoorbell>>),
    /// The reader with this number no longer follows.
    Unwatched(ConnId, WireId, u32),
    /// The peer's memory has everything up to this position (only where [`Promises::reports_landed`]).
    Landed(ConnId, WireId, Position),
    /// The queue has room again after [`QueueFull`] or after [`Transport::room`] was 0.
    Writable(ConnId),
    /// The connection is gone; every ring receiver bound to it can be taken back with [`Transport::unbind`] before
    /// [`Transport::forget`].
    Down(ConnId, Down),
}

/// A ring that a peer offers to be mapped.
#[derive(Debug)]
pub struct Offered {
    /// The ring, or why it cannot be mapped.
    pub ring: Result<Box<PeerRing>, MapError>,
    /// How many bytes below the first range the peer keeps in the ring too, until they are reported as no longer needed.
    pub behind: u64,
}

/// An accepted connection that no transport owns yet: any worker can adopt it.
#[derive(Debug)]
pub struct Accepted {
    /// The peer's address, as text.
    pub peer: String,
    /// The listening address, as [`Transport::listen`] returned it.
    pub local: String,
    /// The transport's own handle (for TCP the socket).
    pub handle: AcceptedHandle,
}

/// The handle of another crate's transport, which finds its own type again by [`std::any::Any`].
pub trait Foreign: std::any::Any + std::fmt::Debug + Send {}

/// A transport's handle of an accepted connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcceptedHandle {
    /// A TCP socket, non-blocking.
    Tcp(std::net::TcpStream),
    /// A local socket, non-blocking, of a peer that may map offered rings.
    Local(OwnedFd),
    /// An end of a simulated connection.
    Sim(u64),
    /// A handle of another crate's transport.
    Other(Box<dyn Foreign>),
}

/// Why a call to a transport failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The address cannot be used.
    #[error("cannot use the address {addr}: {reason}")]
    Address {
        /// As given.
        addr: String,
        /// The fault of the address.
        reason: String,
    },
    /// The operating system refuses to listen on the address.
    #[error("cannot use the address {addr}: {what}: {source}")]
    Listen {
        /// The address as given.
        addr: String,
        /// The attempted operation.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// A setting is outside its range, or the system does not support it: the configuration's fault.
    #[error("{field} = {value}: {reason}")]
    Config {
        /// The setting.
        field: &'static str,
        /// As given.
        value: String,
        /// The allowed values.
        reason: String,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Os {
        /// The attempted operation.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// More unfinished TLS handshakes than configured.
    #[error("{open} TLS handshakes are unfinished, the limit (tls.max_handshakes) is {max}")]
    TooManyHandshakes {
        /// The number of unfinished handshakes.
        open: usize,
        /// The limit.
        max: usize,
    },
    /// More connections than configured.
    #[error("{open} connections are open, the limit (max_connections) is {max}")]
    TooManyConnections {
        /// The number of open connections.
        open: usize,
        /// The limit.
        max: usize,
    },
}

/// The carrier of a connection, and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carrier {
    /// "tcp", "shm", "rdma" or "sim".
    pub name: &'static str,
    /// The reason, for people.
    pub why: String,
}

/// The facts that a transport itself has verified about the other end of a connection. The peer has no influence on them
/// beyond its own certificate and process.
///
/// ```
/// use rocketnet::PeerIdentity;
/// let unknown = PeerIdentity::default();
/// assert!(unknown.certificate.is_none() && unknown.unix.is_none() && !unknown.encrypted);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The peer's own certificate in DER: its chain leads to a trusted root, its dates are valid, and the peer has the key. None
    /// if the peer presented none.
    pub certificate: Option<Arc<[u8]>>,
    /// The process at the other end of a local socket.
    pub unix: Option<UnixPeer>,
    /// Whether bytes on the way are encrypted and authenticated (TLS).
    pub encrypted: bool,
}

impl std::fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerIdentity")
            .field("certificate_bytes", &self.certificate.as_ref().map(|der| der.len()))
            .field("unix", &self.unix)
            .field("encrypted", &self.encrypted)
            .finish()
    }
}

/// A process of this machine, as the kernel knew it when the process connected or listened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnixPeer {
    /// The process. Its number may be another process's by now. 0: a process outside of this pid namespace.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// A transport, owned by one worker.
pub trait Transport {
    /// The promises for every connection.
    fn promises(&self) -> Promises;

    /// The promises for this connection: more, where a transport has several carriers.
    fn promises_to(&self, _conn: ConnId) -> Promises {
        self.promises()
    }

    /// Listens on `addr`, and returns the address in use (port 0 is replaced). [`Event::Incoming`] follows for each peer.
    fn listen(&mut self, addr: &str) -> Result<String, TransportError>;

    /// As [`Transport::listen`], for peers of this machine alone where the transport can tell them from others.
    fn listen_locally(&mut self, addr: &str) -> Result<String, TransportError> {
        self.listen(addr)
    }

    /// Stops listening on an address that [`Transport::listen`] returned. Accepted connections continue.
    fn unlisten(&mut self, addr: &str);

    /// Begins a connection; [`Event::Connected`] or [`Event::Down`] follows.
    fn connect(&mut self, addr: &str) -> Result<ConnId, TransportError>;

    /// As [`Transport::connect`], where a name was looked up before: nobody who waits for this transport waits for the resolver.
    fn connect_found(&mut self, addr: &str, found: Vec<SocketAddr>) -> Result<ConnId, TransportError> {
        let _ = found;
        self.connect(addr)
    }

    /// Makes this transport the owner of an accepted connection.
    fn adopt(&mut self, accepted: Accepted) -> Result<ConnId, TransportError>;

    /// Stops or resumes reading from the peer. A paused connection exerts back-pressure and costs nothing. A pause takes
    /// effect after the event being handled: `poll` returns no further event of arriving bytes for this connection until it
    /// is resumed, and none is lost.
    fn pause(&mut self, conn: ConnId, paused: bool);

    /// The carrier of this connection.
    fn carrier(&self, _conn: ConnId) -> Carrier {
        Carrier { name: "sim", why: "the only one there is".into() }
    }

    /// The facts that this transport has verified about the peer. Complete once the connection is established, and the same
    /// until its end. The default is that nothing is known.
    fn peer_identity(&self, _conn: ConnId) -> PeerIdentity {
        PeerIdentity::default()
    }

    /// Offers the peer the ring from which `wire` will be written, in order before later writes: the peer then reads ranges
    /// in place. True: the peer gets [`Event::Offered`], ranges of this ring may go without their bytes
    /// ([`SourceRange::mapped`]), and the peer needs the bytes until it reports otherwise, also after [`Transport::detach`].
    /// False: this connection or ring cannot do that, and ranges are copied. `behind`: how many bytes below the first range
    /// the ring keeps too ([`Offered::behind`]).
    fn offer(&mut self, _conn: ConnId, _wire: WireId, _ring: &Ring, _behind: u64) -> bool {
        false
    }

    /// Follows a bound ring that the peer writes and this end maps: published bytes land ([`Event::Followed`]) with or without
    /// a message, and the writer wakes this end. Only for rings whose published bytes are never taken back. False if the
    /// ring cannot be followed; its ranges then arrive as messages. `lazily`: the writer need not wake this end. A second
    /// call changes that.
    fn follow(&mut self, _conn: ConnId, _wire: WireId, _lazily: bool) -> bool {
        false
    }

    /// A thread besides the one that polls looks at so many of the followed rings, until the next call. If these are all, their writers need not wake
    /// this end. True: they have new data, and the polling thread does not know.
    fn attend(&mut self, _rings: usize) -> bool {
        false
    }

    /// Passes on that a reader which got this ring from here follows it, and must be woken by the writer. Returns the number
    /// of the reader for [`Transport::drop_watcher`]; none if this peer cannot be notified, or not now.
    fn pass_watcher(&mut self, _conn: ConnId, _wire: WireId, _doorbell: &Arc<PeerDoorbell>) -> Option<u32> {
        None
    }

    /// The reader with this number no longer follows. Closes the connection of a peer that does not read.
    fn drop_watcher(&mut self, _conn: ConnId, _wire: WireId, _number: u32) {}

    /// Whether a followed ring has bytes that have not landed. Costs a load for each. None if no ring is followed.
    fn has_new_data(&self) -> Option<bool> {
        None
    }

    /// From now on ranges for `wire` land through this ring receiver, which the transport owns until [`Transport::unbind`].
    /// If the id was bound before, this end sends a control message between that `unbind` and the first range for the new
    /// binding: a one-sided sender writes to the memory that it knows.
    fn bind(&mut self, conn: ConnId, wire: WireId, receiver: RingReceiver);

    /// From now on, until [`Transport::unbind`], ranges for `wire` are discarded: there is no receiver, and the peer does not
    /// know yet. False if this transport cannot discard: it closes the connection when a range arrives.
    fn discard(&mut self, _conn: ConnId, _wire: WireId) -> bool {
        false
    }

    /// Returns the ring receiver. Data that still arrives for this id closes the connection. None if the id was not bound.
    fn unbind(&mut self, conn: ConnId, wire: WireId) -> Option<RingReceiver>;

    /// Makes a hole: a partial delivery is dropped and the log continues at `to` (LOST). False if the id is not bound or `to`
    /// lies before the head: the peer's fault.
    fn skip(&mut self, conn: ConnId, wire: WireId, to: Position) -> bool;

    /// Returns memory of the idle ring behind this id to the system ([`RingReceiver::trim`]). None if the id is not bound, or
    /// if this transport is one-sided: the peer may be writing that memory.
    fn trim(&mut self, conn: ConnId, wire: WireId, keep: u64) -> Option<Trimmed>;

    /// Gives the ring behind this id memory for deliveries of `max_delivery` bytes ([`RingReceiver::grow`]). None if the id is not
    /// bound, or if this transport is one-sided: the peer may be writing that memory.
    fn grow(
        &mut self,
        conn: ConnId,
        wire: WireId,
        pool: &Pool,
        max_delivery: u64,
    ) -> Option<Result<(), GrowError>>;

    /// How many bytes of ranges the queue of this connection accepts now; 0 when it is full.
    fn room(&self, conn: ConnId) -> u64;

    /// Queues a write of `source` into the peer's ring of `wire`. `more`: the range does not end at a delivery's end. The
    /// bytes stay in the ring: see [`SourceRange`]. A range of a ring that another process writes, and that the peer does not
    /// map, is copied and checked before it is sent. Nothing need be sent before [`Transport::flush`].
    fn write(
        &mut self,
        conn: ConnId,
        wire: WireId,
        source: SourceRange,
        more: bool,
    ) -> Result<(), NotWritten>;

    /// Queues a copy of a control message, in order with the writes. Control messages have a reserve of their own:
    /// [`QueueFull`] means that the peer has not read for a very long time, and the caller may close.
    fn control(&mut self, conn: ConnId, message: &[u8]) -> Result<(), QueueFull>;

    /// Releases the source ring of everything queued for this `wire`: unsent bytes are copied, so that the stream stays whole
    /// and the ring's bytes are free when this returns. Returns how many bytes were copied.
    fn detach(&mut self, conn: ConnId, wire: WireId) -> u64;

    /// Sends the queue, in as few system calls as possible. True if everything was sent.
    fn flush(&mut self, conn: ConnId) -> bool;

    /// Ends a connection: the queue has up to `linger` to be sent, then the connection is cut. [`Event::Down`] follows with
    /// [`Down::Local`].
    fn close(&mut self, conn: ConnId, why: &str, linger: Duration);

    /// Frees the rest of a connection that is down. Inlets still bound are dropped.
    fn forget(&mut self, conn: ConnId);

    /// Appends to `events`, and waits at most `timeout` (None: until there is an event or the waker that was given at
    /// construction is woken). Bounded in work per call, fair among connections. Any event of a connection is a sign of life
    /// of its peer; a transport reports `Arrived` also for part of a large range.
    fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>);

    /// A descriptor to wait on without the transport: ready while `poll` has events to take from the kernel, or the waker was
    /// woken. None: the caller waits in `poll`.
    fn pollable(&self) -> Option<Arc<dyn Pollable>> {
        None
    }

    /// How long a caller may wait on [`Transport::pollable`] before it calls `poll`; None: until that is ready. `sleeps`: the
    /// caller will wait there, and the writers of followed rings wake it from now on.
    fn poll_within(&self, _sleeps: bool) -> Option<Duration> {
        None
    }
}

/// Waiting for a transport from a thread that does not have it. The descriptor is only for waiting.
pub trait Pollable: AsFd + Send + Sync {
    /// Waits until `poll` has events to take, at most for `within`. The next `poll` may save a system call. The wait may end early.
    fn wait(&self, within: Duration);
}

impl Pollable for OwnedFd {
    fn wait(&self, within: Duration) {
        let within = Timespec::try_from(within).ok();
        // An early return is allowed. No other error is possible with a valid descriptor.
        let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], within.as_ref());
    }
}
