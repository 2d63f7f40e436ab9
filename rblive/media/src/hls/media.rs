//! Media playlists.

use std::fmt::Write;

use crate::civil::rfc3339;
use crate::rendition::Container;
use crate::window::{LiveWindow, Part, Segment, SegmentState};

/// The live edge of another rendition of the stream, for a player that changes to it (`EXT-X-RENDITION-REPORT`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The address of its playlist, relative to this one.
    pub uri: String,
    /// Its newest segment.
    pub number: u64,
    /// The newest part of that segment.
    pub part: u32,
}

/// How the media playlist of a window is written. [`MediaPlaylist::write`] writes it.
#[derive(Debug, Clone, Copy)]
pub struct MediaPlaylist<'a> {
    /// The format of the segments.
    pub container: Container,
    /// Whether parts, hints and the attributes of low latency are written. Sources with one part for each segment need none.
    pub low_latency: bool,
    /// Whether the player has an older playlist and wants the difference.
    pub skip: bool,
    /// Appended to each address, with its `?`: a viewer's token.
    pub query: &'a str,
    /// The other renditions of the stream.
    pub reports: &'a [Report],
}

/// Playlists keep addresses of parts for this many target durations from the live edge (RFC 8216bis, 4.4.4.9).
const PARTS_FOR: u64 = 3;

/// Segments older than this many target durations may be skipped (RFC 8216bis, 4.4.3.8).
const SKIP_AFTER: u64 = 6;

impl MediaPlaylist<'_> {
    /// Writes the playlist of `window`. The addresses are relative: `init-1.mp4`, `12.m4s` (a segment), `12.3.m4s` (a part).
    ///
    /// The playlist has complete segments and gaps; with low latency, also the parts of the last ones.
    pub fn write<T>(&self, window: &LiveWindow<T>) -> String {
        let listed = listed(window);
        let target_s = target_seconds(window);
        let until_end = durations_to_end(&listed);
        let skipped = if self.skip && self.low_latency { skipped(&until_end, target_s) } else { 0 };
        let mut to = String::with_capacity(512 + listed.len() * 160);
        self.head(&mut to, window, target_s, skipped);
        let mut init = None;
        for (segment, after_us) in listed.iter().zip(&until_end).skip(skipped) {
            let is_new = after_us / 1_000_000 < PARTS_FOR * target_s;
            let with_parts = self.low_latency && is_new && !segment.is_uneven();
            // After skipped segments, the map of the last skipped one is in force.
            let before = if init.is_none() && skipped > 0 { Some(listed[skipped - 1].init) } else { init };
            self.segment(&mut to, segment, with_parts, before);
            init = Some(segment.init);
        }
        if self.low_latency && !window.is_ended() {
            self.edge(&mut to, window, init);
        }
        if window.is_ended() {
            to.push_str("#EXT-X-ENDLIST\n");
        }
        to
    }

    fn head<T>(&self, to: &mut String, window: &LiveWindow<T>, target_s: u64, skipped: usize) {
        let version = match (self.low_latency, self.container) {
            (true, _) => 9,
            (false, Container::Cmaf) => 7,
            (false, Container::Ts) => 3,
        };
        let _ = write!(to, "#EXTM3U\n#EXT-X-VERSION:{version}\n#EXT-X-TARGETDURATION:{target_s}\n");
        if self.low_latency {
            let part_target = window.part_target_us();
            let _ = writeln!(
                to,
                "#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK={},HOLD-BACK={},CAN-SKIP-UNTIL={}",
                seconds(part_target * 3),
                seconds(target_s * 3_000_000),
                seconds(target_s * SKIP_AFTER * 1_000_000),
            );
            let _ = writeln!(to, "#EXT-X-PART-INF:PART-TARGET={}", seconds(part_target));
        }
        let _ = writeln!(to, "#EXT-X-MEDIA-SEQUENCE:{}", window.first_number());
        if window.discontinuity_sequence() > 0 {
            let _ = writeln!(to, "#EXT-X-DISCONTINUITY-SEQUENCE:{}", window.discontinuity_sequence());
        }
        if self.container == Container::Cmaf {
            self.start(to, window, target_s);
        }
        if skipped > 0 {
            let _ = writeln!(to, "#EXT-X-SKIP:SKIPPED-SEGMENTS={skipped}");
        }
    }

    /// Tells players with which segments they may begin: with any, or with the newest one that begins with a key frame and is as far from
    /// the end as they hold back.
    fn start<T>(&self, to: &mut String, window: &LiveWindow<T>, target_s: u64) {
        if window.segments().all(Segment::is_independent) {
            to.push_str("#EXT-X-INDEPENDENT-SEGMENTS\n");
            return;
        }
        let least_us = 3 * if self.low_latency { window.part_target_us() } else { target_s * 1_000_000 };
        let (mut after_us, mut start) = (0, None);
        for own in window.segments().rev().filter(|own| self.low_latency || own.state != SegmentState::Open) {
            after_us += own.duration_us;
            if own.state == SegmentState::Complete && own.is_independent() {
                start = Some(after_us);
                if after_us >= least_us {
                    break;
                }
            }
        }
        if let Some(after_us) = start {
            let _ = writeln!(to, "#EXT-X-START:TIME-OFFSET=-{}", seconds(after_us));
        }
    }

    fn segment<T>(&self, to: &mut String, segment: &Segment<T>, with_parts: bool, before: Option<u32>) {
        self.begin(to, segment, before);
        if with_parts {
            self.parts(to, segment);
        }
        if segment.state == SegmentState::Gap {
            to.push_str("#EXT-X-GAP\n");
        }
        let (number, extension) = (segment.number, self.container.extension());
        let duration = seconds(segment.duration_us);
        let _ = writeln!(to, "#EXTINF:{duration},\n{number}.{extension}{}", self.query);
    }

    fn begin<T>(&self, to: &mut String, segment: &Segment<T>, before: Option<u32>) {
        if segment.discontinuity {
            to.push_str("#EXT-X-DISCONTINUITY\n");
        }
        if self.container == Container::Cmaf && before != Some(segment.init) {
            let _ = writeln!(to, "#EXT-X-MAP:URI=\"init-{}.mp4{}\"", segment.init, self.query);
        }
        let _ = writeln!(to, "#EXT-X-PROGRAM-DATE-TIME:{}", rfc3339(segment.wall_ns));
    }

    /// The parts of a segment, up to one that is too long.
    fn parts<T>(&self, to: &mut String, segment: &Segment<T>) {
        let even = segment.parts.iter().take(segment.even_parts);
        for (index, Part { duration_us, independent, .. }) in even.enumerate() {
            let (number, extension) = (segment.number, self.container.extension());
            let duration = seconds((*duration_us).into());
            let independent = if *independent { ",INDEPENDENT=YES" } else { "" };
            let query = self.query;
            let _ = writeln!(
                to,
                "#EXT-X-PART:DURATION={duration},URI=\"{number}.{index}.{extension}{query}\"{independent}"
            );
        }
    }

    /// The open segment, and the part that comes next.
    fn edge<T>(&self, to: &mut String, window: &LiveWindow<T>, before: Option<u32>) {
        let open = window.segments().next_back().filter(|last| last.state == SegmentState::Open);
        let is_uneven = open.is_some_and(Segment::is_uneven);
        if let Some(open) = open.filter(|open| !open.parts.is_empty()) {
            self.begin(to, open, before);
            self.parts(to, open);
        }
        let (number, part) = window.next_part();
        let extension = self.container.extension();
        if !is_uneven {
            let query = self.query;
            let _ = writeln!(to, "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{number}.{part}.{extension}{query}\"");
        }
        for Report { uri, number, part } in self.reports {
            let query = self.query;
            let _ = writeln!(
                to,
                "#EXT-X-RENDITION-REPORT:URI=\"{uri}{query}\",LAST-MSN={number},LAST-PART={part}"
            );
        }
    }
}

/// The segments with an `EXTINF`: all but an open one.
fn listed<T>(window: &LiveWindow<T>) -> Vec<&Segment<T>> {
    window.segments().filter(|segment| segment.state != SegmentState::Open).collect()
}

/// The target duration in seconds: no duration rounds to more (RFC 8216bis, 4.4.3.1).
/// A source that begins anew may have longer segments, and then the list has another one from there on.
fn target_seconds<T>(window: &LiveWindow<T>) -> u64 {
    ((window.target_us() + 500_000) / 1_000_000).max(1)
}

/// For each segment, the microseconds from its end to the end of the list.
fn durations_to_end<T>(listed: &[&Segment<T>]) -> Vec<u64> {
    let mut after = 0;
    let mut all: Vec<u64> = listed
        .iter()
        .rev()
        .map(|segment| {
            let own = after;
            after += segment.duration_us;
            own
        })
        .collect();
    all.reverse();
    all
}

/// How many segments are further from the end than the skip boundary, each of them with all of its duration.
fn skipped(until_end: &[u64], target_s: u64) -> usize {
    until_end.iter().take_while(|after| **after >= target_s * SKIP_AFTER * 1_000_000).count()
}

/// Writes microseconds as seconds.
pub(crate) fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}
