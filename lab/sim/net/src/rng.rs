//! The only random source of a simulated network. All variations are drawn from it, in the order of the calls, so that a
//! seed and a sequence of calls give one history.

/// SplitMix64: small, fast, and good enough to shuffle events.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high);
        match (high - low).checked_add(1) {
            Some(span) => low + self.next() % span,
            None => self.next(),
        }
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    /// How much of `most` a read or a write does: often one byte, often a few (which cuts headers), often
    /// everything, else anything between. At least 1, at most `most`, which is not 0.
    pub(crate) fn cut(&mut self, most: usize) -> usize {
        let n = match self.next() % 8 {
            0 => 1,
            1 => self.between(1, 16) as usize,
            2 | 3 => self.between(1, most as u64) as usize,
            _ => most,
        };
        n.min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn a_seed_is_a_sequence_and_cuts_are_in_range() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for most in 1..500 {
            let n = a.cut(most);
            assert_eq!(n, b.cut(most));
            assert!((1..=most).contains(&n));
        }
        assert_eq!(a.between(3, 3), 3);
        assert_ne!(Rng::new(1).next(), Rng::new(2).next());
    }
}
