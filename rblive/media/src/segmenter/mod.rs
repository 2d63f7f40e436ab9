//! From frames to CMAF parts and segments.
//!
//! ```text
//!   frames  K f f f f f f f K f f f f f f f K      K: key frame
//!   parts   [0    ][1     ] [0    ][1     ]        at most `part` long
//!   segment [      0      ] [      1      ]        begins with a key frame, at least `target` long if key frames allow it
//! ```
//!
//! A part is complete when the next frame of the leading track arrives (video, if there is some): only then its duration is known.
//! Times begin at 0 with the first key frame and continue over restarts, jumps and changes of the codec, with which timelines begin.

mod part;
mod pending;

use std::collections::VecDeque;

use bytes::Bytes;

use crate::cmaf;
use crate::timeline::Timeline;
use crate::unit::{AccessUnit, Input, Media, TICKS_PER_SECOND, TrackConfig};
pub use part::Part;
use part::Parts;

/// A timestamp that differs by more from its predecessor begins a new timeline, in ticks.
const MAX_JUMP: i64 = 10 * TICKS_PER_SECOND;
/// Decoding times that go back by more begin a new timeline: the encoder has started over. In ticks.
const MAX_STEP_BACK: i64 = TICKS_PER_SECOND / 2;
/// How long frames wait at the beginning for the configuration of the other track, in ticks.
const MAX_WAIT: i64 = TICKS_PER_SECOND;
/// The most frames that wait at the beginning for the configuration of the other track: the clocks of some encoders stand still.
const MAX_EARLY: usize = 4096;
/// How far audio may be ahead of video before parts without video are made, in ticks.
const MAX_LEAD: i64 = 2 * TICKS_PER_SECOND;
/// The bytes of a part's boxes. The entries of its frames in these boxes have a sixteenth of the part besides.
const HEAD_BYTES: usize = 1024;
const TICKS_PER_MS: i64 = TICKS_PER_SECOND / 1000;

/// Settings of a [`Segmenter`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmenterConfig {
    /// A segment ends with the first key frame after this time, in milliseconds.
    pub target_ms: u32,
    /// The longest segment, in milliseconds: without key frames it ends here, and the next one begins without a key frame.
    pub max_segment_ms: u32,
    /// The longest part, in milliseconds, unless a single frame is longer.
    pub part_ms: u32,
    /// The most bytes of a part, unless a single frame is larger: a part ends before it has more.
    pub max_part_bytes: usize,
    /// The most bytes that wait for their part to be complete.
    pub max_pending_bytes: usize,
}

impl Default for SegmenterConfig {
    /// Segments of two seconds, at most ten, parts of 300 ms, 16 MiB that wait, and no limit of a part.
    fn default() -> Self {
        Self {
            target_ms: 2000,
            max_segment_ms: 10_000,
            part_ms: 300,
            max_part_bytes: usize::MAX,
            max_pending_bytes: 16 << 20,
        }
    }
}

/// Why a segmenter refuses further input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmenterError {
    /// More bytes arrived within a part than the configuration allows.
    #[error("the encoder sent more than {0} bytes within one part")]
    TooMuch(usize),
}

/// Cuts the frames of one stream into parts. Bounded by [`SegmenterConfig::max_pending_bytes`].
///
/// [`push`](Self::push) takes the items of demuxers; [`next_part`](Self::next_part) returns complete parts.
#[derive(Debug)]
pub struct Segmenter {
    config: SegmenterConfig,
    video: Option<TrackConfig>,
    audio: Option<TrackConfig>,
    expected: Option<[bool; 2]>,
    /// Frames from before both tracks were known.
    early: VecDeque<AccessUnit>,
    begun: bool,
    timeline: Timeline,
    /// The difference of the timeline's timestamps and the input's.
    shift: Option<i64>,
    last: [Option<i64>; 2],
    pending: pending::Pending,
    pending_bytes: usize,
    parts: Parts,
    ready: VecDeque<Part>,
    dropped: u64,
}

impl Segmenter {
    /// A segmenter of a stream with one rendition, whose first segment has this number.
    pub fn new(config: SegmenterConfig, first_sequence: u64) -> Self {
        Self::with_timeline(config, Timeline::alone(first_sequence, 0))
    }

    /// A segmenter whose segments get their numbers from `timeline`.
    pub fn with_timeline(config: SegmenterConfig, timeline: Timeline) -> Self {
        Self {
            config,
            video: None,
            audio: None,
            expected: None,
            early: VecDeque::new(),
            begun: false,
            timeline,
            shift: None,
            last: [None; 2],
            pending: pending::Pending::default(),
            pending_bytes: 0,
            parts: Parts::new(),
            ready: VecDeque::new(),
            dropped: 0,
        }
    }

    /// Goes on as a rendition of another stream, after [`end_timeline`](Self::end_timeline).
    pub fn move_to(&mut self, timeline: Timeline) {
        self.timeline = timeline;
        self.parts = Parts::new();
        // What the other stream did not take has numbers of that stream.
        self.ready.clear();
        if self.begun {
            self.make_init();
        }
    }

    /// Takes the next item of a demuxer.
    ///
    /// # Errors
    /// [`SegmenterError`]; nothing more may be pushed before [`finish`](Self::finish), which begins a new timeline.
    pub fn push(&mut self, input: Input) -> Result<(), SegmenterError> {
        match input {
            Input::Tracks { video, audio } => self.expected = Some([video, audio]),
            Input::Config(config) => self.configure(config),
            Input::Unit(unit) => {
                self.pending_bytes += unit.data.len();
                if self.pending_bytes > self.config.max_pending_bytes {
                    return Err(SegmenterError::TooMuch(self.config.max_pending_bytes));
                }
                self.early_or_unit(unit);
            }
        }
        Ok(())
    }

    /// The next complete part.
    pub fn next_part(&mut self) -> Option<Part> {
        self.ready.pop_front()
    }

    /// The tracks, video first. Empty until they are known.
    pub fn tracks(&self) -> impl Iterator<Item = &TrackConfig> {
        self.configurations().filter(|_| self.begun)
    }

    /// The configurations of tracks so far, video first, also while that of the other track is not known.
    pub fn configurations(&self) -> impl Iterator<Item = &TrackConfig> {
        self.video.iter().chain(&self.audio)
    }

    /// Frames that were left out, because they came before the first key frame or their track was not known.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Ends the segment. The input that follows is a new timeline of the same stream: the encoder starts over, or another
    /// one takes its place. The new timeline may have other tracks.
    pub fn finish(&mut self) {
        if !self.begun && (self.video.is_some() || self.audio.is_some()) {
            self.begin();
        }
        self.end_timeline();
        (self.video, self.audio, self.expected, self.begun) = (None, None, None, false);
        self.dropped += self.early.len() as u64;
        self.early.clear();
        self.pending_bytes = 0;
    }

    /// Sets the configuration of a track, for the frames that follow.
    pub fn configure(&mut self, config: TrackConfig) {
        let is_video = config.media() == Media::Video;
        let known = if is_video { &self.video } else { &self.audio };
        if known.as_ref() == Some(&config) {
            return;
        }
        if self.begun {
            // The timeline continues with another initialisation segment.
            self.close_segment(self.pending.end());
            self.timeline.hole();
        }
        *(if is_video { &mut self.video } else { &mut self.audio }) = Some(config);
        if self.begun {
            self.make_init();
        }
    }

    fn early_or_unit(&mut self, unit: AccessUnit) {
        if self.begun {
            return self.unit(unit);
        }
        let time = unit.dts;
        self.early.push_back(unit);
        let wanted = self.expected.unwrap_or([true; 2]);
        let missing = (wanted[0] && self.video.is_none()) || (wanted[1] && self.audio.is_none());
        let waited = self.early.front().is_some_and(|first| (time - first.dts).abs() >= MAX_WAIT);
        let is_full = self.early.len() > MAX_EARLY;
        if !missing || (waited || is_full) && (self.video.is_some() || self.audio.is_some()) {
            self.begin();
        } else if is_full && let Some(oldest) = self.early.pop_front() {
            self.drop_unit(&oldest);
        }
    }

    fn begin(&mut self) {
        self.begun = true;
        self.make_init();
        for unit in std::mem::take(&mut self.early) {
            self.unit(unit);
        }
    }

    fn make_init(&mut self) {
        let tracks: Vec<TrackConfig> = self.video.iter().chain(&self.audio).cloned().collect();
        self.parts.init(Bytes::from(cmaf::init(&tracks)), &tracks);
    }

    fn drop_unit(&mut self, unit: &AccessUnit) {
        self.dropped += 1;
        self.pending_bytes = self.pending_bytes.saturating_sub(unit.data.len());
    }

    fn unit(&mut self, mut unit: AccessUnit) {
        let (known, track) = match unit.media {
            Media::Video => (self.video.is_some(), 0),
            Media::Audio => (self.audio.is_some(), 1),
        };
        if !known {
            return self.drop_unit(&unit);
        }
        // Until this track has begun, the times of the other track are the reference.
        let own = self.last[track];
        let jumps =
            own.or(self.last[1 - track]).is_some_and(|last| unit.dts.abs_diff(last) > MAX_JUMP as u64);
        let is_back = own.is_some_and(|last| unit.dts < last.saturating_sub(MAX_STEP_BACK));
        // Other renditions may have segments where this one has a hole, so its next segment gets its number from its time.
        let is_late = own.is_some_and(|last| unit.dts.saturating_sub(last) > self.target());
        let skips = is_late && self.timeline.is_shared();
        if jumps || is_back || skips {
            self.end_timeline();
        }
        let leads = unit.media == Media::Video || self.video.is_none();
        let begins = self.shift.is_none() && leads && unit.key;
        let shift = if begins { self.begin_timeline(unit.dts) } else { self.shift };
        let Some(shift) = shift else { return self.drop_unit(&unit) };
        let offset = unit.pts.saturating_sub(unit.dts).clamp(-MAX_JUMP, MAX_JUMP);
        // Times within a track always grow: players stop at a frame that does not come after the one before.
        unit.dts = self.last[track].map_or(unit.dts, |last| unit.dts.max(last + 1));
        self.last[track] = Some(unit.dts);
        unit.dts += shift;
        unit.pts = unit.dts + offset;
        if unit.dts < self.parts.timeline_start() {
            return self.drop_unit(&unit);
        }
        if leads { self.leading(unit) } else { self.following(unit) }
    }

    fn leading(&mut self, unit: AccessUnit) {
        let (now, frame) = (unit.dts, self.pending.frame(unit.media));
        if self.pending.has(unit.media) || self.parts.is_open() {
            let length = now - self.segment_start();
            let part = now + frame - self.parts.part_start();
            // Encoders place key frames by counting frames, with timestamps rounded to milliseconds.
            let target = self.target() - frame / 2;
            if unit.key && length >= target || length >= i64::from(self.config.max_segment_ms) * TICKS_PER_MS
            {
                self.close_segment(now);
            } else if part > i64::from(self.config.part_ms) * TICKS_PER_MS + TICKS_PER_MS
                || self.is_full(&unit)
            {
                self.close_part(now, false);
            }
        }
        self.parts.open_at(now);
        self.pending.push(unit);
    }

    /// The beginning of the open segment, in ticks. Sound alone could be cut at any frame, and follows the other renditions.
    fn segment_start(&self) -> i64 {
        let common = self.video.is_none().then(|| self.timeline.start()).flatten();
        common.unwrap_or(self.parts.segment_start())
    }

    /// The length of segments, in ticks.
    fn target(&self) -> i64 {
        i64::from(self.config.target_ms) * TICKS_PER_MS
    }

    /// Whether the part would be too large with this frame.
    fn is_full(&self, unit: &AccessUnit) -> bool {
        let most = self.config.max_part_bytes;
        let media = self.pending.bytes() + unit.data.len();
        media > (most - most / 16).saturating_sub(HEAD_BYTES)
    }

    fn following(&mut self, unit: AccessUnit) {
        let now = unit.dts;
        self.pending.push(unit);
        if now - self.pending.last(Media::Video).unwrap_or(self.parts.part_start()) > MAX_LEAD
            && now - self.parts.part_start() > i64::from(self.config.part_ms) * TICKS_PER_MS
        {
            let length = now - self.parts.segment_start();
            self.close_part(now, length >= i64::from(self.config.max_segment_ms) * TICKS_PER_MS);
        }
    }

    fn close_segment(&mut self, end: i64) {
        self.close_part(end, true);
        if self.shift.is_some() {
            self.timeline.cut(end);
        }
    }

    fn close_part(&mut self, end: i64, last: bool) {
        let lead = if self.video.is_some() { Media::Video } else { Media::Audio };
        let taken = self.pending.take_before(end, lead);
        self.ready.extend(self.parts.close(taken, end, last, &self.timeline));
        self.pending_bytes = self.pending.bytes();
        self.timeline.reach(end);
    }

    /// Begins a timeline with a key frame. `None`: the other renditions have no segment that begins there.
    fn begin_timeline(&mut self, dts: i64) -> Option<i64> {
        self.shift = self.timeline.join(dts, self.parts.timeline_start(), self.target());
        if let Some(shift) = self.shift {
            self.parts.begin_timeline_at(dts.saturating_add(shift));
        }
        self.shift
    }

    /// Ends the segment and the timeline. The input that follows begins another timeline, with the same tracks.
    pub fn end_timeline(&mut self) {
        if self.shift.take().is_some() {
            let end = self.pending.end().max(self.parts.part_start() + 1);
            self.close_segment(end);
            self.pending = pending::Pending::default();
            self.pending_bytes = self.early.iter().map(|unit| unit.data.len()).sum();
            self.parts.begin_timeline_at(end);
        }
        self.timeline.end();
        self.last = [None; 2];
    }
}
