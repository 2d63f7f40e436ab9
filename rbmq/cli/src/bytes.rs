//! Numbers of bytes, as people write and read them.

use rocketbufs::config::parse_bytes;

/// An argument that is a size.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| {
        format!("'{text}' is not a number of bytes: write one alone, or with k, M, G (of 1024) or kB, MB, GB (of 1000)")
    })
}

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
    fn a_wrong_unit_is_answered_with_the_right_ones() {
        assert_eq!(parse(" 64 KiB"), Ok(65536));
        for text in ["ten", "1x", "99999999999G", "", "k", "-1", "64 mb"] {
            assert!(parse(text).unwrap_err().contains("kB, MB, GB (of 1000)"), "{text}");
        }
    }

    #[test]
    fn shows_three_digits() {
        assert_eq!(show(0.0), "0 B");
        assert_eq!(show(999.0), "999 B");
        assert_eq!(show(1500.0), "1.50 kB");
        assert_eq!(show(12_340_000.0), "12.3 MB");
    }
}
