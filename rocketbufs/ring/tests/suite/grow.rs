//! Rings that grow while they are read and written, against a log of which every byte is known by its position.

use proptest::prelude::*;
use rocketring::{ClaimError, GrowError, Hold, Pool, PoolConfig, Ring, RingConfig, View};

const SMALL: u64 = 16 << 10;

fn pool() -> Pool {
    Pool::new(PoolConfig { max_bytes: 64 << 20, ..PoolConfig::default() }).unwrap()
}

fn small(pool: &Pool, flow_control: bool) -> Ring {
    let config = RingConfig {
        capacity_bytes: SMALL,
        retain_bytes: Some(0),
        max_delivery_bytes: Some(SMALL / 4),
        flow_control,
        start: 77,
    };
    pool.ring(config).unwrap()
}

/// The byte at a position.
fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

fn bytes(from: u64, len: u64) -> Vec<u8> {
    (from..from + len).map(byte).collect()
}

#[test]
fn a_delivery_that_was_too_large_fits_after_growing() {
    let pool = pool();
    let ring = small(&pool, true);
    let mut writer = ring.writer().unwrap();
    let hold = ring.hold(77).unwrap();
    writer.append(&[&bytes(77, 4000)]).unwrap();
    let large = bytes(4077, 1 << 20);
    assert!(matches!(writer.append(&[&large]), Err(ClaimError::TooLarge { .. })));
    writer.grow(&pool, 1 << 20).unwrap();
    assert_eq!((ring.max_delivery(), ring.capacity(), ring.tail()), (1 << 20, 2 << 20, 77));
    let end = writer.append(&[&large]).unwrap();
    assert_eq!(ring.view(hold.position(), end).to_vec().unwrap(), bytes(77, 4000 + (1 << 20)));
    assert_eq!(ring.boundary_at_or_after(78), Some(4077), "the ends of deliveries from before are known");
}

#[test]
fn a_ring_grows_more_than_once_and_gives_its_memory_back() {
    let pool = pool();
    let ring = small(&pool, true);
    let mut receiver = ring.receiver().unwrap();
    for most in [5 << 10, 100 << 10, 1 << 20, 4 << 20] {
        receiver.grow(&pool, most).unwrap();
        receiver.grow(&pool, most - 1).unwrap();
        assert!(ring.max_delivery() >= most);
        let from = ring.head();
        assert_eq!(receiver.copy_in(&bytes(from, most)) as u64, most);
        receiver.end();
        assert_eq!(ring.view(from, from + most).to_vec().unwrap(), bytes(from, most));
    }
    assert!(receiver.trim(0).given_back > 4 << 20);
    // However often it is asked for a little more, it grows a few times.
    for more in 0..100_000 {
        receiver.grow(&pool, (4 << 20) + more).unwrap();
    }
    assert!(pool.in_use_bytes() < 48 << 20, "{}", pool.in_use_bytes());
    drop((ring, receiver));
    assert_eq!(pool.in_use_bytes(), 0);
}

/// Behind a hole a ring needs room for what it holds and for its deliveries, and not for the hole.
#[test]
fn a_hole_takes_no_memory_when_a_ring_grows() {
    let pool = pool();
    let ring = small(&pool, true);
    let mut receiver = ring.receiver().unwrap();
    let hold = ring.hold(77).unwrap();
    assert_eq!(receiver.copy_in(&bytes(77, 4000)), 4000);
    receiver.end();
    let behind = receiver.skip(1 << 40).to;
    receiver.grow(&pool, 4 * SMALL).unwrap();
    assert_eq!((ring.capacity(), pool.in_use_bytes()), (8 * SMALL, 9 * SMALL));
    assert_eq!(ring.view(77, 4077).to_vec().unwrap(), bytes(77, 4000), "what is held is still there");
    hold.advance(behind);
    ring.grant();
    assert_eq!(receiver.copy_in(&bytes(behind, 4 * SMALL)) as u64, 4 * SMALL);
    receiver.end();
    assert_eq!(ring.view(behind, behind + 4 * SMALL).to_vec().unwrap(), bytes(behind, 4 * SMALL));
}

#[test]
fn a_ring_that_cannot_grow_stays_as_it_is() {
    let pool = pool();
    let unheld = small(&pool, false);
    assert!(matches!(unheld.writer().unwrap().grow(&pool, SMALL), Err(GrowError::Fixed)));
    let shared = pool.shared_ring(RingConfig { capacity_bytes: SMALL, ..RingConfig::default() }).unwrap();
    assert!(matches!(shared.writer().unwrap().grow(&pool, SMALL), Err(GrowError::Fixed)));
    let pinned = small(&pool, true);
    let pin = pinned.pin();
    let mut writer = pinned.writer().unwrap();
    assert!(!pinned.can_grow() && matches!(writer.grow(&pool, SMALL), Err(GrowError::Fixed)));
    drop(pin);
    let claim = writer.claim(10).unwrap();
    assert!(matches!(writer.grow(&pool, SMALL), Err(GrowError::OpenClaims)));
    writer.deliver(claim, 0).unwrap();
    let in_use = pool.in_use_bytes();
    for most in [64 << 20, 1 << 62, u64::MAX] {
        assert!(matches!(writer.grow(&pool, most), Err(GrowError::Pool(_))), "{most}");
    }
    assert_eq!((pool.in_use_bytes(), pinned.capacity()), (in_use, SMALL), "nothing has changed");
    writer.grow(&pool, SMALL).unwrap();
}

#[test]
fn a_ring_says_from_where_on_deliveries_are_larger() {
    let pool = pool();
    let ring = small(&pool, true);
    let mut writer = ring.writer().unwrap();
    let at = writer.append(&[&bytes(77, 4000)]).unwrap();
    writer.grow(&pool, 10_000).unwrap();
    assert_eq!(ring.max_delivery(), 10_000, "no more than was asked for");
    let then = writer.append(&[&bytes(at, 10_000)]).unwrap();
    let (in_use, capacity) = (pool.in_use_bytes(), ring.capacity());
    writer.grow(&pool, 10_001).unwrap();
    assert_eq!((pool.in_use_bytes(), ring.capacity()), (in_use, capacity), "no memory for a little more");
    let beyond = |told, at| ring.growth_beyond(told, at).map(|growth| (growth.from, growth.max_delivery));
    assert_eq!((beyond(SMALL / 4, 77), beyond(10_000, 77)), (Some((at, 10_000)), Some((then, 10_001))));
    assert_eq!(
        (beyond(SMALL / 4, then - 1), beyond(SMALL / 4, then)),
        (Some((at, 10_000)), Some((then, 10_001)))
    );
    assert_eq!(beyond(10_001, 77), None);
}

/// A ring that keeps a delivery for others keeps the last one also when it has grown, however often.
#[test]
fn the_last_delivery_stays_for_others() {
    let pool = pool();
    let config = RingConfig {
        capacity_bytes: 256 << 10,
        retain_bytes: Some(128 << 10),
        max_delivery_bytes: Some(64 << 10),
        ..RingConfig::default()
    };
    let ring = pool.ring(config).unwrap();
    let mut writer = ring.writer().unwrap();
    for kib in [100, 130, 300, 310, 400, 500, 600, 601, 1200, 5000, 5001, 100, 5002] {
        let (size, from) = (kib << 10, ring.head());
        writer.grow(&pool, size).unwrap();
        writer.append(&[&bytes(from, size)]).unwrap();
        // As far as the writer may go on without readers.
        drop(writer.claim(size).unwrap());
        assert_eq!(ring.last_delivery(), Some(from), "{kib} KiB");
        assert_eq!(ring.view(from, from + size).to_vec().unwrap(), bytes(from, size));
    }
}

#[test]
fn rings_that_grow_leave_room_for_others() {
    let pool = Pool::new(PoolConfig { max_bytes: 1 << 20, ..PoolConfig::default() }).unwrap();
    let config = || RingConfig { capacity_bytes: 256 << 10, ..RingConfig::default() };
    let rings = [(); 3].map(|()| pool.ring(config()).unwrap());
    let mut writer = rings[0].writer().unwrap();
    // In the memory that it has.
    writer.grow(&pool, 100 << 10).unwrap();
    assert_eq!(rings[0].capacity(), 256 << 10);
    assert!(matches!(writer.grow(&pool, 200 << 10), Err(GrowError::Pool(_))));
    assert!(pool.ring_beside_others(config()).is_err());
    pool.ring(config()).unwrap();
}

#[test]
fn readers_on_other_threads_see_no_wrong_byte() {
    let pool = pool();
    let ring = small(&pool, true);
    let mut writer = ring.writer().unwrap();
    let hold = ring.hold(77).unwrap();
    let end = 77 + (8 << 20);
    let reader = std::thread::spawn({
        let ring = ring.clone();
        move || {
            while hold.position() < end {
                let (from, to) = (hold.position(), ring.boundary());
                if from == to {
                    std::thread::yield_now();
                    continue;
                }
                let view = ring.view(from, to);
                assert!(ring.ensure_plain());
                // SAFETY: the hold stays at the beginning of the view until the comparison is over.
                assert!(unsafe { view.as_slice() } == bytes(from, to - from), "{from} to {to}");
                hold.advance(to);
            }
        }
    });
    let mut size = 1000;
    while writer.head() < end {
        let next = size.min(end - writer.head());
        match writer.append(&[&bytes(writer.head(), next)]) {
            Ok(_) => size = size * 21 / 20,
            Err(ClaimError::TooLarge { size, .. }) => writer.grow(&pool, size).unwrap(),
            Err(_) => _ = ring.wait_grant(writer.head() + next, None),
        }
    }
    reader.join().unwrap();
}

#[derive(Debug, Clone)]
enum Step {
    CopyIn(u64),
    End,
    Skip(u64),
    Hold,
    Advance(usize, u64),
    Trim(u64),
    Grow(u64),
    Look,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1..9000_u64).prop_map(Step::CopyIn),
        5 => Just(Step::End),
        1 => (0..20_000_u64).prop_map(Step::Skip),
        3 => Just(Step::Hold),
        5 => (0..4_usize, 0..9000_u64).prop_map(|(which, by)| Step::Advance(which, by)),
        1 => (0..9000_u64).prop_map(Step::Trim),
        2 => (1..200_000_u64).prop_map(Step::Grow),
        2 => Just(Step::Look),
    ];
    prop::collection::vec(step, 1..200)
}

/// A hold, and a view from before later growths.
struct Reader {
    hold: Hold,
    view: View,
}

fn check(ring: &Ring, at: u64) {
    let end = ring.boundary().max(at);
    let gap = ring.gap_after(at).map_or(end, |gap| gap.from.max(at).min(end));
    assert_eq!(ring.view(at, gap).to_vec().unwrap(), bytes(at, gap - at));
}

proptest! {
    #[test]
    fn a_growing_ring_has_what_is_held(steps in steps()) {
        let pool = pool();
        let ring = small(&pool, true);
        let mut receiver = ring.receiver().unwrap();
        let mut readers: Vec<Reader> = Vec::new();
        for step in steps {
            let (horizon, head, boundary) = (ring.horizon(), ring.head(), ring.boundary());
            match step {
                Step::CopyIn(len) => _ = receiver.copy_in(&bytes(head, len)),
                Step::End => receiver.end(),
                Step::Skip(by) => _ = receiver.skip(head + by),
                Step::Hold => {
                    if let Ok(hold) = ring.hold(boundary) {
                        let view = ring.view(boundary, boundary);
                        readers.push(Reader { hold, view });
                    }
                }
                Step::Advance(which, by) if which < readers.len() => {
                    let Reader { hold, view } = &mut readers[which];
                    let to = ring.boundary_at_or_after((hold.position() + by).min(boundary)).unwrap_or(boundary);
                    hold.advance(to);
                    *view = ring.view(hold.position(), hold.position());
                    ring.grant();
                }
                Step::Advance(..) => _ = readers.pop(),
                Step::Trim(keep) => _ = receiver.trim(keep),
                Step::Grow(most) => {
                    let tail = ring.tail();
                    receiver.grow(&pool, most).unwrap();
                    prop_assert_eq!((ring.head(), ring.boundary()), (head, boundary));
                    prop_assert!(ring.max_delivery() >= most && ring.capacity() >= 2 * most);
                    prop_assert!(ring.tail() >= tail.min(readers.iter().map(|r| r.hold.position()).min().unwrap_or(tail)));
                }
                Step::Look => {}
            }
            prop_assert!(ring.horizon() >= horizon, "a promise is never taken back");
            for Reader { hold, view } in &readers {
                check(&ring, hold.position());
                prop_assert!(view.is_empty());
            }
        }
    }
}
