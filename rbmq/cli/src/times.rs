//! Times as arguments.

use std::time::Duration;

use rocketbufs::config::{TIME_UNITS, parse_time};

/// An argument that is a time; a number alone counts seconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    parse_time(text, Duration::from_secs(1))
        .ok_or_else(|| format!("'{text}' is not a time: write seconds alone, or with a unit: {TIME_UNITS}"))
}

/// Parses a time after which an action is repeated.
pub(super) fn parse_interval(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        time if (Duration::from_millis(100)..=Duration::from_secs(86_400)).contains(&time) => Ok(time),
        _ => Err("an interval is 100ms to 1d".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_unit_is_answered_with_the_right_ones() {
        assert_eq!(parse("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("0.25"), Ok(Duration::from_millis(250)));
        for text in ["ten", "1x", "", "-1", "1 S"] {
            assert!(parse(text).unwrap_err().contains("us, ms, s, m or min, h, d"), "{text}");
        }
        assert!(
            parse_interval("0").is_err() && parse_interval("2d").is_err() && parse_interval("2s").is_ok()
        );
    }
}
