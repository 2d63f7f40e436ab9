//! The notation of sizes in configurations, environment variables and command lines.

/// The units that follow a number of bytes: of 1024 with an `i` or without the `B`, of 1000 with the `B` alone.
const UNITS: [(&str, u64); 15] = [
    ("", 1),
    ("B", 1),
    ("k", 1 << 10),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("T", 1 << 40),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// The units, for error messages.
pub const SIZE_UNITS: &str = "KiB, MiB, GiB (of 1024) or kB, MB, GB (of 1000)";

/// A number of bytes as people write it: `4096`, `64 KiB` or `64k` (of 1024), `64 kB` (of 1000); none if it is none, or
/// more than 64 bits. Every setting and argument that is a size is read by this.
///
/// ```
/// use settings::parse_bytes;
/// assert_eq!(["64k", "64 KiB", "64 kB", "1_000", "64 kb"].map(parse_bytes), [
///     Some(65_536), Some(65_536), Some(64_000), Some(1_000), None,
/// ]);
/// ```
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = UNITS.into_iter().find(|(name, _)| *name == unit.trim_start())?;
    number.replace('_', "").parse::<u64>().ok()?.checked_mul(factor)
}
