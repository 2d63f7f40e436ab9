//! How far the application has received each log, and where it resumes the logs that it is not subscribed to now.

use std::collections::{HashMap, VecDeque};

use rocketbufs::{Epoch, Position};

/// The most logs that are remembered, without those that the application named. Their publishers or their broker are gone. A
/// log that returns after so many others is received from its oldest byte.
const MAX_LEFT: usize = 65_536;

/// The position up to which a subscriber has received a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResumePosition {
    /// The position to resume at.
    pub(super) position: Position,
    /// Everything between this position and `position` was received.
    pub(super) covered_from: Position,
}

/// A log with a subscription.
#[derive(Debug)]
struct Progress {
    /// The end of the handed-out messages; at first, where the subscription began.
    handed_out: Position,
    /// Everything from this position on was received.
    covered_from: Position,
}

/// The logs. The number of logs that were left is bounded: the oldest entry is forgotten first.
#[derive(Debug, Default)]
pub(super) struct Logs {
    present: HashMap<Epoch, Progress>,
    /// Where the last subscription of each kept log began.
    joined: HashMap<Epoch, Position>,
    resume: HashMap<Epoch, ResumePosition>,
    left: VecDeque<Epoch>,
}

impl Logs {
    /// Adds positions that the application names. The application has everything before them.
    pub(super) fn add(&mut self, positions: &[(Epoch, Position)]) {
        let entry =
            |&(epoch, position): &(Epoch, Position)| (epoch, ResumePosition { position, covered_from: 0 });
        self.resume.extend(positions.iter().map(entry));
    }

    /// A subscription begins at this position. Returns false if the kept log goes on here, from another buffer.
    pub(super) fn begin(&mut self, epoch: Epoch, start: Position, kept: bool) -> bool {
        let covered_from = self.resume.get(&epoch).map_or(start, |left| left.covered_from.min(start));
        self.present.insert(epoch, Progress { handed_out: start, covered_from });
        !kept || self.joined.insert(epoch, start).is_none()
    }

    /// Whether the log has a subscription that is in force.
    pub(super) fn is_present(&self, epoch: Epoch) -> bool {
        self.present.contains_key(&epoch)
    }

    /// The application has everything below `to`.
    pub(super) fn hand_out(&mut self, epoch: Epoch, to: Position) {
        if let Some(log) = self.present.get_mut(&epoch) {
            log.handed_out = to;
        }
    }

    /// What lies below `to` is lost.
    pub(super) fn skip(&mut self, epoch: Epoch, to: Position) {
        self.present.insert(epoch, Progress { handed_out: to, covered_from: to });
    }

    /// Whether the last subscription of a kept log began here.
    pub(super) fn has_joined_at(&self, epoch: Epoch, position: Position) -> bool {
        self.joined.get(&epoch) == Some(&position)
    }

    /// The position up to which a log is known; none if nothing of it was received or asked for by position.
    pub(super) fn known(&self, epoch: Epoch) -> Option<Position> {
        let present = self.present.get(&epoch).map(|log| log.handed_out);
        present.or_else(|| self.resume(epoch).map(|left| left.position))
    }

    /// The subscriber leaves a log where it is. A kept log may go on in another buffer.
    pub(super) fn leave(&mut self, epoch: Epoch) {
        if let Some(log) = self.present.get(&epoch) {
            self.leave_at(epoch, log.handed_out);
        }
    }

    /// The subscriber leaves a log at this position, up to which it has everything. It may have more, from a buffer that ended later.
    pub(super) fn leave_at(&mut self, epoch: Epoch, position: Position) {
        let present = self.present.remove(&epoch);
        let (handed_out, covered_from) =
            present.map_or((position, position), |log| (log.handed_out, log.covered_from));
        let position = position.max(handed_out);
        if self.resume.insert(epoch, ResumePosition { position, covered_from }).is_some() {
            return;
        }
        self.left.push_back(epoch);
        if self.left.len() > MAX_LEFT
            && let Some(first) = self.left.pop_front()
        {
            self.resume.remove(&first);
        }
    }

    /// Leaves all logs.
    pub(super) fn leave_all(&mut self) {
        let epochs: Vec<_> = self.present.keys().copied().collect();
        epochs.into_iter().for_each(|epoch| self.leave(epoch));
        self.joined.clear();
    }

    /// A log has ended: its next subscription is reported as one of a new log.
    pub(super) fn end(&mut self, epoch: Epoch) {
        self.present.remove(&epoch);
        self.joined.remove(&epoch);
    }

    /// Forgets a log.
    pub(super) fn forget(&mut self, epoch: Epoch) {
        self.end(epoch);
        if self.resume.remove(&epoch).is_some() {
            self.left.retain(|left| *left != epoch);
        }
    }

    /// Where a log that was left goes on.
    pub(super) fn resume(&self, epoch: Epoch) -> Option<ResumePosition> {
        self.resume.get(&epoch).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_log_is_forgotten_first_and_named_ones_never() {
        let mut logs = Logs::default();
        logs.add(&[(Epoch(u128::MAX), 7)]);
        for n in 0..MAX_LEFT as u128 + 2 {
            for at in [1, 2] {
                logs.begin(Epoch(n), 0, false);
                logs.leave_at(Epoch(n), at);
            }
        }
        let at = |n: u128| logs.resume(Epoch(n)).map(|entry| entry.position);
        assert_eq!([at(u128::MAX), at(0), at(1), at(2)], [Some(7), None, None, Some(2)]);
        assert_eq!(logs.resume.len(), MAX_LEFT + 1);
        assert!(logs.present.is_empty());
    }
}
