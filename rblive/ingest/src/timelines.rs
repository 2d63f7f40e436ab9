//! The numbers of streams' first segments and timelines: above those that the node has given before, also in an earlier run.
//!
//! ```text
//!   the clock: minutes since November 2026 (timelines),
//!              segments since 1970 (segments) ────────────┐
//!   the file of the run before, + 1 ──────────────────────┼─ the largest ─▶ first number ── + 1, + 1 … ─▶
//!   the newest number of a stream that has ended, + 1 ────┘                     │
//!                                       numbers that the clock has not reached ─┴─ + RESERVED ─▶ the file
//! ```
//!
//! The address of a segment has its number, and caches keep what they got there. So a number never stands for two segments, and all
//! delivery servers list a segment under its source's number, also those that have seen only one of two runs. The clock alone gives no
//! such numbers: an encoder that starts over often, or sends faster than time passes, makes numbers that the clock has not reached when
//! its node restarts. Coarse minutes are not enough for a node that restarts at once either, and seconds are too large for timelines:
//! hls.js 1.7 looks at all smaller numbers for each playlist. So a node that has a folder for its state (`STATE_DIRECTORY`, as systemd
//! sets it) keeps there what it gives beyond the clock.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use locks::Mutex;
use private_files::GivenFile;
use tracing::warn;

/// The count of numbers that a file allows for: it is written once for so many.
const RESERVED_TIMELINES: u64 = 4;
const RESERVED_SEGMENTS: u64 = 16;
/// A number that is further above the clock is none that a node wrote.
const FURTHEST_TIMELINE: u64 = 1 << 20;
const FURTHEST_SEGMENT: u64 = 1 << 40;
/// The largest file in bytes.
const MAX_FILE_BYTES: u64 = 64;

static TIMELINES: LazyLock<Mutex<Numbers>> = LazyLock::new(|| {
    Mutex::new(Numbers::open(file("first-timeline"), minutes(), RESERVED_TIMELINES, FURTHEST_TIMELINE))
});

static SEGMENTS: LazyLock<Mutex<Numbers>> = LazyLock::new(|| {
    Mutex::new(Numbers::open(file("first-segment"), segments(1), RESERVED_SEGMENTS, FURTHEST_SEGMENT))
});

fn file(name: &str) -> Option<PathBuf> {
    // systemd separates several folders by colons.
    let folder = std::env::var_os("STATE_DIRECTORY").and_then(|all| std::env::split_paths(&all).next());
    folder.map(|folder| folder.join(name))
}

/// The number of a stream's first timeline.
pub(crate) fn first_timeline() -> u64 {
    TIMELINES.lock().first(minutes())
}

/// The number of a stream's first segment: the time since 1970 in units of the segment duration, or in seconds if segments are longer. Units of half
/// a second would be above 2^31 - 1, the largest `startNumber` that FFmpeg takes in a DASH manifest.
pub(crate) fn first_sequence(segment_ms: u32) -> u64 {
    SEGMENTS.lock().first(segments(segment_ms))
}

/// Notes a segment and its timeline before a stream gives it these numbers.
pub(crate) fn give(sequence: u64, timeline: u64, segment_ms: u32) {
    SEGMENTS.lock().give(sequence, segments(segment_ms));
    TIMELINES.lock().give(timeline, minutes());
}

/// Notes the newest segment and the newest timeline of a stream that ends: another one, perhaps of the same name, begins above them.
pub(crate) fn end(sequence: u64, timeline: u64, segment_ms: u32) {
    SEGMENTS.lock().end(sequence, segments(segment_ms));
    TIMELINES.lock().end(timeline, minutes());
}

/// The clock of segment numbers, which is finest for segments of a millisecond.
fn segments(segment_ms: u32) -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64 / u64::from(segment_ms.clamp(1, 1000))
}

fn minutes() -> u64 {
    const NOVEMBER_2026: u64 = 1_793_491_200;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    (since.saturating_sub(NOVEMBER_2026) / 60).max(1)
}

/// The numbers of one run, of segments or of timelines. The clock of each call is that of the numbers.
struct Numbers {
    file: Option<PathBuf>,
    /// The count of numbers that the file allows for.
    allowed: u64,
    /// The smallest number with which a stream may begin.
    least: u64,
    /// The number in the file: the next run begins above it.
    reserved: u64,
    /// The file could not be written, which the log says once.
    has_failed: bool,
}

impl Numbers {
    /// Continues after the run that wrote the file, if there is one.
    fn open(file: Option<PathBuf>, clock: u64, allowed: u64, furthest: u64) -> Self {
        let written = file.as_ref().and_then(|file| GivenFile::open(file).ok()?.text(MAX_FILE_BYTES).ok());
        let before = written.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let before = if before > clock.saturating_add(furthest) { 0 } else { before };
        Self { file, allowed, least: before + 1, reserved: before, has_failed: false }
    }

    /// The first number of a stream.
    fn first(&mut self, clock: u64) -> u64 {
        let first = clock.max(self.least);
        self.give(first, clock);
        first
    }

    /// Notes a number before it is given. The next run begins where its clock is, which is above all that this clock has passed.
    fn give(&mut self, number: u64, clock: u64) {
        if number >= clock && number > self.reserved {
            let to = number.saturating_add(self.allowed);
            // A disk that was full for a moment is asked again with the next number.
            self.reserved = if self.write(to) { to } else { number };
        }
    }

    /// Notes the newest number of a stream that ends.
    fn end(&mut self, number: u64, clock: u64) {
        if number >= clock {
            self.least = self.least.max(number.saturating_add(1));
        }
    }

    /// Writes the file. Without it, a restart may repeat numbers that the clock has not reached, and only servers that restart too would show them.
    /// False: the file does not have the number.
    fn write(&mut self, to: u64) -> bool {
        let Some(file) = &self.file else { return true };
        let new = file.with_extension("new");
        let written = fs::write(&new, format!("{to}\n")).and_then(|()| fs::rename(&new, file));
        if let Err(error) = &written
            && !self.has_failed
        {
            warn!(
                "cannot keep the numbers of segments and timelines in {}, and tries again: {error}",
                file.display()
            );
        }
        self.has_failed = written.is_err();
        written.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(folder: &tempfile::TempDir, clock: u64) -> Numbers {
        Numbers::open(Some(folder.path().join("n")), clock, 4, 1000)
    }

    #[test]
    fn a_run_numbers_above_the_run_before() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = run(&folder, 100);
        assert_eq!((first.first(100), first.first(100)), (100, 100), "streams count by themselves");
        let mut second = run(&folder, 100);
        assert_eq!(second.first(100), 105, "at the same time, above four that the first run may have given");
        assert_eq!(second.first(200), 200);
        assert_eq!(run(&folder, 300).first(300), 300, "the clock leads");
    }

    /// Encoders that start over often make more segments, and more timelines, than time passes.
    #[test]
    fn a_run_numbers_above_all_that_a_stream_has_given_beyond_the_clock() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = run(&folder, 100);
        let begun = first.first(100);
        (begun..begun + 50).for_each(|number| first.give(number, 101));
        assert!(run(&folder, 102).first(102) > 149);
        let mut slow = run(&folder, 1000);
        let begun = slow.first(1000);
        (begun..begun + 50).for_each(|number| slow.give(number, 1001 + 2 * (number - begun)));
        assert_eq!(run(&folder, 1100).first(1100), 1100, "what the clock has passed needs no file");
    }

    /// A disk that was full for a moment, or a folder that was away.
    #[test]
    fn a_file_that_could_not_be_written_is_written_with_the_next_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("later/n");
        let mut first = Numbers::open(Some(path.clone()), 100, 4, 1000);
        let begun = first.first(100);
        fs::create_dir(folder.path().join("later")).unwrap();
        first.give(begun + 1, 100);
        assert!(Numbers::open(Some(path), 100, 4, 1000).first(100) > begun + 1);
    }

    #[test]
    fn players_with_numbers_of_31_bits_can_count_the_segments() {
        assert!(segments(1000) < 1 << 31 && segments(6000) < 1 << 31);
    }

    #[test]
    fn a_stream_numbers_above_the_one_that_has_ended() {
        let mut numbers = Numbers::open(None, 7, 4, 1000);
        assert_eq!(numbers.first(7), 7);
        numbers.end(20, 8);
        assert_eq!(numbers.first(9), 21);
        numbers.end(21, 30);
        assert_eq!(numbers.first(30), 30);
    }

    #[test]
    fn a_file_of_nobody_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["", "x", "-1", "99999999999999999999", "18446744073709551615"] {
            fs::write(folder.path().join("n"), text).unwrap();
            assert_eq!(run(&folder, 7).first(7), 7, "{text}");
        }
        assert_eq!(Numbers::open(None, 7, 4, 1000).first(7), 7);
        let nowhere = Some(folder.path().join("none/n"));
        assert_eq!(Numbers::open(nowhere, 7, 4, 1000).first(7), 7, "no such folder");
    }
}
