//! The contract between RocketBufs and whatever carries its bytes.
//!
//! One [`Transport`] belongs to one worker thread, which alone calls it; nothing in it is shared. It owns the
//! connections of that worker. Every call returns at once; what happened is told by [`Transport::poll`].

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rocketring::{MapError, PeerDoorbell, PeerRing, Position, Ring, RingReceiver, Trimmed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Names a connection of one transport. Never used again for another connection of the same transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// The 31-bit id of a subscription on the wire, chosen by the receiver (DESIGN, *Ids*).
pub type WireId = u32;

/// What a transport promises. The sessions above adapt to it and rely on nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promises {
    /// Writes of one connection land in the order in which they were made, and control messages among them.
    /// Where false, a session keeps one range in flight per buffer, and waits for [`Event::Landed`] before a
    /// control message that must come after data.
    pub ordered: bool,
    /// The peer's processor takes no part in a write.
    pub one_sided: bool,
    /// [`Event::Landed`] follows every write. Where false (a stream), `landed` travels with credit.
    pub reports_landed: bool,
    /// Bytes of the largest single write.
    pub max_write_bytes: u64,
    /// Bytes of the largest control message.
    pub max_control_bytes: usize,
}

/// A range of a ring to be written to the peer. The bytes belong to the ring; the transport reads them where they
/// lie. The caller keeps them stable until the peer has them ([`Event::Landed`], or the peer's own word where
/// [`Promises::reports_landed`] is false) or until [`Transport::detach`] returns.
#[derive(Clone)]
pub struct SourceRange {
    /// The ring that holds the bytes.
    pub ring: Ring,
    /// First position.
    pub from: Position,
    /// One past the last position; at most [`Promises::max_write_bytes`] after `from`.
    pub to: Position,
    /// The peer maps this ring ([`Transport::offer`] said so for this id), and is told only where the range lies.
    pub mapped: bool,
}

/// The connection's queue has no place for the write or message: an outcome, not a failure. Try again after
/// [`Event::Writable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull;

/// Why a range was not queued: an outcome, not a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotWritten {
    /// As [`QueueFull`].
    QueueFull,
    /// Another process writes the source ring, and has written over the range, or is about to. What is gone is below
    /// [`Ring::tail`] now.
    Overwritten,
}

/// What a wire id tells of who sent it. Servers of HTTP begin with its name.
fn of_stranger(wire: WireId) -> &'static str {
    match &wire.to_le_bytes() {
        b"HTTP" => "is an HTTP server, which does not speak this protocol",
        _ => "does not speak this protocol or is out of step",
    }
}

/// Why a connection ended. Says whose fault it was.
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
    /// The peer passed descriptors that nothing belongs to, or none where one belongs.
    #[error("the peer's descriptors do not fit what it says: {0}")]
    Descriptors(String),
    /// The peer sent a wire id that was never given to it or is no longer valid.
    #[error("the peer sent data for unknown wire id {wire:#x}; it {}", of_stranger(*.0), wire = .0)]
    UnknownWire(WireId),
    /// The peer wrote past what it had been granted.
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
        /// What was announced.
        size: u64,
        /// What is accepted.
        max: u64,
    },
    /// The connection could not be made.
    #[error("could not connect to {addr}: {reason}")]
    Refused {
        /// Where to.
        addr: String,
        /// What the system said.
        reason: String,
    },
}

/// What happened, in the order in which it happened on each connection.
#[derive(Debug)]
pub enum Event {
    /// A connection begun with [`Transport::connect`] is up.
    Connected(ConnId),
    /// A listener took a connection (only the transport that listens tells; see [`Transport::adopt`]).
    Incoming(Accepted),
    /// Bytes landed in the ring of this wire id: its head, and perhaps its boundary, moved. Told at most once for
    /// each id in one poll, however many ranges arrived.
    Arrived(ConnId, WireId),
    /// An ordered control message. The bytes are the receiver's.
    Control(ConnId, Vec<u8>),
    /// The peer offers its ring for this wire id to be mapped: ordered before the control message that followed
    /// [`Transport::offer`]. A ring receiver of a ring made of it may be bound; ranges then land where the peer wrote them.
    Offered(ConnId, WireId, Offered),
    /// Bytes landed as with [`Event::Arrived`], without a word from the peer: this end follows the ring that it maps
    /// ([`Transport::follow`]). No sign of life of the connection's peer.
    Followed(ConnId, WireId),
    /// A reader of the ring from which this id is written follows it, and is to be woken by this doorbell, or need not be:
    /// number 0 is the peer itself, others are those that it passes the ring on to.
    Watched(ConnId, WireId, u32, Option<Arc<PeerDoorbell>>),
    /// The reader with this number no longer follows.
    Unwatched(ConnId, WireId, u32),
    /// The peer's memory has everything up to this position (only where [`Promises::reports_landed`]).
    Landed(ConnId, WireId, Position),
    /// There is place in the queue again after [`QueueFull`] or a full queue reported by [`Transport::room`].
    Writable(ConnId),
    /// The connection is gone; every ring receiver bound to it can be taken back with [`Transport::unbind`] before
    /// [`Transport::forget`].
    Down(ConnId, Down),
}

/// A ring that a peer lets this end map.
#[derive(Debug)]
pub struct Offered {
    /// The ring, or why it cannot be mapped.
    pub ring: Result<Box<PeerRing>, MapError>,
    /// How many bytes below the first range the peer keeps there as well, until it is told that they are needed no more.
    pub behind: u64,
}

/// An accepted connection that no transport owns yet, so that any worker can adopt it.
#[derive(Debug)]
pub struct Accepted {
    /// The peer's address, as text.
    pub peer: String,
    /// The address it connected to, as [`Transport::listen`] returned it.
    pub local: String,
    /// The transport's own handle of it (for TCP the socket).
    pub handle: AcceptedHandle,
}

/// The handle of a transport that is made elsewhere; it finds its own type again by [`std::any::Any`].
pub trait Foreign: std::any::Any + std::fmt::Debug + Send {}

/// What an accepted connection is to its transport.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcceptedHandle {
    /// A TCP socket, non-blocking.
    Tcp(std::net::TcpStream),
    /// A socket of this machine, non-blocking, of a peer that may map what is offered to it.
    Local(OwnedFd),
    /// One end of a simulated connection.
    Sim(u64),
    /// What another crate's transport made of it.
    Other(Box<dyn Foreign>),
}

/// Why a call to a transport failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The address cannot be used.
    #[error("cannot use the address {addr}: {reason}")]
    Address {
        /// As it was given.
        addr: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refuses to listen on the address.
    #[error("cannot use the address {addr}: {what}: {source}")]
    Listen {
        /// The address as it was given.
        addr: String,
        /// The transport's attempt, as a text.
        what: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A setting is outside its range, or the system does not have what it asks for: the configuration's fault.
    #[error("{field} = {value}: {reason}")]
    Config {
        /// The setting.
        field: &'static str,
        /// As it was given.
        value: String,
        /// What is allowed.
        reason: String,
    },
    /// The operating system refused.
    #[error("{what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: std::io::Error,
    },
    /// More connections than configured.
    #[error("{open} connections are open, the limit (max_connections) is {max}")]
    TooManyConnections {
        /// Open now.
        open: usize,
        /// The limit.
        max: usize,
    },
}

/// What carries a connection, and why it is that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carrier {
    /// "tcp", "shm", "rdma" or "sim".
    pub name: &'static str,
    /// For people.
    pub why: String,
}

/// A transport, owned by one worker.
pub trait Transport {
    /// What it promises for every connection.
    fn promises(&self) -> Promises;

    /// What it promises for this connection: more, where a transport has several ways.
    fn promises_to(&self, _conn: ConnId) -> Promises {
        self.promises()
    }

    /// Listens on `addr`; returns the address in use (a port 0 is replaced). [`Event::Incoming`] follows for each peer.
    fn listen(&mut self, addr: &str) -> Result<String, TransportError>;

    /// Stops listening on an address that [`Transport::listen`] returned; connections that were taken go on.
    fn unlisten(&mut self, addr: &str);

    /// Begins a connection; [`Event::Connected`] or [`Event::Down`] follows.
    fn connect(&mut self, addr: &str) -> Result<ConnId, TransportError>;

    /// Takes an accepted connection into this transport.
    fn adopt(&mut self, accepted: Accepted) -> Result<ConnId, TransportError>;

    /// Stops or goes on reading from the peer; a paused connection exerts back-pressure and costs nothing.
    /// A pause takes effect after the event being handled: no further event of arriving bytes for this connection
    /// comes out of `poll` until it is resumed, and none is lost.
    fn pause(&mut self, conn: ConnId, paused: bool);

    /// What carries this connection.
    fn carrier(&self, _conn: ConnId) -> Carrier {
        Carrier { name: "sim", why: "the only one there is".into() }
    }

    /// Lets the peer map the ring from which `wire` will be written, ahead of what is queued after this: it then reads
    /// ranges where they lie. True if it does: [`Event::Offered`] follows there, ranges of this ring may go without their
    /// bytes ([`SourceRange::mapped`]), and the peer needs them until it says otherwise, also after
    /// [`Transport::detach`].
    /// False if this connection or ring cannot do that, and ranges are copied as ever. `behind`: how many bytes below the
    /// first range the ring keeps too ([`Offered::behind`]).
    fn offer(&mut self, _conn: ConnId, _wire: WireId, _ring: &Ring, _behind: u64) -> bool {
        false
    }

    /// Follows the ring of a ring receiver that is bound, which the peer writes and this end maps: what lies there lands
    /// ([`Event::Followed`]) told or not, and whoever writes it wakes this end. Only where nothing is ever taken back that was
    /// published. False where that cannot be; ranges are then told as ever. `lazily`: nobody need wake this end. Can be said anew.
    fn follow(&mut self, _conn: ConnId, _wire: WireId, _lazily: bool) -> bool {
        false
    }

    /// A reader that got this ring from here follows it, and is to be woken by whoever writes it. What is returned names it
    /// for [`Transport::drop_watcher`]; none if this peer cannot be told, or not now.
    fn pass_watcher(&mut self, _conn: ConnId, _wire: WireId, _doorbell: &Arc<PeerDoorbell>) -> Option<u32> {
        None
    }

    /// The reader with this number no longer follows. A peer that does not read what it is told is closed.
    fn drop_watcher(&mut self, _conn: ConnId, _wire: WireId, _number: u32) {}

    /// Whether a ring that is followed has something that has not landed; costs a load for each. None where none is.
    fn has_new_data(&self) -> Option<bool> {
        None
    }

    /// From now on ranges for `wire` land through this ring receiver. The transport owns the ring receiver until
    /// [`Transport::unbind`]. Where the id was bound before, the receiver sends a control message between taking that
    /// back and the first range for the new ring receiver: a one-sided sender writes where it was last told to.
    fn bind(&mut self, conn: ConnId, wire: WireId, receiver: RingReceiver);

    /// From now on, until [`Transport::unbind`], what comes for `wire` is thrown away: nobody is there to receive it, and
    /// the peer was not told yet. False if this transport cannot do that: it closes the connection when something comes.
    fn discard(&mut self, _conn: ConnId, _wire: WireId) -> bool {
        false
    }

    /// Gives the ring receiver back; data that still comes for this id closes the connection. None if it was not bound.
    fn unbind(&mut self, conn: ConnId, wire: WireId) -> Option<RingReceiver>;

    /// Makes a hole: everything of a partial delivery is dropped and the log goes on at `to` (LOST).
    /// False if the id is not bound or the ring receiver cannot skip there (`to` lies before its head): the peer's fault.
    fn skip(&mut self, conn: ConnId, wire: WireId, to: Position) -> bool;

    /// Gives back memory of the ring behind this id, at a time when it is at rest ([`RingReceiver::trim`]). None if the id is
    /// not bound, or if this transport is one-sided: the peer may be writing what would be given back.
    fn trim(&mut self, conn: ConnId, wire: WireId, keep: u64) -> Option<Trimmed>;

    /// How many bytes of ranges the queue of this connection takes now; 0 when it is full.
    fn room(&self, conn: ConnId) -> u64;

    /// Queues a write of `source` into the peer's ring of `wire`. `more`: the range does not end at a delivery's
    /// end. The range stays the ring's: see [`SourceRange`]; of a ring that another process writes, and that the peer does
    /// not map, it is copied, so that what leaves was there. Nothing need leave before [`Transport::flush`].
    fn write(
        &mut self,
        conn: ConnId,
        wire: WireId,
        source: SourceRange,
        more: bool,
    ) -> Result<(), NotWritten>;

    /// Queues a control message, in order with the writes. It is copied. Control messages have a reserve of their
    /// own: [`QueueFull`] means that the peer has not read for a very long time, and the caller may close.
    fn control(&mut self, conn: ConnId, message: &[u8]) -> Result<(), QueueFull>;

    /// Lets go of everything queued that was to be read from `ring` for this `wire`: what is unsent is copied, so
    /// that the stream stays whole and the ring's bytes are free when this returns. Returns how many bytes it copied.
    fn detach(&mut self, conn: ConnId, wire: WireId) -> u64;

    /// Sends what is queued, in as few system calls as possible. True if everything left.
    fn flush(&mut self, conn: ConnId) -> bool;

    /// Ends a connection: what is queued is given up to `linger` to leave, then it is cut. [`Event::Down`] follows
    /// with [`Down::Local`].
    fn close(&mut self, conn: ConnId, why: &str, linger: Duration);

    /// Frees what is left of a connection that is down. Inlets still bound are dropped.
    fn forget(&mut self, conn: ConnId);

    /// Appends what happened to `events`, waiting at most `timeout` (None: until something happens or the waker that
    /// was given at construction is woken). Bounded in work per call, fair among connections. Any event of a connection
    /// is a sign of life of its peer; a transport tells `Arrived` also for part of a large range.
    fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>);

    /// What to wait on without the transport in hand: ready while `poll` has something to take from the kernel, or the
    /// waker was woken. None: the caller waits in `poll`.
    fn pollable(&self) -> Option<Arc<dyn Pollable>> {
        None
    }

    /// How long a caller that waits on [`Transport::pollable`] may at most do so before it calls `poll`; None: until that is
    /// ready. `sleeps`: it will wait there, and who writes rings that are followed wakes it from here on.
    fn poll_within(&self, _sleeps: bool) -> Option<Duration> {
        None
    }
}

/// What a thread waits on that does not have the transport. Its descriptor is only to be waited for.
pub trait Pollable: AsFd + Send + Sync {
    /// Waits until `poll` has something to take, and no longer than `within`; whoever then calls `poll` may be spared a
    /// system call. It may return early.
    fn wait(&self, within: Duration);
}

impl Pollable for OwnedFd {
    fn wait(&self, within: Duration) {
        let within = Timespec::try_from(within).ok();
        // Woken too early is as good as woken; what could fail otherwise is a descriptor that is none.
        let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], within.as_ref());
    }
}
