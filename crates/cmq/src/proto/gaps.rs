//! Who misses something, and until when it may still come.
//!
//! What is missing was lost, or another datagram overtook it; only time tells which, and meanwhile everything behind it
//! waits. A path that loses and never turns round is known by its losses: each halves the time, and the first datagram that
//! comes late or turned round gives it back whole. So each stream has a level, and each of the first levels a list:
//!
//! ```text
//!   level 0: wait          ──▶ 17 ── 3
//!   level 1: wait / 2      ──▶ 5
//!     …                                 within a list the first is the earliest (timeline)
//!   level 6..31: wait / 64 ──▶ 8 ── 99
//!   level 32: the next that comes says that what is missing is lost, and nothing waits
//! ```
//!
//! If it was overtaken after all it is dropped, and the level is 0 again. So where nothing waits at most one more message is
//! lost for each 32 that the network has lost.

use std::time::{Duration, Instant};

use super::after;
use super::timeline::Timeline;

/// The last level with a time of its own.
const LAST_TIME: u8 = 6;
/// The last level: nothing waits.
pub(crate) const SURE: u8 = 32;
/// Datagrams behind what is missing that are waited for at every level but the last: a few are overtaken on good paths, too.
const AT_LEAST: usize = 3;

/// So many datagrams may come before what is missing is given up.
pub(crate) fn window(most: usize, level: u8) -> usize {
    if level >= SURE { 0 } else { (most >> level.min(LAST_TIME)).max(most.min(AT_LEAST)) }
}

/// Streams that miss something.
pub(crate) struct Gaps {
    wait: Duration,
    lists: [Timeline; LAST_TIME as usize + 1],
}

impl Gaps {
    pub fn new(wait: Duration) -> Gaps {
        Gaps { wait, lists: std::array::from_fn(|_| Timeline::new()) }
    }

    /// Whether this one misses something.
    pub fn contains(&self, slot: u32) -> bool {
        self.lists.iter().any(|list| list.contains(slot))
    }

    /// It misses something since now, and is not here.
    pub fn push_back(&mut self, slot: u32, level: u8, now: Instant) {
        self.lists[usize::from(level.min(LAST_TIME))].push_back(slot, now);
    }

    /// It misses nothing any more.
    pub fn remove(&mut self, slot: u32) {
        self.lists.iter_mut().for_each(|list| list.remove(slot));
    }

    /// Who waits no longer, and since when.
    fn first(&self) -> Option<(Instant, u32)> {
        let waits = (0..).map(|level| self.wait / (1 << level));
        let firsts = self.lists.iter().zip(waits).filter_map(|(list, wait)| {
            let (slot, since) = list.first()?;
            Some((after(since, wait), slot))
        });
        firsts.min()
    }

    /// When the first of them has waited long enough.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.first().map(|(until, _)| until)
    }

    /// One that has waited long enough.
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
    use crate::proto::lent::Lent;
    use crate::proto::receiver::{Receiver, Sink, Taken};
    use crate::wire::{Header, Kind, Messages};

    #[derive(Default)]
    struct Events(Vec<Event>);

    impl Sink for Events {
        fn deliver(&mut self, _: Key, _: Messages<'_>, _: Option<&Lent>) -> Taken {
            Taken::default()
        }

        fn event(&mut self, event: Event) {
            self.0.push(event);
        }
    }

    /// A message of no bytes.
    fn hear(receiver: &mut Receiver, now: Instant, first: u64, events: &mut Events) {
        let header = Header { kind: Kind::Batch, count: 1, stream: 0, epoch: 1, first, mailbox: 0 };
        let bytes = [&header.encode()[..], &[0; 2]].concat();
        receiver.datagram(now, SocketAddr::from(([10, 0, 0, 1], 1)), &bytes, events);
    }

    /// A path that only loses is waited for less and less; one that turns datagrams round has its time again.
    #[test]
    fn losses_shorten_the_wait_and_what_is_late_gives_it_back() {
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
        // What was lost last comes after all: it takes longer here.
        hear(&mut receiver, Instant::now(), 15, &mut events);
        assert_eq!(events.0.last(), Some(&Event::Late { from: ([10, 0, 0, 1], 1).into(), count: 1 }));
        assert_eq!(lose(&mut receiver, &mut events), wait);
    }

    /// Where nothing but losses was seen for long, nothing waits any more: at most one in so many losses is of its own making.
    #[test]
    fn after_many_losses_nothing_waits() {
        let (mut receiver, now) = (Receiver::new(&Config::default()), Instant::now());
        let mut events = Events::default();
        hear(&mut receiver, now, 0, &mut events);
        let until_sure = u64::from(SURE);
        for lost in 0..until_sure {
            hear(&mut receiver, now, 2 * lost + 2, &mut events);
            let until = receiver.next_deadline().expect("it may still come");
            receiver.expire(until, &mut events);
        }
        let next = 2 * until_sure + 2;
        hear(&mut receiver, now, next, &mut events);
        let from = SocketAddr::from(([10, 0, 0, 1], 1));
        assert_eq!(events.0.last(), Some(&Event::Lost { from, first: next - 1, count: 1 }));
        assert_eq!(receiver.next_deadline(), None);
        // It was overtaken: from now on others may be as well.
        hear(&mut receiver, now, next - 1, &mut events);
        assert_eq!(events.0.last(), Some(&Event::Late { from, count: 1 }));
        hear(&mut receiver, now, next + 2, &mut events);
        assert_eq!(receiver.next_deadline(), Some(now + Duration::from_millis(2)));
    }

    #[test]
    fn a_few_may_overtake_where_it_is_not_sure() {
        assert_eq!([0, 1, 2, 3, 6, 31, 32].map(|level| window(16, level)), [16, 8, 4, 3, 3, 3, 0]);
        assert_eq!([0, 6].map(|level| window(2, level)), [2, 2]);
    }
}
