//! A round: a cluster, clients, the faults of a seed, and the checks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use testkit::{LONG, Random};

use crate::check::{Evidence, group};
use crate::cluster::{
    Cluster, Means, NAME, OnLoss, Plan, addresses_from, broker_address, etcd_client, ttl_s,
};
use crate::nemesis::{Fault, Step, bring_about, schedule};
use crate::network::MEMBERS;
use crate::publishers::{Published, Publishers};
use crate::readers::{Mark, Notes, Place, Reader};
use crate::register::{self, Owned, Sample, Sampler};

/// Each topic is a group of its own.
const TOPICS: usize = 4;
/// The publishers of each topic.
const PUBLISHERS: usize = 2;
/// How long faults happen.
const FAULTS: Duration = Duration::from_secs(10);
/// Nothing more comes after a silence of this length.
const QUIET: Duration = Duration::from_millis(500);
/// How long an owner may go on after it has lost a group by itself: the time between two answers of etcd, and that of a busy machine.
const LATE: Duration = Duration::from_millis(700);

/// What a round was, and what is wrong.
#[derive(Debug)]
pub struct Report {
    /// Its plan.
    pub plan: Plan,
    /// What happened.
    pub steps: Vec<Step>,
    /// The messages and answers that clients saw.
    pub evidence: Evidence,
    /// The changes of owners.
    pub terms: u64,
    /// What is wrong. Empty: the promises were kept.
    pub faults: Vec<String>,
    /// The ends of the logs of the processes, if something is wrong.
    pub logs: String,
}

/// Runs the round of a seed.
///
/// # Panics
/// The machine refuses namespaces or processes.
pub fn run(plan: Plan) -> Report {
    let steps = schedule(&mut Random::new(plan.seed), &plan, TOPICS, FAULTS);
    run_steps(plan, steps)
}

/// Runs a round in which this happens.
///
/// # Panics
/// The machine refuses namespaces or processes.
pub fn run_steps(plan: Plan, steps: Vec<Step>) -> Report {
    let seed = plan.seed;
    let mut random = Random::new(!seed);
    let all = || steps.iter().flat_map(|step| &step.faults);
    let means = Means {
        disks: all().any(|fault| fault.means().disks),
        clocks: all().any(|fault| fault.means().clocks),
        store: all().any(|fault| fault.means().store),
    };
    let mut cluster = Cluster::start(plan.clone(), means);
    let sampler = Sampler::start();
    let readers = [
        Reader::start(Place { addresses: addresses_from(seed as usize), name: None }),
        Reader::start(Place { addresses: addresses_from(seed as usize + 1), name: Some("durable".into()) }),
    ];
    let publishers = Publishers::start(&plan, TOPICS, PUBLISHERS);
    std::thread::sleep(Duration::from_millis(random.between(300, 1_000)));
    bring_about(&steps, &mut cluster);
    let mut evidence = Evidence {
        had_death: all().any(|fault| fault.is_death()),
        had_cut: all().any(|fault| fault.is_cut()),
        damage: cluster.damaged().into(),
        has_new_logs: plan.on_loss == OnLoss::NewLog,
        has_archive: plan.on_loss == OnLoss::Archive,
        published: publishers.finish(),
        ..Evidence::default()
    };
    read_at_owners(&mut evidence);
    let late = catch_up(&readers, &evidence);
    evidence.live = readers.into_iter().map(Reader::finish).collect();
    let samples = sampler.finish();
    let mut faults = evidence.faults();
    faults.extend(late);
    faults.extend(register::check(&samples));
    faults.extend(cluster.dead().iter().map(|n| format!("broker {n} has ended by itself")));
    if evidence.has_new_logs {
        faults.extend(stale(&cluster, &evidence, &samples, &steps));
    }
    let logs = if faults.is_empty() { String::new() } else { cluster.logs() };
    let terms = samples.last().map_or(0, |last| last.groups.values().map(|owned| owned.term).sum());
    Report { plan, steps, evidence, terms, faults, logs }
}

/// Reads everything at each broker. A round with an archive reads again, up to three times, if an owner changes meanwhile.
fn read_at_owners(evidence: &mut Evidence) {
    let began = Instant::now();
    let members =
        || etcd_client().range(&format!("/rbmq/{NAME}/members/")).map_or(0, |found| found.keys.len());
    while members() < MEMBERS && began.elapsed() < LONG / 2 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let owners =
        |evidence: &Evidence| evidence.has_archive.then(register::owners).flatten().unwrap_or_default();
    let mut now = owners(evidence);
    for _ in 0..3 {
        let number = |owned: &Owned| owned.owner.strip_prefix('m').and_then(|number| number.parse().ok());
        let known = now.iter().filter_map(|(group, owned)| Some((group.clone(), number(owned)?)));
        evidence.owners = known.collect();
        read_all(evidence);
        let before = std::mem::replace(&mut now, owners(evidence));
        if before == now {
            return;
        }
    }
    evidence.owners.clear();
}

/// Reads everything at each broker, from the beginning on, until nothing more comes and nothing is missing, or for too long.
fn read_all(evidence: &mut Evidence) {
    let place = |n| Place { addresses: broker_address(n), name: None };
    let readers: Vec<Reader> = (0..MEMBERS).map(|n| Reader::start(place(n))).collect();
    let is_quiet = |notes: &Notes| notes.last.is_none_or(|last| last.elapsed() > QUIET);
    let began = Instant::now();
    let is_over = |(n, reader): (usize, &Reader)| {
        reader.look(|notes| is_quiet(notes) && lacking(n, notes, evidence).is_empty())
    };
    while began.elapsed() < LONG / 2 && !readers.iter().enumerate().all(is_over) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let last: Vec<Notes> = readers.into_iter().map(Reader::finish).collect();
    let lacking = last.iter().enumerate().map(|(n, notes)| (n, lacking(n, notes, evidence)));
    let unfinished = lacking.filter(|(_, lacks)| !lacks.is_empty()).map(|(n, lacks)| {
        format!("a reader from the oldest at broker {n} does not come to the end: it lacks {lacks:?}")
    });
    evidence.unfinished = unfinished.collect();
    evidence.last = last;
}

/// The last messages that a reader at a broker has not read, which begins when all is over. A log that another broker has does not count: the ring
/// here begins with what came from the present owner, which may be behind the last message of a publisher. [`catch_up`] is strict at each broker.
fn lacking(n: usize, notes: &Notes, evidence: &Evidence) -> Vec<Mark> {
    let read: HashSet<Mark> = notes.marks().collect();
    let is_here = |mark: &Mark| {
        let of = |one: &&Published| one.publisher == mark.publisher;
        let owner = evidence.published.iter().find(of).and_then(|one| evidence.owner(&one.topic));
        owner.is_none_or(|owner| owner == n)
    };
    last_marks(evidence).filter(|mark| is_here(mark) && !read.contains(mark)).collect()
}

/// The last message of each publisher.
fn last_marks(evidence: &Evidence) -> impl Iterator<Item = Mark> {
    let mark =
        |one: &Published| Some(Mark { publisher: one.publisher, number: one.times.len().checked_sub(1)? });
    evidence.published.iter().filter(|one| one.stuck.is_none() && !one.is_dead).filter_map(mark)
}

fn lacks_last(notes: &Notes, evidence: &Evidence) -> bool {
    let read: HashSet<Mark> = notes.marks().collect();
    last_marks(evidence).any(|mark| !read.contains(&mark))
}

/// Subscribers that were there all the time get the last messages too.
fn catch_up(readers: &[Reader], evidence: &Evidence) -> Vec<String> {
    let began = Instant::now();
    let mut late = Vec::new();
    for (n, reader) in readers.iter().enumerate() {
        while began.elapsed() < LONG / 2 && reader.look(|notes| lacks_last(notes, evidence)) {
            std::thread::sleep(Duration::from_millis(50));
        }
        if reader.look(|notes| lacks_last(notes, evidence)) {
            late.push(format!("subscriber {n} does not get the last messages"));
        }
    }
    late
}

/// Messages that only the logs of former owners have, and that were published when these were owners no more.
fn stale(cluster: &Cluster, evidence: &Evidence, samples: &[Sample], steps: &[Step]) -> Vec<String> {
    let is_operated = |fault: &Fault| matches!(fault, Fault::Move { .. } | Fault::Drain(_));
    let is_operated = steps.iter().flat_map(|step| &step.faults).any(is_operated);
    // An owner that has no etcd learns of an operator's wish when its lease runs out.
    let late = if is_operated { LATE + Duration::from_secs(ttl_s()) } else { LATE };
    let (mut ends, mut ended) = (HashMap::new(), HashMap::new());
    for heard in evidence.last.iter().flat_map(|notes| &notes.heard) {
        // None: its member is the owner at the end, or nobody knows.
        let end = *ends.entry(heard.epoch).or_insert_with(|| {
            let members = (0..MEMBERS).filter(|n| cluster.has_log(*n, heard.epoch));
            let ends = members.map(|n| register::left(samples, group(&heard.topic), &format!("m{n}")));
            ends.collect::<Option<Vec<Instant>>>().and_then(|ends| ends.into_iter().max())
        });
        for mark in &heard.marks {
            let known = ended.entry(*mark).or_insert(end);
            *known = known.zip(end).map(|(known, end)| known.max(end));
        }
    }
    let mut stale = Vec::new();
    for one in &evidence.published {
        for (number, time) in one.times.iter().enumerate() {
            let end = ended.get(&Mark { publisher: one.publisher, number }).copied().flatten();
            let after = end.and_then(|end| time.checked_duration_since(end));
            if let Some(after) = after.filter(|after| *after > late) {
                stale.push(format!(
                    "{number} of publisher {} was taken by an owner whose term had ended {after:?} before",
                    one.publisher
                ));
            }
        }
    }
    stale.truncate(5);
    stale
}

impl Report {
    /// The longest time in which a publisher that lived all the time got no confirmation, for each topic.
    pub fn pauses(&self) -> BTreeMap<&str, Duration> {
        let mut pauses = BTreeMap::new();
        for one in self.evidence.published.iter().filter(|one| !one.is_dead) {
            let longest: &mut Duration = pauses.entry(one.topic.as_str()).or_default();
            *longest = one.longest_pause.max(*longest);
        }
        pauses
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { evidence, plan, .. } = self;
        let published: usize = evidence.published.iter().map(|one| one.times.len()).sum();
        let kept = evidence.kept().len();
        let told: usize = evidence.published.iter().map(|one| one.told.len()).sum();
        let lasting = evidence.published.iter().filter(|one| !one.is_dead);
        let longest = lasting.max_by_key(|one| one.longest_pause);
        let (pause, level) = longest.map_or((0.0, String::new()), |one| {
            (one.longest_pause.as_secs_f64(), format!(" ({})", one.level))
        });
        let epochs: BTreeSet<_> =
            evidence.last.iter().flat_map(|notes| &notes.heard).map(|heard| heard.epoch).collect();
        write!(
            f,
            "seed {} ({}): {published} published, {kept} kept, {told} failures told, {} logs, {} terms, longest pause {pause:.1} s{level}",
            plan.seed,
            plan.on_loss.word(),
            epochs.len(),
            self.terms,
        )?;
        for step in &self.steps {
            write!(f, "\n  {:?} for {:?}, then {:?}", step.faults, step.lasts, step.rest)?;
        }
        for path in &evidence.damage {
            write!(f, "\n  damaged: {}", path.display())?;
        }
        for fault in &self.faults {
            write!(f, "\n  WRONG: {fault}")?;
        }
        for one in evidence.published.iter().filter(|one| !self.faults.is_empty() && !one.told.is_empty()) {
            write!(f, "\n  publisher {} ({}): {:?}", one.publisher, one.level, one.told)?;
        }
        for (n, notes) in evidence.live.iter().enumerate().filter(|_| !self.faults.is_empty()) {
            write!(f, "\n  subscriber {n}: {:?}", notes.told)?;
        }
        for (n, notes) in evidence.last.iter().enumerate().filter(|_| !self.faults.is_empty()) {
            write!(f, "\n  reader at broker {n}: {:?}", notes.told)?;
        }
        if !self.faults.is_empty() && evidence.has_archive {
            write!(f, "\n  owners at the end: {:?}", evidence.owners)?;
        }
        Ok(())
    }
}
