//! Small deliveries beside the head: another process copies the same bytes from the head page and from the ring.

use std::sync::Arc;

use proptest::prelude::*;
use rocketring::small_payload::SMALL_PAYLOAD_BYTES;
use rocketring::{Doorbell, PeerMapper, Pool, PoolConfig, Ring, RingConfig, Writer};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};

use crate::common::starts;

const CAPACITY: u64 = 16 << 10;
const PAGE: u64 = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"RKTRING1");
/// The offset of a small delivery's bytes in the head page.
const AT: u64 = 19 * 8;

/// The bytes of the log in `[from, from + len)`.
fn content(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}

fn config(start: u64) -> RingConfig {
    RingConfig { capacity_bytes: CAPACITY, retain_bytes: Some(0), start, ..RingConfig::default() }
}

/// The writer of a watched ring, and the same ring as another process maps it.
fn pair(start: u64) -> (Writer, Ring) {
    let pool = Pool::new(PoolConfig { reservation_bytes: 1 << 20, max_bytes: 1 << 20 }).unwrap();
    let ring = pool.shared_ring(config(start)).unwrap();
    let maps = PeerMapper::new(16, 1 << 20);
    let [page, pipe] = Doorbell::new(false).unwrap().files().map(|file| file.try_clone_to_owned().unwrap());
    assert!(ring.watch((1, 2, 0), Arc::new(maps.doorbell(page, pipe).unwrap())));
    let seen = maps.map(ring.descriptor().unwrap().try_clone_to_owned().unwrap()).unwrap();
    (ring.writer().unwrap(), seen.ring(config(start)).unwrap())
}

/// The bytes of the last small delivery in the head page.
fn small_payload_bytes(writer: &Writer) -> [u8; SMALL_PAYLOAD_BYTES] {
    let mut bytes = [0; SMALL_PAYLOAD_BYTES];
    pread(writer.ring().descriptor().unwrap(), &mut bytes, AT).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Deliveries are appended in parts or claimed, alone or several at a time, and copied whole or in pieces.
    #[test]
    fn copied_bytes_are_the_log(
        start in starts(),
        steps in prop::collection::vec((1..80_u64, 0..80_usize, any::<bool>(), any::<bool>()), 1..100),
    ) {
        let (mut writer, seen) = pair(start);
        let held = seen.hold(start).unwrap();
        for (size, cut, claims, looks) in steps {
            let (from, bytes) = (writer.head(), content(writer.head(), size as usize));
            if claims {
                let mut claim = writer.claim(size).unwrap();
                claim.bytes().copy_from_slice(&bytes);
                writer.deliver(claim, size).unwrap();
            } else {
                let (first, second) = bytes.split_at(cut.min(bytes.len()));
                writer.append(&[first, second]).unwrap();
            }
            if !looks {
                continue;
            }
            prop_assert!(seen.follow());
            let view = seen.view(held.position(), seen.boundary());
            prop_assert_eq!(view.to_vec().unwrap(), content(view.from(), view.len()));
            prop_assert_eq!(seen.view(from, from + size).to_vec().unwrap(), bytes);
            let cut = cut.min(view.len());
            prop_assert_eq!(view.sub(cut..view.len()).to_vec().unwrap(), content(view.from() + cut as u64, view.len() - cut));
            held.advance(view.to());
            seen.grant();
        }
    }
}

/// A reader copies from the head page if the head page has all requested bytes. The test writes other bytes into the head page
/// than into the ring, to see which of them the reader gets.
#[test]
fn a_whole_delivery_is_taken_from_there() {
    let file = memfd_create("a ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, PAGE + CAPACITY).unwrap();
    let (end, len) = (9_u64, 6);
    let words =
        [(0, MAGIC), (1, CAPACITY), (2, PAGE), (16, end), (17, end), (18, end << 6 | len), (32, CAPACITY)];
    for (word, value) in words {
        pwrite(&file, &value.to_ne_bytes(), word * 8).unwrap();
    }
    pwrite(&file, b"beside", AT).unwrap();
    pwrite(&file, b"thering!!", PAGE).unwrap();
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).unwrap();
    let seen = PeerMapper::new(1, 1 << 20).map(file).unwrap().ring(config(0)).unwrap();
    assert!(seen.follow());
    assert_eq!(seen.view(3, end).to_vec().unwrap(), b"beside");
    for (from, to) in [(0, end), (4, end), (3, end - 1), (0, 6)] {
        let lies = &b"thering!!"[from as usize..to as usize];
        assert_eq!(seen.view(from, to).to_vec().unwrap(), lies);
    }
}

#[test]
fn the_first_small_delivery_is_in_the_head_page() {
    let bytes = content(7, SMALL_PAYLOAD_BYTES);
    for size in 1..=SMALL_PAYLOAD_BYTES {
        for cut in 0..=size {
            let (mut writer, _) = pair(0);
            writer.append(&[&bytes[..cut], &bytes[cut..size]]).unwrap();
            assert_eq!(small_payload_bytes(&writer)[..size], bytes[..size]);
        }
        let (mut writer, _) = pair(0);
        let mut claim = writer.claim(size as u64).unwrap();
        claim.bytes().copy_from_slice(&bytes[..size]);
        writer.deliver(claim, size as u64).unwrap();
        assert_eq!(small_payload_bytes(&writer)[..size], bytes[..size]);
    }
}

/// A reader that copies while the writer continues gets each delivery whole.
#[test]
fn a_reader_that_follows_closely_finds_the_log() {
    let total = 1_u64 << 20;
    let (mut writer, seen) = pair(0);
    let kept = writer.ring().hold(0).unwrap();
    let held = seen.hold(0).unwrap();
    seen.grant();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while writer.head() < total {
                let size = 1 + writer.head() as usize % 67;
                let bytes = content(writer.head(), size);
                if writer.append(&[&bytes[..size / 2], &bytes[size / 2..]]).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        while held.position() < total {
            seen.follow();
            let view = seen.view(held.position(), seen.boundary());
            assert!(view.to_vec().unwrap() == content(view.from(), view.len()), "at {}", view.from());
            held.advance(view.to());
            kept.advance(seen.grant() - CAPACITY);
        }
    });
}
