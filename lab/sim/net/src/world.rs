//! The whole network: hosts' transports, listeners, connections, and the next event.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::clock::{Clock, HostPair, Kind};
use crate::config::{ORPHAN_NS, SimConfig};
use crate::conn::Conn;
use crate::end::Phase;
use rocketnet::contract::{Accepted, AcceptedHandle, ConnId, Down, Event, TransportError};

/// A transport: a worker of a host.
pub(crate) struct Endpoint {
    pub(crate) host: u32,
    pub(crate) alive: bool,
    /// The ends that it owns.
    pub(crate) conns: BTreeSet<ConnId>,
    /// Incoming connections that were not reported yet.
    pub(crate) incoming: VecDeque<Event>,
    /// Connections accepted by its listeners and not adopted.
    backlog: usize,
    /// The connection with which the next poll begins.
    turn: u64,
}

/// The whole network, behind one lock.
pub(crate) struct World {
    pub(crate) clock: Clock,
    hosts: Vec<String>,
    pub(crate) endpoints: BTreeMap<u64, Endpoint>,
    listeners: BTreeMap<String, u64>,
    pub(crate) conns: BTreeMap<u64, Conn>,
    next_endpoint: u64,
    next_conn: u64,
    next_port: u64,
}

impl World {
    pub(crate) fn new(seed: u64, config: SimConfig) -> Self {
        Self {
            clock: Clock::new(seed, config),
            hosts: Vec::new(),
            endpoints: BTreeMap::new(),
            listeners: BTreeMap::new(),
            conns: BTreeMap::new(),
            next_endpoint: 0,
            next_conn: 0,
            next_port: 1024,
        }
    }

    /// A host's number. Hosts are few, and their names are never forgotten.
    pub(crate) fn host_no(&mut self, name: &str) -> u32 {
        let known = self.hosts.iter().position(|host| host == name);
        known.unwrap_or_else(|| {
            self.hosts.push(name.to_owned());
            self.hosts.len() - 1
        }) as u32
    }

    pub(crate) fn endpoint(&mut self, name: &str) -> u64 {
        let host = self.host_no(name);
        self.next_endpoint += 1;
        let endpoint = Endpoint {
            host,
            alive: true,
            conns: BTreeSet::new(),
            incoming: VecDeque::new(),
            backlog: 0,
            turn: 0,
        };
        self.endpoints.insert(self.next_endpoint, endpoint);
        self.next_endpoint
    }

    fn alive(&mut self, endpoint: u64, addr: &str) -> Result<&mut Endpoint, TransportError> {
        let living = self.endpoints.get_mut(&endpoint).filter(|e| e.alive);
        living.ok_or_else(|| TransportError::Address {
            addr: addr.to_owned(),
            reason: "this simulated host was killed".to_owned(),
        })
    }

    pub(crate) fn listen(&mut self, endpoint: u64, addr: &str) -> Result<String, TransportError> {
        self.alive(endpoint, addr)?;
        let refuse =
            |reason: &str| TransportError::Address { addr: addr.to_owned(), reason: reason.to_owned() };
        let (host, port) = addr.rsplit_once(':').ok_or_else(|| refuse("the address has no port"))?;
        let port: u16 = port.parse().map_err(|_| refuse("its port is not a number below 65536"))?;
        let addr = if port == 0 {
            self.next_port += 1;
            format!("{host}:{}", self.next_port)
        } else {
            addr.to_owned()
        };
        if self.listeners.contains_key(&addr) {
            return Err(refuse("a listener has this address already"));
        }
        self.listeners.insert(addr.clone(), endpoint);
        Ok(addr)
    }

    pub(crate) fn unlisten(&mut self, endpoint: u64, addr: &str) {
        if self.listeners.get(addr) == Some(&endpoint) {
            self.listeners.remove(addr);
        }
    }

    fn check_connections(&self, endpoint: u64) -> Result<(), TransportError> {
        let open = self.endpoints.get(&endpoint).map_or(0, |e| e.conns.len());
        let max = self.clock.config.max_connections;
        if open >= max { Err(TransportError::TooManyConnections { open, max }) } else { Ok(()) }
    }

    pub(crate) fn connect(&mut self, endpoint: u64, addr: &str) -> Result<ConnId, TransportError> {
        let host = self.alive(endpoint, addr)?.host;
        if addr.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            let reason = "it is not NAME:PORT".to_owned();
            return Err(TransportError::Address { addr: addr.to_owned(), reason });
        }
        self.check_connections(endpoint)?;
        let listener = self.listeners.get(addr).and_then(|listener| self.endpoints.get(listener));
        let to_host = listener.map_or(host, |listener| listener.host);
        self.next_conn += 1;
        let no = self.next_conn;
        let conn = Conn::new(&self.clock, no, addr, host, endpoint, to_host);
        let id = conn.id(0);
        self.conns.insert(no, conn);
        self.alive(endpoint, addr)?.conns.insert(id);
        self.clock.note("connect", id.0, 0, u64::from(host), u64::from(to_host));
        self.clock.soon(Kind::Syn { conn: no });
        Ok(id)
    }

    pub(crate) fn adopt(&mut self, endpoint: u64, accepted: &Accepted) -> Result<ConnId, TransportError> {
        let host = self.alive(endpoint, &accepted.peer)?.host;
        self.check_connections(endpoint)?;
        let refuse =
            |reason: &str| TransportError::Address { addr: accepted.peer.clone(), reason: reason.to_owned() };
        let AcceptedHandle::Sim(no) = accepted.handle else {
            return Err(refuse("the handle is not a connection of the simulated network"));
        };
        let conn = self.conns.get_mut(&no);
        let conn = conn.filter(|c| c.ends[1].phase == Phase::Pending && c.ends[1].host == host);
        let conn = conn.ok_or_else(|| refuse("no such connection waits to be adopted at this host"))?;
        conn.ends[1].phase = Phase::Up;
        let listener = conn.ends[1].owner.replace(endpoint);
        let id = conn.id(1);
        if let Some(listener) = listener.and_then(|l| self.endpoints.get_mut(&l)) {
            listener.backlog -= 1;
        }
        self.alive(endpoint, &accepted.peer)?.conns.insert(id);
        self.clock.note("adopt", id.0, 0, endpoint, 0);
        Ok(id)
    }

    /// The connection, which end of it this transport owns, and the clock. None if it owns none.
    pub(crate) fn end(&mut self, endpoint: u64, id: ConnId) -> Option<(&mut Clock, &mut Conn, usize)> {
        let side = (id.0 % 2) as usize;
        let conn = self.conns.get_mut(&(id.0 / 2))?;
        let end = &conn.ends[side];
        let owned = end.owner == Some(endpoint) && !matches!(end.phase, Phase::Pending | Phase::Gone);
        owned.then_some((&mut self.clock, conn, side))
    }

    pub(crate) fn forget(&mut self, endpoint: u64, id: ConnId) {
        let Some((clock, conn, side)) = self.end(endpoint, id) else { return };
        if !conn.ends[side].over() {
            conn.fail(clock, side, Down::Local("forgotten".to_owned()));
        }
        conn.leave(side);
        let no = conn.no;
        if let Some(endpoint) = self.endpoints.get_mut(&endpoint) {
            endpoint.conns.remove(&id);
        }
        self.sweep(no);
    }

    /// Frees a connection that neither end needs. A refused one never had a second end.
    fn sweep(&mut self, no: u64) {
        if self.conns.get(&no).is_some_and(Conn::is_gone) {
            self.conns.remove(&no);
        }
    }

    /// Ends this transport at once. Its peers learn of it later.
    pub(crate) fn kill(&mut self, endpoint: u64) {
        let Some(dying) = self.endpoints.get_mut(&endpoint) else { return };
        dying.alive = false;
        dying.incoming.clear();
        dying.conns.clear();
        self.clock.note("kill", endpoint, 0, 0, 0);
        self.listeners.retain(|_, listener| *listener != endpoint);
        let numbers: Vec<u64> = self.conns.keys().copied().collect();
        for no in numbers {
            let Some(conn) = self.conns.get_mut(&no) else { continue };
            for side in 0..2 {
                if conn.ends[side].owner == Some(endpoint) && conn.ends[side].phase != Phase::Gone {
                    if !conn.ends[side].over() {
                        conn.cut_lanes();
                        conn.break_soon(&mut self.clock, 1 - side);
                    }
                    conn.leave(side);
                }
            }
            self.sweep(no);
        }
    }

    pub(crate) fn kill_host(&mut self, name: &str) {
        let host = self.host_no(name);
        let of_host = self.endpoints.iter().filter(|(_, e)| e.host == host).map(|(no, _)| *no);
        for endpoint in of_host.collect::<Vec<_>>() {
            self.kill(endpoint);
        }
    }

    pub(crate) fn cut(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&(id.0 / 2)) else { return };
        self.clock.note("cut", id.0, 0, 0, 0);
        conn.cut_lanes();
        for side in 0..2 {
            conn.break_soon(&mut self.clock, side);
        }
    }

    /// The time of the next event.
    pub(crate) fn next_event_at(&mut self) -> Option<u64> {
        let (conns, clock) = (&self.conns, &mut self.clock);
        clock.peek(|kind| match kind {
            Kind::Linger { conn, side } => {
                conns.get(&conn).is_none_or(|c| !matches!(c.ends[side].phase, Phase::Closing(_)))
            }
            Kind::Orphan { conn } => conns.get(&conn).is_none_or(|c| c.ends[1].phase != Phase::Pending),
            _ => false,
        })
    }

    /// Runs the next event. False if there is none.
    pub(crate) fn step(&mut self) -> bool {
        if self.next_event_at().is_none() {
            return false;
        }
        let Some(kind) = self.clock.pop() else { return false };
        if let Some(no) = kind.crosses()
            && let Some(conn) = self.conns.get(&no)
        {
            let pair = HostPair::new(conn.ends[0].host, conn.ends[1].host);
            if let Some(until) = self.clock.parted(pair) {
                self.wait_for_heal(pair, until, kind);
                return true;
            }
        }
        self.run(kind);
        true
    }

    /// An event that crosses a partition waits for its end. A connection request waits for a limited time.
    fn wait_for_heal(&mut self, pair: HostPair, until: u64, kind: Kind) {
        let patience = self.clock.now.saturating_add(self.clock.config.connect_timeout_ns);
        match kind {
            Kind::Syn { conn } | Kind::SynAck { conn } if until > patience => {
                self.clock.at(patience, Kind::Refuse { conn });
            }
            _ => self.clock.park(pair, kind),
        }
    }

    fn run(&mut self, kind: Kind) {
        let no = match kind {
            Kind::Heal { pair } => {
                if self.clock.heals(pair, self.clock.now) {
                    self.clock.heal(pair);
                }
                return;
            }
            Kind::Syn { conn } => return self.syn(conn),
            Kind::SynAck { conn }
            | Kind::Refuse { conn }
            | Kind::Orphan { conn }
            | Kind::Pump { conn, .. }
            | Kind::Arrive { conn, .. }
            | Kind::Land { conn, .. }
            | Kind::Notify { conn, .. }
            | Kind::Complete { conn, .. }
            | Kind::Retry { conn, .. }
            | Kind::Fin { conn, .. }
            | Kind::Break { conn, .. }
            | Kind::Linger { conn, .. } => conn,
        };
        let Some(conn) = self.conns.get_mut(&no) else { return };
        let clock = &mut self.clock;
        match kind {
            Kind::SynAck { .. } => connected(clock, conn),
            Kind::Refuse { .. } => self.refuse(no, "no process listens there, or none answers"),
            Kind::Orphan { .. } => self.refuse(no, "no process adopted the connection"),
            Kind::Pump { side, .. } => {
                conn.lanes[side].pump_due = false;
                conn.pump(clock, side);
            }
            Kind::Arrive { side, .. } => conn.arrive(clock, side),
            Kind::Land { side, seq, .. } => conn.land(clock, side, seq),
            Kind::Notify { side, seq, .. } => conn.notify(clock, side, seq),
            Kind::Complete { side, seq, .. } => conn.complete(clock, side, seq),
            Kind::Retry { side, .. } => conn.retry(clock, side),
            Kind::Fin { side, .. } => conn.lanes[side].fin = true,
            Kind::Break { side, .. } => conn.broken(clock, side),
            Kind::Linger { side, .. } => {
                if let Phase::Closing(why) = &conn.ends[side].phase {
                    let why = Down::Local(why.clone());
                    conn.fail(clock, side, why);
                }
            }
            Kind::Heal { .. } | Kind::Syn { .. } => {}
        }
    }

    /// A connection request reaches the listener.
    fn syn(&mut self, no: u64) {
        let Some(conn) = self.conns.get_mut(&no) else { return };
        let listener = self.listeners.get(&conn.addr).copied();
        let most = self.clock.config.max_connections;
        let taken = listener.and_then(|l| self.endpoints.get_mut(&l)).filter(|e| e.backlog < most);
        let asking = !conn.ends[0].over();
        let (Some(endpoint), true) = (taken, asking) else {
            self.clock.soon(Kind::Refuse { conn: no });
            return;
        };
        endpoint.backlog += 1;
        let end = &mut conn.ends[1];
        end.host = endpoint.host;
        end.owner = listener;
        let peer = format!("{}:{no}", self.hosts[conn.ends[0].host as usize]);
        let accepted = Accepted { peer, local: conn.addr.clone(), handle: AcceptedHandle::Sim(no) };
        endpoint.incoming.push_back(Event::Incoming(accepted));
        self.clock.note("incoming", conn.id(1).0, 0, 0, 0);
        self.clock.soon(Kind::SynAck { conn: no });
        self.clock.at(self.clock.now + ORPHAN_NS, Kind::Orphan { conn: no });
    }

    /// Refuses a connection, whose second end was never adopted.
    fn refuse(&mut self, no: u64, reason: &str) {
        let Some(conn) = self.conns.get_mut(&no) else { return };
        if conn.ends[1].phase != Phase::Pending {
            return;
        }
        if let Some(listener) = conn.ends[1].owner.and_then(|l| self.endpoints.get_mut(&l)) {
            listener.backlog -= 1;
        }
        let why = match &conn.ends[0].phase {
            Phase::Connecting => Down::Refused { addr: conn.addr.clone(), reason: reason.to_owned() },
            Phase::Closing(why) => Down::Local(why.clone()),
            _ => Down::Broken(reason.to_owned()),
        };
        conn.leave(1);
        conn.fail(&mut self.clock, 0, why);
        self.sweep(no);
    }

    /// Returns this transport's events, beginning with another connection each time.
    pub(crate) fn poll(&mut self, endpoint: u64, events: &mut Vec<Event>) {
        let Some(polled) = self.endpoints.get_mut(&endpoint) else { return };
        events.extend(polled.incoming.drain(..));
        let first = ConnId(polled.turn);
        let mut order: Vec<ConnId> = polled.conns.range(first..).copied().collect();
        order.extend(polled.conns.range(..first));
        polled.turn = order.get(1).map_or(0, |id| id.0);
        for id in order {
            if let Some((clock, conn, side)) = self.end(endpoint, id) {
                conn.poll(clock, side, events);
            }
        }
    }
}

/// The answer reaches the connecting end.
fn connected(clock: &mut Clock, conn: &mut Conn) {
    if conn.ends[0].phase == Phase::Connecting && !conn.cut {
        let id = conn.id(0);
        conn.ends[0].phase = Phase::Up;
        conn.ends[0].events.push_back(Event::Connected(id));
        clock.note("connected", id.0, 0, 0, 0);
        conn.pump(clock, 0);
    }
}
