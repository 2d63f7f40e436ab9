//! Rings without flow control: the writer never waits, and a lapped reader learns by how many bytes.

use proptest::prelude::*;
use rocketring::{ClaimError, Lapped, MARK_HEAD_BYTES, MARK_TAIL_BYTES, RingConfig, verify, write_marks};

use crate::common::{Log, content, ring, starts};

fn overwritable(start: u64, max_delivery: u64) -> RingConfig {
    RingConfig {
        capacity_bytes: 8192,
        max_delivery_bytes: Some(max_delivery),
        flow_control: false,
        start,
        ..RingConfig::default()
    }
}

proptest! {
    #[test]
    fn readers_learn_by_how_much_they_were_lapped(
        start in starts(),
        sizes in prop::collection::vec(1..4000usize, 1..60),
        cuts in prop::collection::vec(any::<u64>(), 60),
    ) {
        let ring = ring(overwritable(start, 4000));
        let (mut writer, mut log) = (ring.writer().unwrap(), Log::new(start));
        for (size, cut) in sizes.into_iter().zip(cuts) {
            let bytes = content(cut, size);
            writer.append(&[&bytes]).unwrap();
            log.bytes.extend(bytes);
            log.boundaries.insert(log.head());
            let tail = ring.tail();
            prop_assert!(ring.horizon() - log.head() <= 8192 / 8, "more than an eighth announced ahead");
            log.check_range(&ring, tail.min(log.head()), log.head());
            log.check_boundaries(&ring, log.somewhere(&ring, cut));
            let from = start + cut % (log.head() - start);
            let view = ring.view(from, log.head().min(from + 8192));
            match view.to_vec() {
                Ok(bytes) => prop_assert!(from >= tail && bytes == log.range(from, view.to())),
                Err(Lapped { by }) => prop_assert_eq!(by, tail - from),
            }
            prop_assert_eq!(ring.is_stable(from), from >= tail);
            prop_assert_eq!(ring.hold(from).map_err(|gone| gone.tail).err(), (from < tail).then_some(tail));
        }
    }
}

/// The way of copying depends on the number of bytes and on their alignment.
#[test]
fn any_piece_is_copied_right() {
    let ring = ring(overwritable(0, 4000));
    let mut writer = ring.writer().unwrap();
    let bytes = content(1, 4000);
    writer.append(&[&bytes]).unwrap();
    for (from, len) in
        (0..17).flat_map(|from| [0, 1, 7, 8, 33, 255, 256, 257, 1024, 3983].map(|len| (from, len)))
    {
        let mut copy = vec![0xAA; len + 2];
        ring.view(0, 4000).copy_to(from, &mut copy[1..=len]).unwrap();
        assert!(copy[1..=len] == bytes[from..from + len], "{len} bytes from {from}");
        assert_eq!((copy[0], copy[len + 1]), (0xAA, 0xAA), "{len} bytes from {from}");
    }
}

#[test]
fn holds_do_not_stop_the_writer() {
    let ring = ring(overwritable(0, 1000));
    let hold = ring.hold(0).unwrap();
    let mut writer = ring.writer().unwrap();
    for _ in 0..20 {
        writer.append(&[&[1; 1000]]).unwrap();
    }
    assert_eq!(ring.slowest_hold(), Some(0));
    // SAFETY: nothing is returned for a range that is not held.
    assert_eq!(unsafe { ring.view(0, 10).held(&hold) }, None);
    assert!(ring.wait_grant(1 << 40, None));
}

#[test]
fn open_claims_are_not_overwritten_by_their_writer() {
    let ring = ring(overwritable(0, 1024));
    let mut writer = ring.writer().unwrap();
    let claims = (0..4).map(|_| writer.claim(1024).unwrap()).collect::<Vec<_>>();
    assert_eq!(writer.claim(1).unwrap_err(), ClaimError::TooManyClaims);
    for claim in claims {
        writer.deliver(claim, 1024).unwrap();
    }
    assert!(writer.append(&[b"x"]).is_ok());
}

/// A writer at full speed with readers in other threads: every accepted copy equals the written bytes.
#[test]
fn nothing_torn_is_accepted() {
    let ring = ring(overwritable(0, 1024));
    let mut writer = ring.writer().unwrap();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut seen, mut accepted) = (0, 0u32);
                    while seen < 4_000_000 {
                        seen = ring.boundary();
                        let from = ring.boundary_at_or_after(ring.tail() + 64).unwrap_or(seen);
                        if from > seen {
                            continue;
                        }
                        let view = ring.view(from, seen);
                        if let Ok(payload) = verify(&view) {
                            let mut bytes = vec![0; payload.len];
                            if view.copy_to(payload.offset, &mut bytes).is_ok() {
                                assert!(bytes.iter().all(|&byte| byte == bytes[0]), "torn at {from}");
                                accepted += 1;
                            }
                        } else {
                            assert!(
                                from == seen || !ring.is_stable(from),
                                "whole, stable, and refused: {from}"
                            );
                        }
                    }
                    accepted
                })
            })
            .collect();
        let mut fill = 0u8;
        while writer.head() < 4_000_000 {
            fill = fill.wrapping_add(1);
            let size = 40 + usize::from(fill) * 3;
            let mut delivery = [fill; 40 + 255 * 3];
            write_marks(&mut delivery[..size], writer.head());
            assert!(size > MARK_HEAD_BYTES + MARK_TAIL_BYTES);
            writer.append(&[&delivery[..size]]).unwrap();
            if fill == 0 {
                std::thread::yield_now();
            }
        }
        for reader in readers {
            reader.join().unwrap();
        }
    });
}
