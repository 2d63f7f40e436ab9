//! Files of a transport stream: their frames, and of one that passes unchanged its times and tracks.

use bytes::BytesMut;
use rblive_media::fmp4::SegmentTimes;
use rblive_media::ts::{Demuxer, TsError};
use rblive_media::unit::{AccessUnit, Input, Media, TICKS_PER_SECOND, TrackConfig};

/// The duration of a frame whose file has no other, in ticks.
const USUAL_TICKS: i64 = TICKS_PER_SECOND / 25;

/// Reads files of a transport stream, each in pieces.
#[derive(Debug)]
pub(crate) struct TsReader {
    max_unit: usize,
    demuxer: Demuxer,
    /// The bytes of the current file so far.
    pub(crate) bytes: usize,
    /// Its frames.
    frames: u64,
    /// How often packets were damaged before it.
    damaged: u64,
}

/// What a file of a transport stream had.
#[derive(Debug)]
pub(crate) struct TsEnd {
    pub(crate) bytes: usize,
    pub(crate) frames: u64,
    /// How often packets were missing or damaged.
    pub(crate) damaged: u64,
}

impl TsReader {
    pub(crate) fn new(max_unit: usize) -> Self {
        Self { max_unit, demuxer: Demuxer::new(max_unit), bytes: 0, frames: 0, damaged: 0 }
    }

    /// Forgets the current file and all before.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.max_unit);
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), TsError> {
        self.bytes += bytes.len();
        self.demuxer.push(bytes)
    }

    /// The next item of the files.
    pub(crate) fn next_input(&mut self) -> Option<Input> {
        let input = self.demuxer.next_input()?;
        self.frames += u64::from(matches!(input, Input::Unit(_)));
        Some(input)
    }

    /// Takes the current file as complete. Its last items follow.
    pub(crate) fn finish(&mut self) -> Result<(), TsError> {
        self.demuxer.finish()
    }

    /// Ends the current file, after its last item.
    pub(crate) fn end(&mut self) -> TsEnd {
        let before = std::mem::replace(&mut self.damaged, self.demuxer.damaged());
        let damaged = self.damaged - before;
        TsEnd { bytes: std::mem::take(&mut self.bytes), frames: std::mem::take(&mut self.frames), damaged }
    }
}

/// A file that is being received, and passes unchanged.
#[derive(Debug, Default)]
pub(crate) struct PassthroughFile {
    /// The bytes so far.
    pub(crate) bytes: BytesMut,
    video: Span,
    audio: Span,
    key: bool,
    /// The newest configurations, video first, also from files before.
    tracks: Vec<TrackConfig>,
    /// Whether a configuration is another than in the file before.
    changed: bool,
}

/// The decoding times of a track's frames.
#[derive(Debug, Default, Clone, Copy)]
struct Span {
    first: i64,
    last: i64,
    frames: u64,
}

impl Span {
    fn add(&mut self, dts: i64) {
        self.first = if self.frames == 0 { dts } else { self.first };
        (self.last, self.frames) = (dts, self.frames + 1);
    }

    /// The duration of all frames. The last frame has no successor in the file, and counts as long as the average of the others.
    fn duration(&self) -> i64 {
        let between = self.last.saturating_sub(self.first).max(0);
        match i64::try_from(self.frames).unwrap_or(i64::MAX) {
            0 | 1 => USUAL_TICKS,
            frames => between / (frames - 1) * frames + between % (frames - 1),
        }
    }
}

impl PassthroughFile {
    /// Records an item of the demuxer.
    pub(crate) fn take(&mut self, input: Input) {
        match input {
            Input::Tracks { .. } => {}
            Input::Config(config) => match self.tracks.iter_mut().find(|own| own.media() == config.media()) {
                Some(own) if *own == config => {}
                Some(own) => (*own, self.changed) = (config, true),
                None if config.media() == Media::Video => self.tracks.insert(0, config),
                None => self.tracks.push(config),
            },
            Input::Unit(AccessUnit { media: Media::Video, dts, key, .. }) => {
                self.key |= key && self.video.frames == 0;
                self.video.add(dts);
            }
            Input::Unit(AccessUnit { dts, .. }) => self.audio.add(dts),
        }
    }

    /// Ends the file. Returns its bytes, its times (`None` if it has no frame), and whether a configuration has changed.
    pub(crate) fn end(&mut self) -> (BytesMut, Option<SegmentTimes>, bool) {
        let own = std::mem::take(self);
        let span = if own.video.frames > 0 { own.video } else { own.audio };
        let us = |ticks: i64| u64::try_from(i128::from(ticks) * 1_000_000 / i128::from(TICKS_PER_SECOND));
        let times = SegmentTimes {
            start_us: us(span.first).unwrap_or(0),
            duration_us: us(span.duration()).unwrap_or(0),
            key: own.key || own.video.frames == 0,
            frames: span.frames,
        };
        self.tracks = own.tracks;
        (own.bytes, (span.frames > 0).then_some(times), own.changed)
    }

    /// The tracks.
    pub(crate) fn tracks(&self) -> Vec<TrackConfig> {
        self.tracks.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(media: Media, dts: i64, key: bool) -> Input {
        Input::Unit(AccessUnit { media, dts, pts: dts, key, data: bytes::Bytes::new() })
    }

    #[test]
    fn times_are_those_of_the_picture() {
        let mut file = PassthroughFile::default();
        assert!(file.end().1.is_none());
        for frame in 0..50 {
            file.take(unit(Media::Audio, 90_000 + frame * 1920, true));
            file.take(unit(Media::Video, 99_000 + frame * 3600, frame % 25 == 0));
        }
        let times = file.end().1.unwrap();
        assert_eq!(
            times,
            SegmentTimes { start_us: 1_100_000, duration_us: 2_000_000, key: true, frames: 50 }
        );
        file.take(unit(Media::Video, 279_000, false));
        let times = file.end().1.unwrap();
        assert_eq!((times.duration_us, times.key), (40_000, false));
        file.take(unit(Media::Audio, 0, true));
        file.take(unit(Media::Audio, 1920, true));
        let times = file.end().1.unwrap();
        assert_eq!((times.start_us, times.duration_us, times.key), (0, 42_666, true));
    }
}
