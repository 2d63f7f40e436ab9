//! Times as arguments.

use std::time::Duration;

pub(super) use settings::time_argument as parse;

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
    fn intervals_have_a_range() {
        assert!(
            parse_interval("0").is_err() && parse_interval("2d").is_err() && parse_interval("2s").is_ok()
        );
    }
}
