//! The machine against a plain model, which looks at every message each time.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rbmq_groups::{Answered, Attempt, Group, Limits, Settings};

use crate::at;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Waits,
    Held { worker: u32, due: u64 },
    Delayed { until: u64 },
    Dying,
}

#[derive(Debug, Clone, Copy)]
struct Message {
    key: u32,
    attempts: u16,
    stage: Stage,
}

/// What a group does, in the plainest way.
struct Model {
    ack_ms: u64,
    max_attempts: u16,
    ordered: bool,
    pending: BTreeMap<u64, Message>,
    workers: BTreeMap<u32, u32>,
    /// Attempts of which workers do not know that they are not theirs any more.
    overdue: BTreeSet<(u32, Attempt)>,
}

impl Model {
    fn may_go(&self, position: u64) -> bool {
        let key = self.pending[&position].key;
        let before = self.pending.range(..position).any(|(_, other)| other.key == key);
        !(self.ordered && key != 0 && before)
    }

    fn ready(&self) -> Vec<u64> {
        let waits =
            |(position, message): (&u64, &Message)| (message.stage == Stage::Waits).then_some(*position);
        self.pending.iter().filter_map(waits).filter(|position| self.may_go(*position)).collect()
    }

    fn held_by(&self, worker: u32) -> Vec<u64> {
        let is_its =
            |message: &Message| matches!(message.stage, Stage::Held { worker: its, .. } if its == worker);
        self.pending.iter().filter(|(_, message)| is_its(message)).map(|(position, _)| *position).collect()
    }

    fn overdue_of(&self, worker: u32) -> Vec<Attempt> {
        self.overdue.iter().filter(|of| of.0 == worker).map(|of| of.1).collect()
    }

    /// A message is not a worker's any more, if it was one's.
    fn miss(&mut self, position: u64) {
        let message = self.pending[&position];
        if let Stage::Held { worker, .. } = message.stage
            && self.workers.contains_key(&worker)
        {
            self.overdue.insert((worker, at(position, message.attempts + 1)));
        }
    }

    fn has_room(&self, worker: u32) -> bool {
        self.workers.get(&worker).is_some_and(|credit| {
            self.held_by(worker).len() + self.overdue_of(worker).len() < *credit as usize
        })
    }

    fn fail(&mut self, position: u64, until: Option<u64>) {
        let max = self.max_attempts;
        let message = self.pending.get_mut(&position).expect("it is pending");
        message.attempts += 1;
        message.stage = match until {
            _ if max > 0 && message.attempts >= max => Stage::Dying,
            Some(until) => Stage::Delayed { until },
            None => Stage::Waits,
        };
    }

    fn expire(&mut self, now: u64) {
        for position in self.pending.keys().copied().collect::<Vec<_>>() {
            match self.pending[&position].stage {
                Stage::Held { due, .. } if due <= now => {
                    self.miss(position);
                    self.fail(position, None);
                }
                Stage::Delayed { until } if until <= now => {
                    self.pending.get_mut(&position).expect("it is pending").stage = Stage::Waits;
                }
                _ => {}
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Op {
    Offer {
        len: u8,
        key: u8,
    },
    Join {
        worker: u32,
        credit: u32,
    },
    Leave {
        worker: u32,
    },
    Take {
        times: u8,
    },
    Ack {
        nth: usize,
        worker: u32,
    },
    /// A worker says a word of what was its own once.
    Word {
        worker: u32,
        nth: usize,
        kind: u8,
    },
    Drop {
        worker: u32,
        nth: usize,
    },
    Nack {
        worker: u32,
        nth: usize,
        delay: u32,
    },
    Release {
        worker: u32,
        nth: usize,
    },
    Extend {
        worker: u32,
        nth: usize,
        ms: u32,
    },
    Pass {
        ms: u64,
    },
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let (worker, nth) = (0..4_u32, 0..50_usize);
    prop_oneof![
        6 => (4..40_u8, 0..5_u8).prop_map(|(len, key)| Op::Offer { len, key }),
        2 => (worker.clone(), 1..6_u32).prop_map(|(worker, credit)| Op::Join { worker, credit }),
        1 => worker.clone().prop_map(|worker| Op::Leave { worker }),
        6 => (1..6_u8).prop_map(|times| Op::Take { times }),
        6 => (worker.clone(), nth.clone()).prop_map(|(worker, nth)| Op::Ack { nth, worker }),
        3 => (worker.clone(), nth.clone(), 0..5_u8).prop_map(|(worker, nth, kind)| Op::Word { worker, nth, kind }),
        1 => (worker.clone(), nth.clone()).prop_map(|(worker, nth)| Op::Drop { worker, nth }),
        2 => (worker.clone(), nth.clone(), 0..30_u32).prop_map(|(worker, nth, delay)| Op::Nack { worker, nth, delay }),
        1 => (worker.clone(), nth.clone()).prop_map(|(worker, nth)| Op::Release { worker, nth }),
        1 => (worker, nth, 1..60_u32).prop_map(|(worker, nth, ms)| Op::Extend { worker, nth, ms }),
        3 => (1..30_u64).prop_map(|ms| Op::Pass { ms }),
        1 => Just(Op::Restart),
    ]
}

struct Both {
    group: Group,
    model: Model,
    now: u64,
    next: u64,
    acked: Vec<u64>,
}

impl Both {
    fn new(settings: Settings) -> Self {
        let model = Model {
            ack_ms: settings.ack_ms.into(),
            max_attempts: settings.max_attempts,
            ordered: settings.ordered,
            pending: BTreeMap::new(),
            workers: BTreeMap::new(),
            overdue: BTreeSet::new(),
        };
        let group = Group::new(settings, 7, 100, Limits::default());
        Self { group, model, now: 1, next: 100, acked: Vec::new() }
    }

    fn offer(&mut self, len: u8, key: u8) {
        let position = self.next;
        self.next += u64::from(len);
        self.group.offer(position, len.into(), key.into(), self.next);
        self.model.pending.insert(position, Message { key: key.into(), attempts: 0, stage: Stage::Waits });
    }

    fn take(&mut self) {
        let ready = self.model.ready();
        let is_there = (0..4).any(|worker| self.model.has_room(worker));
        let handout = self.group.take(self.now);
        let expected = ready.first().filter(|_| is_there);
        assert_eq!(handout.map(|handout| handout.position), expected.copied());
        let Some(handout) = handout else { return };
        assert!(self.model.has_room(handout.worker), "a worker gets no more than it asked for");
        assert!(!self.acked.contains(&handout.position), "nothing acknowledged comes again");
        let due = self.now + self.model.ack_ms;
        let message = self.model.pending.get_mut(&handout.position).expect("it is pending");
        assert_eq!(handout.attempt, message.attempts + 1);
        message.stage = Stage::Held { worker: handout.worker, due };
    }

    /// A message that a worker has, and which attempt it is.
    fn of_worker(&self, worker: u32, nth: usize) -> Option<Attempt> {
        let held = self.model.held_by(worker);
        let position = *held.get(nth.checked_rem(held.len())?)?;
        Some(at(position, self.model.pending[&position].attempts + 1))
    }

    /// A worker acknowledges any message that may be done, whoever has it.
    fn ack(&mut self, worker: u32, nth: usize) {
        let all: Vec<u64> =
            self.model.pending.keys().copied().filter(|position| self.model.may_go(*position)).collect();
        if all.is_empty() {
            assert_eq!(self.group.ack(worker, at(self.next, 1), self.next), Answered::Refused);
            return;
        }
        let position = all[nth % all.len()];
        self.ack_at(worker, at(position, self.model.pending[&position].attempts + 1));
    }

    fn ack_at(&mut self, worker: u32, attempt: Attempt) {
        let position = attempt.position;
        self.model.overdue.remove(&(worker, attempt));
        let expected =
            if self.model.pending.contains_key(&position) { Answered::Done } else { Answered::Late };
        if let Some(message) = self.model.pending.get(&position) {
            let its = matches!(message.stage, Stage::Held { worker: its, .. } if its == worker);
            if !(its && message.attempts + 1 == attempt.number) {
                self.model.miss(position);
            }
        }
        assert_eq!(self.group.ack(worker, attempt, self.next), expected);
        if self.model.pending.remove(&position).is_some() {
            self.acked.push(position);
        }
        assert_eq!(self.group.ack(worker, at(position, 0), self.next), Answered::Late);
    }

    /// A word of what was a worker's own once gives room, and says nothing of the message, unless it is that it is done.
    fn late_word(&mut self, worker: u32, nth: usize, kind: u8) {
        let all = self.model.overdue_of(worker);
        let Some(attempt) = nth.checked_rem(all.len()).map(|nth| all[nth]) else { return };
        let answered = match kind {
            0 => return self.ack_at(worker, attempt),
            1 => self.group.nack(worker, attempt, 0, self.now),
            2 => self.group.release(worker, attempt),
            3 => self.group.drop_message(worker, attempt),
            _ => {
                assert_eq!(self.group.extend(worker, attempt, 100, self.now), Answered::Late);
                return;
            }
        };
        assert_eq!(answered, Answered::Late);
        self.model.overdue.remove(&(worker, attempt));
    }

    fn workers_word(&mut self, op: &Op) {
        match *op {
            Op::Nack { worker, nth, delay } => {
                let Some(attempt) = self.of_worker(worker, nth) else { return };
                assert_eq!(self.group.nack(worker, at(attempt.position, 0), delay, self.now), Answered::Late);
                assert_eq!(self.group.nack(worker, attempt, delay, self.now), Answered::Done);
                self.model.fail(attempt.position, (delay > 0).then(|| self.now + u64::from(delay)));
                assert_eq!(self.group.nack(worker, attempt, 0, self.now), Answered::Late);
            }
            Op::Release { worker, nth } => {
                let Some(attempt) = self.of_worker(worker, nth) else { return };
                assert_eq!(self.group.release(worker, attempt), Answered::Done);
                self.model.pending.get_mut(&attempt.position).expect("it is pending").stage = Stage::Waits;
            }
            Op::Drop { worker, nth } => {
                let Some(attempt) = self.of_worker(worker, nth) else { return };
                assert_eq!(self.group.drop_message(worker, attempt), Answered::Done);
                let message = self.model.pending.get_mut(&attempt.position).expect("it is pending");
                if let Stage::Held { worker, .. } = &mut message.stage {
                    *worker = u32::MAX;
                }
            }
            Op::Extend { worker, nth, ms } => {
                let Some(attempt) = self.of_worker(worker, nth) else { return };
                assert_eq!(self.group.extend(worker, attempt, ms, self.now), Answered::Done);
                let due = self.now + u64::from(ms);
                self.model.pending.get_mut(&attempt.position).expect("it is pending").stage =
                    Stage::Held { worker, due };
            }
            _ => {}
        }
    }

    /// Another process goes on with what the journal has.
    fn restart(&mut self) {
        let changes = self.group.take_changes();
        let saved = self.group.save(7);
        self.group = Group::restore(saved, [changes], Limits::default());
        self.model.workers.clear();
        self.model.overdue.clear();
        for message in self.model.pending.values_mut().filter(|message| message.stage != Stage::Dying) {
            message.stage = Stage::Waits;
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Offer { len, key } => self.offer(len, key),
            Op::Join { worker, credit } => {
                let is_new = !self.model.workers.contains_key(&worker);
                assert_eq!(self.group.join(worker, credit), is_new);
                self.model.workers.entry(worker).or_insert(credit);
            }
            Op::Leave { worker } => {
                self.group.leave(worker, self.now);
                self.model.workers.remove(&worker);
                self.model.overdue.retain(|of| of.0 != worker);
                self.model.held_by(worker).into_iter().for_each(|position| self.model.fail(position, None));
            }
            Op::Take { times } => (0..times).for_each(|_| self.take()),
            Op::Ack { nth, worker } => self.ack(worker, nth),
            Op::Word { worker, nth, kind } => self.late_word(worker, nth, kind),
            Op::Pass { ms } => self.now += ms,
            Op::Restart => self.restart(),
            Op::Nack { .. } | Op::Release { .. } | Op::Drop { .. } | Op::Extend { .. } => {
                self.workers_word(op)
            }
        }
        while self.group.expire(self.now) {}
        self.model.expire(self.now);
        self.bury();
        let floor = self.model.pending.keys().next().copied().unwrap_or(self.next);
        assert_eq!((self.group.pending(), self.group.floor()), (self.model.pending.len(), floor));
        let held: usize = (0..4).map(|worker| self.model.held_by(worker).len()).sum();
        assert_eq!(self.group.held(), held);
    }

    /// Every message whose last attempt has failed goes to the dead letters, and no other.
    fn bury(&mut self) {
        let dying =
            |model: &Model| model.pending.values().filter(|message| message.stage == Stage::Dying).count();
        while let Some(dead) = self.group.next_dead() {
            let message = self.model.pending.remove(&dead.position).expect("it is pending");
            assert_eq!((message.stage, message.attempts), (Stage::Dying, dead.attempts));
            self.group.buried(dead.position);
        }
        assert_eq!(dying(&self.model), 0, "nothing waits to be buried");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_group_does_what_the_model_does(
        ordered in any::<bool>(),
        max_attempts in prop_oneof![Just(0_u16), 1..4_u16],
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let dead_letter = if max_attempts > 0 { "dead" } else { "" }.to_owned();
        let mut both = Both::new(Settings { ack_ms: 20, max_attempts, dead_letter, ordered });
        ops.iter().for_each(|op| both.apply(op));
        // Whoever comes in the end gets everything that is left, once each.
        both.now += 1000;
        both.apply(&Op::Pass { ms: 0 });
        (0..4).for_each(|worker| both.apply(&Op::Leave { worker }));
        both.apply(&Op::Join { worker: 9, credit: 1 });
        let left = both.model.pending.len();
        for _ in 0..left {
            let handout = both.group.take(both.now).expect("a message is left");
            let attempt = handout.attempt();
            prop_assert_eq!(both.group.ack(9, attempt, both.next), Answered::Done);
        }
        prop_assert_eq!((both.group.pending(), both.group.floor()), (0, both.next));
    }
}
