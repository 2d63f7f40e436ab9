//! The truth: the logs as their writers made them, and what each subscriber may miss.

use std::collections::{BTreeMap, BTreeSet};

use rocketbufs::{Epoch, Position};

use crate::rng::{Rng, mix};

/// The log of a writer.
pub struct Log {
    pub start: Position,
    pub flow_control: bool,
    /// Where deliveries end.
    pub ends: BTreeSet<Position>,
    /// Overwritable buffers: where payloads begin, and their length.
    pub payloads: BTreeMap<Position, u64>,
    /// Set when the buffer was destroyed.
    pub closed: Option<Position>,
}

impl Log {
    pub fn is_boundary(&self, at: Position) -> bool {
        at == self.start || self.ends.contains(&at)
    }

    pub fn end(&self) -> Position {
        self.ends.last().copied().unwrap_or(self.start)
    }

    /// How many deliveries end in `(from, to]`.
    pub fn deliveries(&self, from: Position, to: Position) -> u64 {
        self.ends.range(from + 1..=to).count() as u64
    }
}

/// The bytes of every log are a function of its epoch and the position.
pub fn fill(epoch: Epoch, from: Position, bytes: &mut [u8]) {
    let key = mix(epoch.0 as u64 ^ (epoch.0 >> 64) as u64);
    let mut at = 0;
    while at < bytes.len() {
        let position = from + at as u64;
        let word = mix(key ^ (position >> 3)).to_le_bytes();
        let skip = (position & 7) as usize;
        let n = (8 - skip).min(bytes.len() - at);
        bytes[at..at + n].copy_from_slice(&word[skip..skip + n]);
        at += n;
    }
}

/// The events that a subscriber may get because of a fault or its policy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Excuse {
    /// The subscriber may get LOST.
    pub lost: bool,
    /// The subscriber may get GONE.
    pub gone: bool,
    /// The subscriber may get REFUSED, also for slowness.
    pub refused: bool,
}

/// Everything that is counted, for the report.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    pub seeds: u64,
    pub counts: BTreeMap<&'static str, u64>,
    pub shapes: BTreeMap<String, u64>,
    pub faults: BTreeMap<&'static str, u64>,
    pub events: BTreeMap<&'static str, u64>,
    pub checks: BTreeMap<&'static str, u64>,
}

impl Stats {
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        let pairs = [
            (&mut self.counts, &other.counts),
            (&mut self.faults, &other.faults),
            (&mut self.events, &other.events),
            (&mut self.checks, &other.checks),
        ];
        for (mine, theirs) in pairs {
            for (name, count) in theirs {
                *mine.entry(name).or_default() += count;
            }
        }
        for (name, count) in &other.shapes {
            *self.shapes.entry(name.clone()).or_default() += count;
        }
    }

    pub fn count(&mut self, name: &'static str, n: u64) {
        *self.counts.entry(name).or_default() += n;
    }
}

/// An invariant that does not hold: thrown as a panic's payload and caught by the run.
#[derive(Debug)]
pub struct Violation {
    pub invariant: &'static str,
    pub text: String,
}

/// The shared state of the harness: random numbers, the network's clock, the expected logs, and counters.
pub struct Env {
    pub rng: Rng,
    pub net: rocketnet_sim::SimNet,
    pub logs: BTreeMap<Epoch, Log>,
    pub stats: Stats,
    /// By node and buffer.
    pub excuses: Vec<Vec<Excuse>>,
    /// By buffer: its publisher destroyed it while subscribers still receive.
    pub ended_early: Vec<bool>,
    /// Edges, named by the child, that a fault has touched.
    pub disturbed: Vec<bool>,
    /// The bytes per second of edges, named by the child.
    pub rates: Vec<Option<u64>>,
    /// Connections that were begun: an upper bound for the network's numbers.
    pub dials: u64,
    /// Faults have stopped: applications do all they can.
    pub calm: bool,
    /// Connections are closed on purpose.
    pub closing: bool,
    pub verbose: bool,
    pub timeless: bool,
    hash: u64,
    scratch: Vec<u8>,
}

impl Env {
    pub fn new(seed: u64, net: rocketnet_sim::SimNet, nodes: usize, buffers: usize, timeless: bool) -> Self {
        Self {
            rng: Rng::new(seed),
            net,
            logs: BTreeMap::new(),
            stats: Stats::default(),
            excuses: vec![vec![Excuse::default(); buffers]; nodes],
            ended_early: vec![false; buffers],
            disturbed: vec![false; nodes],
            rates: vec![None; nodes],
            dials: 0,
            calm: false,
            closing: false,
            verbose: std::env::var_os("SIM_SEED").is_some(),
            timeless,
            hash: 0,
            scratch: Vec::new(),
        }
    }

    /// Whether a subscription may be refused because there is no such buffer. A destroyed buffer stays for its subscriptions
    /// and durable cursors.
    pub fn may_be_missing(&self, node: usize, buffer: usize) -> bool {
        let excuse = self.excuses[node][buffer];
        excuse.refused || (self.ended_early[buffer] && excuse.lost)
    }

    pub fn now(&self) -> u64 {
        self.net.now()
    }

    /// Ends the run if an invariant does not hold.
    pub fn check(&mut self, invariant: &'static str, holds: bool, text: impl FnOnce() -> String) {
        *self.stats.checks.entry(invariant).or_default() += 1;
        if !holds {
            std::panic::panic_any(Violation { invariant, text: text() });
        }
    }

    pub fn event(&mut self, name: &'static str) {
        *self.stats.events.entry(name).or_default() += 1;
    }

    pub fn fault(&mut self, name: &'static str) {
        *self.stats.faults.entry(name).or_default() += 1;
    }

    /// Adds to the hash by which two runs of a seed are compared; printed when a single seed is replayed.
    pub fn note(&mut self, what: &str, numbers: [u64; 4]) {
        for byte in what.bytes() {
            self.hash = mix(self.hash ^ u64::from(byte));
        }
        for number in numbers {
            self.hash = mix(self.hash ^ number).rotate_left(7);
        }
        if self.verbose {
            eprintln!("{:>14} ns  {what} {numbers:?}", self.now());
        }
    }

    pub fn hash(&self) -> u64 {
        mix(self.hash ^ self.net.fingerprint())
    }

    /// Whether these are the log's bytes.
    pub fn check_bytes(&mut self, who: &str, epoch: Epoch, from: Position, bytes: &[u8]) {
        let mut right = std::mem::take(&mut self.scratch);
        right.resize(bytes.len(), 0);
        fill(epoch, from, &mut right);
        let wrong = (0..bytes.len()).filter(|&i| bytes[i] != right[i]);
        let (first, count) = (wrong.clone().next(), wrong.count());
        self.check("bytes are the writer's log", count == 0, || {
            let at = first.unwrap_or(0);
            let (got, wants) = (&bytes[at..bytes.len().min(at + 32)], &right[at..bytes.len().min(at + 32)]);
            let of = bytes.len();
            format!("{who}: {count} bytes of {of} from {from} are wrong, the first at {at}: {got:x?} instead of {wants:x?}")
        });
        self.scratch = right;
    }

    /// A delay after which an application tries again.
    pub fn later(&mut self) -> u64 {
        let high = self.rng.one_of(&[10_000, 1_000_000, 20_000_000]);
        self.now() + self.rng.between(1_000, high)
    }

    /// The reason for a connection's end must not be a breach of the protocol.
    pub fn check_reason(&mut self, edge: usize, why: &str) {
        const FAULTS: [&str; 14] = [
            "Protocol",
            "not valid",
            "belong here",
            "past its credit",
            "unknown wire",
            "SUBSCRIBED",
            "LOST goes",
            "the log ends where",
            "credit says",
            "took no write",
            "second greeting",
            "reads no control",
            "Version",
            "too many",
        ];
        self.note(&format!("down: edge {edge}: {why}"), [0; 4]);
        let clean = !FAULTS.iter().any(|fault| why.contains(fault));
        self.check("no end breaks the protocol", clean, || format!("edge of node {edge}: {why}"));
        let told = why.contains("too slow") || why.contains("could not connect");
        let explained = told || self.disturbed[edge] || !self.timeless || self.closing;
        self.check("connections end for a reason", explained, || {
            format!("the edge of node {edge} ended undisturbed: {why}")
        });
    }
}
