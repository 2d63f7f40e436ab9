//! Reading of logs: who has a turn.
//!
//! A round of the gateway has time for so many bytes of logs. Where clients want more, only a part of them has a turn in each round, so that all
//! others are served between two rounds.

/// What clients read in a round, about.
const ROUND_BYTES: u64 = 32 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// The bytes that were read in this round.
    bytes: u64,
    /// One of so many who ask has a turn. 0 is as good as 1.
    share: u64,
    /// How often somebody has asked.
    asked: u64,
}

impl Reads {
    /// Whether a client that asks has a turn now.
    pub(super) fn has_turn(&mut self) -> bool {
        self.asked = self.asked.wrapping_add(1);
        // Multiples of the golden ratio: whatever the number of those who ask one after the other, each has its part of the turns.
        let place = self.asked.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        (place * self.share.max(1)) >> 32 == 0
    }

    /// So many bytes were read.
    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    pub(super) fn next_round(&mut self) {
        let wanted = self.bytes.saturating_mul(self.share.max(1)) / ROUND_BYTES;
        self.share = wanted.max(self.share / 2).min(u64::from(u32::MAX));
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_much_shares_the_rounds_with_others() {
        for clients in [1, 10, 64, 300, 1000] {
            let (mut reads, mut turns) = (Reads::default(), vec![0; clients]);
            for round in 0..4000 {
                for turn in &mut turns {
                    if reads.has_turn() {
                        *turn += 1;
                        reads.add(4 << 20);
                    }
                }
                assert!(
                    round < 20 || reads.bytes <= 3 * ROUND_BYTES,
                    "{clients} clients: {} bytes",
                    reads.bytes
                );
                reads.next_round();
            }
            let (least, most) = (turns.iter().min().copied(), turns.iter().max().copied());
            assert!(least > Some(0) && most <= least.map(|least| least * 8 + 8), "{least:?} {most:?}");
        }
        let mut idle = Reads { bytes: u64::MAX, ..Reads::default() };
        (0..100).for_each(|_| idle.next_round());
        assert!((0..100).all(|_| idle.has_turn()));
    }
}
