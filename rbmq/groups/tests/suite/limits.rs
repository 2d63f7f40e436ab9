//! Memory, fairness, and what limits do.

use rbmq_groups::{Answered, ENTRY_BYTES, Group, Limits, Settings, TIGHT_PENDING};

use crate::at;

fn group(settings: Settings, count: u64) -> Group {
    let mut group = Group::new(settings, 7, 0, Limits::default());
    (0..count).for_each(|n| group.offer(n * 10, 10, 0, n * 10 + 10));
    group
}

#[test]
fn a_million_pending_messages_cost_at_most_64_bytes_each() {
    let mut group = group(Settings::default(), 1 << 20);
    assert!(group.is_full() && !group.wants(), "no more is read");
    assert!(group.memory() <= ENTRY_BYTES << 20, "{}", group.memory());
    // Workers leave one message of every 3, of every 100 and of every 1000 for ever.
    for every in [3, 100, 1000] {
        for n in (0..1 << 20).filter(|n| n % every != 0) {
            group.ack(1, at(n * 10, 1), u64::MAX);
        }
        let (memory, pending) = (group.memory(), group.pending());
        assert!(memory <= (ENTRY_BYTES + 8) * pending + (64 << 10), "{memory} bytes for {pending} messages");
    }
}

#[test]
fn a_slow_worker_holds_nobody() {
    let mut group = group(Settings::default(), 1000);
    assert!(group.join(1, 10) && group.join(2, 10));
    let (mut of_slow, mut of_fast) = (0, 0);
    while let Some(handout) = group.take(0) {
        if handout.worker == 1 {
            of_slow += 1;
        } else {
            of_fast += 1;
            group.ack(handout.worker, handout.attempt(), u64::MAX);
        }
    }
    assert_eq!((of_slow, of_fast), (10, 990));
}

#[test]
fn workers_of_the_same_speed_get_the_same_number() {
    let mut group = group(Settings::default(), 1000);
    (0..4).for_each(|worker| assert!(group.join(worker, 5)));
    let mut counts = [0; 4];
    while let Some(handout) = group.take(0) {
        counts[handout.worker as usize] += 1;
        assert_eq!(group.ack(handout.worker, handout.attempt(), u64::MAX), Answered::Done);
    }
    assert_eq!(counts, [250; 4]);
}

#[test]
fn a_paused_worker_gets_nothing_and_keeps_what_it_has() {
    let mut group = group(Settings::default(), 10);
    assert!(group.join(1, 5));
    let first = group.take(0).expect("a message");
    group.pause(1, true);
    assert_eq!(group.take(0), None);
    assert!(!group.wants());
    group.pause(1, false);
    assert_eq!(group.take(0).map(|handout| handout.position), Some(first.position + 10));
    assert_eq!(group.held(), 2);
}

#[test]
fn workers_and_keys_have_limits() {
    let limits = Limits { max_pending: 4, max_keys: 2, max_workers: 1, max_credit: 2 };
    let mut group = Group::new(Settings { ordered: true, ..Settings::default() }, 7, 0, limits);
    assert!(group.join(1, 100) && !group.join(2, 1));
    group.offer(0, 10, 1, 10);
    assert!(!group.is_full());
    group.offer(10, 10, 2, 20);
    assert!(group.is_full(), "there are two keys");
    group.ack(1, at(0, 1), 20);
    group.offer(20, 10, 2, 30);
    group.offer(30, 10, 2, 40);
    group.offer(40, 10, 2, 50);
    assert!(group.is_full(), "there are four messages");
    assert_eq!(group.ack(1, at(u64::MAX, 1), 50), Answered::Refused, "the log does not have it");
}

#[test]
fn a_worker_has_at_most_the_limit_whatever_it_asks_for() {
    let limits = Limits { max_credit: 3, ..Limits::default() };
    let mut group = Group::new(Settings::default(), 7, 0, limits);
    (0..10).for_each(|n| group.offer(n * 10, 10, 0, n * 10 + 10));
    assert!(group.join(1, u32::MAX));
    assert_eq!(std::iter::from_fn(|| group.take(0)).count(), 3);
}

#[test]
fn a_worker_gets_nothing_more_for_messages_that_it_may_still_work_on() {
    let mut group = group(Settings { ack_ms: 5, ..Settings::default() }, 10);
    assert!(group.join(1, 2) && group.join(2, 10));
    group.pause(2, true);
    let first: Vec<_> = std::iter::from_fn(|| group.take(0)).map(|it| (it.position, it.attempt)).collect();
    assert_eq!(first, [(0, 1), (10, 1)]);
    while group.expire(5) {}
    assert_eq!((group.take(5), group.held()), (None, 0), "its time is over, and it may still work");
    group.pause(2, false);
    assert_eq!(group.take(5).map(|it| (it.worker, it.position, it.attempt)), Some((2, 0, 2)));
    group.pause(2, true);
    // A word of each gives room for another one, and what it says of the attempt of another worker does not count.
    assert_eq!(group.nack(1, at(0, 1), 0, 5), Answered::Late);
    assert_eq!(group.take(5).map(|it| (it.worker, it.position)), Some((1, 10)));
    assert_eq!(group.ack(1, at(10, 1), 100), Answered::Done);
    assert_eq!(group.take(5).map(|it| (it.worker, it.position)), Some((1, 20)));
    assert_eq!(group.take(5), None, "it has said nothing yet of the second attempt");
    assert_eq!(group.ack(1, at(10, 2), 100), Answered::Late);
    assert_eq!(group.take(5).map(|it| (it.worker, it.position)), Some((1, 30)));
}

#[test]
fn a_message_that_was_dropped_waits_for_its_time_and_holds_nobody() {
    let mut group = group(Settings { ack_ms: 5, ..Settings::default() }, 2);
    assert!(group.join(1, 1));
    let first = group.take(0).expect("a message");
    assert_eq!(group.drop_message(1, at(first.position, 1)), Answered::Done);
    assert_eq!(group.take(0).map(|it| it.position), Some(10));
    group.ack(1, at(10, 1), 20);
    assert_eq!(group.take(4), None);
    while group.expire(5) {}
    assert_eq!(group.take(5).map(|it| (it.position, it.attempt)), Some((0, 2)));
}

#[test]
fn a_worker_that_goes_gets_nothing_more_and_what_it_gives_back_is_no_attempt() {
    let mut group = group(Settings::default(), 4);
    assert!(group.join(1, 3));
    let all: Vec<_> = std::iter::from_fn(|| group.take(0)).collect();
    group.retire(1);
    for it in &all[1..] {
        assert_eq!(group.release(1, it.attempt()), Answered::Done);
        assert_eq!(group.take(0), None, "it does not get back what it gives back");
    }
    group.leave(1, 0);
    assert!(group.join(2, 10));
    let again: Vec<_> = std::iter::from_fn(|| group.take(0)).map(|it| (it.position, it.attempt)).collect();
    assert_eq!(again, [(0, 2), (10, 1), (20, 1), (30, 1)]);
}

#[test]
fn what_finds_no_room_is_refused_and_comes_again() {
    let limits = Limits { max_pending: 2, ..Limits::default() };
    let mut group = Group::new(Settings::default(), 7, 0, limits);
    assert!(group.join(1, 10));
    // A worker of an earlier process has done what this one has not read.
    assert_eq!(group.ack(1, at(0, 1), 100), Answered::Done);
    assert_eq!(group.ack(1, at(0, 1), 100), Answered::Late);
    assert_eq!(group.ack(1, at(10, 1), 100), Answered::Done);
    assert_eq!(group.ack(1, at(20, 1), 100), Answered::Refused);
    assert_eq!(group.take_changes().done, [0, 10]);
    (0..3).for_each(|n| group.offer(n * 10, 10, 0, n * 10 + 10));
    assert_eq!(group.take(0).map(|it| it.position), Some(20));
}

#[test]
fn what_is_done_before_an_earlier_one_of_its_key_does_not_come_again() {
    let settings = Settings { ordered: true, ..Settings::default() };
    let mut group = Group::new(settings, 7, 0, Limits::default());
    (0..4).for_each(|n| group.offer(n * 10, 10, 5, n * 10 + 10));
    assert!(group.join(1, 10));
    assert_eq!(group.take(0).map(|it| it.position), Some(0));
    // A damaged journal has forgotten that the first one was done.
    for position in [10, 20] {
        assert_eq!(group.ack(1, at(position, 1), 40), Answered::Done);
        assert_eq!(group.ack(1, at(position, 1), 40), Answered::Late);
    }
    let saved = group.save(7);
    assert_eq!(saved.pending.iter().map(|it| it.position).collect::<Vec<_>>(), [0, 30]);
    for mut group in [group, Group::restore(saved, [], Limits::default())] {
        group.join(1, 10);
        assert_eq!(group.ack(1, at(0, 1), 40), Answered::Done);
        assert_eq!(group.take(0).map(|it| it.position), Some(30));
        assert_eq!(group.take(0), None);
        group.ack(1, at(30, 1), 40);
        assert_eq!((group.pending(), group.floor()), (0, 40));
    }
}

#[test]
fn a_delay_has_a_limit_and_so_has_a_round() {
    let mut group = group(Settings { ack_ms: 5, ..Settings::default() }, 20_000);
    assert!(group.join(1, 10));
    let first = group.take(0).expect("a message");
    group.nack(1, at(first.position, 1), u32::MAX, 0);
    assert!(group.next_due().is_some_and(|due| due <= 12 * 3_600_000), "{:?}", group.next_due());
    let limits = Limits { max_credit: u32::MAX, ..Limits::default() };
    let mut group = Group::restore(group.save(7), [], limits);
    assert!(group.join(1, u32::MAX));
    let taken = std::iter::from_fn(|| group.take(0)).count() as u64;
    assert!(group.expire(5), "there are more than a round has");
    let failed = group.counters().failed;
    assert!(0 < failed && failed < taken / 2, "{failed} of {taken}");
    while group.expire(5) {}
    assert_eq!(group.counters().failed, taken);
}

#[test]
fn what_the_log_has_no_more_is_counted() {
    let mut group = group(Settings::default(), 3);
    assert!(group.join(1, 5));
    let first = group.take(0).expect("a message");
    group.lost(first.position);
    group.skipped(1000);
    let counters = group.counters();
    assert_eq!((counters.lost, counters.lost_bytes, group.next(), group.pending()), (1, 970, 1000, 2));
    assert_eq!((counters.read, counters.read_bytes), (3, 30), "what was skipped was not read");
}

#[test]
fn a_worker_has_what_it_was_given_and_what_it_had_too_long() {
    let mut group = group(Settings { ack_ms: 5, ..Settings::default() }, 3);
    assert!(group.join(1, 2));
    while group.take(0).is_some() {}
    let of = |group: &Group| group.worker(1).map(|of| (of.held, of.overdue, of.credit));
    assert_eq!(of(&group), Some((2, 0, 2)));
    group.expire(5);
    assert_eq!(of(&group), Some((0, 2, 2)));
    assert!(group.worker(2).is_none());
}

#[test]
fn a_group_reads_only_a_little_while_all_have_no_memory() {
    let mut group = Group::new(Settings::default(), 1, 0, Limits::default());
    assert!(group.join(1, 10_000));
    group.tighten(true);
    let mut next = 0;
    while group.wants() {
        group.offer(next, 8, 0, next + 8);
        next += 8;
        group.take(0).unwrap();
    }
    assert_eq!((group.pending(), group.is_full()), (TIGHT_PENDING, true));
    assert_eq!(group.cost(), TIGHT_PENDING * ENTRY_BYTES);
    group.tighten(false);
    assert!(group.wants() && !group.is_full());
}
