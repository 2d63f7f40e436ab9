//! Writing into a receiver's ring past its head, as a network adapter does in one-sided mode before a notification. The only
//! unsafe code of the simulated network.

use rocketring::RingReceiver;

/// Puts `bytes` into the ring receiver's memory, `ahead` bytes past its head, without moving the head. False, with nothing
/// written, if that range was not granted.
///
/// Only for rings with flow control: in others, reserving room announces the horizon, which only the receiver may do.
pub(crate) fn put(receiver: &mut RingReceiver, ahead: u64, bytes: &[u8]) -> bool {
    debug_assert!(receiver.ring().flow_control());
    let end = ahead.saturating_add(bytes.len() as u64);
    if end > receiver.room() {
        return false;
    }
    let (at, size) = receiver.spare(end as usize);
    if (size as u64) < end {
        return false;
    }
    // SAFETY: `at` is valid for writes of `size` bytes until the ring receiver is used again, `ahead + bytes.len() <= size`,
    // and no reader reads past the head: the bytes become visible only through `RingReceiver::land`. `bytes` is a buffer of
    // the network's own and no part of a ring.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.add(ahead as usize), bytes.len()) };
    true
}

/// A byte that planted bug 10 announced before it wrote it.
pub(crate) struct Late {
    ring: rocketring::Ring,
    at: rocketring::Position,
    byte: u8,
}

impl Late {
    /// Lands `bytes`, the last of which is missing until [`Late::write`]. None, with nothing done, if they do not fit.
    pub(crate) fn land(receiver: &mut RingReceiver, bytes: &[u8]) -> Option<Self> {
        let (&byte, rest) = bytes.split_last()?;
        if receiver.room() < bytes.len() as u64 || !receiver.ring().flow_control() {
            return None;
        }
        let (at, size) = receiver.spare(bytes.len());
        if size < bytes.len() {
            return None;
        }
        // SAFETY: as in `put`.
        unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), at, rest.len()) };
        receiver.land(bytes.len());
        let ring = receiver.ring().clone();
        let at = ring.head() - 1;
        Some(Self { ring, at, byte })
    }

    /// Writes the byte, too late.
    pub(crate) fn write(self) {
        let at = self.ring.raw(self.at, 1).cast_mut();
        // SAFETY: `raw` points into the ring's own writable mapping, which `self.ring` keeps alive. A reader may
        // see the old value: that is the planted bug.
        unsafe { at.write_volatile(self.byte) };
    }
}
