//! Numbers of bytes, as people write and read them.

pub(super) use settings::size_argument as parse;

/// `1.5 MB`, with three significant digits.
pub(super) fn show(bytes: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_three_digits() {
        assert_eq!(show(0.0), "0 B");
        assert_eq!(show(999.0), "999 B");
        assert_eq!(show(1500.0), "1.50 kB");
        assert_eq!(show(12_340_000.0), "12.3 MB");
    }
}
