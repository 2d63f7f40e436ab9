//! The numbers of streams' first segments and timelines: above those that an earlier run of the node gave.
//!
//! ```text
//!   minutes since November 2026 ─────┐
//!                                    ├─ the larger one ─▶ first timeline ── + 1 for each discontinuity ─▶
//!   the file of the run before, + 1 ─┘                          │
//!                                                               └─ + RESERVED ─▶ the file
//! ```
//!
//! A delivery server that starts later lists a segment under its source's number. If that number were one that the previous run had
//! given already, the servers that saw both runs would list the same segment one higher. Minutes alone are not enough for a node that
//! restarts at once, and seconds are too large: hls.js 1.7 looks at all smaller numbers for each playlist. So a node that has a folder for its
//! state (`STATE_DIRECTORY`, as systemd sets it) keeps the number there.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use locks::Mutex;
use private_files::GivenFile;
use tracing::warn;

/// The discontinuities of a stream that the file allows for: it is written when a stream begins, and not with each discontinuity.
const RESERVED: u64 = 4;
/// A number that is further above the minutes is none that a node wrote.
const FURTHEST: u64 = 1 << 20;
/// The largest file in bytes.
const MAX_FILE_BYTES: u64 = 64;

static NUMBERS: LazyLock<Mutex<Numbers>> = LazyLock::new(|| {
    // systemd separates several folders by colons.
    let folder = std::env::var_os("STATE_DIRECTORY").and_then(|all| std::env::split_paths(&all).next());
    Mutex::new(Numbers::open(folder.map(|folder| folder.join("first-timeline")), minutes()))
});

/// The number of a stream's first timeline.
pub(crate) fn first_timeline() -> u64 {
    NUMBERS.lock().next(minutes())
}

/// The number of a stream's first segment: the time since 1970 in units of the segment duration, or of a second if segments are longer.
/// The numbers that a restarted node gives are above those that it gave before, so a delivery node that starts later never lists a
/// lower number than viewers have seen. Encoders that upload shorter segments than configured are an exception.
pub(crate) fn first_sequence(segment_ms: u32) -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64 / u64::from(segment_ms.clamp(1, 1000))
}

fn minutes() -> u64 {
    const NOVEMBER_2026: u64 = 1_793_491_200;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    (since.saturating_sub(NOVEMBER_2026) / 60).max(1)
}

/// The numbers of one run.
struct Numbers {
    file: Option<PathBuf>,
    /// The smallest number of this run.
    floor: u64,
    /// What the file has.
    reserved: u64,
}

impl Numbers {
    /// Continues after the run that wrote the file, if there is one.
    fn open(file: Option<PathBuf>, minutes: u64) -> Self {
        let written = file.as_ref().and_then(|file| GivenFile::open(file).ok()?.text(MAX_FILE_BYTES).ok());
        let before = written.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let before = if before > minutes + FURTHEST { 0 } else { before };
        Self { file, floor: before + 1, reserved: before }
    }

    fn next(&mut self, minutes: u64) -> u64 {
        let first = minutes.max(self.floor);
        if first + RESERVED > self.reserved {
            self.reserved = first + RESERVED;
            self.write();
        }
        first
    }

    /// Without the file, a restart within the minute may repeat numbers, which only servers that restart too would show.
    fn write(&mut self) {
        let Some(file) = &self.file else { return };
        let new = file.with_extension("new");
        if let Err(error) =
            fs::write(&new, format!("{}\n", self.reserved)).and_then(|()| fs::rename(&new, file))
        {
            warn!("cannot keep the number of timelines in {}: {error}", file.display());
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_numbers_above_the_run_before() {
        let folder = tempfile::tempdir().unwrap();
        let run = |minutes| Numbers::open(Some(folder.path().join("n")), minutes);
        let mut first = run(100);
        assert_eq!((first.next(100), first.next(100)), (100, 100), "streams count by themselves");
        let mut second = run(100);
        assert_eq!(second.next(100), 105, "in the same minute, above four discontinuities of the first run");
        assert_eq!(second.next(200), 200);
        assert_eq!(run(300).next(300), 300, "minutes lead");
    }

    #[test]
    fn a_file_of_nobody_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["", "x", "-1", "99999999999999999999", "18446744073709551615"] {
            fs::write(folder.path().join("n"), text).unwrap();
            assert_eq!(Numbers::open(Some(folder.path().join("n")), 7).next(7), 7, "{text}");
        }
        assert_eq!(Numbers::open(None, 7).next(7), 7);
        assert_eq!(Numbers::open(Some(folder.path().join("none/n")), 7).next(7), 7, "no such folder");
    }
}
