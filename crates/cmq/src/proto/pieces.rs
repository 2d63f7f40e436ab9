//! Both machines and messages that no datagram holds.

use std::time::{Duration, Instant};

use super::batches::Batches;
use super::receiver::Receiver;
use super::tests::{Got, World, addr};
use crate::config::{Config, MIN_DATAGRAM};
use crate::key::Key;

/// Messages that no datagram holds leave together, cut so that the kernel can cut them in one call.
#[test]
fn large_messages_share_a_batch() {
    let far = Duration::from_secs(3600);
    let config = Config { max_message: 200_000, ..Config::default().batches(60_000, far) };
    let mut batches = Batches::new(&config, 1);
    let (key, world) = (Key::new(addr(1), 7), World { now: Instant::now(), path: MIN_DATAGRAM });
    let sizes = [3000, 2990, 1300, 3000, 1171, 100, 3000, 200_000, 5000, 5000];
    for (at, &size) in sizes.iter().enumerate() {
        batches.push_bytes(key, &world, &vec![at as u8 + 1; size]).expect("room");
    }
    batches.flush(Instant::now());
    let mut receiver = Receiver::new(&config);
    let mut got = Got::default();
    let mut shape = Vec::new();
    for batch in batches.ready() {
        shape.push((batch.datagrams(), batch.messages));
        for datagram in batch.bytes.chunks(batch.segment) {
            assert!(datagram.len() <= MIN_DATAGRAM);
            receiver.datagram(Instant::now(), batch.to, datagram, &mut got);
        }
    }
    // Pieces of the same length share, whole messages go alone, and so does what is too large for one call.
    assert_eq!(shape[..3], [(13, 5), (1, 1), (3, 1)]);
    assert_eq!(shape.iter().map(|(_, messages)| messages).sum::<u64>(), sizes.len() as u64);
    assert_eq!(shape.last(), Some(&(10, 2)));
    let wanted: Vec<_> = sizes.iter().zip(1..).map(|(&size, byte)| vec![byte; size]).collect();
    let came = &got.messages[&7];
    assert!(*came == wanted, "{:?}", came.iter().map(Vec::len).collect::<Vec<_>>());
    assert_eq!(receiver.totals().malformed, 0);
}

/// Datagrams of messages of so many bytes, one after the other.
fn datagrams(config: &Config, sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut batches = Batches::new(config, 1);
    let world = World { now: Instant::now(), path: MIN_DATAGRAM };
    for (at, &size) in sizes.iter().enumerate() {
        batches.push_bytes(Key::new(addr(1), 7), &world, &vec![at as u8 + 1; size]).expect("room");
    }
    batches.flush(world.now);
    let all = batches.ready().iter().flat_map(|batch| batch.bytes.chunks(batch.segment).map(<[u8]>::to_vec));
    all.collect()
}

/// What is left of a message takes no room once it is given up.
#[test]
fn pieces_go_with_their_message() {
    let (mut receiver, mut got) = (Receiver::new(&Config::default()), Got::default());
    let now = Instant::now();
    for (at, datagram) in datagrams(&Config::default(), &[10, 3000, 10]).iter().enumerate() {
        // The last of three pieces does not come.
        if at != 3 {
            receiver.datagram(now, addr(2), datagram, &mut got);
        }
    }
    assert!(receiver.fragment_bytes() > 2000);
    let until = receiver.next_deadline().expect("it may still come");
    assert!(until < now + Duration::from_millis(10), "its pieces may be kept longer");
    receiver.expire(until, &mut got);
    assert_eq!(receiver.fragment_bytes(), 0);
    let totals = receiver.totals();
    assert_eq!((totals.counts.lost, totals.incomplete, got.messages[&7].len()), (1, 1, 2));
}
