//! The streams of a delivery node, made from the chunks that arrive.
//!
//! ```text
//!   rblive's worker ─▶ Catalog::take(chunk) ─▶ Stream: description, windows of references into the ring
//!                                                │ changed
//!   viewers' tasks  ◀── playlists, segments ─────┘
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use locks::{Mutex, RwLock};
use rblive::content::{self, Container, Description, Header, Kind, Rendition};
use rblive::{ChunkRef, RsId};
use rblive_media::hls::Measured;
use rblive_media::window::{LiveWindow, SegmentState};
use tokio::sync::watch;

use crate::playlist_cache::PlaylistCache;

/// The most streams of a node.
const MAX_STREAMS: usize = 100_000;

/// The largest initialisation segment. No other media is copied.
const MAX_INIT_BYTES: usize = 1 << 20;

/// The initialisation segments of a rendition that are kept after a newer one.
const MAX_INITS: usize = 8;

/// The part of the ring that may be listed; the last eighth may be overwritten before a viewer has read it.
const WHOLE: f64 = 0.875;

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
    /// The ids of sources that have described a stream and have not ended it, including those that another source has replaced.
    by_id: HashMap<RsId, Arc<Stream>>,
}

/// The state of a stream of a [`Catalog`].
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
    /// Whether viewers can begin to watch the stream: a segment is there, and the source was not lost.
    pub is_live: bool,
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
    /// When the source ended.
    ended_at: Option<Instant>,
    /// When the source was lost without having ended the stream.
    lost_at: Option<Instant>,
    json: Vec<u8>,
    pub description: Description,
    pub renditions: Vec<LiveRendition>,
    /// Renditions that are not described any more. Their media can be fetched until it is overwritten, and they may return.
    absent: Vec<LiveRendition>,
    pub last_chunk: Instant,
    pub began: Instant,
    /// Whether the log has the warning that the buffer is too small.
    warned_short_window: bool,
    /// Counts the changes that viewers can see.
    changes: u64,
    pub playlists: PlaylistCache,
}

/// A rendition with its window.
#[derive(Debug)]
pub(crate) struct LiveRendition {
    pub about: Rendition,
    pub window: LiveWindow<ChunkRef>,
    inits: Vec<(u32, Bytes)>,
}

impl LiveRendition {
    fn new(about: Rendition, description: &Description) -> Self {
        let target = description.target_duration_us;
        let window = LiveWindow::new(target, description.part_target_us.unwrap_or(target));
        Self { about, window, inits: Vec::new() }
    }

    /// The rendition with the measured rates of its segments.
    pub fn measured(&self) -> Measured {
        let average = self.window.average_bandwidth();
        let bandwidth = self.about.bandwidth.max(average.unwrap_or(0));
        (Rendition { bandwidth, ..self.about.clone() }, average)
    }

    /// The initialisation segments that are kept, by their numbers.
    pub fn inits(&self) -> &[(u32, Bytes)] {
        &self.inits
    }

    pub fn init(&self, number: u32) -> Option<&Bytes> {
        self.inits.iter().find(|(own, _)| *own == number).map(|(_, bytes)| bytes)
    }
}

impl Catalog {
    /// Adds a chunk to its stream. The media that the chunk refers to is read when viewers ask for it. A chunk that is not of RBLive's
    /// format, or that is overwritten already, is ignored and counted.
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
            (state.last_chunk, state.lost_at) = (Instant::now(), None);
            let before = state.changes;
            state.apply(&header, payload)?;
            if state.changes == before {
                return Some(());
            }
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

    /// Handles the loss of a stream's source. If the source ended the stream, the server removes the stream
    /// [`Settings::keep_ended`](crate::Settings::keep_ended) target durations later. Otherwise the stream waits
    /// [`Settings::linger_ms`](crate::Settings::linger_ms) for a source. Until then its playlists have no end, because players would stop.
    /// A stream that a newer source of the same name continues is not changed.
    pub fn end(&self, id: RsId) {
        let mut tables = self.tables.write();
        let Some(stream) = tables.by_id.get(&id).cloned() else { return };
        let is_lost = stream.state.lock().source_is_gone(id);
        if !is_lost {
            tables.by_id.remove(&id);
        }
    }

    /// Ends the streams whose sources have been gone for `linger`, and removes the streams that ended `keep` target durations ago.
    pub(crate) fn sweep(&self, keep: u32, linger: Duration) {
        for stream in self.streams() {
            if stream.state.lock().end_lost(linger) {
                stream.changed.send_modify(|count| *count += 1);
            }
        }
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
                is_live: !state.is_ended() && state.lost_at.is_none() && state.has_segment(None),
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
    /// Sets the description of a stream by the source `id`. The newest source of a name owns the stream until that source ends.
    fn describe(&mut self, id: RsId, json: Vec<u8>, description: Description) -> Option<Arc<Stream>> {
        let stream = match self.by_name.get(&description.name) {
            Some(stream) => {
                let was_replaced = self.by_id.get(&id).is_some_and(|known| Arc::ptr_eq(known, stream));
                let stream = stream.clone();
                if let Some(lost) = stream.state.lock().describe(id, was_replaced, json, description) {
                    self.by_id.remove(&lost);
                }
                stream
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
    /// Whether the stream has this description of the source `id` already.
    fn is_described(&self, id: RsId, json: &[u8]) -> bool {
        let state = self.state.lock();
        state.id == id && state.json == json
    }

    /// A stream without media.
    #[cfg(test)]
    pub fn of_test(name: &str) -> Self {
        let description = Description {
            name: name.to_owned(),
            container: Container::Cmaf,
            target_duration_us: 1,
            part_target_us: None,
            renditions: Vec::new(),
        };
        Self::new(RsId::from_u64(1), Vec::new(), description)
    }

    fn new(id: RsId, json: Vec<u8>, description: Description) -> Self {
        let renditions =
            description.renditions.iter().map(|own| LiveRendition::new(own.clone(), &description)).collect();
        let now = Instant::now();
        Self {
            name: description.name.clone(),
            state: Mutex::new(State {
                id,
                position: None,
                ended_at: None,
                lost_at: None,
                json,
                description,
                renditions,
                absent: Vec::new(),
                last_chunk: now,
                began: now,
                warned_short_window: false,
                changes: 0,
                playlists: PlaylistCache::default(),
            }),
            changed: watch::Sender::new(0),
            viewers: AtomicUsize::new(0),
            delivered: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }
}

impl State {
    /// Notes a change that viewers can see.
    fn touch(&mut self) {
        self.changes += 1;
        self.playlists.clear();
    }

    /// Sets the description. Returns the lost source that the source `id` replaces.
    fn describe(
        &mut self,
        id: RsId,
        was_replaced: bool,
        json: Vec<u8>,
        description: Description,
    ) -> Option<RsId> {
        let mut replaced = None;
        if self.id != id {
            let is_gone = self.ended_at.is_some() || self.lost_at.is_some();
            // A smaller buffer of the stream stays beside its successor for a while, and may be read later.
            let is_older = id.node() == self.id.node() && id < self.id;
            if (was_replaced || is_older) && !is_gone {
                return None;
            }
            replaced = self.lost_at.map(|_| self.id);
            (self.id, self.position) = (id, None);
            self.renditions.iter_mut().chain(&mut self.absent).for_each(|live| live.window.on_new_source());
        }
        (self.ended_at, self.lost_at) = (None, None);
        self.list(&description);
        (self.json, self.description) = (json, description);
        self.touch();
        replaced
    }

    /// Lists the renditions that are described, in their order.
    fn list(&mut self, description: &Description) {
        let mut known: Vec<LiveRendition> = self.renditions.drain(..).chain(self.absent.drain(..)).collect();
        for own in &description.renditions {
            let place = known.iter().position(|live| live.about.id == own.id);
            let mut live = match place {
                Some(place) => known.swap_remove(place),
                None => LiveRendition::new(own.clone(), description),
            };
            live.about = own.clone();
            self.renditions.push(live);
        }
        self.absent = known;
        self.align();
    }

    /// Handles the loss of a source. True if it was the current source and had not ended the stream.
    fn source_is_gone(&mut self, id: RsId) -> bool {
        let (is_own, is_ended) = (self.id == id, self.is_ended());
        let since = if is_ended { &mut self.ended_at } else { &mut self.lost_at };
        if is_own {
            *since = Some(Instant::now());
        }
        is_own && !is_ended
    }

    /// Ends the stream if its source has been gone for `linger`. Returns whether it did.
    fn end_lost(&mut self, linger: Duration) -> bool {
        let is_over = self.lost_at.is_some_and(|since| since.elapsed() >= linger);
        if is_over {
            (self.lost_at, self.ended_at) = (None, Some(Instant::now()));
            self.renditions.iter_mut().for_each(|live| live.window.end());
            self.touch();
        }
        is_over
    }

    fn apply(&mut self, header: &Header, payload: ChunkRef) -> Option<()> {
        match header.kind {
            Kind::Init => self.init(header, &payload)?,
            Kind::Media => self.media(header, payload)?,
            _ => {
                self.renditions.iter_mut().chain(&mut self.absent).for_each(|live| live.window.end());
                self.touch();
            }
        }
        self.release();
        Some(())
    }

    /// Removes segments that are overwritten, or will be soon, from the playlists.
    pub fn release(&mut self) {
        let mut released = false;
        for live in self.renditions.iter_mut().chain(&mut self.absent) {
            let before = live.window.segments().len();
            live.window.release(|chunk| chunk.check().is_ok().then(|| chunk.age() / WHOLE));
            released |= live.window.segments().len() != before;
        }
        self.absent.retain(|live| live.window.segments().len() > 0);
        if released {
            self.touch();
        }
        // A buffer that is about to grow is too small for the first segments.
        let target = Duration::from_micros(self.description.target_duration_us);
        let too_short = self.began.elapsed() > 4 * target
            && self.renditions.iter().any(|live| live.window.window_too_short());
        if too_short && !std::mem::replace(&mut self.warned_short_window, true) {
            tracing::warn!(
                stream = self.description.name,
                "the stream's buffer holds fewer than eight target durations: segments are overwritten while players may still fetch \
                 them. Raise streams.max_buffer_bytes where encoders publish the stream"
            );
        }
    }

    fn init(&mut self, header: &Header, payload: &ChunkRef) -> Option<()> {
        if payload.size() > MAX_INIT_BYTES {
            return None;
        }
        let live = self.live_mut(header.rendition)?;
        if header.discontinuities > 0 {
            let offset = i128::from(header.produced_ns) - i128::from(header.start_us) * 1000;
            live.window.set_program_time(header.discontinuities, offset);
        }
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
        self.touch();
        Some(())
    }

    fn media(&mut self, header: &Header, payload: ChunkRef) -> Option<()> {
        let live = self.renditions.iter_mut().find(|live| live.about.id == header.rendition)?;
        let program_time = live.window.program_time();
        let init = live.inits.last().map(|(number, _)| *number);
        // Without its initialisation segment the part cannot be played.
        let init = if self.description.container == Container::Cmaf { init? } else { 0 };
        let target_us = live.window.target_us();
        live.window.push(self.description.part(header, init, payload));
        let now = live.window.program_time();
        if now != program_time || live.window.target_us() > target_us {
            self.align();
        }
        self.touch();
        Some(())
    }

    fn align(&mut self) {
        LiveWindow::align(self.renditions.iter_mut().map(|live| &mut live.window));
    }

    pub fn live(&self, id: u16) -> Option<&LiveRendition> {
        self.renditions.iter().find(|live| live.about.id == id)
    }

    /// A rendition, even if it is not described any more.
    pub fn held(&self, id: u16) -> Option<&LiveRendition> {
        self.live(id).or_else(|| self.absent.iter().find(|live| live.about.id == id))
    }

    fn live_mut(&mut self, id: u16) -> Option<&mut LiveRendition> {
        self.renditions.iter_mut().find(|live| live.about.id == id)
    }

    pub fn is_ended(&self) -> bool {
        !self.renditions.is_empty() && self.renditions.iter().all(|live| live.window.is_ended())
    }

    /// The renditions that have a segment.
    pub fn listed(&self) -> impl Iterator<Item = &LiveRendition> {
        self.renditions.iter().filter(|live| self.has_segment(Some(live.about.id)))
    }

    /// Whether all renditions that are described have a segment.
    pub fn is_whole(&self) -> bool {
        self.listed().count() == self.renditions.len()
    }

    /// Whether a rendition (`id`, or any) has a segment that playlists list.
    pub fn has_segment(&self, id: Option<u16>) -> bool {
        let mut asked = self.renditions.iter().filter(|live| id.is_none_or(|id| live.about.id == id));
        asked.any(|live| live.window.segments().any(|segment| segment.state != SegmentState::Open))
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
