//! The clock of the machine, as far as files can express its time.

use std::time::{Duration, SystemTime};

use crate::failure::Failure;

/// The beginning of the year 9000. What a command writes may be valid for a hundred years from now, and dates have four digits.
const END: Duration = Duration::from_secs(221_845_392_000);

/// The time now, for what carries it: certificates and tokens.
///
/// # Errors
/// `Failed`: the clock is before 1970 or after the year 9000, as it may be after the battery of a machine was empty.
pub fn now() -> Result<SystemTime, Failure> {
    check(SystemTime::now())
}

fn check(now: SystemTime) -> Result<SystemTime, Failure> {
    match now.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) if since < END => Ok(now),
        _ => Err(Failure::Failed(
            "the clock of this machine is before 1970 or after the year 9000: set it".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_no_file_can_express_is_refused() {
        let (second, epoch) = (Duration::from_secs(1), SystemTime::UNIX_EPOCH);
        assert!(check(epoch - second).is_err() && check(epoch + END).is_err());
        assert!(check(epoch).is_ok() && check(epoch + END - second).is_ok() && now().is_ok());
    }
}
