//! Handshakes that were answered and not yet completed, within their limits: a flood of hellos costs neither memory nor the
//! handshakes of other hosts.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use peers::HostAddress;

use crate::key::host;

/// How long an initiator may take to use its session.
const CONFIRM_WITHIN: Duration = Duration::from_secs(5);

/// The indices of sessions that their initiators have not used yet.
pub(crate) struct HalfOpen {
    limit: usize,
    due: BTreeSet<(Instant, u32)>,
    /// When each ends, and who began it.
    entries: HashMap<u32, (Instant, SocketAddr)>,
    /// The newest one of each address.
    by_addr: HashMap<SocketAddr, u32>,
    hosts: HashMap<HostAddress, usize>,
}

impl HalfOpen {
    pub fn new(limit: usize) -> HalfOpen {
        HalfOpen {
            limit,
            due: BTreeSet::new(),
            entries: HashMap::new(),
            by_addr: HashMap::new(),
            hosts: HashMap::new(),
        }
    }

    /// True if initiators must prove their addresses.
    pub fn is_crowded(&self) -> bool {
        self.entries.len() >= self.limit / 8
    }

    /// True if this host has its share of the limit.
    pub fn is_greedy(&self, addr: SocketAddr) -> bool {
        self.hosts.get(&host(addr)).is_some_and(|&count| count >= self.limit / 4)
    }

    pub fn find(&self, addr: SocketAddr) -> Option<u32> {
        self.by_addr.get(&addr).copied()
    }

    /// Adds a handshake. Returns the oldest one if it must make room.
    pub fn insert(&mut self, now: Instant, addr: SocketAddr, index: u32) -> Option<u32> {
        let oldest = self.due.first().map(|&(_, index)| index).filter(|_| self.entries.len() >= self.limit);
        if let Some(oldest) = oldest {
            self.remove(oldest);
        }
        let end = now + CONFIRM_WITHIN;
        self.due.insert((end, index));
        self.entries.insert(index, (end, addr));
        self.by_addr.insert(addr, index);
        *self.hosts.entry(host(addr)).or_default() += 1;
        oldest
    }

    pub fn remove(&mut self, index: u32) {
        let Some((end, addr)) = self.entries.remove(&index) else { return };
        self.due.remove(&(end, index));
        if self.by_addr.get(&addr) == Some(&index) {
            self.by_addr.remove(&addr);
        }
        if let Some(count) = self.hosts.get_mut(&host(addr)) {
            *count -= 1;
            if *count == 0 {
                self.hosts.remove(&host(addr));
            }
        }
    }

    pub fn next_end(&self) -> Option<Instant> {
        self.due.first().map(|&(end, _)| end)
    }

    /// The next handshake whose time is over.
    pub fn expired(&mut self, now: Instant) -> Option<u32> {
        let &(end, index) = self.due.first()?;
        if end > now {
            return None;
        }
        self.remove(index);
        Some(index)
    }
}
