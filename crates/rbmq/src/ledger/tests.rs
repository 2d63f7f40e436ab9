//! What is confirmed, against plain sets of positions and subscribers that each know what they have.

use proptest::prelude::*;
use rocketbufs::MAX_COVERAGE_PARTS;

use super::*;

fn count(receivers: u32, left: u32) -> Coverage {
    Coverage { receivers, left, ..Coverage::default() }
}

#[test]
fn a_new_broker_leaves_a_hole_only_where_nobody_has_it() {
    let mut ledger = Ledger::default();
    ledger.progress([100, 60, 40], count(2, 0));
    ledger.begins_at(50);
    assert_eq!(Level::ALL.map(|level| ledger.hole(level)), [None; 3], "they will consume what they have");
    ledger.begins_at(70);
    assert_eq!(Level::ALL.map(|level| ledger.hole(level)), [None, Some((60, 70)), Some((60, 70))]);
    // The new one says that all of it is delivered and consumed, by nobody.
    ledger.progress([120, 120, 120], count(0, 2));
    assert_eq!(Level::ALL.map(|level| ledger.reached(level)), [120, 60, 60]);
    assert_eq!(ledger.outcome(Level::Consumed, 61), Some(Err((60, 70))));
    assert!(matches!(ledger.outcome(Level::Consumed, 60), Some(Ok(_))));
    assert_eq!(Level::ALL.map(|level| ledger.accept(level)), [None, Some((60, 70)), Some((60, 70))]);
    ledger.progress([120, 120, 120], count(0, 2));
    ledger.progress([130, 130, 130], count(1, 2));
    let confirmed = ledger.outcome(Level::Consumed, 130).unwrap().unwrap();
    assert_eq!((confirmed.subscribers, confirmed.left), (1, 0));
    // Of what had been accepted before they went it is said that they did.
    let early = ledger.outcome(Level::Delivered, 90).unwrap().unwrap();
    assert_eq!((early.subscribers, early.left), (0, 2));
    // Nor did anybody new have what was confirmed for those.
    let earliest = ledger.outcome(Level::Delivered, 60).unwrap().unwrap();
    assert_eq!((earliest.subscribers, earliest.left), (2, 2));
}

#[test]
fn what_is_told_before_a_loss_is_accepted_counts_when_it_is() {
    let mut ledger = Ledger::default();
    ledger.progress([90, 60, 40], count(1, 0));
    ledger.begins_at(100);
    // All of it, and so it has nothing more to tell.
    ledger.progress([130, 120, 110], count(2, 0));
    assert_eq!(Level::ALL.map(|level| ledger.reached(level)), [90, 60, 60]);
    let lost = Level::ALL.map(|level| ledger.accept(level));
    assert_eq!(lost, [Some((90, 100)), Some((60, 100)), Some((60, 100))]);
    assert_eq!(Level::ALL.map(|level| ledger.reached(level)), [130, 120, 110]);
    for (position, subscribers) in [(100, 0), (110, 2)] {
        let confirmed = ledger.outcome(Level::Consumed, position).unwrap().unwrap();
        assert_eq!(confirmed.subscribers, subscribers, "at {position}");
    }
    // What one broker told is nothing that the next one has.
    ledger.begins_at(140);
    ledger.accept(Level::Delivered);
    assert_eq!(ledger.reached(Level::Delivered), 140);
}

#[test]
fn what_too_few_have_is_a_loss() {
    let mut ledger = Ledger::new(1);
    ledger.progress([100, 60, 40], count(1, 0));
    // The only one went, and the next began behind everything.
    ledger.progress([200, 200, 200], Coverage { covered_from: 200, ..count(1, 1) });
    let few = [None, Some((0, 1)), Some((0, 1))];
    assert_eq!(Level::ALL.map(|level| ledger.too_few(level)), few);
    assert_eq!(Level::ALL.map(|level| ledger.hole(level)), [None, Some((60, 200)), Some((40, 200))]);
    assert_eq!(ledger.outcome(Level::Delivered, 61), Some(Err((60, 200))));
    // Positions are cumulative: nothing beyond is confirmed either, before that is known.
    ledger.progress([300, 300, 200], Coverage { covered_from: 200, ..count(1, 1) });
    assert_eq!(ledger.outcome(Level::Delivered, 300), Some(Err((60, 200))));
    assert_eq!(ledger.accept(Level::Delivered), Some((60, 200)));
    assert_eq!(ledger.outcome(Level::Delivered, 300).unwrap().unwrap().subscribers, 1);
    assert_eq!(ledger.too_few(Level::Delivered), None);
    // A broker that dies with more of it makes it a loss like any other.
    ledger.begins_at(350);
    assert_eq!((ledger.hole(Level::Consumed), ledger.too_few(Level::Consumed)), (Some((40, 350)), None));
}

#[derive(Debug, Clone)]
enum Step {
    Progress([u64; 3], u32),
    Begin(u64),
    Lost(u64, u64),
    Accept(Level),
}

fn step() -> impl Strategy<Value = Step> {
    let level = proptest::sample::select(vec![Level::Accepted, Level::Delivered, Level::Consumed]);
    prop_oneof![
        4 => (any::<[u8; 3]>(), 0..3_u32).prop_map(|(at, left)| Step::Progress(at.map(u64::from), left)),
        1 => any::<u8>().prop_map(|at| Step::Begin(at.into())),
        1 => any::<(u8, u8)>().prop_map(|(a, b)| Step::Lost(a.min(b).into(), a.max(b).into())),
        1 => level.prop_map(Step::Accept),
    ]
}

proptest! {
    /// Against plain sets of positions: those confirmed or given up, and those lost.
    #[test]
    fn positions_never_go_back_and_never_pass_a_loss(steps in proptest::collection::vec(step(), 0..40)) {
        let mut ledger = Ledger::default();
        let mut left = 0;
        // By level: which of the 256 positions are lost and not accepted as such.
        let mut lost = [[false; 256]; 3];
        for step in steps {
            let before = ledger.reached;
            match step {
                Step::Progress(at, gone) => {
                    left += gone;
                    ledger.progress(at, count(1, left));
                }
                Step::Begin(start) => {
                    ledger.begins_at(start);
                    for (n, lost) in lost.iter_mut().enumerate() {
                        let from = if n == 2 { before[1].max(before[2]) } else { before[n] };
                        (from..start).for_each(|at| lost[at as usize] = true);
                    }
                }
                Step::Lost(from, to) => {
                    ledger.lost(from, to);
                    for (n, lost) in lost.iter_mut().enumerate() {
                        (from.max(before[n])..to).for_each(|at| lost[at as usize] = true);
                    }
                }
                Step::Accept(level) => {
                    ledger.accept(level);
                    lost[level as usize] = [false; 256];
                }
            }
            for (n, level) in [Level::Accepted, Level::Delivered, Level::Consumed].into_iter().enumerate() {
                let reached = ledger.reached(level);
                prop_assert!(reached >= before[n]);
                prop_assert!(!lost[n][..reached as usize].iter().any(|lost| *lost));
                let any_lost = lost[n].iter().any(|lost| *lost);
                prop_assert_eq!(ledger.hole(level).is_some(), any_lost);
                prop_assert_eq!(ledger.outcome(level, reached + 1).is_some(), any_lost);
            }
            prop_assert!(ledger.changes.len() <= MOST_CHANGES);
            prop_assert!(ledger.spoke.iter().all(|spoke| spoke.len() <= MOST_CHANGES));
        }
    }

    /// Against subscribers that each know what they have: nothing is said to be with more of them than have it.
    #[test]
    fn a_confirmation_speaks_for_no_more_than_have_it(
        steps in proptest::collection::vec((0..9_u8, any::<u8>(), any::<u8>()), 1..120),
    ) {
        let mut model = Model::default();
        for (what, who, n) in steps {
            model.step(what, who.into(), n.into());
            model.check();
        }
    }

    /// Where nobody goes and brokers live.
    #[test]
    fn one_subscriber_that_loses_again_and_again_is_one(
        early in 1..4_u8,
        steps in proptest::collection::vec((0..9_u8, any::<u8>(), any::<u8>()), 1..120),
    ) {
        let mut model = Model { ledger: Ledger::new(early.into()), ..Model::default() };
        (0..early).for_each(|_| model.step(1, 0, 0));
        model.tell();
        for (what, who, n) in steps {
            match what {
                4 | 6 | 7 => continue,
                // Of more positions than that not all are told.
                1 if model.readers.len() > MAX_COVERAGE_PARTS => continue,
                5 if !model.drops(who.into()) => continue,
                _ => model.step(what, who.into(), n.into()),
            }
            model.check();
            model.check_those_who_block();
            prop_assert!(model.ledger.holes.iter().all(Option::is_none));
        }
    }
}

/// A subscriber: where it began, what it lost, how far it has everything else, and how far it gave that back.
#[derive(Debug, Clone, Default)]
struct Reader {
    /// It drops what it is too slow for.
    drops: bool,
    began: u64,
    /// How far everything was confirmed when it came.
    behind: [u64; 2],
    lost: Vec<(u64, u64)>,
    at: [u64; 2],
    here: bool,
}

impl Reader {
    fn since(&self) -> u64 {
        self.lost.last().map_or(self.began, |last| last.1)
    }

    fn has(&self, n: usize, at: u64) -> bool {
        at >= self.began && at < self.at[n] && !self.lost.iter().any(|(from, to)| (*from..*to).contains(&at))
    }
}

/// A broker that tells the ledger now and then.
#[derive(Debug, Default)]
struct Model {
    ledger: Ledger,
    readers: Vec<Reader>,
    head: u64,
    count: Coverage,
}

impl Model {
    fn step(&mut self, what: u8, who: usize, n: u64) {
        let (all, head) = (self.readers.len(), self.head);
        let some = who.checked_rem(all).unwrap_or(0);
        let reader = self.readers.get_mut(some).filter(|reader| reader.here);
        match (what, reader) {
            (0, _) => self.head += n,
            // Some begin with what is there already.
            (1, _) if all < 6 => {
                let began = head - head.min(n / 8);
                let behind = [Level::Delivered, Level::Consumed].map(|level| self.ledger.reached(level));
                let reader = Reader { began, behind, at: [began; 2], here: true, ..Reader::default() };
                self.readers.push(Reader { drops: !who.is_multiple_of(2), ..reader });
            }
            (2 | 3, Some(reader)) => {
                reader.at[0] = head.min(reader.at[0] + n);
                reader.at[1] = reader.at[0].min(reader.at[1] + who as u64);
            }
            (4, Some(reader)) if n < 40 => {
                reader.here = false;
                self.count.left += 1;
            }
            (5, Some(reader)) if reader.at[0] < head => {
                reader.lost.push((reader.at[0], head));
                reader.at = [head; 2];
                self.count.lost += 1;
            }
            // The broker dies. The next one has only some of the subscribers, and begins behind a part.
            (6, _) if n < 40 => {
                let start = head.min(self.ledger.reached(Level::Consumed) + n);
                self.count = Coverage::default();
                self.readers.iter_mut().skip(some).for_each(|reader| reader.here = false);
                for reader in self.readers.iter_mut().filter(|reader| reader.at[0] < start) {
                    reader.lost.push((reader.at[0], start));
                    reader.at = [start; 2];
                }
                self.ledger.begins_at(start);
            }
            (7, _) => drop(self.ledger.accept(Level::ALL[who % 3])),
            _ => self.tell(),
        }
    }

    fn drops(&self, who: usize) -> bool {
        who.checked_rem(self.readers.len()).is_some_and(|some| self.readers[some].drops)
    }

    fn tell(&mut self) {
        let here = || self.readers.iter().filter(|reader| reader.here);
        let least = |n: usize| here().map(|reader| reader.at[n]).min().unwrap_or(self.head);
        let told = [self.head, least(0), least(1)];
        let one = |reader: &Reader| Coverage { covered_from: reader.since(), ..Coverage::ONE };
        self.ledger.progress(told, here().map(one).fold(self.count, Coverage::and));
    }

    /// Those who never lose anything count, whatever others lose.
    fn check_those_who_block(&self) {
        for (n, level) in [(0, Level::Delivered), (1, Level::Consumed)] {
            for position in 1..=self.ledger.reached(level) {
                let came = |reader: &&Reader| !reader.drops && position > reader.behind[n];
                let blocks = |reader: &&Reader| came(reader) && reader.has(n, position - 1);
                let least = self.readers.iter().filter(blocks).count() as u32;
                let outcome = self.ledger.outcome(level, position);
                let Some(Ok(confirmed)) = outcome else { panic!("{level} {position}: {outcome:?}") };
                assert!(
                    confirmed.subscribers >= least,
                    "{confirmed:?} of {position}, {least} have it and lost nothing: {self:?}"
                );
            }
        }
    }

    fn check(&self) {
        for (n, level) in [(0, Level::Delivered), (1, Level::Consumed)] {
            for position in 1..=self.ledger.reached(level) {
                let with = self.readers.iter().filter(|reader| reader.has(n, position - 1)).count() as u32;
                let outcome = self.ledger.outcome(level, position);
                let Some(Ok(confirmed)) = outcome else { panic!("{level} {position}: {outcome:?}") };
                let most = with + confirmed.left;
                assert!(
                    confirmed.subscribers <= most,
                    "{confirmed:?} of {position}, {with} have it: {self:?}"
                );
            }
        }
    }
}
