//! A ring with a local writer, step by step against a plain log.

use proptest::prelude::*;
use rocketring::{Claim, ClaimError, DeliverError, Hold, MAX_OPEN_CLAIMS, Ring, RingConfig, Writer};

use crate::common::{Log, content, ring, starts};

#[derive(Debug, Clone)]
enum Step {
    Claim(u64),
    /// The open claim to deliver, and the delivered part of it in 256ths; 0 gives the claim back.
    Deliver(usize, u64),
    /// The open claim to drop.
    Lose(usize),
    Append(Vec<usize>),
    /// The bytes that the writer leaves out.
    Skip(u64),
    Hold(u64),
    Advance(usize, u64),
    Release(usize),
    Grant,
    /// The bytes of history to keep.
    Trim(u64),
    Boundaries(u64),
    View(u64, u64),
}

/// Sizes are multiples of `scale`.
fn steps(scale: u64) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1u64..600).prop_map(move |size| Step::Claim(size * scale)),
        6 => (0..8usize, prop_oneof![3 => Just(256), 1 => 0..256u64]).prop_map(|(i, part)| Step::Deliver(i, part)),
        1 => (0..40usize).prop_map(Step::Lose),
        6 => prop::collection::vec((0..200usize).prop_map(move |size| size * scale as usize), 0..4)
            .prop_map(Step::Append),
        1 => (0..3000u64).prop_map(move |by| Step::Skip(by * scale)),
        2 => any::<u64>().prop_map(Step::Hold),
        6 => (0..4usize, 0..3000u64).prop_map(move |(i, by)| Step::Advance(i, by * scale)),
        1 => (0..4usize).prop_map(Step::Release),
        1 => Just(Step::Grant),
        1 => prop_oneof![Just(0), 0..9000u64].prop_map(move |keep| Step::Trim(keep * scale)),
        3 => any::<u64>().prop_map(Step::Boundaries),
        2 => (any::<u64>(), any::<u64>()).prop_map(|(a, b)| Step::View(a, b)),
    ];
    prop::collection::vec(step, 1..250)
}

/// A claim as the oracle sees it, with its bytes after delivery.
struct Slot {
    from: u64,
    len: u64,
    delivered: Option<Vec<u8>>,
    lost: bool,
}

struct Machine {
    ring: Ring,
    writer: Writer,
    log: Log,
    slots: Vec<Slot>,
    /// Open claims, each with the bytes that fill it.
    open: Vec<(Claim, Vec<u8>)>,
    holds: Vec<(Hold, u64)>,
    horizon: u64,
    seed: u64,
}

impl Machine {
    fn new(config: RingConfig) -> Machine {
        let log = Log::new(config.start);
        let ring = ring(config);
        let writer = ring.writer().unwrap();
        let horizon = ring.horizon();
        Machine { ring, writer, log, slots: vec![], open: vec![], holds: vec![], horizon, seed: 0 }
    }

    fn next(&self) -> u64 {
        self.slots.last().map_or(self.log.head(), |slot| slot.from + slot.len)
    }

    /// The horizon as the design defines it.
    fn allowed(&self) -> u64 {
        let by_history = self.log.head() + self.ring.capacity() - self.ring.retain();
        let slowest = self.holds.iter().map(|(_, at)| at + self.ring.capacity()).min();
        self.horizon.max(slowest.unwrap_or(u64::MAX).min(by_history))
    }

    /// Acts as the writer's next call with lost claims. Returns the position of the first lost claim that remains.
    fn reclaim(&mut self) -> Option<u64> {
        while self.slots.pop_if(|slot| slot.lost).is_some() {}
        self.slots.iter().find(|slot| slot.lost).map(|slot| slot.from)
    }

    /// The expected result of a claim of `size` bytes.
    fn expected(&mut self, size: u64) -> Result<u64, ClaimError> {
        if let Some(from) = self.reclaim() {
            return Err(ClaimError::ClaimLost { from });
        }
        if size > self.ring.max_delivery() {
            return Err(ClaimError::TooLarge { size, max_delivery: self.ring.max_delivery() });
        }
        if self.slots.len() == MAX_OPEN_CLAIMS {
            return Err(ClaimError::TooManyClaims);
        }
        let end = self.next() + size;
        if end <= self.allowed() { Ok(end) } else { Err(ClaimError::Full) }
    }

    fn publish(&mut self) -> bool {
        let before = self.log.head();
        while self.slots.first().is_some_and(|slot| slot.delivered.is_some()) {
            self.log.bytes.extend(self.slots.remove(0).delivered.unwrap());
            self.log.end();
        }
        before != self.log.head()
    }

    fn claim(&mut self, size: u64) {
        let (from, expected) = (self.next(), self.expected(size));
        let from = if self.slots.is_empty() { self.log.head() } else { from.min(self.next()) };
        let claim = self.writer.claim(size);
        assert_eq!(claim.as_ref().map(|claim| claim.from() + claim.len() as u64).map_err(|e| *e), expected);
        if let Ok(mut claim) = claim {
            assert_eq!(claim.from(), from);
            self.slots.push(Slot { from, len: size, delivered: None, lost: false });
            self.seed += 1;
            let bytes = content(self.seed, claim.len());
            claim.bytes().copy_from_slice(&bytes);
            self.open.push((claim, bytes));
        }
    }

    fn append(&mut self, parts: &[usize]) {
        self.seed += 1;
        let bytes = content(self.seed, parts.iter().sum());
        let mut rest = &bytes[..];
        let parts = parts.iter().map(|&n| rest.split_off(..n).unwrap()).collect::<Vec<_>>();
        if bytes.is_empty() {
            self.writer.append(&parts).unwrap();
            return;
        }
        let expected = self.expected(bytes.len() as u64);
        assert_eq!(self.writer.append(&parts), expected);
        if expected.is_ok() {
            let (from, len) = (self.next(), bytes.len() as u64);
            self.slots.push(Slot { from, len, delivered: Some(bytes), lost: false });
            self.publish();
        }
    }

    fn skip(&mut self, by: u64) {
        let (from, to) = (self.log.head(), self.log.head() + by);
        let expected = match self.reclaim() {
            Some(from) => Err(ClaimError::ClaimLost { from }),
            None if !self.slots.is_empty() => Err(ClaimError::TooManyClaims),
            None => Ok(()),
        };
        assert_eq!(self.writer.skip(to), expected);
        if expected.is_err() || by == 0 {
            return;
        }
        self.log.bytes.resize((to - self.log.start) as usize, 0);
        self.log.boundaries.insert(to);
        self.log.last = to;
        match self.log.gaps.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => self.log.gaps.push((from, to)),
        }
        let gap = self.ring.gap_after(from).expect("a hole");
        assert!(gap.from <= from && gap.to == to);
        // Nothing is granted for the hole but the hole.
        assert_eq!(self.ring.horizon(), self.horizon.max(to));
        self.horizon = self.ring.horizon();
    }

    fn deliver(&mut self, which: usize, part: u64) {
        if self.open.is_empty() {
            return;
        }
        let (claim, bytes) = self.open.remove(which % self.open.len());
        let size = claim.len() as u64 * part / 256;
        self.reclaim();
        let slot =
            self.slots.iter().position(|slot| slot.from == claim.from() && slot.delivered.is_none()).unwrap();
        if size < claim.len() as u64 && slot + 1 < self.slots.len() {
            let refused = self.writer.deliver(claim, size).unwrap_err();
            let DeliverError::ShortDeliver(claim) = refused else { panic!("{refused}") };
            self.open.push((claim, bytes));
            self.open.sort_by_key(|(claim, _)| claim.from());
            return;
        }
        let from = claim.from();
        let delivered = self.writer.deliver(claim, size).unwrap();
        assert_eq!((delivered.from, delivered.to), (from, from + size));
        if size == 0 {
            self.slots.pop();
            assert!(!delivered.published);
        } else {
            self.slots[slot].delivered = Some(bytes[..size as usize].to_vec());
            self.slots[slot].len = size;
            assert_eq!(delivered.published, self.publish());
        }
    }

    fn lose(&mut self, which: usize) {
        if which < self.open.len() {
            let (claim, _) = self.open.remove(which);
            let lost = |slot: &&mut Slot| slot.from == claim.from() && slot.delivered.is_none();
            self.slots.iter_mut().find(lost).unwrap().lost = true;
        }
    }

    /// Gives back the bytes that neither the history nor a hold needs: the tail moves up, and with it the horizon.
    fn trim(&mut self, keep: u64) {
        let slowest = self.holds.iter().map(|&(_, at)| at).min().unwrap_or(u64::MAX);
        let wanted = self.log.boundary().saturating_sub(keep);
        let tail = wanted.min(slowest).max(self.ring.tail());
        let trimmed = self.ring.trim(keep).unwrap();
        assert_eq!(trimmed.held, slowest < wanted);
        assert_eq!(trimmed.left + trimmed.given_back, self.ring.capacity());
        assert_eq!(self.ring.tail(), tail);
        self.horizon = self.horizon.max(tail + self.ring.capacity());
    }

    fn hold(&mut self, choice: u64) {
        let at = self.log.somewhere(&self.ring, choice);
        match self.ring.hold(at) {
            Ok(hold) => {
                assert!(at >= self.ring.tail());
                self.holds.push((hold, at));
            }
            Err(gone) => assert!(at < self.ring.tail() && gone.tail == self.ring.tail()),
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Claim(size) => self.claim(size),
            Step::Deliver(which, part) => self.deliver(which, part),
            Step::Lose(which) => self.lose(which),
            Step::Append(parts) => self.append(&parts),
            Step::Skip(by) => self.skip(by),
            Step::Hold(choice) => self.hold(choice),
            Step::Advance(which, by) => {
                if let Some((hold, at)) = self.holds.get_mut(which) {
                    let to = (*at + by).min(self.log.head()).max(*at);
                    hold.advance(to);
                    hold.advance(to.saturating_sub(1));
                    *at = to;
                    assert_eq!(hold.position(), to);
                }
            }
            Step::Release(which) => {
                if which < self.holds.len() {
                    self.holds.remove(which);
                }
            }
            Step::Grant => assert_eq!(self.ring.grant(), self.allowed()),
            Step::Trim(keep) => self.trim(keep),
            Step::Boundaries(choice) => {
                self.log.check_boundaries(&self.ring, self.log.somewhere(&self.ring, choice));
            }
            Step::View(a, b) => {
                let clamp =
                    |choice| self.log.somewhere(&self.ring, choice).clamp(self.ring.tail(), self.log.head());
                let (from, to) = (clamp(a).min(clamp(b)), clamp(a).max(clamp(b)));
                self.log.check_range(&self.ring, from, to);
            }
        }
    }

    fn check(&mut self) {
        let horizon = self.ring.horizon();
        assert!(
            horizon >= self.horizon && horizon <= self.allowed(),
            "{horizon} is more than {}",
            self.allowed()
        );
        self.horizon = horizon;
        assert_eq!(self.ring.head(), self.log.head());
        assert_eq!(self.writer.head(), self.log.head());
        assert_eq!(self.ring.boundary(), self.log.boundary());
        self.log.check_last(&self.ring);
        assert_eq!(self.ring.slowest_hold(), self.holds.iter().map(|&(_, at)| at).min());
        if let Some((hold, at)) = self.holds.iter().min_by_key(|(_, at)| *at)
            && *at <= self.log.head()
        {
            let hole = self.log.gaps.iter().find(|&&(_, to)| to > *at);
            let end = hole.map_or(self.log.head(), |&(from, _)| from.max(*at));
            self.log.check_range(&self.ring, *at, end);
            let view = self.ring.view(*at, end);
            // SAFETY: the hold does not move before the comparison of the slice.
            let held = unsafe { view.held(hold) };
            assert_eq!(held, Some(self.log.range(*at, end)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_plain_log(
        start in starts(),
        retain in prop_oneof![Just(None), (0..3000u64).prop_map(Some)],
        max_delivery in 16u64..1000,
        // With the larger scale a claim can be longer than the writer's reach (see `trim`).
        (scale, steps) in prop_oneof![Just(1u64), Just(16)].prop_flat_map(|scale| (Just(scale), steps(scale))),
    ) {
        let config = RingConfig {
            capacity_bytes: 8192 * scale,
            retain_bytes: retain.map(|retain| retain * scale),
            max_delivery_bytes: Some(max_delivery * scale),
            flow_control: true,
            start,
        };
        let mut machine = Machine::new(config);
        for step in steps {
            machine.apply(step);
            machine.check();
        }
    }
}

fn small() -> Ring {
    ring(RingConfig { capacity_bytes: 4096, ..RingConfig::default() })
}

#[test]
fn only_one_writing_end_is_handed_out() {
    let ring = small();
    let writer = ring.writer();
    assert!(writer.is_some() && ring.writer().is_none() && ring.receiver().is_none());
    drop(writer);
    assert!(ring.writer().is_none());
}

#[test]
fn a_foreign_or_overlong_delivery_gives_the_claim_back() {
    let (mut one, mut other) = (small().writer().unwrap(), small().writer().unwrap());
    let claim = one.claim(10).unwrap();
    let Err(DeliverError::Foreign(claim)) = other.deliver(claim, 10) else {
        panic!("taken by another writer")
    };
    let Err(DeliverError::TooLong(claim)) = one.deliver(claim, 11) else { panic!("longer than claimed") };
    assert_eq!(one.deliver(claim, 10).unwrap().to, 10);
}

#[test]
fn a_full_writer_gets_an_error_until_a_grant() {
    let ring = small();
    let hold = ring.hold(0).unwrap();
    let mut writer = ring.writer().unwrap();
    while writer.append(&[&[7; 512]]).is_ok() {}
    assert_eq!(ring.head(), 4096);
    assert!(ring.writer_waits());
    hold.advance(100);
    assert!(ring.writer_waits(), "100 bytes are not what it wanted");
    hold.advance(512);
    assert!(!ring.writer_waits());
    writer.append(&[&[8; 512]]).unwrap();
}

#[test]
fn waiting_ends_with_a_grant_a_poke_or_the_time() {
    use std::time::Duration;
    let ring = small();
    let hold = ring.hold(0).unwrap();
    let mut writer = ring.writer().unwrap();
    while writer.append(&[&[7; 512]]).is_ok() {}
    assert!(!ring.wait_grant(4097, Some(Duration::from_millis(1))));
    ring.wake_waiters();
    assert!(!ring.wait_grant(4097, None), "a poke before the wait counts");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| ring.wait_grant(5000, None));
        hold.advance(1000);
        assert!(waiter.join().unwrap());
        let waiter = scope.spawn(|| ring.wait_grant(6000, None));
        drop(hold);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn a_claim_lost_between_others_is_reported() {
    let mut writer = small().writer().unwrap();
    let lost = writer.claim(10).unwrap();
    let later = writer.claim(10).unwrap();
    drop(lost);
    assert_eq!(writer.claim(10).unwrap_err(), ClaimError::ClaimLost { from: 0 });
    assert_eq!(writer.append(&[b"x"]).unwrap_err(), ClaimError::ClaimLost { from: 0 });
    assert_eq!(writer.deliver(later, 0).unwrap().to, 10);
    assert_eq!(writer.append(&[b"x"]), Ok(1), "once it is the newest it is given back");
}
