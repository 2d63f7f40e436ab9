//! Two transports, driven together.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rocketring::PeerRing;

use super::lab::Lab;
use crate::contract::{ConnId, Down, Event, Promises, SourceRange, Transport, WireId};

/// Long enough for a close that must deliver the queue.
pub const LINGER: Duration = Duration::from_secs(20);

/// A transport and all of its events.
pub struct End<T> {
    link: Option<T>,
    /// All events of connections, in order.
    pub seen: Vec<Event>,
    /// The newest position of `Landed`.
    pub landed: HashMap<(ConnId, WireId), u64>,
    /// Rings that the peer offered, by connection and id, until a case takes them.
    pub offers: HashMap<(ConnId, WireId), PeerRing>,
    paused: HashSet<ConnId>,
    down: HashMap<ConnId, Down>,
    /// Accepted connections, with their listening address.
    incoming: Vec<(ConnId, String)>,
}

impl<T: Transport> End<T> {
    fn new(link: T) -> Self {
        Self {
            link: Some(link),
            seen: Vec::new(),
            landed: HashMap::new(),
            offers: HashMap::new(),
            paused: HashSet::new(),
            down: HashMap::new(),
            incoming: Vec::new(),
        }
    }

    /// The transport. Panics after [`Kit::kill`].
    pub fn link(&mut self) -> &mut T {
        self.link.as_mut().expect("this end was killed")
    }

    /// Pauses or resumes; from then on the kit checks that nothing arrives while paused.
    pub fn pause(&mut self, conn: ConnId, paused: bool) {
        self.link().pause(conn, paused);
        if paused {
            self.paused.insert(conn);
        } else {
            self.paused.remove(&conn);
        }
    }

    /// The control messages of a connection so far.
    pub fn controls(&self, conn: ConnId) -> Vec<&[u8]> {
        let own = |event| match event {
            &Event::Control(id, ref bytes) if id == conn => Some(bytes.as_slice()),
            _ => None,
        };
        self.seen.iter().filter_map(own).collect()
    }

    /// Why the connection is down, if it is.
    pub fn down(&self, conn: ConnId) -> Option<&Down> {
        self.down.get(&conn)
    }

    /// How often `Writable` was reported.
    pub fn writable(&self, conn: ConnId) -> usize {
        self.seen.iter().filter(|event| matches!(event, Event::Writable(id) if *id == conn)).count()
    }

    /// Queues a write. Panics if the queue is full.
    pub fn write(&mut self, conn: ConnId, wire: WireId, source: SourceRange, more: bool) {
        self.link().write(conn, wire, source, more).expect("the queue has place");
    }

    /// Checks the contract's rules for one poll's events, and keeps the events.
    fn take(&mut self, events: Vec<Event>) {
        let mut arrived = HashSet::new();
        for event in events {
            match &event {
                Event::Watched(conn, ..) | Event::Unwatched(conn, ..) => self.not_down(*conn),
                Event::Arrived(conn, wire) => {
                    assert!(arrived.insert((*conn, *wire)), "Arrived twice in one poll for {wire}");
                    assert!(!self.paused.contains(conn), "data arrived at a paused connection");
                    self.not_down(*conn);
                }
                Event::Control(conn, _) | Event::Followed(conn, _) => {
                    assert!(!self.paused.contains(conn), "something arrived at a paused connection");
                    self.not_down(*conn);
                }
                Event::Landed(conn, wire, at) => {
                    self.not_down(*conn);
                    self.landed.insert((*conn, *wire), *at);
                }
                Event::Connected(conn) | Event::Writable(conn) => self.not_down(*conn),
                Event::Down(conn, why) => {
                    assert!(!why.to_string().is_empty());
                    assert!(self.down.insert(*conn, why.clone()).is_none(), "Down twice");
                }
                Event::Offered(conn, _, _) => {
                    assert!(!self.paused.contains(conn), "an offer arrived at a paused connection");
                    self.not_down(*conn);
                }
                Event::Incoming(_) => {}
            }
            match event {
                Event::Incoming(accepted) => {
                    assert!(!accepted.peer.is_empty());
                    let local = accepted.local.clone();
                    let conn = self.link().adopt(accepted).expect("an accepted connection can be adopted");
                    self.incoming.push((conn, local));
                }
                Event::Offered(conn, wire, offered) => {
                    self.offers.insert((conn, wire), *offered.ring.expect("an honest offer"));
                }
                event => self.seen.push(event),
            }
        }
    }

    fn not_down(&self, conn: ConnId) {
        assert!(!self.down.contains_key(&conn), "an event of a connection after its Down");
    }
}

/// Two ends and their connections. End 0 listens, end 1 connects.
pub struct Kit<'l, L: Lab> {
    lab: &'l mut L,
    /// The two ends.
    pub ends: [End<L::Link>; 2],
    /// The connections: the id at each end.
    pub conns: Vec<[ConnId; 2]>,
    idle: usize,
}

impl<'l, L: Lab> Kit<'l, L> {
    /// Two transports without connection.
    pub fn new(lab: &'l mut L) -> Self {
        let ends = [End::new(lab.transport()), End::new(lab.transport())];
        Self { lab, ends, conns: Vec::new(), idle: 0 }
    }

    /// Two transports with one connection, number 0.
    pub fn connected(lab: &'l mut L) -> Self {
        let mut kit = Self::new(lab);
        kit.connect();
        kit
    }

    /// Makes one more connection; returns its number.
    pub fn connect(&mut self) -> usize {
        let address = self.lab.listen_address();
        let listening = self.ends[0].link().listen(&address).expect("the lab's address can be listened on");
        let dial = self.lab.dial_address(&listening);
        let known = self.ends[0].incoming.len();
        let id = self.ends[1].link().connect(&dial).expect("the lab's address can be dialled");
        self.until("a connection", |kit| {
            let up = |event: &Event| matches!(event, Event::Connected(own) if *own == id);
            kit.ends[0].incoming.len() > known && kit.ends[1].seen.iter().any(up)
        });
        let (taken, local) = &self.ends[0].incoming[known];
        assert_eq!(*local, listening, "an accepted connection says which listener took it");
        self.conns.push([*taken, id]);
        self.conns.len() - 1
    }

    /// The lab.
    pub fn lab(&mut self) -> &mut L {
        self.lab
    }

    /// The transport's promises.
    pub fn promises(&mut self) -> Promises {
        self.ends[0].link().promises()
    }

    /// The id of connection `number` at one end.
    pub fn id(&self, number: usize, side: usize) -> ConnId {
        self.conns[number][side]
    }

    /// Why connection `number` is down at one end.
    pub fn down(&self, number: usize, side: usize) -> Option<Down> {
        self.ends[side].down(self.conns[number][side]).cloned()
    }

    /// Ends one transport without closing its connections.
    pub fn kill(&mut self, side: usize) {
        self.ends[side].link = None;
    }

    /// Flushes and polls both ends once. True if there were events.
    pub fn step(&mut self) -> bool {
        let mut any = false;
        for side in 0..2 {
            let end = &mut self.ends[side];
            let Some(link) = &mut end.link else { continue };
            for ids in &self.conns {
                link.flush(ids[side]);
            }
            let mut events = Vec::new();
            self.lab.poll(link, self.idle > 0, &mut events);
            any |= !events.is_empty();
            end.take(events);
        }
        self.idle = if any { 0 } else { self.idle + 1 };
        any
    }

    /// Steps until the condition holds; panics, naming `what`, when nothing happens for too long.
    pub fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        self.idle = 0;
        while !condition(self) {
            assert!(self.idle < self.lab.patience(), "no sign of {what}; {}", self.newest());
            self.step();
        }
    }

    /// Makes `count` steps.
    pub fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    fn newest(&self) -> String {
        let last = |end: &End<_>| format!("{:?}", end.seen.iter().rev().take(5).collect::<Vec<_>>());
        format!("newest events: {} and {}", last(&self.ends[0]), last(&self.ends[1]))
    }
}
