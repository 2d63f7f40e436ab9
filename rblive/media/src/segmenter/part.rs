//! Parts: their properties and their bytes.

use std::sync::Arc;

use bytes::Bytes;

use super::clock::MAX_LEAD;
use super::pending::Taken;
use crate::cmaf::{self, Run, Sample};
use crate::codec;
use crate::timeline::{Numbers, Timeline};
use crate::unit::{AccessUnit, Media, TICKS_PER_SECOND, TrackConfig};

/// The largest difference between the time of an audio frame and the end of the frame before, in ticks, up to which the frame follows
/// without a hole. Timestamps of RTMP are rounded to milliseconds, and encoders' clocks jitter; listeners hear every hole.
const MAX_AUDIO_DRIFT: i64 = TICKS_PER_SECOND / 20;

/// Times that differ by less are one, in ticks: those of frames of a track grow by at least one.
const SAME_TIME: i64 = TICKS_PER_SECOND / 1000;

/// The longest hole of the sound that is filled with silence at once, in ticks.
const MAX_FILLED: i64 = 20 * TICKS_PER_SECOND;

/// A complete part: `moof` and `mdat`.
#[derive(Debug, Clone)]
pub struct Part {
    /// The number of the segment.
    pub sequence: u64,
    /// The index of the part in its segment.
    pub index: u32,
    /// Where the part begins on the stream's timeline, in microseconds.
    pub start_us: u64,
    /// The duration in microseconds.
    pub duration_us: u32,
    /// Whether the part begins with a key frame. Of a stream of audio alone, each part does.
    pub independent: bool,
    /// Whether the part is the last one of its segment.
    pub last: bool,
    /// Whether a timeline begins with the part.
    pub discontinuity: bool,
    /// The number of the part's timeline.
    pub timeline: u64,
    /// The frames of video in the part.
    pub video_frames: u32,
    /// The frames of the encoder's audio in the part.
    pub audio_frames: u32,
    /// The initialisation segment that the part needs.
    pub init: Bytes,
    /// The tracks of the initialisation segment, video first.
    pub tracks: Arc<[TrackConfig]>,
    head: Vec<u8>,
    data: Vec<Bytes>,
    bytes: usize,
}

impl Part {
    /// The numbers of the segment, as the part has them.
    pub fn numbers(&self) -> Numbers {
        Numbers { sequence: self.sequence, timeline: self.timeline, discontinuity: self.discontinuity }
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.bytes
    }

    /// Writes the part into `target`, which has [`size`](Self::size) bytes.
    ///
    /// # Panics
    /// `target` has another size.
    pub fn copy_to(&self, target: &mut [u8]) {
        assert_eq!(target.len(), self.bytes, "the target has the part's size");
        let mut at = 0;
        for piece in std::iter::once(&self.head[..]).chain(self.data.iter().map(|data| &data[..])) {
            target[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
    }

    /// The bytes of the part, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.copy_to(&mut bytes);
        bytes
    }
}

/// Makes parts, and has the position of the rendition on its timeline. All times are in ticks.
#[derive(Debug)]
pub(super) struct Parts {
    index: u32,
    fragments: u32,
    timeline_start: i64,
    segment_start: i64,
    part_start: i64,
    open: bool,
    /// Whether the segment's first part begins with a key frame.
    independent: bool,
    init: Bytes,
    tracks: Arc<[TrackConfig]>,
    audio_rate: i64,
    frame_samples: u32,
    /// Where the next frame of audio belongs, in samples.
    next_audio: Option<i64>,
    /// A frame of silence of the audio's codec.
    silence: Option<Bytes>,
    /// Where the first frame of audio belongs, and where the newest silence ends, in ticks.
    audio_from: i64,
    silent_until: i64,
}

fn microseconds(ticks: i64) -> u64 {
    (i128::from(ticks.max(0)) * 1_000_000 / i128::from(TICKS_PER_SECOND)) as u64
}

impl Parts {
    pub(super) fn new() -> Self {
        Self {
            index: 0,
            fragments: 0,
            timeline_start: 0,
            segment_start: 0,
            part_start: 0,
            open: false,
            independent: false,
            init: Bytes::new(),
            tracks: Arc::new([]),
            audio_rate: 1,
            frame_samples: 1024,
            next_audio: None,
            silence: None,
            audio_from: 0,
            silent_until: 0,
        }
    }

    pub(super) fn timeline_start(&self) -> i64 {
        self.timeline_start
    }

    pub(super) fn segment_start(&self) -> i64 {
        self.segment_start
    }

    pub(super) fn part_start(&self) -> i64 {
        self.part_start
    }

    /// Whether the open segment begins with a key frame; `None` before its first part.
    pub(super) fn is_independent(&self) -> Option<bool> {
        (self.index > 0).then_some(self.independent)
    }

    /// The next segment begins with the next frame: there is a hole before it.
    pub(super) fn leave(&mut self) {
        self.open = false;
    }

    /// Whether the segment has begun.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    pub(super) fn init(&mut self, init: Bytes, tracks: &[TrackConfig]) {
        (self.init, self.tracks) = (init, tracks.into());
        for track in tracks {
            if let TrackConfig::Audio(audio) = track {
                (self.audio_rate, self.frame_samples) = (i64::from(audio.sample_rate), audio.frame_samples);
                self.silence = codec::silence(audio);
            }
        }
        (self.next_audio, self.audio_from) = (None, self.part_start);
    }

    pub(super) fn begin_timeline_at(&mut self, start: i64) {
        (self.timeline_start, self.segment_start, self.part_start) = (start, start, start);
        (self.next_audio, self.audio_from, self.silent_until) = (None, start, start);
    }

    /// Where the sound of the parts so far ends, in ticks.
    fn audio_end(&self) -> i64 {
        let ticks = |samples| {
            (i128::from(samples) * i128::from(TICKS_PER_SECOND) / i128::from(self.audio_rate)) as i64
        };
        self.next_audio.map_or(self.audio_from, ticks)
    }

    /// Whether the codec of the sound has silence.
    pub(super) fn has_silence(&self) -> bool {
        self.silence.is_some()
    }

    /// The duration of a frame of sound, in ticks.
    fn audio_frame(&self) -> i64 {
        (i64::from(self.frame_samples) * TICKS_PER_SECOND / self.audio_rate).max(1)
    }

    /// Lets sound follow the sound before that has the time of a picture. The mux of GStreamer gives no frame an earlier time than the frame before
    /// it has, of any track: sound that comes after later pictures has the time of these, and there is no hole before it.
    ///
    /// ```text
    ///   pictures  0      40       80          120 160                    in the order of the mux: 80 and 120 before the sound of 64
    ///   sound       0 21    43                    120 120 120 128 149
    ///   here        0 21    43                     64  85 107 128 149
    /// ```
    pub(super) fn follow(&self, taken: &mut Taken) {
        let (frame, mut next) = (self.audio_frame(), self.audio_end());
        let has_picture = |time: i64| {
            let before = taken.video.partition_point(|picture| picture.dts <= time);
            before.checked_sub(1).is_some_and(|at| time - taken.video[at].dts < SAME_TIME)
        };
        for at in 0..taken.audio.len() {
            let time = taken.audio[at].dts;
            // A frame at a picture by chance has the next one behind its end.
            let after = taken.audio.get(at + 1).map(|unit| unit.dts);
            let is_own = after
                .is_some_and(|after| !has_picture(after) && (after - time - frame).abs() <= 2 * SAME_TIME);
            let behind = time - next;
            if behind > MAX_AUDIO_DRIFT && behind <= MAX_LEAD && has_picture(time) && !is_own {
                let unit = &mut taken.audio[at];
                (unit.dts, unit.pts) = (unit.dts - behind, unit.pts - behind);
            }
            next = next.max(taken.audio[at].dts) + frame;
        }
    }

    /// Fills holes of the sound with silence, and if sound `is_missing`, until `end`. Sound that comes later than the silence in its place
    /// is left out. Returns how many frames those are.
    pub(super) fn fill(&mut self, taken: &mut Taken, end: i64, is_missing: bool) -> usize {
        let Some(silence) = self.silence.clone() else { return 0 };
        let frame = self.audio_frame();
        let count = taken.audio.len();
        taken.audio.retain(|unit| unit.dts + frame / 2 >= self.silent_until);
        let (late, mut next) = (count - taken.audio.len(), self.audio_end());
        let (units, all) = (std::mem::take(&mut taken.audio), &mut taken.audio);
        let mut fill = |all: &mut Vec<AccessUnit>, from: i64, until: i64| {
            let count = ((until - from).min(MAX_FILLED) / frame).max(0);
            let unit =
                |dts| AccessUnit { media: Media::Audio, dts, pts: dts, key: true, data: silence.clone() };
            all.extend((0..count).map(|at| unit(from + at * frame)));
            taken.silent += count as u32;
            from + count * frame
        };
        for unit in units {
            if unit.dts - next > MAX_AUDIO_DRIFT {
                next = fill(all, next, unit.dts);
            }
            next = next.max(unit.dts) + frame;
            all.push(unit);
        }
        if is_missing {
            self.silent_until = fill(all, next, end);
        }
        late
    }

    /// Begins a segment here unless one is open.
    pub(super) fn open_at(&mut self, now: i64) {
        if !self.open {
            self.open = true;
            (self.segment_start, self.part_start) = (now, now);
        }
    }

    /// Makes a part of frames, of which the last picture lasts until `video_end`. The segment ends with its `last` part.
    pub(super) fn close(
        &mut self,
        taken: &Taken,
        [end, video_end]: [i64; 2],
        last: bool,
        timeline: &Timeline,
    ) -> Option<Part> {
        if taken.video.is_empty() && taken.audio.is_empty() {
            // A part is closed when the first frame of the next one is there, and a segment with its last part.
            return None;
        }
        // Late video, after parts without video, does not turn the timeline back.
        let end = end.max(self.part_start + 1);
        let first = if taken.lead == Media::Video { taken.video.first() } else { taken.audio.first() };
        let independent = first.is_some_and(|unit| unit.key);
        if self.index == 0 {
            self.independent = independent;
        }
        let runs: Vec<Run> = [self.video_run(&taken.video, video_end.max(end)), self.audio_run(&taken.audio)]
            .into_iter()
            .filter(|run| !run.samples.is_empty())
            .collect();
        self.fragments = self.fragments.wrapping_add(1);
        let head = cmaf::fragment(self.fragments, &runs);
        let data: Vec<Bytes> = taken.video.iter().chain(&taken.audio).map(|unit| unit.data.clone()).collect();
        let Numbers { sequence, timeline: own, discontinuity } = timeline.part(self.index == 0, &self.init);
        let part = Part {
            sequence,
            index: self.index,
            start_us: microseconds(self.part_start),
            duration_us: microseconds(end - self.part_start).try_into().unwrap_or(u32::MAX),
            independent,
            last,
            discontinuity,
            timeline: own,
            video_frames: taken.video.len() as u32,
            audio_frames: taken.audio.len() as u32 - taken.silent,
            init: self.init.clone(),
            tracks: self.tracks.clone(),
            bytes: head.len() + data.iter().map(Bytes::len).sum::<usize>(),
            head,
            data,
        };
        self.part_start = end;
        self.index += 1;
        if last {
            timeline.end_segment(end - self.segment_start);
            (self.index, self.segment_start) = (0, end);
        }
        Some(part)
    }

    fn video_run(&self, units: &[AccessUnit], end: i64) -> Run {
        let next = units.iter().skip(1).map(|unit| unit.dts).chain([end]);
        let sample = |(unit, next): (&AccessUnit, i64)| Sample {
            duration: (next - unit.dts).clamp(1, i64::from(u32::MAX)) as u32,
            bytes: unit.data.len() as u32,
            key: unit.key,
            offset: (unit.pts - unit.dts) as i32,
        };
        let samples = units.iter().zip(next).map(sample).collect();
        Run { media: Media::Video, time: units.first().map_or(0, |unit| unit.dts.max(0) as u64), samples }
    }

    /// Each audio frame lasts exactly as long as its samples. The last frame before a hole also lasts for the hole.
    fn audio_run(&mut self, units: &[AccessUnit]) -> Run {
        let mut samples: Vec<Sample> = Vec::with_capacity(units.len());
        let mut time = None;
        for unit in units {
            let stated =
                (i128::from(unit.dts) * i128::from(self.audio_rate) / i128::from(TICKS_PER_SECOND)) as i64;
            let drift = MAX_AUDIO_DRIFT * self.audio_rate / TICKS_PER_SECOND;
            let place = match self.next_audio {
                Some(next) if (stated - next).abs() <= drift => next,
                Some(next) => stated.max(next),
                None => stated,
            };
            if let (Some(before), Some(next)) = (samples.last_mut(), self.next_audio) {
                before.duration =
                    before.duration.saturating_add((place - next).clamp(0, i64::from(u32::MAX)) as u32);
            }
            time.get_or_insert(place.max(0) as u64);
            let duration = self.frame_samples;
            samples.push(Sample { duration, bytes: unit.data.len() as u32, key: true, offset: 0 });
            self.next_audio = Some(place + i64::from(duration));
        }
        Run { media: Media::Audio, time: time.unwrap_or(0), samples }
    }
}
