//! Consistency marks in bytes of another process.

use std::cell::RefCell;

use rocketring::{MARK_HEAD_BYTES, MARK_TAIL_BYTES, Pool, PoolConfig, Ring, RingConfig, Writer};

/// The ring for all inputs of a thread. A mapping for each input would take most of the time.
struct Log {
    ring: Ring,
    writer: Writer,
}

thread_local! {
    static LOG: RefCell<Log> = RefCell::new(new_log());
}

fn new_log() -> Log {
    let pool =
        Pool::new(PoolConfig { reservation_bytes: 1 << 20, max_bytes: 1 << 20 }).expect("memory for a pool");
    let config = RingConfig { capacity_bytes: 1 << 20, flow_control: false, ..RingConfig::default() };
    let ring = pool.ring(config).expect("memory for a ring");
    let writer = ring.writer().expect("the first writer");
    Log { ring, writer }
}

/// A verified delivery has its position, and its payload is inside the view. With one flipped bit it
/// does not verify.
pub fn marks_verify(data: &[u8]) {
    LOG.with_borrow_mut(|log| {
        if let Some(whole) = verify_at_head(log, data) {
            let mut damaged = whole;
            let at = damaged.len() / 2;
            damaged[at] ^= 1;
            // The delivery is at another position now. The position is corrected, the checksum is not.
            assert!(append(log, &damaged).is_none(), "a damaged delivery verified");
        }
    });
}

/// The position of a valid input is not known in advance: a first byte of 1 requests that it is filled in.
fn verify_at_head(log: &mut Log, data: &[u8]) -> Option<Vec<u8>> {
    let (&kind, rest) = data.split_first()?;
    let mut bytes = rest.to_vec();
    bytes.truncate(log.ring.max_delivery() as usize);
    let marks = MARK_HEAD_BYTES + MARK_TAIL_BYTES;
    match kind % 3 {
        0 => {}
        1 if bytes.len() >= 8 => bytes[..8].copy_from_slice(&log.writer.head().to_le_bytes()),
        2 if bytes.len() >= marks => rocketring::write_marks(&mut bytes, log.writer.head()),
        _ => {}
    }
    let verified = append(log, &bytes);
    assert!(verified.is_some() || kind % 3 != 2 || bytes.len() < marks, "a whole delivery did not verify");
    verified.map(|total| bytes[..total].to_vec())
}

/// Appends the bytes and verifies them. Returns the length of the delivery.
fn append(log: &mut Log, bytes: &[u8]) -> Option<usize> {
    let from = log.writer.head();
    let to = log.writer.append(&[bytes]).expect("no flow control, and not too large");
    let view = log.ring.view(from, to);
    let payload = rocketring::verify(&view).ok()?;
    assert_eq!(payload.offset, MARK_HEAD_BYTES);
    assert_eq!(payload.total, payload.len + MARK_HEAD_BYTES + MARK_TAIL_BYTES);
    assert!(payload.total <= bytes.len());
    assert_eq!(bytes[..8], from.to_le_bytes(), "a delivery of another position verified");
    Some(payload.total)
}
