//! Numbers of bytes, as people write and read them.

/// Reads `4096`, `64k`, `64KiB`, `10M`, `1G`, `10MB` (powers of 1000 with `B` alone, of 1024 otherwise).
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| format!("'{text}' is no number of bytes"))?;
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        other => return Err(format!("'{other}' is no unit; write k, M, G (1024) or kB, MB, GB (1000)")),
    };
    number.checked_mul(factor).ok_or_else(|| format!("'{text}' is more than this program can count"))
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
    fn reads_units() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("64k"), Ok(65536));
        assert_eq!(parse("64 KiB"), Ok(65536));
        assert_eq!(parse("10MB"), Ok(10_000_000));
        assert!(parse("ten").is_err());
        assert!(parse("1x").is_err());
        assert!(parse("99999999999G").is_err());
    }

    #[test]
    fn shows_three_digits() {
        assert_eq!(show(0.0), "0 B");
        assert_eq!(show(999.0), "999 B");
        assert_eq!(show(1500.0), "1.50 kB");
        assert_eq!(show(12_340_000.0), "12.3 MB");
    }
}
