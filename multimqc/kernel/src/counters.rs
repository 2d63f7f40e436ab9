//! The counters of the programs.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::layout::COUNTERS;

/// Counters of a topic since its ring was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelCounters {
    /// Messages that were stored.
    pub stored: u64,
    /// Their bytes.
    pub stored_bytes: u64,
    /// Pulls that were answered.
    pub hits: u64,
    /// Bytes in these replies.
    pub hit_bytes: u64,
    /// Pulls that were left to the next level, because they ask for bytes that are not written yet.
    pub misses: u64,
    /// Pulls that were left to the next level, because they ask for bytes that are overwritten. Also a few pulls without a reply, whose
    /// bytes were overwritten while the reply was made.
    pub overwritten: u64,
    /// Writers that were stopped for so long that others overtook them by a whole ring. The bytes that they may have damaged become a
    /// hole.
    pub lapped: u64,
    /// Messages that the input function dropped.
    pub dropped: u64,
    /// Messages that are longer than the limit.
    pub oversize: u64,
    /// Datagrams with a wrong checksum.
    pub corrupt: u64,
    /// First fragments of datagrams.
    pub fragments: u64,
    /// Datagrams that do not follow the format. Datagrams to a port in the header form name no topic, and count for the
    /// first.
    pub malformed: u64,
    /// Pulls without a reply: they ask for nothing, have no room for a reply, or come from a port of a topic.
    pub refused: u64,
}

impl KernelCounters {
    /// Adds the counts of a CPU.
    pub(crate) fn add(&mut self, cpu: &[AtomicU64; COUNTERS]) {
        let fields: [&mut u64; COUNTERS] = [
            &mut self.stored,
            &mut self.stored_bytes,
            &mut self.hits,
            &mut self.hit_bytes,
            &mut self.misses,
            &mut self.overwritten,
            &mut self.lapped,
            &mut self.dropped,
            &mut self.oversize,
            &mut self.corrupt,
            &mut self.fragments,
            &mut self.malformed,
            &mut self.refused,
        ];
        for (sum, counter) in fields.into_iter().zip(cpu) {
            *sum += counter.load(Relaxed);
        }
    }
}
