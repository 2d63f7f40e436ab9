//! How long a level keeps a byte, and how late the next level may be.
//!
//! ```text
//!   ring of a level   │ overlap │ free until overwritten: the next level's time │ batch │
//!                     oldest                                                          newest
//! ```
//!
//! A byte is overwritten when a capacity of newer bytes has arrived. Before that it must have been transferred: the transfer
//! begins when a batch is complete, and both levels must hold the last `overlap` bytes, so that no request for as many bytes
//! spans two levels.

use std::fmt;
use std::time::Duration;

/// The smallest overlap of two levels: the bytes of the largest request, which is an MTU of Ethernet.
pub const OVERLAP_BYTES: u64 = 1500;

/// The sizes and the rate in equation 1 of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizing {
    /// Bytes that the level keeps of a topic.
    pub capacity_bytes: u64,
    /// Bytes that are transferred to the next level at a time.
    pub batch_bytes: u64,
    /// Bytes that both levels hold; see [`OVERLAP_BYTES`].
    pub overlap_bytes: u64,
    /// Bytes that arrive in a second.
    pub bytes_per_second: u64,
}

/// A level that cannot keep a byte until the next level has it. The text shows the calculation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct TooSmall {
    /// The sizes and the rate.
    pub sizing: Sizing,
    /// How long the next level takes.
    pub latency: Duration,
}

impl Sizing {
    /// Equation 1: the next level must get a batch in less time than this. `None`: the batch and the overlap do not fit into the capacity.
    /// Without arriving bytes nothing is overwritten, and the result is [`Duration::MAX`].
    ///
    /// ```
    /// use multimqc::{OVERLAP_BYTES, Sizing};
    ///
    /// // The example of the paper's section III-B: 9.98 ms.
    /// let sizing = Sizing {
    ///     capacity_bytes: 1_000_000,
    ///     batch_bytes: 512,
    ///     overlap_bytes: OVERLAP_BYTES,
    ///     bytes_per_second: 100_000_000,
    /// };
    /// assert_eq!(sizing.acceptable_latency().unwrap().as_micros(), 9979);
    /// ```
    pub fn acceptable_latency(&self) -> Option<Duration> {
        let used = self.batch_bytes.checked_add(self.overlap_bytes)?;
        Some(time_of(self.capacity_bytes.checked_sub(used)?, self.bytes_per_second))
    }

    /// How long a byte can be read from the level (the paper's table II).
    pub fn available_time(&self) -> Duration {
        time_of(self.capacity_bytes, self.bytes_per_second)
    }

    /// Checks that the next level gets each byte in time, if it takes `latency` for a batch.
    ///
    /// # Errors
    /// [`TooSmall`], which is the configuration's fault: a larger capacity or a smaller batch helps.
    pub fn check(&self, latency: Duration) -> Result<(), TooSmall> {
        match self.acceptable_latency() {
            Some(acceptable) if latency < acceptable => Ok(()),
            _ => Err(TooSmall { sizing: *self, latency }),
        }
    }
}

/// The time in which `bytes` arrive.
fn time_of(bytes: u64, bytes_per_second: u64) -> Duration {
    let nanos = (u128::from(bytes) * 1_000_000_000).checked_div(bytes_per_second.into());
    nanos.map_or(Duration::MAX, |nanos| Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sizing { capacity_bytes, batch_bytes, overlap_bytes, bytes_per_second } = self.sizing;
        write!(
            f,
            "equation 1 does not hold: latency < (capacity - (batch + overlap)) / rate, here {:?} < ({capacity_bytes} - \
             ({batch_bytes} + {overlap_bytes})) B / {bytes_per_second} B/s = ",
            self.latency
        )?;
        match self.sizing.acceptable_latency() {
            Some(acceptable) => write!(f, "{acceptable:?}")?,
            None => f.write_str("less than nothing")?,
        }
        f.write_str("; use a larger capacity or a smaller batch")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZING: Sizing = Sizing {
        capacity_bytes: 1 << 20,
        batch_bytes: 32 << 10,
        overlap_bytes: 1500,
        bytes_per_second: 1 << 20,
    };

    #[test]
    fn the_rows_of_table_2() {
        let mut sizing = Sizing { capacity_bytes: 1_000_000, bytes_per_second: 1_000_000, ..SIZING };
        assert_eq!(sizing.available_time(), Duration::from_secs(1));
        sizing.bytes_per_second = 100_000_000;
        assert_eq!(sizing.available_time(), Duration::from_millis(10));
        sizing.capacity_bytes = 512_000_000_000;
        assert_eq!(sizing.available_time().as_secs() / 60, 85, "1.4 hours");
    }

    #[test]
    fn a_batch_that_does_not_fit_is_refused_with_the_calculation() {
        let sizing = Sizing { batch_bytes: 1 << 20, ..SIZING };
        let refused = sizing.check(Duration::ZERO).unwrap_err().to_string();
        assert!(
            refused.contains("(1048576 - (1048576 + 1500)) B / 1048576 B/s = less than nothing"),
            "{refused}"
        );
        assert!(SIZING.check(Duration::from_millis(967)).is_ok());
        let refused = SIZING.check(Duration::from_millis(968)).unwrap_err().to_string();
        assert!(refused.contains("968ms < (1048576 - (32768 + 1500)) B / 1048576 B/s = 967.3"), "{refused}");
    }

    #[test]
    fn nothing_is_overwritten_without_arrivals() {
        let sizing = Sizing { bytes_per_second: 0, ..SIZING };
        assert_eq!(sizing.available_time(), Duration::MAX);
        assert!(sizing.check(Duration::from_secs(1 << 30)).is_ok());
    }
}
