//! A stream: what a publisher sends becomes chunks.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rblive::content::{
    Audio, Container, Description, DescriptionError, Flags, HEADER_BYTES, Header, Kind, Rendition, Video,
};
use rblive::{ChunkError, RsId, RsManager};
use rblive_media::fmp4::{Fmp4Error, InitSegment};
use rblive_media::segmenter::{Part, Segmenter, SegmenterConfig, SegmenterError};
use rblive_media::ts::{self, TsError};
use rblive_media::unit::{Input, TrackConfig};

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
    #[error("the file has no frame of H.264, HEVC or AAC")]
    NoFrames,
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
    config: SegmenterConfig,
    segmenter: Segmenter,
    ts: ts::Demuxer,
    /// The frames of the current file of a transport stream.
    ts_frames: u64,
    /// How often packets were damaged before the current file.
    ts_damaged: u64,
    max_unit: usize,
    passed: Option<(Bytes, InitSegment)>,
    /// The number after that of the newest segment.
    next_sequence: u64,
    discontinuity: bool,
    longest_us: u64,
    segment_us: u64,
    segment_bytes: u64,
    bandwidth: u64,
}

impl Stream {
    pub(crate) fn new(manager: RsManager, id: RsId, name: &str, settings: &IngestSettings) -> Self {
        let config = SegmenterConfig {
            target_ms: settings.segment_ms.max(1),
            part_ms: settings.part_ms.clamp(1, settings.segment_ms.max(1)),
            ..SegmenterConfig::default()
        };
        let max_unit = settings.limits.message_bytes;
        Self {
            manager,
            id,
            name: name.to_owned(),
            segmenter: Segmenter::new(config.clone(), 0),
            config,
            ts: ts::Demuxer::new(max_unit),
            ts_frames: 0,
            ts_damaged: 0,
            max_unit,
            passed: None,
            next_sequence: 0,
            discontinuity: false,
            longest_us: 0,
            segment_us: 0,
            segment_bytes: 0,
            bandwidth: 0,
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
        self.longest_us = self.longest_us.max(times.duration_us);
        self.bandwidth = self.bandwidth.max(file.len() as u64 * 8_000_000 / times.duration_us.max(1));
        let tracks: Vec<&TrackConfig> = parsed.tracks.iter().map(|track| &track.config).collect();
        self.describe(self.next_sequence, &tracks, None)?;
        self.write(
            Header { sequence: self.next_sequence, rendition: RENDITION, ..Header::new(Kind::Init) },
            |to| to.copy_from_slice(&init),
            init.len(),
        )?;
        let mut flags = Flags::FIRST_PART | Flags::LAST_PART;
        if times.key {
            flags = flags | Flags::INDEPENDENT;
        }
        if std::mem::take(&mut self.discontinuity) {
            flags = flags | Flags::DISCONTINUITY;
        }
        let header = Header {
            flags,
            rendition: RENDITION,
            sequence: self.next_sequence,
            duration_us: times.duration_us.try_into().unwrap_or(u32::MAX),
            start_us: times.start_us,
            ..Header::new(Kind::Media)
        };
        self.write(header, |to| to.copy_from_slice(file), file.len())?;
        self.next_sequence += 1;
        Ok(())
    }

    /// Frames were cut into segments before; now segments are passed on.
    fn leave_segmenter(&mut self) -> Result<(), StreamFailure> {
        self.interrupt()?;
        self.segmenter = Segmenter::new(self.config.clone(), self.next_sequence);
        self.discontinuity |= self.next_sequence > 0;
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
            self.discontinuity = true;
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
            self.bandwidth = if self.bandwidth == 0 { rate } else { self.bandwidth };
            if !tracks.is_empty() {
                self.describe(
                    part.sequence,
                    &tracks.iter().collect::<Vec<_>>(),
                    Some(u64::from(self.config.part_ms) * 1000),
                )?;
            }
            let header = Header { sequence: part.sequence, rendition: RENDITION, ..Header::new(Kind::Init) };
            self.write(header, |to| to.copy_from_slice(&part.init), part.init.len())?;
        }
        let flag = |set: bool, flag: Flags| if set { flag } else { Flags::NONE };
        let discontinuity = std::mem::take(&mut self.discontinuity) || part.discontinuity;
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
            ..Header::new(Kind::Media)
        };
        self.write(header, |to| part.copy_to(to), part.size())?;
        self.next_sequence = part.sequence + 1;
        if part.last {
            self.longest_us = self.longest_us.max(self.segment_us);
            self.bandwidth = self.bandwidth.max(self.segment_bytes * 8_000_000 / self.segment_us.max(1));
            (self.segment_us, self.segment_bytes) = (0, 0);
        }
        Ok(())
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
        self.write(
            Header { sequence, ..Header::new(Kind::Description) },
            |to| to.copy_from_slice(&json),
            json.len(),
        )
    }

    /// Writes a chunk: the payload goes straight into the stream's buffer.
    fn write(&self, header: Header, fill: impl FnOnce(&mut [u8]), bytes: usize) -> Result<(), StreamFailure> {
        let size = HEADER_BYTES + bytes;
        let mut chunk = self.manager.allocate_chunk(self.id, size)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        // The chunk's size was checked against the largest allowed one, which has 32 bits.
        let header = Header { produced_ns: now, payload_bytes: bytes as u32, ..header };
        let (head, payload) = chunk.bytes_mut().split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header.encode());
        fill(payload);
        self.manager.disseminate_chunk(chunk, size, None)?;
        Ok(())
    }
}
