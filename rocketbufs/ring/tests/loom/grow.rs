//! A ring that grows while it is read. Loom reports a byte that is read without the order of its copy, and a wake-up that is lost.

use loom::thread;
use rocketring::sync::Arc;
use rocketring::{ClaimError, Hold, Pool, PoolConfig, Ring, RingConfig, Writer};

use crate::model;

/// A ring of 4 bytes with deliveries of 2, and the memory for one of 16.
fn small() -> (Pool, Ring) {
    let pool = Pool::new(PoolConfig { reservation_bytes: 64, max_bytes: 64 }).unwrap();
    let config = RingConfig {
        capacity_bytes: 4,
        retain_bytes: Some(0),
        max_delivery_bytes: Some(2),
        flow_control: true,
        start: 0,
    };
    let ring = pool.ring(config).unwrap();
    (pool, ring)
}

/// Reads all that is there, byte by byte as its position says, and releases it. Returns how far it is.
fn read(ring: &Ring, hold: &mut Hold) -> u64 {
    let (from, to) = (hold.position(), ring.boundary());
    if from < to {
        let bytes = ring.view(from, to).to_vec().expect("it is held");
        assert!(bytes.iter().zip(from + 1..).all(|(byte, at)| u64::from(*byte) == at), "{bytes:?} at {from}");
        hold.advance(to);
    }
    to
}

fn write(writer: &mut Writer, size: u64) -> Result<u64, ClaimError> {
    let from = writer.head();
    let bytes: Vec<u8> = (from + 1..=from + size).map(|at| at as u8).collect();
    writer.append(&[&bytes])
}

/// A reader meets each step of the growth: the copy, the new memory, and the first delivery that only that has.
#[test]
fn a_reader_has_the_bytes_of_either_memory() {
    model(|| {
        let (pool, ring) = small();
        let mut hold = ring.hold(0).unwrap();
        let mut writer = ring.writer().unwrap();
        write(&mut writer, 2).unwrap();
        let reader = thread::spawn({
            let ring = ring.clone();
            move || {
                read(&ring, &mut hold);
                read(&ring, &mut hold);
                hold
            }
        });
        writer.grow(&pool, 4).unwrap();
        write(&mut writer, 4).unwrap();
        let mut hold = reader.join().unwrap();
        assert_eq!(read(&ring, &mut hold), 6);
        assert_eq!(ring.boundary_at_or_before(5), Some(2), "the ends from before are known");
    });
}

/// A writer that was refused room, then grows, and waits again, has the room of the larger ring or is woken.
#[test]
fn a_waiting_writer_grows() {
    model(|| {
        let (pool, ring) = small();
        let mut hold = ring.hold(0).unwrap();
        let mut writer = ring.writer().unwrap();
        write(&mut writer, 2).unwrap();
        write(&mut writer, 2).unwrap();
        let ring = Arc::new(ring);
        let reader = thread::spawn({
            let ring = ring.clone();
            move || {
                read(&ring, &mut hold);
                hold
            }
        });
        let refused = write(&mut writer, 1);
        assert!(matches!(refused, Ok(5) | Err(ClaimError::Full)), "{refused:?}");
        writer.grow(&pool, 4).unwrap();
        let end = write(&mut writer, 4).unwrap();
        let mut hold = reader.join().unwrap();
        assert_eq!(read(&ring, &mut hold), end);
    });
}
