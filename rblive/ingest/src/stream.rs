//! The input of a publisher, which becomes chunks of a stream.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use locks::Mutex;
use rblive::ChunkError;
use rblive::content::{Audio, Container, Flags, Header, Kind, MAX_TARGET_US, Rendition, Video};
use rblive_media::fmp4::{Fmp4Error, InitSegment, SegmentTimes};
use rblive_media::segmenter::{Part, Segmenter, SegmenterConfig, SegmenterError, SharedTimeline};
use rblive_media::ts::{self, TsError};
use rblive_media::unit::{Input, TICKS_PER_SECOND, TrackConfig};

use crate::counters::IngestCounters;
use crate::output::{Output, OutputError, RenditionUpdate};
use crate::settings::IngestSettings;
use crate::timelines::first_timeline;
use crate::ts_file::TsFile;

/// The id of a rendition that is the only one of its stream.
pub(crate) const RENDITION: u16 = 1;

/// The most by which a segment of fragmented MP4 begins before or after the end of the one before, in microseconds, unless there is a hole.
const MAX_DRIFT_US: u64 = 200_000;

/// Why a stream refuses input of its publisher.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamFailure {
    #[error(transparent)]
    Segmenter(#[from] SegmenterError),
    #[error(transparent)]
    Ts(#[from] TsError),
    #[error(transparent)]
    Fmp4(#[from] Fmp4Error),
    #[error(
        "the stream passes MPEG-TS as it comes (ingest.passthrough), and takes nothing else: send files of MPEG-TS by PUT or POST"
    )]
    OnlyTs,
    #[error("the encoder sent a media segment before its initialisation segment")]
    NoInit,
    #[error("the encoder sent a segment of {0} seconds; the longest one has an hour")]
    TooLong(u64),
    #[error("the file has no frame of H.264, HEVC, AAC, AC-3 or E-AC-3")]
    NoFrames,
    #[error(
        "a segment of {bytes} bytes is too large for the stream's buffer, which takes {most}: raise streams.chunks or \
         streams.chunk_bytes, or let the encoder make shorter segments"
    )]
    TooLarge { bytes: usize, most: usize },
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// The state of the input that publishers of one name send: a stream, or one of its renditions. The state outlives the
/// publishers, so that numbers and times go on when an encoder returns.
pub(crate) struct Stream {
    output: Arc<Mutex<Output>>,
    /// The name under which it is published.
    name: String,
    rendition: u16,
    /// The timeline of the stream's renditions, if it has several.
    shared: Option<SharedTimeline>,
    config: SegmenterConfig,
    segmenter: Segmenter,
    ts: ts::Demuxer,
    /// The frames of the current file of a transport stream.
    ts_frames: u64,
    /// How often packets were damaged before the current file.
    ts_damaged: u64,
    /// The current file of a transport stream that is passed on unchanged.
    ts_file: Option<TsFile>,
    /// The bytes of the current file of a transport stream.
    ts_bytes: usize,
    max_unit: usize,
    passed: Option<(Bytes, InitSegment)>,
    /// The initialisation segment of the newest segment.
    newest_init: Bytes,
    first_sequence: u64,
    /// The number after that of the newest segment.
    next_sequence: u64,
    /// The number of the newest segment's timeline.
    timeline: u64,
    discontinuity: bool,
    /// The beginning and the end of the newest segment that was passed on unchanged.
    passed_us: u64,
    passed_end_us: u64,
    longest_us: u64,
    segment_us: u64,
    segment_bytes: u64,
    bandwidth: u64,
    /// Whether the bandwidth is that of a single part, because no segment is complete yet.
    is_guessed: bool,
    counters: Arc<IngestCounters>,
}

/// The number of a stream's first segment: the time since 1970 in units of the segment duration, or of a second if segments are longer.
/// The numbers that a restarted node gives are above those that it gave before, so a delivery node that starts later never lists a
/// lower number than viewers have seen. Encoders that upload shorter segments than configured are an exception.
pub(crate) fn first_sequence(segment_ms: u32) -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64 / u64::from(segment_ms.min(1000))
}

/// Which of the renditions of its output a stream is, and the numbering that it shares with the others, if there are some.
pub(crate) struct RenditionPlace {
    pub(crate) rendition: u16,
    pub(crate) shared: Option<SharedTimeline>,
}

impl Stream {
    /// A stream with one rendition, or a rendition of a stream that has several.
    pub(crate) fn new(
        name: &str,
        output: Arc<Mutex<Output>>,
        place: RenditionPlace,
        settings: &IngestSettings,
        counters: &Arc<IngestCounters>,
    ) -> Self {
        let RenditionPlace { rendition, shared } = place;
        let config = SegmenterConfig {
            target_ms: settings.segment_ms.max(1),
            part_ms: settings.part_ms.clamp(1, settings.segment_ms.max(1)),
            max_part_bytes: output.lock().largest(),
            ..SegmenterConfig::default()
        };
        let max_unit = settings.limits.message_bytes;
        let first = first_sequence(config.target_ms);
        let ts_file = ts_file(&output);
        // A rendition gets its numbers from the ladder.
        let first = if shared.is_some() { 0 } else { first };
        Self {
            output,
            name: name.to_owned(),
            rendition,
            segmenter: segmenter(&config, first, &shared),
            config,
            ts: ts::Demuxer::new(max_unit),
            ts_frames: 0,
            ts_damaged: 0,
            ts_file,
            ts_bytes: 0,
            max_unit,
            passed: None,
            newest_init: Bytes::new(),
            first_sequence: first,
            next_sequence: first,
            timeline: if shared.is_some() { 0 } else { first_timeline() },
            shared,
            discontinuity: false,
            passed_us: 0,
            passed_end_us: 0,
            longest_us: 0,
            segment_us: 0,
            segment_bytes: 0,
            bandwidth: 0,
            is_guessed: true,
            counters: counters.clone(),
        }
    }

    /// Makes this input a rendition of `output`'s stream. Its own stream ends.
    pub(crate) fn move_to(&mut self, output: Arc<Mutex<Output>>, rendition: u16, shared: &SharedTimeline) {
        self.segmenter.end_timeline();
        if let Err(failure) = self.disseminate() {
            tracing::warn!(stream = self.name, "the end of the stream is lost: {failure}");
        }
        let before = std::mem::replace(&mut self.output, output);
        before.lock().end();
        self.segmenter.join_shared_timeline(0, shared.clone());
        // A file that is passed on already is continued.
        let passes = ts_file(&self.output);
        self.ts_file = passes.map(|new| self.ts_file.take().unwrap_or(new));
        (self.rendition, self.shared) = (rendition, Some(shared.clone()));
        (self.first_sequence, self.next_sequence, self.timeline) = (0, 0, 0);
        (self.passed_us, self.passed_end_us, self.discontinuity) = (0, 0, false);
        (self.segment_us, self.segment_bytes) = (0, 0);
    }

    /// The output of the stream to which this input belongs.
    pub(crate) fn output(&self) -> Arc<Mutex<Output>> {
        self.output.clone()
    }

    /// Adds a frame or a configuration. After a failure a new timeline begins, as after [`interrupt`](Self::interrupt).
    pub(crate) fn push(&mut self, input: Input) -> Result<(), StreamFailure> {
        if self.ts_file.is_some() {
            return Err(StreamFailure::OnlyTs);
        }
        let pushed = self.segmenter.push(input).map_err(StreamFailure::from);
        let pushed = pushed.and_then(|()| self.disseminate());
        self.recovered(pushed)
    }

    /// Adds bytes of a transport stream. After a failure a new timeline begins.
    pub(crate) fn push_ts(&mut self, bytes: &[u8]) -> Result<(), StreamFailure> {
        if self.passed.is_some() {
            self.interrupt()?;
        }
        let pushed = self.keep_ts(bytes).and_then(|()| {
            self.ts.push(bytes)?;
            self.take_ts()
        });
        self.recovered(pushed)
    }

    /// Keeps the bytes of a file that is passed on once it is complete.
    fn keep_ts(&mut self, bytes: &[u8]) -> Result<(), StreamFailure> {
        self.ts_bytes += bytes.len();
        if self.ts_file.is_some() {
            self.fits(&self.output.lock(), self.ts_bytes)?;
        }
        if let Some(file) = &mut self.ts_file {
            file.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Ends a file of a transport stream, which is complete. After a failure a new timeline begins.
    pub(crate) fn end_of_ts(&mut self) -> Result<(), StreamFailure> {
        let ended = self.ts.finish().map_err(StreamFailure::from).and_then(|()| self.take_ts());
        let frames = std::mem::take(&mut self.ts_frames);
        let damaged = self.ts.damaged() - std::mem::replace(&mut self.ts_damaged, self.ts.damaged());
        if damaged > 0 {
            tracing::warn!(stream = self.name, damaged, "packets of a file were missing or damaged");
        }
        let ended = if frames == 0 { ended.and(Err(StreamFailure::NoFrames)) } else { ended };
        let ended = ended.and_then(|()| self.pass_ts());
        self.recovered(ended)
    }

    /// Passes a file of a transport stream on, if this stream's files are passed on unchanged.
    fn pass_ts(&mut self) -> Result<(), StreamFailure> {
        let Some(own) = &mut self.ts_file else {
            self.ts_bytes = 0;
            return Ok(());
        };
        let (bytes, times, changed) = own.end();
        let tracks = own.tracks();
        self.discontinuity |= changed;
        if bytes.len() != std::mem::take(&mut self.ts_bytes) {
            // While the file arrived, this input became a rendition of a stream whose files are passed on.
            return Ok(());
        }
        let times = times.ok_or(StreamFailure::NoFrames)?;
        self.pass(&bytes.freeze(), &times, &tracks.iter().collect::<Vec<_>>(), None)
    }

    fn take_ts(&mut self) -> Result<(), StreamFailure> {
        while let Some(input) = self.ts.next_input() {
            self.ts_frames += u64::from(matches!(input, Input::Unit(_)));
            match &mut self.ts_file {
                Some(file) => file.take(input),
                None => self.segmenter.push(input)?,
            }
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

    /// Adds an MP4 file: an initialisation segment, a media segment, or both. After a failure the next media segment is marked as a
    /// discontinuity. An initialisation segment is in force until the next one.
    pub(crate) fn push_mp4(&mut self, file: &Bytes) -> Result<(), StreamFailure> {
        if self.ts_file.is_some() {
            return Err(StreamFailure::OnlyTs);
        }
        let taken = self.take_mp4(file);
        if let Err(failure) = &taken {
            tracing::warn!(stream = self.name, "a file is left out, and leaves a discontinuity: {failure}");
            self.discontinuity = true;
        }
        taken
    }

    fn take_mp4(&mut self, file: &Bytes) -> Result<(), StreamFailure> {
        if self.take_init(file)? {
            return Ok(());
        }
        let (init, parsed) = self.passed.clone().ok_or(StreamFailure::NoInit)?;
        let times = parsed.times(file)?;
        let tracks: Vec<&TrackConfig> = parsed.tracks.iter().map(|track| &track.config).collect();
        self.pass(file, &times, &tracks, Some(&init))
    }

    /// Passes a segment on as it came, after its initialisation segment.
    fn pass(
        &mut self,
        file: &Bytes,
        times: &SegmentTimes,
        tracks: &[&TrackConfig],
        init: Option<&Bytes>,
    ) -> Result<(), StreamFailure> {
        if times.duration_us > MAX_TARGET_US {
            return Err(StreamFailure::TooLong(times.duration_us / 1_000_000));
        }
        let output = self.output.clone();
        let mut output = output.lock();
        self.fits(&output, file.len())?;
        self.longest_us = self.longest_us.max(times.duration_us);
        self.rate(file.len() as u64, times.duration_us);
        // Times that go back begin a timeline, even if the encoder marks no discontinuity.
        let before_us = std::mem::replace(&mut self.passed_us, times.start_us);
        self.discontinuity |= times.start_us < before_us;
        let sequence = self.place(times.start_us);
        self.passed_end_us = times.start_us.saturating_add(times.duration_us);
        let breaks = std::mem::take(&mut self.discontinuity);
        let discontinuity = self.begins_timeline(sequence, breaks, init.unwrap_or(&Bytes::new()));
        self.cut(sequence, times.start_us);
        output.describe(sequence, self.described(tracks, None, times.start_us))?;
        if let Some(init) = init {
            let header = Header { sequence, rendition: self.rendition, ..Header::new(Kind::Init) };
            output.hold(header, |to| to.copy_from_slice(init), init.len())?;
        }
        let flag = |set: bool, flag: Flags| if set { flag } else { Flags::NONE };
        let flags = Flags::FIRST_PART
            | flag(times.key, Flags::INDEPENDENT)
            | flag(discontinuity, Flags::DISCONTINUITY);
        let header = Header {
            flags,
            discontinuities: self.timeline,
            rendition: self.rendition,
            sequence,
            duration_us: times.duration_us.try_into().unwrap_or(u32::MAX),
            start_us: times.start_us,
            ..Header::new(Kind::Media)
        };
        write_file(&mut output, header, file)?;
        self.next_sequence = sequence + 1;
        Ok(())
    }

    /// Reads the initialisation segment of a file that has one. Returns whether the file has no media.
    fn take_init(&mut self, file: &Bytes) -> Result<bool, StreamFailure> {
        let boxed = |kind: &[u8; 4]| file.windows(4).take(4096).any(|window| window == kind);
        if !boxed(b"moov") {
            return Ok(false);
        }
        match &self.passed {
            None => self.leave_segmenter()?,
            Some((before, _)) => self.discontinuity |= before != file,
        }
        // If it is damaged, no segment that follows can be played either.
        self.passed = None;
        self.passed = Some((file.clone(), InitSegment::parse(file)?));
        Ok(!boxed(b"moof"))
    }

    /// The number of a segment that is passed on. After a hole, a rendition continues with the number that the others give this time.
    fn place(&self, start_us: u64) -> u64 {
        let goes_on = self.discontinuity || start_us.abs_diff(self.passed_end_us) <= MAX_DRIFT_US;
        let Some(shared) = &self.shared else { return self.next_sequence };
        if goes_on && self.next_sequence > 0 {
            return self.next_sequence;
        }
        let target = i64::from(self.config.target_ms) * TICKS_PER_SECOND / 1000;
        shared.place(ticks(start_us), self.next_sequence, target, true).unwrap_or(self.next_sequence)
    }

    /// Records in the ladder where a segment begins, for the other renditions.
    fn cut(&self, sequence: u64, start_us: u64) {
        let Some(shared) = &self.shared else { return };
        shared.cut(sequence, ticks(start_us));
    }

    /// Sets the timeline of a segment. Returns whether the segment begins a timeline. It does if this rendition `breaks`; with several
    /// renditions also if its initialisation segment changes, or if another rendition has begun a timeline with this segment or earlier.
    fn begins_timeline(&mut self, sequence: u64, breaks: bool, init: &Bytes) -> bool {
        let Some(shared) = &self.shared else {
            self.timeline += u64::from(breaks);
            return breaks;
        };
        let before = std::mem::replace(&mut self.newest_init, init.clone());
        let (own, common) = (self.timeline, shared.timeline(sequence));
        let breaks = breaks || before != *init;
        self.timeline =
            if own > 0 && breaks && common <= own { shared.begin_timeline(sequence) } else { common };
        if shared.is_uneven() {
            tracing::warn!(
                stream = self.name,
                "the key frames of the stream's renditions are not at the same times, so viewers who change between them see a jump: \
                 give all of them the same distance of key frames, and let one encoder make them"
            );
        }
        own > 0 && self.timeline > own
    }

    /// Checks that the stream's buffer can hold a segment of this size while viewers fetch it.
    fn fits(&self, output: &Output, bytes: usize) -> Result<(), StreamFailure> {
        let most = output.largest_segment();
        if bytes <= most {
            return Ok(());
        }
        IngestCounters::count(&self.counters.oversized, 1);
        Err(StreamFailure::TooLarge { bytes, most })
    }

    /// Changes from frames, which are cut into segments here, to segments that are passed on.
    fn leave_segmenter(&mut self) -> Result<(), StreamFailure> {
        self.interrupt()?;
        self.segmenter = segmenter(&self.config, self.next_sequence, &self.shared);
        self.discontinuity |= self.next_sequence > self.first_sequence;
        Ok(())
    }

    /// Ends the segment, because the publisher is gone or its input has a hole. The next input begins a new timeline.
    pub(crate) fn interrupt(&mut self) -> Result<(), StreamFailure> {
        self.segmenter.finish();
        let disseminated = self.disseminate();
        self.ts = ts::Demuxer::new(self.max_unit);
        (self.ts_frames, self.ts_damaged, self.ts_bytes) = (0, 0, 0);
        let passed_ts = self.ts_file.is_some() && self.next_sequence > self.first_sequence;
        self.ts_file = ts_file(&self.output);
        // The numbers of segments go on, also if the next publisher sends another format.
        if self.passed.take().is_some() || passed_ts || disseminated.is_err() {
            (self.discontinuity, self.passed_us) = (true, 0);
            self.segmenter = segmenter(&self.config, self.next_sequence, &self.shared);
            (self.segment_us, self.segment_bytes) = (0, 0);
        }
        disseminated
    }

    fn disseminate(&mut self) -> Result<(), StreamFailure> {
        while let Some(part) = self.segmenter.next_part() {
            self.part(&part)?;
        }
        Ok(())
    }

    fn part(&mut self, part: &Part) -> Result<(), StreamFailure> {
        let output = self.output.clone();
        let mut output = output.lock();
        let rate = part.size() as u64 * 8_000_000 / u64::from(part.duration_us.max(1));
        self.segment_us += u64::from(part.duration_us);
        self.segment_bytes += part.size() as u64;
        let discontinuity = self.begins(part);
        if part.index == 0 {
            let tracks: Vec<TrackConfig> = self.segmenter.tracks().cloned().collect();
            self.bandwidth = if self.is_guessed { rate } else { self.bandwidth };
            if !tracks.is_empty() {
                let part_us = Some(u64::from(self.config.part_ms) * 1000);
                let described = self.described(&tracks.iter().collect::<Vec<_>>(), part_us, part.start_us);
                output.describe(part.sequence, described)?;
            }
            let rendition = self.rendition;
            let header = Header { sequence: part.sequence, rendition, ..Header::new(Kind::Init) };
            output.hold(header, |to| to.copy_from_slice(&part.init), part.init.len())?;
        }
        let flag = |set: bool, flag: Flags| if set { flag } else { Flags::NONE };
        let header = Header {
            flags: flag(part.independent, Flags::INDEPENDENT)
                | flag(discontinuity, Flags::DISCONTINUITY)
                | flag(part.index == 0, Flags::FIRST_PART)
                | flag(part.last, Flags::LAST_PART),
            rendition: self.rendition,
            sequence: part.sequence,
            part: part.index,
            duration_us: part.duration_us,
            start_us: part.start_us,
            discontinuities: self.timeline,
            ..Header::new(Kind::Media)
        };
        match output.write(header, |to| part.copy_to(to), part.size()) {
            Err(OutputError::Chunk(error @ ChunkError::TooLarge { .. })) => {
                // The segment is a gap for viewers; the next one is complete again.
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

    /// Whether a timeline begins with this part. Timelines of several renditions begin with a segment.
    fn begins(&mut self, part: &Part) -> bool {
        if self.shared.is_none() {
            let breaks = std::mem::take(&mut self.discontinuity) || part.discontinuity;
            return self.begins_timeline(part.sequence, breaks, &part.init);
        }
        let begins = part.index == 0;
        begins && {
            let breaks = std::mem::take(&mut self.discontinuity);
            self.begins_timeline(part.sequence, breaks, &part.init)
        }
    }

    /// Updates the bandwidth with the rate of a complete segment.
    fn rate(&mut self, bytes: u64, duration_us: u64) {
        let rate = bytes * 8_000_000 / duration_us.max(1);
        self.bandwidth = if std::mem::take(&mut self.is_guessed) { rate } else { self.bandwidth.max(rate) };
    }

    /// The entry of the stream's description for this rendition, whose newest segment begins at `begins_us`.
    fn described(&self, tracks: &[&TrackConfig], part_us: Option<u64>, begins_us: u64) -> RenditionUpdate {
        let mut rendition = Rendition {
            id: self.rendition,
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
        let target_us = self.longest_us.max(u64::from(self.config.target_ms) * 1000);
        RenditionUpdate { rendition, target_us, part_us, begins_us, timeline: self.timeline }
    }
}

/// The state for files that are passed on unchanged, if the stream's container is MPEG-TS.
fn ts_file(output: &Mutex<Output>) -> Option<TsFile> {
    (output.lock().container == Container::Ts).then(TsFile::default)
}

fn segmenter(config: &SegmenterConfig, first: u64, shared: &Option<SharedTimeline>) -> Segmenter {
    match shared {
        None => Segmenter::new(config.clone(), first),
        Some(shared) => Segmenter::with_shared_timeline(config.clone(), first, shared.clone()),
    }
}

fn ticks(us: u64) -> i64 {
    i64::try_from(u128::from(us) * TICKS_PER_SECOND as u128 / 1_000_000).unwrap_or(i64::MAX)
}

/// Writes a segment: as one chunk, or as several that are parts of it. The first one has the duration.
fn write_file(output: &mut Output, whole: Header, file: &Bytes) -> Result<(), OutputError> {
    let pieces: Vec<_> = file.chunks(output.largest()).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let (first, last) = (index == 0, index + 1 == pieces.len());
        let mut flags = if first { whole.flags } else { Flags::NONE };
        if last {
            flags = flags | Flags::LAST_PART;
        }
        let duration_us = if first { whole.duration_us } else { 0 };
        let header = Header { flags, part: index as u32, duration_us, ..whole };
        output.write(header, |to| to.copy_from_slice(piece), piece.len())?;
    }
    Ok(())
}
