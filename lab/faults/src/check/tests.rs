//! Evidence that is wrong in one way each.

use std::time::Instant;

use super::*;
use crate::publishers::Confirmation;

const LOG: Epoch = Epoch(7);

fn heard(from: Position, numbers: std::ops::Range<usize>) -> Heard {
    let marks: Vec<Mark> = numbers.map(|number| Mark { publisher: 0, number }).collect();
    let bytes: Vec<u8> = marks.iter().map(|mark| mark.number as u8).collect();
    Heard {
        topic: "k/0/x".into(),
        epoch: LOG,
        from,
        to: from + bytes.len() as u64,
        bytes: Some(bytes),
        marks,
    }
}

fn notes(heard: Vec<Heard>) -> Notes {
    Notes { heard, ..Notes::default() }
}

/// Ten messages at a level, all of which were confirmed and read.
fn good(level: ConfirmLevel) -> Evidence {
    let mut published = Published::new(0, "k/0/x".into(), level);
    published.times = vec![Instant::now(); 10];
    published.confirmed = vec![Confirmation { end: 10, is_certain: true }];
    Evidence {
        published: vec![published],
        live: vec![notes(vec![heard(0, 0..4), heard(4, 4..10)])],
        last: vec![notes(vec![heard(0, 0..10)]); 3],
        ..Evidence::default()
    }
}

fn of(level: ConfirmLevel, change: impl FnOnce(&mut Evidence)) -> String {
    let mut evidence = good(level);
    change(&mut evidence);
    evidence.faults().join("; ")
}

#[test]
fn what_was_promised_is_no_fault() {
    ConfirmLevel::ALL.into_iter().for_each(|level| assert_eq!(of(level, |_| {}), ""));
}

#[test]
fn each_broken_promise_is_found() {
    use ConfirmLevel::{Accepted, Delivered, Stored};
    let short = |evidence: &mut Evidence| {
        evidence.last.iter_mut().chain(&mut evidence.live).for_each(|one| *one = notes(vec![heard(0, 0..8)]));
    };
    assert!(of(Stored, short).contains("misses 2 messages from 8 to 9"));
    // Nobody was told of a loss.
    let killed = |evidence: &mut Evidence| {
        short(evidence);
        evidence.had_death = true;
    };
    assert!(of(Accepted, killed).contains("misses 2 messages"));
    let told = |evidence: &mut Evidence| {
        killed(evidence);
        evidence.published[0].lost.push(8..10);
    };
    assert_eq!(of(Accepted, told), "");
    let dead = |evidence: &mut Evidence| {
        short(evidence);
        evidence.published[0].is_dead = true;
    };
    assert_eq!(of(Accepted, dead), "");
    assert!(of(Stored, dead).contains("misses 2 messages"));
    let unread = |evidence: &mut Evidence| evidence.live[0].heard.truncate(1);
    assert!(of(Delivered, unread).contains("6 messages from 4 to 9 are delivered: nobody has read them"));
    let hole = |evidence: &mut Evidence| evidence.live[0].heard.insert(1, heard(6, 6..8));
    assert!(
        of(Stored, hole).contains("4 to 6 of 00000000000000000000000000000007 is missing without a word")
    );
    let twice = |evidence: &mut Evidence| evidence.live[0].heard.push(heard(8, 8..10));
    assert!(of(Stored, twice).contains("came twice"));
    let other = |evidence: &mut Evidence| evidence.live[0].heard[1].bytes = Some(vec![9; 6]);
    assert!(of(Stored, other).contains("was read with other bytes"));
    let gone = |evidence: &mut Evidence| evidence.live[0].heard.push(heard(10, 10..11));
    assert!(of(Stored, gone).contains("10 to 11 of 00000000000000000000000000000007 was read and is gone"));
    let order = |evidence: &mut Evidence| evidence.last[0].heard.push(heard(10, 9..10));
    assert!(of(Stored, order).contains("publisher 0 has 9 after 9"));
    let second = |evidence: &mut Evidence| {
        let log = Heard { epoch: Epoch(8), ..heard(0, 0..1) };
        evidence.last.iter_mut().for_each(|one| one.heard.push(log.clone()));
    };
    assert!(of(Stored, second).contains("k/0/x has 2 logs"));
    let hangs = |evidence: &mut Evidence| evidence.published[0].stuck = Some("late".into());
    assert!(of(Stored, hangs).contains("hangs: late"));
}

#[test]
fn what_a_disk_forgets_is_told_and_is_nothing_that_was_synced() {
    use ConfirmLevel::{Stored, Synced};
    // The log goes on behind a gap.
    let told = |evidence: &mut Evidence| {
        let gap = Heard { to: 20, bytes: None, ..heard(8, 0..0) };
        evidence.last = vec![notes(vec![heard(0, 0..8), gap]); 3];
        (evidence.had_death, evidence.had_cut) = (true, true);
    };
    assert_eq!(of(Stored, told), "");
    assert!(of(Synced, told).contains("misses 2 messages from 8 to 9"));
    let untold = |evidence: &mut Evidence| {
        told(evidence);
        evidence.last.iter_mut().for_each(|one| one.heard.truncate(1));
    };
    assert!(of(Stored, untold).contains("misses 2 messages") && of(Stored, untold).contains("and is gone"));
    let used_again = |evidence: &mut Evidence| {
        told(evidence);
        evidence.last[0].heard.push(Heard { bytes: Some(vec![99; 2]), to: 10, ..heard(8, 0..0) });
    };
    assert!(of(Stored, used_again).contains("was read with other bytes"));
    let damaged = |evidence: &mut Evidence| {
        told(evidence);
        (evidence.had_cut, evidence.damage) = (false, vec!["kept/x/log/0.seg".into()]);
    };
    assert_eq!(of(Synced, damaged), "");
    let twice = |evidence: &mut Evidence| evidence.last[0].heard.push(heard(10, 9..10));
    let journal = |evidence: &mut Evidence| {
        twice(evidence);
        evidence.damage = vec!["kept/x/publishers/0.seg".into()];
    };
    assert!(of(Synced, twice).contains("has 9 after 9"));
    assert_eq!(of(Synced, journal), "");
}

#[test]
fn what_an_archive_has_not_is_told_and_is_nothing_that_was_archived() {
    use ConfirmLevel::{Archived, Synced};
    // The next owner goes on far behind.
    let far = 1 << 44;
    let taken = |evidence: &mut Evidence, next: Option<Heard>| {
        let gap = Heard { to: far, bytes: None, ..heard(8, 0..0) };
        let log = [heard(0, 0..8), gap].into_iter().chain(next).collect();
        evidence.last = vec![notes(log); 3];
        evidence.has_archive = true;
    };
    assert!(of(Archived, |evidence| taken(evidence, None)).contains("misses 2 messages from 8 to 9"));
    assert_eq!(of(Synced, |evidence| taken(evidence, None)), "");
    for level in [Archived, Synced] {
        assert_eq!(of(level, |evidence| taken(evidence, Some(heard(far, 8..10)))), "", "sent again");
        let twice = of(level, |evidence| taken(evidence, Some(heard(far, 7..10))));
        assert!(twice.contains("publisher 0 has 7 after 7"), "{twice}");
    }
    let other = |evidence: &mut Evidence| {
        taken(evidence, Some(heard(far, 8..10)));
        evidence.live[0].heard.push(Heard { bytes: None, to: far, ..heard(10, 0..0) });
        evidence.live[0].heard.push(Heard { bytes: Some(vec![99; 2]), ..heard(far, 8..10) });
    };
    assert!(of(Archived, other).contains("was read with other bytes"));
    let untold = |evidence: &mut Evidence| {
        taken(evidence, None);
        evidence.last.iter_mut().for_each(|one| one.heard.truncate(1));
    };
    assert!(of(Synced, untold).contains("was read and is gone"));
}

#[test]
fn what_only_rings_have_may_come_again_and_the_log_is_that_of_its_owner() {
    use ConfirmLevel::{Archived, Synced};
    let far = 1 << 44;
    // The archive of the owner before ends at 8, and both publishers' last messages came again. Broker 2 has what the former one had.
    let log = |end: u64, numbers: std::ops::Range<usize>| {
        let gap = Heard { to: far, bytes: None, ..heard(end, 0..0) };
        vec![heard(0, 0..end as usize), gap, heard(far, numbers)]
    };
    let ring = |evidence: &mut Evidence| {
        evidence.last = vec![notes(log(8, 8..10)), notes(log(8, 8..10)), notes(log(10, 8..10))];
        (evidence.has_archive, evidence.owners) = (true, [("k/0".to_owned(), 0)].into());
        evidence.published[0].archived_end = 10;
    };
    assert_eq!(of(Archived, ring), "");
    assert_eq!(of(Synced, ring), "");
    let at_owner = |evidence: &mut Evidence| {
        ring(evidence);
        evidence.owners = [("k/0".to_owned(), 2)].into();
    };
    assert!(of(Synced, at_owner).contains("at broker 2: k/0/x: publisher 0 has 8 after 9"));
    let untold = |evidence: &mut Evidence| {
        ring(evidence);
        evidence.last[2].heard.remove(1);
    };
    assert!(of(Synced, untold).contains("is missing without a word"));
    // What another broker's ring has hides no loss.
    let gone = |evidence: &mut Evidence| {
        ring(evidence);
        evidence.last[0].heard.truncate(2);
    };
    let wrong = of(Synced, gone);
    assert!(
        wrong.contains("was read and is gone") && wrong.contains("misses 2 messages from 8 to 9"),
        "{wrong}"
    );
    let unfinished = |evidence: &mut Evidence| {
        gone(evidence);
        evidence.unfinished = vec!["broker 0 has no end".into()];
    };
    let wrong = of(Synced, unfinished);
    assert!(wrong.contains("broker 0 has no end") && !wrong.contains("is gone"), "{wrong}");
    // The next owner has found nothing, and its log begins behind.
    let none = |evidence: &mut Evidence| {
        evidence.last = vec![notes(vec![heard(far, 0..10)]); 3];
        (evidence.has_archive, evidence.owners) = (true, [("k/0".to_owned(), 0)].into());
    };
    assert_eq!(of(Archived, none), "");
}
