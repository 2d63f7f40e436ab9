//! The virtual clock: scheduled events, partitions between hosts, and the network's random numbers and trace.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::config::SimConfig;
use crate::rng::Rng;
use crate::trace::Trace;

/// A scheduled event. `side` is the sending end, or the end that the event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A connection request reaches the listener.
    Syn { conn: u64 },
    /// The answer reaches the connecting end.
    SynAck { conn: u64 },
    /// The address has no listener, or no answer came.
    Refuse { conn: u64 },
    /// No transport adopted the connection in time.
    Orphan { conn: u64 },
    /// The network may take more from this end.
    Pump { conn: u64, side: usize },
    /// A piece of a stream reaches the receiver's machine.
    Arrive { conn: u64, side: usize },
    /// A one-sided write or message reaches the receiver's adapter.
    Land { conn: u64, side: usize, seq: u64 },
    /// The receiver's completion queue gets an entry.
    Notify { conn: u64, side: usize, seq: u64 },
    /// The sender's completion queue gets an entry.
    Complete { conn: u64, side: usize, seq: u64 },
    /// The receiver has receives again.
    Retry { conn: u64, side: usize },
    /// One-sided: the other end learns that this end disconnected in order.
    Fin { conn: u64, side: usize },
    /// This end learns that the connection is broken.
    Break { conn: u64, side: usize },
    /// The linger time of a close is over.
    Linger { conn: u64, side: usize },
    /// A partition ends.
    Heal { pair: HostPair },
}

impl Kind {
    /// The connection, if the event needs the network between its two hosts.
    pub(crate) fn crosses(self) -> Option<u64> {
        match self {
            Self::Syn { conn }
            | Self::SynAck { conn }
            | Self::Arrive { conn, .. }
            | Self::Land { conn, .. }
            | Self::Complete { conn, .. }
            | Self::Fin { conn, .. } => Some(conn),
            _ => None,
        }
    }
}

/// Two hosts, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostPair {
    smaller: u32,
    larger: u32,
}

impl HostPair {
    pub(crate) fn new(a: u32, b: u32) -> Self {
        Self { smaller: a.min(b), larger: a.max(b) }
    }
}

/// The state of the network without its hosts and connections.
pub(crate) struct Clock {
    pub(crate) config: SimConfig,
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    pub(crate) trace: Trace,
    /// Ties are broken by the order of scheduling.
    coming: BinaryHeap<Reverse<(u64, u64, Kind)>>,
    scheduled: u64,
    partitions: BTreeMap<HostPair, u64>,
    parked: Vec<(HostPair, Kind)>,
}

impl Clock {
    pub(crate) fn new(seed: u64, config: SimConfig) -> Self {
        let trace = Trace::new(config.trace_lines);
        Self {
            config,
            now: 0,
            rng: Rng::new(seed),
            trace,
            coming: BinaryHeap::new(),
            scheduled: 0,
            partitions: BTreeMap::new(),
            parked: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, verb: &'static str, conn: u64, wire: u32, a: u64, b: u64) {
        self.trace.note(self.now, verb, conn, wire, a, b);
    }

    /// Draws a delay: mostly near the smallest one, now and then any up to the largest.
    pub(crate) fn delay(&mut self) -> u64 {
        let (low, high) = (self.config.min_delay_ns, self.config.max_delay_ns);
        let high = if self.rng.one_in(8) { high } else { low + (high - low) / 8 };
        self.rng.between(low, high)
    }

    pub(crate) fn at(&mut self, time: u64, kind: Kind) {
        self.scheduled += 1;
        self.coming.push(Reverse((time.max(self.now), self.scheduled, kind)));
    }

    /// Schedules after a drawn delay. Returns the time.
    pub(crate) fn soon(&mut self, kind: Kind) -> u64 {
        let time = self.now.saturating_add(self.delay());
        self.at(time, kind);
        time
    }

    /// The time of the next event that is not stale. Stale events are dropped without moving the clock.
    pub(crate) fn peek(&mut self, mut stale: impl FnMut(Kind) -> bool) -> Option<u64> {
        while let Some(&Reverse((time, _, kind))) = self.coming.peek() {
            if !stale(kind) {
                return Some(time);
            }
            self.coming.pop();
        }
        None
    }

    /// Moves the clock to the next event and returns it.
    pub(crate) fn pop(&mut self) -> Option<Kind> {
        let Reverse((time, _, kind)) = self.coming.pop()?;
        self.now = self.now.max(time);
        Some(kind)
    }

    /// When the partition between these two ends, if there is one.
    pub(crate) fn parted(&self, pair: HostPair) -> Option<u64> {
        self.partitions.get(&pair).copied()
    }

    pub(crate) fn part(&mut self, pair: HostPair, until: u64) {
        self.note("partition", u64::from(pair.smaller), pair.larger, until, 0);
        self.partitions.insert(pair, until);
        if until != u64::MAX {
            self.at(until, Kind::Heal { pair });
        }
    }

    /// A Heal that a later call has postponed is stale.
    pub(crate) fn heals(&self, pair: HostPair, time: u64) -> bool {
        self.partitions.get(&pair).is_some_and(|&until| until <= time)
    }

    pub(crate) fn park(&mut self, pair: HostPair, kind: Kind) {
        self.parked.push((pair, kind));
    }

    /// Ends a partition: parked events continue in their order.
    pub(crate) fn heal(&mut self, pair: HostPair) {
        if self.partitions.remove(&pair).is_none() {
            return;
        }
        self.note("heal", u64::from(pair.smaller), pair.larger, 0, 0);
        let mut time = self.now;
        for (of, kind) in std::mem::take(&mut self.parked) {
            if of == pair {
                time = time.saturating_add(self.rng.between(0, self.config.min_delay_ns));
                self.at(time, kind);
            } else {
                self.parked.push((of, kind));
            }
        }
    }
}
