//! TCP, and shared memory over local sockets: non-blocking sockets and one epoll set per worker.
//!
//! ```text
//!                 ┌──────────────── Tcp (one worker) ────────────────┐
//!   Waker ────▶ │ epoll ─▶ listeners ─▶ Event::Incoming            │
//!                 │       ─▶ connections ─┬▶ receive ─▶ rings, events│
//!                 │                       └◀ send    ◀─ rings, queue │
//!                 └──────────────────────────────────────────────────┘
//! ```
//!
//! Each range and each control message has an 8-byte header ([`crate::wire`]). Bytes are moved in the ways that measured best:
//! large ranges are read straight into their rings, small ranges together into a staging buffer and copied; queued ranges are
//! sent in place, in one system call of up to 1024 parts without a limit in bytes.
//!
//! Beyond the contract:
//! * [`room`](Transport::room) is `tx_queue_bytes` less the bytes of ranges queued, and 0 while the kernel accepts no
//!   more: pending bytes then grow in the ring and leave as one range. A write larger than the room is refused.
//! * A range that follows a control message is reported by a later poll, so that `bind`, `unbind`, `skip` and `pause` in
//!   response to the message come before the range is handled.
//! * Of the connections with little data that are ready at the same time `poll` serves a part, and the others in the next
//!   polls.
//! * `poll` may return early with nothing. The caller calls the waker's `prepare()` and `woken()` around a `poll` with a
//!   timeout other than zero; this transport only watches its descriptor.
//! * The end of a paused connection is reported after it is resumed, when everything that had arrived was read.
//! * `connect` asks the system's resolver for host names, which may block; addresses never do. All addresses of a name
//!   are tried in turn.
//! * A message larger than the peer's limit is refused by the peer, which ends the connection.
//!
//! With TLS ([`TcpConfig::tls`]) the stream is the content of TLS 1.3's records, over TCP alone. A connection is reported, and what
//! is queued leaves, once the handshake is complete.
//!
//! Shared memory ([`Carry::Shm`], [`Carry::Auto`]) is the same stream over a local socket, with one more message: the
//! descriptor of a ring's file ([`offer`](Transport::offer)). After that a range of the ring is a message of 16 bytes, and lands
//! without a copy. Everything else, also ranges of rings that cannot be mapped, is as over TCP. A listener has one address for
//! both.

#[cfg_attr(not(feature = "tls"), path = "no_certificates.rs")]
mod certificates;
mod config;
mod conn;
mod drive;
#[cfg(feature = "tls")]
mod explain;
mod follow;
mod follows;
mod inet;
mod local;
mod mapped;
mod ready;
mod receive;
#[cfg_attr(not(feature = "tls"), path = "no_secure.rs")]
mod secure;
mod security;
mod send;
mod shaking;
mod socket;
mod spares;
mod sys;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketring::{GrowError, PeerDoorbell, PeerMapper, Pool, Position, Ring, RingReceiver, Trimmed, Waker};
use rustix::event::epoll;

pub use certificates::Tls;
pub use config::{Carry, TcpConfig};
use conn::{Conn, Deadlines, State};
use follows::Follows;
use ready::{LISTENER, Ready, ReadyEvents, WAKER};
pub use security::{ClientCertificates, TlsError, TlsSettings};
use socket::{Own, Socket};
use spares::Spares;

use crate::LogLimiter;
use crate::contract::{
    Accepted, AcceptedHandle, Carrier, ConnId, Down, Event, NotWritten, PeerIdentity, Pollable, Promises,
    QueueFull, SourceRange, Transport, TransportError, WireId,
};
use crate::slots::Slots;
use crate::wire::{Header, LOCAL_UNWATCH};

/// The limits on mapped rings of [`Tcp::new`]: the defaults of the layer above.
const DEFAULT_MAPPED_RINGS: usize = 16_384;
const DEFAULT_MAPPED_BYTES: u64 = 16 << 30;

enum Listener {
    Inet(TcpListener),
    Local(local::Listener),
}

impl Listener {
    /// The next connection: its peer's name, and its non-blocking socket.
    fn accept(&self) -> io::Result<(String, AcceptedHandle)> {
        match self {
            Self::Inet(listener) => {
                let (socket, peer) = listener.accept()?;
                socket.set_nonblocking(true)?;
                Ok((peer.to_string(), AcceptedHandle::Tcp(socket)))
            }
            Self::Local(listener) => {
                let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
                let socket = rustix::net::accept_with(&listener.socket, flags)?;
                Ok((local::peer_name(socket.as_fd()), AcceptedHandle::Local(socket)))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Inet(listener) => listener.as_fd(),
            Self::Local(listener) => listener.socket.as_fd(),
        }
    }
}

struct Listening {
    socket: Own<Listener>,
    /// As `listen` returned it.
    addr: String,
    /// No connection is accepted until then, because no descriptor was left.
    resting: Option<Instant>,
    /// Limits log lines about connections that could not be accepted.
    refusals: LogLimiter,
}

/// TCP for one worker. See the [module](self).
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use rocketnet::{Event, Transport, tcp::{Tcp, TcpConfig}};
///
/// let waker = Arc::new(rocketring::Waker::new()?);
/// let mut tcp = Tcp::new(TcpConfig::default(), waker)?;
/// let addr = tcp.listen("127.0.0.1:0")?;
/// let conn = tcp.connect(&addr)?;
/// tcp.control(conn, b"hello").expect("an empty queue has place");
/// let mut events = Vec::new();
/// while !events.iter().any(|event| matches!(event, Event::Connected(id) if *id == conn)) {
///     tcp.poll(Some(Duration::from_millis(10)), &mut events);
/// }
/// assert!(tcp.flush(conn));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tcp {
    config: TcpConfig,
    maps: PeerMapper,
    epoll: Arc<Ready>,
    waker: Arc<Waker>,
    listeners: slab::Slab<Listening>,
    conns: Slots<Conn>,
    /// The buffer for small ranges and headers.
    staging: Box<[u8]>,
    /// Events of the kernel that were not served yet, the last first: tokens and flags.
    ready: ReadyEvents,
    /// How many at the end of `ready` have little data, and how many of those one poll serves.
    little: usize,
    portion: usize,
    /// Connections to serve without an event of the kernel.
    again: Vec<ConnId>,
    /// Connections that may have [`Event::Writable`] to report.
    writable: Vec<ConnId>,
    /// Events of calls other than `poll`.
    backlog: Vec<Event>,
    deadlines: Deadlines,
    follows: Follows,
    spares: Spares,
    /// Counts polls.
    turn: u64,
    /// Unfinished handshakes of incoming connections, and how many steps of handshakes this poll may still make.
    handshakes: usize,
    shakes_left: usize,
}

impl Tcp {
    /// A transport without connections. Waking `waker` makes a waiting `poll` return.
    ///
    /// Errors: [`TransportError::Config`] if a setting is outside its range or the system does not know the congestion
    /// control, [`TransportError::Os`] if descriptors have run out.
    pub fn new(config: TcpConfig, waker: Arc<Waker>) -> Result<Self, TransportError> {
        Self::with_maps(config, waker, PeerMapper::new(DEFAULT_MAPPED_RINGS, DEFAULT_MAPPED_BYTES))
    }

    /// As [`Tcp::new`], for a process with several workers, which share the limits of `maps` on rings of other processes.
    ///
    /// Errors: as for [`Tcp::new`].
    pub fn with_maps(config: TcpConfig, waker: Arc<Waker>, maps: PeerMapper) -> Result<Self, TransportError> {
        config.check()?;
        socket::try_options(&config)?;
        let os = |what| move |e: rustix::io::Errno| TransportError::Os { what, source: e.into() };
        let epoll = Ready::new().map_err(os("creating an epoll set"))?;
        let data = epoll::EventData::new_u64(WAKER);
        epoll::add(&epoll, waker.fd(), data, epoll::EventFlags::IN).map_err(os("watching the waker"))?;
        Ok(Self {
            staging: vec![0; config.staging_with_records()].into(),
            config,
            maps,
            epoll: Arc::new(epoll),
            waker,
            listeners: slab::Slab::new(),
            conns: Slots::new(),
            ready: ReadyEvents::new(),
            little: 0,
            portion: 0,
            again: Vec::new(),
            writable: Vec::new(),
            backlog: Vec::new(),
            deadlines: Deadlines::new(),
            follows: Follows::default(),
            spares: Spares::default(),
            turn: 0,
            handshakes: 0,
            shakes_left: 0,
        })
    }

    /// The settings.
    pub fn config(&self) -> &TcpConfig {
        &self.config
    }

    /// The waker.
    pub fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    fn watch_listener(&mut self, socket: Listener, addr: &str) -> Result<(), TransportError> {
        let entry = self.listeners.vacant_entry();
        let data = epoll::EventData::new_u64(LISTENER | entry.key() as u64);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)
            .map_err(|e| TransportError::Os { what: "watching a listener", source: e.into() })?;
        let (socket, addr) = (Own::new(socket), addr.into());
        entry.insert(Listening { socket, addr, resting: None, refusals: LogLimiter::default() });
        Ok(())
    }

    fn check_place(&self) -> Result<(), TransportError> {
        let (open, max) = (self.conns.len(), self.config.max_connections);
        if open < max { Ok(()) } else { Err(TransportError::TooManyConnections { open, max }) }
    }

    /// Inserts a connection into the table and the epoll set.
    fn enrol(&mut self, conn: Conn) -> Result<ConnId, TransportError> {
        let id = self.conns.insert(conn);
        if let Some(conn) = self.conns.get_mut(id) {
            conn.id = id;
            if let Err(source) = conn.watch(&self.epoll) {
                self.conns.remove(id);
                return Err(TransportError::Os { what: "watching a connection", source });
            }
        }
        Ok(id)
    }
}

impl Transport for Tcp {
    fn promises(&self) -> Promises {
        Promises {
            ordered: true,
            one_sided: false,
            reports_landed: false,
            max_write_bytes: self.config.tx_queue_bytes.into(),
            max_control_bytes: self.config.max_control_bytes,
        }
    }

    fn listen(&mut self, addr: &str) -> Result<String, TransportError> {
        if self.config.carry == Carry::Shm {
            return self.listen_locally(addr);
        }
        self.check_certificate()?;
        let socket = socket::listen(addr, &self.config)?;
        let bound = socket.local_addr();
        let bound = bound.map_err(|source| TransportError::Os { what: "asking for the address", source })?;
        let listening = bound.to_string();
        self.watch_listener(Listener::Inet(socket), &listening)?;
        if self.config.carry == Carry::Auto
            && let Err(error) = self.listen_locally(&listening)
        {
            tracing::warn!(%error, "peers of this machine will use TCP");
        }
        Ok(listening)
    }

    /// Listens under the name of the address.
    fn listen_locally(&mut self, addr: &str) -> Result<String, TransportError> {
        let mut last = rustix::io::Errno::INVAL;
        for one in socket::resolve(addr)? {
            match local::Listener::new(&one, &self.config) {
                Ok(listener) => {
                    let listening = listener.addr.to_string();
                    self.watch_listener(Listener::Local(listener), &listening)?;
                    return Ok(listening);
                }
                Err(e) => last = e,
            }
        }
        let what = "cannot listen there for shared memory";
        Err(TransportError::Listen { addr: addr.into(), what, source: last.into() })
    }

    fn unlisten(&mut self, addr: &str) {
        self.listeners.retain(|_, listening| {
            let stays = listening.addr != addr;
            if !stays && listening.resting.is_none() {
                let _ = epoll::delete(&self.epoll, &listening.socket);
            }
            stays
        });
    }

    fn connect(&mut self, addr: &str) -> Result<ConnId, TransportError> {
        self.connect_found(addr, socket::resolve(addr)?)
    }

    fn connect_found(&mut self, addr: &str, found: Vec<SocketAddr>) -> Result<ConnId, TransportError> {
        self.check_place()?;
        let rest = socket::targets(&found, &self.config).into_iter();
        let state = State::Connecting { addr: addr.into(), rest, not_shared: String::new() };
        let mut conn = Conn::new(state, None, &self.config);
        let mut reason = "it is not an address of this machine, which shared memory needs".to_owned();
        if !conn.try_next_address(&self.config, &self.epoll, &mut reason) {
            conn.state = State::Down;
            let id = self.conns.insert(conn);
            self.conns.get_mut(id).expect("just inserted").id = id;
            self.backlog.push(Event::Down(id, Down::Refused { addr: addr.into(), reason }));
            return Ok(id);
        }
        let id = self.enrol(conn)?;
        self.set_deadline(id, Some(self.config.connect_timeout));
        Ok(id)
    }

    fn adopt(&mut self, accepted: Accepted) -> Result<ConnId, TransportError> {
        self.check_place()?;
        let socket = match accepted.handle {
            AcceptedHandle::Tcp(socket) => {
                socket::set_options(socket.as_fd(), &self.config)?;
                Socket { fd: Own::new(socket.into()), local: false, why: "the peer chose it".into() }
            }
            AcceptedHandle::Local(fd) => {
                socket::set_local_options(fd.as_fd(), &self.config)?;
                let why = format!("the peer is on this machine ({})", accepted.peer);
                Socket { fd: Own::new(fd), local: true, why }
            }
            AcceptedHandle::Sim(_) | AcceptedHandle::Other(_) => {
                let reason = "it was not accepted by a TCP transport".into();
                return Err(TransportError::Address { addr: accepted.peer, reason });
            }
        };
        let peer = accepted.peer;
        let secure = if socket.local { None } else { self.accept_secure(&peer)? };
        let mut conn = Conn::new(State::Open, Some(socket), &self.config);
        conn.secure = secure;
        let is_handshaking = conn.is_handshaking();
        let id = self.enrol(conn)?;
        if is_handshaking {
            self.begin_shaking(id);
        }
        Ok(id)
    }

    fn pause(&mut self, id: ConnId, paused: bool) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.paused = paused;
        if !paused {
            conn.muted = false;
            if conn.has_more() && !std::mem::replace(&mut conn.listed, true) {
                self.again.push(id);
            }
        }
        self.watch(id);
    }

    fn carrier(&self, conn: ConnId) -> Carrier {
        let socket = self.conns.get(conn).and_then(|conn| conn.socket.as_ref());
        let name = if socket.is_some_and(|socket| socket.local) { "shm" } else { "tcp" };
        Carrier {
            name,
            why: match socket {
                None => "the connection is down".into(),
                Some(socket) if self.peer_identity(conn).encrypted => format!("{}, with TLS 1.3", socket.why),
                Some(socket) => socket.why.clone(),
            },
        }
    }

    fn peer_identity(&self, conn: ConnId) -> PeerIdentity {
        let socket = self.conns.get(conn).and_then(|conn| conn.socket.as_ref());
        let unix = socket.filter(|socket| socket.local).and_then(|socket| local::peer(socket.fd.as_fd()));
        let secure = self.conns.get(conn).and_then(|conn| conn.secure.as_ref());
        let secure = secure.filter(|secure| !secure.is_handshaking());
        let certificate = secure.and_then(|secure| secure.certificate());
        PeerIdentity { certificate, unix, encrypted: secure.is_some() }
    }

    fn offer(&mut self, conn: ConnId, wire: WireId, ring: &Ring, behind: u64) -> bool {
        match self.conns.get_mut(conn) {
            Some(conn) if conn.is_open() && conn.is_local() => conn.out.offer(wire, ring, behind),
            _ => false,
        }
    }

    fn bind(&mut self, conn: ConnId, wire: WireId, receiver: RingReceiver) {
        if let Some(conn) = self.conns.get_mut(conn) {
            conn.intake.bind(wire, receiver);
        }
    }

    fn discard(&mut self, conn: ConnId, wire: WireId) -> bool {
        if let Some(conn) = self.conns.get_mut(conn) {
            conn.intake.discard(wire);
        }
        true
    }

    fn follow(&mut self, conn: ConnId, wire: WireId, lazily: bool) -> bool {
        self.begin_to_follow(conn, wire, lazily)
    }

    fn has_new_data(&self) -> Option<bool> {
        (!self.follows.rings().is_empty()).then(|| self.followed_has_data())
    }

    fn attend(&mut self, rings: usize) -> bool {
        self.follows.attend(rings) && self.followed_has_data()
    }

    fn pass_watcher(&mut self, conn: ConnId, wire: WireId, doorbell: &Arc<PeerDoorbell>) -> Option<u32> {
        self.make_room(conn);
        let conn = self.conns.get_mut(conn).filter(|conn| conn.is_open() && conn.is_local())?;
        conn.pass_doorbell(wire, doorbell)
    }

    fn drop_watcher(&mut self, conn: ConnId, wire: WireId, number: u32) {
        self.send_or_close(conn, LOCAL_UNWATCH, Header { wire, more: false, size: number });
    }

    fn unbind(&mut self, conn: ConnId, wire: WireId) -> Option<RingReceiver> {
        self.follows.remove(conn, wire);
        self.conns.get_mut(conn)?.intake.unbind(wire)
    }

    fn skip(&mut self, conn: ConnId, wire: WireId, to: Position) -> bool {
        self.conns.get_mut(conn).is_some_and(|conn| conn.intake.skip(wire, to))
    }

    fn trim(&mut self, conn: ConnId, wire: WireId, keep: u64) -> Option<Trimmed> {
        self.conns.get_mut(conn)?.intake.trim(wire, keep)
    }

    fn grow(
        &mut self,
        conn: ConnId,
        wire: WireId,
        pool: &Pool,
        max_delivery: u64,
    ) -> Option<Result<(), GrowError>> {
        self.conns.get_mut(conn)?.intake.grow(wire, pool, max_delivery)
    }

    fn room(&self, conn: ConnId) -> u64 {
        match self.conns.get(conn) {
            Some(conn) if matches!(conn.state, State::Open | State::Connecting { .. }) => conn.out.room(),
            _ => 0,
        }
    }

    fn write(
        &mut self,
        conn: ConnId,
        wire: WireId,
        source: SourceRange,
        more: bool,
    ) -> Result<(), NotWritten> {
        match self.conns.get_mut(conn) {
            Some(conn) if matches!(conn.state, State::Open | State::Connecting { .. }) => {
                conn.out.write(wire, source, more, &mut self.spares)
            }
            _ => Err(NotWritten::QueueFull),
        }
    }

    fn control(&mut self, conn: ConnId, message: &[u8]) -> Result<(), QueueFull> {
        match self.conns.get_mut(conn) {
            Some(conn) if matches!(conn.state, State::Open | State::Connecting { .. }) => {
                conn.out.control(message)
            }
            _ => Err(QueueFull),
        }
    }

    fn detach(&mut self, conn: ConnId, wire: WireId) -> u64 {
        self.conns.get_mut(conn).map_or(0, |conn| conn.out.detach(wire))
    }

    fn flush(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conns.get_mut(id) else { return true };
        if conn.out.is_blocked() {
            return false;
        }
        let all = conn.flush(&mut self.spares);
        self.watch(id);
        self.note_writable(id);
        all
    }

    fn close(&mut self, id: ConnId, why: &str, linger: Duration) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        match conn.state {
            State::Connecting { .. } => return self.fail_later(id, Down::Local(why.into())),
            State::Open => conn.state = State::Closing { why: Down::Local(why.into()), shut: false },
            State::Closing { .. } | State::Down => return,
        }
        let dead = conn.finish_sending(&mut self.spares);
        self.note_writable(id);
        if dead || linger.is_zero() {
            return self.fail_later(id, Down::Local(why.into()));
        }
        self.set_deadline(id, Some(linger));
        self.watch(id);
    }

    fn forget(&mut self, id: ConnId) {
        if let Some(mut conn) = self.conns.remove(id) {
            self.handshakes -= usize::from(conn.counted);
            conn.release(&self.epoll);
            conn.set_deadline(None, &mut self.deadlines);
        }
        self.follows.forget(id);
    }

    fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) {
        self.drive(timeout, events);
    }

    fn pollable(&self) -> Option<Arc<dyn Pollable>> {
        Some(self.epoll.clone())
    }

    fn poll_within(&self, sleeps: bool) -> Option<Duration> {
        if sleeps { self.may_sleep() } else { self.within() }
    }
}

/// A transport may be made in one thread and used in another.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Tcp>();
};
