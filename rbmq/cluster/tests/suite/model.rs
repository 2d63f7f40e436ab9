//! Members with a model of etcd, in virtual time: it pauses, loses questions and answers, ends leases early, and members are killed and come
//! back. Each run follows from its seed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use rbmq_cluster::etcd::{Change, Compare, KeyValue, Lease, Snapshot, Txn};
use rbmq_cluster::{Keys, Machine, Map, MemberSettings, OnLoss, Outcome, Owner, Step};
use testkit::Random;

const MEMBERS: usize = 3;
const GROUPS: u64 = 12;
const TTL_MS: u64 = 10_000;
const SEEDS: u64 = 12;

/// etcd, in milliseconds.
#[derive(Default)]
struct Model {
    revision: i64,
    keys: BTreeMap<String, KeyValue>,
    /// When each lease ends.
    leases: HashMap<i64, u64>,
    next_lease: i64,
}

impl Model {
    fn expire(&mut self, now: u64) {
        let gone: Vec<i64> = self.leases.iter().filter(|(_, end)| **end <= now).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|lease| self.end(lease));
    }

    fn end(&mut self, lease: i64) {
        self.leases.remove(&lease);
        let before = self.keys.len();
        self.keys.retain(|_, kv| kv.lease != lease);
        self.revision += i64::from(self.keys.len() != before);
    }

    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Unchanged { key, modified } => {
                self.keys.get(key).map_or(0, |kv| kv.modified) == *modified
            }
            Compare::Absent { key } => !self.keys.contains_key(key),
            Compare::Present { key } => self.keys.contains_key(key),
        }
    }

    fn write(&mut self, txn: &Txn) -> Outcome {
        if !txn.compares.iter().all(|compare| self.holds(compare)) {
            return Outcome::Written { held: false };
        }
        let is_gone = |change: &Change| matches!(change, Change::Put { lease, .. } if *lease != 0 && !self.leases.contains_key(lease));
        if txn.changes.iter().any(is_gone) {
            return Outcome::Failed { reason: "lease not found".into() };
        }
        self.revision += 1;
        for change in &txn.changes {
            match change {
                Change::Put { key, value, lease } => {
                    let created = self.keys.get(key).map_or(self.revision, |kv| kv.created);
                    let (value, modified) = (value.clone(), self.revision);
                    let kv = KeyValue { key: key.clone(), value, created, modified, lease: *lease };
                    self.keys.insert(key.clone(), kv);
                }
                Change::Delete { key } => {
                    self.keys.remove(key);
                }
            }
        }
        Outcome::Written { held: true }
    }

    fn apply(&mut self, now: u64, step: &Step) -> Outcome {
        self.expire(now);
        match step {
            Step::Read => {
                let keys = self.keys.values().cloned().collect();
                Outcome::Read(Snapshot { revision: self.revision, keys })
            }
            Step::Grant { ttl_s } => {
                self.next_lease += 1;
                self.leases.insert(self.next_lease, now + ttl_s * 1000);
                Outcome::Leased(Lease { id: self.next_lease, ttl_s: *ttl_s })
            }
            Step::Renew { lease } => {
                let end = self.leases.get_mut(lease).map(|end| *end = now + TTL_MS);
                let ttl_s = if end.is_some() { TTL_MS / 1000 } else { 0 };
                Outcome::Leased(Lease { id: *lease, ttl_s })
            }
            Step::Write(txn) => self.write(txn),
            Step::Rest { .. } => unreachable!("nobody is asked"),
        }
    }
}

/// A step on its way.
struct Flight {
    asked: Instant,
    step: Step,
    /// When it reaches etcd; none: it has, or never will.
    arrives: Option<u64>,
    /// When the outcome is there, and how.
    answered: u64,
    outcome: Option<Outcome>,
    is_lost: bool,
}

struct Node {
    id: String,
    machine: Option<Machine>,
    flight: Option<Flight>,
    /// Its clock runs by so many parts in a thousand faster.
    drift: i64,
}

struct World {
    random: Random,
    on_loss: OnLoss,
    base: Instant,
    now: u64,
    model: Model,
    nodes: Vec<Node>,
    /// Until when etcd answers nobody.
    paused: u64,
    is_calm: bool,
    /// Leases last as long as etcd has promised, and nobody drains: then a group has one owner at a time, and not only in each term.
    is_strict: bool,
    /// Who had which group in which term.
    history: HashMap<(String, u64), String>,
    terms: HashMap<String, u64>,
    moves: usize,
}

impl World {
    fn new(seed: u64, on_loss: OnLoss) -> Self {
        let mut random = Random::new(seed);
        let nodes = (0..MEMBERS).map(|n| Node {
            id: format!("m{n}"),
            machine: None,
            flight: None,
            drift: random.between(0, 60) as i64 - 30,
        });
        let nodes = nodes.collect();
        Self {
            random,
            on_loss,
            base: Instant::now(),
            now: 1,
            model: Model { revision: 1, ..Model::default() },
            nodes,
            paused: 0,
            is_calm: false,
            is_strict: seed.is_multiple_of(2),
            history: HashMap::new(),
            terms: HashMap::new(),
            moves: 0,
        }
    }

    /// The clock of a member.
    fn clock(&self, n: usize) -> Instant {
        let ms = self.now as i64;
        self.base + Duration::from_micros((ms * (1000 + self.nodes[n].drift)) as u64)
    }

    fn start(&mut self, n: usize) {
        let settings = MemberSettings {
            cluster: "c".into(),
            id: self.nodes[n].id.clone(),
            addresses: vec![format!("host-{n}:7411")],
            host: format!("host-{n}"),
            version: "1".into(),
            ttl: Duration::from_millis(TTL_MS),
            on_loss: self.on_loss,
            archive: String::new(),
            seed: self.random.draw(),
        };
        self.nodes[n].machine = Some(Machine::new(settings));
        self.nodes[n].flight = None;
    }

    /// The faults of a moment.
    fn trouble(&mut self) {
        match self.random.below(600) {
            0 => self.paused = self.now + self.random.between(100, 30_000),
            1 if !self.is_strict => {
                let leases: Vec<i64> = self.model.leases.keys().copied().collect();
                // The order of a hash map is no part of a seed.
                let lowest = leases.iter().min().copied();
                lowest.into_iter().for_each(|lease| self.model.end(lease));
            }
            2 => {
                let n = self.random.below(MEMBERS as u64) as usize;
                (self.nodes[n].machine, self.nodes[n].flight) = (None, None);
            }
            3..=8 => {
                let n = self.random.below(MEMBERS as u64) as usize;
                if self.nodes[n].machine.is_none() {
                    self.start(n);
                }
            }
            9 if !self.is_strict => {
                let key = Keys::new("c").drain(&format!("m{}", self.random.below(MEMBERS as u64)));
                let change = match self.model.keys.contains_key(&key) {
                    true => Change::Delete { key },
                    false => Change::Put { key, value: b"{}".to_vec(), lease: 0 },
                };
                self.model.write(&Txn { compares: vec![], changes: vec![change] });
            }
            _ => {}
        }
    }

    /// A member asks, is answered, or rests.
    fn run(&mut self, n: usize) {
        let local = self.clock(n);
        let Some(flight) = &mut self.nodes[n].flight else { return self.launch(n) };
        if flight.arrives.is_some_and(|at| at <= self.now) {
            flight.arrives = None;
            if self.now >= self.paused {
                flight.outcome = Some(self.model.apply(self.now, &flight.step));
            }
        }
        if flight.answered > self.now {
            return;
        }
        let flight = self.nodes[n].flight.take().expect("it is there");
        let failed = || Outcome::Failed { reason: "lost".into() };
        let outcome = flight.outcome.filter(|_| !flight.is_lost).unwrap_or_else(failed);
        if let Some(machine) = &mut self.nodes[n].machine {
            machine.done(flight.asked, local, outcome);
        }
    }

    fn launch(&mut self, n: usize) {
        let asked = self.clock(n);
        let Some(machine) = &mut self.nodes[n].machine else { return };
        let step = machine.next(asked);
        if matches!(step, Step::Rest { .. }) {
            return;
        }
        let faulty = !self.is_calm;
        let slow = if faulty && self.random.percent(3) { 3_000 } else { 20 };
        let arrives = self.now + self.random.between(1, slow);
        let answered = arrives + self.random.between(1, slow);
        let is_unheard = faulty && self.random.percent(3);
        let is_lost = is_unheard || (faulty && self.random.percent(3));
        let arrives = (!is_unheard).then_some(arrives);
        self.nodes[n].flight = Some(Flight { asked, step, arrives, answered, outcome: None, is_lost });
    }

    /// Somebody asks for a group at a member.
    fn ask(&mut self) {
        let n = self.random.below(MEMBERS as u64) as usize;
        let (group, has_log) = (format!("g{}", self.random.below(GROUPS)), self.random.percent(5));
        let local = self.clock(n);
        if let Some(machine) = &mut self.nodes[n].machine {
            machine.owner(&group, has_log, local);
            if self.random.percent(30) {
                machine.changed(local);
            }
        }
    }

    /// What must hold at every moment.
    fn check(&mut self) {
        let keys = Keys::new("c");
        let snapshot = Snapshot { revision: 1, keys: self.model.keys.values().cloned().collect() };
        let map = Map::read(&snapshot, &keys);
        assert!(map.unreadable.is_empty());
        for (group, entry) in &map.groups {
            let before = self.terms.insert(group.clone(), entry.term).unwrap_or(0);
            assert!(entry.term == before || entry.term == before + 1, "{group}: {before}, {}", entry.term);
            self.moves += usize::from(before > 0 && entry.term > before);
            let owner = self.history.entry((group.clone(), entry.term)).or_insert(entry.owner.clone());
            assert_eq!(*owner, entry.owner, "{group} in term {}", entry.term);
        }
        let mut here = BTreeSet::new();
        for n in 0..MEMBERS {
            let local = self.clock(n);
            let Node { id, machine: Some(machine), .. } = &mut self.nodes[n] else { continue };
            for group in (0..GROUPS).map(|g| format!("g{g}")) {
                if let Owner::Here { term } = machine.owner(&group, false, local) {
                    let owner = self.history.get(&(group.clone(), term));
                    assert_eq!(owner, Some(&*id), "{group} in term {term}");
                    let term = if self.is_strict { 0 } else { term };
                    assert!(here.insert((group, term)), "two owners at once");
                }
            }
        }
    }

    fn step(&mut self) {
        self.now += self.random.between(1, 40);
        self.model.expire(self.now);
        if !self.is_calm {
            self.trouble();
        }
        self.ask();
        (0..MEMBERS).for_each(|n| self.run(n));
        self.check();
    }

    /// Whether each group has one owner that lives, and all members know it.
    fn is_settled(&mut self) -> bool {
        (0..GROUPS).all(|g| {
            let answers = (0..MEMBERS).map(|n| {
                let local = self.clock(n);
                self.nodes[n].machine.as_mut().map(|machine| machine.owner(&format!("g{g}"), false, local))
            });
            let answers: Vec<_> = answers.collect();
            let is = |wanted: fn(&Owner) -> bool| {
                answers.iter().filter(|answer| answer.as_ref().is_some_and(wanted)).count()
            };
            is(|owner| matches!(owner, Owner::Here { .. })) == 1
                && is(|owner| matches!(owner, Owner::Elsewhere { .. })) == MEMBERS - 1
        })
    }
}

/// Runs a seed. Returns how often a group got another owner.
fn run(seed: u64, on_loss: OnLoss) -> usize {
    let mut world = World::new(seed, on_loss);
    (0..2_000).for_each(|_| world.step());
    (world.is_calm, world.paused) = (true, 0);
    for n in 0..MEMBERS {
        if world.nodes[n].machine.is_none() {
            world.start(n);
        }
    }
    // Two minutes are more than leases and pauses take.
    let end = world.now + 120_000;
    while !world.is_settled() {
        assert!(world.now < end, "seed {seed}: it does not settle: {:?}", world.terms);
        world.step();
    }
    world.moves
}

#[test]
fn a_group_has_one_owner_in_each_term_whatever_etcd_does() {
    for on_loss in [OnLoss::NewLog, OnLoss::Archive] {
        let moves: usize = (0..SEEDS).map(|seed| run(seed, on_loss)).sum();
        assert!(moves > SEEDS as usize, "{moves} moves");
    }
}

#[test]
fn a_group_waits_for_its_owner() {
    for seed in 0..SEEDS {
        assert_eq!(run(seed, OnLoss::Wait), 0, "seed {seed}");
    }
}

fn member(id: &str, host: &str) -> Machine {
    Machine::new(MemberSettings {
        cluster: "c".into(),
        id: id.into(),
        addresses: vec!["h:1".into()],
        host: host.into(),
        version: "1".into(),
        ttl: Duration::from_millis(TTL_MS),
        on_loss: OnLoss::Wait,
        archive: String::new(),
        seed: 1,
    })
}

/// Lets a member do all that it has to do at this time.
fn settle(machine: &mut Machine, model: &mut Model, local: Instant, now: u64) {
    for _ in 0..20 {
        let step = machine.next(local);
        if matches!(step, Step::Rest { .. }) {
            return;
        }
        let outcome = model.apply(now, &step);
        machine.done(local, local, outcome);
    }
    panic!("it does not come to rest");
}

#[test]
fn a_name_belongs_to_one_broker_and_a_killed_one_gets_it_back_at_once() {
    let (mut model, base) = (Model { revision: 1, ..Model::default() }, Instant::now());
    let mut first = member("a", "x");
    first.owner("g", false, base);
    settle(&mut first, &mut model, base, 1);
    assert_eq!(first.owner("g", false, base), Owner::Here { term: 1 });

    let mut other = member("a", "y");
    settle(&mut other, &mut model, base, 1);
    let Owner::Unsettled { reason } = other.owner("g", false, base) else { panic!("it has the name") };
    assert!(reason.contains("set cluster.id"), "{reason}");
    assert!(other.status(base).degraded.unwrap().contains("\"a\""));

    let mut again = member("a", "x");
    settle(&mut again, &mut model, base, 1);
    assert_eq!(again.owner("g", false, base), Owner::Here { term: 1 });
    // The lease of the first one ends, and takes nothing with it.
    let later = base + Duration::from_millis(TTL_MS);
    settle(&mut again, &mut model, base + Duration::from_millis(TTL_MS / 2), 1 + TTL_MS / 2);
    settle(&mut again, &mut model, later, 1 + TTL_MS);
    model.expire(1 + TTL_MS);
    assert_eq!(again.status(later).degraded, None);
    assert!(model.keys.contains_key("/rbmq/c/members/a"));
}

#[test]
fn a_file_of_another_machine_is_not_believed() {
    let (mut model, base) = (Model { revision: 1, ..Model::default() }, Instant::now());
    let mut first = member("a", "boot-1 x");
    first.owner("g", false, base);
    settle(&mut first, &mut model, base, 1);
    let Outcome::Read(snapshot) = model.apply(1, &Step::Read) else { panic!("all keys are read") };
    let recalls = |id: &str, host: &str, snapshot: &Snapshot| {
        let mut machine = member(id, host);
        machine.recall(snapshot);
        machine.owner("g", false, base) == Owner::Here { term: 1 }
    };
    assert!(recalls("a", "boot-1 x", &snapshot));
    assert!(recalls("a", "boot-2 x", &snapshot), "the machine was started anew");
    assert!(!recalls("a", "boot-1 y", &snapshot), "another machine has the name");
    let own = |kv: &KeyValue| kv.key == "/rbmq/c/members/a";
    let mut moved = snapshot.clone();
    moved.keys.iter_mut().filter(|kv| own(kv)).for_each(|kv| {
        kv.value = br#"{"addresses":["other:1"],"host":"boot-1 x","version":"1"}"#.to_vec();
    });
    assert!(!recalls("a", "boot-1 x", &moved), "a broker at another address has the name");
    let mut away = snapshot;
    away.keys.retain(|kv| !own(kv));
    assert!(!recalls("a", "boot-1 x", &away), "it was no member");
}

#[test]
fn an_owner_serves_on_while_etcd_is_away_and_says_so() {
    let (mut model, base) = (Model { revision: 1, ..Model::default() }, Instant::now());
    let mut machine = member("a", "x");
    machine.owner("g", false, base);
    settle(&mut machine, &mut model, base, 1);
    let later = base + Duration::from_millis(20 * TTL_MS);
    machine.next(later);
    machine.done(later, later, Outcome::Failed { reason: "etcd is away".into() });
    assert_eq!(machine.owner("g", false, later), Owner::Here { term: 1 });
    let status = machine.status(later);
    assert_eq!((status.degraded.as_deref(), status.etcd_errors), (Some("etcd is away"), 1));
    assert!(matches!(machine.next(later), Step::Rest { .. }), "there is a pause");
}

#[test]
fn a_key_that_makes_no_sense_is_left_alone() {
    let (mut model, base) = (Model { revision: 1, ..Model::default() }, Instant::now());
    let key = Keys::new("c").group("g");
    model.write(&Txn {
        compares: vec![],
        changes: vec![Change::Put { key: key.clone(), value: b"?".to_vec(), lease: 0 }],
    });
    let mut machine = member("a", "x");
    settle(&mut machine, &mut model, base, 1);
    let Owner::Unsettled { reason } = machine.owner("g", true, base) else { panic!("it has an owner") };
    assert!(reason.contains(&key) && reason.contains("makes no sense"), "{reason}");
    settle(&mut machine, &mut model, base, 1);
    assert_eq!(model.keys[&key].value, b"?");
}

/// A broker with another archive would begin other logs for the topics that it gets. It is the one that comes later that has to change.
#[test]
fn a_member_with_another_archive_is_none() {
    let (mut model, base) = (Model { revision: 1, ..Model::default() }, Instant::now());
    let mut start = |id: &str, archive: &str, on_loss: OnLoss| {
        let mut machine = Machine::new(MemberSettings {
            cluster: "c".into(),
            id: id.into(),
            addresses: vec![format!("{id}:1")],
            host: id.into(),
            version: "1".into(),
            ttl: Duration::from_millis(TTL_MS),
            on_loss,
            archive: archive.into(),
            seed: 1,
        });
        machine.owner(&format!("g-{id}"), true, base);
        settle(&mut machine, &mut model, base, 1);
        machine
    };
    let (mut first, mut same) = (start("b", "one", OnLoss::Archive), start("c", "one", OnLoss::Archive));
    let (mut other, waits) = (start("a", "two", OnLoss::Archive), start("d", "", OnLoss::Wait));
    assert_eq!(first.owner("g-b", false, base), Owner::Here { term: 1 });
    assert_eq!(same.owner("g-c", false, base), Owner::Here { term: 1 });
    let Owner::Unsettled { reason } = other.owner("g-a", false, base) else { panic!("it has a group") };
    assert_eq!(reason, "'g-a' gets an owner");
    let why = other.status(base).degraded.unwrap();
    assert!(why.contains("\"b\"") && why.contains("\"one\", and this one \"two\""), "{why}");
    assert!(!other.is_starting());
    let why = waits.status(base).degraded.unwrap_or_default();
    assert!(why.contains("\"one\", and this one \"\""), "{why}");
    // The others do not know it.
    settle(&mut first, &mut model, base, 1);
    assert_eq!((first.status(base).degraded, first.others().len()), (None, 0));
}
