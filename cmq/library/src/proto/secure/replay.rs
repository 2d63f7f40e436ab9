//! The replay window of a session: which of the last numbers have arrived.
//!
//! ```text
//!   ─────── too old ───────┐◀──────── at least 1,984 numbers ────────▶┐ next
//!                          │ a bit for each: has it arrived?          │ new
//! ```

/// Words of the ring of bits. The oldest word is cleared as a whole, so its numbers are too old already.
const WORDS: u64 = 32;

/// The numbers that have arrived.
pub(crate) struct ReplayWindow {
    /// The number after the greatest one.
    next: u64,
    bits: [u64; WORDS as usize],
}

impl ReplayWindow {
    pub fn new() -> ReplayWindow {
        ReplayWindow { next: 0, bits: [0; WORDS as usize] }
    }

    /// True if the number has not arrived, and is not too old to tell.
    pub fn is_new(&self, number: u64) -> bool {
        if number >= self.next {
            return number < u64::MAX;
        }
        let newest = (self.next - 1) / 64;
        newest - number / 64 < WORDS && self.bits[(number / 64 % WORDS) as usize] >> (number % 64) & 1 == 0
    }

    /// True if the number is greater than all that have arrived.
    pub fn is_newest(&self, number: u64) -> bool {
        number >= self.next
    }

    /// Records a number that is new. Call it only for authentic datagrams.
    pub fn mark(&mut self, number: u64) {
        if number >= self.next {
            let (newest, word) = (self.next.saturating_sub(1) / 64, number / 64);
            for cleared in newest + 1..=word.min(newest + WORDS) {
                self.bits[(cleared % WORDS) as usize] = 0;
            }
            self.next = number + 1;
        }
        self.bits[(number / 64 % WORDS) as usize] |= 1 << (number % 64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A set is the oracle: no number is accepted twice, and each of the last 1,984 is accepted once.
        #[test]
        fn the_window_behaves_as_a_set(jumps in prop::collection::vec((-2200_i64..40, 0_i64..3000), 1..400)) {
            let (mut window, mut model, mut next) = (ReplayWindow::new(), BTreeSet::new(), 0_i64);
            for (back, ahead) in jumps {
                let number = if back < 0 { next + back } else { next + ahead };
                let Ok(number) = u64::try_from(number) else { continue };
                let recent = i64::try_from(number).expect("small") + 1984 >= next;
                prop_assert!(!window.is_new(number) || !model.contains(&number));
                prop_assert!(window.is_new(number) || model.contains(&number) || !recent);
                if window.is_new(number) {
                    window.mark(number);
                    model.insert(number);
                    prop_assert!(!window.is_new(number));
                }
                next = next.max(number as i64 + 1);
            }
        }
    }

    #[test]
    fn the_last_number_is_no_number() {
        let mut window = ReplayWindow::new();
        assert!(!window.is_new(u64::MAX) && window.is_new(u64::MAX - 1));
        window.mark(u64::MAX - 1);
        assert!(!window.is_new(u64::MAX - 1) && !window.is_new(0) && window.is_new(u64::MAX - 2));
    }
}
