//! A ring that a transport fills, step by step against a plain log: pieces of deliveries, ends, and holes.

use proptest::prelude::*;
use rocketring::{Gap, Hold, Ring, RingConfig, RingReceiver};

use crate::common::{Log, content, ring, starts};

#[derive(Debug, Clone)]
enum Step {
    CopyIn(usize),
    /// The bytes to ask for, and the part that lands, in 256ths of the bytes that `spare` gives.
    Spare(usize, usize),
    End,
    Skip(u64),
    Hold(u64),
    Advance(usize, u64),
    Release(usize),
    Grant,
    Trim(u64),
    Boundaries(u64),
    GapAfter(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..900usize).prop_map(Step::CopyIn),
        3 => (0..900usize, 0..257usize).prop_map(|(max, part)| Step::Spare(max, part)),
        6 => Just(Step::End),
        2 => prop_oneof![4 => 0..600u64, 1 => 0..20_000u64].prop_map(Step::Skip),
        2 => any::<u64>().prop_map(Step::Hold),
        5 => (0..3usize, 0..3000u64).prop_map(|(i, by)| Step::Advance(i, by)),
        1 => (0..3usize).prop_map(Step::Release),
        5 => Just(Step::Grant),
        2 => prop_oneof![Just(0), 0..10_000u64].prop_map(Step::Trim),
        3 => any::<u64>().prop_map(Step::Boundaries),
        3 => any::<u64>().prop_map(Step::GapAfter),
    ];
    prop::collection::vec(step, 1..400)
}

struct Machine {
    ring: Ring,
    receiver: RingReceiver,
    log: Log,
    holds: Vec<(Hold, u64)>,
    horizon: u64,
    trimmed: bool,
    seed: u64,
}

impl Machine {
    fn new(config: RingConfig) -> Machine {
        let log = Log::new(config.start);
        let ring = ring(config);
        let (receiver, horizon) = (ring.receiver().unwrap(), ring.horizon());
        Machine { ring, receiver, log, holds: vec![], horizon, trimmed: false, seed: 0 }
    }

    fn content(&mut self, len: usize) -> Vec<u8> {
        self.seed += 1;
        content(self.seed, len)
    }

    fn copy_in(&mut self, len: usize) {
        let bytes = self.content(len);
        let room = self.receiver.room();
        let copied = self.receiver.copy_in(&bytes);
        if self.ring.flow_control() {
            assert_eq!(room, self.horizon - self.log.head());
            assert_eq!(copied as u64, room.min(len as u64));
        } else {
            assert_eq!(copied, len);
        }
        self.log.bytes.extend(&bytes[..copied]);
    }

    fn spare(&mut self, max: usize, part: usize) {
        let room = self.receiver.room();
        let (at, len) = self.receiver.spare(max);
        assert_eq!(len as u64, room.min(max as u64));
        let bytes = self.content(len * part / 256);
        // SAFETY: `spare` gave `len` writable bytes, and `bytes` is not longer.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.receiver.land(bytes.len());
        self.log.bytes.extend(&bytes);
    }

    fn skip(&mut self, by: u64) {
        let (from, to) = (self.log.boundary(), (self.log.boundary() + by).max(self.log.head()));
        let gap = self.receiver.skip(self.log.boundary() + by);
        if from == to {
            assert_eq!(gap, Gap { from, to });
            return;
        }
        self.log.bytes.resize((to - self.log.start) as usize, 0);
        self.log.boundaries.insert(to);
        match self.log.gaps.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => self.log.gaps.push((from, to)),
        }
        assert!(gap.from <= from && gap.to == to);
        // The ring remembers 64 holes. Beyond that it widens the newest.
        self.log.gaps.last_mut().unwrap().0 = gap.from;
        while self.log.gaps.len() > 1 && self.log.gaps[self.log.gaps.len() - 2].1 > gap.from {
            let last = self.log.gaps.pop().unwrap();
            self.log.gaps.last_mut().unwrap().1 = last.1;
        }
        if self.log.last >= gap.from {
            self.log.last = to;
        }
        self.horizon = self.horizon.max(to);
    }

    /// The tail moves to `keep` bytes below the boundary, or to the slowest hold; nothing else changes.
    fn trim(&mut self, keep: u64) {
        let (tail, capacity) = (self.ring.tail(), self.ring.capacity());
        let wanted = self.log.boundary().saturating_sub(keep);
        let slowest = self.holds.iter().map(|&(_, at)| at).min().unwrap_or(u64::MAX);
        let trimmed = self.receiver.trim(keep);
        self.trimmed = true;
        self.horizon = self.horizon.max(wanted.min(slowest).max(tail).saturating_add(capacity));
        assert_eq!(self.ring.horizon(), self.horizon);
        assert_eq!(trimmed.held, slowest < wanted);
        assert_eq!(trimmed.left + trimmed.given_back, capacity);
        let low = self.ring.tail().min(slowest).min(self.log.head());
        let pages = self.log.head().next_multiple_of(4096) - (low & !4095);
        if low < self.log.head() {
            assert_eq!(trimmed.left, pages.min(capacity), "pages of what must stay");
        } else {
            assert!(trimmed.left <= 4096, "at most the page that is begun");
        }
    }

    fn gap_after(&self, p: u64) {
        let expected = self.log.gaps.iter().find(|gap| gap.1 > p).map(|&(from, to)| Gap { from, to });
        let slowest = self.ring.slowest_hold().unwrap_or(u64::MAX).min(self.ring.tail());
        if p >= slowest {
            assert_eq!(self.ring.gap_after(p), expected);
        }
    }

    fn hold(&mut self, choice: u64) {
        let at = self.log.somewhere(&self.ring, choice);
        match self.ring.hold(at) {
            Ok(hold) => self.holds.push((hold, at)),
            Err(gone) => assert!(at < self.ring.tail() && gone.tail == self.ring.tail()),
        }
    }

    fn allowed(&self) -> u64 {
        let by_history = self.log.head() + self.ring.capacity() - self.ring.retain();
        let slowest = self.holds.iter().map(|(_, at)| at + self.ring.capacity()).min();
        self.horizon.max(slowest.unwrap_or(u64::MAX).min(by_history))
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::CopyIn(len) => self.copy_in(len),
            Step::Spare(max, part) => self.spare(max, part),
            Step::End => {
                self.receiver.end();
                self.log.end();
            }
            Step::Skip(by) => self.skip(by),
            Step::Hold(choice) => self.hold(choice),
            Step::Advance(which, by) => {
                if let Some((hold, at)) = self.holds.get_mut(which) {
                    *at = (*at + by).min(self.log.head()).max(*at);
                    hold.advance(*at);
                }
            }
            Step::Release(which) => {
                if which < self.holds.len() {
                    self.holds.remove(which);
                }
            }
            Step::Grant if self.ring.flow_control() => {
                self.horizon = self.allowed();
                assert_eq!(self.ring.grant(), self.horizon);
            }
            Step::Trim(keep) => self.trim(keep),
            Step::Grant => assert_eq!(self.ring.grant(), self.ring.horizon()),
            Step::Boundaries(p) => self.log.check_boundaries(&self.ring, self.log.somewhere(&self.ring, p)),
            Step::GapAfter(p) => self.gap_after(self.log.somewhere(&self.ring, p)),
        }
    }

    fn check(&mut self) {
        assert_eq!(self.ring.head(), self.log.head());
        assert_eq!(self.ring.boundary(), self.log.boundary());
        self.log.check_last(&self.ring);
        if self.ring.flow_control() {
            assert_eq!(self.ring.horizon(), self.horizon);
            let held = self.holds.iter().map(|&(_, at)| at).min().filter(|&at| at <= self.log.head());
            if let Some(at) = held {
                // A hole can be longer than the ring. Bytes that are held from before the hole are still readable.
                self.log.check_range(&self.ring, at, self.log.head().min(at + self.ring.capacity()));
            }
        } else {
            let from = self.ring.tail().min(self.log.head());
            self.log.check_range(&self.ring, from, self.log.head());
            let ahead = self.ring.horizon() - self.log.head();
            let most = self.ring.capacity() / if self.trimmed { 1 } else { 8 };
            assert!(ahead <= most, "announced {ahead} bytes ahead");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_plain_log(
        start in starts(),
        flow_control in any::<bool>(),
        max_delivery in 16u64..1000,
        steps in steps(),
    ) {
        let (capacity_bytes, max_delivery_bytes) = (8192, Some(max_delivery));
        let config = RingConfig { capacity_bytes, max_delivery_bytes, flow_control, start, retain_bytes: None };
        let mut machine = Machine::new(config);
        for step in steps {
            machine.apply(step);
            machine.check();
        }
    }
}

#[test]
fn holes_beyond_the_limit_widen_the_newest() {
    let ring = ring(RingConfig { capacity_bytes: 64 << 10, ..RingConfig::default() });
    let mut receiver = ring.receiver().unwrap();
    for i in 0..70u64 {
        assert_eq!(receiver.copy_in(&[1; 10]), 10);
        receiver.end();
        assert_eq!(receiver.skip(i * 20 + 20).to, i * 20 + 20);
    }
    let last = ring.gap_after(63 * 20).unwrap();
    assert_eq!(last, Gap { from: 63 * 20 + 10, to: 70 * 20 });
    assert_eq!(ring.gap_after(70 * 20), None);
}

#[test]
fn an_incomplete_delivery_is_dropped_by_a_hole() {
    let ring = ring(RingConfig { capacity_bytes: 4096, ..RingConfig::default() });
    let mut receiver = ring.receiver().unwrap();
    receiver.copy_in(b"whole");
    receiver.end();
    receiver.copy_in(b"half of");
    assert_eq!(receiver.skip(100), Gap { from: 5, to: 100 });
    assert_eq!((ring.head(), ring.boundary()), (100, 100));
    assert_eq!(ring.gap_after(5), Some(Gap { from: 5, to: 100 }));
}

#[test]
fn a_hole_at_the_end_of_all_positions_overflows_nothing() {
    let ring = ring(RingConfig { capacity_bytes: 4096, ..RingConfig::default() });
    let mut receiver = ring.receiver().unwrap();
    receiver.skip(u64::MAX - 3);
    assert_eq!(ring.grant(), u64::MAX);
    assert_eq!(receiver.copy_in(b"abcdef"), 3);
    assert_eq!((receiver.room(), receiver.copy_in(b"x")), (0, 0));
    receiver.end();
    assert_eq!(ring.boundary_at_or_before(u64::MAX), Some(u64::MAX));
}

#[test]
#[should_panic(expected = "landed where there was room")]
fn landing_more_than_was_granted_is_refused() {
    let ring = ring(RingConfig { capacity_bytes: 4096, ..RingConfig::default() });
    ring.receiver().unwrap().land(4097);
}

#[test]
fn a_bare_ring_is_a_place_and_takes_nothing_but_holes() {
    let ring = Ring::unbacked(1000);
    let mut receiver = ring.receiver().unwrap();
    let hold = ring.hold(1000).unwrap();
    assert_eq!((ring.capacity(), ring.head(), ring.boundary(), ring.grant()), (0, 1000, 1000, 1000));
    assert_eq!((receiver.room(), receiver.copy_in(b"no")), (0, 0));
    receiver.end();
    assert_eq!(ring.boundary(), 1000);
    assert_eq!(receiver.skip(5000), Gap { from: 1000, to: 5000 });
    assert_eq!(ring.gap_after(1000), Some(Gap { from: 1000, to: 5000 }));
    hold.advance(5000);
    assert_eq!((ring.head(), ring.grant(), receiver.room()), (5000, 5000, 0));
    assert_eq!(receiver.trim(0).left, 0);
    assert_eq!(ring.view(5000, 5000).to_vec().unwrap(), b"");
}

#[test]
fn a_partial_delivery_is_dropped_and_comes_again() {
    let ring = ring(RingConfig { capacity_bytes: 4096, retain_bytes: Some(0), ..RingConfig::default() });
    let mut receiver = ring.receiver().unwrap();
    let hold = ring.hold(0).unwrap();
    assert_eq!(receiver.copy_in(b"whole"), 5);
    receiver.end();
    assert_eq!(receiver.copy_in(b"begin"), 5);
    receiver.drop_partial();
    assert_eq!((ring.head(), ring.boundary(), receiver.room()), (5, 5, 4091));
    assert_eq!(receiver.copy_in(b"begin and end"), 13);
    receiver.end();
    assert_eq!(ring.view(0, 18).to_vec().unwrap(), b"wholebegin and end");
    hold.advance(18);
    receiver.drop_partial();
    assert_eq!(ring.head(), 18);
}
