//! What all groups may use, and how one is.

use rbmq_groups::Limits;
use rbmq_wire::GroupStats;

/// The limits of all groups.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct GroupLimits {
    pub(in super::super) max_groups: usize,
    /// Memory of what is pending in all groups.
    pub(in super::super) max_pending_bytes: usize,
    /// Workers of all groups.
    pub(in super::super) max_workers: usize,
    /// Bytes of their rings.
    pub(in super::super) max_ring_bytes: u64,
    pub(in super::super) of_one: Limits,
}

/// The state of a group after its last turn.
#[derive(Clone)]
pub(crate) struct GroupRow {
    pub(crate) stats: GroupStats,
    /// The end of its log goes on.
    pub(super) reader: seglog::Reader,
    /// Messages that it has read since the broker started, and the bytes of the log that they took.
    pub(super) read: u64,
    pub(super) read_bytes: u64,
}

impl GroupRow {
    /// The messages that are not done: those that were read, which are counted, and about so many that were not read, as large as those before.
    /// Unknown (None) if some were not read, and nobody knows how large messages are.
    pub(crate) fn lag_messages(&self) -> Option<u64> {
        let unread = unread_messages(self.stats.unread_bytes(), self.read, self.read_bytes)?;
        Some(self.stats.pending.saturating_add(unread))
    }
}

/// About how many messages are in so many bytes, if `read` of them took `read_bytes`.
fn unread_messages(unread: u64, read: u64, read_bytes: u64) -> Option<u64> {
    if unread == 0 {
        return Some(0);
    }
    let messages = u128::from(unread) * u128::from(read);
    let messages = (read > 0).then(|| messages.checked_div(read_bytes.into())).flatten()?;
    Some(u64::try_from(messages).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_were_not_read_are_as_large_as_those_before() {
        let of = |unread, read, read_bytes| unread_messages(unread, read, read_bytes);
        assert_eq!(of(0, 0, 0), Some(0), "everything was read");
        assert_eq!(of(1_000, 10, 500), Some(20));
        assert_eq!((of(1_000, 0, 0), of(1_000, 0, 700)), (None, None), "nobody knows");
        assert_eq!(of(u64::MAX, u64::MAX, 1), Some(u64::MAX), "hostile numbers are numbers");
    }
}
