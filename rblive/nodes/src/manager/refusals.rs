//! Connections to the address for other nodes that are refused: how many, and some lines of the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use locks::Mutex;
use peers::LogLimiter;
use rocketbufs::{ForeignConnection, ForeignReason};

/// The refused connections so far.
#[derive(Debug, Default)]
pub struct Refusals {
    count: AtomicU64,
    /// Limits the lines about peers that are no nodes, and about nodes that are refused.
    lines: Mutex<[LogLimiter; 2]>,
}

impl Refusals {
    /// Counts a connection that ended before its hello.
    pub fn foreign(&self, foreign: &ForeignConnection) {
        let Some(more) = self.add(0) else { return };
        let ForeignConnection { peer, reason, why } = foreign;
        match reason {
            // Probes of an address are no fault.
            ForeignReason::Left => {
                tracing::info!(
                    peer,
                    more,
                    "a connection to the address for nodes ended before its hello: {why}"
                );
            }
            _ => tracing::warn!(peer, more, "a connection to the address for nodes was refused: {why}"),
        }
    }

    /// Counts a node.
    pub fn node(&self, peer: &str, why: &str) {
        if let Some(more) = self.add(1) {
            tracing::warn!(peer, more, "a node is refused: {why}");
        }
    }

    /// The number of refused connections.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn add(&self, kind: usize) -> Option<u64> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.lines.lock()[kind].allow(Instant::now())
    }
}
