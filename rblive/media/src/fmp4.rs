//! Reads fragmented MP4 that is passed on unchanged: the tracks of an initialisation segment, and the times of a media segment.
//!
//! Only these boxes are read. Nothing is allocated by a number in the input.

use std::ops::Range;

use bytes::Bytes;

use crate::cmaf::{self, Run, Sample};
use crate::codec::{ConfigError, audio_config, video_config};
use crate::unit::{AccessUnit, AudioCodec, Media, TICKS_PER_SECOND, TrackConfig, VideoCodec};

/// The most tracks that are read.
const MAX_TRACKS: usize = 16;

/// Why input is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fmp4Error {
    /// A box ends too early, or a necessary one is missing.
    #[error("the encoder's MP4 is damaged: the box {0} is missing or cut")]
    Damaged(&'static str),
    /// The initialisation segment has no track that is played.
    #[error("the encoder's MP4 has no track of H.264, HEVC, AV1, AAC, AC-3 or E-AC-3")]
    NoTrack,
    /// A configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// A track of an initialisation segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// The configuration.
    pub config: TrackConfig,
    id: u32,
    time_scale: u32,
    default_duration: u32,
    default_size: u32,
    default_flags: u32,
}

/// An initialisation segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitSegment {
    /// The tracks that are played.
    pub tracks: Vec<Track>,
}

/// The times of a media segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentTimes {
    /// The decoding time of the first frame, in microseconds.
    pub start_us: u64,
    /// The duration of the video track, or of the only track, in microseconds.
    pub duration_us: u64,
    /// Whether the segment begins with a key frame.
    pub key: bool,
    /// The frames of that track.
    pub frames: u64,
}

/// The boxes in a slice, until one does not fit.
fn boxes(mut bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_first_chunk::<8>()?;
        let [a, b, c, d, kind @ ..] = *head;
        let (size, rest, head) = match u32::from_be_bytes([a, b, c, d]) {
            0 => (bytes.len() as u64, rest, 8),
            1 => {
                let (size, rest) = rest.split_first_chunk()?;
                (u64::from_be_bytes(*size), rest, 16)
            }
            size => (u64::from(size), rest, 8),
        };
        let content = rest.get(..usize::try_from(size.checked_sub(head)?).ok()?)?;
        bytes = &rest[content.len()..];
        Some((kind, content))
    })
}

/// Parts a file: the initialisation segment at its beginning, up to the end of `moov`, and the media segment behind it. `None`: the file has no
/// such part.
pub fn split(file: &Bytes) -> (Option<Bytes>, Option<Bytes>) {
    let mut end = 0;
    for (kind, content) in boxes(file) {
        let after = content.as_ptr().addr() - file.as_ptr().addr() + content.len();
        match &kind {
            b"moov" => end = after,
            b"moof" => break,
            _ => {}
        }
    }
    let (init, media) = (file.slice(..end), file.slice(end..));
    let has_media = boxes(&media).any(|(kind, _)| kind == *b"moof");
    (Some(init).filter(|init| !init.is_empty()), Some(media).filter(|_| has_media))
}

fn find<'a>(bytes: &'a [u8], path: &[&[u8; 4]]) -> Option<&'a [u8]> {
    path.iter()
        .try_fold(bytes, |bytes, name| boxes(bytes).find(|(kind, _)| kind == *name).map(|found| found.1))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

impl InitSegment {
    /// Reads an initialisation segment.
    ///
    /// # Errors
    /// [`Fmp4Error`]: the bytes are no initialisation segment, or have no track that is played.
    pub fn parse(bytes: &Bytes) -> Result<Self, Fmp4Error> {
        let moov = find(bytes, &[b"moov"]).ok_or(Fmp4Error::Damaged("moov"))?;
        let mvex = find(moov, &[b"mvex"]).ok_or(Fmp4Error::Damaged("mvex"))?;
        let mut tracks = Vec::new();
        for (_, trak) in boxes(moov).filter(|(kind, _)| kind == b"trak").take(MAX_TRACKS) {
            let id = track_id(trak).ok_or(Fmp4Error::Damaged("tkhd"))?;
            let mdhd = find(trak, &[b"mdia", b"mdhd"]).ok_or(Fmp4Error::Damaged("mdhd"))?;
            let at = if mdhd.first() == Some(&1) { 20 } else { 12 };
            let time_scale = word(mdhd, at).filter(|scale| *scale > 0).ok_or(Fmp4Error::Damaged("mdhd"))?;
            let Some(config) = config(trak)? else { continue };
            let own = |trex: &&[u8]| word(trex, 4) == Some(id);
            let trex = boxes(mvex).filter(|(kind, _)| kind == b"trex").map(|(_, trex)| trex).find(own);
            let trex = trex.ok_or(Fmp4Error::Damaged("trex"))?;
            let default = |at| word(trex, at).ok_or(Fmp4Error::Damaged("trex"));
            let (default_duration, default_size, default_flags) = (default(12)?, default(16)?, default(20)?);
            tracks.push(Track { config, id, time_scale, default_duration, default_size, default_flags });
        }
        if tracks.is_empty() { Err(Fmp4Error::NoTrack) } else { Ok(Self { tracks }) }
    }

    /// Whether this one has pictures alone and the other sound alone, or the other way round.
    pub fn shares_no_kind(&self, other: &Self) -> bool {
        let kinds = |own: &Self, kind| own.tracks.iter().any(|track| track.config.media() == kind);
        [Media::Video, Media::Audio].into_iter().all(|kind| kinds(self, kind) != kinds(other, kind))
    }

    fn video(&self) -> Option<&Track> {
        self.tracks.iter().find(|track| track.config.media() == Media::Video)
    }

    /// Reads when a media segment begins and ends.
    ///
    /// # Errors
    /// [`Fmp4Error`]: the bytes are no media segment of these tracks.
    pub fn times(&self, segment: &[u8]) -> Result<SegmentTimes, Fmp4Error> {
        let track = self.video().unwrap_or(&self.tracks[0]);
        let (mut first, mut duration, mut frames) = (None, 0u64, 0u64);
        let mut covered = 0;
        for (kind, content) in boxes(segment) {
            covered += content.len();
            if kind != *b"moof" {
                continue;
            }
            let fragment = fragment(track, content)?;
            let Some((time, key, length, count)) = fragment else { continue };
            first.get_or_insert((time, key));
            duration = duration.saturating_add(length);
            frames += count;
        }
        let (time, key) = first.filter(|_| covered > 0).ok_or(Fmp4Error::Damaged("moof"))?;
        let us = |units: u64| {
            let us = u128::from(units) * 1_000_000 / u128::from(track.time_scale);
            u64::try_from(us).unwrap_or(u64::MAX)
        };
        Ok(SegmentTimes { start_us: us(time), duration_us: us(duration), key, frames })
    }

    /// Takes the frames of all tracks out of a media segment, by their decoding time. They share its memory.
    ///
    /// # Errors
    /// [`Fmp4Error`]: the bytes are no media segment of these tracks, or a frame is not within them.
    pub fn frames(&self, segment: &Bytes) -> Result<Vec<AccessUnit>, Fmp4Error> {
        let (mut frames, mut base) = (Vec::new(), 0);
        for (kind, content) in boxes(segment) {
            let end = content.as_ptr().addr() - segment.as_ptr().addr() + content.len();
            if kind == *b"moof" {
                for track in &self.tracks {
                    let found = track.frames(segment, base..end, content, &mut frames);
                    found.ok_or(Fmp4Error::Damaged("moof"))?;
                }
            }
            base = end;
        }
        frames.sort_by_key(|frame| frame.dts);
        Ok(frames)
    }

    /// Makes an MP4 file of one picture: the key frame with which a media segment begins. `segment` is its beginning, with the whole
    /// of the first `moof`. Returns the bytes before the frame in the file, and the range of the frame in the segment, which may be
    /// beyond the end of `segment`. `None`: the segment does not begin with a key frame of at most `max_frame_bytes`.
    pub fn still(&self, segment: &[u8], max_frame_bytes: u32) -> Option<(Vec<u8>, Range<usize>)> {
        let track = self.video()?;
        let mut base = 0;
        let moof = loop {
            let size = usize::try_from(word(segment, base)?).ok().filter(|size| *size >= 8)?;
            let (head, content) = segment.get(base..base.checked_add(size)?)?.split_at(8);
            if head[4..] == *b"moof" {
                break content;
            }
            base += size;
        };
        let frame = first_frame(track, moof, base)?;
        let bytes = u32::try_from(frame.len()).ok().filter(|bytes| *bytes <= max_frame_bytes)?;
        let sample = Sample { duration: cmaf::time_scale(&track.config), bytes, key: true, offset: 0 };
        let mut head = cmaf::init(std::slice::from_ref(&track.config));
        head.extend(cmaf::fragment(1, &[Run { media: Media::Video, time: 0, samples: vec![sample] }]));
        Some((head, frame))
    }
}

impl Track {
    /// Adds the frames of a fragment, whose `moof` is at this place of the segment.
    fn frames(
        &self,
        segment: &Bytes,
        moof: Range<usize>,
        content: &[u8],
        to: &mut Vec<AccessUnit>,
    ) -> Option<()> {
        let Some(traf) = traf_of(self, content) else { return Some(()) };
        let defaults = defaults(self, traf)?;
        let (mut time, media) = (decode_time(traf)?, self.config.media());
        // Without an offset, the data follows the fragment and the head of the `mdat`, and a run the run before.
        let mut at = moof.end.checked_add(8)?;
        for (_, trun) in boxes(traf).filter(|(kind, _)| kind == b"trun") {
            let (present, count) = (word(trun, 0)?, word(trun, 4)?);
            let mut columns = Columns { bytes: trun, present, at: 8 };
            if let Some(offset) = columns.next(1) {
                at = moof.start.checked_add_signed(isize::try_from(offset?.cast_signed()).ok()?)?;
            }
            let mut first_flags = columns.next(4);
            for _ in 0..count {
                let duration = columns.next(0x100).unwrap_or(Some(defaults.duration))?;
                let size = usize::try_from(columns.next(0x200).unwrap_or(Some(defaults.size))?).ok()?;
                let flags = columns.next(0x400).unwrap_or(Some(defaults.flags));
                let flags = first_flags.take().unwrap_or(flags)?;
                let shift = i64::from(columns.next(0x800).unwrap_or(Some(0))?.cast_signed());
                let end = at.checked_add(size)?;
                // Each frame has bytes of the segment, so that there are no more of them than bytes.
                if size == 0 || end > segment.len() {
                    return None;
                }
                let key = media == Media::Audio || flags & 0x1_0000 == 0;
                let begin = i128::from(time);
                let (dts, pts) = (self.ticks(begin)?, self.ticks(begin + i128::from(shift))?);
                to.push(AccessUnit { media, dts, pts, key, data: segment.slice(at..end) });
                (at, time) = (end, time.checked_add(u64::from(duration))?);
            }
        }
        Some(())
    }

    fn ticks(&self, time: i128) -> Option<i64> {
        i64::try_from(time * i128::from(TICKS_PER_SECOND) / i128::from(self.time_scale)).ok()
    }
}

/// The values of a `trun`, one after the other.
struct Columns<'a> {
    bytes: &'a [u8],
    present: u32,
    at: usize,
}

impl Columns<'_> {
    /// The next value, if the bit of its kind is set; `Some(None)`: the box ends before it.
    fn next(&mut self, bit: u32) -> Option<Option<u32>> {
        (self.present & bit != 0).then(|| {
            self.at += 4;
            word(self.bytes, self.at - 4)
        })
    }
}

/// The place of the first frame of a track in a segment whose `moof` begins at `base`, if it is a key frame.
fn first_frame(track: &Track, moof: &[u8], base: usize) -> Option<Range<usize>> {
    let traf = traf_of(track, moof)?;
    let defaults = defaults(track, traf)?;
    let trun = find(traf, &[b"trun"])?;
    let (key, ..) = run(trun, &defaults)?;
    let present = word(trun, 0)?;
    // Offsets count from the `moof`. Without one, the data follows it and the head of the `mdat`.
    let offset = if present & 1 != 0 { usize::try_from(word(trun, 8)?).ok()? } else { moof.len() + 16 };
    let columns = 8 + 4 * ((present & 1) + (present >> 2 & 1) + (present >> 8 & 1)) as usize;
    let size = if present & 0x200 != 0 { word(trun, columns)? } else { defaults.size };
    let begin = base.checked_add(offset)?;
    (key && size > 0).then_some(begin..begin.checked_add(usize::try_from(size).ok()?)?)
}

fn track_id(trak: &[u8]) -> Option<u32> {
    let tkhd = find(trak, &[b"tkhd"])?;
    word(tkhd, if tkhd.first() == Some(&1) { 20 } else { 12 })
}

/// The configuration of a track; `None` of one that is not played.
fn config(trak: &[u8]) -> Result<Option<TrackConfig>, Fmp4Error> {
    let stsd = find(trak, &[b"mdia", b"minf", b"stbl", b"stsd"]).ok_or(Fmp4Error::Damaged("stsd"))?;
    let entries = stsd.get(8..).ok_or(Fmp4Error::Damaged("stsd"))?;
    let (kind, entry) = boxes(entries).next().ok_or(Fmp4Error::Damaged("stsd"))?;
    let video = |codec, record: &'static [u8; 4], name| {
        let content = entry.get(78..).and_then(|content| find(content, &[record]));
        let content = Bytes::copy_from_slice(content.ok_or(Fmp4Error::Damaged(name))?);
        Ok(Some(TrackConfig::Video(video_config(codec, content)?)))
    };
    let audio =
        |codec, record| Ok(Some(TrackConfig::Audio(audio_config(codec, Bytes::copy_from_slice(record))?)));
    let dolby = |codec, record: &'static [u8; 4], name| {
        let content = entry.get(28..).and_then(|content| find(content, &[record]));
        audio(codec, content.ok_or(Fmp4Error::Damaged(name))?)
    };
    match &kind {
        b"avc1" | b"avc3" => video(VideoCodec::H264, b"avcC", "avcC"),
        b"hvc1" | b"hev1" => video(VideoCodec::Hevc, b"hvcC", "hvcC"),
        b"av01" => video(VideoCodec::Av1, b"av1C", "av1C"),
        b"mp4a" => {
            let esds = entry.get(28..).and_then(|content| find(content, &[b"esds"]));
            let record = esds.and_then(specific_config).ok_or(Fmp4Error::Damaged("esds"))?;
            audio(AudioCodec::Aac, record)
        }
        b"ac-3" => dolby(AudioCodec::Ac3, b"dac3", "dac3"),
        b"ec-3" => dolby(AudioCodec::EAc3, b"dec3", "dec3"),
        _ => Ok(None),
    }
}

/// The `AudioSpecificConfig` in an `esds` box.
fn specific_config(esds: &[u8]) -> Option<&[u8]> {
    let stream = descriptor(esds.get(4..)?, 3)?;
    let skipped = match *stream.get(2)? {
        0 => 3,
        flags => {
            let url = if flags & 0x40 != 0 { 1 + usize::from(*stream.get(3)?) } else { 0 };
            3 + if flags & 0x80 != 0 { 2 } else { 0 } + url + if flags & 0x20 != 0 { 2 } else { 0 }
        }
    };
    let decoder = descriptor(stream.get(skipped..)?, 4)?;
    descriptor(decoder.get(13..)?, 5)
}

/// The content of a descriptor with this tag at the beginning.
fn descriptor(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    let (&found, mut rest) = bytes.split_first()?;
    let mut length = 0;
    for _ in 0..4 {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        length = length << 7 | usize::from(byte & 0x7F);
        if byte & 0x80 == 0 {
            break;
        }
    }
    rest.get(..length).filter(|_| found == tag)
}

/// The first decoding time, whether the first sample is a key frame, the duration and the samples of a track in a `moof`.
fn fragment(track: &Track, moof: &[u8]) -> Result<Option<(u64, bool, u64, u64)>, Fmp4Error> {
    let Some(traf) = traf_of(track, moof) else { return Ok(None) };
    let defaults = defaults(track, traf).ok_or(Fmp4Error::Damaged("tfhd"))?;
    let time = decode_time(traf).ok_or(Fmp4Error::Damaged("tfdt"))?;
    let (mut key, mut total, mut count) = (None, 0u64, 0);
    for (_, trun) in boxes(traf).filter(|(kind, _)| kind == b"trun") {
        let run = run(trun, &defaults).ok_or(Fmp4Error::Damaged("trun"))?;
        key.get_or_insert(run.0);
        total = total.saturating_add(run.1);
        count += run.2;
    }
    Ok(key.map(|key| (time, key, total, count)))
}

fn traf_of<'a>(track: &Track, moof: &'a [u8]) -> Option<&'a [u8]> {
    let own = |traf: &&[u8]| find(traf, &[b"tfhd"]).and_then(|tfhd| word(tfhd, 4)) == Some(track.id);
    boxes(moof).filter(|(kind, _)| kind == b"traf").map(|(_, traf)| traf).find(own)
}

fn decode_time(traf: &[u8]) -> Option<u64> {
    let tfdt = find(traf, &[b"tfdt"])?;
    if tfdt.first()? == &1 {
        tfdt.get(4..)?.first_chunk().copied().map(u64::from_be_bytes)
    } else {
        word(tfdt, 4).map(u64::from)
    }
}

/// Properties of samples that do not state them.
struct Defaults {
    duration: u32,
    size: u32,
    flags: u32,
}

fn defaults(track: &Track, traf: &[u8]) -> Option<Defaults> {
    let tfhd = find(traf, &[b"tfhd"])?;
    let present = word(tfhd, 0)?;
    let mut at = 8 + if present & 1 != 0 { 8 } else { 0 } + if present & 2 != 0 { 4 } else { 0 };
    let mut next = |bit: u32| {
        (present & bit != 0).then(|| {
            at += 4;
            word(tfhd, at - 4)
        })
    };
    let duration = next(8).unwrap_or(Some(track.default_duration))?;
    let size = next(0x10).unwrap_or(Some(track.default_size))?;
    Some(Defaults { duration, size, flags: next(0x20).unwrap_or(Some(track.default_flags))? })
}

/// Whether the first sample is a key frame, the duration, and the number of samples.
fn run(trun: &[u8], defaults: &Defaults) -> Option<(bool, u64, u64)> {
    let (present, count) = (word(trun, 0)?, word(trun, 4)?);
    let mut at = 8 + if present & 1 != 0 { 4 } else { 0 };
    let mut flags = defaults.flags;
    if present & 4 != 0 {
        flags = word(trun, at)?;
        at += 4;
    }
    let columns = (present >> 8 & 15).count_ones() as usize;
    let samples = trun.get(at..at.checked_add((count as usize).checked_mul(4 * columns)?)?)?;
    if present & 4 == 0 && present & 0x400 != 0 && count > 0 {
        flags = word(samples, (present >> 8 & 3).count_ones() as usize * 4)?;
    }
    let duration = match present & 0x100 {
        0 => u64::from(defaults.duration) * u64::from(count),
        _ => samples.chunks_exact(4 * columns).filter_map(|sample| word(sample, 0)).map(u64::from).sum(),
    };
    Some((flags & 0x1_0000 == 0, duration, u64::from(count)))
}
