//! Whether a thread that has delivered sends by itself, without the worker.

use rocketring::Ring;

use super::PeerSubscription;

/// More than this is a batch. A thread that writes so much soon writes more, and the worker sends meanwhile.
const SMALL_PAYLOAD_BYTES: u64 = 16 << 10;
/// From this size on a system call is cheap compared to moving the bytes. The calling thread moves them out
/// of its own cache, from which another core would have to fetch them.
const BATCH_BYTES: u64 = 48 << 10;

/// Whether a thread that has delivered sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerSend {
    /// The thread sends.
    Now,
    /// Nothing may leave before there is credit. The rest leaves with it.
    Later,
    /// The worker sends.
    Not,
}

impl CallerSend {
    /// Decides for so many pending bytes. `more`: there is data beyond the grant. `paused`: there was enough
    /// pause since the connection's last sends. `hears`: the thread also receives the credit.
    fn of(pending: u64, more: bool, paused: bool, hears: bool) -> Self {
        match (pending, more) {
            (0, true) if hears => Self::Later,
            // Data within the grant is sent however little it is, since a receiver with a small ring gives no
            // credit for less.
            (_, true) if hears => Self::Now,
            (_, true) => Self::Not,
            (BATCH_BYTES.., false) => Self::Now,
            (1..=SMALL_PAYLOAD_BYTES, false) if paused => Self::Now,
            _ => Self::Not,
        }
    }
}

impl PeerSubscription {
    /// Returns whether a thread that has delivered to the log sends, on a connection where nothing waits to be
    /// sent. See [`CallerSend`] for the conditions.
    pub fn caller_send(&self, log: &Ring, paused: bool, hears: bool) -> CallerSend {
        if self.is_queued() || self.lag_action(log).is_some() {
            return CallerSend::Not;
        }
        let pending = self.cursor().pending_in_order(log);
        pending.map_or(CallerSend::Not, |(bytes, more)| CallerSend::of(bytes, more, paused, hears))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_after_a_pause_and_much_at_any_time() {
        use CallerSend::{Later, Not, Now};
        let cases = [
            // Pending bytes, data beyond the grant, paused, hears.
            ((0, false, true, true), Not),
            ((1, false, true, false), Now),
            ((1, false, false, false), Not),
            ((SMALL_PAYLOAD_BYTES, false, true, false), Now),
            ((SMALL_PAYLOAD_BYTES + 1, false, true, false), Not),
            ((BATCH_BYTES - 1, false, true, false), Not),
            ((BATCH_BYTES, false, false, false), Now),
            ((0, true, true, true), Later),
            ((1, true, false, true), Now),
            ((BATCH_BYTES, true, true, false), Not),
        ];
        for ((pending, more, paused, hears), decision) in cases {
            assert_eq!(
                CallerSend::of(pending, more, paused, hears),
                decision,
                "{pending} {more} {paused} {hears}"
            );
        }
    }
}
