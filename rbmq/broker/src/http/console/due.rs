//! Values that cost something to take: the same one for all who ask, until the next one is due.
//!
//! The next value is due a second after the last, or later: [`FACTOR`] times as long as the broker's thread worked for the last, and at
//! most [`MAX_PAUSE`]. So any number of browsers costs the broker's thread at most a hundredth of a core for each kind of value, as long as
//! one takes at most a twentieth of a second of work. The time that somebody waited for the thread does not count: whoever comes out of an
//! incident looks at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// The least time between two values, and the time after a failure.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// The most time between two values.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(5);

/// A value is followed by another one after this many times the work that it took.
pub(super) const FACTOR: u32 = 100;

/// A value that nobody has asked for is forgotten this long after it was due.
const FORGET: Duration = Duration::from_secs(120);

/// The broker's thread does not answer, or has stopped.
#[derive(Debug, Clone, Copy)]
pub(super) struct NoAnswer;

/// A value, and the work of the broker's thread for it.
pub(super) struct Taken<T> {
    pub(super) value: T,
    pub(super) work: Duration,
}

/// A value that is taken again when it is due.
pub(super) struct Due<T> {
    value: Option<Arc<T>>,
    /// The last try failed.
    failed: bool,
    next: Instant,
}

impl<T> Due<T> {
    /// Nothing so far.
    pub(super) fn new() -> Self {
        Self { value: None, failed: false, next: Instant::now() }
    }

    /// The value, or another one if that is due, for which `take` gets the one before.
    ///
    /// # Errors
    /// Those of `take`, until it is due again.
    pub(super) fn get(
        &mut self,
        take: impl FnOnce(Option<&T>) -> Result<Taken<T>, NoAnswer>,
    ) -> Result<Arc<T>, NoAnswer> {
        if Instant::now() < self.next {
            return self.value.clone().filter(|_| !self.failed).ok_or(NoAnswer);
        }
        let taken = take(self.value.as_deref());
        let now = Instant::now();
        self.failed = taken.is_err();
        // A broker that does not answer is not asked at once again. The value before stays for the rates.
        self.next = now + INTERVAL;
        let Taken { value, work } = taken?;
        let value = Arc::new(value);
        self.next = now + work.saturating_mul(FACTOR).clamp(INTERVAL, MAX_PAUSE);
        self.value = Some(value.clone());
        Ok(value)
    }

    /// Whether nobody has asked since it was due.
    pub(super) fn is_over(&self) -> bool {
        self.next <= Instant::now()
    }

    /// Frees the memory of a value that nobody looks at any more.
    pub(super) fn forget(&mut self, now: Instant) {
        if self.next + FORGET <= now {
            self.value = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(value: u32, millis: u64) -> Result<Taken<u32>, NoAnswer> {
        Ok(Taken { value, work: Duration::from_millis(millis) })
    }

    #[test]
    fn a_value_that_costs_much_is_taken_less_often_and_a_broker_that_was_silent_soon() {
        let mut due = Due::<u32>::new();
        let first = due.get(|_| taken(1, 0)).unwrap();
        assert_eq!(*due.get(|_| taken(2, 0)).unwrap(), *first, "it is the same for all who ask in time");
        let pause = |due: &mut Due<u32>, take: Result<Taken<u32>, NoAnswer>| {
            let begin = Instant::now();
            due.next = begin;
            let _ = due.get(|_| take);
            due.next - begin
        };
        assert!(pause(&mut due, taken(3, 30)) >= Duration::from_millis(30 * 100));
        let late = Duration::from_millis(900);
        assert!(pause(&mut due, taken(4, 60_000)) < MAX_PAUSE + late, "nobody is blind for long");
        // The time of the wait does not count.
        assert!(pause(&mut due, Err(NoAnswer)) < INTERVAL + late);
        assert!(due.get(|_| taken(5, 0)).is_err(), "an old value is not shown as the present one");
        due.next = Instant::now();
        let again = due.get(|before| {
            assert_eq!(before, Some(&4), "rates need it");
            taken(6, 0)
        });
        assert_eq!(*again.unwrap(), 6);
        due.forget(due.next + FORGET);
        assert!(due.value.is_none());
    }
}
