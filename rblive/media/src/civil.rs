//! Dates of the Gregorian calendar, for playlists and manifests.

/// Writes a time as `2026-11-24T17:00:00.123Z` (RFC 3339). `wall_ns`: nanoseconds since 1970.
pub(crate) fn rfc3339(wall_ns: u64) -> String {
    let ([year, month, day], [hour, minute, second]) = fields(wall_ns);
    let ms = wall_ns / 1_000_000 % 1000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Writes a time as `20261124T170000Z` (ISO 8601, basic), which sorts as times do. `wall_ns`: nanoseconds since 1970.
///
/// ```
/// assert_eq!(rblive_media::civil::stamp(951_782_400_000_000_000), "20000229T000000Z");
/// ```
pub fn stamp(wall_ns: u64) -> String {
    let ([year, month, day], [hour, minute, second]) = fields(wall_ns);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Year, month and day; hour, minute and second.
fn fields(wall_ns: u64) -> ([u64; 3], [u64; 3]) {
    let seconds = wall_ns / 1_000_000_000;
    let (days, in_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    ([year, month, day], [in_day / 3600, in_day / 60 % 60, in_day % 60])
}

/// Returns year, month and day of a day since 1970. Years begin in March, so that the leap day is the last one of a year, and 400
/// years are a cycle of 146,097 days.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since the 1st of March of the year 0
    let (cycle, in_cycle) = (days / 146_097, days % 146_097);
    let year = (in_cycle - in_cycle / 1460 + in_cycle / 36_524 - in_cycle / 146_096) / 365;
    let in_year = in_cycle - (365 * year + year / 4 - year / 100);
    let from_march = (5 * in_year + 2) / 153;
    let day = in_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (cycle * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1_000_000_000), text);
        }
        assert_eq!(rfc3339(1_000_000_000_123_456_789), "2001-09-09T01:46:40.123Z");
    }
}
