//! The notation of times in configurations, environment variables and command lines.

use std::time::Duration;

/// The units, in nanoseconds.
const UNITS: [(&str, u64); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// The units, for error messages.
pub const TIME_UNITS: &str = "us, ms, s, m or min, h, d";

/// Parses a time: `250ms`, `1.5 s`, `1h30m`. A number without a unit is a multiple of `alone`. Returns none if the text is no time, or
/// more than 64 bits of nanoseconds (584 years). All settings and arguments that are times use this notation.
///
/// ```
/// use std::time::Duration;
/// use settings::parse_time;
/// let second = Duration::from_secs(1);
/// assert_eq!(["2", "0.5", "250 ms", "1h30m", "3 weeks"].map(|text| parse_time(text, second)), [
///     Some(2 * second), Some(second / 2), Some(second / 4), Some(5400 * second), None,
/// ]);
/// ```
pub fn parse_time(text: &str, alone: Duration) -> Option<Duration> {
    let mut left = text.trim();
    if !left.contains(|c: char| c.is_alphabetic()) {
        return part(left, u64::try_from(alone.as_nanos()).ok()?).map(Duration::from_nanos);
    }
    let mut total = 0_u64;
    while !left.is_empty() {
        let number = left.find(|c: char| !is_number(c))?;
        let (digits, rest) = left.split_at(number);
        let rest = rest.trim_start();
        let unit = rest.find(|c: char| is_number(c) || c.is_whitespace()).unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(unit);
        let (_, nanos) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(part(digits, nanos)?)?;
        left = rest.trim_start();
    }
    Some(Duration::from_nanos(total))
}

fn is_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.' || c == '_'
}

/// Returns a number, with or without a fraction, times `nanos`, rounded down.
fn part(number: &str, nanos: u64) -> Option<u64> {
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, "0"));
    let whole = if number.starts_with('.') { "0" } else { whole };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    // Digits after the eighteenth are less than a nanosecond of the longest unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10_u128.pow(fraction.len() as u32);
    let fraction = fraction.parse::<u128>().ok()? * u128::from(nanos) / scale;
    whole.parse::<u64>().ok()?.checked_mul(nanos)?.checked_add(u64::try_from(fraction).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_units_are_parsed_and_nothing_else() {
        let nanos = |text: &str| parse_time(text, Duration::from_millis(1)).map(|time| time.as_nanos());
        for (unit, of) in UNITS {
            assert_eq!(nanos(&format!("3{unit}")), Some(3 * u128::from(of)));
            assert_eq!(nanos(&format!(" 1.5 {unit} ")), Some(u128::from(of) * 3 / 2));
        }
        assert_eq!(nanos("7"), Some(7_000_000));
        assert_eq!([nanos(".5"), nanos(".25s")], [Some(500_000), Some(250_000_000)]);
        assert_eq!(nanos("1_000"), Some(1_000_000_000));
        assert_eq!(nanos("1h 2m 3s"), Some(3_723_000_000_000));
        assert_eq!(nanos("0.000000000000000000000000000001d"), Some(0));
        let long = "9".repeat(60);
        for wrong in [
            "",
            "-1",
            "-1s",
            "s",
            "1 x",
            "1S",
            "1M",
            ".",
            ".s",
            "1.",
            "1..2",
            "1s2",
            "1 2",
            "1e3",
            "inf",
            "1.s",
            "300000d",
            "18446744073709551615s",
            &long,
        ] {
            assert_eq!(nanos(wrong), None, "{wrong}");
        }
    }
}
