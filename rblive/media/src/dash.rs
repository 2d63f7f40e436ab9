//! DASH: the manifest of a live stream over the same segments as its HLS playlists (ISO/IEC 23009-1, profile "live").

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::civil::rfc3339;
use crate::hls::seconds;
use crate::rendition::{Rendition, Video};
use crate::window::{LiveWindow, Segment, SegmentState};

/// The media type of manifests.
pub const MEDIA_TYPE: &str = "application/dash+xml";

/// Times in manifests are in microseconds.
const TIMESCALE: u64 = 1_000_000;

/// Writes the manifest of a stream of CMAF renditions. `now_ns`: the wall clock, in nanoseconds since 1970. `query` is appended to
/// each address, with its `?`. The addresses are relative to the manifest: `2/init-1.mp4`, `2/12.m4s`. `None` while no
/// rendition has a complete segment.
///
/// Each discontinuity begins a period, as codecs and timestamps may change there.
pub fn manifest<T>(renditions: &[(Rendition, &LiveWindow<T>)], query: &str, now_ns: u64) -> Option<String> {
    let periods: Vec<Vec<Run<'_, T>>> = periods(renditions);
    let first = periods.first()?;
    let begin_ns = first.iter().map(Run::begin_ns).min()?;
    let target_us = renditions.iter().map(|(_, window)| window.target_us()).max()?;
    let depth_us = renditions.iter().map(|(_, window)| held_us(window)).min()?;
    let is_ended = renditions.iter().all(|(_, window)| window.is_ended());
    let mut to = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n");
    let _ = writeln!(
        to,
        "<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" profiles=\"urn:mpeg:dash:profile:isoff-live:2011\" \
         type=\"dynamic\" availabilityStartTime=\"{}\" publishTime=\"{}\"{} minBufferTime=\"PT{}S\" \
         timeShiftBufferDepth=\"PT{}S\" suggestedPresentationDelay=\"PT{}S\" maxSegmentDuration=\"PT{}S\">",
        rfc3339(0),
        rfc3339(now_ns),
        if is_ended {
            String::new()
        } else {
            format!(" minimumUpdatePeriod=\"PT{}S\"", seconds(target_us / 2))
        },
        seconds(target_us),
        seconds(depth_us.max(target_us)),
        seconds(target_us * 3),
        seconds(target_us),
    );
    for runs in &periods {
        period(&mut to, runs, query);
    }
    let _ = writeln!(
        to,
        "<UTCTiming schemeIdUri=\"urn:mpeg:dash:utc:direct:2014\" value=\"{}\"/>\n</MPD>",
        rfc3339(now_ns.max(begin_ns))
    );
    Some(to)
}

/// The segments of a rendition between two discontinuities.
struct Run<'a, T> {
    rendition: &'a Rendition,
    segments: Vec<&'a Segment<T>>,
}

impl<T> Run<'_, T> {
    fn begin_ns(&self) -> u64 {
        self.segments.first().map_or(0, |first| first.wall_ns)
    }

    fn begin_us(&self) -> u64 {
        self.segments.first().map_or(0, |first| first.start_us)
    }
}

/// Splits the renditions at their discontinuities. Segments of several renditions with the same number of the timeline are
/// one period.
fn periods<'a, T>(renditions: &'a [(Rendition, &LiveWindow<T>)]) -> Vec<Vec<Run<'a, T>>> {
    let mut periods: BTreeMap<u64, Vec<Run<'a, T>>> = BTreeMap::new();
    for (rendition, window) in renditions {
        for segment in window.segments().filter(|segment| segment.state == SegmentState::Complete) {
            let runs = periods.entry(segment.timeline).or_default();
            match runs.last_mut().filter(|run| run.rendition.id == rendition.id) {
                Some(run) => run.segments.push(segment),
                None => runs.push(Run { rendition, segments: vec![segment] }),
            }
        }
    }
    periods.into_values().collect()
}

fn held_us<T>(window: &LiveWindow<T>) -> u64 {
    window.segments().map(|segment| segment.duration_us).sum()
}

fn period<T>(to: &mut String, runs: &[Run<'_, T>], query: &str) {
    // Periods begin at wall clock time, since the availability start is 1970.
    let begin_us = runs.iter().map(Run::begin_ns).min().unwrap_or(0) / 1000;
    let _ = writeln!(to, "<Period id=\"{begin_us}\" start=\"PT{}S\">", seconds(begin_us));
    for (content, audio_only) in [("video", false), ("audio", true)] {
        let mut own = runs.iter().filter(|run| run.rendition.is_audio_only() == audio_only).peekable();
        if own.peek().is_none() {
            continue;
        }
        // Players begin with any segment of which this is said.
        let are_independent =
            own.clone().flat_map(|run| &run.segments).all(|segment| segment.is_independent());
        let _ = writeln!(
            to,
            "<AdaptationSet id=\"{}\" contentType=\"{content}\" mimeType=\"{content}/mp4\" segmentAlignment=\"true\"{}>",
            u8::from(audio_only),
            if are_independent { " startWithSAP=\"1\"" } else { "" }
        );
        own.for_each(|run| representation(to, run, begin_us, query));
        to.push_str("</AdaptationSet>\n");
    }
    to.push_str("</Period>\n");
}

fn representation<T>(to: &mut String, run: &Run<'_, T>, period_us: u64, query: &str) {
    let Rendition { id, codecs, bandwidth, video, .. } = run.rendition;
    let _ = write!(to, "<Representation id=\"{id}\" bandwidth=\"{}\"", bandwidth.max(&1));
    if !codecs.is_empty() {
        let _ = write!(to, " codecs=\"{}\"", escaped(codecs));
    }
    if let Some(Video { width, height, .. }) = video {
        let _ = write!(to, " width=\"{width}\" height=\"{height}\"");
    }
    if let Some(frames) = run.rendition.frames_per_1000_s() {
        let _ = write!(to, " frameRate=\"{frames}/1000\"");
    }
    let (first, query) = (run.segments[0], escaped(query));
    // The first sample is presented at its wall clock time, relative to the period.
    let offset = run.begin_us().saturating_sub((run.begin_ns() / 1000).saturating_sub(period_us));
    let _ = writeln!(
        to,
        ">\n<SegmentTemplate timescale=\"{TIMESCALE}\" presentationTimeOffset=\"{offset}\" startNumber=\"{}\" \
         initialization=\"{id}/init-{}.mp4{query}\" media=\"{id}/$Number$.m4s{query}\">\n<SegmentTimeline>",
        first.number, first.init,
    );
    for (index, segment) in run.segments.iter().enumerate() {
        // A gap is a jump of the numbers.
        let follows = index > 0 && run.segments[index - 1].number + 1 == segment.number;
        let number = if follows { String::new() } else { format!(" n=\"{}\"", segment.number) };
        let _ = writeln!(to, "<S t=\"{}\"{number} d=\"{}\"/>", segment.start_us, segment.duration_us);
    }
    to.push_str("</SegmentTimeline>\n</SegmentTemplate>\n</Representation>\n");
}

fn escaped(text: &str) -> String {
    let mut to = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !text::is_hidden(*c)) {
        match c {
            '&' => to.push_str("&amp;"),
            '<' => to.push_str("&lt;"),
            '"' => to.push_str("&quot;"),
            // A template would read it as the beginning of a variable.
            '$' => to.push_str("$$"),
            c => to.push(c),
        }
    }
    to
}
