//! An idle ring gives its memory back.

use rocketring::{Ring, RingConfig, RingReceiver, Trimmed, Writer};

use crate::common::ring;

const CAPACITY: u64 = 64 << 10;

/// A ring that received `bytes` bytes, in deliveries of 1,000 bytes.
fn used(bytes: usize) -> (Ring, RingReceiver) {
    let ring = ring(RingConfig { capacity_bytes: CAPACITY, ..RingConfig::default() });
    let mut receiver = ring.receiver().unwrap();
    for _ in 0..bytes / 1000 {
        assert_eq!(receiver.copy_in(&[7; 1000]), 1000);
        receiver.end();
        ring.grant();
    }
    (ring, receiver)
}

/// Bytes of the ring's memory that are not zero.
fn backed(ring: &Ring) -> usize {
    let memory = ring.raw(0, CAPACITY as usize);
    // SAFETY: `CAPACITY` bytes are mapped at `memory`, and no thread writes them.
    let memory = unsafe { std::slice::from_raw_parts(memory, CAPACITY as usize) };
    memory.iter().filter(|byte| **byte != 0).count()
}

#[test]
fn unheld_memory_goes_except_kept_memory() {
    let (ring, mut receiver) = used(300_000);
    assert_eq!(backed(&ring), CAPACITY as usize);
    let trimmed = receiver.trim(10_000);
    // The bytes 290,000 to 300,000 are in the pages 70 to 73.
    assert_eq!(trimmed, Trimmed { left: 4 * 4096, given_back: CAPACITY - 4 * 4096, held: false });
    assert_eq!(backed(&ring), 4 * 4096);
    assert_eq!((ring.tail(), ring.head()), (290_000, 300_000));
    assert_eq!(ring.view(290_000, 300_000).to_vec().unwrap(), [7; 10_000]);
    assert!(ring.hold(289_999).is_err(), "the released bytes are gone");
    assert_eq!(
        receiver.copy_in(&[8; 1 << 20]) as u64,
        CAPACITY - 10_000,
        "the room is the capacity without the kept bytes"
    );
}

#[test]
fn held_and_incomplete_memory_stays() {
    let (ring, mut receiver) = used(300_000);
    let hold = ring.hold(280_500).unwrap();
    receiver.copy_in(&[9; 500]);
    let trimmed = receiver.trim(0);
    assert!(trimmed.held);
    assert_eq!(ring.tail(), 280_500);
    assert_eq!(ring.view(280_500, 300_000).to_vec().unwrap(), [7; 19_500]);
    hold.advance(300_500);
    assert!(!receiver.trim(0).held);
    assert_eq!((ring.tail(), ring.boundary(), ring.head()), (300_000, 300_000, 300_500));
    assert_eq!(ring.view(300_000, 300_500).to_vec().unwrap(), [9; 500]);
    assert_eq!(backed(&ring), 4096);
}

#[test]
fn memory_held_below_a_hole_stays() {
    let (ring, mut receiver) = used(300_000);
    let hold = ring.hold(299_000).unwrap();
    receiver.skip(900_000);
    let trimmed = receiver.trim(0);
    assert!(trimmed.held);
    assert_eq!(trimmed.given_back, 0, "the hold is further back than the ring is long");
    assert_eq!(ring.view(299_000, 300_000).to_vec().unwrap(), [7; 1000]);
    drop(hold);
    assert_eq!(receiver.trim(0).given_back, CAPACITY - 4096);
}

#[test]
fn trimming_again_gives_only_the_bytes_asked_for() {
    let (ring, mut receiver) = used(300_000);
    receiver.trim(30_000);
    let tail = ring.tail();
    assert_eq!(receiver.trim(CAPACITY).left, receiver.trim(30_000).left, "a tail does not go back");
    assert_eq!(ring.tail(), tail);
    assert_eq!(receiver.trim(1000).left, 2 * 4096);
}

/// The most bytes that a local writer's ring keeps beyond its history: the room up to the horizon, and a begun page at each
/// end.
const AT_MOST: u64 = (16 << 10) + 2 * 4096;

/// As [`used`], written by a local writer.
fn written(bytes: usize) -> (Ring, Writer) {
    let ring = ring(RingConfig { capacity_bytes: CAPACITY, ..RingConfig::default() });
    let mut writer = ring.writer().unwrap();
    for _ in 0..bytes / 1000 {
        writer.append(&[&[7; 1000]]).unwrap();
    }
    (ring, writer)
}

#[test]
fn memory_of_a_gone_writer_goes_except_kept_memory() {
    let (ring, mut writer) = written(300_000);
    assert_eq!(backed(&ring), CAPACITY as usize);
    let trimmed = ring.trim(10_000).unwrap();
    assert!(!trimmed.held && trimmed.left <= 10_000 + AT_MOST, "{trimmed:?}");
    assert_eq!(trimmed.left + trimmed.given_back, CAPACITY);
    assert!(backed(&ring) as u64 <= trimmed.left);
    assert_eq!((ring.tail(), ring.head()), (290_000, 300_000));
    assert_eq!(ring.view(290_000, 300_000).to_vec().unwrap(), [7; 10_000]);
    assert!(ring.hold(289_999).is_err(), "the released bytes are gone");
    // The writer continues, over all memory that was given back.
    let hold = ring.hold(290_000).unwrap();
    let mut room = 0;
    while writer.append(&[&[8; 1000]]).is_ok() {
        room += 1000;
    }
    assert!(room > CAPACITY - 12_000, "{room}");
    assert_eq!(ring.view(290_000, 300_000).to_vec().unwrap(), [7; 10_000]);
    assert_eq!(ring.view(300_000, 300_000 + room).to_vec().unwrap(), vec![8; room as usize]);
    drop(hold);
}

#[test]
fn held_or_claimed_memory_of_a_written_ring_stays() {
    let (ring, mut writer) = written(300_000);
    let hold = ring.hold(280_500).unwrap();
    let mut claims: Vec<_> = (0..3).map(|_| writer.claim(10_000).unwrap()).collect();
    claims.iter_mut().for_each(|claim| claim.bytes().fill(9));
    assert!(ring.trim(0).unwrap().held);
    assert_eq!(ring.tail(), 280_500);
    assert_eq!(ring.view(280_500, 300_000).to_vec().unwrap(), [7; 19_500]);
    hold.advance(300_000);
    assert!(!ring.trim(0).unwrap().held);
    for claim in claims {
        writer.deliver(claim, 10_000).unwrap();
    }
    assert_eq!(ring.view(300_000, 330_000).to_vec().unwrap(), [9; 30_000]);
    drop(hold);
    let left = ring.trim(0).unwrap().left;
    assert!(left <= AT_MOST, "{left}");
    assert!(ring.slowest_hold().is_none() && backed(&ring) as u64 <= left);
}

#[test]
fn only_a_writers_ring_is_trimmed_from_outside() {
    let (filled, mut receiver) = used(300_000);
    assert_eq!(filled.trim(0), None, "bytes may land in it at any time");
    assert!(receiver.trim(0).given_back > 0);
    let (pinned, _writer) = written(300_000);
    let pin = pinned.pin();
    assert_eq!(pinned.trim(0).unwrap().given_back, 0);
    drop(pin);
    assert!(pinned.trim(0).unwrap().given_back > 0);
    let config = RingConfig { flow_control: false, ..RingConfig::default() };
    let free = ring(config);
    let _writer = free.writer().unwrap();
    assert_eq!(free.trim(0), None, "its readers hold nothing");
}
