//! RDMA and TCP together, for a worker that serves peers of both: data from one can be sent on over the other.
//!
//! Listens for both under one address (rdma_cm has a port space of its own); outgoing connections use RDMA.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rocketnet::contract::AcceptedHandle;
use rocketnet::tcp::Tcp;
use rocketnet::{
    Accepted, Carrier, ConnId, Event, NotWritten, PeerIdentity, Pollable, Promises, QueueFull, SourceRange,
    Transport, TransportError, WireId,
};
use rocketring::{GrowError, PeerDoorbell, Pool, Position, Ring, RingReceiver, Trimmed};
use rustix::event::epoll;

use crate::transport::Rdma;

/// The bit that marks connections over RDMA. Ids of either transport do not use it.
const RDMA: u64 = 1 << 61;

/// Both transports of one worker, which the same waker wakes.
pub struct RdmaAndTcp {
    rdma: Rdma,
    tcp: Tcp,
    epoll: Arc<OwnedFd>,
}

impl RdmaAndTcp {
    /// Joins two transports that were made with the same waker.
    ///
    /// Errors: [`TransportError::Os`] if descriptors have run out.
    pub fn new(rdma: Rdma, tcp: Tcp) -> Result<Self, TransportError> {
        let os =
            |e: rustix::io::Errno| TransportError::Os { what: "creating an epoll set", source: e.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os)?;
        for one in [rdma.pollable(), tcp.pollable()].into_iter().flatten() {
            epoll::add(&epoll, one.as_fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)
                .map_err(os)?;
        }
        Ok(Self { rdma, tcp, epoll: Arc::new(epoll) })
    }

    /// The transport of a connection, and its id there.
    fn of(&mut self, conn: ConnId) -> (&mut dyn Transport, ConnId) {
        if conn.0 & RDMA == 0 { (&mut self.tcp, conn) } else { (&mut self.rdma, ConnId(conn.0 & !RDMA)) }
    }

    fn of_ref(&self, conn: ConnId) -> (&dyn Transport, ConnId) {
        if conn.0 & RDMA == 0 { (&self.tcp, conn) } else { (&self.rdma, ConnId(conn.0 & !RDMA)) }
    }

    fn outer(conn: ConnId) -> ConnId {
        ConnId(conn.0 | RDMA)
    }
}

/// An event of the RDMA transport, under the id that its connection has here.
fn renamed(event: Event) -> Event {
    let outer = RdmaAndTcp::outer;
    match event {
        Event::Connected(conn) => Event::Connected(outer(conn)),
        Event::Arrived(conn, wire) => Event::Arrived(outer(conn), wire),
        Event::Followed(conn, wire) => Event::Followed(outer(conn), wire),
        Event::Watched(conn, wire, number, doorbell) => Event::Watched(outer(conn), wire, number, doorbell),
        Event::Unwatched(conn, wire, number) => Event::Unwatched(outer(conn), wire, number),
        Event::Control(conn, bytes) => Event::Control(outer(conn), bytes),
        Event::Offered(conn, wire, offered) => Event::Offered(outer(conn), wire, offered),
        Event::Landed(conn, wire, at) => Event::Landed(outer(conn), wire, at),
        Event::Writable(conn) => Event::Writable(outer(conn)),
        Event::Down(conn, why) => Event::Down(outer(conn), why),
        event @ Event::Incoming(_) => event,
    }
}

impl Transport for RdmaAndTcp {
    /// The promises for connections of both.
    fn promises(&self) -> Promises {
        let (rdma, tcp) = (self.rdma.promises(), self.tcp.promises());
        Promises {
            max_write_bytes: rdma.max_write_bytes.min(tcp.max_write_bytes),
            max_control_bytes: rdma.max_control_bytes.min(tcp.max_control_bytes),
            ..tcp
        }
    }

    fn promises_to(&self, conn: ConnId) -> Promises {
        self.of_ref(conn).0.promises()
    }

    fn listen(&mut self, addr: &str) -> Result<String, TransportError> {
        let listening = self.tcp.listen(addr)?;
        match self.rdma.listen(&listening) {
            Ok(_) => Ok(listening),
            Err(error) => {
                self.tcp.unlisten(&listening);
                Err(error)
            }
        }
    }

    fn listen_locally(&mut self, addr: &str) -> Result<String, TransportError> {
        self.tcp.listen_locally(addr)
    }

    fn unlisten(&mut self, addr: &str) {
        self.rdma.unlisten(addr);
        self.tcp.unlisten(addr);
    }

    fn connect(&mut self, addr: &str) -> Result<ConnId, TransportError> {
        self.rdma.connect(addr).map(Self::outer)
    }

    fn connect_found(&mut self, addr: &str, found: Vec<SocketAddr>) -> Result<ConnId, TransportError> {
        self.rdma.connect_found(addr, found).map(Self::outer)
    }

    fn adopt(&mut self, accepted: Accepted) -> Result<ConnId, TransportError> {
        match accepted.handle {
            AcceptedHandle::Other(_) => self.rdma.adopt(accepted).map(Self::outer),
            _ => self.tcp.adopt(accepted),
        }
    }

    fn pause(&mut self, conn: ConnId, paused: bool) {
        let (of, conn) = self.of(conn);
        of.pause(conn, paused);
    }

    fn carrier(&self, conn: ConnId) -> Carrier {
        let (of, conn) = self.of_ref(conn);
        of.carrier(conn)
    }

    fn peer_identity(&self, conn: ConnId) -> PeerIdentity {
        let (of, conn) = self.of_ref(conn);
        of.peer_identity(conn)
    }

    fn offer(&mut self, conn: ConnId, wire: WireId, ring: &Ring, behind: u64) -> bool {
        let (of, conn) = self.of(conn);
        of.offer(conn, wire, ring, behind)
    }

    fn follow(&mut self, conn: ConnId, wire: WireId, lazily: bool) -> bool {
        let (of, conn) = self.of(conn);
        of.follow(conn, wire, lazily)
    }

    fn has_new_data(&self) -> Option<bool> {
        self.tcp.has_new_data()
    }

    fn pass_watcher(&mut self, conn: ConnId, wire: WireId, doorbell: &Arc<PeerDoorbell>) -> Option<u32> {
        let (of, conn) = self.of(conn);
        of.pass_watcher(conn, wire, doorbell)
    }

    fn drop_watcher(&mut self, conn: ConnId, wire: WireId, number: u32) {
        let (of, conn) = self.of(conn);
        of.drop_watcher(conn, wire, number);
    }

    fn discard(&mut self, conn: ConnId, wire: WireId) -> bool {
        let (of, conn) = self.of(conn);
        of.discard(conn, wire)
    }

    fn bind(&mut self, conn: ConnId, wire: WireId, receiver: RingReceiver) {
        let (of, conn) = self.of(conn);
        of.bind(conn, wire, receiver);
    }

    fn unbind(&mut self, conn: ConnId, wire: WireId) -> Option<RingReceiver> {
        let (of, conn) = self.of(conn);
        of.unbind(conn, wire)
    }

    fn skip(&mut self, conn: ConnId, wire: WireId, to: Position) -> bool {
        let (of, conn) = self.of(conn);
        of.skip(conn, wire, to)
    }

    fn trim(&mut self, conn: ConnId, wire: WireId, keep: u64) -> Option<Trimmed> {
        let (of, conn) = self.of(conn);
        of.trim(conn, wire, keep)
    }

    fn grow(
        &mut self,
        conn: ConnId,
        wire: WireId,
        pool: &Pool,
        max_delivery: u64,
    ) -> Option<Result<(), GrowError>> {
        let (of, conn) = self.of(conn);
        of.grow(conn, wire, pool, max_delivery)
    }

    fn room(&self, conn: ConnId) -> u64 {
        let (of, conn) = self.of_ref(conn);
        of.room(conn)
    }

    fn write(
        &mut self,
        conn: ConnId,
        wire: WireId,
        source: SourceRange,
        more: bool,
    ) -> Result<(), NotWritten> {
        let (of, conn) = self.of(conn);
        of.write(conn, wire, source, more)
    }

    fn control(&mut self, conn: ConnId, message: &[u8]) -> Result<(), QueueFull> {
        let (of, conn) = self.of(conn);
        of.control(conn, message)
    }

    fn detach(&mut self, conn: ConnId, wire: WireId) -> u64 {
        let (of, conn) = self.of(conn);
        of.detach(conn, wire)
    }

    fn flush(&mut self, conn: ConnId) -> bool {
        let (of, conn) = self.of(conn);
        of.flush(conn)
    }

    fn close(&mut self, conn: ConnId, why: &str, linger: Duration) {
        let (of, conn) = self.of(conn);
        of.close(conn, why, linger);
    }

    fn forget(&mut self, conn: ConnId) {
        let (of, conn) = self.of(conn);
        of.forget(conn);
    }

    fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) {
        let timeout = match (timeout, self.poll_within(true)) {
            (Some(timeout), Some(within)) => Some(timeout.min(within)),
            (timeout, within) => timeout.or(within),
        };
        if timeout.is_none_or(|timeout| !timeout.is_zero()) {
            let timeout = timeout.and_then(|timeout| rustix::event::Timespec::try_from(timeout).ok());
            let mut ready = Vec::with_capacity(2);
            // Interrupted or not: both transports are polled.
            let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), timeout.as_ref());
        }
        self.tcp.poll(Some(Duration::ZERO), events);
        let own = events.len();
        self.rdma.poll(Some(Duration::ZERO), events);
        let came = events.split_off(own);
        events.extend(came.into_iter().map(renamed));
    }

    fn pollable(&self) -> Option<Arc<dyn Pollable>> {
        Some(self.epoll.clone())
    }

    fn poll_within(&self, sleeps: bool) -> Option<Duration> {
        match (self.rdma.poll_within(sleeps), self.tcp.poll_within(sleeps)) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}
