//! Named consumers against a plain model, and their journal: what a killed process knew is known.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::journal::{copy, segment};
use proptest::prelude::*;
use rbmq_groups::{Consumers, Delivered, EntryId, Journal, MAX_CONSUMER_NAME_BYTES, TooManyConsumers};

const NAMES: [&[u8]; 3] = [b"anna", b"ben", b"\0\xFF"];

fn id(n: u64) -> EntryId {
    EntryId { time: 1000 + n / 3, position: n * 10 }
}

/// What is pending, as a person would write it down.
type Model = BTreeMap<EntryId, (Vec<u8>, u32, u64)>;

fn seen(group: &Consumers) -> Model {
    let name = |number| group.get(number).expect("an entry has its consumer").name().to_vec();
    let one = |(id, at): (EntryId, Delivered)| (id, (name(at.consumer), at.count, at.at_ms));
    group.pending_from(EntryId::MIN).map(one).collect()
}

fn names(group: &Consumers) -> Vec<Vec<u8>> {
    group.consumers().map(|one| one.name().to_vec()).collect()
}

/// Opens the journal as the next process does.
fn reopened(dir: &Path) -> Consumers {
    let (_journal, recovered) = Journal::open(dir).expect("it opens");
    assert_eq!(recovered.damaged_bytes, 0);
    let (epoch, group) = recovered.group_of_consumers(5000).expect("the journal has a group");
    assert_eq!(epoch, 7);
    group
}

#[derive(Debug, Clone)]
enum Act {
    Deliver { to: usize, count: u64, keep: bool },
    Ack(u64),
    Claim { to: usize, n: u64, count: u32 },
    Remove(usize),
    SetLast(u64),
    Write,
    Save,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..3usize, 0..4u64, any::<bool>()).prop_map(|(to, count, keep)| Act::Deliver { to, count, keep }),
        (0..40u64).prop_map(Act::Ack),
        (0..3usize, 0..40u64, 1..9u32).prop_map(|(to, n, count)| Act::Claim { to, n, count }),
        (0..3usize).prop_map(Act::Remove),
        (0..40u64).prop_map(Act::SetLast),
        Just(Act::Write),
        Just(Act::Save),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_group_is_as_its_model_and_its_journal(acts in proptest::collection::vec(act(), 1..60)) {
        let dir = tempfile::tempdir().expect("a folder");
        let (mut journal, _) = Journal::open(dir.path()).expect("a new journal");
        let (mut group, mut model, mut next) = (Consumers::new(EntryId::MIN, Some(0)), Model::new(), 0);
        journal.save_consumers(&group, 7).expect("the disk works");
        for (now, act) in (1u64..).zip(acts) {
            match act {
                Act::Deliver { to, count, keep } => {
                    let (number, _) = group.consumer(NAMES[to], now, 3).expect("there is room");
                    let ids: Vec<EntryId> = (next + 1..=next + count).map(id).collect();
                    let after = group.last();
                    prop_assert!(!group.deliver(number, EntryId::MAX, &ids, now, keep), "others have got these");
                    prop_assert!(group.deliver(number, after, &ids, now, keep));
                    model.extend(ids.iter().filter(|_| keep).map(|id| (*id, (NAMES[to].to_vec(), 1, now))));
                    next += count;
                }
                Act::Ack(n) => prop_assert_eq!(group.ack(id(n)), model.remove(&id(n)).is_some()),
                Act::Claim { to, n, count } => {
                    let (consumer, _) = group.consumer(NAMES[to], now, 3).expect("there is room");
                    group.claim(id(n), Delivered { consumer, count, at_ms: now });
                    model.insert(id(n), (NAMES[to].to_vec(), count, now));
                }
                Act::Remove(to) => {
                    let had = model.values().filter(|(name, ..)| name == NAMES[to]).count();
                    model.retain(|_, (name, ..)| name != NAMES[to]);
                    prop_assert_eq!(group.remove_consumer(NAMES[to]).unwrap_or(0), had);
                }
                Act::SetLast(n) => {
                    group.set_last(id(n), None);
                    next = n;
                }
                Act::Write => journal.write_consumers(&mut group).expect("the disk works"),
                Act::Save => {
                    journal.write_consumers(&mut group).expect("the disk works");
                    journal.save_consumers(&group, 7).expect("the disk works");
                }
            }
            prop_assert_eq!(seen(&group), model.clone());
            for name in NAMES {
                let held = group.find(name).map_or(0, |number| group.pending_of(number, EntryId::MIN).count());
                prop_assert_eq!(held, model.values().filter(|(of, ..)| of == name).count());
            }
        }
        journal.write_consumers(&mut group).expect("the disk works");
        drop(journal);
        let again = reopened(dir.path());
        prop_assert_eq!(seen(&again), model);
        prop_assert_eq!((again.last(), again.read(), again.len()), (group.last(), group.read(), group.len()));
        prop_assert_eq!(names(&again), names(&group));
    }

    #[test]
    fn a_journal_of_any_bytes_is_opened(bytes in proptest::collection::vec(any::<u8>(), 0..40), kind in 0..6u8) {
        let dir = tempfile::tempdir().expect("a folder");
        let mut log = seglog::Log::open(dir.path(), seglog::Options::default()).expect("a log");
        log.append(&[&[2, kind][..], &bytes].concat()).expect("the disk works");
        drop(log);
        let (_, recovered) = Journal::open(dir.path()).expect("it opens");
        let _ = recovered.group_of_consumers(0);
    }
}

#[test]
fn a_group_has_a_limited_number_of_consumers_and_says_what_it_costs() {
    let mut group = Consumers::new(EntryId::MIN, None);
    let long = [b'x'; MAX_CONSUMER_NAME_BYTES];
    assert_eq!(group.consumer(&long, 0, 1), Ok((1, true)));
    assert_eq!(group.consumer(&long, 9, 1), Ok((1, false)));
    let before = group.cost();
    group.deliver(1, EntryId::MIN, &[id(1), id(2)], 0, true);
    assert_eq!(group.consumer(b"second", 0, 1), Err(TooManyConsumers(1)));
    assert!(group.cost() > before && before > MAX_CONSUMER_NAME_BYTES);
    assert_eq!(group.remove_consumer(&long), Some(2));
    assert_eq!((group.cost(), group.pending(), group.remove_consumer(&long)), (0, 0, None));
    // An entry of a consumer that is not there is nobody's.
    group.claim(id(3), Delivered { consumer: 1, count: 1, at_ms: 0 });
    assert_eq!(group.pending(), 0);
}

/// A group whose journal is in a folder. Returns the entries that were done at a time, or forgotten.
fn worked(dir: &Path) -> Vec<u64> {
    let (mut journal, _) = Journal::open(dir).expect("a new journal");
    let mut group = Consumers::new(EntryId::MIN, Some(0));
    journal.save_consumers(&group, 7).expect("the disk works");
    let mut deliver = |group: &mut Consumers, name: &[u8], from: u64| {
        let (number, _) = group.consumer(name, 1, 9).expect("there is room");
        let ids: Vec<EntryId> = (from..from + 3).map(id).collect();
        assert!(group.deliver(number, group.last(), &ids, 1, true));
        journal.write_consumers(group).expect("the disk works");
    };
    deliver(&mut group, b"anna", 1);
    deliver(&mut group, b"ben", 4);
    group.ack(id(2));
    deliver(&mut group, b"anna", 7);
    assert_eq!(group.remove_consumer(b"ben"), Some(3));
    deliver(&mut group, b"carl", 10);
    // What was done before belongs to somebody again.
    let (number, _) = group.consumer(b"dora", 1, 9).expect("there is room");
    group.claim(id(2), Delivered { consumer: number, count: 1, at_ms: 1 });
    deliver(&mut group, b"carl", 13);
    group.ack(id(8));
    deliver(&mut group, b"dora", 16);
    vec![2, 4, 5, 6, 8]
}

#[test]
fn a_journal_that_is_damaged_at_any_byte_loses_no_entry() {
    let dir = tempfile::tempdir().expect("a folder");
    let done = worked(dir.path());
    let whole = fs::read(segment(dir.path())).expect("the segment");
    assert_eq!(reopened(dir.path()).pending(), 14);
    // Each batch is longer than the steps.
    for at in (0..whole.len()).step_by(11) {
        let damaged = copy(dir.path());
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(segment(damaged.path()), bytes).expect("it is written");
        let (_journal, recovered) = Journal::open(damaged.path()).expect("it opens");
        // Without any whole group it begins anew.
        let Some((_, group)) = recovered.group_of_consumers(5000) else { continue };
        let is_lost =
            |n: &u64| id(*n) <= group.last() && group.delivered(id(*n)).is_none() && !done.contains(n);
        let lost: Vec<u64> = (1..=18).filter(is_lost).collect();
        assert!(lost.is_empty(), "byte {at}: {lost:?} are lost, the last is {}", group.last());
    }
}

#[test]
fn who_has_nothing_and_does_not_ask_makes_room_for_others() {
    let mut group = Consumers::new(EntryId::MIN, None);
    for (now, name) in (0u64..).zip(NAMES) {
        group.consumer(name, now, 3).expect("there is room");
    }
    group.deliver(1, EntryId::MIN, &[id(1)], 3, true);
    for n in 0..1025 {
        assert!(group.consumer(format!("host-{n}").as_bytes(), 10 + n, 3).expect("there is room").1);
        assert_eq!(group.len(), 3);
    }
    assert!(group.find(NAMES[0]).is_some() && group.find(NAMES[1]).is_none(), "who has something stays");
}

#[test]
fn old_files_are_removed_one_by_one_and_not_by_a_write() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut journal, _) = Journal::open(dir.path()).expect("a new journal");
    let mut group = Consumers::new(EntryId::MIN, None);
    let files = || fs::read_dir(dir.path()).expect("the folder").count();
    journal.save_consumers(&group, 7).expect("the disk works");
    let (number, _) = group.consumer(b"anna", 1, 9).expect("there is room");
    let mut next = 0;
    while files() < 6 {
        let ids: Vec<EntryId> = (next + 1..=next + 5000).map(id).collect();
        next += 5000;
        assert!(group.deliver(number, group.last(), &ids, 1, true));
        ids.iter().for_each(|id| assert!(group.ack(*id)));
        journal.write_consumers(&mut group).expect("the disk works");
    }
    assert!(journal.wants_save());
    (0..2).for_each(|_| journal.save_consumers(&group, 7).expect("the disk works"));
    let before = files();
    // Until the new one is on the disk.
    while files() == before {
        journal.tidy().expect("the disk works");
    }
    assert_eq!(files(), before - 1);
    group.consumer(b"ben", 1, 9).expect("there is room");
    journal.write_consumers(&mut group).expect("the disk works");
    assert_eq!(files(), before - 1);
    journal.tidy().expect("the disk works");
    assert_eq!((files(), journal.is_untidy()), (before - 2, true));
}
