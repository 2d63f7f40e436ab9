//! Both machines with fragmented messages.

use std::time::{Duration, Instant};

use testkit::Random;

use super::batcher::Batcher;
use super::receiver::Receiver;
use super::tests::{Got, World};
use crate::config::{Config, MIN_DATAGRAM};
use crate::key::Key;
use crate::proto::random::addr;
use crate::wire::{Body, Datagram, parity_count};

/// Fragmented messages share a batch, cut so that the kernel can segment it in one call.
#[test]
fn large_messages_share_a_batch() {
    let far = Duration::from_secs(3600);
    let config = Config { max_message: 200_000, ..Config::default().qthresh(60_000).timeout(far) };
    let mut batcher = Batcher::new(&config, 1);
    let (key, world) = (Key::new(addr(1), 7), World { now: Instant::now(), path: MIN_DATAGRAM });
    let sizes = [3000, 2990, 1300, 3000, 1171, 100, 3000, 200_000, 5000, 5000];
    for (at, &size) in sizes.iter().enumerate() {
        batcher.push_bytes(key, &world, &vec![at as u8 + 1; size]).expect("room");
    }
    batcher.flush(Instant::now());
    let mut receiver = Receiver::new(&config);
    let mut got = Got::default();
    let mut shape = Vec::new();
    for batch in batcher.queue.ready() {
        shape.push((batch.unsent_datagrams(), batch.messages));
        for datagram in batch.bytes.chunks(batch.segment) {
            assert!(datagram.len() <= MIN_DATAGRAM);
            receiver.datagram(Instant::now(), batch.to, datagram, &mut got);
        }
    }
    // Fragments of the same length share a batch. A whole message leaves alone, and so does one that is too
    // large for one call.
    assert_eq!(shape[..3], [(13, 5), (1, 1), (3, 1)]);
    assert_eq!(shape.iter().map(|(_, messages)| messages).sum::<u64>(), sizes.len() as u64);
    assert_eq!(shape.last(), Some(&(10, 2)));
    let wanted: Vec<_> = sizes.iter().zip(1..).map(|(&size, byte)| vec![byte; size]).collect();
    let arrived = &got.messages[&7];
    assert!(*arrived == wanted, "{:?}", arrived.iter().map(Vec::len).collect::<Vec<_>>());
    assert_eq!(receiver.totals().malformed, 0);
}

/// A message of this size whose fragments all differ.
fn message(at: usize, size: usize) -> Vec<u8> {
    (0..size).map(|n| (n * 31 + n / 251 + at) as u8).collect()
}

/// The datagrams of messages of these sizes.
fn datagrams(config: &Config, sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut batcher = Batcher::new(config, 1);
    let world = World { now: Instant::now(), path: MIN_DATAGRAM };
    for (at, &size) in sizes.iter().enumerate() {
        batcher.push_bytes(Key::new(addr(1), 7), &world, &message(at, size)).expect("room");
    }
    batcher.flush(world.now);
    let all =
        batcher.queue.ready().iter().flat_map(|batch| batch.bytes.chunks(batch.segment).map(<[u8]>::to_vec));
    all.collect()
}

/// The fragments of a lost message are freed.
#[test]
fn fragments_are_freed_with_their_message() {
    let (mut receiver, mut got) = (Receiver::new(&Config::default()), Got::default());
    let now = Instant::now();
    for (at, datagram) in datagrams(&Config::default(), &[10, 3000, 10]).iter().enumerate() {
        // Drop the last of three fragments.
        if at != 3 {
            receiver.datagram(now, addr(2), datagram, &mut got);
        }
    }
    assert!(receiver.fragment_bytes() > 2000);
    let until = receiver.next_deadline().expect("a message is missing");
    assert!(until < now + Duration::from_millis(10), "its pieces may be kept longer");
    receiver.expire(until, &mut got);
    assert_eq!(receiver.fragment_bytes(), 0);
    let totals = receiver.totals();
    assert_eq!((totals.counts.lost, totals.incomplete, got.messages[&7].len()), (1, 1, 2));
}

/// A message survives the loss of one fragment of each parity group, against a plain count.
#[test]
fn one_fragment_of_each_parity_group_may_be_lost() {
    let config = Config::default().qthresh(60_000).timeout(Duration::from_secs(3600)).parity_fragments(true);
    let mut dice = Random::new(7);
    for round in 0..400 {
        let size = 1300 + dice.below(60_000) as usize;
        let all = datagrams(&config, &[size]);
        let (pieces, spares) = counted(&all);
        assert_eq!(all.len(), pieces + spares, "{size} bytes");
        assert!(all.iter().all(|datagram| datagram.len() == all[0].len()), "the kernel can cut them");
        let mut lost = vec![0; spares];
        let come: Vec<bool> = (0..all.len()).map(|_| dice.below(12) > 0).collect();
        for (index, _) in come.iter().enumerate().filter(|(_, come)| !**come) {
            lost[index.checked_sub(pieces).unwrap_or(index % spares)] += 1;
        }
        // In any order, some of them twice.
        let mut order: Vec<usize> = (0..all.len()).filter(|&index| come[index]).collect();
        if round % 2 == 0 {
            (0..order.len()).for_each(|at| order.swap(at, dice.below(at as u64 + 1) as usize));
            order.extend_from_within(..order.len() / 4);
        }
        let (mut receiver, mut got) = (Receiver::new(&config), Got::default());
        for index in order {
            receiver.datagram(Instant::now(), addr(2), &all[index], &mut got);
        }
        let arrived = lost.iter().all(|&lost| lost <= 1);
        assert_eq!(
            got.messages.remove(&7),
            arrived.then(|| vec![message(0, size)]),
            "{size} bytes, {lost:?}"
        );
        let totals = receiver.totals();
        assert_eq!((receiver.fragment_bytes() > 0, totals.malformed), (!arrived && come.contains(&true), 0));
    }
}

/// The number of fragments and of parity fragments.
fn counted(datagrams: &[Vec<u8>]) -> (usize, usize) {
    let Body::Fragment(fragment) =
        Datagram::parse(&datagrams[0]).expect("the sending machine made the datagram").body
    else {
        panic!("the message is in fragments");
    };
    (fragment.count as usize, parity_count(fragment.count) as usize)
}

/// Every message arrives once and complete, with or without parity fragments, whatever batch they are in.
#[test]
fn parity_fragments_belong_to_their_message() {
    let sizes = [3000, 2990, 10, 3000, 200_000, 5000, 10];
    let config = Config { max_message: 200_000, ..Config::default() };
    let config = config.qthresh(60_000).timeout(Duration::from_secs(3600)).parity_fragments(true);
    let (mut receiver, mut got) = (Receiver::new(&config), Got::default());
    for datagram in datagrams(&config, &sizes) {
        receiver.datagram(Instant::now(), addr(2), &datagram, &mut got);
    }
    let wanted: Vec<_> = sizes.iter().enumerate().map(|(at, &size)| message(at, size)).collect();
    assert!(got.messages[&7] == wanted);
    assert_eq!(got.events.len(), 1, "it joined, and no message is late or duplicated: {:?}", got.events);
    assert_eq!(receiver.fragment_bytes(), 0);
}
