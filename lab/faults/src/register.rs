//! Who owns what, as a register: what etcd said, when, and whether that can have been so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rbmq_cluster::etcd::Client;
use rbmq_cluster::{Keys, Map};

use crate::cluster::{NAME, etcd_client};

/// How often etcd is asked.
const STEP: Duration = Duration::from_millis(50);

/// The owner of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// The name of the member.
    pub owner: String,
    /// The term.
    pub term: u64,
}

/// What etcd said.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When it had answered.
    pub answered: Instant,
    /// The revision of the store.
    pub revision: i64,
    /// The owners of all groups.
    pub groups: BTreeMap<String, Owned>,
}

/// Asks etcd again and again.
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    /// Starts to ask.
    pub fn start() -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        Self { stop, thread: std::thread::spawn(move || ask(&stopped)) }
    }

    /// Ends, and returns what etcd said, in the order of the questions.
    ///
    /// # Panics
    /// The thread did.
    pub fn finish(self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

fn ask(stop: &AtomicBool) -> Vec<Sample> {
    let (mut client, keys, mut samples) = (etcd_client(), Keys::new(NAME), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        samples.extend(read(&mut client, &keys));
        std::thread::sleep(STEP);
    }
    samples
}

/// What cannot have been so: a term with two owners, a term that shrinks, a group that is forgotten, an answer that is older than one before.
pub fn check(samples: &[Sample]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut owners: BTreeMap<(&str, u64), &str> = BTreeMap::new();
    for sample in samples {
        for (group, Owned { owner, term }) in &sample.groups {
            let first = *owners.entry((group, *term)).or_insert(owner);
            if first != owner {
                wrong.push(format!("{group} has two owners in term {term}: {first} and {owner}"));
            }
        }
    }
    for pair in samples.windows(2) {
        let [before, after] = pair else { continue };
        if after.revision < before.revision {
            wrong.push(format!("etcd went back from {} to {}", before.revision, after.revision));
        }
        for (group, old) in &before.groups {
            match after.groups.get(group) {
                None => wrong.push(format!("{group} has no owner any more")),
                Some(new) if new.term < old.term => {
                    wrong.push(format!("the term of {group} went back from {} to {}", old.term, new.term))
                }
                Some(_) => {}
            }
        }
    }
    wrong
}

/// The owners of all groups now. None: etcd does not answer.
pub fn owners() -> Option<BTreeMap<String, Owned>> {
    read(&mut etcd_client(), &Keys::new(NAME)).map(|sample| sample.groups)
}

fn read(client: &mut Client, keys: &Keys) -> Option<Sample> {
    let snapshot = client.range(keys.prefix()).ok()?;
    let owned = |entry: rbmq_cluster::Entry| Owned { owner: entry.owner, term: entry.term };
    let groups = Map::read(&snapshot, keys).groups.into_iter();
    let groups = groups.map(|(group, entry)| (group, owned(entry))).collect();
    Some(Sample { answered: Instant::now(), revision: snapshot.revision, groups })
}

/// From when on a member owned a group no more, for sure, up to the end. None: it is the owner at the end, or never was, or nobody knows.
pub fn left(samples: &[Sample], group: &str, member: &str) -> Option<Instant> {
    let is_its = |sample: &Sample| sample.groups.get(group).is_some_and(|owned| owned.owner == member);
    let last = samples.iter().rposition(is_its)?;
    samples.get(last + 1).map(|sample| sample.answered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(revision: i64, owner: &str, term: u64) -> Sample {
        let groups = [("k/0".to_owned(), Owned { owner: owner.into(), term })].into();
        Sample { answered: Instant::now(), revision, groups }
    }

    #[test]
    fn what_a_register_cannot_say_is_found() {
        let good = [sample(1, "a", 1), sample(2, "b", 2), sample(2, "b", 2), sample(4, "a", 3)];
        assert_eq!(check(&good), [""; 0]);
        assert!(left(&good, "k/0", "b").is_some() && left(&good, "k/0", "a").is_none());
        let wrong = |last: Sample| check(&[sample(1, "a", 1), sample(3, "b", 2), last]).join("; ");
        assert_eq!(wrong(sample(4, "c", 2)), "k/0 has two owners in term 2: b and c");
        assert_eq!(wrong(sample(4, "a", 1)), "the term of k/0 went back from 2 to 1");
        assert_eq!(wrong(sample(2, "b", 2)), "etcd went back from 3 to 2");
        let none = Sample { groups: BTreeMap::new(), ..sample(5, "", 0) };
        assert_eq!(wrong(none), "k/0 has no owner any more");
    }
}
