//! The publishers' questions about the disk of a kept topic, and the answers. This module does no I/O.
//!
//! ```text
//!   log of the topic      ──┤A├──┤B├──┤A├──┤B├──▶                 a mark: once the topic's log is on the disk up to `at`,
//!                                 durable    ▲ at                  the publisher's log is synced up to `own`
//!   log of A              ───────┤synced├────┤own├──┤stored├──▶
//! ```
//!
//! A publisher asks for one position that is to be stored, and one that is to be synced. All its bytes that a turn has stored are one
//! answer, and so are all that a sync has brought to the disk. A publisher has at most one mark, so the memory does not grow with the
//! runs. A publisher that waits for the disk has the next sync begin at once: the questions that come meanwhile wait for one more.

use std::collections::{HashMap, VecDeque};

use rocketbufs::Position;

/// The state of the disk of a kept topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskState {
    /// The end of the topic's log in its file.
    pub(super) end: Position,
    /// The topic's log below is on the disk.
    pub(super) durable: Position,
    /// A sync failed, and the file was not written anew yet: its bytes above `durable` may be missing.
    pub(super) unsure: bool,
    /// Bytes that a disk lost after they were in the file.
    pub(super) lost: u64,
}

/// A message for a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskReport<'a> {
    /// Its log is in the file below the first position, and on the disk below the second.
    Stored(Position, Position),
    /// Its question has no answer any more: the disk lost a part of the topic's log.
    Lost,
    /// The disk has no room or fails, for this reason; none: it works again.
    Failure(Option<&'a str>),
}

/// The requests of a publisher.
#[derive(Debug, Default)]
struct Asked {
    /// The positions to be stored and to be synced; 0: none.
    wanted: [Position; 2],
    /// Its log is on the disk below.
    synced: Position,
    /// The end of the topic's log that is to be on the disk, and the position of its own log that is synced then.
    mark: Option<(Position, Position)>,
    /// The publisher is among those to look at.
    due: bool,
}

impl Asked {
    fn waits(&self) -> bool {
        self.wanted != [0; 2]
    }
}

/// The questions of all publishers of a topic.
#[derive(Debug, Default)]
pub(super) struct DiskQuestions {
    asked: HashMap<u32, Asked>,
    /// Publishers to look at.
    due: Vec<u32>,
    /// The marks, by the end of the topic's log.
    marks: VecDeque<(Position, u32)>,
    /// The failure that publishers know of.
    failure: Option<String>,
    /// The lost bytes that are known.
    lost: u64,
}

impl DiskQuestions {
    /// A publisher asks for the positions to be stored and to be synced; 0: none. They replace its last ones.
    pub(super) fn ask(&mut self, number: u32, wanted: [Position; 2]) {
        self.asked.entry(number).or_default().wanted = wanted;
        self.look_at(number);
    }

    /// More of a publisher's log was stored.
    pub(super) fn stored(&mut self, number: u32) {
        if !self.asked.is_empty() {
            self.look_at(number);
        }
    }

    /// A publisher is removed.
    pub(super) fn remove(&mut self, number: u32) {
        self.asked.remove(&number);
    }

    /// All publishers are removed.
    pub(super) fn clear(&mut self) {
        *self = Self { lost: self.lost, ..Self::default() };
    }

    fn look_at(&mut self, number: u32) {
        if let Some(asked) = self.asked.get_mut(&number)
            && asked.waits()
            && !std::mem::replace(&mut asked.due, true)
        {
            self.due.push(number);
        }
    }

    /// Whether the disk may have an answer: a publisher waits for a sync, or for a disk that failed.
    pub(super) fn is_watching(&self) -> bool {
        !self.marks.is_empty() || !self.due.is_empty()
    }

    /// The failure that publishers know of.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Compares the failure of the disk with the one that publishers know of. Returns whether they are to be told.
    pub(super) fn has_other_failure(&mut self, failure: Option<&str>) -> bool {
        let other = self.failure() != failure;
        if other {
            self.failure = failure.map(str::to_owned);
        }
        other
    }

    /// Whether a disk has lost bytes since the last call.
    pub(super) fn has_lost(&mut self, now: DiskState) -> bool {
        std::mem::replace(&mut self.lost, now.lost) < now.lost
    }

    /// Answers the questions that can be answered. `stored` has the end of a publisher's log in the file; none if the log lost a part
    /// there that the question for a position is about. Returns whether a sync is to begin.
    pub(super) fn settle(
        &mut self,
        now: DiskState,
        stored: impl Fn(u32, Position) -> Option<Position>,
        mut tell: impl FnMut(u32, DiskReport<'_>),
    ) -> bool {
        self.take_marks(now.durable);
        if now.unsure {
            // The publishers stay due. They are looked at when the file is written anew.
            return false;
        }
        let mut wants_sync = false;
        let mut due = std::mem::take(&mut self.due);
        for number in due.drain(..) {
            let Some(asked) = self.asked.get_mut(&number) else { continue };
            asked.due = false;
            let Some(first) = asked.wanted.into_iter().filter(|wanted| *wanted > 0).min() else { continue };
            let Some(stored) = stored(number, first) else {
                self.asked.remove(&number);
                tell(number, DiskReport::Lost);
                continue;
            };
            let [_, to_sync] = asked.wanted;
            if to_sync > asked.synced && stored >= to_sync && asked.mark.is_none() {
                if now.durable >= now.end {
                    asked.synced = stored;
                } else {
                    asked.mark = Some((now.end, stored));
                    self.marks.push_back((now.end, number));
                    wants_sync = true;
                }
            }
            let reached = [stored, asked.synced];
            let mut answers = false;
            for (wanted, reached) in asked.wanted.iter_mut().zip(reached) {
                if *wanted > 0 && *wanted <= reached {
                    (*wanted, answers) = (0, true);
                }
            }
            if answers {
                tell(number, DiskReport::Stored(stored, asked.synced));
            }
        }
        self.due = due;
        wants_sync
    }

    /// The topic's log is on the disk below `durable`.
    fn take_marks(&mut self, durable: Position) {
        while let Some(&(at, number)) = self.marks.front()
            && at <= durable
        {
            self.marks.pop_front();
            // A publisher that left and came back has another mark, if any.
            if let Some(asked) = self.asked.get_mut(&number)
                && let Some((_, own)) = asked.mark.take_if(|(mark, _)| *mark == at)
            {
                asked.synced = own;
                self.look_at(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: DiskState = DiskState { end: 100, durable: 60, unsure: false, lost: 0 };

    fn settle(
        questions: &mut DiskQuestions,
        now: DiskState,
        stored: Option<Position>,
    ) -> (bool, Vec<(Position, Position)>) {
        let mut told = Vec::new();
        let syncs = questions.settle(
            now,
            |_, _| stored,
            |_, report| match report {
                DiskReport::Stored(stored, synced) => told.push((stored, synced)),
                other => panic!("{other:?}"),
            },
        );
        (syncs, told)
    }

    #[test]
    fn a_question_is_answered_once_and_as_soon_as_possible() {
        let mut questions = DiskQuestions::default();
        questions.ask(1, [30, 30]);
        assert_eq!(settle(&mut questions, NOW, Some(20)), (false, vec![]), "not all is there");
        questions.stored(1);
        assert_eq!(settle(&mut questions, NOW, Some(40)), (true, vec![(40, 0)]));
        assert!(questions.is_watching());
        questions.stored(1);
        assert_eq!(settle(&mut questions, DiskState { durable: 99, ..NOW }, Some(50)), (false, vec![]));
        let synced = DiskState { durable: 100, end: 120, ..NOW };
        assert_eq!(settle(&mut questions, synced, Some(50)), (false, vec![(50, 40)]));
        assert!(!questions.is_watching());
        questions.stored(1);
        assert_eq!(settle(&mut questions, synced, Some(60)), (false, vec![]), "nothing was asked");
        // A publisher whose answer was lost with its connection asks again.
        questions.ask(1, [30, 40]);
        assert_eq!(settle(&mut questions, synced, Some(60)), (false, vec![(60, 40)]));
        let all = DiskState { durable: 120, end: 120, ..NOW };
        questions.ask(1, [0, 60]);
        assert_eq!(settle(&mut questions, all, Some(60)), (false, vec![(60, 60)]), "a sync was there before");
    }

    #[test]
    fn a_disk_that_failed_confirms_nothing_before_it_has_written_anew() {
        let mut questions = DiskQuestions::default();
        questions.ask(1, [10, 0]);
        let unsure = DiskState { unsure: true, ..NOW };
        assert_eq!(settle(&mut questions, unsure, Some(10)), (false, vec![]));
        assert!(questions.is_watching());
        assert_eq!(settle(&mut questions, NOW, Some(10)), (false, vec![(10, 0)]));
        let lossy = DiskState { lost: 5, ..NOW };
        assert!(questions.has_lost(lossy) && !questions.has_lost(lossy));
        questions.ask(1, [20, 0]);
        let mut told = Vec::new();
        questions.settle(
            lossy,
            |_, _| None,
            |number, report| told.push((number, report == DiskReport::Lost)),
        );
        assert_eq!(told, [(1, true)]);
        assert!(questions.has_other_failure(Some("full")) && !questions.has_other_failure(Some("full")));
        assert!(questions.has_other_failure(None));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Ask(u32, [u8; 2]),
        Store(u32, u8),
        /// The oldest sync that is under way ends; with `false` it failed.
        Sync(bool),
        /// A sync begins by itself.
        Begin,
        Leave(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0u32..3, any::<[u8; 2]>()).prop_map(|(who, wanted)| Step::Ask(who, wanted)),
            4 => (0u32..3, 1u8..20).prop_map(|(who, len)| Step::Store(who, len)),
            3 => proptest::bool::weighted(0.8).prop_map(Step::Sync),
            1 => Just(Step::Begin),
            1 => (0u32..3).prop_map(Step::Leave),
        ];
        proptest::collection::vec(step, 1..150)
    }

    /// A disk that knows whose byte each byte of its log is, and the publishers.
    #[derive(Default)]
    struct World {
        questions: DiskQuestions,
        log: Vec<u32>,
        durable: Position,
        unsure: bool,
        /// The ends of the syncs that are under way.
        running: VecDeque<Position>,
        /// Of each publisher: the end of its log, and its open questions.
        own: [Position; 3],
        open: [[Position; 2]; 3],
    }

    impl World {
        fn step(&mut self, step: Step) {
            match step {
                Step::Ask(who, wanted) => {
                    let wanted = wanted.map(|at| u64::from(at).min(self.own[who as usize]));
                    self.open[who as usize] = wanted;
                    self.questions.ask(who, wanted);
                }
                Step::Store(who, len) => {
                    self.log.extend(std::iter::repeat_n(who, len.into()));
                    self.own[who as usize] += u64::from(len);
                    self.questions.stored(who);
                }
                // The file is written anew after a failure, and all of it is on the disk then.
                Step::Sync(true) if self.unsure => {
                    (self.durable, self.unsure) = (self.log.len() as u64, false)
                }
                Step::Sync(works) => {
                    let synced = self.running.pop_front().filter(|_| works);
                    self.unsure = !works;
                    self.durable = synced.map_or(self.durable, |to| to.max(self.durable));
                }
                Step::Begin => self.running.push_back(self.log.len() as u64),
                Step::Leave(who) => {
                    self.questions.remove(who);
                    self.open[who as usize] = [0; 2];
                }
            }
        }

        fn settle(&mut self) {
            let Self { questions, log, durable, unsure, running, own, open } = self;
            let end = log.len() as u64;
            let now = DiskState { end, durable: *durable, unsure: *unsure, lost: 0 };
            let on_disk = |who| log[..*durable as usize].iter().filter(|of| **of == who).count() as u64;
            let begins = questions.settle(
                now,
                |who, _| Some(own[who as usize]),
                |who, report| {
                    let DiskReport::Stored(stored, synced) = report else { panic!("{report:?}") };
                    assert!(!*unsure && stored <= own[who as usize] && synced <= on_disk(who));
                    for (open, reached) in open[who as usize].iter_mut().zip([stored, synced]) {
                        *open = if *open <= reached { 0 } else { *open };
                    }
                },
            );
            running.extend(begins.then_some(end));
            if !*unsure {
                assert!(open.iter().all(|wanted| wanted[0] == 0), "everything is stored");
                let waits = open.iter().any(|wanted| wanted[1] > 0);
                assert!(!waits || *durable < end, "everything is on the disk");
                assert!(!waits || !running.is_empty(), "a sync is under way");
            }
        }
    }

    proptest! {
        /// Nothing is confirmed that is not there. Every question has its answer when everything is there, or a sync is under way.
        #[test]
        fn an_answer_is_true_and_comes(steps in steps()) {
            let mut world = World::default();
            let end = [Step::Sync(true), Step::Begin, Step::Sync(true), Step::Sync(true)];
            for step in steps.into_iter().chain(end) {
                world.step(step);
                world.settle();
            }
            prop_assert!(world.questions.asked.len() <= 3);
        }
    }
}
