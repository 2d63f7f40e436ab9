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
    max_unit: usize,
    passed: Option<(Bytes, InitSegment)>,
    /// The number of the next segment that is passed on as it is.
    next_passed: u64,
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
            max_unit,
            passed: None,
            next_passed: 0,
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

    /// Takes a frame or a configuration.
    pub(crate) fn push(&mut self, input: Input) -> Result<(), StreamFailure> {
        self.segmenter.push(input)?;
        self.disseminate()
    }

    /// Takes bytes of a transport stream.
    pub(crate) fn push_ts(&mut self, bytes: &[u8]) -> Result<(), StreamFailure> {
        self.ts.push(bytes)?;
        self.take_ts()
    }

    /// A file of a transport stream is complete.
    pub(crate) fn end_of_ts(&mut self) -> Result<(), StreamFailure> {
        self.ts.finish()?;
        self.take_ts()
    }

    fn take_ts(&mut self) -> Result<(), StreamFailure> {
        while let Some(input) = self.ts.next_input() {
            self.segmenter.push(input)?;
        }
        self.disseminate()
    }

    /// Takes an MP4 file: an initialisation segment, a media segment, or both.
    pub(crate) fn push_mp4(&mut self, file: Bytes) -> Result<(), StreamFailure> {
        let boxed = |kind: &[u8; 4]| file.windows(4).take(4096).any(|window| window == kind);
        if boxed(b"moov") {
            let init = InitSegment::parse(&file)?;
            if self.passed.as_ref().is_some_and(|(before, _)| *before != file) {
                self.discontinuity = true;
            }
            self.passed = Some((file.clone(), init));
            if !boxed(b"moof") {
                return Ok(());
            }
        }
        let (init, parsed) = self.passed.clone().ok_or(StreamFailure::NoInit)?;
        let times = parsed.times(&file)?;
        self.longest_us = self.longest_us.max(times.duration_us);
        self.bandwidth = self.bandwidth.max(file.len() as u64 * 8_000_000 / times.duration_us.max(1));
        let tracks: Vec<&TrackConfig> = parsed.tracks.iter().map(|track| &track.config).collect();
        self.describe(self.next_passed, &tracks, None)?;
        self.write(
            Header { sequence: self.next_passed, rendition: RENDITION, ..Header::new(Kind::Init) },
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
            sequence: self.next_passed,
            duration_us: times.duration_us.try_into().unwrap_or(u32::MAX),
            start_us: times.start_us,
            ..Header::new(Kind::Media)
        };
        self.next_passed += 1;
        self.write(header, |to| to.copy_from_slice(&file), file.len())
    }

    /// The publisher is gone. The segment ends; the next publisher begins a new timeline.
    pub(crate) fn interrupt(&mut self) -> Result<(), StreamFailure> {
        self.segmenter.finish();
        let disseminated = self.disseminate();
        self.ts = ts::Demuxer::new(self.max_unit);
        // The numbers of segments go on, also if the next publisher sends another format.
        if self.passed.take().is_some() || disseminated.is_err() {
            self.discontinuity = true;
            self.segmenter = Segmenter::new(self.config.clone(), self.next_passed);
        }
        disseminated
    }

    /// Nobody publishes any more.
    pub(crate) fn end(&mut self) {
        let ended = self.write(Header { sequence: self.next_passed, ..Header::new(Kind::End) }, |_| {}, 0);
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
        let header = Header {
            flags: flag(part.independent, Flags::INDEPENDENT)
                | flag(part.discontinuity || std::mem::take(&mut self.discontinuity), Flags::DISCONTINUITY)
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
        if part.last {
            self.next_passed = part.sequence + 1;
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
