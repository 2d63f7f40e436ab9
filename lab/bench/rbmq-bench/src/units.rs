//! Times and sizes as arguments, with the units that they have everywhere.

use std::time::Duration;

use rocketbufs::config::{TIME_UNITS, parse_bytes, parse_time};

/// A time, in seconds; a number alone counts seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    let time = parse_time(text, Duration::from_secs(1));
    time.map(|time| time.as_secs_f64())
        .ok_or_else(|| format!("'{text}' is no time: write seconds alone, or with a unit: {TIME_UNITS}"))
}

/// A number of bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| {
        format!("'{text}' is no number of bytes: write one alone, or with k, M, G (of 1024) or kB, MB, GB (of 1000)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_the_other_commands() {
        assert_eq!((seconds("2"), seconds("500ms"), seconds("1m")), (Ok(2.0), Ok(0.5), Ok(60.0)));
        assert_eq!(bytes("64k"), Ok(65_536));
        assert!(seconds("2 sec").is_err() && bytes("64 kb").is_err());
    }
}
