//! Compares the tracker with plain sets of positions, and with subscribers that each know the ranges they have.

use proptest::prelude::*;
use rocketbufs::relay::MAX_COVERAGE_PARTS;

use super::*;

/// The levels of subscribers.
const SUBSCRIBERS: [ConfirmLevel; REPORTED] =
    [ConfirmLevel::Accepted, ConfirmLevel::Delivered, ConfirmLevel::Consumed];

fn count(receivers: u32, left: u32) -> Coverage {
    Coverage { receivers, left, ..Coverage::default() }
}

#[test]
fn what_a_kept_topic_has_in_its_file_is_not_lost_with_the_broker() {
    for told_first in [true, false] {
        let mut tracker = ConfirmTracker::new(0);
        tracker.on_progress([100, 80, 80], Coverage::ONE);
        if told_first {
            tracker.on_stored([150, 0, 0]);
        }
        tracker.on_new_broker(150);
        tracker.on_stored([150, 0, 0]);
        for level in SUBSCRIBERS {
            assert_eq!(tracker.outcome(level, 150), None, "{level} is open, and not lost");
        }
        tracker.on_progress([200, 150, 150], Coverage::ONE);
        assert_eq!([200, 150, 150], SUBSCRIBERS.map(|level| tracker.confirmed(level)));
        assert_eq!(tracker.confirmed(ConfirmLevel::Stored), 150);
        // A broker that begins behind its predecessor's file has lost the rest.
        tracker.on_new_broker(300);
        assert_eq!(tracker.outcome(ConfirmLevel::Accepted, 300), Some(Err((200, 300))));
        // The file of its successor says nothing about that loss.
        tracker.settle();
        tracker.on_stored([400, 0, 0]);
        assert_eq!(tracker.outcome(ConfirmLevel::Accepted, 300), Some(Err((200, 300))));
        assert_eq!(tracker.outcome(ConfirmLevel::Stored, 300), Some(Err((150, 300))));
        assert_eq!(tracker.accept_lost(ConfirmLevel::Stored), Some((150, 300)));
        assert_eq!(tracker.confirmed(ConfirmLevel::Stored), 400);
    }
}

#[test]
fn the_levels_of_the_disk_count_no_subscribers() {
    let mut tracker = ConfirmTracker::new(2);
    tracker.on_progress([100, 0, 0], count(1, 3));
    tracker.on_disk([90, 120, 95]);
    let confirmed = tracker.outcome(ConfirmLevel::Synced, 50).unwrap().unwrap();
    assert_eq!(
        (confirmed.position, confirmed.subscribers, confirmed.left),
        (90, 0, 0),
        "no more than is stored"
    );
    tracker.on_disk([80, 70, 60]);
    assert_eq!(tracker.confirmed(ConfirmLevel::Stored), 90, "a position never goes back");
    assert_eq!(tracker.confirmed(ConfirmLevel::Accepted), 100);
}

#[test]
fn a_new_broker_leaves_a_hole_only_for_lost_bytes() {
    let mut tracker = ConfirmTracker::default();
    tracker.on_progress([100, 60, 40], count(2, 0));
    tracker.on_new_broker(50);
    assert_eq!(
        SUBSCRIBERS.map(|level| tracker.lost_range(level)),
        [None; 3],
        "subscribers will consume their records"
    );
    tracker.on_new_broker(70);
    assert_eq!(SUBSCRIBERS.map(|level| tracker.lost_range(level)), [None, Some((60, 70)), Some((60, 70))]);
    // The new broker reports everything as delivered and consumed, for no subscriber.
    tracker.on_progress([120, 120, 120], count(0, 2));
    assert_eq!(SUBSCRIBERS.map(|level| tracker.confirmed(level)), [120, 60, 60]);
    assert_eq!(tracker.outcome(ConfirmLevel::Consumed, 61), Some(Err((60, 70))));
    assert!(matches!(tracker.outcome(ConfirmLevel::Consumed, 60), Some(Ok(_))));
    assert_eq!(SUBSCRIBERS.map(|level| tracker.accept_lost(level)), [None, Some((60, 70)), Some((60, 70))]);
    tracker.on_progress([120, 120, 120], count(0, 2));
    tracker.on_progress([130, 130, 130], count(1, 2));
    let confirmed = tracker.outcome(ConfirmLevel::Consumed, 130).unwrap().unwrap();
    assert_eq!((confirmed.subscribers, confirmed.left), (1, 0));
    // The confirmation of records that were accepted before the departures reports them.
    let early = tracker.outcome(ConfirmLevel::Delivered, 90).unwrap().unwrap();
    assert_eq!((early.subscribers, early.left), (0, 2));
    // No later subscriber has the records that were confirmed for the first two.
    let earliest = tracker.outcome(ConfirmLevel::Delivered, 60).unwrap().unwrap();
    assert_eq!((earliest.subscribers, earliest.left), (2, 2));
}

#[test]
fn reports_before_a_loss_is_accepted_count_afterwards() {
    let mut tracker = ConfirmTracker::default();
    tracker.on_progress([90, 60, 40], count(1, 0));
    tracker.on_new_broker(100);
    // The broker reports everything at once, and will not repeat it.
    tracker.on_progress([130, 120, 110], count(2, 0));
    assert_eq!(SUBSCRIBERS.map(|level| tracker.confirmed(level)), [90, 60, 60]);
    let lost = SUBSCRIBERS.map(|level| tracker.accept_lost(level));
    assert_eq!(lost, [Some((90, 100)), Some((60, 100)), Some((60, 100))]);
    assert_eq!(SUBSCRIBERS.map(|level| tracker.confirmed(level)), [130, 120, 110]);
    for (position, subscribers) in [(100, 0), (110, 2)] {
        let confirmed = tracker.outcome(ConfirmLevel::Consumed, position).unwrap().unwrap();
        assert_eq!(confirmed.subscribers, subscribers, "at {position}");
    }
    // The reports of one broker say nothing about its successor.
    tracker.on_new_broker(140);
    tracker.accept_lost(ConfirmLevel::Delivered);
    assert_eq!(tracker.confirmed(ConfirmLevel::Delivered), 140);
}

#[test]
fn a_range_of_too_few_subscribers_is_lost() {
    let mut tracker = ConfirmTracker::new(1);
    tracker.on_progress([100, 60, 40], count(1, 0));
    // The only subscriber left, and the next one began behind everything.
    tracker.on_progress([200, 200, 200], Coverage { covered_from: 200, ..count(1, 1) });
    let few = [None, Some((0, 1)), Some((0, 1))];
    assert_eq!(SUBSCRIBERS.map(|level| tracker.too_few(level)), few);
    assert_eq!(SUBSCRIBERS.map(|level| tracker.lost_range(level)), [None, Some((60, 200)), Some((40, 200))]);
    assert_eq!(tracker.outcome(ConfirmLevel::Delivered, 61), Some(Err((60, 200))));
    // Positions are cumulative: nothing beyond the loss is confirmed before the application accepts it.
    tracker.on_progress([300, 300, 200], Coverage { covered_from: 200, ..count(1, 1) });
    assert_eq!(tracker.outcome(ConfirmLevel::Delivered, 300), Some(Err((60, 200))));
    assert_eq!(tracker.accept_lost(ConfirmLevel::Delivered), Some((60, 200)));
    assert_eq!(tracker.outcome(ConfirmLevel::Delivered, 300).unwrap().unwrap().subscribers, 1);
    assert_eq!(tracker.too_few(ConfirmLevel::Delivered), None);
    // A broker that dies with more of the range makes it an ordinary loss.
    tracker.on_new_broker(350);
    assert_eq!(
        (tracker.lost_range(ConfirmLevel::Consumed), tracker.too_few(ConfirmLevel::Consumed)),
        (Some((40, 350)), None)
    );
}

#[derive(Debug, Clone)]
enum Step {
    Progress([u64; 3], u32),
    Disk([u64; 3]),
    /// A broker that begins at its first position, and has so much in its file.
    Begin(u64, Option<u64>),
    Lost(u64, u64),
    Accept(ConfirmLevel),
}

fn step() -> impl Strategy<Value = Step> {
    let level = proptest::sample::select(ConfirmLevel::ALL.to_vec());
    let (two, three) = (any::<[u8; 2]>(), any::<[u8; 3]>());
    prop_oneof![
        4 => (any::<[u8; 3]>(), 0..3_u32).prop_map(|(at, left)| Step::Progress(at.map(u64::from), left)),
        3 => three.prop_map(|at| Step::Disk(at.map(u64::from))),
        1 => any::<(u8, bool, u8)>().prop_map(|(at, kept, stored)| Step::Begin(at.into(), kept.then_some(stored.into()))),
        1 => two.prop_map(|at| at.map(u64::from)).prop_map(|[a, b]| Step::Lost(a.min(b), a.max(b))),
        1 => level.prop_map(Step::Accept),
    ]
}

/// It gives the topic away before it has taken it.
#[test]
fn a_broker_that_begins_says_what_is_on_its_disk() {
    let mut tracker = ConfirmTracker::new(0);
    tracker.on_stored([150, 140, 0]);
    assert_eq!(tracker.confirmed(ConfirmLevel::Synced), 140);
}

/// What another broker has in its file is not lost with its process. Nobody says that it is on its disk, or in its archive.
#[test]
fn the_file_of_another_broker_is_on_no_disk_and_in_no_archive() {
    for kept in [None, Some(100)] {
        let mut tracker = ConfirmTracker::new(0);
        tracker.on_naming();
        tracker.on_stored([100, 0, 0]);
        tracker.on_new_broker(100);
        tracker.on_naming();
        kept.into_iter().for_each(|stored| tracker.on_stored([stored, 0, 0]));
        tracker.on_new_broker(100);
        tracker.on_disk([150, 150, 150]);
        let lost = Some((0, 100)).filter(|_| kept.is_none());
        assert_eq!(tracker.lost_range(ConfirmLevel::Stored), None);
        for level in [ConfirmLevel::Synced, ConfirmLevel::Archived] {
            assert_eq!(tracker.lost_range(level), lost, "{level}, {kept:?}");
        }
    }
}

/// A broker begins at `start`, with so much in its file, which it tells before or after. Returns what was confirmed before.
fn begin(
    tracker: &mut ConfirmTracker,
    start: Position,
    kept: Option<Position>,
    told_first: bool,
) -> [Position; LEVELS] {
    // The broker is another one, so what it has in its file is no part of earlier losses.
    tracker.on_naming();
    let (first, then) = if told_first { (kept, None) } else { (None, kept) };
    first.into_iter().for_each(|stored| tracker.on_stored([stored, 0, 0]));
    let reached = tracker.confirmed;
    tracker.on_new_broker(start);
    then.into_iter().for_each(|stored| tracker.on_stored([stored, 0, 0]));
    reached
}

proptest! {
    /// Compared with plain sets of positions: the confirmed or given up ones, and the lost ones.
    #[test]
    fn positions_never_go_back_and_never_pass_a_loss(steps in proptest::collection::vec(step(), 0..40)) {
        let mut tracker = ConfirmTracker::default();
        let (mut left, mut file) = (0, [0; LEVELS]);
        // For each level: the lost positions, of 256, whose loss was not accepted.
        let mut lost = [[false; 256]; LEVELS];
        for step in steps {
            let before = tracker.confirmed;
            match step {
                Step::Progress(at, gone) => {
                    left += gone;
                    tracker.on_progress(at, count(1, left));
                }
                Step::Disk(at) => tracker.on_disk(at),
                Step::Begin(start, kept) => {
                    let reached = begin(&mut tracker, start, kept, left % 2 == 0);
                    let here = kept.unwrap_or(0);
                    let any = file[0].max(here);
                    file = [any, any, any, any, here, here];
                    for (n, lost) in lost.iter_mut().enumerate() {
                        let from = if n == 2 { reached[1].max(reached[2]) } else { reached[n] };
                        (from.max(file[n])..start).for_each(|at| lost[at as usize] = true);
                    }
                }
                Step::Lost(from, to) => {
                    tracker.on_lost(from, to);
                    for (n, lost) in lost.iter_mut().enumerate() {
                        (from.max(before[n]).max(file[n])..to).for_each(|at| lost[at as usize] = true);
                    }
                }
                Step::Accept(level) => {
                    tracker.accept_lost(level);
                    lost[level as usize] = [false; 256];
                }
            }
            for (n, level) in ConfirmLevel::ALL.into_iter().enumerate() {
                let reached = tracker.confirmed(level);
                prop_assert!(reached >= before[n]);
                prop_assert!(!lost[n][..reached as usize].iter().any(|lost| *lost), "{level} up to {reached}");
                let any_lost = lost[n].iter().any(|lost| *lost);
                prop_assert_eq!(tracker.lost_range(level).is_some(), any_lost);
                prop_assert_eq!(tracker.outcome(level, reached + 1).is_some(), any_lost);
            }
            prop_assert!(tracker.departures.len() <= MAX_HISTORY);
            prop_assert!(tracker.counted.iter().all(|counted| counted.len() <= MAX_HISTORY));
        }
    }

    /// Compared with subscribers that each know their ranges: no confirmation counts more subscribers than have the records.
    #[test]
    fn a_confirmation_counts_no_more_subscribers_than_have_the_records(
        steps in proptest::collection::vec((0..9_u8, any::<u8>(), any::<u8>()), 1..120),
    ) {
        let mut model = Model::default();
        for (what, who, n) in steps {
            model.step(what, who.into(), n.into());
            model.check();
        }
    }

    /// Without departures and without deaths of brokers.
    #[test]
    fn a_subscriber_that_loses_again_and_again_counts_once(
        early in 1..4_u8,
        steps in proptest::collection::vec((0..9_u8, any::<u8>(), any::<u8>()), 1..120),
    ) {
        let mut model = Model { tracker: ConfirmTracker::new(early.into()), ..Model::default() };
        (0..early).for_each(|_| model.step(1, 0, 0));
        model.report();
        for (what, who, n) in steps {
            match what {
                4 | 6 | 7 => continue,
                // A coverage has room for no more parts.
                1 if model.readers.len() > MAX_COVERAGE_PARTS => continue,
                5 if !model.drops(who.into()) => continue,
                _ => model.step(what, who.into(), n.into()),
            }
            model.check();
            model.check_blocking_readers();
            prop_assert!(SUBSCRIBERS.iter().all(|level| model.tracker.lost_range(*level).is_none()));
        }
    }
}

/// A subscriber: its start, its losses, and the ends of the received and the consumed records.
#[derive(Debug, Clone, Default)]
struct Reader {
    /// Whether it has the policy `drop`.
    drops: bool,
    began: u64,
    /// The confirmed positions when it joined.
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

/// A broker that reports to the tracker now and then.
#[derive(Debug, Default)]
struct Model {
    tracker: ConfirmTracker,
    readers: Vec<Reader>,
    head: u64,
    coverage: Coverage,
}

impl Model {
    fn step(&mut self, what: u8, who: usize, n: u64) {
        let (all, head) = (self.readers.len(), self.head);
        let some = who.checked_rem(all).unwrap_or(0);
        let reader = self.readers.get_mut(some).filter(|reader| reader.here);
        match (what, reader) {
            (0, _) => self.head += n,
            // Some subscribers begin with earlier records.
            (1, _) if all < 6 => {
                let began = head - head.min(n / 8);
                let behind = [ConfirmLevel::Delivered, ConfirmLevel::Consumed]
                    .map(|level| self.tracker.confirmed(level));
                let reader = Reader { began, behind, at: [began; 2], here: true, ..Reader::default() };
                self.readers.push(Reader { drops: !who.is_multiple_of(2), ..reader });
            }
            (2 | 3, Some(reader)) => {
                reader.at[0] = head.min(reader.at[0] + n);
                reader.at[1] = reader.at[0].min(reader.at[1] + who as u64);
            }
            (4, Some(reader)) if n < 40 => {
                reader.here = false;
                self.coverage.left += 1;
            }
            (5, Some(reader)) if reader.at[0] < head => {
                reader.lost.push((reader.at[0], head));
                reader.at = [head; 2];
                self.coverage.lost += 1;
            }
            // The broker dies. Its successor has only some of the subscribers, and begins behind a part of the records.
            (6, _) if n < 40 => {
                let start = head.min(self.tracker.confirmed(ConfirmLevel::Consumed) + n);
                self.coverage = Coverage::default();
                self.readers.iter_mut().skip(some).for_each(|reader| reader.here = false);
                for reader in self.readers.iter_mut().filter(|reader| reader.at[0] < start) {
                    reader.lost.push((reader.at[0], start));
                    reader.at = [start; 2];
                }
                self.tracker.on_new_broker(start);
            }
            (7, _) => drop(self.tracker.accept_lost(SUBSCRIBERS[who % 3])),
            _ => self.report(),
        }
    }

    fn drops(&self, who: usize) -> bool {
        who.checked_rem(self.readers.len()).is_some_and(|some| self.readers[some].drops)
    }

    fn report(&mut self) {
        let here = || self.readers.iter().filter(|reader| reader.here);
        let least = |n: usize| here().map(|reader| reader.at[n]).min().unwrap_or(self.head);
        let told = [self.head, least(0), least(1)];
        let one = |reader: &Reader| Coverage { covered_from: reader.since(), ..Coverage::ONE };
        self.tracker.on_progress(told, here().map(one).fold(self.coverage, Coverage::and));
    }

    /// Subscribers without a loss count, whatever others lose.
    fn check_blocking_readers(&self) {
        for (n, level) in [(0, ConfirmLevel::Delivered), (1, ConfirmLevel::Consumed)] {
            for position in 1..=self.tracker.confirmed(level) {
                let came = |reader: &&Reader| !reader.drops && position > reader.behind[n];
                let blocks = |reader: &&Reader| came(reader) && reader.has(n, position - 1);
                let least = self.readers.iter().filter(blocks).count() as u32;
                let outcome = self.tracker.outcome(level, position);
                let Some(Ok(confirmed)) = outcome else { panic!("{level} {position}: {outcome:?}") };
                assert!(
                    confirmed.subscribers >= least,
                    "{confirmed:?} of {position}, {least} have it and lost nothing: {self:?}"
                );
            }
        }
    }

    fn check(&self) {
        for (n, level) in [(0, ConfirmLevel::Delivered), (1, ConfirmLevel::Consumed)] {
            for position in 1..=self.tracker.confirmed(level) {
                let with = self.readers.iter().filter(|reader| reader.has(n, position - 1)).count() as u32;
                let outcome = self.tracker.outcome(level, position);
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
