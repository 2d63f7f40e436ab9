//! Values that cost something to take: the same one for all who ask, until the next one is due.
//!
//! The next value is due a second after the last, or later: [`FACTOR`] times as long as the last took. So any number of browsers costs the
//! broker at most a fiftieth of a core for each kind of value, also with so many topics that a sample takes long.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// A broker that does not answer within this time does not answer.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The least time between two values.
const INTERVAL: Duration = Duration::from_secs(1);

/// A value is followed by another one after this many times the time that it took.
const FACTOR: u32 = 50;

/// The broker's thread does not answer, or has stopped.
#[derive(Debug)]
pub(super) struct NoAnswer;

/// A value that is taken again when it is due.
pub(super) struct Due<T> {
    value: Option<Arc<T>>,
    next: Instant,
}

impl<T> Due<T> {
    /// Nothing so far.
    pub(super) fn new() -> Self {
        Self { value: None, next: Instant::now() }
    }

    /// The value, or another one if that is due, for which `take` gets the one before.
    ///
    /// # Errors
    /// Those of `take`, until it is due again.
    pub(super) fn get(
        &mut self,
        take: impl FnOnce(Option<&T>) -> Result<T, NoAnswer>,
    ) -> Result<Arc<T>, NoAnswer> {
        let begin = Instant::now();
        if begin < self.next {
            return self.value.clone().ok_or(NoAnswer);
        }
        let taken = take(self.value.as_deref()).map(Arc::new);
        // A broker that does not answer is not asked at once again either.
        self.next = Instant::now() + INTERVAL.max(begin.elapsed().saturating_mul(FACTOR));
        self.value = taken.as_ref().ok().cloned();
        taken
    }

    /// Whether nobody has asked since it was due.
    pub(super) fn is_over(&self) -> bool {
        self.next <= Instant::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_takes_long_is_taken_less_often() {
        let mut due = Due::<u32>::new();
        let taken = due.get(|_| Ok(1)).unwrap();
        assert_eq!(*due.get(|_| Ok(2)).unwrap(), *taken, "it is the same for all who ask in time");
        due.next = Instant::now();
        let begin = Instant::now();
        let again = due.get(|before| {
            assert_eq!(before, Some(&1));
            while begin.elapsed() < Duration::from_millis(50) {
                std::hint::spin_loop();
            }
            Ok(3)
        });
        assert_eq!(*again.unwrap(), 3);
        assert!(due.next > begin + Duration::from_millis(50 * 50));
        let late = Instant::now();
        due.next = late;
        assert!(due.get(|_| Err(NoAnswer)).is_err());
        assert!(due.next >= late + INTERVAL, "who does not answer is not asked at once again");
    }
}
