//! The streams that a delivery node has, from the chunks that arrive.
//!
//! ```text
//!   rblive's worker ─▶ Catalog::take(chunk) ─▶ Stream: description, tracks of references into the ring
//!                                                │ changed
//!   viewers' tasks  ◀── playlists, segments ─────┘
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use rblive::content::{self, Description, Flags, Header, Kind};
use rblive::{ChunkRef, RsId};
use rblive_media::rendition::Rendition;
use rblive_media::track::{NewPart, SegmentState, Track};
use tokio::sync::watch;

/// The most streams of a node.
const MAX_STREAMS: usize = 100_000;

/// The largest initialisation segment. It is the only media that is copied.
const MAX_INIT_BYTES: usize = 1 << 20;

/// The initialisation segments of a rendition that are kept after a newer one.
const MAX_INITS: usize = 8;

/// The streams of a delivery node. The callback for arriving chunks calls [`Catalog::take`].
#[derive(Debug, Default)]
pub struct Catalog {
    tables: RwLock<Tables>,
    pub(crate) refused_chunks: AtomicU64,
}

/// Both tables change together.
#[derive(Debug, Default)]
struct Tables {
    by_name: HashMap<String, Arc<Stream>>,
    /// The ids that have described a stream and have not ended, the ones whose place another id has taken included.
    by_id: HashMap<RsId, Arc<Stream>>,
}

/// A stream of a [`Catalog`] at a moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StreamStatus {
    /// The name of the stream.
    pub name: String,
    /// Connections that watch the stream.
    pub viewers: usize,
    /// The time since the newest chunk arrived.
    pub age: Duration,
    /// Whether the stream has ended.
    pub ended: bool,
}

/// A stream of a [`Catalog`].
#[derive(Debug)]
pub(crate) struct Stream {
    pub name: String,
    pub state: Mutex<State>,
    /// Counts changes, for requests that wait.
    pub changed: watch::Sender<u64>,
    pub viewers: AtomicUsize,
    pub delivered: AtomicU64,
    pub received: AtomicU64,
}

/// The content of a stream.
#[derive(Debug)]
pub(crate) struct State {
    id: RsId,
    position: Option<u64>,
    /// The next part does not continue the ones before: another source took over.
    taken_over: bool,
    /// When the source ended.
    ended_at: Option<Instant>,
    json: Vec<u8>,
    pub description: Description,
    pub renditions: Vec<Live>,
    pub last_chunk: Instant,
    pub began: Instant,
}

/// A rendition with its track.
#[derive(Debug)]
pub(crate) struct Live {
    pub about: Rendition,
    pub track: Track<ChunkRef>,
    inits: Vec<(u32, Bytes)>,
}

impl Live {
    fn new(about: Rendition, description: &Description) -> Self {
        let target = description.target_duration_us;
        let track = Track::new(target, description.part_target_us.unwrap_or(target));
        Self { about, track, inits: Vec::new() }
    }

    pub fn init(&self, number: u32) -> Option<&Bytes> {
        self.inits.iter().find(|(own, _)| *own == number).map(|(_, bytes)| bytes)
    }
}

impl Catalog {
    /// Takes a chunk of a stream. What it refers to is read when viewers ask for it. A chunk that is none of RBLive's, or that was
    /// overwritten already, is ignored and counted.
    pub fn take(&self, chunk: ChunkRef) {
        if self.try_take(&chunk).is_none() {
            self.refused_chunks.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn try_take(&self, chunk: &ChunkRef) -> Option<()> {
        let (header, payload) = chunk.content().ok()?;
        if header.kind == Kind::Description {
            return self.describe(chunk.stream(), &payload);
        }
        let stream = self.tables.read().by_id.get(&chunk.stream())?.clone();
        stream.received.fetch_add(payload.size() as u64, Ordering::Relaxed);
        {
            let mut state = stream.state.lock();
            let again = state.position.is_some_and(|last| chunk.position() <= last);
            if state.id != chunk.stream() || again {
                return Some(());
            }
            state.position = Some(chunk.position());
            state.last_chunk = Instant::now();
            state.apply(&header, payload)?;
        }
        stream.changed.send_modify(|count| *count += 1);
        Some(())
    }

    fn describe(&self, id: RsId, payload: &ChunkRef) -> Option<()> {
        if payload.size() > content::MAX_DESCRIPTION_BYTES {
            return None;
        }
        let json = payload.to_vec().ok()?;
        let known = self.tables.read().by_id.get(&id).cloned();
        if known.is_some_and(|known| known.is_described(id, &json)) {
            return Some(());
        }
        let description = Description::from_json(&json).ok()?;
        let stream = self.tables.write().describe(id, json, description)?;
        stream.changed.send_modify(|count| *count += 1);
        Some(())
    }

    /// Ends a stream whose source is gone. Its playlists say so, and the server removes the stream
    /// [`Settings::keep_ended`](crate::Settings::keep_ended) target durations later. A newer stream of the same name stays.
    pub fn end(&self, id: RsId) {
        let Some(stream) = self.tables.write().by_id.remove(&id) else { return };
        {
            let mut state = stream.state.lock();
            if state.id != id {
                return;
            }
            state.ended_at = Some(Instant::now());
            state.renditions.iter_mut().for_each(|live| live.track.end());
        }
        stream.changed.send_modify(|count| *count += 1);
    }

    /// Removes the streams that ended `keep` target durations ago.
    pub(crate) fn sweep(&self, keep: u32) {
        let over = |stream: &Stream| {
            let state = stream.state.lock();
            let kept = Duration::from_micros(state.description.target_duration_us).saturating_mul(keep);
            state.ended_at.is_some_and(|ended_at| ended_at.elapsed() >= kept)
        };
        if self.streams().iter().any(|stream| over(stream)) {
            let mut tables = self.tables.write();
            let Tables { by_name, by_id } = &mut *tables;
            by_name.retain(|_, stream| !over(stream));
            by_id.retain(|_, stream| !over(stream));
        }
    }

    /// Returns all streams, sorted by name.
    pub fn statuses(&self) -> Vec<StreamStatus> {
        let status = |stream: &Arc<Stream>| {
            let state = stream.state.lock();
            StreamStatus {
                name: stream.name.clone(),
                viewers: stream.viewers.load(Ordering::Relaxed),
                age: state.last_chunk.elapsed(),
                ended: state.is_ended(),
            }
        };
        self.streams().iter().map(status).collect()
    }

    pub(crate) fn stream(&self, name: &str) -> Option<Arc<Stream>> {
        self.tables.read().by_name.get(name).cloned()
    }

    pub(crate) fn streams(&self) -> Vec<Arc<Stream>> {
        let mut all: Vec<_> = self.tables.read().by_name.values().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

impl Tables {
    /// Takes the description of a stream by the source `id`. The newest source of a name has the stream until it ends.
    fn describe(&mut self, id: RsId, json: Vec<u8>, description: Description) -> Option<Arc<Stream>> {
        let stream = match self.by_name.get(&description.name) {
            Some(stream) => {
                let was_replaced = self.by_id.get(&id).is_some_and(|known| Arc::ptr_eq(known, stream));
                stream.state.lock().describe(id, was_replaced, json, description);
                stream.clone()
            }
            None if self.by_name.len() >= MAX_STREAMS => return None,
            None => {
                let stream = Arc::new(Stream::new(id, json, description));
                self.by_name.insert(stream.name.clone(), stream.clone());
                stream
            }
        };
        self.by_id.insert(id, stream.clone());
        Some(stream)
    }
}

impl Stream {
    /// Whether the source `id` has nothing new to say with this description.
    fn is_described(&self, id: RsId, json: &[u8]) -> bool {
        let state = self.state.lock();
        state.id == id && state.json == json
    }

    fn new(id: RsId, json: Vec<u8>, description: Description) -> Self {
        let renditions =
            description.renditions.iter().map(|own| Live::new(about(own), &description)).collect();
        let now = Instant::now();
        Self {
            name: description.name.clone(),
            state: Mutex::new(State {
                id,
                position: None,
                taken_over: false,
                ended_at: None,
                json,
                description,
                renditions,
                last_chunk: now,
                began: now,
            }),
            changed: watch::Sender::new(0),
            viewers: AtomicUsize::new(0),
            delivered: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }
}

impl State {
    fn describe(&mut self, id: RsId, was_replaced: bool, json: Vec<u8>, description: Description) {
        if self.id != id {
            if was_replaced && self.ended_at.is_none() {
                return;
            }
            (self.id, self.position, self.taken_over, self.ended_at) = (id, None, true, None);
        }
        self.renditions.retain(|live| description.rendition(live.about.id).is_some());
        for own in &description.renditions {
            match self.live_mut(own.id) {
                Some(live) => live.about = about(own),
                None => self.renditions.push(Live::new(about(own), &description)),
            }
        }
        (self.json, self.description) = (json, description);
    }

    fn apply(&mut self, header: &Header, payload: ChunkRef) -> Option<()> {
        match header.kind {
            Kind::Init => self.init(header, &payload)?,
            Kind::Media => self.media(header, payload)?,
            _ => self.renditions.iter_mut().for_each(|live| live.track.end()),
        }
        self.release();
        Some(())
    }

    /// Removes what was overwritten from the playlists.
    pub fn release(&mut self) {
        for live in &mut self.renditions {
            live.track.release(|chunk| chunk.check().is_ok());
        }
    }

    fn init(&mut self, header: &Header, payload: &ChunkRef) -> Option<()> {
        if payload.size() > MAX_INIT_BYTES {
            return None;
        }
        let live = self.live_mut(header.rendition)?;
        let bytes = payload.to_vec().ok()?;
        let number = crc32c::crc32c(&bytes);
        if live.inits.last().is_some_and(|(last, _)| *last == number) {
            return Some(());
        }
        live.inits.retain(|(own, _)| *own != number);
        live.inits.push((number, bytes.into()));
        if live.inits.len() > MAX_INITS {
            live.inits.remove(0);
        }
        Some(())
    }

    fn media(&mut self, header: &Header, payload: ChunkRef) -> Option<()> {
        let is_cmaf = self.description.container == content::Container::Cmaf;
        let taken_over = self.taken_over && header.part == 0;
        let live = self.live_mut(header.rendition)?;
        let init = live.inits.last().map(|(number, _)| *number);
        // Without its initialisation segment nobody can play the part.
        let init = if is_cmaf { init? } else { 0 };
        live.track.push(NewPart {
            sequence: header.sequence,
            index: header.part,
            start_us: header.start_us,
            duration_us: header.duration_us,
            produced_ns: header.produced_ns,
            independent: header.flags.contains(Flags::INDEPENDENT),
            discontinuity: header.flags.contains(Flags::DISCONTINUITY) || taken_over,
            last: header.flags.contains(Flags::LAST_PART) || !is_cmaf,
            bytes: header.payload_bytes,
            init,
            data: payload,
        });
        self.taken_over &= !taken_over;
        Some(())
    }

    pub fn live(&self, id: u16) -> Option<&Live> {
        self.renditions.iter().find(|live| live.about.id == id)
    }

    fn live_mut(&mut self, id: u16) -> Option<&mut Live> {
        self.renditions.iter_mut().find(|live| live.about.id == id)
    }

    pub fn is_ended(&self) -> bool {
        !self.renditions.is_empty() && self.renditions.iter().all(|live| live.track.is_ended())
    }

    /// Whether a rendition (`id`, or any) has a segment that playlists list.
    pub fn has_segment(&self, id: Option<u16>) -> bool {
        let mut asked = self.renditions.iter().filter(|live| id.is_none_or(|id| live.about.id == id));
        asked.any(|live| live.track.segments().any(|segment| segment.state != SegmentState::Open))
    }

    /// Whether chunks are late by more than two segments.
    pub fn is_stalled(&self) -> bool {
        self.last_chunk.elapsed() > 2 * Duration::from_micros(self.description.target_duration_us)
    }

    /// Whether parts are announced one by one.
    pub fn is_low_latency(&self) -> bool {
        self.description.part_target_us.is_some_and(|part| part < self.description.target_duration_us)
    }
}

fn about(own: &content::Rendition) -> Rendition {
    Rendition {
        id: own.id,
        codecs: own.codecs.clone(),
        bandwidth: own.bandwidth,
        resolution: own.video.map(|video| (video.width, video.height)),
        frame_rate: own
            .video
            .filter(|video| video.frames_per_1000_s > 0)
            .map(|video| f64::from(video.frames_per_1000_s) / 1000.0),
        audio_only: own.video.is_none() && own.audio.is_some(),
    }
}
