//! The limits of lines in the log that any client can cause, as often as it likes. The audit log has each of these events.

use peers::LogLimiter;

/// For each kind of line: at most one in ten seconds, with the number of those that were left out.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Hellos of no client.
    pub(super) hello: LogLimiter,
    /// Clients without a right or beyond a quota.
    pub(super) connect: LogLimiter,
    /// Buffers of publishers.
    pub(super) buffer: LogLimiter,
}
