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
