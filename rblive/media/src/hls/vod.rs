//! Playlists of recordings. They grow only at their end, and are valid at any time.

use std::fmt::Write;

use super::seconds;
use crate::civil::rfc3339;
use crate::rendition::Container;

/// The most segments of a playlist. Players read all of it before they begin.
pub const MAX_VOD_SEGMENTS: u64 = 100_000;

/// The longest playlist that is read.
pub const MAX_VOD_BYTES: usize = 16 << 20;

/// A segment of a [`VodPlaylist`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VodSegment {
    /// Its length, in microseconds.
    pub duration_us: u64,
    /// The wall clock time of the first sample, in nanoseconds since 1970.
    pub wall_ns: u64,
    /// The number of the initialisation segment. Unused with a transport stream.
    pub init: u32,
    /// Whether the segment was lost.
    pub gap: bool,
    /// Whether the segment does not continue the previous one.
    pub discontinuity: bool,
    /// Whether the segment begins with a frame that needs no other.
    pub independent: bool,
}

/// Why a text is no playlist that [`VodPlaylist::write`] has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the playlist was not written by a recorder")]
pub struct VodError {
    /// The line, from 1.
    pub line: usize,
}

/// The playlist of a recorded rendition. Segment 12 is at `12.m4s` or `12.ts`, its initialisation segment at `init-N.mp4`.
///
/// ```
/// use rblive_media::hls::{VodPlaylist, VodSegment};
/// use rblive_media::rendition::Container;
/// let mut playlist = VodPlaylist::new(Container::Ts);
/// playlist.push(&VodSegment { duration_us: 2_000_000, wall_ns: 0, init: 0, gap: false, discontinuity: false, independent: true });
/// let text = playlist.write();
/// assert!(text.ends_with("#EXTINF:2.000000,\n0.ts\n#EXT-X-ENDLIST\n"));
/// assert_eq!(VodPlaylist::read(&text), Ok(playlist));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VodPlaylist {
    container: Container,
    /// The lines of all segments.
    lines: String,
    segments: u64,
    gaps: u64,
    longest_us: u64,
    duration_us: u64,
    /// The initialisation segment in force.
    init: Option<u32>,
    /// Whether a segment needs frames of the one before.
    dependent: bool,
    /// Whether the next segment has its date: the first one, and one after a hole.
    dated: bool,
    note: Option<String>,
}

impl VodPlaylist {
    /// An empty playlist.
    pub fn new(container: Container) -> Self {
        Self {
            container,
            lines: String::new(),
            segments: 0,
            gaps: 0,
            longest_us: 0,
            duration_us: 0,
            init: None,
            dependent: false,
            dated: true,
            note: None,
        }
    }

    /// The format of the segments.
    pub fn container(&self) -> Container {
        self.container
    }

    /// The number of the next segment.
    pub fn next_number(&self) -> u64 {
        self.segments
    }

    /// How many segments were lost.
    pub fn gaps(&self) -> u64 {
        self.gaps
    }

    /// The length of all segments, gaps included, in microseconds.
    pub fn duration_us(&self) -> u64 {
        self.duration_us
    }

    /// Sets a line for the recorder, which players ignore: the position from which it continues.
    pub fn set_note(&mut self, note: impl Into<String>) {
        self.note = Some(note.into()).filter(|note| !note.contains(['\r', '\n']));
    }

    /// The line for the recorder.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The file name of a segment.
    pub fn file(&self, number: u64) -> String {
        format!("{number}.{}", self.container.extension())
    }

    /// Appends a segment.
    pub fn push(&mut self, segment: &VodSegment) {
        let file = self.file(self.segments);
        let to = &mut self.lines;
        if segment.discontinuity && self.segments > 0 {
            to.push_str("#EXT-X-DISCONTINUITY\n");
        }
        if self.container == Container::Cmaf && self.init != Some(segment.init) {
            let _ = writeln!(to, "#EXT-X-MAP:URI=\"init-{}.mp4\"", segment.init);
        }
        if (self.dated || segment.discontinuity) && segment.wall_ns > 0 {
            let _ = writeln!(to, "#EXT-X-PROGRAM-DATE-TIME:{}", rfc3339(segment.wall_ns));
        }
        if segment.gap {
            to.push_str("#EXT-X-GAP\n");
        }
        let _ = writeln!(to, "#EXTINF:{},\n{file}", seconds(segment.duration_us));
        self.init = Some(segment.init).filter(|_| self.container == Container::Cmaf);
        (self.dated, self.gaps) = (segment.gap, self.gaps + u64::from(segment.gap));
        self.dependent |= !segment.independent && !segment.gap && self.container == Container::Cmaf;
        self.count(segment.duration_us);
    }

    /// Appends gaps where `other`, another rendition of the stream, has segments that this one lacks: those before segment `until`. They
    /// have the same durations, dates and discontinuities, so that segments with one number cover the same time in both.
    ///
    /// ```
    /// use rblive_media::hls::{VodPlaylist, VodSegment};
    /// use rblive_media::rendition::Container;
    /// let segment = VodSegment { duration_us: 2_000_000, wall_ns: 0, init: 7, gap: false, discontinuity: false, independent: true };
    /// let (mut first, mut second) = (VodPlaylist::new(Container::Cmaf), VodPlaylist::new(Container::Cmaf));
    /// (0..3).for_each(|_| first.push(&segment));
    /// second.fill(&first, 2);
    /// second.push(&segment);
    /// assert_eq!((second.next_number(), second.gaps()), (3, 2));
    /// assert!(second.write().ends_with(
    ///     "#EXT-X-GAP\n#EXTINF:2.000000,\n1.m4s\n#EXT-X-MAP:URI=\"init-7.mp4\"\n#EXTINF:2.000000,\n2.m4s\n#EXT-X-ENDLIST\n"
    /// ));
    /// ```
    pub fn fill(&mut self, other: &Self, until: u64) {
        let (from, until) = (self.segments, until.min(other.segments));
        let Some(missing) = until.checked_sub(from).filter(|missing| *missing > 0) else { return };
        // Mostly the newest segments are missing: the list is read from its end.
        let mut rows: Vec<Vec<&str>> = Vec::new();
        for line in other.lines.lines().rev() {
            if !line.starts_with('#') {
                rows.push(Vec::new());
            }
            if rows.len() as u64 > other.segments - from {
                rows.pop();
                break;
            }
            rows.last_mut().into_iter().for_each(|row| row.push(line));
        }
        for row in rows.into_iter().rev().take(usize::try_from(missing).unwrap_or(usize::MAX)) {
            let file = self.file(self.segments);
            for line in row.into_iter().rev().filter(|line| line.starts_with('#')) {
                if line == "#EXT-X-GAP" || line.starts_with("#EXT-X-MAP:") {
                    continue;
                }
                if let Some(duration_us) = line.strip_prefix("#EXTINF:").and_then(microseconds) {
                    self.lines.push_str("#EXT-X-GAP\n");
                    self.count(duration_us);
                }
                let _ = writeln!(self.lines, "{line}");
            }
            let _ = writeln!(self.lines, "{file}");
            (self.dated, self.gaps) = (true, self.gaps + 1);
        }
    }

    fn count(&mut self, duration_us: u64) {
        self.segments += 1;
        self.longest_us = self.longest_us.max(duration_us);
        self.duration_us = self.duration_us.saturating_add(duration_us);
    }

    /// Writes the playlist.
    pub fn write(&self) -> String {
        // EXT-X-GAP came with version 8, EXT-X-MAP for media with pictures with version 6.
        let version = match (self.gaps > 0, self.container) {
            (true, _) => 8,
            (false, Container::Cmaf) => 7,
            (false, Container::Ts) => 3,
        };
        let target = ((self.longest_us + 500_000) / 1_000_000).max(1);
        let mut to = String::with_capacity(self.lines.len() + 200);
        let _ = write!(to, "#EXTM3U\n#EXT-X-VERSION:{version}\n#EXT-X-TARGETDURATION:{target}\n");
        to.push_str("#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n");
        if self.container == Container::Cmaf && !self.dependent {
            to.push_str(INDEPENDENT);
        }
        if let Some(note) = &self.note {
            let _ = writeln!(to, "# {note}");
        }
        to.push_str(&self.lines);
        to.push_str("#EXT-X-ENDLIST\n");
        to
    }

    /// Reads a playlist that [`write`](Self::write) has written, to continue it.
    ///
    /// # Errors
    /// The text has other lines.
    pub fn read(text: &str) -> Result<Self, VodError> {
        let independent = text.contains(INDEPENDENT);
        // Segments of MPEG-TS have no map.
        let cmaf = independent || text.contains("\n#EXT-X-MAP:");
        let mut playlist = Self::new(if cmaf { Container::Cmaf } else { Container::Ts });
        playlist.dependent = cmaf && !independent;
        let mut lines = text.lines().enumerate().skip(if independent { 6 } else { 5 });
        let (mut gap, mut duration_us) = (false, None);
        for (index, line) in &mut lines {
            let wrong = VodError { line: index + 1 };
            if let Some(note) = line.strip_prefix("# ") {
                playlist.set_note(note);
                continue;
            }
            if line == "#EXT-X-ENDLIST" {
                break;
            } else if let Some(uri) = line.strip_prefix("#EXT-X-MAP:URI=\"init-") {
                let number = uri.strip_suffix(".mp4\"").and_then(|number| number.parse().ok());
                playlist.init = Some(number.ok_or(wrong)?);
            } else if let Some(text) = line.strip_prefix("#EXTINF:") {
                duration_us = Some(microseconds(text).ok_or(wrong)?);
            } else if line == "#EXT-X-GAP" {
                gap = true;
            } else if !line.starts_with('#') {
                let duration_us = duration_us.take().filter(|_| line == playlist.file(playlist.segments));
                playlist.count(duration_us.ok_or(wrong)?);
                (playlist.dated, playlist.gaps) = (gap, playlist.gaps + u64::from(gap));
                gap = false;
            } else if line != "#EXT-X-DISCONTINUITY" && !line.starts_with("#EXT-X-PROGRAM-DATE-TIME:") {
                return Err(wrong);
            }
            playlist.lines.push_str(line);
            playlist.lines.push('\n');
        }
        match lines.next() {
            None if playlist.write() == text => Ok(playlist),
            _ => Err(VodError { line: text.lines().count() }),
        }
    }
}

const INDEPENDENT: &str = "#EXT-X-INDEPENDENT-SEGMENTS\n";

/// Reads `2.000000,`.
fn microseconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.strip_suffix(',')?.split_once('.')?;
    let fraction = Some(fraction).filter(|digits| digits.len() == 6)?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction.parse().ok()?)
}

/// Appends `query` (with its `?`: a viewer's token) to each address of a playlist.
///
/// ```
/// use rblive_media::hls::with_query;
/// assert_eq!(with_query("#EXT-X-MAP:URI=\"init-1.mp4\"\n0.m4s\n", "?token=1"),
///     "#EXT-X-MAP:URI=\"init-1.mp4?token=1\"\n0.m4s?token=1\n");
/// ```
pub fn with_query(playlist: &str, query: &str) -> String {
    let mut to = String::with_capacity(playlist.len() + playlist.lines().count() / 2 * query.len());
    for line in playlist.lines() {
        match line.split_once("URI=\"").and_then(|(before, rest)| Some((before, rest.split_once('"')?))) {
            Some((before, (uri, after))) if line.starts_with('#') => {
                let _ = write!(to, "{before}URI=\"{uri}{query}\"{after}");
            }
            _ if line.starts_with('#') => to.push_str(line),
            _ => {
                let _ = write!(to, "{line}{query}");
            }
        }
        to.push('\n');
    }
    to
}
