//! Memory, fairness, and what limits do.

use rbmq_groups::{Answered, ENTRY_BYTES, Group, Limits, Settings};

fn group(settings: Settings, count: u64) -> Group {
    let mut group = Group::new(settings, 0, Limits::default());
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
            group.ack(n * 10, u64::MAX);
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
            group.ack(handout.position, u64::MAX);
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
        assert_eq!(group.ack(handout.position, u64::MAX), Answered::Done);
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
    let limits = Limits { max_pending: 4, max_keys: 2, max_workers: 1 };
    let mut group = Group::new(Settings { ordered: true, ..Settings::default() }, 0, limits);
    assert!(group.join(1, 100) && !group.join(2, 1));
    group.offer(0, 10, 1, 10);
    assert!(!group.is_full());
    group.offer(10, 10, 2, 20);
    assert!(group.is_full(), "there are two keys");
    group.ack(0, 20);
    group.offer(20, 10, 2, 30);
    group.offer(30, 10, 2, 40);
    group.offer(40, 10, 2, 50);
    assert!(group.is_full(), "there are four messages");
    assert_eq!(group.ack(20, 50), Answered::Late, "an earlier one of its key is not done");
    assert_eq!(group.ack(u64::MAX, 50), Answered::Late, "the log does not have it");
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
}
