//! Losses between senders and the server, by the sequence numbers of pushes.

use std::collections::HashMap;

use crate::topic::TopicId;

/// A gap of at least this many sequence numbers counts as a restart of the sender, and not as a loss.
const MAX_GAP: u32 = 1 << 20;

/// The last sequence number of each sender and topic, for a limited number of them.
#[derive(Debug)]
pub(crate) struct Senders {
    next: HashMap<(TopicId, u32), u32>,
    limit: usize,
    lost: u64,
    late: u64,
    untracked: u64,
}

/// The counts of all senders together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderReport {
    /// Senders that are tracked.
    pub tracked: u64,
    /// Pushes that never arrived, or arrived late.
    pub lost: u64,
    /// Pushes that arrived after a later one, or twice. They are stored: the log has the order of arrival.
    pub late: u64,
    /// Pushes of senders beyond the limit. Their losses are not known.
    pub untracked: u64,
}

impl Senders {
    pub fn new(limit: usize) -> Senders {
        Senders { next: HashMap::new(), limit, lost: 0, late: 0, untracked: 0 }
    }

    /// Counts a push.
    pub fn push(&mut self, topic: TopicId, cookie: u32, sequence: u32) {
        let full = self.next.len() >= self.limit;
        let Some(next) = self.next.get_mut(&(topic, cookie)) else {
            if full {
                self.untracked += 1;
            } else {
                self.next.insert((topic, cookie), sequence.wrapping_add(1));
            }
            return;
        };
        let gap = sequence.wrapping_sub(*next);
        if gap.wrapping_neg() < MAX_GAP && gap != 0 {
            self.late += 1;
            return;
        }
        if gap < MAX_GAP {
            self.lost += u64::from(gap);
        }
        *next = sequence.wrapping_add(1);
    }

    pub fn report(&self) -> SenderReport {
        SenderReport {
            tracked: self.next.len() as u64,
            lost: self.lost,
            late: self.late,
            untracked: self.untracked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_losses() {
        let mut senders = Senders::new(2);
        let topic = TopicId(1);
        for sequence in [u32::MAX - 1, u32::MAX, 0, 1, 5, 3, 6] {
            senders.push(topic, 9, sequence);
        }
        assert_eq!(senders.report(), SenderReport { tracked: 1, lost: 3, late: 1, untracked: 0 });
        senders.push(topic, 9, 1 << 30);
        assert_eq!(senders.report().lost, 3, "the sender started anew");
        senders.push(TopicId(2), 9, 7);
        senders.push(TopicId(3), 9, 7);
        assert_eq!(senders.report(), SenderReport { tracked: 2, lost: 3, late: 1, untracked: 1 });
    }
}
