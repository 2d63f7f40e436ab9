//! The growing recordings of a stream: the newest one, and the one before until its last segments are written.

use std::collections::VecDeque;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use rblive::content::Rendition;
use rblive_media::hls::VodSegment;
use rblive_media::rendition::Container;

use crate::counters::RecordCounters;
use crate::recording::{Recording, SegmentFile, Source};
use crate::retention::Shelf;

/// So many of the newest segments of a missing rendition do not become gaps yet, because its encoder may be late.
const LATE_SEGMENTS: u64 = 8;

/// The growing recordings of a stream.
#[derive(Debug)]
pub struct Recordings {
    name: String,
    container: Container,
    /// The renditions that the stream has now.
    renditions: Vec<Rendition>,
    all: VecDeque<Recording>,
    serial: u64,
}

/// A segment of a stream.
#[derive(Debug, Clone, Copy)]
pub struct SegmentName {
    pub rendition: u16,
    /// Its number in the window.
    pub number: u64,
    /// The number that its source gives it.
    pub sequence: u64,
}

/// A segment that is being written.
#[derive(Debug)]
pub struct Open {
    /// Its number in the window.
    pub number: u64,
    /// Its recording.
    pub serial: u64,
    pub segment: SegmentFile,
}

impl Recordings {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            container: Container::Cmaf,
            renditions: Vec::new(),
            all: VecDeque::new(),
            serial: 0,
        }
    }

    /// Sets the container and the renditions of the next segments.
    pub fn describe(&mut self, container: Container, renditions: Vec<Rendition>) {
        (self.container, self.renditions) = (container, renditions);
    }

    /// Whether a segment was kept before, by an earlier process, whose recording is continued.
    pub fn had(&mut self, rendition: u16, from: Source, shelf: &mut Shelf) -> bool {
        if self.all.is_empty() {
            self.resume(shelf);
        }
        self.all.back().is_some_and(|newest| newest.had(rendition, from))
    }

    /// Begins a segment. `None`: there is no room for it.
    pub fn begin(&mut self, of: SegmentName, map: Option<(u32, &[u8])>, shelf: &mut Shelf) -> Option<Open> {
        if !shelf.make_room(&self.name) {
            RecordCounters::add(&shelf.counters.over_limit, 1);
            tracing::warn!(stream = self.name, "max_bytes leaves no room: all recordings still grow");
            return None;
        }
        let SegmentName { rendition, number, sequence } = of;
        let begun = self.current(sequence, shelf).and_then(|recording| {
            recording.newest = recording.newest.max(Some(sequence));
            Ok((recording.serial, recording.begin(rendition, map)?))
        });
        match begun {
            Ok((serial, segment)) => Some(Open { number, serial, segment }),
            Err(error) => {
                shelf.failed(&error);
                None
            }
        }
    }

    /// The recording that a segment belongs to.
    fn current(&mut self, sequence: u64, shelf: &mut Shelf) -> io::Result<&mut Recording> {
        // A rendition that is behind the others continues the recording in which they have this segment.
        let behind = self.all.len().saturating_sub(1);
        let has_begun = |own: &Recording| own.container == self.container && own.newest >= Some(sequence);
        if let Some(at) = self.all.iter().take(behind).position(has_begun) {
            return Ok(&mut self.all[at]);
        }
        let (longest, largest) = (shelf.rule.longest_us(), shelf.rule.largest_bytes());
        let goes_on = self.all.back().is_some_and(|newest| {
            // Another rendition has begun this segment in the newest recording.
            let begun = newest.newest == Some(sequence);
            newest.container == self.container && (begun || !newest.is_full(longest, largest))
        });
        if !goes_on {
            self.add(shelf)?;
        }
        let newest = self.all.back_mut().ok_or(io::ErrorKind::NotFound)?;
        newest.describe(&self.renditions);
        Ok(newest)
    }

    /// Continues the recording of an earlier process, if there is one that may be continued.
    fn resume(&mut self, shelf: &mut Shelf) {
        let Some((folder, begin, bytes)) = shelf.resumable(&self.name) else { return };
        match Recording::resume(folder, self.container, bytes, shelf.rule.sync) {
            Ok(own) if own.is_full(shelf.rule.longest_us(), shelf.rule.largest_bytes()) => {}
            Ok(own) => self.take(own, shelf),
            Err(error) => tracing::warn!(stream = self.name, begin, "a recording is not continued: {error}"),
        }
    }

    /// Begins a recording.
    fn add(&mut self, shelf: &mut Shelf) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let folder = shelf.stream_folder(&self.name);
        let recording = Recording::create(&folder, &self.name, self.container, now, shelf.rule.sync)?;
        self.take(recording, shelf);
        Ok(())
    }

    fn take(&mut self, mut recording: Recording, shelf: &mut Shelf) {
        self.serial += 1;
        recording.serial = self.serial;
        shelf.set_active(&self.name, &recording.about.begin, true);
        RecordCounters::add(&shelf.counters.recordings, 1);
        tracing::info!(stream = self.name, begin = recording.about.begin, "the stream is kept");
        self.all.push_back(recording);
    }

    /// Adds a segment or a gap. A rendition of a recording does not begin with gaps of its own, which are left out.
    pub fn put(
        &mut self,
        rendition: u16,
        from: Source,
        open: Option<Open>,
        listed: VodSegment,
        shelf: &mut Shelf,
    ) {
        let found = match open.as_ref().map(|open| open.serial) {
            Some(serial) => self.all.iter_mut().find(|own| own.serial == serial),
            None => self.all.back_mut(),
        };
        let is_gap = listed.gap || open.is_none();
        let Some(recording) = found.filter(|own| !is_gap || own.has(rendition)) else { return };
        if !recording.has_place(rendition, from) {
            return;
        }
        let done = match open.filter(|_| !is_gap) {
            Some(open) => recording.commit(open.segment, from, listed).map(Some),
            None => {
                recording.list(rendition, from, VodSegment { gap: true, ..listed });
                Ok(None)
            }
        };
        recording.fill_all_but(&self.renditions, LATE_SEGMENTS);
        let listed = recording.flush();
        let about = recording.about.clone();
        shelf.grown(&self.name, &about.begin, about.bytes);
        match done {
            Ok(Some(bytes)) => {
                shelf.worked();
                RecordCounters::add(&shelf.counters.segments, 1);
                RecordCounters::add(&shelf.counters.bytes, bytes);
            }
            done => {
                let (stream, begin, segment) = (&self.name, &about.begin, about.segments);
                tracing::warn!(stream, begin, segment, "a segment is a gap of the recording");
                RecordCounters::add(&shelf.counters.gaps, 1);
                done.err().into_iter().for_each(|error| shelf.failed(&error));
            }
        }
        if let Err(error) = listed {
            shelf.failed(&error);
        }
    }

    /// Closes the recordings before the newest one to which no segment is being written, and to which none will be. `used`: the oldest
    /// recording to which a segment is being written.
    pub fn close_before(&mut self, used: Option<u64>, shelf: &mut Shelf) {
        let is_unused = |first: &Recording| used.is_none_or(|used| first.serial < used);
        while self.all.len() > 1 && is_unused(&self.all[0]) && !self.is_awaited(&self.all[0]) {
            self.all[0].fill_all_but(&[], 0);
            self.close_first(shelf);
        }
    }

    /// Whether a rendition will still write segments that the others have in a recording: it is behind them, and not by much.
    fn is_awaited(&self, own: &Recording) -> bool {
        let newest = self.all.back().and_then(|recording| recording.newest);
        let is_near = |(end, newest): (u64, u64)| newest.saturating_sub(end) <= LATE_SEGMENTS;
        own.newest.zip(newest).is_some_and(is_near) && self.renditions.iter().any(|one| own.lacks(one.id))
    }

    /// Prepares for another source, whose segment numbers are unrelated to the former ones.
    pub fn start_over(&mut self) {
        self.all.iter_mut().for_each(|recording| recording.newest = None);
    }

    /// Fills all renditions with gaps to the same end, because the stream does not return.
    pub fn complete(&mut self) {
        self.all.iter_mut().for_each(|recording| recording.fill_all_but(&[], 0));
    }

    fn close_first(&mut self, shelf: &mut Shelf) {
        let Some(mut first) = self.all.pop_front() else { return };
        if let Err(error) = first.flush() {
            shelf.failed(&error);
        }
        shelf.set_active(&self.name, &first.about.begin, false);
        if first.about.segments == 0 {
            shelf.discard(&self.name, &first.about.begin);
        }
    }

    /// Writes the files that could not be written before.
    pub fn flush(&mut self, shelf: &mut Shelf) {
        for recording in &mut self.all {
            if let Err(error) = recording.flush() {
                shelf.failed(&error);
            }
        }
    }

    /// Closes all recordings.
    pub fn close(&mut self, shelf: &mut Shelf) {
        while !self.all.is_empty() {
            self.close_first(shelf);
        }
    }
}
