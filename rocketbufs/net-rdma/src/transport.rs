//! The transport of one worker: its listeners, connections, and the calls of the contract.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketnet::contract::{AcceptedHandle, Foreign};
use rocketnet::slots::Slots;
use rocketnet::{
    Accepted, Carrier, ConnId, Down, Event, NotWritten, Pollable, Promises, QueueFull, SourceRange,
    Transport, TransportError, WireId,
};
use rocketring::{GrowError, Pool, Position, RingReceiver, Trimmed, Waker};
use rustix::event::epoll;

use crate::config::RdmaConfig;
use crate::conn::{Conn, Deadlines, State};
use crate::frame::{self, Record};
use crate::send_stats::SendStats;
use crate::sys::{Completions, Events, Id, Incoming, QueuePair, Watch, device_of};

/// The tokens of the waker and of connections' events in the epoll set. The token of completions is their index.
pub(crate) const WAKER: u64 = u64::MAX;
pub(crate) const EVENTS: u64 = u64::MAX - 1;
/// The bit that marks the token of a device's own events.
pub(crate) const TROUBLE: u64 = 1 << 61;
/// The bit that marks the number for the removal of a device.
pub(crate) const DEVICE: u64 = 1 << 60;
/// The bit that marks the number of a listener.
pub(crate) const LISTENER: u64 = 1 << 62;
/// How long `detach` waits for the adapter to read posted ranges. Reading takes a round trip; a peer that needs longer
/// counts as dead.
const DETACH_WITHIN: Duration = Duration::from_secs(2);

/// An accepted connection, until a worker adopts it.
#[derive(Debug)]
pub(crate) struct Waiting(pub Incoming);

impl Foreign for Waiting {}

pub(crate) struct Listening {
    /// None while the device is removed.
    pub id: Option<Id>,
    /// The address with the port in use.
    pub bound: SocketAddr,
    /// As `listen` returned it.
    pub addr: String,
}

/// The completion channel of one device, and the device's events.
pub(crate) struct Device {
    pub context: usize,
    pub completions: Arc<Completions>,
    pub watch: Watch,
}

/// RDMA for one worker. See the [crate](crate).
pub struct Rdma {
    pub(crate) config: RdmaConfig,
    pub(crate) events: Arc<Events>,
    pub(crate) epoll: Arc<OwnedFd>,
    _sleeper: Arc<Waker>,
    pub(crate) listeners: slab::Slab<Listening>,
    pub(crate) conns: Slots<Conn>,
    pub(crate) devices: slab::Slab<Device>,
    /// Connections to serve without an event of the adapter.
    pub(crate) again: Vec<ConnId>,
    /// Events of calls other than `poll`.
    pub(crate) backlog: Vec<Event>,
    pub(crate) deadlines: Deadlines,
}

impl Rdma {
    /// A transport without connections. Waking `waker` makes a waiting `poll` return.
    ///
    /// Errors: [`TransportError::Config`] if a setting is outside its range, [`TransportError::Os`] if the libraries or
    /// the kernel's rdma_cm are missing (`rbmq check rdma` reports which, and the remedy) or descriptors have run out.
    pub fn new(config: RdmaConfig, waker: Arc<Waker>) -> Result<Self, TransportError> {
        config.check()?;
        let os = |what| move |source| TransportError::Os { what, source };
        let events = Events::new().map_err(os("RDMA cannot be used here (rbmq check rdma)"))?;
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| os("creating an epoll set")(e.into()))?;
        let rdma = Self {
            config,
            events: events.clone(),
            epoll: Arc::new(epoll),
            _sleeper: waker.clone(),
            listeners: slab::Slab::new(),
            conns: Slots::new(),
            devices: slab::Slab::new(),
            again: Vec::new(),
            backlog: Vec::new(),
            deadlines: Deadlines::new(),
        };
        rdma.watch(waker.fd(), WAKER)?;
        rdma.watch(events.fd(), EVENTS)?;
        Ok(rdma)
    }

    fn watch(&self, fd: BorrowedFd<'_>, token: u64) -> Result<(), TransportError> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
            .map_err(|e| TransportError::Os { what: "watching a descriptor", source: e.into() })
    }

    /// The counters of a connection.
    pub fn stats(&self, conn: ConnId) -> SendStats {
        self.conns.get(conn).map(|conn| conn.out.stats).unwrap_or_default()
    }

    /// The queues of a connection whose device is known.
    pub(crate) fn open_queue_pair(&mut self, id: ConnId, cm: Id) -> Result<QueuePair, String> {
        let context = device_of(&cm);
        let known = self.devices.iter().find(|(_, device)| device.context == context);
        let completions = match known {
            Some((_, device)) => device.completions.clone(),
            None => self.open_device(context, &cm)?,
        };
        QueuePair::open(cm, &completions, id.0, self.config.shape())
    }

    fn open_device(&mut self, context: usize, cm: &Id) -> Result<Arc<Completions>, String> {
        let index = self.devices.vacant_key() as u64;
        let completions =
            Completions::new(cm, DEVICE | index).map_err(|e| format!("a completion channel: {e}"))?;
        let watch = Watch::new(cm).map_err(|e| format!("hearing what becomes of the device: {e}"))?;
        for (fd, token) in [(completions.fd(), index), (watch.fd(), TROUBLE | index)] {
            self.watch(fd, token).map_err(|e| e.to_string())?;
        }
        self.devices.insert(Device { context, completions: completions.clone(), watch });
        Ok(completions)
    }

    fn check_place(&self) -> Result<(), TransportError> {
        let (open, max) = (self.conns.len(), self.config.max_connections);
        if open < max { Ok(()) } else { Err(TransportError::TooManyConnections { open, max }) }
    }

    fn insert(&mut self, conn: Conn) -> ConnId {
        let id = self.conns.insert(conn);
        if let Some(conn) = self.conns.get_mut(id) {
            conn.id = id;
        }
        id
    }

    /// Makes the next poll serve a connection.
    pub(crate) fn serve_again(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id)
            && !std::mem::replace(&mut conn.listed, true)
        {
            self.again.push(id);
        }
    }

    fn accept(&mut self, id: ConnId, incoming: Incoming, peer_receives: u32) -> Result<(), String> {
        let cm = incoming.take(&self.events, id.0).map_err(|e| e.to_string())?;
        let queue_pair = self.open_queue_pair(id, cm)?;
        let Some(conn) = self.conns.get_mut(id) else { return Ok(()) };
        conn.set_queue_pair(queue_pair)?;
        conn.receives = crate::receives::Receives::new(self.config.receive_depth, peer_receives);
        let greeting = frame::greeting(self.config.receive_depth);
        let answered = conn.queue_pair.as_ref().map(|queue_pair| queue_pair.go(true, &greeting));
        answered.unwrap_or(Ok(())).map_err(|e| e.to_string())
    }

    /// Waits until the adapter has read all posted ranges of this id.
    fn await_read(&mut self, id: ConnId, wire: WireId) {
        let until = Instant::now() + DETACH_WITHIN;
        while let Some(conn) =
            self.conns.get_mut(id).filter(|conn| conn.queue_pair.is_some() && conn.out.reads(wire))
        {
            conn.take_completions();
            if let Some(ended) = conn.ended.clone() {
                // The requests will not complete. Ending the queue pair makes the adapter release the memory.
                return self.fail_later(id, ended);
            }
            self.serve_again(id);
            std::thread::yield_now();
            if Instant::now() > until {
                let why = "the network has not confirmed a transfer whose memory is needed";
                return self.fail_later(id, Down::Broken(why.into()));
            }
        }
    }
}

fn resolve(addr: &str) -> Result<Vec<SocketAddr>, TransportError> {
    peers::resolve(addr)
        .map_err(|error| TransportError::Address { addr: addr.into(), reason: error.to_string() })
}

fn first(addr: &str, found: &[SocketAddr]) -> Result<SocketAddr, TransportError> {
    let none = || TransportError::Address { addr: addr.into(), reason: "the name has no address".into() };
    found.first().copied().ok_or_else(none)
}

impl Transport for Rdma {
    fn promises(&self) -> Promises {
        Promises {
            ordered: true,
            one_sided: true,
            // A completion means that the peer's memory has the bytes. CREDIT reports the position that the peer's session has
            // taken (into a file, to a relay).
            reports_landed: false,
            max_write_bytes: self.config.tx_queue_bytes.into(),
            max_control_bytes: self.config.max_control_bytes,
        }
    }

    fn listen(&mut self, addr: &str) -> Result<String, TransportError> {
        let wanted = first(addr, &resolve(addr)?)?;
        let entry = self.listeners.vacant_entry();
        let number = LISTENER | entry.key() as u64;
        let (id, bound) =
            Id::listen(&self.events, wanted, self.config.backlog, number).map_err(|source| {
                TransportError::Listen { addr: addr.into(), what: "cannot listen there over RDMA", source }
            })?;
        let addr = bound.to_string();
        entry.insert(Listening { id: Some(id), bound, addr: addr.clone() });
        Ok(addr)
    }

    fn unlisten(&mut self, addr: &str) {
        self.listeners.retain(|_, listening| listening.addr != addr);
    }

    fn connect(&mut self, addr: &str) -> Result<ConnId, TransportError> {
        self.connect_found(addr, resolve(addr)?)
    }

    fn connect_found(&mut self, addr: &str, found: Vec<SocketAddr>) -> Result<ConnId, TransportError> {
        self.check_place()?;
        let target = first(addr, &found)?;
        let id = self.insert(Conn::new(State::Resolving, addr, &self.config));
        let timeout = self.config.connect_timeout.as_millis().min(u128::from(u32::MAX)) as u32;
        match Id::dial(&self.events, target, timeout, id.0) {
            Ok(cm) => {
                if let Some(conn) = self.conns.get_mut(id) {
                    conn.cm = Some(cm);
                }
                self.set_deadline(id, Some(self.config.connect_timeout));
            }
            Err(e) => {
                let reason = format!("no RDMA device leads there ({e}; rbmq check rdma)");
                self.fail_later(id, Down::Refused { addr: addr.into(), reason });
            }
        }
        Ok(id)
    }

    fn adopt(&mut self, accepted: Accepted) -> Result<ConnId, TransportError> {
        self.check_place()?;
        let bad = |reason: String| TransportError::Address { addr: accepted.peer.clone(), reason };
        let waiting = match accepted.handle {
            AcceptedHandle::Other(handle) => (handle as Box<dyn std::any::Any>).downcast::<Waiting>().ok(),
            _ => None,
        };
        let Some(waiting) = waiting else {
            return Err(bad("it was not accepted by an RDMA transport".into()));
        };
        let Waiting(incoming) = *waiting;
        let peer_receives = frame::read_greeting(&incoming.private).map_err(bad)?;
        let id = self.insert(Conn::new(State::Accepting, &accepted.peer, &self.config));
        if let Err(reason) = self.accept(id, incoming, peer_receives) {
            if let Some(mut conn) = self.conns.remove(id) {
                conn.end();
            }
            return Err(TransportError::Address { addr: accepted.peer, reason });
        }
        self.set_deadline(id, Some(self.config.connect_timeout));
        Ok(id)
    }

    fn pause(&mut self, id: ConnId, paused: bool) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.paused = paused;
        if !paused {
            self.serve_again(id);
        }
    }

    fn carrier(&self, _conn: ConnId) -> Carrier {
        Carrier { name: "rdma", why: "an RDMA device leads to the peer".into() }
    }

    fn bind(&mut self, id: ConnId, wire: WireId, receiver: RingReceiver) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| !conn.is_down()) else { return };
        if let Err(reason) = conn.bind(wire, receiver) {
            self.fail_later(id, Down::Local(format!("a ring cannot be registered for the peer: {reason}")));
        }
    }

    fn discard(&mut self, id: ConnId, wire: WireId) -> bool {
        if let Some(conn) = self.conns.get_mut(id).filter(|conn| !conn.is_down()) {
            conn.discard(wire);
            self.serve_again(id);
        }
        true
    }

    fn unbind(&mut self, conn: ConnId, wire: WireId) -> Option<RingReceiver> {
        self.conns.get_mut(conn)?.unbind(wire)
    }

    fn skip(&mut self, conn: ConnId, wire: WireId, to: Position) -> bool {
        self.conns.get_mut(conn).is_some_and(|conn| conn.intake.skip(wire, to))
    }

    fn trim(&mut self, _conn: ConnId, _wire: WireId, _keep: u64) -> Option<Trimmed> {
        None
    }

    fn grow(
        &mut self,
        _conn: ConnId,
        _wire: WireId,
        _pool: &Pool,
        _max_delivery: u64,
    ) -> Option<Result<(), GrowError>> {
        None
    }

    fn room(&self, conn: ConnId) -> u64 {
        self.conns.get(conn).filter(|conn| conn.is_taking()).map_or(0, |conn| conn.out.room())
    }

    fn write(&mut self, id: ConnId, wire: WireId, source: SourceRange, more: bool) -> Result<(), NotWritten> {
        match self.conns.get_mut(id).filter(|conn| conn.is_taking()) {
            Some(conn) => conn.out.write(wire, source, more),
            None => Err(NotWritten::QueueFull),
        }
    }

    fn control(&mut self, id: ConnId, message: &[u8]) -> Result<(), QueueFull> {
        let limit = self.config.max_control_bytes;
        match self.conns.get_mut(id).filter(|conn| conn.is_taking()) {
            Some(conn) => conn.out.control(message, limit),
            None => Err(QueueFull),
        }
    }

    fn detach(&mut self, id: ConnId, wire: WireId) -> u64 {
        let Some(conn) = self.conns.get_mut(id) else { return 0 };
        let copied = conn.out.detach(wire);
        self.await_read(id, wire);
        if let Some(conn) = self.conns.get_mut(id) {
            conn.out.release(wire);
        }
        copied
    }

    fn flush(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conns.get_mut(id) else { return true };
        match conn.flush() {
            Ok(all) => all,
            Err(reason) => {
                self.fail_later(id, Down::Broken(reason));
                false
            }
        }
    }

    fn close(&mut self, id: ConnId, why: &str, linger: Duration) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        match conn.state {
            State::Closing { .. } | State::Down => return,
            State::Open => {}
            _ => return self.fail_later(id, Down::Local(why.into())),
        }
        conn.state = State::Closing { why: why.into() };
        conn.out.say(Record::Close);
        let broken = conn.flush().is_err();
        if broken || linger.is_zero() {
            return self.fail_later(id, Down::Local(why.into()));
        }
        self.set_deadline(id, Some(linger));
        self.serve_again(id);
    }

    fn forget(&mut self, id: ConnId) {
        if let Some(mut conn) = self.conns.remove(id) {
            conn.set_deadline(None, &mut self.deadlines);
            if !conn.is_down() {
                conn.end();
            }
        }
    }

    fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) {
        self.drive(timeout, events);
    }

    fn pollable(&self) -> Option<Arc<dyn Pollable>> {
        Some(self.epoll.clone())
    }

    fn poll_within(&self, _sleeps: bool) -> Option<Duration> {
        self.within()
    }
}

impl Drop for Rdma {
    fn drop(&mut self) {
        // Notifies peers, and ends queue pairs before the rings that they write.
        for id in self.conns.ids().collect::<Vec<_>>() {
            self.forget(id);
        }
    }
}

/// A transport may be made in one thread and used in another.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Rdma>();
};
