//! Dates of the Gregorian calendar, for playlists and manifests.

use std::time::{Duration, SystemTime};

/// The time so many nanoseconds after 1970.
fn time(wall_ns: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(wall_ns)
}

/// Writes a time as `2026-11-24T17:00:00.123Z` (RFC 3339). `wall_ns`: nanoseconds since 1970.
pub(crate) fn rfc3339(wall_ns: u64) -> impl std::fmt::Display {
    humantime::format_rfc3339_millis(time(wall_ns))
}

/// Writes a time as `20261124T170000Z` (ISO 8601, basic), which sorts as times do. `wall_ns`: nanoseconds since 1970.
///
/// ```
/// assert_eq!(rblive_media::civil::stamp(951_782_400_000_000_000), "20000229T000000Z");
/// ```
pub fn stamp(wall_ns: u64) -> String {
    humantime::format_rfc3339_seconds(time(wall_ns)).to_string().replace(['-', ':'], "")
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
            assert_eq!(rfc3339(seconds * 1_000_000_000).to_string(), text);
        }
        assert_eq!(rfc3339(1_000_000_000_123_456_789).to_string(), "2001-09-09T01:46:40.123Z");
    }
}
