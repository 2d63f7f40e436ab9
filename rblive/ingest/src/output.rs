//! The output of one stream: the chunks of its publisher, or of the publishers of all its renditions.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rblive::content::{Container, Description, DescriptionError, HEADER_BYTES, Header, Kind, Rendition};
use rblive::{ChunkError, RsChunk, RsId, RsManager};
use rblive_media::timeline::Timeline;

use crate::timelines;

/// A rendition that is behind the newest one by more target durations than this is not described any more: its publisher is silent or
/// gone, and viewers change to another.
const MAX_BEHIND: u64 = 2;

/// Why a chunk is not disseminated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    #[error("a chunk could not be disseminated: {0}")]
    Chunk(#[from] ChunkError),
    #[error("the description of the stream is not valid: {0}")]
    Description(#[from] DescriptionError),
}

/// A rendition, as the description of the stream has it.
#[derive(Debug)]
pub(crate) struct RenditionUpdate {
    pub(crate) rendition: Rendition,
    /// The longest segment, in microseconds.
    pub(crate) target_us: u64,
    /// The longest part, if segments have parts.
    pub(crate) part_us: Option<u64>,
    /// Where its newest segment begins, in microseconds.
    pub(crate) begins_us: u64,
    /// The number of its timeline. Times of different timelines are not compared.
    pub(crate) timeline: u64,
    /// The rate for which the buffer needs room, in bits per second.
    pub(crate) bits_per_second: u64,
    /// The largest chunk so far.
    pub(crate) chunk_bytes: usize,
    /// Whether its newest segment begins with a key frame.
    pub(crate) independent: bool,
}

/// The durations of the longest segment for which a buffer has bytes: playlists list about six of them, and what leaves a playlist stays
/// for as long as the playlist was.
const BUFFERED_SEGMENTS: u64 = 14;
/// How long a buffer that was too small stays.
const FORMER_STAYS: Duration = Duration::from_secs(5);

/// Which time of day it was when a timeline began, as nodes that see its first segment find it
/// ([`LiveWindow`](rblive_media::window::LiveWindow)).
struct Dawn {
    timeline: u64,
    /// Its first segment.
    sequence: u64,
    /// Wall clock minus presentation time, in nanoseconds.
    offset_ns: i128,
    /// Whether it is the first timeline of the stream.
    is_first: bool,
}

impl Dawn {
    /// Takes the time of a part. The first parts of a stream may have waited at their encoder.
    fn note(own: &mut Option<Self>, media: &Header) {
        let (timeline, sequence) = (media.discontinuities, media.sequence);
        let begin_us = i128::from(media.start_us) + i128::from(media.duration_us);
        let offset_ns = i128::from(media.produced_ns) - begin_us * 1000;
        match own {
            Some(dawn) if dawn.timeline == timeline => {
                if dawn.is_first && dawn.sequence == sequence {
                    dawn.offset_ns = dawn.offset_ns.min(offset_ns);
                }
            }
            _ => *own = Some(Self { timeline, sequence, offset_ns, is_first: own.is_none() }),
        }
    }

    /// The header of an initialisation segment, which says the time of the timeline from its second segment on.
    fn tell(own: Option<&Self>, init: Header) -> Header {
        let dawn = own.filter(|dawn| dawn.timeline > 0 && init.sequence > dawn.sequence);
        match dawn.and_then(|dawn| Some((dawn.timeline, u64::try_from(dawn.offset_ns).ok()?))) {
            Some((discontinuities, produced_ns)) => {
                Header { discontinuities, produced_ns, start_us: 0, ..init }
            }
            None => init,
        }
    }
}

/// The chunks of a stream.
pub(crate) struct Output {
    manager: RsManager,
    pub(crate) id: RsId,
    pub(crate) name: String,
    pub(crate) container: Container,
    /// Filled chunks that are disseminated together with the next one, the oldest first.
    held: Vec<RsChunk>,
    renditions: BTreeMap<u16, RenditionUpdate>,
    pub(crate) timeline: Timeline,
    /// The usual duration of a segment, by which segments are numbered.
    segment_ms: u32,
    /// The newest timeline of a segment.
    newest_timeline: u64,
    dawn: Option<Dawn>,
    /// The largest buffer that was refused, and what is to be told of it.
    refused_bytes: u64,
    complaint: Option<String>,
    /// The buffers of the segments before, and since when. They stay for a while, since nodes may not have begun to read them.
    former: Vec<(RsId, Instant)>,
}

impl Output {
    pub(crate) fn new(
        manager: RsManager,
        id: RsId,
        name: &str,
        container: Container,
        timeline: Timeline,
        segment_ms: u32,
    ) -> Self {
        let (name, renditions) = (name.to_owned(), BTreeMap::new());
        Self {
            manager,
            id,
            name,
            container,
            held: Vec::new(),
            renditions,
            timeline,
            segment_ms,
            newest_timeline: 0,
            dawn: None,
            refused_bytes: 0,
            complaint: None,
            former: Vec::new(),
        }
    }

    /// The most bytes of a chunk's payload.
    pub(crate) fn largest(&self) -> usize {
        let smallest = self.manager.config().streams.chunk_bytes;
        let largest = self.manager.stream_buffer(self.id).map_or(smallest, |buffer| buffer.chunk_bytes);
        usize::try_from(largest).unwrap_or(usize::MAX) - HEADER_BYTES
    }

    /// The most bytes of a segment that the stream's buffer, once it has grown, holds while viewers fetch it.
    pub(crate) fn largest_segment(&self) -> usize {
        usize::try_from(self.manager.config().grown_bytes(u64::MAX, 0) / 2).unwrap_or(usize::MAX)
    }

    /// Gives the stream a larger buffer if the rate of its renditions needs one. Nodes get it as a new source of the stream, which goes on
    /// with its next segment.
    fn grow(&mut self) {
        self.leave_former(FORMER_STAYS);
        let rate: u64 = self.renditions.values().map(|one| one.bits_per_second / 8).sum();
        let target_us = self.renditions.values().map(|one| one.target_us).max().unwrap_or(0);
        let chunk = self.renditions.values().map(|one| one.chunk_bytes).max().unwrap_or(0) as u64;
        let seconds = (BUFFERED_SEGMENTS * target_us).div_ceil(1_000_000);
        let (wanted, config) = (rate.saturating_mul(seconds), self.manager.config());
        let (needed, most) = (config.grown_bytes(wanted, chunk), config.grown_bytes(u64::MAX, 0));
        if wanted > most {
            self.complain(wanted, rate, "streams.max_buffer_bytes allows no more");
        }
        let own = self.manager.stream_buffer(self.id).map_or(u64::MAX, |buffer| buffer.capacity_bytes);
        if needed <= own {
            return;
        }
        let made = self.manager.replace_stream(self.id, needed);
        match made {
            Ok(id) => {
                let (stream, mib, mbit) = (&self.name, needed >> 20, rate * 8 / 1_000_000);
                tracing::info!(stream, "the buffer has {mib} MiB from now on, for {mbit} Mbit/s");
                self.former.push((std::mem::replace(&mut self.id, id), Instant::now()));
            }
            Err(error) => self.complain(needed, rate, &error.to_string()),
        }
    }

    /// Notes that there is no buffer of so many bytes for a rate in bytes per second. Each segment asks again, and a larger one is told.
    fn complain(&mut self, bytes: u64, rate: u64, why: &str) {
        if bytes > self.refused_bytes {
            let (mib, mbit) = (bytes.div_ceil(1 << 20), (rate * 8).div_ceil(1_000_000));
            self.refused_bytes = bytes;
            self.complaint = Some(format!(
                "there is no buffer of {mib} MiB for {mbit} Mbit/s, so that slow viewers lose segments: {why}"
            ));
        }
    }

    /// What is to be told of a buffer that was refused, once.
    pub(crate) fn complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    /// Describes the stream before segment `sequence` of a rendition.
    pub(crate) fn describe(&mut self, sequence: u64, own: RenditionUpdate) -> Result<(), OutputError> {
        let (begins_us, timeline) = (own.begins_us, own.timeline);
        timelines::give(sequence, timeline, self.segment_ms);
        self.newest_timeline = self.newest_timeline.max(timeline);
        // Viewers see another buffer as a discontinuity, behind which they need a key frame. Without one for two segments, they are lost anyway.
        let independent = own.independent;
        let before = self.renditions.insert(own.rendition.id, own);
        let may_grow = independent || before.is_some_and(|before| !before.independent);
        let target_us = self.renditions.values().map(|one| one.target_us).max().unwrap_or(1);
        self.renditions.retain(|_, one| {
            one.timeline != timeline || begins_us.saturating_sub(one.begins_us) <= MAX_BEHIND * target_us
        });
        // When one rendition begins a timeline, the others have the same time to follow.
        for one in self.renditions.values_mut().filter(|one| one.timeline < timeline) {
            (one.timeline, one.begins_us) = (timeline, begins_us);
        }
        if may_grow {
            self.grow();
        }
        let parts = self.renditions.values().map(|one| one.part_us);
        let part_target_us = match self.container {
            // A segment may have several chunks, but none of them is of use alone.
            Container::Ts => Some(target_us),
            Container::Cmaf => parts.reduce(|most, one| Some(most?.max(one?))).flatten(),
        };
        let description = Description {
            name: self.name.clone(),
            container: self.container,
            target_duration_us: target_us,
            part_target_us,
            renditions: self.renditions.values().map(|one| one.rendition.clone()).collect(),
        };
        let json = description.to_json()?;
        let header = Header { sequence, ..Header::new(Kind::Description) };
        self.hold(header, |to| to.copy_from_slice(&json), json.len())
    }

    /// Writes a chunk, and with it those that are held.
    pub(crate) fn write(
        &mut self,
        header: Header,
        fill: impl FnOnce(&mut [u8]),
        bytes: usize,
    ) -> Result<(), OutputError> {
        self.hold(header, fill, bytes)?;
        self.release()
    }

    /// Fills a chunk that leaves with the next one: the payload goes straight into the stream's buffer.
    pub(crate) fn hold(
        &mut self,
        header: Header,
        fill: impl FnOnce(&mut [u8]),
        bytes: usize,
    ) -> Result<(), OutputError> {
        let allocated = self.manager.allocate_chunk(self.id, HEADER_BYTES + bytes);
        let Ok(mut chunk) = allocated else {
            // The held chunks are complete, and must not wait.
            self.release()?;
            return allocated.map(drop).map_err(OutputError::from);
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        // The chunk's size was checked against the largest allowed one, which has 32 bits.
        let header = Header { produced_ns: now, payload_bytes: bytes as u32, ..header };
        let header = match header.kind {
            Kind::Init => Dawn::tell(self.dawn.as_ref(), header),
            _ => header,
        };
        if header.kind == Kind::Media {
            Dawn::note(&mut self.dawn, &header);
        }
        let (head, payload) = chunk.bytes_mut().split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header.encode());
        fill(payload);
        self.held.push(chunk);
        Ok(())
    }

    /// Disseminates the held chunks, the newest first. All of them leave together with the oldest one, and wake each node once.
    fn release(&mut self) -> Result<(), OutputError> {
        for chunk in std::mem::take(&mut self.held).into_iter().rev() {
            let size = chunk.size();
            self.manager.disseminate_chunk(chunk, size, None)?;
        }
        Ok(())
    }

    /// Ends the smaller buffers that were left so long ago. What viewers have of them in their playlists stays in their nodes.
    fn leave_former(&mut self, ago: Duration) {
        self.former.retain(|(id, since)| {
            let stays = since.elapsed() < ago;
            if !stays && let Err(error) = self.manager.destroy_stream(*id) {
                tracing::warn!(stream = self.name, "a smaller buffer of the stream stays: {error}");
            }
            stays
        });
    }

    /// Announces the end of the stream to the nodes, and destroys it.
    pub(crate) fn end(&mut self) {
        self.leave_former(Duration::ZERO);
        let next = self.timeline.next_number();
        timelines::end(next.saturating_sub(1), self.newest_timeline, self.segment_ms);
        let header = Header { sequence: next, ..Header::new(Kind::End) };
        let ended = self.write(header, |_| {}, 0).map_err(|failure| failure.to_string());
        let destroyed = self.manager.destroy_stream(self.id).map_err(|failure| failure.to_string());
        if let Err(failure) = ended.and(destroyed) {
            tracing::warn!(stream = self.name, "the stream did not end in order: {failure}");
        }
    }
}
