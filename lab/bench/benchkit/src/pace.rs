//! A load of so many messages per second, or as many as go.

use std::{
    num::NonZeroU64,
    time::{Duration, Instant},
};

/// The interval at which due messages are handed over. The interval is the same for every system, so that none gets larger
/// batches.
const TICK: Duration = Duration::from_millis(1);

/// Bytes of a batch, headers included, where messages are small enough to be batched.
pub const BATCH_BYTES: usize = 64 * 1024;

/// Bytes that a subscriber offers to one `read`, and a publisher that is as fast as it can gives to one `write`.
pub const CALL_BYTES: usize = 256 * 1024;

/// Bytes that a publisher gives to one `write`: at a rate a batch, for every system the same.
pub fn call_bytes(per_s: Option<f64>) -> usize {
    if per_s.is_some() { BATCH_BYTES } else { CALL_BYTES }
}

/// When messages are due, counted from the first call.
pub struct Pace {
    per_s: Option<f64>,
    began: Option<Instant>,
}

impl Pace {
    /// Nothing is held back without a rate.
    pub fn new(per_s: Option<f64>) -> Pace {
        Pace { per_s, began: None }
    }

    /// Waits until messages are due beyond the `sent` ones. Returns how many: all that are due since the last tick, and
    /// not the few that became due while those before them were handed over.
    pub fn wait(&mut self, sent: u64) -> u64 {
        let Some(per_s) = self.per_s else { return u64::MAX };
        let began = *self.began.get_or_insert_with(Instant::now);
        loop {
            let elapsed = began.elapsed();
            let last_tick = TICK * (elapsed.as_nanos() / TICK.as_nanos()) as u32;
            let due = due(last_tick, per_s);
            if due > sent {
                return due - sent;
            }
            std::thread::sleep((last_tick + TICK).saturating_sub(elapsed));
        }
    }
}

fn due(elapsed: Duration, per_s: f64) -> u64 {
    (elapsed.as_secs_f64() * per_s) as u64
}

/// Makes this thread's sleeps end when they should, and not up to 50 us later.
///
/// # Errors
/// The kernel refused.
pub fn sleep_exactly() -> std::io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_messages_follow_the_clock() {
        assert_eq!(due(Duration::from_millis(1500), 1000.0), 1500);
        assert_eq!(due(Duration::from_micros(999), 1000.0), 0);
        assert_eq!(Pace::new(None).wait(7), u64::MAX);
        let mut pace = Pace::new(Some(1e6));
        pace.wait(0);
        let more = pace.wait(2000);
        assert!(more >= 1);
    }
}
