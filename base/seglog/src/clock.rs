//! The time by which segments are too old.
//!
//! The clock of a machine may be wrong for a moment: an administrator, a virtual machine that wakes, a server of time that fails. What is
//! removed for its age does not come back, so a step ahead counts only after it has lasted. The time since the machine started
//! tells a step from a pause of the process.
//!
//! ```text
//!   wall clock    ────────────────╮ ╭──────────  a step ahead, which ends soon: nothing is removed for it
//!                                 ╰─╯
//!   age clock     ─────────────────────────────  goes on with the time since the start of the machine
//! ```

/// The largest gain of the wall clock on the time since the start of the machine, between two looks, that is a correction and no step.
const STEP_MS: u64 = 60_000;

/// A step ahead counts after so long.
const PATIENCE_MS: u64 = 600_000;

/// The clock by which a log measures ages, and others may. A step ahead of the wall clock by more than a minute counts after ten minutes, and
/// until then this clock goes on without it.
///
/// ```
/// let mut clock = seglog::AgeClock::default();
/// assert_eq!(clock.look(1_000_000_000, 5_000), (1_000_000_000, 0));
/// assert_eq!(clock.look(9_000_000_000, 5_010), (1_000_000_010, 7_999_999_990));
/// ```
#[derive(Debug, Default)]
pub struct AgeClock {
    /// The wall clock that is believed, and the time since the start of the machine at that moment.
    believed: Option<(u64, u64)>,
    /// Since when the wall clock is ahead.
    ahead_since: Option<u64>,
}

impl AgeClock {
    /// The time by which ages are measured, and how far the wall clock is ahead of it, in milliseconds. `steady`: the time since
    /// the start of the machine.
    pub fn look(&mut self, wall: u64, steady: u64) -> (u64, u64) {
        let expected = self.believed.map(|(at, then)| at.saturating_add(steady.saturating_sub(then)));
        if let Some(expected) = expected.filter(|expected| wall > expected.saturating_add(STEP_MS)) {
            let since = *self.ahead_since.get_or_insert(steady);
            if steady.saturating_sub(since) < PATIENCE_MS {
                return (expected, wall - expected);
            }
        }
        (self.believed, self.ahead_since) = (Some((wall, steady)), None);
        (wall, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: u64 = 365 * 86_400_000;

    #[test]
    fn a_step_ahead_counts_after_it_has_lasted() {
        let mut clock = AgeClock::default();
        assert_eq!(clock.look(YEAR, 1_000), (YEAR, 0));
        // The process slept with its machine: both times went on.
        assert_eq!(clock.look(YEAR + 7_200_000, 7_201_000), (YEAR + 7_200_000, 0));
        let (wall, steady) = (YEAR + 7_200_000, 7_201_000);
        assert_eq!(clock.look(2 * YEAR, steady + 10), (wall + 10, 2 * YEAR - wall - 10));
        assert_eq!(clock.look(wall + 2_000, steady + 2_000), (wall + 2_000, 0), "the clock is right again");
        assert_eq!(clock.look(2 * YEAR, steady + 3_000).0, wall + 3_000);
        let before = steady + 3_000 + PATIENCE_MS - 1;
        assert_eq!(clock.look(2 * YEAR + PATIENCE_MS, before).0, wall + (before - steady));
        assert_eq!(clock.look(2 * YEAR + PATIENCE_MS, before + 1), (2 * YEAR + PATIENCE_MS, 0));
    }

    #[test]
    fn a_step_back_counts_at_once() {
        let mut clock = AgeClock::default();
        clock.look(2 * YEAR, 1_000);
        assert_eq!(clock.look(YEAR, 2_000), (YEAR, 0));
        assert_eq!(clock.look(YEAR + STEP_MS, 2_000), (YEAR + STEP_MS, 0));
    }
}
