//! A stream: what a publisher sends becomes chunks.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rblive::content::{
    Audio, Container, Description, DescriptionError, Flags, HEADER_BYTES, Header, Kind, MAX_TARGET_US,
    Rendition, Video,
};
use rblive::{ChunkError, RsChunk, RsId, RsManager};
use rblive_media::fmp4::{Fmp4Error, InitSegment};
use rblive_media::segmenter::{Part, Segmenter, SegmenterConfig, SegmenterError};
use rblive_media::ts::{self, TsError};
use rblive_media::unit::{Input, TrackConfig};

use crate::counters::IngestCounters;
use crate::settings::IngestSettings;

/// The id of the only rendition of a stream.
const RENDITION: u16 = 1;

/// Why a stream takes no more of its publisher.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamFailure {
    #[error(transparent)]
    Segmenter(#[from] SegmenterError),
    #[error(transparent)]
    Ts(#[from] TsError),
    #[error(transparent)]
    Fmp4(#[from] Fmp4Error),
    #[error("the encoder sent a media segment before its initialisation segment")]
    NoInit,
    #[error("the encoder sent a segment of {0} seconds; the longest one has an hour")]
    TooLong(u64),
    #[error("the file has no frame of H.264, HEVC or AAC")]
    NoFrames,
    #[error(
        "a segment of {bytes} bytes is too large for the stream's buffer, which takes {most}: raise streams.chunks or \
         streams.chunk_bytes, or let the encoder make shorter segments"
    )]
    TooLarge { bytes: usize, most: usize },
    #[error("a chunk could not be disseminated: {0}")]
    Chunk(#[from] ChunkError),
    #[error("the description of the stream is not valid: {0}")]
    Description(#[from] DescriptionError),
}

/// The state of a stream. It outlives its publishers, so that numbers and times go on when an encoder returns.
pub(crate) struct Stream {
    manager: RsManager,
    id: RsId,
    name: String,
    /// Filled chunks that leave together with the next one, the oldest first.
    held: Vec<RsChunk>,
    config: SegmenterConfig,
    segmenter: Segmenter,
    ts: ts::Demuxer,
    /// The frames of the current file of a transport stream.
    ts_frames: u64,
    /// How often packets were damaged before the current file.
    ts_damaged: u64,
    max_unit: usize,
    passed: Option<(Bytes, InitSegment)>,
    first_sequence: u64,
    /// The number after that of the newest segment.
    next_sequence: u64,
    /// The number of the newest segment's timeline.
    timeline: u64,
    discontinuity: bool,
    /// Where the newest file of fragmented MP4 began.
    passed_us: u64,
    longest_us: u64,
    segment_us: u64,
    segment_bytes: u64,
    bandwidth: u64,
    /// Whether the bandwidth is that of a part alone: no segment was whole yet.
    is_guessed: bool,
    counters: Arc<IngestCounters>,
}

/// The number of a stream's first segment: the time since 1970 in segments, and in seconds where segments are longer. The numbers that a
/// restarted node gives are above those that it gave before, so a delivery node that starts later never lists a lower number than
/// viewers have seen. Encoders that upload shorter segments than configured are an exception.
fn first_sequence(segment_ms: u32) -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64 / u64::from(segment_ms.min(1000))
}

/// The number of a stream's first timeline: the minutes since November 2026. So the numbers that a restarted node gives are above those
/// that it gave before, unless a stream had more timelines than minutes. Finer steps would be larger numbers, and some players take a
/// time for each playlist that grows with the number: hls.js 1.7 looks at all numbers below.
fn first_timeline() -> u64 {
    const NOVEMBER_2026: u64 = 1_793_491_200;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    (since.saturating_sub(NOVEMBER_2026) / 60).max(1)
}

impl Stream {
    pub(crate) fn new(
        manager: RsManager,
        id: RsId,
        name: &str,
        (settings, counters): (&IngestSettings, &Arc<IngestCounters>),
    ) -> Self {
        let config = SegmenterConfig {
            target_ms: settings.segment_ms.max(1),
            part_ms: settings.part_ms.clamp(1, settings.segment_ms.max(1)),
            max_part_bytes: largest(&manager),
            ..SegmenterConfig::default()
        };
        let max_unit = settings.limits.message_bytes;
        let first = first_sequence(config.target_ms);
        Self {
            manager,
            id,
            name: name.to_owned(),
            held: Vec::new(),
            segmenter: Segmenter::new(config.clone(), first),
            config,
            ts: ts::Demuxer::new(max_unit),
            ts_frames: 0,
            ts_damaged: 0,
            max_unit,
            passed: None,
            first_sequence: first,
            next_sequence: first,
            timeline: first_timeline(),
            discontinuity: false,
            passed_us: 0,
            longest_us: 0,
            segment_us: 0,
            segment_bytes: 0,
            bandwidth: 0,
            is_guessed: true,
            counters: counters.clone(),
        }
    }

    pub(crate) fn id(&self) -> RsId {
        self.id
    }

    /// Takes a frame or a configuration. After a failure the stream takes a new timeline, as after [`interrupt`](Self::interrupt).
    pub(crate) fn push(&mut self, input: Input) -> Result<(), StreamFailure> {
        let pushed = self.segmenter.push(input).map_err(StreamFailure::from);
        let pushed = pushed.and_then(|()| self.disseminate());
        self.recovered(pushed)
    }

    /// Takes bytes of a transport stream. After a failure the stream takes a new timeline.
    pub(crate) fn push_ts(&mut self, bytes: &[u8]) -> Result<(), StreamFailure> {
        if self.passed.is_some() {
            self.interrupt()?;
        }
        let pushed = self.ts.push(bytes).map_err(StreamFailure::from).and_then(|()| self.take_ts());
        self.recovered(pushed)
    }

    /// A file of a transport stream is complete. After a failure the stream takes a new timeline.
    pub(crate) fn end_of_ts(&mut self) -> Result<(), StreamFailure> {
        let ended = self.ts.finish().map_err(StreamFailure::from).and_then(|()| self.take_ts());
        let frames = std::mem::take(&mut self.ts_frames);
        let damaged = self.ts.damaged() - std::mem::replace(&mut self.ts_damaged, self.ts.damaged());
        if damaged > 0 {
            tracing::warn!(stream = self.name, damaged, "packets of a file were missing or damaged");
        }
        self.recovered(if frames == 0 { ended.and(Err(StreamFailure::NoFrames)) } else { ended })
    }

    fn take_ts(&mut self) -> Result<(), StreamFailure> {
        while let Some(input) = self.ts.next_input() {
            self.ts_frames += u64::from(matches!(input, Input::Unit(_)));
            self.segmenter.push(input)?;
        }
        self.disseminate()
    }

    /// Begins a new timeline after a failure: demuxers and segmenters do not go on after one.
    fn recovered(&mut self, outcome: Result<(), StreamFailure>) -> Result<(), StreamFailure> {
        if let Err(failure) = &outcome {
            tracing::warn!(
                stream = self.name,
                "what comes next begins a new timeline, after damage: {failure}"
            );
            if let Err(lost) = self.interrupt() {
                tracing::warn!(stream = self.name, "frames before the damage are lost: {lost}");
            }
        }
        outcome
    }

    /// Takes an MP4 file: an initialisation segment, a media segment, or both. After a failure the next one is marked as a
    /// discontinuity; an initialisation segment holds until the next one.
    pub(crate) fn push_mp4(&mut self, file: &Bytes) -> Result<(), StreamFailure> {
        let taken = self.take_mp4(file);
        if let Err(failure) = &taken {
            tracing::warn!(stream = self.name, "a file is left out, and leaves a discontinuity: {failure}");
            self.discontinuity = true;
        }
        taken
    }

    fn take_mp4(&mut self, file: &Bytes) -> Result<(), StreamFailure> {
        let boxed = |kind: &[u8; 4]| file.windows(4).take(4096).any(|window| window == kind);
        if boxed(b"moov") {
            match &self.passed {
                None => self.leave_segmenter()?,
                Some((before, _)) => self.discontinuity |= before != file,
            }
            // If it is damaged, no segment that follows can be played either.
            self.passed = None;
            self.passed = Some((file.clone(), InitSegment::parse(file)?));
            if !boxed(b"moof") {
                return Ok(());
            }
        }
        let (init, parsed) = self.passed.clone().ok_or(StreamFailure::NoInit)?;
        let times = parsed.times(file)?;
        if times.duration_us > MAX_TARGET_US {
            return Err(StreamFailure::TooLong(times.duration_us / 1_000_000));
        }
        self.fits(file.len())?;
        self.longest_us = self.longest_us.max(times.duration_us);
        self.rate(file.len() as u64, times.duration_us);
        let tracks: Vec<&TrackConfig> = parsed.tracks.iter().map(|track| &track.config).collect();
        self.describe(self.next_sequence, &tracks, None)?;
        self.hold(
            Header { sequence: self.next_sequence, rendition: RENDITION, ..Header::new(Kind::Init) },
            |to| to.copy_from_slice(&init),
            init.len(),
        )?;
        let mut flags = Flags::FIRST_PART;
        if times.key {
            flags = flags | Flags::INDEPENDENT;
        }
        // Times that go back begin a timeline, also if the encoder says nothing of it.
        self.discontinuity |= times.start_us < std::mem::replace(&mut self.passed_us, times.start_us);
        if std::mem::take(&mut self.discontinuity) {
            flags = flags | Flags::DISCONTINUITY;
            self.timeline += 1;
        }
        let header = Header {
            flags,
            discontinuities: self.timeline,
            rendition: RENDITION,
            sequence: self.next_sequence,
            duration_us: times.duration_us.try_into().unwrap_or(u32::MAX),
            start_us: times.start_us,
            ..Header::new(Kind::Media)
        };
        self.write_file(header, file)?;
        self.next_sequence += 1;
        Ok(())
    }

    /// Whether the stream's buffer can hold a segment of this size while viewers fetch it.
    fn fits(&self, bytes: usize) -> Result<(), StreamFailure> {
        let streams = &self.manager.config().streams;
        let most = usize::try_from(streams.chunk_bytes * streams.chunks / 2).unwrap_or(usize::MAX);
        if bytes <= most {
            return Ok(());
        }
        IngestCounters::count(&self.counters.oversized, 1);
        Err(StreamFailure::TooLarge { bytes, most })
    }

    /// Writes a segment: as one chunk, or as several that are parts of it. The first one has the duration.
    fn write_file(&mut self, whole: Header, file: &Bytes) -> Result<(), StreamFailure> {
        let pieces: Vec<_> = file.chunks(largest(&self.manager)).collect();
        for (index, piece) in pieces.iter().enumerate() {
            let (first, last) = (index == 0, index + 1 == pieces.len());
            let mut flags = if first { whole.flags } else { Flags::NONE };
            if last {
                flags = flags | Flags::LAST_PART;
            }
            let duration_us = if first { whole.duration_us } else { 0 };
            let header = Header { flags, part: index as u32, duration_us, ..whole };
            self.write(header, |to| to.copy_from_slice(piece), piece.len())?;
        }
        Ok(())
    }

    /// Frames were cut into segments before; now segments are passed on.
    fn leave_segmenter(&mut self) -> Result<(), StreamFailure> {
        self.interrupt()?;
        self.segmenter = Segmenter::new(self.config.clone(), self.next_sequence);
        self.discontinuity |= self.next_sequence > self.first_sequence;
        Ok(())
    }

    /// The publisher is gone, or its input has a hole. The segment ends; what comes next begins a new timeline.
    pub(crate) fn interrupt(&mut self) -> Result<(), StreamFailure> {
        self.segmenter.finish();
        let disseminated = self.disseminate();
        self.ts = ts::Demuxer::new(self.max_unit);
        (self.ts_frames, self.ts_damaged) = (0, 0);
        // The numbers of segments go on, also if the next publisher sends another format.
        if self.passed.take().is_some() || disseminated.is_err() {
            (self.discontinuity, self.passed_us) = (true, 0);
            self.segmenter = Segmenter::new(self.config.clone(), self.next_sequence);
            (self.segment_us, self.segment_bytes) = (0, 0);
        }
        disseminated
    }

    /// Nobody publishes any more.
    pub(crate) fn end(&mut self) {
        let ended = self.write(Header { sequence: self.next_sequence, ..Header::new(Kind::End) }, |_| {}, 0);
        if let Err(failure) = ended
            .map_err(|e| e.to_string())
            .and_then(|()| self.manager.destroy_stream(self.id).map(|_| ()).map_err(|e| e.to_string()))
        {
            tracing::warn!(stream = self.name, "the stream did not end in order: {failure}");
        }
    }

    fn disseminate(&mut self) -> Result<(), StreamFailure> {
        while let Some(part) = self.segmenter.next_part() {
            self.part(&part)?;
        }
        Ok(())
    }

    fn part(&mut self, part: &Part) -> Result<(), StreamFailure> {
        let rate = part.size() as u64 * 8_000_000 / u64::from(part.duration_us.max(1));
        self.segment_us += u64::from(part.duration_us);
        self.segment_bytes += part.size() as u64;
        if part.index == 0 {
            let tracks: Vec<TrackConfig> = self.segmenter.tracks().cloned().collect();
            self.bandwidth = if self.is_guessed { rate } else { self.bandwidth };
            if !tracks.is_empty() {
                self.describe(
                    part.sequence,
                    &tracks.iter().collect::<Vec<_>>(),
                    Some(u64::from(self.config.part_ms) * 1000),
                )?;
            }
            let header = Header { sequence: part.sequence, rendition: RENDITION, ..Header::new(Kind::Init) };
            self.hold(header, |to| to.copy_from_slice(&part.init), part.init.len())?;
        }
        let flag = |set: bool, flag: Flags| if set { flag } else { Flags::NONE };
        let discontinuity = std::mem::take(&mut self.discontinuity) || part.discontinuity;
        self.timeline += u64::from(discontinuity);
        let header = Header {
            flags: flag(part.independent, Flags::INDEPENDENT)
                | flag(discontinuity, Flags::DISCONTINUITY)
                | flag(part.index == 0, Flags::FIRST_PART)
                | flag(part.last, Flags::LAST_PART),
            rendition: RENDITION,
            sequence: part.sequence,
            part: part.index,
            duration_us: part.duration_us,
            start_us: part.start_us,
            discontinuities: self.timeline,
            ..Header::new(Kind::Media)
        };
        match self.write(header, |to| part.copy_to(to), part.size()) {
            Err(StreamFailure::Chunk(error @ ChunkError::TooLarge { .. })) => {
                // The segment is a gap for viewers; the next one is whole again.
                IngestCounters::count(&self.counters.oversized, 1);
                tracing::warn!(stream = self.name, "a frame is left out, raise streams.chunk_bytes: {error}");
            }
            written => written?,
        }
        self.next_sequence = part.sequence + 1;
        if part.last {
            self.longest_us = self.longest_us.max(self.segment_us);
            self.rate(self.segment_bytes, self.segment_us);
            (self.segment_us, self.segment_bytes) = (0, 0);
        }
        Ok(())
    }

    /// Takes the rate of a whole segment into account.
    fn rate(&mut self, bytes: u64, duration_us: u64) {
        let rate = bytes * 8_000_000 / duration_us.max(1);
        self.bandwidth = if std::mem::take(&mut self.is_guessed) { rate } else { self.bandwidth.max(rate) };
    }

    fn describe(
        &mut self,
        sequence: u64,
        tracks: &[&TrackConfig],
        part_us: Option<u64>,
    ) -> Result<(), StreamFailure> {
        let mut rendition = Rendition {
            id: RENDITION,
            codecs: String::new(),
            bandwidth: self.bandwidth,
            video: None,
            audio: None,
        };
        for track in tracks {
            let name = match track {
                TrackConfig::Video(video) => {
                    let (width, height, frames_per_1000_s) =
                        (video.width, video.height, video.frames_per_1000_s);
                    rendition.video = Some(Video { width, height, frames_per_1000_s });
                    &video.name
                }
                TrackConfig::Audio(audio) => {
                    let (sample_rate, channels) = (audio.sample_rate, audio.channels);
                    rendition.audio = Some(Audio { sample_rate, channels, language: String::new() });
                    &audio.name
                }
            };
            let comma = if rendition.codecs.is_empty() { "" } else { "," };
            rendition.codecs += &format!("{comma}{name}");
        }
        let description = Description {
            name: self.name.clone(),
            container: Container::Cmaf,
            target_duration_us: self.longest_us.max(u64::from(self.config.target_ms) * 1000),
            part_target_us: part_us,
            renditions: vec![rendition],
        };
        let json = description.to_json()?;
        self.hold(
            Header { sequence, ..Header::new(Kind::Description) },
            |to| to.copy_from_slice(&json),
            json.len(),
        )
    }

    /// Writes a chunk, and with it those that are held.
    fn write(
        &mut self,
        header: Header,
        fill: impl FnOnce(&mut [u8]),
        bytes: usize,
    ) -> Result<(), StreamFailure> {
        self.hold(header, fill, bytes)?;
        self.release()
    }

    /// Fills a chunk that leaves with the next one: the payload goes straight into the stream's buffer.
    fn hold(
        &mut self,
        header: Header,
        fill: impl FnOnce(&mut [u8]),
        bytes: usize,
    ) -> Result<(), StreamFailure> {
        let allocated = self.manager.allocate_chunk(self.id, HEADER_BYTES + bytes);
        let Ok(mut chunk) = allocated else {
            // What is held is whole, and must not wait.
            self.release()?;
            return allocated.map(drop).map_err(StreamFailure::from);
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        // The chunk's size was checked against the largest allowed one, which has 32 bits.
        let header = Header { produced_ns: now, payload_bytes: bytes as u32, ..header };
        let (head, payload) = chunk.bytes_mut().split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header.encode());
        fill(payload);
        self.held.push(chunk);
        Ok(())
    }

    /// Disseminates what is held, the newest chunk first: all of it leaves with the oldest one, and wakes each node once.
    fn release(&mut self) -> Result<(), StreamFailure> {
        for chunk in std::mem::take(&mut self.held).into_iter().rev() {
            let size = chunk.size();
            self.manager.disseminate_chunk(chunk, size, None)?;
        }
        Ok(())
    }
}

/// The most bytes of a chunk's payload.
fn largest(manager: &RsManager) -> usize {
    usize::try_from(manager.config().streams.chunk_bytes).unwrap_or(usize::MAX) - HEADER_BYTES
}
