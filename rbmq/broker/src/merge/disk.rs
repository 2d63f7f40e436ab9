//! The publishers' questions about the disk and the archive of a kept topic, and the answers. This module does no I/O.
//!
//! ```text
//!   log of the topic      ──┤A├──┤B├──┤A├──┤B├──▶                 a mark: once the topic's log is on the disk up to `at`,
//!                                 durable    ▲ at                  the publisher's log is synced up to `own`
//!   log of A              ───────┤synced├────┤own├──┤stored├──▶
//! ```
//!
//! A publisher asks for one position that is to be stored, one that is to be synced, and one that is to be in the archive. All its bytes that a turn has stored are one
//! answer, and so are all that a sync has brought to the disk. A publisher has at most one mark for each of both, so the memory does not grow with the
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
    /// The archive has the topic's log below. None: there is none that takes the log.
    pub(super) archive: Option<Position>,
}

/// How far a publisher's log has come here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Own {
    /// Its end in the file.
    pub(super) stored: Position,
    /// A part that the question about the archive is about may be missing there.
    pub(super) misses: bool,
}

/// What is to begin at once, because a publisher waits for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wants {
    /// A sync of the disk.
    pub(super) sync: bool,
    /// The next batch of the archive.
    pub(super) archive: bool,
}

/// A message for a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskReport<'a> {
    /// Its log is in the file, on the disk and in the archive below these positions; 0: not known.
    Stored([Position; 3]),
    /// Its question has no answer any more: the disk lost a part of the topic's log.
    Lost,
    /// Its question about the archive has none: a part of the log may be missing there.
    Missing,
    /// Neither has it then: no archive will have its log.
    NoArchive,
    /// The disk has no room or fails, for this reason; none: it works again.
    Failure(Option<&'a str>),
}

/// The requests of a publisher.
#[derive(Debug, Default)]
struct Asked {
    /// The positions to be stored, to be synced and to be archived; 0: none.
    wanted: [Position; 3],
    /// Its log is on the disk below.
    synced: Place,
    /// Its log is in the archive below.
    archived: Place,
    /// It has just asked about the archive, and hears at once that the question is understood: brokers of before end the connection.
    is_new: bool,
    /// The publisher is among those to look at.
    due: bool,
}

impl Asked {
    fn waits(&self) -> bool {
        self.wanted != [0; 3]
    }

    /// The publisher's log is in the file below `stored`. What goes to the archive must be on the disk. Returns whether a sync is to begin.
    fn advance(&mut self, now: DiskState, stored: Position, mut mark: impl FnMut(usize, Position)) -> bool {
        let [_, to_sync, to_archive] = self.wanted;
        let to_disk = self.synced.want(to_sync.max(to_archive), stored, [now.durable, now.end]);
        to_disk.into_iter().for_each(|at| mark(DISK, at));
        let there = now.archive.unwrap_or_default();
        let to_archive = self.archived.want(to_archive, self.synced.reached, [there, now.durable]);
        to_archive.into_iter().for_each(|at| mark(ARCHIVE, at));
        to_disk.is_some()
    }
}

/// The marks for the disk, and those for the archive.
const DISK: usize = 0;
const ARCHIVE: usize = 1;

/// How far a publisher's log has come at a place behind the file: the disk, or the archive.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Its log is there below.
    reached: Position,
    /// The end of the topic's log that is to be there, and the position of its own log that is there then.
    mark: Option<(Position, Position)>,
}

impl Place {
    /// The publisher's log is wanted there up to a position, and the place before has it up to `own`. The topic's log ends `there`, and at
    /// the place before at `end`. Returns the mark that is new.
    fn want(&mut self, wanted: Position, own: Position, [there, end]: [Position; 2]) -> Option<Position> {
        if wanted <= self.reached || own < wanted || self.mark.is_some() {
            return None;
        }
        if there >= end {
            self.reached = own;
            return None;
        }
        self.mark = Some((end, own));
        Some(end)
    }
}

/// The questions of all publishers of a topic.
#[derive(Debug, Default)]
pub(super) struct DiskQuestions {
    asked: HashMap<u32, Asked>,
    /// Publishers to look at.
    due: Vec<u32>,
    /// The marks for the disk, and those for the archive, by the end of the topic's log.
    marks: [VecDeque<(Position, u32)>; 2],
    /// The failure that publishers know of.
    failure: Option<String>,
    /// The lost bytes that are known.
    lost: u64,
    /// What is known to be missing in the archive.
    missing_below: Position,
}

impl DiskQuestions {
    /// A publisher asks for the positions to be stored, to be synced and to be archived; 0: none. They replace its last ones.
    pub(super) fn ask(&mut self, number: u32, wanted: [Position; 3]) {
        let asked = self.asked.entry(number).or_default();
        (asked.wanted, asked.is_new) = (wanted, wanted[2] > 0);
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
        *self = Self { lost: self.lost, missing_below: self.missing_below, ..Self::default() };
    }

    fn look_at(&mut self, number: u32) {
        if let Some(asked) = self.asked.get_mut(&number)
            && asked.waits()
            && !std::mem::replace(&mut asked.due, true)
        {
            self.due.push(number);
        }
    }

    /// Whether the disk may have an answer: a publisher waits for a sync, for the archive, or for a disk that failed.
    pub(super) fn is_watching(&self) -> bool {
        self.marks.iter().any(|marks| !marks.is_empty()) || !self.due.is_empty()
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

    /// Whether something may be missing in the archive.
    pub(super) fn misses(&self) -> bool {
        self.missing_below > 0
    }

    /// Whether more may be missing in the archive than at the last call: what is below this position. The marks of before say nothing then.
    pub(super) fn misses_more(&mut self, missing_below: Position) -> bool {
        let more = std::mem::replace(&mut self.missing_below, missing_below) < missing_below;
        if more {
            self.marks[ARCHIVE].clear();
            let marked =
                self.asked.iter_mut().filter_map(|(n, asked)| asked.archived.mark.take().map(|_| *n));
            marked.collect::<Vec<_>>().into_iter().for_each(|number| self.look_at(number));
        }
        more
    }

    /// Answers the questions that can be answered. `own` says of a publisher how far its log is, for a question about these positions; none if
    /// the disk lost a part that the question is about. Returns what is to begin.
    pub(super) fn settle(
        &mut self,
        now: DiskState,
        own: impl Fn(u32, [Position; 3]) -> Option<Own>,
        mut tell: impl FnMut(u32, DiskReport<'_>),
    ) -> Wants {
        self.take_marks(now);
        let mut wants = Wants::default();
        if now.unsure {
            // The publishers stay due. They are looked at when the file is written anew.
            return wants;
        }
        let mut due = std::mem::take(&mut self.due);
        for number in due.drain(..) {
            let Some(asked) = self.asked.get_mut(&number) else { continue };
            asked.due = false;
            if !asked.waits() {
                continue;
            }
            let Some(Own { stored, misses }) = own(number, asked.wanted) else {
                self.asked.remove(&number);
                tell(number, DiskReport::Lost);
                continue;
            };
            let mut answers = std::mem::take(&mut asked.is_new);
            if asked.wanted[2] > 0 && (misses || now.archive.is_none()) {
                (asked.wanted[2], answers) = (0, false);
                tell(number, if misses { DiskReport::Missing } else { DiskReport::NoArchive });
            }
            wants.sync |=
                asked.advance(now, stored, |which, mark| self.marks[which].push_back((mark, number)));
            // Nobody has looked at what misses of those that do not ask about the archive.
            let archived = if asked.wanted[2] > 0 { asked.archived.reached } else { 0 };
            let reached = [stored, asked.synced.reached, archived];
            for (wanted, reached) in asked.wanted.iter_mut().zip(reached) {
                if *wanted > 0 && *wanted <= reached {
                    (*wanted, answers) = (0, true);
                }
            }
            if answers {
                tell(number, DiskReport::Stored(reached));
            }
        }
        self.due = due;
        wants.archive = !self.marks[ARCHIVE].is_empty();
        wants
    }

    /// The topic's log has come so far. Without an archive, who waits for it is only looked at.
    fn take_marks(&mut self, now: DiskState) {
        let archived = now.archive.unwrap_or(Position::MAX);
        for (which, there) in [now.durable, archived].into_iter().enumerate() {
            while let Some(&(at, number)) = self.marks[which].front()
                && at <= there
            {
                self.marks[which].pop_front();
                // A publisher that left and came back has another mark, if any.
                if let Some(asked) = self.asked.get_mut(&number) {
                    let place = if which == DISK { &mut asked.synced } else { &mut asked.archived };
                    if let Some((_, own)) = place.mark.take_if(|(mark, _)| *mark == at) {
                        if which == DISK || now.archive.is_some() {
                            place.reached = own;
                        }
                        self.look_at(number);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: DiskState = DiskState { end: 100, durable: 60, unsure: false, lost: 0, archive: None };

    fn settle(
        questions: &mut DiskQuestions,
        now: DiskState,
        stored: Option<Position>,
    ) -> (bool, Vec<(Position, Position)>) {
        let mut told = Vec::new();
        let wants = questions.settle(
            now,
            |_, _| stored.map(|stored| Own { stored, misses: false }),
            |_, report| match report {
                DiskReport::Stored([stored, synced, _]) => told.push((stored, synced)),
                other => panic!("{other:?}"),
            },
        );
        (wants.sync, told)
    }

    #[test]
    fn a_question_is_answered_once_and_as_soon_as_possible() {
        let mut questions = DiskQuestions::default();
        questions.ask(1, [30, 30, 0]);
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
        questions.ask(1, [30, 40, 0]);
        assert_eq!(settle(&mut questions, synced, Some(60)), (false, vec![(60, 40)]));
        let all = DiskState { durable: 120, end: 120, ..NOW };
        questions.ask(1, [0, 60, 0]);
        assert_eq!(settle(&mut questions, all, Some(60)), (false, vec![(60, 60)]), "a sync was there before");
    }

    #[test]
    fn a_disk_that_failed_confirms_nothing_before_it_has_written_anew() {
        let mut questions = DiskQuestions::default();
        questions.ask(1, [10, 0, 0]);
        let unsure = DiskState { unsure: true, ..NOW };
        assert_eq!(settle(&mut questions, unsure, Some(10)), (false, vec![]));
        assert!(questions.is_watching());
        assert_eq!(settle(&mut questions, NOW, Some(10)), (false, vec![(10, 0)]));
        let lossy = DiskState { lost: 5, ..NOW };
        assert!(questions.has_lost(lossy) && !questions.has_lost(lossy));
        questions.ask(1, [20, 0, 0]);
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

    #[test]
    fn who_asks_about_an_archive_that_is_not_there_is_told() {
        let mut questions = DiskQuestions::default();
        let archive = Some(40);
        questions.ask(1, [0, 0, 30]);
        let settle = |questions: &mut DiskQuestions, now| {
            let mut told = Vec::new();
            let own = |_, _| Some(Own { stored: 50, misses: false });
            let wants = questions.settle(now, own, |_, report| told.push(format!("{report:?}")));
            (wants, told)
        };
        let now = DiskState { archive, ..NOW };
        let told = |at: &str| vec![at.to_owned()];
        let understood = told("Stored([50, 0, 0])");
        assert_eq!(settle(&mut questions, now), (Wants { sync: true, archive: false }, understood));
        let synced = DiskState { durable: 100, ..now };
        assert_eq!(settle(&mut questions, synced), (Wants { sync: false, archive: true }, vec![]));
        // The archive does not take the log any more.
        assert_eq!(settle(&mut questions, NOW).1, ["NoArchive"]);
        questions.ask(1, [0, 0, 30]);
        let archived = DiskState { archive: Some(100), ..synced };
        assert_eq!(settle(&mut questions, archived), (Wants::default(), vec!["Stored([50, 50, 50])".into()]));
        assert!(questions.misses_more(1) && !questions.misses_more(1) && questions.misses());
    }

    /// An answer about the disk says nothing about the archive, and a question about the archive that has none leaves the others.
    #[test]
    fn only_questions_about_the_archive_have_answers_about_it() {
        let told = std::cell::RefCell::new(Vec::new());
        let settle = |questions: &mut DiskQuestions, now, misses| {
            let tell = |_, report: DiskReport<'_>| told.borrow_mut().push(format!("{report:?}"));
            questions.settle(now, |_, _| Some(Own { stored: 50, misses }), tell);
            told.take()
        };
        let all = DiskState { durable: 100, archive: Some(40), ..NOW };
        for (now, missing_below) in [(DiskState { archive: None, ..all }, 0), (all, 70)] {
            let mut questions = DiskQuestions::default();
            questions.ask(1, [0, 0, 30]);
            assert_eq!(settle(&mut questions, all, false), ["Stored([50, 50, 0])"]);
            // The publisher waits no more, and asks about the disk.
            questions.ask(1, [0, 40, 0]);
            questions.misses_more(missing_below);
            let now = DiskState { archive: now.archive.map(|_| 100), ..now };
            assert_eq!(settle(&mut questions, now, missing_below > 0), ["Stored([50, 50, 0])"]);
            questions.ask(1, [0, 50, 40]);
            let why = if missing_below > 0 { "Missing" } else { "NoArchive" };
            assert_eq!(settle(&mut questions, now, missing_below > 0), [why, "Stored([50, 50, 0])"]);
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Ask(u32, [u8; 3]),
        Store(u32, u8),
        /// The oldest sync that is under way ends; with `false` it failed.
        Sync(bool),
        /// A sync begins by itself.
        Begin,
        /// The archive gets what is on the disk.
        Archive,
        /// It misses what is on the disk, and is behind that.
        Hole,
        /// It takes the log no more.
        Refuse,
        Leave(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0u32..3, any::<[u8; 3]>()).prop_map(|(who, wanted)| Step::Ask(who, wanted)),
            4 => (0u32..3, 1u8..20).prop_map(|(who, len)| Step::Store(who, len)),
            3 => proptest::bool::weighted(0.8).prop_map(Step::Sync),
            1 => Just(Step::Begin),
            4 => Just(Step::Archive),
            1 => Just(Step::Hole),
            1 => proptest::bool::weighted(0.1).prop_map(|refuses| if refuses { Step::Refuse } else { Step::Archive }),
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
        open: [[Position; 3]; 3],
        archived: Position,
        missing_below: Position,
        is_refused: bool,
        /// Of each publisher: what may be missing of its log, and whether it is to be told.
        missing: [(Position, std::cell::Cell<bool>); 3],
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
                Step::Archive if self.is_refused => {}
                Step::Archive => self.archived = self.durable,
                Step::Hole if self.is_refused || self.archived == self.durable => {}
                Step::Hole => (self.archived, self.missing_below) = (self.durable, self.durable),
                Step::Refuse => self.is_refused = true,
                Step::Begin => self.running.push_back(self.log.len() as u64),
                Step::Leave(who) => {
                    self.questions.remove(who);
                    self.open[who as usize] = [0; 3];
                }
            }
        }

        fn settle(&mut self) {
            let Self { questions, log, durable, unsure, running, own, open, archived, .. } = self;
            let (missing, missing_below) = (&mut self.missing, self.missing_below);
            let end = log.len() as u64;
            let archive = (!self.is_refused).then_some(*archived);
            let now = DiskState { end, durable: *durable, unsure: *unsure, lost: 0, archive };
            if questions.misses_more(missing_below) {
                *missing = own.map(|end| (end, true.into()));
            }
            let up_to = |at: Position, who| log[..at as usize].iter().filter(|of| **of == who).count() as u64;
            let wants = questions.settle(
                now,
                |who, [.., to_archive]| {
                    let (below, is_untold) = &missing[who as usize];
                    let misses = to_archive > 0 && (is_untold.replace(false) || to_archive <= *below);
                    Some(Own { stored: own[who as usize], misses })
                },
                |who, report| {
                    let open = &mut open[who as usize];
                    let DiskReport::Stored(reached) = report else {
                        open[2] = 0;
                        let is_it =
                            if report == DiskReport::Missing { missing_below > 0 } else { self.is_refused };
                        assert!(is_it, "{report:?}");
                        return;
                    };
                    let there = [own[who as usize], up_to(*durable, who), up_to(*archived, who)];
                    assert!(!*unsure && reached.iter().zip(there).all(|(reached, there)| *reached <= there));
                    assert!(reached[2] == 0 || !missing[who as usize].1.get(), "it was told what is missing");
                    for (open, reached) in open.iter_mut().zip(reached) {
                        *open = if *open <= reached { 0 } else { *open };
                    }
                },
            );
            running.extend(wants.sync.then_some(end));
            if !*unsure {
                assert!(open.iter().all(|wanted| wanted[0] == 0), "everything is stored");
                let waits = open.iter().any(|wanted| wanted[1] > 0);
                assert!(!waits || *durable < end, "everything is on the disk");
                let waits_for_archive = open.iter().any(|wanted| wanted[2] > 0);
                assert!(!waits_for_archive || *archived < end, "everything is archived");
                let syncs = !running.is_empty();
                assert!(!waits || syncs, "a sync is under way");
                assert!(!waits_for_archive || syncs || wants.archive, "the archive is asked for more");
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
