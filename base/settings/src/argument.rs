//! Sizes and times as arguments of commands, for clap's `value_parser`.

use std::time::Duration;

use super::size::parse_bytes;
use super::time::{TIME_UNITS, parse_time};

/// An argument that is a size.
///
/// # Errors
/// The text is no size. The error says how one is written.
pub fn size_argument(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| {
        format!("'{text}' is not a number of bytes: write one alone, or with k, M, G (of 1024) or kB, MB, GB (of 1000)")
    })
}

/// An argument that is a time; a number alone counts seconds.
///
/// # Errors
/// The text is no time. The error says how one is written.
pub fn time_argument(text: &str) -> Result<Duration, String> {
    time(text, Duration::from_secs(1), "seconds")
}

/// An argument that is a time; a number alone counts milliseconds.
///
/// # Errors
/// As [`time_argument`].
pub fn millis_argument(text: &str) -> Result<Duration, String> {
    time(text, Duration::from_millis(1), "milliseconds")
}

fn time(text: &str, alone: Duration, unit: &str) -> Result<Duration, String> {
    parse_time(text, alone)
        .ok_or_else(|| format!("'{text}' is not a time: write {unit} alone, or with a unit: {TIME_UNITS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_unit_is_answered_with_the_right_ones() {
        assert_eq!(size_argument(" 64 KiB"), Ok(65536));
        for text in ["ten", "1x", "99999999999G", "", "k", "-1", "64 mb"] {
            assert!(size_argument(text).unwrap_err().contains("kB, MB, GB (of 1000)"), "{text}");
        }
        assert_eq!(time_argument("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(time_argument("0.25"), Ok(Duration::from_millis(250)));
        for text in ["ten", "1x", "", "-1", "1 S"] {
            assert!(time_argument(text).unwrap_err().contains("us, ms, s, m or min, h, d"), "{text}");
        }
    }
}
