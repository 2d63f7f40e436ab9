//! Pools: rings do not share bytes, limits name what they count, and memory comes back.

use proptest::prelude::*;
use rocketring::{Pool, PoolConfig, PoolError, Ring, RingConfig};

const PAGE: u64 = 4096;

fn of(capacity_bytes: u64) -> RingConfig {
    RingConfig { capacity_bytes, ..RingConfig::default() }
}

/// Writes the ring full of one byte, through its receiver.
fn fill(ring: &Ring, byte: u8) {
    let mut receiver = ring.receiver().expect("a new ring");
    while ring.head() < ring.capacity() {
        ring.grant();
        assert!(receiver.copy_in(&vec![byte; (ring.capacity() - ring.head()) as usize]) > 0);
    }
}

fn is_full_of(ring: &Ring, byte: u8) -> bool {
    let bytes = ring.view(ring.tail(), ring.head()).to_vec().unwrap();
    bytes.len() as u64 == ring.head() - ring.tail() && bytes.iter().all(|&found| found == byte)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    #[test]
    fn rings_share_nothing(steps in prop::collection::vec((any::<bool>(), 1..200_000u64), 1..40)) {
        let max = 1 << 20;
        let pool = Pool::new(PoolConfig { reservation_bytes: 256 << 10, max_bytes: max }).unwrap();
        let mut rings: Vec<(Ring, u8)> = Vec::new();
        for (i, (make, choice)) in steps.into_iter().enumerate() {
            if make || rings.is_empty() {
                let capacity = choice.next_power_of_two().max(PAGE);
                let in_use: u64 = rings.iter().map(|(ring, _)| ring.capacity()).sum();
                match pool.ring(of(choice)) {
                    Ok(ring) => {
                        prop_assert_eq!(ring.capacity(), capacity);
                        fill(&ring, i as u8);
                        rings.push((ring, i as u8));
                    }
                    Err(PoolError::Limit { asked, in_use: counted, .. }) => {
                        prop_assert_eq!((asked, counted), (capacity, in_use));
                        prop_assert!(in_use + capacity > max);
                    }
                    Err(other) => panic!("{other}"),
                }
            } else {
                rings.swap_remove(choice as usize % rings.len());
            }
            prop_assert!(rings.iter().all(|(ring, byte)| is_full_of(ring, *byte)));
            prop_assert_eq!(pool.in_use_bytes(), rings.iter().map(|(ring, _)| ring.capacity()).sum::<u64>());
        }
    }
}

#[test]
fn sizes_are_rounded_and_checked() {
    let pool = Pool::new(PoolConfig { max_bytes: 1 << 20, ..PoolConfig::default() }).unwrap();
    let ring = pool.ring(of(5000)).unwrap();
    assert_eq!((ring.capacity(), ring.retain(), ring.max_delivery()), (8192, 4096, 2048));
    let retain = |retain| pool.ring(RingConfig { retain_bytes: Some(retain), ..of(16 << 10) });
    assert_eq!(retain(12 << 10).unwrap().max_delivery(), 4 << 10);
    assert!(matches!(retain((12 << 10) + 1), Err(PoolError::Retain { at_most: 12_288, .. })));
    let delivery = |max| pool.ring(RingConfig { max_delivery_bytes: Some(max), ..of(1 << 20 >> 1) });
    assert_eq!(delivery(0).unwrap().max_delivery(), 512);
    assert!(matches!(delivery((256 << 10) + 1), Err(PoolError::MaxDelivery { at_most: 262_144, .. })));
}

#[test]
fn the_limit_shows_its_arithmetic() {
    let pool = Pool::new(PoolConfig { max_bytes: 12 << 10, ..PoolConfig::default() }).unwrap();
    let _first = pool.ring(of(8 << 10)).unwrap();
    let refused = pool.ring(of(8 << 10)).unwrap_err().to_string();
    for number in ["8192", "12288", "4096"] {
        assert!(refused.contains(number), "{number} is not in {refused:?}");
    }
    assert!(matches!(pool.ring(of(u64::MAX)), Err(PoolError::Limit { .. })));
}

#[test]
fn written_bytes_are_gone_with_the_ring() {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let ring = pool.ring(of(64 << 10)).unwrap();
    fill(&ring, 0xff);
    let view = ring.view(0, 10);
    drop(ring);
    assert_eq!(pool.in_use_bytes(), 64 << 10, "a view keeps the ring's memory");
    drop(view);
    assert_eq!(pool.in_use_bytes(), 0);
    let mut receiver = pool.ring(of(64 << 10)).unwrap().receiver().unwrap();
    let (at, len) = receiver.spare(usize::MAX);
    // SAFETY: `len` bytes are mapped at `at`, and only the receiver writes them.
    let bytes = unsafe { std::slice::from_raw_parts(at, len) };
    assert!(len > 0 && bytes.iter().all(|&byte| byte == 0), "the pages were not given back");
}

#[test]
fn a_range_across_the_end_is_one_piece() {
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let ring = pool.ring(RingConfig { start: 4096 - 3, ..of(4096) }).unwrap();
    let end = ring.writer().unwrap().append(&[b"across the end"]).unwrap();
    assert_eq!(ring.view(4096 - 3, end).to_vec().unwrap(), b"across the end");
    let (first, behind) = (ring.raw(4096 - 3, 14), ring.raw(4096, 11));
    assert_eq!(
        first as usize + 3 - 4096,
        behind as usize,
        "position 4096 is at the beginning, and mapped again"
    );
}
