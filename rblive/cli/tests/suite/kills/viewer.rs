//! A viewer: fetches playlists and segments as players do, and believes nothing.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::Random;

use super::encoder::Film;
use super::media;
use super::rules::{self, Listed, Read};
use crate::http;

/// How long a viewer may be without what must come.
const WAIT: Duration = Duration::from_secs(120);

/// The segments and frames that a viewer has seen.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    pub segments: u64,
    pub frames: u64,
    /// Discontinuities between segments that were fetched.
    pub discontinuities: u64,
    /// Segments that the playlists list as gaps, or that are missing between two playlists.
    pub missing: u64,
    /// Segments that were gone, or cut off, when they were fetched.
    pub gone: u64,
    /// Answers that ask the player to try again (503).
    pub busy: u64,
    /// Requests without an answer.
    pub unanswered: u64,
    /// A playlist has said that the stream has ended.
    pub ended: bool,
    /// The longest time between two new segments.
    pub longest_wait: Duration,
}

impl Seen {
    /// The difference from `before` to now.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            segments: self.segments - before.segments,
            frames: self.frames - before.frames,
            discontinuities: self.discontinuities - before.discontinuities,
            missing: self.missing - before.missing,
            gone: self.gone - before.gone,
            busy: self.busy - before.busy,
            unanswered: self.unanswered - before.unanswered,
            ended: self.ended,
            longest_wait: self.longest_wait,
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.segments += other.segments;
        self.frames += other.frames;
        self.discontinuities += other.discontinuities;
        self.missing += other.missing;
        self.gone += other.gone;
        self.busy += other.busy;
        self.unanswered += other.unanswered;
        self.ended |= other.ended;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
    }

    /// Whether nothing was different from other times.
    pub fn is_undisturbed(&self) -> bool {
        self.discontinuities + self.missing + self.gone + self.busy + self.unanswered == 0
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:3} segments, {:4} frames; {} discontinuities, {} missing, {} gone, {} busy, {} unanswered; {:.1} s without a segment",
            self.segments,
            self.frames,
            self.discontinuities,
            self.missing,
            self.gone,
            self.busy,
            self.unanswered,
            self.longest_wait.as_secs_f64()
        )
    }
}

/// The state that the thread of a viewer shares.
#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
    stopped: AtomicBool,
}

pub struct Viewer {
    pub node: &'static str,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Viewer {
    pub fn start(
        node: &'static str,
        address: String,
        rendition: &'static str,
        film: Arc<Film>,
        bytes: Addresses,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let mut watching = Watching {
            address,
            rendition,
            film,
            shared: shared.clone(),
            random: Random::new(7),
            list: None,
            is_cut_off: false,
            last: None,
            bytes,
            newest_at: Instant::now(),
        };
        let thread = std::thread::spawn(move || watching.watch());
        Self { node, shared, thread }
    }

    pub fn seen(&self) -> Seen {
        let mut seen = self.shared.seen.lock().unwrap();
        let before = seen.clone();
        seen.longest_wait = Duration::ZERO;
        before
    }

    /// Waits until the viewer has got some more segments.
    pub fn wait_for(&self, segments: u64) {
        let (until, mut seen) = (Instant::now() + WAIT, self.shared.seen.lock().unwrap());
        let enough = seen.segments + segments;
        while seen.segments < enough {
            assert!(!self.thread.is_finished(), "the viewer of {} has found an error, see above", self.node);
            assert!(Instant::now() < until, "the viewer of {} gets nothing more: {seen}", self.node);
            seen = self.shared.changed.wait_timeout(seen, Duration::from_millis(200)).unwrap().0;
        }
    }

    pub fn stop(self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.thread.join().expect("the viewer saw what it may see");
    }
}

/// The segment that was fetched last.
#[derive(Clone)]
struct Last {
    number: u64,
    discontinuities: u64,
    frame: usize,
    end: u64,
}

/// The check sum of what each address had: the same for ever, and at each delivery node. Of the number of a segment and its timeline, the
/// first frame and its time: the same in all renditions.
pub type Addresses = Arc<Mutex<HashMap<String, u64>>>;

struct Watching {
    address: String,
    /// The stream and its rendition, as in addresses.
    rendition: &'static str,
    film: Arc<Film>,
    shared: Arc<Shared>,
    random: Random,
    list: Option<Read>,
    /// A request had no answer since the last playlist: the node may be another process.
    is_cut_off: bool,
    last: Option<Last>,
    bytes: Addresses,
    newest_at: Instant,
}

impl Watching {
    fn watch(&mut self) {
        while !self.shared.stopped.load(Ordering::Relaxed) {
            if let Some(list) = self.playlist() {
                self.follow(&list);
                self.list = Some(list);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn note(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.shared.seen.lock().unwrap());
        self.shared.changed.notify_all();
    }

    /// Gets a path; what is no success is counted.
    fn get(&mut self, path: &str) -> Option<Vec<u8>> {
        match http::get(&self.address, path, "") {
            Some((200, body)) => return Some(body),
            Some((503, _)) => self.note(|seen| seen.busy += 1),
            Some((404 | 410, _)) => self.note(|seen| seen.gone += 1),
            Some((status, body)) => panic!("{path}: {status} {}", String::from_utf8_lossy(&body)),
            None => {
                self.is_cut_off = true;
                self.note(|seen| seen.unanswered += 1);
            }
        }
        None
    }

    /// The next playlist; sometimes the server lets the request wait for what is new.
    fn playlist(&mut self) -> Option<Read> {
        let next = self.list.as_ref().map(|list| list.sequence + list.segments.len() as u64);
        let query = next
            .filter(|_| self.random.below(2) == 0)
            .map_or(String::new(), |next| format!("?_HLS_msn={next}"));
        let text =
            String::from_utf8(self.get(&format!("/live/{}/media.m3u8{query}", self.rendition))?).unwrap();
        let list = rules::check(&text);
        if let Some(before) = &self.list {
            assert!(list.sequence >= before.sequence, "the media sequence never decreases: {text}");
            assert!(list.breaks > 0, "the discontinuity sequence does not begin again: {text}");
            if !self.is_cut_off {
                rules::check_after(before, &list);
            }
        }
        let starts_anew = std::mem::take(&mut self.is_cut_off);
        if starts_anew {
            // Discontinuities are counted by another process.
            self.last = None;
        }
        self.note(|seen| seen.ended |= list.ended);
        Some(list)
    }

    /// Fetches what is new, and now and then what is old.
    fn follow(&mut self, list: &Read) {
        let old = self.list.take().map_or(list.sequence, |old| old.sequence + old.segments.len() as u64);
        let new: BTreeMap<&u64, &Listed> = list.segments.range(old..).collect();
        let first = list.segments.values().next().map(|first| first.discontinuities);
        let is_continued = self.last.as_ref().is_some_and(|last| Some(last.discontinuities) == first);
        // Another source has numbers of its own.
        let skipped = if is_continued { list.sequence.saturating_sub(old) } else { 0 };
        let missing = skipped + new.values().filter(|own| own.gap).count() as u64;
        self.note(|seen| seen.missing += missing);
        for (number, listed) in new.into_iter().filter(|(_, listed)| !listed.gap) {
            let Some(bytes) = self.media(&listed.uri) else { continue };
            self.segment(*number, listed, &bytes);
        }
        let held: Vec<_> = list.segments.values().filter(|listed| !listed.gap).collect();
        if let Some(any) = held.get(self.random.below(held.len().max(1) as u64) as usize) {
            self.media(&any.uri);
        }
    }

    /// The bytes at an address, which must be the same each time.
    fn media(&mut self, uri: &str) -> Option<Vec<u8>> {
        let address = format!("/live/{}/{uri}", self.rendition);
        let bytes = self.get(&address)?;
        self.is_always(address, &bytes);
        Some(bytes)
    }

    /// Something has one value, whoever looks at it, and whenever.
    fn is_always(&self, what: String, value: impl Hash) {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        let hash = hasher.finish();
        let before = *self.bytes.lock().unwrap().entry(what.clone()).or_insert(hash);
        assert_eq!(before, hash, "{what} is the same for ever");
    }

    /// Checks a segment: frames of the film, one after the other, at the times that follow.
    fn segment(&mut self, number: u64, listed: &Listed, bytes: &[u8]) {
        let segment = media::segment(bytes);
        let place = |nal: &&[u8]| self.film.place(nal).expect("each frame is one of the film's, whole");
        let places: Vec<usize> = segment.frames.iter().map(place).collect();
        for pair in places.windows(2) {
            assert_eq!(pair[1], self.film.after(pair[0]), "no frame of segment {number} is missing");
        }
        let (first, frame) = (*places.first().expect("a segment has frames"), *places.last().unwrap());
        let continues =
            |last: &Last| last.number + 1 == number && last.discontinuities == listed.discontinuities;
        if let Some(last) = self.last.as_ref().filter(|last| continues(last)) {
            assert_eq!(first, self.film.after(last.frame), "segment {number} goes on with the next frame");
            assert_eq!(segment.begin, last.end, "segment {number} goes on at the next time");
        }
        let begin = format!("the beginning of segment {number} of timeline {}", listed.discontinuities);
        self.is_always(begin, (first, segment.begin));
        let jumped = self.last.as_ref().is_some_and(|last| last.discontinuities != listed.discontinuities);
        let waited = std::mem::replace(&mut self.newest_at, Instant::now()).elapsed();
        self.last = Some(Last { number, discontinuities: listed.discontinuities, frame, end: segment.end });
        self.note(|seen| {
            seen.segments += 1;
            seen.frames += places.len() as u64;
            seen.discontinuities += u64::from(jumped);
            seen.longest_wait = seen.longest_wait.max(waited);
        });
    }
}
