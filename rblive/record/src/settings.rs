//! Settings of a recorder.

use std::path::PathBuf;

use ::settings::{out_of_range, section};
use rblive::config::matches;

section! {
    /// Which streams are kept, where, and for how long: an element of `[[record]]`.
    "record" RecordRule {
        /// The names of streams, where `*` stands for any characters. A stream is kept by the first rule that has its name.
        streams: String = "*".to_owned();
        /// The folder, which belongs to this rule of this process alone. The recorder makes the folder if it does not exist.
        folder: PathBuf = PathBuf::new();
        /// How long a recording is kept after its end, in milliseconds. Default: 30 days; 0: for ever.
        max_age_ms: u64 = 30 * 86_400_000, "ms", range [0 or at least 1000];
        /// The most bytes of the recordings of a stream. Default: 100 GiB; at least 1 MiB. The oldest ones make room.
        max_stream_bytes: u64 = 100 << 30, "bytes", range [at least 1_048_576];
        /// The most bytes of all recordings of the rule. Default: 100 GiB; at least 1 MiB. The oldest ones make room; where only recordings
        /// remain that still grow, their segments become gaps.
        max_bytes: u64 = 100 << 30, "bytes", range [at least 1_048_576];
        /// The longest recording in milliseconds; after it another one begins. Default: 4 hours; 10 s to 24 h. A recording is removed
        /// as a whole, so it never takes more than an eighth of an age or a size from above. Long: large playlists, which are written
        /// anew for each segment.
        longest_ms: u64 = 4 * 3_600_000, "ms", range [1000 to 86_400_000];
        /// How long a recording waits for the return of its stream, or of the recorder, in milliseconds. Default: 60 s. The return is a
        /// discontinuity; a later one begins another recording.
        rejoin_ms: u64 = 60_000, "ms", range [0 to 86_400_000];
        /// Whether each segment is on the disk before a playlist names it. Default: false, a loss of power loses the newest half minute.
        sync: bool = false, range [true or false];
    }
}

/// A fault of the rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A rule has no folder.
    #[error("record: the rule for '{0}' has no folder; say where the streams are kept")]
    Folder(String),
    /// Two rules have one folder.
    #[error("record: two rules have the folder {}; each needs its own", .0.display())]
    Twice(PathBuf),
    /// A number is out of its range.
    #[error("{0}")]
    Range(String),
}

/// The part of a limit that one recording may take.
const SHARE: u64 = 8;

impl RecordRule {
    /// Checks rules.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(rules: &[Self]) -> Result<(), SettingsError> {
        for (index, rule) in rules.iter().enumerate() {
            if rule.folder.as_os_str().is_empty() {
                return Err(SettingsError::Folder(rule.streams.clone()));
            }
            if rules[..index].iter().any(|other| other.folder == rule.folder) {
                return Err(SettingsError::Twice(rule.folder.clone()));
            }
            if let Some(fault) = out_of_range(rule) {
                return Err(SettingsError::Range(fault.to_string()));
            }
        }
        Ok(())
    }

    /// Whether the rule has streams of this name.
    pub(crate) fn keeps(&self, stream: &str) -> bool {
        matches(&self.streams, stream)
    }

    /// The longest recording, in microseconds.
    pub(crate) fn longest_us(&self) -> u64 {
        let by_age = if self.max_age_ms == 0 { u64::MAX } else { self.max_age_ms / SHARE };
        self.longest_ms.min(by_age).max(1000).saturating_mul(1000)
    }

    /// The most bytes of a recording. The segment that exceeds them is its last one.
    pub(crate) fn largest_bytes(&self) -> u64 {
        self.max_stream_bytes.min(self.max_bytes) / SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<RecordRule, String> {
        let rule: RecordRule = toml::from_str(text).map_err(|error| error.to_string())?;
        RecordRule::check(std::slice::from_ref(&rule)).map_err(|error| error.to_string())?;
        Ok(rule)
    }

    #[test]
    fn a_rule_is_read_and_checked() {
        let read = rule("streams = 'live/*'\nfolder = '/a'\nmax_age_ms = '7d'\nmax_bytes = '8 MiB'").unwrap();
        assert!(read.keeps("live/a") && !read.keeps("vod/a"));
        assert_eq!((read.largest_bytes(), read.longest_us()), (1 << 20, 14_400_000_000));
        assert!(rule("folder = '/a'\nmax_age_ms = 0").is_ok());
        for (text, why) in [
            ("streams = 'a'", "no folder"),
            ("folder = '/a'\nlongest_ms = '2d'", "longest_ms"),
            ("folder = '/a'\nmax_bytes = 1", "max_bytes"),
            ("folder = '/a'\nmax_age_ms = 5", "max_age_ms"),
            ("folder = '/a'\nmaxx = 1", "there is no setting 'record.maxx'"),
        ] {
            let error = rule(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let twice = [read.clone(), read];
        assert!(RecordRule::check(&twice).unwrap_err().to_string().contains("two rules"));
    }
}
