//! A stream that is being kept: its chunks become segments of recordings.
//!
//! ```text
//!   chunk ─▶ LiveWindow: which segment, complete or lost? ─▶ part of a segment's file ─▶ Recordings: commit, or a gap
//! ```
//!
//! The numbers, holes and discontinuities are those that viewers of the live stream see, because the same [`LiveWindow`] decides on them.

use std::time::{Duration, Instant};

use rblive::content::{self, Container, Description, Header, Kind};
use rblive::{ChunkRef, ReadError, RsId};
use rblive_media::hls::VodSegment;
use rblive_media::window::{LiveWindow, Pushed, SegmentState};

use crate::counters::RecordCounters;
use crate::in_place::{self, WriteError};
use crate::recording::Source;
use crate::recordings::{Open, Recordings, SegmentName};
use crate::retention::Shelf;

/// The largest initialisation segment.
const MAX_INIT_BYTES: usize = 1 << 20;

/// A stream that is being kept.
#[derive(Debug)]
pub struct Stream {
    /// The source. Chunks of others are not kept.
    pub id: RsId,
    name: String,
    position: Option<u64>,
    json: Vec<u8>,
    description: Option<Description>,
    lanes: Vec<Lane>,
    recordings: Recordings,
    ended_at: Option<Instant>,
}

/// A rendition of the stream.
#[derive(Debug)]
struct Lane {
    id: u16,
    /// The window has an ordinal instead of the bytes of a part.
    window: LiveWindow<u64>,
    init: Option<(u32, Vec<u8>)>,
    ordinal: u64,
    /// The number that is added to the source's numbers.
    offset: u64,
    /// The number of the next segment that is neither listed nor left out.
    unlisted: u64,
    open: Option<Open>,
    /// The number of the segment that the end of the source cut off. It is listed: nobody else has more of it at this address.
    cut_off: Option<u64>,
}

impl Stream {
    pub fn new(name: &str, id: RsId) -> Self {
        Self {
            id,
            name: name.to_owned(),
            position: None,
            json: Vec::new(),
            description: None,
            lanes: Vec::new(),
            recordings: Recordings::new(name),
            ended_at: None,
        }
    }

    /// Continues the stream with another source.
    pub fn replace(&mut self, id: RsId, shelf: &mut Shelf) {
        self.finish(shelf);
        (self.id, self.position, self.description, self.ended_at) = (id, None, None, None);
        self.json.clear();
    }

    /// Handles a chunk of the source. The media that the chunk refers to is written before this call returns.
    pub fn take(&mut self, chunk: &ChunkRef, shelf: &mut Shelf) {
        if self.position.is_some_and(|last| chunk.position() <= last) {
            return;
        }
        self.position = Some(chunk.position());
        let (header, payload) = match chunk.content() {
            Ok(content) => content,
            Err(ReadError::Lapped(_)) => return RecordCounters::add(&shelf.counters.overtaken, 1),
            Err(_) => return,
        };
        match header.kind {
            Kind::Description => self.describe(&payload),
            Kind::Init => self.init(&header, &payload),
            Kind::Media => self.media(&header, &payload, shelf),
            Kind::End => self.end(shelf),
        }
    }

    fn describe(&mut self, payload: &ChunkRef) {
        if payload.size() > content::MAX_DESCRIPTION_BYTES {
            return;
        }
        let Ok(json) = payload.to_vec() else { return };
        if json == self.json {
            return;
        }
        let Ok(description) = Description::from_json(&json) else { return };
        self.lanes.retain(|lane| description.rendition(lane.id).is_some());
        for own in &description.renditions {
            if !self.lanes.iter().any(|lane| lane.id == own.id) {
                self.lanes.push(Lane::new(own.id, &description));
            }
        }
        self.recordings.describe(description.container, description.renditions.clone());
        self.align();
        (self.json, self.description) = (json, Some(description));
    }

    fn init(&mut self, header: &Header, payload: &ChunkRef) {
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.id == header.rendition) else { return };
        if payload.size() > MAX_INIT_BYTES {
            return;
        }
        if let Ok(bytes) = payload.to_vec() {
            lane.init = Some((crc32c::crc32c(&bytes), bytes));
        }
    }

    fn media(&mut self, header: &Header, payload: &ChunkRef, shelf: &mut Shelf) {
        let Some(description) = &self.description else { return };
        self.ended_at = None;
        let is_cmaf = description.container == Container::Cmaf;
        let Some(lane) = self.lanes.iter_mut().find(|lane| lane.id == header.rendition) else { return };
        let init = lane.init.as_ref().map(|(number, _)| *number);
        // Without its initialisation segment the part cannot be played.
        let Some(init) = (if is_cmaf { init } else { Some(0) }) else { return };
        let from = Source { id: self.id, sequence: header.sequence };
        if self.recordings.had(lane.id, from, shelf) {
            return;
        }
        let program_time = lane.window.program_time();
        lane.ordinal += 1;
        let pushed = lane.window.push(description.part(header, init, lane.ordinal));
        let begins = lane.window.program_time() != program_time;
        let Some(newest) = lane.window.segments().next_back().map(|segment| segment.number) else { return };
        lane.list(self.id, newest, &mut self.recordings, shelf);
        if pushed == Pushed::Unusable {
            lane.open = None;
        } else {
            lane.offset = newest.wrapping_sub(header.sequence);
            if header.part == 0 {
                let map =
                    lane.init.as_ref().filter(|_| is_cmaf).map(|(number, bytes)| (*number, bytes.as_slice()));
                let of = SegmentName { rendition: lane.id, number: newest, sequence: header.sequence };
                lane.open = self.recordings.begin(of, map, shelf);
            }
            lane.write(newest, payload, shelf);
        }
        lane.list(self.id, u64::MAX, &mut self.recordings, shelf);
        lane.forget(newest);
        if begins {
            self.align();
        }
        let used = self.lanes.iter().filter_map(|lane| Some(lane.open.as_ref()?.serial)).min();
        self.recordings.close_before(used, shelf);
    }

    fn align(&mut self) {
        LiveWindow::align(self.lanes.iter_mut().map(|lane| &mut lane.window));
    }

    /// The source has ended. The recording waits for its return.
    pub fn end(&mut self, shelf: &mut Shelf) {
        self.finish(shelf);
        self.ended_at = Some(Instant::now());
    }

    /// Ends the timeline. Complete segments are listed.
    fn finish(&mut self, shelf: &mut Shelf) {
        for mut lane in self.lanes.drain(..) {
            let newest = lane.window.segments().next_back();
            let open = newest.filter(|own| own.state == SegmentState::Open && !own.parts.is_empty());
            lane.cut_off = open.map(|own| own.number);
            lane.window.end();
            lane.list(self.id, u64::MAX, &mut self.recordings, shelf);
        }
        self.recordings.start_over();
        self.json.clear();
    }

    /// Periodic work for the stream. False: the stream does not return.
    pub fn tend(&mut self, shelf: &mut Shelf) -> bool {
        self.recordings.flush(shelf);
        let waits = Duration::from_millis(shelf.rule.rejoin_ms);
        let over = self.ended_at.is_some_and(|ended| ended.elapsed() >= waits);
        if over {
            self.recordings.complete();
            tracing::info!(stream = self.name, "the recording of the stream has ended");
        }
        !over
    }

    /// Closes the recordings. An incomplete segment is left out, because a restarted recorder may still find all of it in the ring.
    pub fn close(&mut self, shelf: &mut Shelf) {
        self.lanes.clear();
        self.recordings.close(shelf);
    }
}

impl Lane {
    fn new(id: u16, description: &Description) -> Self {
        let target = description.target_duration_us;
        Self {
            id,
            window: LiveWindow::new(target, description.part_target_us.unwrap_or(target)),
            init: None,
            ordinal: 0,
            offset: 0,
            unlisted: 0,
            open: None,
            cut_off: None,
        }
    }

    /// Writes a part into the file of its segment.
    fn write(&mut self, number: u64, payload: &ChunkRef, shelf: &mut Shelf) {
        let Some(open) = self.open.as_ref().filter(|open| open.number == number) else { return };
        match in_place::write(&open.segment.file, payload) {
            Ok(()) => return,
            Err(WriteError::Overtaken(_)) => RecordCounters::add(&shelf.counters.overtaken, 1),
            Err(WriteError::Disk(error)) => shelf.failed(&error),
        }
        self.open = None;
    }

    /// Lists the segments before number `until` that are not open any more.
    fn list(&mut self, id: RsId, until: u64, recordings: &mut Recordings, shelf: &mut Shelf) {
        let closed: Vec<_> = self
            .window
            .segments()
            .filter(|own| (self.unlisted..until).contains(&own.number) && own.state != SegmentState::Open)
            .map(|own| {
                let (duration_us, wall_ns, init) = (own.duration_us, own.wall_ns, own.init);
                let gap = own.state == SegmentState::Gap && self.cut_off != Some(own.number);
                let (discontinuity, independent) = (own.discontinuity, own.is_independent());
                let listed = VodSegment { duration_us, wall_ns, init, gap, discontinuity, independent };
                (own.number, listed)
            })
            .collect();
        for (number, listed) in closed {
            self.unlisted = number + 1;
            let open = self.open.take_if(|open| open.number <= number).filter(|open| open.number == number);
            let from = Source { id, sequence: number.wrapping_sub(self.offset) };
            recordings.put(self.id, from, open, listed, shelf);
        }
    }

    /// Forgets the segments before the newest one.
    fn forget(&mut self, newest: u64) {
        let first = self.window.segment(newest).and_then(|own| own.parts.first()).map(|part| part.data);
        let first = first.unwrap_or(self.ordinal + 1);
        self.window.release(|ordinal| (*ordinal >= first).then_some(0.0));
    }
}
