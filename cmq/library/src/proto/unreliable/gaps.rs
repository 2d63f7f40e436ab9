//! Deadlines for missing messages.
//!
//! A missing datagram was lost, or it was overtaken. Only time tells which, and every later message waits
//! until then. Losses describe the path: each loss halves the wait for that sender, and the first late
//! or reordered datagram restores the full wait. Each stream counts its losses in a row (`loss_streak`), and
//! the lengths of the wait each have a list:
//!
//! ```text
//!   streak 0: wait          ──▶ 17 ── 3
//!   streak 1: wait / 2      ──▶ 5
//!     …                                 the first of a list is the earliest (timeline)
//!   streak 6..31: wait / 64 ──▶ 8 ── 99
//!   streak 32: the next datagram declares the missing ones lost; nothing waits
//! ```
//!
//! A datagram that was only overtaken is dropped as late, and resets the streak. Where the receiver does not
//! wait, it therefore loses at most one more message for each 32 that the network lost.

use std::time::{Duration, Instant};

use crate::proto::after;
use crate::proto::timeline::Timeline;

/// The last streak that shortens the wait.
const LAST_LEVEL: u8 = 6;
/// The streak from which the receiver does not wait at all.
pub(crate) const NO_WAIT: u8 = 32;
/// The smallest window while the receiver still waits: a few datagrams are overtaken on good paths too.
const MIN_WINDOW: usize = 3;

/// How many datagrams may arrive after a gap before its messages are lost.
pub(crate) fn window(max: usize, loss_streak: u8) -> usize {
    if loss_streak >= NO_WAIT { 0 } else { (max >> loss_streak.min(LAST_LEVEL)).max(max.min(MIN_WINDOW)) }
}

/// The streams with missing messages.
pub(crate) struct Gaps {
    wait: Duration,
    lists: [Timeline; LAST_LEVEL as usize + 1],
}

impl Gaps {
    pub fn new(wait: Duration) -> Gaps {
        Gaps { wait, lists: std::array::from_fn(|_| Timeline::new()) }
    }

    /// True if the stream has a deadline.
    pub fn contains(&self, slot: u32) -> bool {
        self.lists.iter().any(|list| list.contains(slot))
    }

    /// Starts the deadline of a stream that has none.
    pub fn push_back(&mut self, slot: u32, loss_streak: u8, now: Instant) {
        self.lists[usize::from(loss_streak.min(LAST_LEVEL))].push_back(slot, now);
    }

    /// Removes the deadline of a stream.
    pub fn remove(&mut self, slot: u32) {
        self.lists.iter_mut().for_each(|list| list.remove(slot));
    }

    /// The earliest deadline, and its stream.
    fn first(&self) -> Option<(Instant, u32)> {
        let waits = (0..).map(|level| self.wait / (1 << level));
        let firsts = self.lists.iter().zip(waits).filter_map(|(list, wait)| {
            let (slot, since) = list.first()?;
            Some((after(since, wait), slot))
        });
        firsts.min()
    }

    /// The earliest deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.first().map(|(until, _)| until)
    }

    /// A stream whose deadline has passed.
    pub fn due(&self, now: Instant) -> Option<u32> {
        self.first().filter(|&(until, _)| until <= now).map(|(_, slot)| slot)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::config::Config;
    use crate::event::Event;
    use crate::key::Key;
    use crate::proto::shared_buffer::SharedBuffer;
    use crate::proto::sink::{Dropped, Sink};
    use crate::proto::unreliable::receiver::Receiver;
    use crate::wire::{Header, Kind, Messages};

    #[derive(Default)]
    struct Events(Vec<Event>);

    impl Sink for Events {
        fn deliver(&mut self, _: Key, _: Messages<'_>, _: Option<&SharedBuffer>) -> Dropped {
            Dropped::default()
        }

        fn event(&mut self, event: Event) {
            self.0.push(event);
        }
    }

    /// Receives an empty message.
    fn hear(receiver: &mut Receiver, now: Instant, first: u64, events: &mut Events) {
        let header = Header { kind: Kind::Batch, count: 1, stream: 0, epoch: 1, first, mailbox: 0 };
        let bytes = [&header.encode()[..], &[0; 2]].concat();
        receiver.datagram(now, SocketAddr::from(([10, 0, 0, 1], 1)), &bytes, events);
    }

    /// Losses shorten the wait; a late datagram restores it.
    #[test]
    fn losses_shorten_the_wait_and_late_datagrams_restore_it() {
        let (mut receiver, mut now) = (Receiver::new(&Config::default()), Instant::now());
        let mut events = Events::default();
        hear(&mut receiver, now, 0, &mut events);
        let wait = Duration::from_millis(2);
        let mut next = 1;
        let mut lose = |receiver: &mut Receiver, events: &mut Events| {
            hear(receiver, now, next + 1, events);
            let until = receiver.next_deadline().expect("something is missing");
            receiver.expire(until, events);
            assert_eq!(receiver.next_deadline(), None);
            assert!(matches!(events.0.last(), Some(Event::Lost { count: 1, .. })));
            let waited = until - now;
            now = until;
            next += 2;
            waited
        };
        let waits: Vec<Duration> = (0..8).map(|_| lose(&mut receiver, &mut events)).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64].map(|part| wait / part));
        // The last lost message arrives after all: this path reorders.
        hear(&mut receiver, Instant::now(), 15, &mut events);
        assert_eq!(events.0.last(), Some(&Event::Late { from: ([10, 0, 0, 1], 1).into(), count: 1 }));
        assert_eq!(lose(&mut receiver, &mut events), wait);
    }

    /// After a long streak of losses the receiver does not wait, and itself causes the loss of at most one message
    /// for each streak.
    #[test]
    fn after_many_losses_nothing_waits() {
        let (mut receiver, now) = (Receiver::new(&Config::default()), Instant::now());
        let mut events = Events::default();
        hear(&mut receiver, now, 0, &mut events);
        let until_sure = u64::from(NO_WAIT);
        for lost in 0..until_sure {
            hear(&mut receiver, now, 2 * lost + 2, &mut events);
            let until = receiver.next_deadline().expect("a message is missing");
            receiver.expire(until, &mut events);
        }
        let next = 2 * until_sure + 2;
        hear(&mut receiver, now, next, &mut events);
        let from = SocketAddr::from(([10, 0, 0, 1], 1));
        assert_eq!(events.0.last(), Some(&Event::Lost { from, first: next - 1, count: 1 }));
        assert_eq!(receiver.next_deadline(), None);
        // The message was overtaken, so later messages may be too.
        hear(&mut receiver, now, next - 1, &mut events);
        assert_eq!(events.0.last(), Some(&Event::Late { from, count: 1 }));
        hear(&mut receiver, now, next + 2, &mut events);
        assert_eq!(receiver.next_deadline(), Some(now + Duration::from_millis(2)));
    }

    #[test]
    fn the_window_shrinks_with_losses() {
        assert_eq!([0, 1, 2, 3, 6, 31, 32].map(|streak| window(16, streak)), [16, 8, 4, 3, 3, 3, 0]);
        assert_eq!([0, 6].map(|streak| window(2, streak)), [2, 2]);
    }
}
