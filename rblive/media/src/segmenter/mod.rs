//! From frames to CMAF parts and segments.
//!
//! ```text
//!   frames  K f f f f f f f K f f f f f f f K      K: key frame
//!   parts   [0    ][1     ] [0    ][1     ]        at most `part` long
//!   segment [      0      ] [      1      ]        begins with a key frame, at least `target` long if key frames allow it
//! ```
//!
//! A part is complete when the next frame of the leading track arrives (video, if there is some): only then its duration is known.
//! Playlists announce the length of the first segment for ever (RFC 8216bis, 6.2.1), so a longer one is cut there, without a key frame.
//! The next key frame begins a segment again, however short the one before is.
//! Times begin at 0 with the first key frame and continue over restarts, jumps and changes of the codec, with which timelines begin.

mod clock;
mod oddity;
mod part;
mod pending;

use std::collections::VecDeque;

use bytes::Bytes;

use crate::cmaf;
use crate::codec;
use crate::timeline::{TOLERANCE, Timeline};
use crate::unit::{AccessUnit, AudioCodec, Input, Media, TICKS_PER_SECOND, TrackConfig};
use clock::{Clocks, MAX_LEAD, Role, Step};
pub use oddity::Oddity;
pub use part::Part;
use part::Parts;
use pending::Taken;

/// How long frames wait at the beginning for the configuration of the other track, in ticks. Pictures that are announced have no
/// substitute, as sound has.
const MAX_WAIT: i64 = TICKS_PER_SECOND;
const MAX_WAIT_FOR_PICTURES: i64 = 4 * TICKS_PER_SECOND;
const MAX_WAIT_UNANNOUNCED: i64 = TICKS_PER_SECOND / 2;
/// The `AudioSpecificConfig` of announced sound that does not come: AAC-LC of 48 kHz, two channels.
const UNHEARD: [u8; 2] = [0x11, 0x90];
/// How far the sound may be behind the pictures before silence takes its place, in ticks. Encoders whose sound is always later get more time.
const FIRST_PATIENCE: i64 = 7 * TICKS_PER_SECOND / 10;
const MAX_PATIENCE: i64 = 5 * TICKS_PER_SECOND;
/// The most frames that wait at the beginning for the configuration of the other track: the clocks of some encoders stand still.
const MAX_EARLY: usize = 4096;
/// The bytes of a part's boxes. The entries of its frames in these boxes have a sixteenth of the part besides.
const HEAD_BYTES: usize = 1024;
const TICKS_PER_MS: i64 = TICKS_PER_SECOND / 1000;
/// The frames that may be missing, one after the other, without which a segment still has the length that is announced.
const SPARE_FRAMES: i64 = 2;
/// The same for renditions of other frame rates, in ticks, so that all of them are cut at the same times.
const SPARE_TIME: i64 = TICKS_PER_SECOND / 8;
/// The distance of key frames that is told, in ticks.
const FAR_APART: i64 = 4 * TICKS_PER_SECOND;

/// Settings of a [`Segmenter`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmenterConfig {
    /// A segment ends with the first key frame after this time, in milliseconds.
    pub target_ms: u32,
    /// The longest first segment, in milliseconds: without key frames it ends here, and the next one begins without a key frame.
    pub max_segment_ms: u32,
    /// The longest part, in milliseconds, unless a single frame is longer.
    pub part_ms: u32,
    /// The most bytes of a part, unless a single frame is larger: a part ends before it has more.
    pub max_part_bytes: usize,
    /// The most bytes that wait for their part to be complete.
    pub max_pending_bytes: usize,
}

impl SegmenterConfig {
    /// The longest part, in microseconds: times may be rounded to milliseconds.
    pub fn longest_part_us(&self) -> u64 {
        (u64::from(self.part_ms) + 1) * 1000
    }
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
    /// Whether video and audio are announced.
    expected: Option<[bool; 2]>,
    /// Frames from before both tracks were known.
    early: VecDeque<AccessUnit>,
    begun: bool,
    timeline: Timeline,
    /// The difference of the timeline's timestamps and the input's.
    shift: Option<i64>,
    clocks: Clocks,
    /// The next key frame begins a timeline.
    breaks: bool,
    /// Configurations that are in force from the next key frame on.
    next: [Option<TrackConfig>; 2],
    /// The length of the stream's first segment, in ticks, once it is complete.
    first_length: Option<i64>,
    /// The time of the newest key frame of the leading track.
    key: i64,
    /// How far the newest two key frames are apart, and the most so far that is too far.
    key_distance: Option<i64>,
    farthest: i64,
    /// The beginning of the open segment in the rendition that reached it first, in ticks, if that is [`near`] this one's.
    common_start: i64,
    /// Whether silence is in the place of the sound.
    is_silent: bool,
    patience: i64,
    oddities: Vec<Oddity>,
    pending: pending::Pending,
    pending_bytes: usize,
    parts: Parts,
    ready: VecDeque<Part>,
    dropped: u64,
}

/// The beginning of a segment in another rendition if that is at most [`SPARE_TIME`] from `own`, and `own` otherwise: sound alone is cut before
/// key frames that come late.
fn near(other: i64, own: i64) -> i64 {
    if (other - own).abs() <= SPARE_TIME { other } else { own }
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
            clocks: Clocks::default(),
            breaks: false,
            next: [None, None],
            first_length: None,
            key: 0,
            key_distance: None,
            farthest: 0,
            common_start: 0,
            is_silent: false,
            patience: FIRST_PATIENCE,
            oddities: Vec::new(),
            pending: pending::Pending::default(),
            pending_bytes: 0,
            parts: Parts::new(),
            ready: VecDeque::new(),
            dropped: 0,
        }
    }

    /// Changes the most bytes of a part, from the next frame on.
    pub fn set_max_part_bytes(&mut self, bytes: usize) {
        self.config.max_part_bytes = bytes;
    }

    /// Goes on as a rendition of another stream, after [`end_timeline`](Self::end_timeline).
    pub fn move_to(&mut self, timeline: Timeline) {
        (self.timeline, self.first_length) = (timeline, None);
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

    /// The configurations of tracks so far, video first, also while that of the other track is not known.
    pub fn configurations(&self) -> impl Iterator<Item = &TrackConfig> {
        self.video.iter().chain(&self.audio)
    }

    /// How far the newest two key frames of the pictures are apart, in microseconds.
    pub fn key_distance_us(&self) -> Option<u64> {
        let ticks = self.key_distance.and_then(|own| u64::try_from(own).ok());
        ticks.map(|own| own.saturating_mul(1000) / (TICKS_PER_MS as u64))
    }

    /// Frames that were left out, because they came before the first key frame or their track was not known.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// What the encoder has done wrong since the last call. What happened several times since then may be there once.
    pub fn take_oddities(&mut self) -> Vec<Oddity> {
        std::mem::take(&mut self.oddities)
    }

    fn oddity(&mut self, oddity: Oddity) {
        if self.oddities.len() < Oddity::ALL.len() {
            self.oddities.push(oddity);
        }
    }

    /// Ends the segment. The input that follows is a new timeline of the same stream: the encoder starts over, or another
    /// one takes its place. The new timeline may have other tracks.
    pub fn finish(&mut self) {
        if !self.begun && (self.video.is_some() || self.audio.is_some()) {
            self.begin();
        }
        self.end_timeline();
        (self.video, self.audio, self.expected, self.begun) = (None, None, None, false);
        (self.is_silent, self.patience, self.farthest) = (false, FIRST_PATIENCE, 0);
        self.dropped += self.early.len() as u64;
        self.early.clear();
        self.pending_bytes = 0;
    }

    /// Sets the configuration of a track, for the frames that follow. Where there are pictures, another one than before is in force from
    /// the next key frame on, so that each segment begins with one.
    pub fn configure(&mut self, config: TrackConfig) {
        let track = if config.media() == Media::Video { &mut self.video } else { &mut self.audio };
        let next = &mut self.next[usize::from(config.media() == Media::Audio)];
        let is_known = next.take().is_some() || track.is_some();
        if track.as_ref() == Some(&config) {
            return;
        }
        if !self.begun && track.is_some() && !self.early.is_empty() {
            // The frames so far are of the configuration before.
            self.begin();
            return self.configure(config);
        }
        if !self.begun {
            *track = Some(config);
            return;
        }
        *next = Some(config);
        if !is_known {
            self.oddity(Oddity::LateTrack);
        }
        if self.video.is_none() || self.shift.is_none() {
            self.close_segment(self.pending.end());
            self.renew();
        }
    }

    /// The timeline goes on with another initialisation segment, if a configuration has changed.
    fn renew(&mut self) {
        let [video, audio] = std::mem::take(&mut self.next);
        if video.is_none() && audio.is_none() {
            return;
        }
        (self.video, self.audio) = (video.or(self.video.take()), audio.or(self.audio.take()));
        self.timeline.hole();
        self.make_init();
    }

    fn early_or_unit(&mut self, unit: AccessUnit) {
        if self.begun {
            return self.unit(unit);
        }
        let time = unit.dts;
        self.early.push_back(unit);
        // Encoders have tracks that they do not announce.
        let missing = self.video.is_none() || self.audio.is_none();
        let most = match self.expected {
            Some([true, true]) if self.video.is_none() => MAX_WAIT_FOR_PICTURES,
            None | Some([true, true]) => MAX_WAIT,
            Some(_) => MAX_WAIT_UNANNOUNCED,
        };
        let waited = self.early.front().is_some_and(|first| (time - first.dts).abs() >= most);
        let is_full = self.early.len() > MAX_EARLY;
        if !missing || (waited || is_full) && (self.video.is_some() || self.audio.is_some()) {
            self.begin();
        } else if is_full && let Some(oldest) = self.early.pop_front() {
            self.drop_unit(&oldest);
        }
    }

    fn begin(&mut self) {
        self.begun = true;
        if self.expected == Some([true; 2]) && self.audio.is_none() {
            // Players do not take a track that begins later.
            let unheard = codec::audio_config(AudioCodec::Aac, Bytes::from_static(&UNHEARD));
            self.audio = unheard.ok().map(TrackConfig::Audio);
        }
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

    fn unit(&mut self, unit: AccessUnit) {
        if unit.media == Media::Audio
            && self.next[1].is_some()
            && self.shift.is_some_and(|shift| self.is_frozen(unit.dts.saturating_add(shift)))
        {
            // The configuration does not wait for a key frame that may never come.
            self.close_segment(self.pending.end());
            self.renew();
        }
        let is_known = match unit.media {
            Media::Video => self.video.is_some(),
            Media::Audio => self.audio.is_some() && self.next[1].is_none(),
        };
        let leads = self.leads(unit.media);
        let begins = self.shift.is_none() && is_known && leads && unit.key;
        if !is_known || self.shift.is_none() && !(begins && self.begin_timeline(unit.dts)) {
            return self.drop_unit(&unit);
        }
        let most = self.timeline.is_shared().then(|| self.target());
        let steps = self.clocks.take(unit, Role { leads, most });
        steps.into_iter().for_each(|step| self.step(step));
    }

    fn leads(&self, media: Media) -> bool {
        media == self.lead()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Unit(unit) => self.timed(unit),
            Step::Jumped => {
                self.breaks = true;
                self.oddity(Oddity::Jump);
            }
            // Other renditions have segments where this one has a hole, so its next segment gets its number from its time.
            Step::Restart(units) => {
                self.oddity(Oddity::Jump);
                self.end_timeline();
                units.into_iter().for_each(|unit| self.unit(unit));
            }
            Step::Mended => self.oddity(Oddity::Time),
            Step::Placed => self.oddity(Oddity::Clocks),
        }
    }

    /// Takes a frame with a time on the stream's clock.
    fn timed(&mut self, mut unit: AccessUnit) {
        let Some(shift) = self.shift else { return self.drop_unit(&unit) };
        (unit.dts, unit.pts) = (unit.dts + shift, unit.pts + shift);
        if unit.dts < self.parts.timeline_start() {
            return self.drop_unit(&unit);
        }
        if self.leads(unit.media) { self.leading(unit) } else { self.following(unit) }
    }

    fn leading(&mut self, unit: AccessUnit) {
        let (now, frame) = (unit.dts, self.pending.frame(unit.media));
        self.close_overlong(now);
        self.close_even(now);
        let is_open = self.pending.has(unit.media) || self.parts.is_open();
        let part = now + frame - self.parts.part_start();
        let is_long = self.is_long(now - self.common_start, frame) && !self.expects_key(now);
        if unit.media == Media::Video {
            self.note_key(&unit, is_open, is_long);
        }
        if !is_open || is_long || unit.key && self.may_begin(now, frame) {
            if is_open {
                self.close_segment(now);
            }
            if unit.key && std::mem::take(&mut self.breaks) {
                self.timeline.hole();
            }
            self.renew();
        } else if part > self.part() || self.is_full(&unit) {
            self.close_part(now, false);
        }
        self.parts.open_at(now);
        self.pending.push(unit);
    }

    /// Tells of key frames that are too far apart. A time without pictures is no such distance.
    fn note_key(&mut self, unit: &AccessUnit, is_open: bool, is_long: bool) {
        let stood = unit.dts - self.pending.last(Media::Video).unwrap_or(unit.dts);
        if stood > TICKS_PER_SECOND {
            self.key += stood;
        }
        let distance = unit.dts - self.key;
        if is_open && (unit.key && distance >= FAR_APART || is_long && !unit.key && distance >= self.target())
        {
            self.farthest = self.farthest.max(distance);
            self.oddity(Oddity::KeyFrames((self.farthest / TICKS_PER_MS).try_into().unwrap_or(u32::MAX)));
        }
        if unit.key {
            self.key_distance = is_open.then_some(distance);
            self.key = unit.dts;
        }
    }

    /// Whether a segment begins with the key frame at `now`.
    fn may_begin(&self, now: i64, frame: i64) -> bool {
        if self.video.is_none()
            && let Some(next) = self.timeline.next_start()
        {
            return now + frame / 2 >= next;
        }
        // Encoders place key frames by counting frames, with timestamps that are rounded, or repeated.
        let early = if self.video.is_some() { self.target() / 20 } else { 0 };
        let changes = self.breaks || self.next.iter().any(Option::is_some);
        // In another rendition, the segment may begin with this key frame, since no frame is between it and the end of the one before.
        let least = if self.timeline.is_shared() { TOLERANCE } else { 0 };
        now - self.segment_start() >= self.target() - early.max(frame / 2)
            || changes
            || self.is_keyless() && now - self.common_start > least
    }

    /// Whether the open segment has begun without a key frame.
    fn is_keyless(&self) -> bool {
        let first = || self.pending.first(self.lead()).is_none_or(|unit| unit.key);
        !self.parts.is_independent().unwrap_or_else(first)
    }

    /// The longest part, in ticks.
    fn part(&self) -> i64 {
        self.config.longest_part_us() as i64 * TICKS_PER_MS / 1000
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

    /// The length of the stream's first segment, and the shortest one that rounds to more seconds than playlists announce, in ticks.
    fn limit(&self) -> Option<(i64, i64)> {
        let first = self.first_length?.max(self.target());
        let half = TICKS_PER_SECOND / 2;
        let announced = ((first + half) / TICKS_PER_SECOND).max(1) * TICKS_PER_SECOND;
        Some((first, announced + half))
    }

    /// Whether a key frame comes in time, if it is as far from the one before as that one was.
    fn expects_key(&self, now: i64) -> bool {
        let (Some((_, limit)), Some(distance)) = (self.limit(), self.key_distance) else { return false };
        let at = self.key + distance;
        now < at && at - self.parts.segment_start() < limit
    }

    /// Ends the segment before its newest frame, if this frame lasts until `now`, and the segment would round to more seconds than are
    /// announced. A frame that lasts for longer than a segment ends there, without sound that could go on alone, and a hole follows.
    fn close_overlong(&mut self, now: i64) {
        let Some((first, limit)) = self.limit() else { return };
        let is_over = |parts: &Parts| parts.is_open() && now - parts.segment_start() >= limit;
        if !is_over(&self.parts) {
            return;
        }
        if let Some(newest) = self.pending.last_of_several(self.lead())
            && newest > self.parts.segment_start()
        {
            self.close_segment(newest);
        }
        let is_silent = self.lead() == Media::Audio || !self.pending.has(Media::Audio) && !self.can_fill();
        if is_over(&self.parts) && is_silent && self.pending.has(self.lead()) {
            let newest = self.pending.last(self.lead()).unwrap_or(now);
            let least = self.parts.part_start().max(newest) + 1;
            self.close_segment((self.parts.segment_start() + first).clamp(least, now.max(least)));
            self.parts.leave();
            self.timeline.hole();
            self.common_start = near(self.timeline.cut(now), now);
        }
    }

    /// Whether silence takes the place of sound that does not come.
    fn can_fill(&self) -> bool {
        self.audio.is_some() && self.parts.has_silence()
    }

    /// Whether a segment that has `length` ends, with or without a key frame, since it may be longer than announced with the next frame, or
    /// part, of `next` ticks. Playlists announce whole seconds.
    fn is_long(&self, length: i64, next: i64) -> bool {
        let spare = next + SPARE_FRAMES * next.min(self.pending.frame(self.lead()));
        let is_over = self.limit().is_some_and(|(first, limit)| {
            length + spare.max(SPARE_TIME) >= limit && length + next / 2 > first
        });
        is_over || length >= i64::from(self.config.max_segment_ms) * TICKS_PER_MS
    }

    /// Whether the part would be too large with this frame.
    fn is_full(&self, unit: &AccessUnit) -> bool {
        let most = self.config.max_part_bytes;
        let media = self.pending.bytes() + unit.data.len();
        media > (most - most / 16).saturating_sub(HEAD_BYTES)
    }

    /// Whether there has been no picture for so long that sound goes on alone.
    fn is_frozen(&self, now: i64) -> bool {
        now.saturating_sub(self.pending.last(Media::Video).unwrap_or(self.parts.part_start())) > MAX_LEAD
    }

    fn following(&mut self, unit: AccessUnit) {
        let now = unit.dts;
        self.pending.push(unit);
        let part = now + self.pending.frame(Media::Audio) - self.parts.part_start();
        if self.is_frozen(now) && part > self.part() {
            let length = now - self.parts.segment_start();
            self.close_part(now, self.is_long(length, self.part()));
        }
    }

    fn close_segment(&mut self, end: i64) {
        self.close_part(end, true);
    }

    /// Ends the part before its newest frame, if this frame lasts until `end`, and the part would be too long with it.
    fn close_even(&mut self, end: i64) {
        let start = self.parts.part_start();
        if let Some(newest) = self.pending.last_of_several(self.lead())
            && newest > start
            && end - start > self.part()
        {
            self.close_part(newest, false);
        }
    }

    /// The track at whose frames segments and parts are cut.
    fn lead(&self) -> Media {
        if self.video.is_some() { Media::Video } else { Media::Audio }
    }

    fn close_part(&mut self, end: i64, last: bool) {
        self.close_even(end);
        let lead = self.lead();
        let mut taken = self.pending.take_before(end, lead);
        if lead == Media::Video && self.audio.is_some() {
            self.parts.follow(&mut taken);
            self.fill(&mut taken, end);
        }
        let pieces = taken.split(self.parts.part_start(), end, self.part());
        for (piece, stop) in pieces {
            let length = stop - self.parts.segment_start();
            let is_last = if stop == end { last } else { self.is_long(length, self.part()) };
            let part = self.parts.close(&piece, [stop, end], is_last, &self.timeline);
            if self.shift.is_some() && part.as_ref().is_some_and(|part| part.last) {
                self.common_start = near(self.timeline.cut(stop), stop);
            }
            self.ready.extend(part);
        }
        self.pending_bytes = self.pending.bytes();
        self.first_length = self.timeline.reach(end);
    }

    /// Puts silence where the sound has holes or does not come: players stand still where one of the tracks ends.
    fn fill(&mut self, taken: &mut Taken, end: i64) {
        let heard = self.pending.last(Media::Audio).unwrap_or(self.parts.timeline_start());
        let is_missing = end - heard > self.patience;
        if is_missing && !self.is_silent {
            self.oddity(if self.parts.has_silence() { Oddity::Silence } else { Oddity::NoSound });
        }
        self.is_silent = is_missing;
        let late = self.parts.fill(taken, end, is_missing);
        if late > 0 {
            self.dropped += late as u64;
            self.patience = (2 * self.patience).min(MAX_PATIENCE);
        }
    }

    /// Begins a timeline with a key frame. False: the other renditions have no segment that begins there.
    fn begin_timeline(&mut self, dts: i64) -> bool {
        self.shift = self.timeline.join(dts, self.parts.timeline_start(), self.target());
        if let Some(shift) = self.shift {
            self.parts.begin_timeline_at(dts.saturating_add(shift));
            let own = self.parts.timeline_start();
            self.common_start = near(self.timeline.start().unwrap_or(own), own);
        }
        self.shift.is_some()
    }

    /// Ends the segment and the timeline. The input that follows begins another timeline, with the same tracks.
    pub fn end_timeline(&mut self) {
        let waiting = self.clocks.flush();
        waiting.into_iter().for_each(|step| self.step(step));
        if self.shift.take().is_some() {
            let end = self.pending.end().max(self.parts.part_start() + 1);
            self.close_segment(end);
            self.pending = pending::Pending::default();
            self.pending_bytes = self.early.iter().map(|unit| unit.data.len()).sum();
            self.parts.begin_timeline_at(end);
        }
        self.renew();
        self.timeline.end();
        (self.clocks, self.breaks) = (Clocks::default(), false);
    }
}
