//! Who came to the broker's address and was no client: counted by reason, and told in the log, seldom enough that a
//! flood of them is no flood of lines.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rocketbufs::{ForeignConnection, ForeignReason};
use rocketnet::LogLimiter;

const REASONS: usize = ForeignReason::ALL.len();

/// Connections that ended before they said a valid hello.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    counts: [AtomicU64; REASONS],
    /// What is logged, by reason.
    logged: Mutex<[LogLimiter; REASONS]>,
}

impl Strangers {
    pub(super) fn came(&self, stranger: &ForeignConnection) {
        let Some(at) = ForeignReason::ALL.iter().position(|reason| *reason == stranger.reason) else {
            return;
        };
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        let Some(more) = self.log_now(at, Instant::now()) else { return };
        let ForeignConnection { peer, reason, why } = stranger;
        let advice = advice(*reason);
        match reason {
            ForeignReason::Left => {
                tracing::info!(peer, more, "a connection went without a word: {why}; {advice}")
            }
            _ => tracing::warn!(peer, more, "a connection was refused: {why}; {advice}"),
        }
    }

    /// How many of this reason came since the last line; none if a line would be one too many.
    fn log_now(&self, at: usize, now: Instant) -> Option<u64> {
        self.logged.lock().unwrap_or_else(|poisoned| poisoned.into_inner())[at].allow(now)
    }

    /// How many there were, by reason.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = ForeignReason::ALL.iter().map(|reason| reason.as_str());
        names.zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

/// Whose fault it is, and what to do.
fn advice(reason: ForeignReason) -> &'static str {
    match reason {
        ForeignReason::Protocol => {
            "it is no rbmq client: curl, browsers and Prometheus belong to the address of --http, others elsewhere"
        }
        ForeignReason::Version => {
            "client and broker are of versions that do not go together: update the older one"
        }
        ForeignReason::Silent => {
            "it said nothing in time: no rbmq client, or a network that loses what it says (session.handshake_timeout_ms)"
        }
        ForeignReason::Left => {
            "a port scan or a health check of TCP alone does this; --http has /health for that"
        }
        _ => "this end has no place for more: limits.max_connections, or the limit on open files",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_told_seldom() {
        let strangers = Strangers::default();
        let begin = Instant::now();
        let second = std::time::Duration::from_secs(1);
        assert_eq!(strangers.log_now(0, begin), Some(0));
        assert_eq!((1..10).find_map(|n| strangers.log_now(0, begin + n * second)), None);
        // Another reason has a line of its own.
        assert_eq!(strangers.log_now(1, begin + second), Some(0));
        assert_eq!(strangers.log_now(0, begin + LogLimiter::INTERVAL), Some(9));
        assert_eq!(strangers.log_now(0, begin + 2 * LogLimiter::INTERVAL), Some(0));
    }

    #[test]
    fn every_reason_is_counted_by_its_name() {
        let strangers = Strangers::default();
        for reason in ForeignReason::ALL {
            strangers.came(&ForeignConnection { peer: "somebody".into(), reason, why: "a test".into() });
        }
        assert!(strangers.counts().all(|(name, count)| !name.is_empty() && count == 1));
    }
}
