//! Connections to the broker's address from programs that are no clients: port scans, browsers, old versions.
//!
//! The broker counts them by reason. The log has at most one line for each reason in ten seconds, so that a flood of connections
//! doesn't flood the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use locks::Mutex;
use peers::LogLimiter;
use rocketbufs::{ForeignConnection, ForeignReason};

const REASONS: usize = ForeignReason::ALL.len();

/// Counts connections that ended before a valid hello.
#[derive(Debug, Default)]
pub(crate) struct ForeignConnections {
    counts: [AtomicU64; REASONS],
    /// Limits the lines of the log, by reason.
    log: Mutex<[LogLimiter; REASONS]>,
}

impl ForeignConnections {
    pub(super) fn record(&self, foreign: &ForeignConnection) {
        let Some(at) = ForeignReason::ALL.iter().position(|reason| *reason == foreign.reason) else {
            return;
        };
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        let Some(more) = self.log_now(at, Instant::now()) else { return };
        let ForeignConnection { peer, reason, why } = foreign;
        let advice = advice(*reason);
        match reason {
            ForeignReason::Left => {
                tracing::info!(peer, more, "a connection ended before its hello: {why}; {advice}")
            }
            _ => tracing::warn!(peer, more, "a connection was refused: {why}; {advice}"),
        }
    }

    /// The number of connections of this reason since the last line. None if it is too early for another line.
    fn log_now(&self, at: usize, now: Instant) -> Option<u64> {
        self.log.lock()[at].allow(now)
    }

    /// The number of connections for each reason.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = ForeignReason::ALL.iter().map(|reason| reason.as_str());
        names.zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

/// The probable cause, and what to do about it.
fn advice(reason: ForeignReason) -> &'static str {
    match reason {
        ForeignReason::Protocol => {
            "the peer is no rbmq client: curl, browsers and Prometheus must use the address of --http"
        }
        ForeignReason::Version => "client and broker have incompatible versions: update the older one",
        ForeignReason::Silent => {
            "the peer sent no hello in time (session.handshake_timeout_ms): it is no rbmq client, or the network loses data"
        }
        ForeignReason::Left => {
            "this is usual for port scans and TCP health checks; --http has /health for health checks"
        }
        ForeignReason::Tls => {
            "certificates and what is required of them: rbmq check tls, docs/security/TLS.md"
        }
        _ => {
            "the broker has no room for more connections: see limits.max_connections and the limit on open files"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_are_counted_and_few_are_logged() {
        let foreign = ForeignConnections::default();
        let begin = Instant::now();
        let second = std::time::Duration::from_secs(1);
        assert_eq!(foreign.log_now(0, begin), Some(0));
        assert_eq!((1..10).find_map(|n| foreign.log_now(0, begin + n * second)), None);
        // Another reason has its own lines.
        assert_eq!(foreign.log_now(1, begin + second), Some(0));
        assert_eq!(foreign.log_now(0, begin + LogLimiter::INTERVAL), Some(9));
        assert_eq!(foreign.log_now(0, begin + 2 * LogLimiter::INTERVAL), Some(0));
    }

    #[test]
    fn every_reason_is_counted_by_its_name() {
        let foreign = ForeignConnections::default();
        for reason in ForeignReason::ALL {
            foreign.record(&ForeignConnection { peer: "somebody".into(), reason, why: "a test".into() });
        }
        assert!(foreign.counts().all(|(name, count)| !name.is_empty() && count == 1));
    }
}
