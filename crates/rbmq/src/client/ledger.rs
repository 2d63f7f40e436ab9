//! What is confirmed of one topic, at each level: positions that never go back, and what was lost before it was.
//!
//! ```text
//!      consumed        delivered       accepted        published
//!  ───────┼───────────────┼───────────────┼───────────────┼──▶
//!                         └── lost ──┤ a broker died: what it took and nobody got, and is not here any more, is a hole;
//!                                      beyond it this level confirms nothing until the application has been told
//! ```

use std::collections::VecDeque;

use rocketbufs::{Count, Position};

use super::confirm::{Confirmed, Level};

/// Changes of the counts that are remembered, to tell for whom a position was confirmed and who left since it was accepted.
const MOST_CHANGES: usize = 64;

/// A range that is lost before it was confirmed.
pub(super) type Hole = (Position, Position);

/// Who had gone and lost something when everything up to a position was accepted.
#[derive(Debug, Clone, Copy)]
struct Change {
    accepted: Position,
    left: u32,
    lost: u32,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    reached: [Position; 3],
    /// What the broker has told, a level that a loss keeps from going on included: it does not tell that again.
    told: [Position; 3],
    holes: [Option<Hole>; 3],
    /// For how many subscribers at least a position is to be delivered and consumed.
    least: u32,
    /// Why there is a hole: so few have it, and not that a broker died with it.
    few: [Option<u32>; 3],
    count: Count,
    changes: VecDeque<Change>,
    spoke: [VecDeque<Spoke>; 3],
    /// What lies below where somebody came, or goes on behind a loss, is confirmed for no more than were there before.
    fewer: VecDeque<Spoke>,
}

/// For how many subscribers everything up to a position is confirmed, from where the one before it ends.
#[derive(Debug, Clone, Copy)]
struct Spoke {
    to: Position,
    subscribers: u32,
}

impl Ledger {
    /// Nothing is known yet. What is delivered to fewer than `least` subscribers is a loss.
    pub(super) fn new(least: u32) -> Self {
        Self { least, ..Self::default() }
    }

    /// The broker told how far it is, and for how many subscribers that speaks.
    pub(super) fn progress(&mut self, told: [Position; 3], count: Count) {
        self.hear(count);
        for (n, told) in told.into_iter().enumerate() {
            self.told[n] = self.told[n].max(told);
            let most = self.holes[n].map_or(Position::MAX, |(from, _)| from);
            let reached = told.min(most);
            if reached > self.reached[n] {
                self.speak_up_to(n, reached, count.receivers);
            }
        }
        let known = self.changes.back().map_or((0, 0), |last| (last.left, last.lost));
        if known != (count.left, count.lost) {
            // What a broker that died had accepted is being taken again, and had been accepted all the same.
            let accepted = told[0].max(self.reached[0]);
            self.changes.push_back(Change { accepted, left: count.left, lost: count.lost });
            if self.changes.len() > MOST_CHANGES {
                self.changes.pop_front();
            }
        }
    }

    /// The broker told for how many subscribers it speaks from now on.
    fn hear(&mut self, count: Count) {
        let before = std::mem::replace(&mut self.count, count);
        let (left, lost) = (count.left.saturating_sub(before.left), count.lost.saturating_sub(before.lost));
        let gone = left.saturating_add(lost);
        for fewer in &mut self.fewer {
            fewer.subscribers = fewer.subscribers.saturating_sub(gone);
        }
        if count.since > before.since {
            let subscribers = before.receivers.saturating_sub(gone);
            push(&mut self.fewer, Spoke { to: count.since, subscribers });
        }
        // A level may be behind those below it while it waits for a loss to be accepted.
        let least = self.reached.into_iter().min();
        self.fewer.retain(|fewer| Some(fewer.to) > least);
    }

    /// A level reaches a position: for all the subscribers that the broker speaks for, or for those who were there. It
    /// stops where those are too few.
    fn speak_up_to(&mut self, n: usize, reached: Position, subscribers: u32) {
        while self.reached[n] < reached {
            let from = self.reached[n];
            let below = self.fewer.iter().filter(|fewer| fewer.to > from);
            let (to, most) = below.fold((reached, subscribers), |(to, most), fewer| {
                (to.min(fewer.to), most.min(fewer.subscribers))
            });
            if n > 0 && most < self.least {
                (self.holes[n], self.few[n]) = (Some((from, to)), Some(most));
                return;
            }
            self.reached[n] = to;
            speak(&mut self.spoke[n], Spoke { to, subscribers: most });
        }
    }

    /// A broker that has nothing of the topic takes it from `start` on: what the one before took and what was not
    /// confirmed by then will never be.
    pub(super) fn begins_at(&mut self, start: Position) {
        let [accepted, delivered, consumed] = self.reached;
        // It has spoken for nobody yet, and of nothing.
        self.told = [0; 3];
        self.count = Count { receivers: 0, since: 0, ..self.count };
        // What was delivered is not lost: those who have it will consume it. (A broker may tell nonsense.)
        for (n, reached) in [accepted, delivered, delivered.max(consumed)].into_iter().enumerate() {
            self.lose(n, reached, start);
        }
    }

    /// The broker will never have this range.
    pub(super) fn lost(&mut self, from: Position, to: Position) {
        for (n, reached) in self.reached.into_iter().enumerate() {
            self.lose(n, from.max(reached), to);
        }
    }

    fn lose(&mut self, n: usize, from: Position, to: Position) {
        let before = self.holes[n];
        if to > from {
            self.holes[n] = Some(before.map_or((from, to), |(first, last)| (first.min(from), last.max(to))));
        }
        if self.holes[n] != before {
            self.few[n] = None;
        }
    }

    /// Everything below is confirmed.
    pub(super) fn reached(&self, level: Level) -> Position {
        self.reached[level as usize]
    }

    /// What is lost at a level, and keeps it from going on.
    pub(super) fn hole(&self, level: Level) -> Option<Hole> {
        self.holes[level as usize]
    }

    /// How many have what is missing at a level, and how many must, if that is why it does.
    pub(super) fn too_few(&self, level: Level) -> Option<(u32, u32)> {
        self.few[level as usize].map(|subscribers| (subscribers, self.least))
    }

    /// The application knows of the loss: the level goes on behind it, with what was told of it meanwhile.
    pub(super) fn accept(&mut self, level: Level) -> Option<Hole> {
        let n = level as usize;
        let hole = self.holes[n].take()?;
        self.few[n] = None;
        self.reached[n] = self.reached(level).max(hole.1);
        speak(&mut self.spoke[n], Spoke { to: hole.1, subscribers: 0 });
        self.speak_up_to(n, self.told[n], self.count.receivers);
        Some(hole)
    }

    /// What can be said of a position now: confirmed, lost, or nothing yet.
    pub(super) fn outcome(&self, level: Level, position: Position) -> Option<Result<Confirmed, Hole>> {
        if self.reached(level) >= position {
            let (left, lost) = self.before(position);
            return Some(Ok(Confirmed {
                level,
                position: self.reached(level),
                subscribers: self.spoke_for(level, position),
                left: self.count.left.saturating_sub(left),
                lost: self.count.lost.saturating_sub(lost),
            }));
        }
        self.hole(level).map(Err)
    }

    /// For how many subscribers it was confirmed when it was.
    fn spoke_for(&self, level: Level, position: Position) -> u32 {
        let spoke = &self.spoke[level as usize];
        spoke.iter().find(|spoke| spoke.to >= position).map_or(0, |spoke| spoke.subscribers)
    }

    /// Who had gone and lost something before the position was accepted, as far as is known: too few rather than too
    /// many, so that of those who went later none is missing.
    fn before(&self, position: Position) -> (u32, u32) {
        let last = self.changes.iter().rev().find(|change| change.accepted < position);
        last.map_or((0, 0), |last| (last.left, last.lost))
    }
}

fn speak(all: &mut VecDeque<Spoke>, spoke: Spoke) {
    match all.back_mut() {
        Some(last) if last.subscribers == spoke.subscribers => last.to = spoke.to,
        _ => push(all, spoke),
    }
}

fn push(all: &mut VecDeque<Spoke>, spoke: Spoke) {
    all.push_back(spoke);
    if all.len() > MOST_CHANGES
        && let Some(first) = all.pop_front()
        && let Some(next) = all.front_mut()
    {
        // What is not known any more counts for no more than is known.
        *next = Spoke { to: next.to.max(first.to), subscribers: next.subscribers.min(first.subscribers) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count(receivers: u32, left: u32) -> Count {
        Count { receivers, left, ..Count::default() }
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
        ledger.progress([200, 200, 200], Count { since: 200, ..count(1, 1) });
        let few = [None, Some((0, 1)), Some((0, 1))];
        assert_eq!(Level::ALL.map(|level| ledger.too_few(level)), few);
        assert_eq!(Level::ALL.map(|level| ledger.hole(level)), [None, Some((60, 200)), Some((40, 200))]);
        assert_eq!(ledger.outcome(Level::Delivered, 61), Some(Err((60, 200))));
        // Positions are cumulative: nothing beyond is confirmed either, before that is known.
        ledger.progress([300, 300, 200], Count { since: 200, ..count(1, 1) });
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
    }

    /// A subscriber: where it began, what it lost, how far it has everything else, and how far it gave that back.
    #[derive(Debug, Clone, Default)]
    struct Reader {
        began: u64,
        lost: Vec<(u64, u64)>,
        at: [u64; 2],
        here: bool,
    }

    impl Reader {
        fn since(&self) -> u64 {
            self.lost.last().map_or(self.began, |last| last.1)
        }

        fn has(&self, n: usize, at: u64) -> bool {
            at >= self.began
                && at < self.at[n]
                && !self.lost.iter().any(|(from, to)| (*from..*to).contains(&at))
        }
    }

    /// A broker that tells the ledger now and then.
    #[derive(Debug, Default)]
    struct Model {
        ledger: Ledger,
        readers: Vec<Reader>,
        head: u64,
        count: Count,
    }

    impl Model {
        fn step(&mut self, what: u8, who: usize, n: u64) {
            let (all, head) = (self.readers.len(), self.head);
            let some = who.checked_rem(all).unwrap_or(0);
            let reader = self.readers.get_mut(some).filter(|reader| reader.here);
            match (what, reader) {
                (0, _) => self.head += n,
                (1, _) if all < 6 => {
                    self.readers.push(Reader { began: head, at: [head; 2], lost: Vec::new(), here: true });
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
                    self.count = Count::default();
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

        fn tell(&mut self) {
            let here = || self.readers.iter().filter(|reader| reader.here);
            let least = |n: usize| here().map(|reader| reader.at[n]).min().unwrap_or(self.head);
            let told = [self.head, least(0), least(1)];
            let (receivers, since) = (here().count() as u32, here().map(Reader::since).max().unwrap_or(0));
            self.ledger.progress(told, Count { receivers, since, ..self.count });
        }

        fn check(&self) {
            for (n, level) in [(0, Level::Delivered), (1, Level::Consumed)] {
                for position in 1..=self.ledger.reached(level) {
                    let with =
                        self.readers.iter().filter(|reader| reader.has(n, position - 1)).count() as u32;
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
}
