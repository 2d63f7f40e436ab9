//! The sessions of a queue, by index, and what is known of their peers, by address.
//!
//! ```text
//!   address ──▶ Peer ──▶ its key, and the session in use
//!                              │
//!   index ─────────────────▶ Session ─┬─ confirmed: the peer has used it, so it receives at its address
//!                                     └─ half-open: answered; whoever began it may have forged the address
//! ```
//!
//! Both groups have a limit, an eviction and shares of hosts of their own. A flood of hellos costs neither much memory nor a session of
//! a confirmed peer: half-open sessions evict each other only.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::session::Session;
use crate::proto::fair_share::FairShare;
use crate::security::{PublicKey, Security};

/// How long replaced keys still open datagrams that are on their way.
const OLD_KEYS: Duration = Duration::from_secs(10);
/// How long an initiator may take to use its session.
const CONFIRM_WITHIN: Duration = Duration::from_secs(5);

/// The sessions of one group.
struct Group {
    limit: usize,
    /// The longest life of a session in this group.
    life: Duration,
    /// When each session ends.
    ends: BTreeSet<(Instant, u32)>,
    hosts: FairShare,
}

/// What is known of the queue at an address with which there is or was a session.
struct Peer {
    key: PublicKey,
    /// The session that is used for sending. Only confirmed sessions are.
    current: Option<u32>,
    /// A session has ended: the key is remembered for a while.
    is_remembered: bool,
}

/// The sessions.
pub(crate) struct Table {
    by_index: HashMap<u32, Session>,
    confirmed: Group,
    half_open: Group,
    peers: HashMap<SocketAddr, Peer>,
    /// The addresses whose key is remembered, the oldest first.
    remembered: VecDeque<SocketAddr>,
    pub evicted: u64,
}

impl Group {
    fn new(limit: usize, life: Duration) -> Group {
        Group { limit, life, ends: BTreeSet::new(), hosts: FairShare::new() }
    }

    fn insert(&mut self, index: u32, session: &mut Session) {
        self.ends.insert((session.end, index));
        session.at_host = self.hosts.add(session.peer, index);
    }

    /// Removes a session. Returns the session whose index among those of its host has become that of the removed one.
    fn remove(&mut self, index: u32, session: &Session) -> Option<u32> {
        self.ends.remove(&(session.end, index));
        self.hosts.remove(session.peer, session.at_host)
    }

    /// The session that ends first.
    fn first(&self) -> Option<(Instant, u32)> {
        self.ends.first().copied()
    }
}

impl Table {
    pub fn new(security: &Security) -> Table {
        let life = security.rekey_after + security.rekey_after / 2 + OLD_KEYS;
        Table {
            by_index: HashMap::new(),
            confirmed: Group::new(security.max_sessions, life),
            half_open: Group::new(security.max_half_open, CONFIRM_WITHIN),
            peers: HashMap::new(),
            remembered: VecDeque::new(),
            evicted: 0,
        }
    }

    /// The number of confirmed sessions.
    pub fn len(&self) -> usize {
        self.confirmed.ends.len()
    }

    /// The number of sessions that their initiators have not used yet.
    pub fn half_open(&self) -> usize {
        self.half_open.ends.len()
    }

    /// True if initiators must prove their addresses.
    pub fn is_crowded(&self) -> bool {
        self.half_open() >= self.half_open.limit / 8
    }

    /// True if the host of an address has its share of the half-open sessions.
    pub fn is_greedy(&self, addr: SocketAddr) -> bool {
        self.half_open.hosts.slots(addr).len() >= self.half_open.limit / 4
    }

    pub fn contains(&self, index: u32) -> bool {
        self.by_index.contains_key(&index)
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut Session> {
        self.by_index.get_mut(&index)
    }

    /// The session that is used for sending to an address.
    pub fn current_mut(&mut self, of: SocketAddr) -> Option<(u32, &mut Session)> {
        let index = self.peers.get(&of)?.current?;
        self.by_index.get_mut(&index).map(|session| (index, session))
    }

    /// The welcome that has answered this hello of an address already.
    pub fn welcome(&self, to: SocketAddr, hello: &[u8]) -> Option<&[u8]> {
        let sessions = self.half_open.hosts.slots(to).iter().map(|index| &self.by_index[index]);
        let mut own =
            sessions.filter(|session| session.peer == to).filter_map(|session| session.unconfirmed.as_ref());
        own.find(|waiting| waiting.hello == *hello).map(|waiting| &waiting.welcome[..])
    }

    /// The key of the queue at an address with which there was a session.
    pub fn key_of(&self, addr: SocketAddr) -> Option<PublicKey> {
        self.peers.get(&addr).map(|peer| peer.key)
    }

    /// Adds a session that its initiator must confirm. The oldest one makes room for it.
    pub fn insert_half_open(&mut self, index: u32, mut session: Session) {
        if self.half_open() >= self.half_open.limit
            && let Some((_, oldest)) = self.half_open.first()
        {
            self.remove(oldest);
        }
        session.end = session.born + self.half_open.life;
        self.attach(index, session);
    }

    /// The initiator of a half-open session has used it.
    pub fn confirm(&mut self, now: Instant, index: u32) {
        if let Some(mut session) = self.detach(index) {
            session.unconfirmed = None;
            self.insert_confirmed(now, index, session);
        }
    }

    /// Adds a session, and uses it for sending. Another one makes room for it: of a host with more than its share, or else the oldest. The
    /// keys that it replaces open datagrams for a moment longer.
    pub fn insert_confirmed(&mut self, now: Instant, index: u32, mut session: Session) {
        if self.len() >= self.confirmed.limit
            && let Some(victim) = self.victim(session.peer)
        {
            self.evicted += 1;
            self.remove(victim);
        }
        session.end = session.born + self.confirmed.life;
        let before = self.send_with(session.peer, session.remote, index);
        self.attach(index, session);
        if let Some(before) = before
            && let Some(session) = self.by_index.get_mut(&before)
        {
            self.confirmed.ends.remove(&(session.end, before));
            session.end = session.end.min(now + OLD_KEYS);
            self.confirmed.ends.insert((session.end, before));
        }
    }

    /// Uses a session for sending to a peer. Returns the session that was used before.
    fn send_with(&mut self, addr: SocketAddr, key: PublicKey, index: u32) -> Option<u32> {
        let peer = self.peers.entry(addr).or_insert(Peer { key, current: None, is_remembered: false });
        peer.key = key;
        peer.current.replace(index)
    }

    fn victim(&self, of: SocketAddr) -> Option<u32> {
        let oldest = self.confirmed.first().map(|(_, index)| index);
        self.confirmed.hosts.victim(of, self.confirmed.limit, oldest, |index| {
            let session = &self.by_index[&index];
            (session.end, session.peer)
        })
    }

    /// The peer of a session was heard at another address.
    pub fn move_to(&mut self, index: u32, addr: SocketAddr) {
        let Some(mut session) = self.detach(index) else { return };
        let before = std::mem::replace(&mut session.peer, addr);
        if self.peers.get(&before).is_some_and(|peer| peer.current == Some(index)) {
            self.peers.remove(&before);
            self.send_with(addr, session.remote, index);
        }
        self.attach(index, session);
    }

    fn group_of(&mut self, session: &Session) -> &mut Group {
        if session.unconfirmed.is_some() { &mut self.half_open } else { &mut self.confirmed }
    }

    fn attach(&mut self, index: u32, mut session: Session) {
        self.group_of(&session).insert(index, &mut session);
        self.by_index.insert(index, session);
    }

    fn detach(&mut self, index: u32) -> Option<Session> {
        let session = self.by_index.remove(&index)?;
        let moved = self.group_of(&session).remove(index, &session);
        if let Some(moved) = moved.and_then(|moved| self.by_index.get_mut(&moved)) {
            moved.at_host = session.at_host;
        }
        Some(session)
    }

    /// Removes a session. The key of its peer is remembered, if it was used for sending.
    pub fn remove(&mut self, index: u32) {
        let Some(addr) = self.detach(index).map(|session| session.peer) else { return };
        let Some(peer) = self.peers.get_mut(&addr).filter(|peer| peer.current == Some(index)) else { return };
        peer.current = None;
        if !std::mem::replace(&mut peer.is_remembered, true) {
            self.remembered.push_back(addr);
        }
        if self.remembered.len() > self.confirmed.limit
            && let Some(oldest) = self.remembered.pop_front()
            && let Entry::Occupied(mut peer) = self.peers.entry(oldest)
        {
            peer.get_mut().is_remembered = false;
            if peer.get().current.is_none() {
                peer.remove();
            }
        }
    }

    /// When the next session ends.
    pub fn next_end(&self) -> Option<Instant> {
        let ends = [self.confirmed.first(), self.half_open.first()];
        ends.into_iter().flatten().map(|(end, _)| end).min()
    }

    /// Removes the sessions that have ended.
    pub fn expire(&mut self, now: Instant) {
        while let Some((end, index)) =
            [self.half_open.first(), self.confirmed.first()].into_iter().flatten().min()
            && end <= now
        {
            self.remove(index);
        }
    }
}
