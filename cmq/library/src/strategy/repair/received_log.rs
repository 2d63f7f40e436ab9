//! The messages received from each sender, and those that are missing: the receiver's part of a repair,
//! without I/O.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::key::Key;
use crate::proto::after;
use crate::proto::peers::{PeerName, Peers};
use crate::proto::timeline::Timeline;

/// Gaps of one sender that are remembered.
pub(super) const MAX_GAPS: usize = 256;
/// The shortest time between two requests: a response takes at least this long.
pub(super) const MIN_REQUEST_INTERVAL: Duration = Duration::from_millis(1);

/// A sender: its key and its token for this receiver.
pub(super) type Peer = (Key, u32);

impl PeerName for Peer {
    fn addr(&self) -> SocketAddr {
        self.0.addr
    }
}

/// The numbers received from one sender.
#[derive(Default)]
struct ReceivedLog {
    next: u64,
    gaps: VecDeque<Range<u64>>,
    /// Messages that are missing.
    missing: u64,
    /// Missing messages whose gaps were dropped, as there were too many.
    dropped: u64,
    requested_at: Option<Instant>,
}

/// The logs of all remembered senders.
pub(super) struct ReceivedLogs {
    logs: Peers<Peer, ReceivedLog>,
    /// Senders with missing messages and a request, in the order of their last request.
    requested: Timeline,
    /// A sender with missing messages and no request yet.
    unrequested: Option<u32>,
    /// Missing messages of all senders.
    missing: u128,
    unrecoverable: u64,
    request_interval: Duration,
    /// True once a sender was evicted: a sender that seems new may have been here before.
    has_evicted: bool,
}

impl ReceivedLogs {
    pub fn new(limit: usize, request_interval: Duration) -> ReceivedLogs {
        ReceivedLogs {
            logs: Peers::new(limit.max(1)),
            requested: Timeline::new(),
            unrequested: None,
            missing: 0,
            unrecoverable: 0,
            request_interval: request_interval.max(MIN_REQUEST_INTERVAL),
            has_evicted: false,
        }
    }

    /// Messages that are missing now.
    pub fn missing(&self) -> u64 {
        u64::try_from(self.missing).unwrap_or(u64::MAX)
    }

    /// Messages that were missing and will not be sent again.
    pub fn unrecoverable(&self) -> u64 {
        self.unrecoverable
    }

    /// Notes a message. Returns whether it is new.
    pub fn arrived(&mut self, peer: Peer, number: u64, repeated: bool, now: Instant) -> bool {
        if repeated {
            self.arrived_again(peer, number, now)
        } else {
            self.note(peer, number, now, |log| log.arrived(number))
        }
    }

    /// Notes a retransmission, which was requested: it fills a gap and says nothing about other messages. A
    /// retransmission of a message that is not missing is a duplicate, or was given up.
    fn arrived_again(&mut self, peer: Peer, number: u64, now: Instant) -> bool {
        let Some(slot) = self.logs.find(peer) else { return false };
        if self.note(peer, number, now, |log| log.fill(&(number..number.saturating_add(1)))) == 0 {
            return false;
        }
        // Further retransmissions may be on their way.
        if self.requested.contains(slot) {
            self.mark_requested(slot, now);
        }
        true
    }

    /// Restarts the request interval of a sender.
    fn mark_requested(&mut self, slot: u32, now: Instant) {
        self.logs.at(slot).1.requested_at = Some(now);
        self.requested.remove(slot);
        self.requested.push_back(slot, now);
    }

    /// Notes that every message before this number was sent.
    pub fn expect(&mut self, peer: Peer, next: u64, now: Instant) {
        self.note(peer, next, now, |log| log.expect(next));
    }

    /// Notes that these messages will not be sent again.
    pub fn mark_unavailable(&mut self, peer: Peer, range: &Range<u64>, now: Instant) {
        let forgotten = self.note(peer, range.end, now, |log| log.mark_unavailable(range));
        self.unrecoverable = self.unrecoverable.saturating_add(forgotten);
    }

    /// Updates the log of a sender. `first` is the number where a new log begins.
    fn note<M>(
        &mut self,
        peer: Peer,
        first: u64,
        now: Instant,
        note: impl FnOnce(&mut ReceivedLog) -> M,
    ) -> M {
        let slot = match self.logs.find(peer) {
            Some(slot) => slot,
            None => self.begin(peer, first, now),
        };
        self.logs.touch(slot, now);
        let (_, log) = self.logs.at(slot);
        let (missing, dropped) = (log.missing, log.dropped);
        let noted = note(log);
        self.missing = self.missing + u128::from(log.missing) - u128::from(missing);
        self.unrecoverable = self.unrecoverable.saturating_add(log.dropped - dropped);
        if log.gaps.is_empty() {
            self.requested.remove(slot);
        } else if !self.requested.contains(slot) {
            match log.requested_at {
                Some(requested_at) if now < after(requested_at, self.request_interval) => {
                    self.requested.push_back(slot, requested_at)
                }
                _ => self.unrequested = Some(slot),
            }
        }
        noted
    }

    fn begin(&mut self, peer: Peer, first: u64, now: Instant) -> u32 {
        if let Some(victim) = self.logs.victim(peer) {
            self.evict(victim);
        }
        let next = if self.has_evicted { first } else { 0 };
        self.logs.insert(peer, ReceivedLog { next, ..ReceivedLog::default() }, now)
    }

    fn evict(&mut self, slot: u32) {
        let Some((_, log)) = self.logs.remove(slot) else { return };
        self.requested.remove(slot);
        self.unrequested = self.unrequested.filter(|&unrequested| unrequested != slot);
        self.missing -= u128::from(log.missing);
        self.unrecoverable = self.unrecoverable.saturating_add(log.missing);
        self.has_evicted = true;
    }

    /// When [`ReceivedLogs::next_request`] is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.requested.first().map(|(_, requested_at)| after(requested_at, self.request_interval))
    }

    /// A sender to ask now, and its gaps. Call it until it returns `None`.
    pub fn next_request(&mut self, now: Instant) -> Option<(Peer, &VecDeque<Range<u64>>)> {
        let slot = self.unrequested.take().or_else(|| {
            let (slot, requested_at) = self.requested.first()?;
            (after(requested_at, self.request_interval) <= now).then_some(slot)
        })?;
        self.mark_requested(slot, now);
        let (peer, log) = self.logs.at(slot);
        Some((peer, &log.gaps))
    }
}

impl ReceivedLog {
    /// Notes a number. Returns whether it is new. The numbers between it and the last one are missing.
    fn arrived(&mut self, number: u64) -> bool {
        if number > u64::MAX >> 1 {
            return false;
        }
        if number < self.next {
            return self.fill(&(number..number + 1)) > 0;
        }
        self.expect(number);
        self.next = number + 1;
        true
    }

    /// Notes that every message before this number was sent.
    fn expect(&mut self, next: u64) {
        if next <= self.next || next > u64::MAX >> 1 {
            return;
        }
        if self.gaps.len() == MAX_GAPS
            && let Some(gap) = self.gaps.pop_front()
        {
            self.missing -= gap.end - gap.start;
            self.dropped += gap.end - gap.start;
        }
        self.gaps.push_back(self.next..next);
        self.missing += next - self.next;
        self.next = next;
    }

    /// Removes a range from the missing numbers, also if it is ahead of them. Returns how many.
    fn mark_unavailable(&mut self, range: &Range<u64>) -> u64 {
        let mut ahead = 0;
        if range.end <= u64::MAX >> 1 && range.start.max(self.next) < range.end {
            self.expect(range.start);
            ahead = range.end - self.next;
            self.next = range.end;
        }
        ahead + self.fill(range)
    }

    /// Removes a range from the gaps. Returns how many numbers were missing.
    fn fill(&mut self, range: &Range<u64>) -> u64 {
        let mut forgotten = 0;
        let mut left = VecDeque::with_capacity(self.gaps.len());
        for gap in self.gaps.drain(..) {
            let (start, end) = (gap.start.max(range.start), gap.end.min(range.end));
            if start >= end {
                left.push_back(gap);
                continue;
            }
            forgotten += end - start;
            left.extend([gap.start..start, end..gap.end].into_iter().filter(|part| !part.is_empty()));
        }
        self.missing -= forgotten;
        while left.len() > MAX_GAPS
            && let Some(gap) = left.pop_back()
        {
            self.missing -= gap.end - gap.start;
            self.dropped += gap.end - gap.start;
        }
        self.gaps = left;
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// A sender of a host of its own.
    fn peer(host: u8) -> Peer {
        (Key::new(SocketAddr::from(([10, 0, 0, host], 9)), 0), 7)
    }

    #[test]
    fn gaps_are_noted_and_filled() {
        let mut log = ReceivedLog::default();
        assert!(log.arrived(0) && log.arrived(4) && !log.arrived(4) && !log.arrived(0));
        assert_eq!(log.gaps.front(), Some(&(1..4)));
        assert!(log.arrived(2) && !log.arrived(2));
        assert_eq!(log.gaps, [1..2, 3..4]);
        log.expect(7);
        assert_eq!((log.missing, log.fill(&(0..6)), log.missing), (4, 3, 1));
        assert_eq!((log.gaps.front(), log.gaps.len(), log.next), (Some(&(6..7)), 1, 7));
        assert!(!log.arrived(u64::MAX));
        for number in 0..1000 {
            assert!(log.arrived(10 + 2 * number));
        }
        assert_eq!(
            (log.gaps.len(), log.missing),
            (MAX_GAPS, MAX_GAPS as u64),
            "only the newest are remembered"
        );
        assert_eq!(log.dropped, 1 + 3 + 999 - MAX_GAPS as u64);
    }

    #[test]
    fn missing_messages_are_requested_at_once_and_then_at_intervals() {
        let request_interval = Duration::from_millis(100);
        let (now, mut senders) = (Instant::now(), ReceivedLogs::new(10, request_interval));
        assert!(senders.arrived(peer(1), 0, false, now));
        assert!(senders.next_request(now).is_none() && senders.next_deadline().is_none());
        assert!(senders.arrived(peer(1), 2, false, now));
        assert!(
            senders.next_request(now).is_some_and(|(to, gaps)| to == peer(1) && gaps.iter().eq([&(1..2)]))
        );
        assert!(senders.next_request(now).is_none());
        assert_eq!(senders.next_deadline(), Some(now + request_interval));
        assert!(senders.next_request(now + request_interval).is_some());
        // Another gap appears while the first request is pending.
        assert!(
            senders.arrived(peer(1), 5, false, now + request_interval)
                && senders.next_request(now + request_interval).is_none()
        );
        assert_eq!(senders.missing(), 3);
        senders.mark_unavailable(peer(1), &(0..6), now);
        assert_eq!((senders.missing(), senders.unrecoverable(), senders.next_deadline()), (0, 3, None));
    }

    #[test]
    fn the_request_interval_has_a_minimum() {
        let (now, mut senders) = (Instant::now(), ReceivedLogs::new(10, Duration::ZERO));
        assert!(senders.arrived(peer(1), 1, false, now));
        assert!(
            senders.next_request(now).is_some() && senders.next_request(now).is_none(),
            "one request is open"
        );
        assert_eq!(senders.next_deadline(), Some(now + MIN_REQUEST_INTERVAL));
    }

    /// Each retransmission restarts the interval, so a request is not repeated while it is answered.
    #[test]
    fn a_request_is_not_repeated_while_it_is_answered() {
        let request_interval = Duration::from_millis(100);
        let (began, mut senders) = (Instant::now(), ReceivedLogs::new(10, request_interval));
        assert!(senders.arrived(peer(1), 3, false, began) && senders.next_request(began).is_some());
        let later = began + request_interval / 2;
        assert!(senders.arrived(peer(1), 0, true, later));
        assert!(senders.next_request(began + request_interval).is_none());
        assert_eq!(senders.next_deadline(), Some(later + request_interval));
        assert!(
            senders.next_request(later + request_interval).is_some_and(|(_, gaps)| gaps.iter().eq([&(1..3)]))
        );
    }

    /// A retransmission fills a gap or says nothing: earlier messages are received or given up, and its
    /// sender may be far ahead.
    #[test]
    fn an_unexpected_retransmission_is_ignored() {
        let (now, mut senders) = (Instant::now(), ReceivedLogs::new(1, Duration::ZERO));
        assert!(!senders.arrived(peer(1), 5, true, now), "the message was not requested");
        assert!(senders.arrived(peer(1), 1, false, now) && senders.arrived(peer(1), 0, true, now));
        assert!(!senders.arrived(peer(1), 0, true, now) && !senders.arrived(peer(1), 9, true, now));
        assert_eq!(senders.missing(), 0);
        // The first sender is evicted, and one of its missing messages arrives after all.
        assert!(senders.arrived(peer(1), 9, false, now) && senders.arrived(peer(2), 0, false, now));
        assert!(!senders.arrived(peer(1), 5, true, now), "the message was given up");
        assert_eq!((senders.missing(), senders.unrecoverable()), (0, 7));
        assert!(senders.next_request(now).is_none_or(|(requested_at, _)| requested_at != peer(1)));
    }

    /// The report that messages are unavailable may overtake the messages after them.
    #[test]
    fn unavailable_messages_are_not_requested() {
        let (now, mut senders) = (Instant::now(), ReceivedLogs::new(10, Duration::ZERO));
        assert!(senders.arrived(peer(1), 0, false, now));
        senders.mark_unavailable(peer(1), &(3..6), now);
        assert_eq!((senders.missing(), senders.unrecoverable()), (2, 3));
        assert!(senders.next_request(now).is_some_and(|(_, gaps)| gaps.iter().eq([&(1..3)])));
        assert!(senders.arrived(peer(1), 6, false, now) && !senders.arrived(peer(1), 4, false, now));
        assert_eq!((senders.missing(), senders.unrecoverable()), (2, 3));
        // No correct sender numbers like this.
        senders.mark_unavailable(peer(1), &(7..u64::MAX), now);
        assert_eq!((senders.missing(), senders.unrecoverable()), (2, 3));
        assert!(senders.arrived(peer(1), 7, false, now));
    }

    /// An evicted sender is not asked.
    #[test]
    fn an_evicted_sender_is_not_asked() {
        let (now, mut senders) = (Instant::now(), ReceivedLogs::new(1, Duration::ZERO));
        assert!(senders.arrived(peer(1), 1, false, now));
        assert!(senders.arrived(peer(2), 0, false, now));
        assert!(senders.next_request(now).is_none() && senders.next_deadline().is_none());
    }

    /// An address with many senders evicts its own senders, and not those of other addresses.
    #[test]
    fn one_address_evicts_only_its_own_senders() {
        let (now, mut senders) = (Instant::now(), ReceivedLogs::new(64, Duration::ZERO));
        for host in 1..=8 {
            assert!(senders.arrived(peer(host), 1, false, now));
        }
        let (unknown, _) = peer(9);
        for token in 0..1000 {
            assert!(senders.arrived((unknown, token), 0, false, now));
        }
        assert_eq!((senders.missing(), senders.unrecoverable()), (8, 0), "the others' gaps are remembered");
        // Senders of other addresses still find room.
        for host in 10..=40 {
            assert!(senders.arrived(peer(host), 0, false, now));
            assert!(senders.arrived((unknown, 1000 + u32::from(host)), 0, false, now));
        }
        assert_eq!((senders.missing(), senders.unrecoverable()), (8, 0));
        assert!((10..=40).all(|host| !senders.arrived(peer(host), 0, false, now)), "each is remembered");
    }

    /// Neither a port for each sender nor an address of IPv6 for each gives a host more than its share.
    #[test]
    fn one_host_with_many_addresses_evicts_only_its_own_senders() {
        let (now, mut senders) = (Instant::now(), ReceivedLogs::new(64, Duration::ZERO));
        for host in 1..=8 {
            assert!(senders.arrived(peer(host), 1, false, now));
        }
        for n in 1..=1000 {
            let own = SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, n], n));
            assert!(senders.arrived((Key::new(own, 0), 7), 0, false, now));
        }
        assert_eq!((senders.missing(), senders.unrecoverable()), (8, 0), "the others' gaps are remembered");
    }

    #[test]
    fn too_many_senders_evict_each_other() {
        let (now, mut senders) = (Instant::now(), ReceivedLogs::new(2, Duration::ZERO));
        for host in 1..=3 {
            assert!(senders.arrived(peer(host), 5, false, now));
        }
        // The first sender was evicted with its missing messages. The third one began when the table was
        // full.
        assert_eq!((senders.missing(), senders.unrecoverable()), (5, 5));
        assert!(senders.arrived(peer(1), 9, false, now), "it is new again, and awaits nothing before");
        assert_eq!((senders.missing(), senders.unrecoverable()), (0, 10));
        assert!(!senders.arrived(peer(1), 8, false, now), "the message may have come before");
        assert!(senders.arrived(peer(1), 11, false, now));
        assert_eq!(senders.missing(), 1);
    }
}
