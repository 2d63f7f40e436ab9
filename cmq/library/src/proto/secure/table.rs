//! The sessions of a queue, by index and by address, within their limits.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use peers::HostAddress;

use super::session::Session;
use crate::key::host;
use crate::proto::fair_share::FairShare;
use crate::security::PublicKey;

/// How long replaced keys still open datagrams that are on their way.
const OLD_KEYS: Duration = Duration::from_secs(10);

/// The sessions.
pub(crate) struct Table {
    limit: usize,
    by_index: HashMap<u32, Session>,
    /// The session that is used for sending to an address. Only confirmed sessions are.
    current: HashMap<SocketAddr, u32>,
    /// When each session ends.
    ends: BTreeSet<(Instant, u32)>,
    end_of: HashMap<u32, Instant>,
    hosts: FairShare<HostAddress>,
    /// The keys of addresses whose session has ended, the oldest first.
    known: HashMap<SocketAddr, PublicKey>,
    known_order: VecDeque<SocketAddr>,
    pub evicted: u64,
}

impl Table {
    pub fn new(limit: usize) -> Table {
        Table {
            limit,
            by_index: HashMap::new(),
            current: HashMap::new(),
            ends: BTreeSet::new(),
            end_of: HashMap::new(),
            hosts: FairShare::new(),
            known: HashMap::new(),
            known_order: VecDeque::new(),
            evicted: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.by_index.len()
    }

    pub fn contains(&self, index: u32) -> bool {
        self.by_index.contains_key(&index)
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut Session> {
        self.by_index.get_mut(&index)
    }

    /// The session that is used for sending to an address.
    pub fn current_mut(&mut self, of: SocketAddr) -> Option<(u32, &mut Session)> {
        let index = *self.current.get(&of)?;
        self.by_index.get_mut(&index).map(|session| (index, session))
    }

    /// The key of the queue at an address with which there was a session.
    pub fn key_of(&self, addr: SocketAddr) -> Option<PublicKey> {
        let current = self.current.get(&addr).and_then(|index| self.by_index.get(index));
        current.map(|session| session.remote).or_else(|| self.known.get(&addr).copied())
    }

    /// Adds a session that ends then. Another one makes room for it.
    pub fn insert(&mut self, index: u32, mut session: Session, end: Instant) {
        if self.by_index.len() >= self.limit
            && let Some(victim) = self.victim(session.peer)
        {
            self.evicted += 1;
            self.remove(victim);
        }
        session.at_host = self.hosts.add(host(session.peer), index);
        self.by_index.insert(index, session);
        self.ends.insert((end, index));
        self.end_of.insert(index, end);
    }

    fn victim(&self, of: SocketAddr) -> Option<u32> {
        let oldest = self.ends.first().map(|&(_, index)| index);
        self.hosts.victim(host(of), self.limit, oldest, |index| {
            let session = &self.by_index[&index];
            (self.end_of[&index], host(session.peer))
        })
    }

    /// Uses a session for sending. The keys that it replaces open datagrams for a moment longer.
    pub fn make_current(&mut self, index: u32, now: Instant) {
        let Some(session) = self.by_index.get(&index) else { return };
        if let Some(before) = self.current.insert(session.peer, index).filter(|&before| before != index)
            && let Some(end) = self.end_of.get_mut(&before)
        {
            let sooner = (*end).min(now + OLD_KEYS);
            self.ends.remove(&(*end, before));
            self.ends.insert((sooner, before));
            *end = sooner;
        }
    }

    /// The peer of a session was heard at another address.
    pub fn move_to(&mut self, index: u32, addr: SocketAddr) {
        let Some(session) = self.by_index.get_mut(&index) else { return };
        let (before, at) = (std::mem::replace(&mut session.peer, addr), session.at_host);
        if self.current.get(&before) == Some(&index) {
            self.current.remove(&before);
            self.current.insert(addr, index);
        }
        self.leave_host(before, at);
        let at = self.hosts.add(host(addr), index);
        self.by_index.get_mut(&index).expect("the session was just found").at_host = at;
    }

    fn leave_host(&mut self, addr: SocketAddr, at: usize) {
        let moved = self.hosts.remove(&host(addr), at);
        if let Some(moved) = moved.and_then(|moved| self.by_index.get_mut(&moved)) {
            moved.at_host = at;
        }
    }

    pub fn remove(&mut self, index: u32) {
        let Some(session) = self.by_index.remove(&index) else { return };
        if let Some(end) = self.end_of.remove(&index) {
            self.ends.remove(&(end, index));
        }
        self.leave_host(session.peer, session.at_host);
        if self.current.get(&session.peer) == Some(&index) {
            self.current.remove(&session.peer);
            self.remember(session.peer, session.remote);
        }
    }

    fn remember(&mut self, addr: SocketAddr, key: PublicKey) {
        if self.known.insert(addr, key).is_none() {
            self.known_order.push_back(addr);
        }
        if self.known.len() > self.limit
            && let Some(oldest) = self.known_order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|&(end, _)| end)
    }

    /// Removes the sessions that have ended.
    pub fn expire(&mut self, now: Instant) {
        while let Some(&(end, index)) = self.ends.first()
            && end <= now
        {
            self.remove(index);
        }
    }
}
