//! The input of a publisher, which becomes chunks of a stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use locks::Mutex;
use rblive::ChunkError;
use rblive::content::{Container, Flags, HEADER_BYTES, Header, Kind, MAX_TARGET_US, Rendition};
use rblive_media::fmp4::{self, Fmp4Error, InitSegment, SegmentTimes};
use rblive_media::segmenter::{Oddity, Part, Segmenter, SegmenterConfig, SegmenterError};
use rblive_media::timeline::{Numbers, Timeline};
use rblive_media::ts::TsError;
use rblive_media::unit::{Input, TrackConfig};

use crate::bitrate::BitRate;
use crate::counters::IngestCounters;
use crate::output::{Output, OutputError, RenditionUpdate};
use crate::settings::IngestSettings;
use crate::ts_file::{PassthroughFile, TsEnd, TsReader};

/// How far the beginnings of two segments are apart, in microseconds, that are the same time in two representations.
const SAME_TIME_US: u64 = 200_000;

/// The kind of remark about a publisher that sends nothing of use.
const NOTHING: &str = "nothing";

/// The id of a rendition that is the only one of its stream.
pub(crate) const RENDITION: u16 = 1;

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
    #[error("the MP4 file has neither an initialisation segment (moov) nor media (moof)")]
    NoMp4,
    #[error(
        "the encoder sends pictures and sound in files apart, as DASH has them: send both in one segment, as `ffmpeg -f hls \
         -hls_segment_type fmp4` does, or each under a name of its own (ingest.ladders)"
    )]
    Apart,
    #[error(
        "the encoder sends several representations of one stream, as DASH has them: send each under a name of its own (ingest.ladders), or as \
         HLS with a folder for each"
    )]
    Several,
    #[error("the encoder sent a segment of {0} seconds; the longest one has an hour")]
    TooLong(u64),
    #[error("the file has no frame of H.264, HEVC, AAC, AC-3 or E-AC-3")]
    NoFrames,
    #[error(
        "a segment of {bytes} bytes is too large for the stream's buffer, which takes {most}: raise streams.max_buffer_bytes, or let the \
         encoder make shorter segments"
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
    timeline: Timeline,
    config: SegmenterConfig,
    source: Source,
    ts: TsReader,
    bit_rate: BitRate,
    /// The length of the newest segment that passed as it came, in microseconds.
    passed_us: Option<u64>,
    /// The bytes that the largest chunk so far has, with its header.
    largest_chunk: usize,
    /// Whether the publisher has sent initialisation segments for pictures alone and for sound alone: files say by their names only to
    /// which of them they belong.
    is_apart: bool,
    /// The same of several representations of pictures, or of sound.
    are_several: bool,
    /// Where the newest segment behind the former initialisation segment, and that behind the one in force, began, in microseconds.
    began_us: [Option<u64>; 2],
    /// The file of the initialisation segment in force.
    init_file: String,
    /// When media was disseminated last, or the publisher began.
    written: Instant,
    /// Whether the publisher was told of, since it sends nothing that is disseminated.
    is_empty: bool,
    counters: Arc<IngestCounters>,
}

/// What becomes segments.
enum Source {
    /// Frames of RTMP or MPEG-TS, which are cut into parts here.
    Frames(Box<Segmenter>),
    /// Files of MPEG-TS that pass unchanged, since MPEG-TS is the stream's container.
    PassthroughTs(PassthroughFile),
    /// Segments of fragmented MP4 that pass unchanged, with their initialisation segment.
    PassthroughMp4(Bytes, InitSegment),
}

impl Stream {
    /// A stream with one rendition, or a rendition of a stream that has several.
    pub(crate) fn new(
        name: &str,
        output: Arc<Mutex<Output>>,
        rendition: u16,
        settings: &IngestSettings,
        counters: &Arc<IngestCounters>,
    ) -> Self {
        let own = output.lock();
        let config = SegmenterConfig {
            target_ms: settings.segment_ms.max(1),
            part_ms: settings.part_ms.clamp(1, settings.segment_ms.max(1)),
            max_part_bytes: own.largest(),
            ..SegmenterConfig::default()
        };
        let timeline = own.timeline.rendition(rendition);
        let source = Source::new(own.container, &config, &timeline);
        drop(own);
        Self {
            output,
            name: name.to_owned(),
            rendition,
            timeline,
            source,
            ts: TsReader::new(settings.limits.message_bytes),
            bit_rate: BitRate::new(config.target_ms),
            passed_us: None,
            largest_chunk: 0,
            is_apart: false,
            are_several: false,
            began_us: [None; 2],
            init_file: String::new(),
            written: Instant::now(),
            is_empty: false,
            config,
            counters: counters.clone(),
        }
    }

    /// Makes this input a rendition of `output`'s stream. Its own stream ends.
    pub(crate) fn move_to(&mut self, output: Arc<Mutex<Output>>, rendition: u16) {
        if let Source::Frames(segmenter) = &mut self.source {
            segmenter.end_timeline();
        }
        if let Err(failure) = self.disseminate() {
            tracing::warn!(stream = self.name, "the end of the stream is lost: {failure}");
        }
        let before = std::mem::replace(&mut self.output, output);
        before.lock().end();
        self.timeline = self.output.lock().timeline.rendition(rendition);
        self.rendition = rendition;
        self.bit_rate.leave_segment();
        let fresh = self.fresh_source();
        // The demuxer tells the tracks again only if they change, so they move too.
        match (&mut self.source, fresh) {
            // A file that is passed on already is continued.
            (Source::PassthroughTs(_), Source::PassthroughTs(_)) => {}
            (Source::PassthroughTs(file), Source::Frames(mut segmenter)) => {
                file.tracks().into_iter().for_each(|track| segmenter.configure(track));
                self.source = Source::Frames(segmenter);
            }
            (Source::Frames(segmenter), Source::PassthroughTs(mut file)) => {
                segmenter.configurations().cloned().for_each(|track| file.take(Input::Config(track)));
                self.source = Source::PassthroughTs(file);
            }
            (Source::Frames(segmenter), Source::Frames(_)) => segmenter.move_to(self.timeline.clone()),
            (Source::PassthroughMp4(..), Source::Frames(_)) => {}
            (_, fresh) => self.source = fresh,
        }
    }

    /// The output of the stream to which this input belongs.
    pub(crate) fn output(&self) -> Arc<Mutex<Output>> {
        self.output.clone()
    }

    fn fresh_source(&self) -> Source {
        Source::new(self.output.lock().container, &self.config, &self.timeline)
    }

    /// A publisher begins.
    pub(crate) fn begin(&mut self) {
        (self.written, self.is_empty) = (Instant::now(), false);
        (self.bit_rate.newest, self.passed_us) = (0, None);
    }

    /// What the publisher sends, and how far its key frames are apart.
    pub(crate) fn media(&self) -> (Rendition, Option<Duration>) {
        let (tracks, key_us) = match &self.source {
            Source::Frames(own) => (own.configurations().cloned().collect(), own.key_distance_us()),
            Source::PassthroughTs(own) => (own.tracks(), self.passed_us),
            Source::PassthroughMp4(_, own) => {
                (own.tracks.iter().map(|track| track.config.clone()).collect::<Vec<_>>(), self.passed_us)
            }
        };
        (Rendition::of(self.rendition, self.bit_rate.newest, &tracks), key_us.map(Duration::from_micros))
    }

    /// Media was disseminated.
    fn written(&mut self) {
        self.written = Instant::now();
        if std::mem::take(&mut self.is_empty) {
            self.counters.remarks.end(&self.name, NOTHING);
        }
    }

    /// Tells of a publisher that has sent nothing for so long that is disseminated.
    pub(crate) fn look(&mut self, patience: Duration) {
        if self.is_empty || self.written.elapsed() < patience {
            return;
        }
        self.is_empty = true;
        let why = match &self.source {
            Source::Frames(own) if own.configurations().next().is_none() => {
                "no configuration of H.264, HEVC, AV1 or AAC has come. Encoders send it when they begin: start it again, with one of these codecs"
            }
            Source::Frames(_) => {
                "no key frame has come, or no frame at all. Let the encoder make a key frame every two seconds"
            }
            _ => "no whole segment has come",
        };
        let seconds = patience.as_secs_f64();
        self.counters.remarks.tell(
            &self.name,
            NOTHING,
            format_args!("the encoder has sent nothing for {seconds} s that viewers can get: {why}"),
        );
    }

    /// Notes the rate that the publisher announces, in bits per second: the buffer gets room for it before the first segment.
    pub(crate) fn announce_rate(&mut self, bits_per_second: u64) {
        self.bit_rate.announced = bits_per_second;
    }

    /// Adds a frame or a configuration. A failure leaves a hole, as [`interrupt`](Self::interrupt) does.
    pub(crate) fn push(&mut self, input: Input) -> Result<(), StreamFailure> {
        self.leave_mp4()?;
        let Source::Frames(segmenter) = &mut self.source else { return Err(StreamFailure::OnlyTs) };
        let pushed = segmenter.push(input).map_err(StreamFailure::from);
        let pushed = pushed.and_then(|()| self.disseminate());
        self.recovered(pushed)
    }

    /// Adds bytes of a transport stream. A failure leaves a hole.
    pub(crate) fn push_ts(&mut self, bytes: &[u8]) -> Result<(), StreamFailure> {
        self.leave_mp4()?;
        let pushed = self.read_ts(bytes);
        self.recovered(pushed)
    }

    fn read_ts(&mut self, bytes: &[u8]) -> Result<(), StreamFailure> {
        if let Source::PassthroughTs(_) = self.source {
            self.fits(&self.output.lock(), self.ts.bytes + bytes.len())?;
        }
        if let Source::PassthroughTs(file) = &mut self.source {
            file.bytes.extend_from_slice(bytes);
        }
        self.ts.push(bytes)?;
        self.take_ts()
    }

    /// Ends a file of a transport stream, which is complete. A failure leaves a hole.
    pub(crate) fn end_of_ts(&mut self) -> Result<(), StreamFailure> {
        let ended = self.ts.finish().map_err(StreamFailure::from).and_then(|()| self.take_ts());
        let TsEnd { bytes, frames, damaged } = self.ts.end();
        if damaged > 0 {
            tracing::warn!(stream = self.name, damaged, "packets of a file were missing or damaged");
        }
        let ended = if frames == 0 { ended.and(Err(StreamFailure::NoFrames)) } else { ended };
        let ended = ended.and_then(|()| self.passthrough_ts(bytes));
        self.recovered(ended)
    }

    /// Passes a file of a transport stream of so many bytes on, if this stream's files are passed on unchanged.
    fn passthrough_ts(&mut self, received: usize) -> Result<(), StreamFailure> {
        let Source::PassthroughTs(own) = &mut self.source else { return Ok(()) };
        let (bytes, times, changed) = own.end();
        let tracks = own.tracks();
        if changed {
            self.timeline.break_off();
        }
        if bytes.len() != received {
            // While the file arrived, this input became a rendition of a stream whose files are passed on.
            return Ok(());
        }
        let times = times.ok_or(StreamFailure::NoFrames)?;
        self.passthrough(&bytes.freeze(), &times, &tracks, None)
    }

    fn take_ts(&mut self) -> Result<(), StreamFailure> {
        while let Some(input) = self.ts.next_input() {
            match &mut self.source {
                Source::Frames(segmenter) => segmenter.push(input)?,
                Source::PassthroughTs(file) => file.take(input),
                Source::PassthroughMp4(..) => {}
            }
        }
        self.disseminate()
    }

    /// Interrupts the stream after a failure: demuxers and segmenters do not go on after one.
    fn recovered(&mut self, outcome: Result<(), StreamFailure>) -> Result<(), StreamFailure> {
        if let Err(failure) = &outcome {
            tracing::warn!(stream = self.name, "damage leaves a hole: {failure}");
            if let Err(lost) = self.interrupt() {
                tracing::warn!(stream = self.name, "frames before the damage are lost: {lost}");
            }
        }
        outcome
    }

    /// Adds the MP4 file `name`: an initialisation segment, a media segment, or both. A failure leaves a hole. An initialisation segment is
    /// in force until the next one.
    pub(crate) fn push_mp4(&mut self, file: &Bytes, name: &str) -> Result<(), StreamFailure> {
        if let Source::PassthroughTs(_) = self.source {
            return Err(StreamFailure::OnlyTs);
        }
        let taken = self.take_mp4(file, name);
        if let Err(failure) = &taken {
            tracing::warn!(stream = self.name, "a file is left out, and leaves a hole: {failure}");
            self.timeline.hole();
        }
        taken
    }

    fn take_mp4(&mut self, file: &Bytes, name: &str) -> Result<(), StreamFailure> {
        let (init, media) = fmp4::split(file);
        if init.is_none() && media.is_none() {
            return Err(StreamFailure::NoMp4);
        }
        if let Some(init) = init {
            // Files that are whole are one after the other, also where each begins with time 0.
            let name = if media.is_some() { self.init_file.clone() } else { name.to_owned() };
            self.take_init(&init, name)?;
        }
        self.is_one()?;
        let Some(media) = media else { return Ok(()) };
        let Source::PassthroughMp4(init, parsed) = &self.source else { return Err(StreamFailure::NoInit) };
        let (init, times) = (init.clone(), parsed.times(&media)?);
        // What both begin with is two representations of the same time, and not another picture behind the former one.
        self.are_several =
            self.began_us[0].is_some_and(|former| former.abs_diff(times.start_us) <= SAME_TIME_US);
        self.is_one()?;
        self.began_us = [None, Some(times.start_us)];
        let tracks: Vec<_> = parsed.tracks.iter().map(|track| track.config.clone()).collect();
        self.passthrough(&media, &times, &tracks, Some(&init))
    }

    /// Refuses what is no single stream.
    fn is_one(&self) -> Result<(), StreamFailure> {
        match (self.is_apart, self.are_several) {
            (true, _) => Err(StreamFailure::Apart),
            (_, true) => Err(StreamFailure::Several),
            _ => Ok(()),
        }
    }

    fn take_init(&mut self, init: &Bytes, name: String) -> Result<(), StreamFailure> {
        let before = match &self.source {
            Source::PassthroughMp4(before, _) if before == init => return Ok(()),
            Source::PassthroughMp4(_, parsed) => Some(parsed.clone()),
            _ => None,
        };
        let parsed = InitSegment::parse(init);
        if let (Some(before), Ok(parsed)) = (&before, &parsed) {
            self.is_apart |= before.shares_no_kind(parsed);
            self.are_several |= name != self.init_file && self.began_us[1].is_none();
        }
        self.is_one()?;
        let former_us = self.began_us[1].filter(|_| name != self.init_file);
        // If it is damaged, no segment that follows can be played either.
        self.interrupt()?;
        (self.began_us, self.init_file) = ([former_us, None], name);
        self.source = Source::PassthroughMp4(init.clone(), parsed?);
        Ok(())
    }

    /// Changes from segments that are passed on to frames, which are cut into segments here.
    fn leave_mp4(&mut self) -> Result<(), StreamFailure> {
        match self.source {
            Source::PassthroughMp4(..) => self.interrupt(),
            _ => Ok(()),
        }
    }

    /// Passes a segment on as it came, after its initialisation segment.
    fn passthrough(
        &mut self,
        file: &Bytes,
        times: &SegmentTimes,
        tracks: &[TrackConfig],
        init: Option<&Bytes>,
    ) -> Result<(), StreamFailure> {
        let SegmentTimes { start_us, duration_us, key, .. } = *times;
        if duration_us > MAX_TARGET_US {
            return Err(StreamFailure::TooLong(duration_us / 1_000_000));
        }
        if !key {
            let oddity = Oddity::KeyFrames((duration_us / 1000) as u32);
            self.counters.remarks.tell(&self.name, oddity.name(), oddity);
        }
        if let Some(announced) = self.bit_rate.exceeded(duration_us) {
            self.counters.remarks.tell(
                &self.name,
                "length",
                format_args!(
                    "a segment is longer than the {announced} s that playlists announce, and changes them, which strict players refuse: let the \
                     encoder make segments of one length"
                ),
            );
        }
        let output = self.output.clone();
        let mut output = output.lock();
        self.fits(&output, file.len())?;
        self.bit_rate.segment(file.len() as u64, duration_us);
        self.passed_us = Some(duration_us);
        let us = start_us..start_us.saturating_add(duration_us);
        // Files of MPEG-TS have no initialisation segment: their tracks tell their coding.
        let coding = init.cloned().unwrap_or_else(|| Bytes::from(format!("{tracks:?}")));
        self.largest_chunk = self.largest_chunk.max(HEADER_BYTES + init.map_or(0, Bytes::len));
        let numbers = self.timeline.passthrough(us, &coding, self.config.target_ms);
        self.describe(&mut output, &numbers, tracks, None, start_us, key)?;
        self.write_init(&mut output, &numbers, init)?;
        let header = self.header(&numbers);
        let header = Header {
            flags: Flags::FIRST_PART | flag(key, Flags::INDEPENDENT) | header.flags,
            duration_us: duration_us.try_into().unwrap_or(u32::MAX),
            start_us,
            ..header
        };
        write_file(&mut output, header, file)?;
        self.written();
        Ok(())
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

    /// Ends the segment, because the publisher is gone or its input has a hole. Alone, a timeline begins with the next input. If this is
    /// one of several renditions, its time and coding say whether. The numbers of segments go on, also if the next publisher sends
    /// another format.
    pub(crate) fn interrupt(&mut self) -> Result<(), StreamFailure> {
        if let Source::Frames(segmenter) = &mut self.source {
            segmenter.finish();
        }
        let disseminated = self.disseminate();
        self.ts.reset();
        (self.is_apart, self.are_several, self.began_us) = (false, false, [None; 2]);
        if !matches!(self.source, Source::Frames(_)) || disseminated.is_err() {
            self.timeline.hole();
            self.source = self.fresh_source();
            self.bit_rate.leave_segment();
        }
        disseminated
    }

    fn disseminate(&mut self) -> Result<(), StreamFailure> {
        if let Source::Frames(segmenter) = &mut self.source {
            for oddity in segmenter.take_oddities() {
                self.counters.remarks.tell(&self.name, oddity.name(), oddity);
            }
        }
        while let Source::Frames(segmenter) = &mut self.source
            && let Some(part) = segmenter.next_part()
        {
            self.part(&part)?;
        }
        Ok(())
    }

    fn part(&mut self, part: &Part) -> Result<(), StreamFailure> {
        let output = self.output.clone();
        let mut output = output.lock();
        self.bit_rate.part(part);
        self.largest_chunk = self.largest_chunk.max(HEADER_BYTES + part.size());
        let numbers = part.numbers();
        if part.index == 0 {
            let part_us = Some(self.config.longest_part_us().min(self.bit_rate.longest_us));
            self.describe(&mut output, &numbers, &part.tracks, part_us, part.start_us, part.independent)?;
            self.fit_parts(output.largest());
        }
        self.write_init(&mut output, &numbers, Some(&part.init).filter(|_| part.index == 0))?;
        let header = self.header(&numbers);
        let header = Header {
            flags: flag(part.independent, Flags::INDEPENDENT)
                | flag(part.index == 0, Flags::FIRST_PART)
                | flag(part.last, Flags::LAST_PART)
                | header.flags,
            part: part.index,
            duration_us: part.duration_us,
            start_us: part.start_us,
            ..header
        };
        match output.write(header, |to| part.copy_to(to), part.size()) {
            Err(OutputError::Chunk(error @ ChunkError::TooLarge { .. })) => {
                // The segment is a gap for viewers; the next one is complete again.
                IngestCounters::count(&self.counters.oversized, 1);
                self.counters.remarks.tell(
                    &self.name,
                    "oversized",
                    format_args!(
                        "a frame is left out ({error}), and others like it may be: from the next segment on, the buffer has room for it, as \
                         far as streams.max_buffer_bytes allows"
                    ),
                );
            }
            written => {
                written?;
                self.written();
            }
        }
        if part.last {
            self.bit_rate.end_segment();
        }
        Ok(())
    }

    /// Makes parts as large as chunks may be.
    fn fit_parts(&mut self, bytes: usize) {
        self.config.max_part_bytes = bytes;
        if let Source::Frames(segmenter) = &mut self.source {
            segmenter.set_max_part_bytes(bytes);
        }
    }

    /// The header of media of a segment.
    fn header(&self, numbers: &Numbers) -> Header {
        Header {
            flags: flag(numbers.discontinuity, Flags::DISCONTINUITY),
            discontinuities: numbers.timeline,
            rendition: self.rendition,
            sequence: numbers.sequence,
            ..Header::new(Kind::Media)
        }
    }

    /// Describes the stream before a segment with these tracks, which begins at `begins_us`.
    fn describe(
        &self,
        output: &mut Output,
        numbers: &Numbers,
        tracks: &[TrackConfig],
        part_us: Option<u64>,
        begins_us: u64,
        independent: bool,
    ) -> Result<(), OutputError> {
        if self.timeline.is_uneven() {
            tracing::warn!(
                stream = self.name,
                "the key frames of the stream's renditions are not at the same times, so viewers who change between them see a jump: \
                 give all of them the same distance of key frames, and let one encoder make them"
            );
        }
        let rendition = Rendition::of(self.rendition, self.bit_rate.bandwidth, tracks);
        let target_us = self.bit_rate.longest_us;
        let (timeline, bits_per_second) = (numbers.timeline, self.bit_rate.needed());
        let chunk_bytes = self.largest_chunk;
        let update = RenditionUpdate {
            rendition,
            target_us,
            part_us,
            begins_us,
            timeline,
            bits_per_second,
            chunk_bytes,
            independent,
        };
        output.describe(numbers.sequence, update)?;
        if let Some(text) = output.complaint() {
            self.counters.remarks.tell(&self.name, "buffer", text);
        }
        Ok(())
    }

    /// Writes the initialisation segment of a segment, if it has one.
    fn write_init(
        &self,
        output: &mut Output,
        numbers: &Numbers,
        init: Option<&Bytes>,
    ) -> Result<(), OutputError> {
        let Some(init) = init else { return Ok(()) };
        let (sequence, rendition) = (numbers.sequence, self.rendition);
        let header = Header { sequence, rendition, ..Header::new(Kind::Init) };
        output.hold(header, |to| to.copy_from_slice(init), init.len())
    }
}

impl Source {
    fn new(container: Container, config: &SegmenterConfig, timeline: &Timeline) -> Self {
        match container {
            Container::Ts => Self::PassthroughTs(PassthroughFile::default()),
            Container::Cmaf => {
                Self::Frames(Box::new(Segmenter::with_timeline(config.clone(), timeline.clone())))
            }
        }
    }
}

fn flag(set: bool, flag: Flags) -> Flags {
    if set { flag } else { Flags::NONE }
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
