//! Buffers for copies of queued ranges, kept from one copy to the next.
//!
//! Allocators return freed memory of that size to the system at some time, and then every page of the next copy is fetched and
//! cleared anew: three times the processor time of a copy and its sending.
//!
//! ```text
//!   copy 200 KiB ── take ──▶ ┌ 64 KiB ┬ 256 KiB ┐ ◀── give ── sent
//!                            └ oldest ┴ newest  ┘ ──▶ beyond the limits the oldest goes
//! ```

use std::collections::VecDeque;

use crate::wire::HEADER_BYTES;

/// Smaller copies use the allocator, for which they cost little.
const SMALLEST: usize = 4 << 10;
/// The most spare buffers, and the most bytes in them. A worker seldom has more copies between two of its flushes.
const KEPT: usize = 64;
const KEPT_BYTES: usize = 4 << 20;

/// A worker's unused buffers. Each has room for a header and a power of two.
#[derive(Default)]
pub(super) struct Spares {
    kept: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Spares {
    /// A buffer for a header and at least `payload` bytes, less than twice as large as needed. Its content is arbitrary.
    pub fn take(&mut self, payload: usize) -> Vec<u8> {
        if payload < SMALLEST {
            return vec![0; HEADER_BYTES + payload];
        }
        let len = HEADER_BYTES + payload.next_power_of_two();
        // The newest: the processor's cache may still have it.
        let at = self.kept.iter().rposition(|buffer| buffer.len() == len);
        let kept = at.and_then(|at| self.kept.remove(at));
        self.bytes -= kept.as_ref().map_or(0, Vec::len);
        kept.unwrap_or_else(|| vec![0; len])
    }

    /// Keeps a buffer for later, if it is large enough.
    pub fn give(&mut self, buffer: Vec<u8>) {
        let payload = buffer.len().saturating_sub(HEADER_BYTES);
        if !(SMALLEST..=KEPT_BYTES / 2).contains(&payload) || !payload.is_power_of_two() {
            return;
        }
        self.bytes += buffer.len();
        self.kept.push_back(buffer);
        while self.bytes > KEPT_BYTES || self.kept.len() > KEPT {
            self.bytes -= self.kept.pop_front().map_or(0, |oldest| oldest.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spare_is_taken_by_a_request_that_fits() {
        let mut spares = Spares::default();
        let mut buffer = spares.take(150_000);
        assert_eq!(buffer.len(), HEADER_BYTES + (256 << 10));
        buffer[0] = 7;
        spares.give(buffer);
        assert_eq!(spares.take(100_000)[0], 0, "half of it would do");
        assert_eq!(spares.take(256 << 10)[0], 7);
        assert_eq!(spares.take(256 << 10)[0], 0, "a new buffer is zero");
    }

    #[test]
    fn spare_memory_has_limits() {
        let mut spares = Spares::default();
        let kept = |spares: &Spares| spares.kept.iter().map(Vec::len).sum::<usize>();
        for payload in [1, SMALLEST, 100_000, 1 << 20, KEPT_BYTES, SMALLEST, 1 << 20, 1 << 20, 1 << 21] {
            let buffers: Vec<_> = (0..100).map(|_| spares.take(payload)).collect();
            assert!(buffers.iter().all(|buffer| buffer.len() >= HEADER_BYTES + payload));
            buffers.into_iter().for_each(|buffer| spares.give(buffer));
            spares.give(vec![0; payload]);
            assert!(spares.kept.len() <= KEPT && kept(&spares) <= KEPT_BYTES);
            assert_eq!(spares.bytes, kept(&spares));
        }
    }
}
