//! Times and sizes as arguments, with the units that they have everywhere.

pub use settings::size_argument as bytes;

/// A time, in seconds; a number alone counts seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    settings::time_argument(text).map(|time| time.as_secs_f64())
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
