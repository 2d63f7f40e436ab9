//! A recording: its folder, its playlists, and the segments that are added to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use private_files::GivenFile;
use rblive::RsId;
use rblive_media::civil::stamp;
use rblive_media::hls::{MAX_VOD_BYTES, MAX_VOD_SEGMENTS, VodPlaylist, VodSegment, multivariant_playlist};
use rblive_media::rendition::{Container, Rendition};
use serde::{Deserialize, Serialize};

use crate::layout::{ABOUT, INDEX, PART, PLAYLIST, init, names};

/// The most recordings of a stream that begin in one second.
const MAX_SAME_SECOND: u32 = 99;

/// The longest file about a recording that is read.
pub const MAX_ABOUT_BYTES: u64 = 64 << 10;

/// A recording, as lists show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The name of the stream.
    pub name: String,
    /// When it began, in UTC; also its name: `20261125T214822Z`.
    pub begin: String,
    /// Its length in seconds, gaps included.
    pub seconds: f64,
    /// Its segments, gaps included, of the rendition that has most.
    pub segments: u64,
    /// The segments that are gaps, of all renditions. Segments for which a rendition was not published do not count.
    pub gaps: u64,
    /// Its size in bytes, without playlists.
    pub bytes: u64,
    /// All renditions that it has, also those that left the stream before its end.
    #[serde(default)]
    pub renditions: Vec<Rendition>,
}

/// The origin of a segment: the source of the stream, and the segment's number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    pub id: RsId,
    pub sequence: u64,
}

/// The mapping of a source's segment numbers to numbers of the recording.
#[derive(Debug, Clone, Copy)]
struct Rows {
    id: RsId,
    /// The recording's number of the source's segment 0.
    zero: i128,
    /// The lowest number that a segment of the source can have in the recording.
    first: u64,
}

/// A rendition of a recording.
#[derive(Debug)]
struct Lane {
    playlist: VodPlaylist,
    /// The source of the next segment, if nothing is lost.
    next: Option<Source>,
    inits: BTreeSet<u32>,
    /// Whether the file is older than the playlist.
    dirty: bool,
}

/// A recording that grows.
#[derive(Debug)]
pub struct Recording {
    folder: PathBuf,
    pub about: About,
    pub container: Container,
    lanes: BTreeMap<u16, Lane>,
    rows: Option<Rows>,
    /// The playlist of all renditions, as it is in the file.
    index: String,
    sync: bool,
    /// The newest segment that began, by the source's count.
    pub newest: Option<u64>,
    /// The number of this recording among those of its stream in this process.
    pub serial: u64,
}

/// A segment that is being written. The file is removed unless it is committed.
#[derive(Debug)]
pub struct SegmentFile {
    path: PathBuf,
    rendition: u16,
    pub file: fs::File,
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        // If this fails, the next segment of the rendition overwrites the file.
        let _ = fs::remove_file(&self.path);
    }
}

impl Recording {
    /// Begins a recording in the folder of its stream.
    pub fn create(
        stream_folder: &Path,
        name: &str,
        container: Container,
        now_ns: u64,
        sync: bool,
    ) -> io::Result<Self> {
        private_files::create_folder(stream_folder)?;
        let (folder, begin) = new_folder(stream_folder, &stamp(now_ns))?;
        let (name, renditions) = (name.to_owned(), Vec::new());
        let about = About { name, begin, seconds: 0.0, segments: 0, gaps: 0, bytes: 0, renditions };
        let recording = Self {
            folder,
            about,
            container,
            lanes: BTreeMap::new(),
            rows: None,
            index: String::new(),
            sync,
            newest: None,
            serial: 0,
        };
        recording.write_about()?;
        Ok(recording)
    }

    /// Continues a recording of an earlier process, of `bytes` bytes.
    pub fn resume(folder: PathBuf, container: Container, bytes: u64, sync: bool) -> io::Result<Self> {
        let about = read_about(&folder.join(ABOUT))?;
        let mut lanes: BTreeMap<u16, Lane> = BTreeMap::new();
        for entry in fs::read_dir(&folder)?.flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(id) = id.filter(|_| entry.path().is_dir()) else { continue };
            let lane = Lane::read(&entry.path())?;
            if lane.playlist.container() != container {
                return Err(io::Error::other("the recording has another format"));
            }
            lanes.insert(id, lane);
        }
        let segments = lanes.values().map(|lane| lane.playlist.next_number()).max().unwrap_or(0);
        let about = About { bytes, segments, ..about };
        let (rows, index) = (Rows::of(&lanes), String::new());
        Ok(Self { folder, about, container, lanes, rows, index, sync, newest: None, serial: 0 })
    }

    /// Whether the recording has a segment of a rendition.
    pub fn has(&self, rendition: u16) -> bool {
        self.lanes.get(&rendition).is_some_and(|lane| lane.playlist.next_number() > 0)
    }

    /// Whether the recording has the rendition, but fewer segments of it than of another one.
    pub fn lacks(&self, rendition: u16) -> bool {
        let lane = self.lanes.get(&rendition).filter(|_| self.has(rendition));
        lane.is_some_and(|lane| lane.playlist.next_number() < self.about.segments)
    }

    /// Whether the recording is so long or large that another one must begin.
    pub fn is_full(&self, longest_us: u64, largest_bytes: u64) -> bool {
        let (us, segments) = (self.duration_us(), self.about.segments);
        us >= longest_us || self.about.bytes >= largest_bytes || segments >= MAX_VOD_SEGMENTS
    }

    fn duration_us(&self) -> u64 {
        self.lanes.values().map(|lane| lane.playlist.duration_us()).max().unwrap_or(0)
    }

    /// Adds the renditions that the stream has now. Earlier renditions stay.
    pub fn describe(&mut self, renditions: &[Rendition]) {
        for now in renditions {
            let known = &mut self.about.renditions;
            match known.iter_mut().find(|own| own.id == now.id) {
                Some(own) => *own = Rendition { bandwidth: own.bandwidth.max(now.bandwidth), ..now.clone() },
                None => known.push(now.clone()),
            }
        }
        self.about.renditions.sort_unstable_by_key(|own| own.id);
    }

    /// Begins a segment, after its initialisation segment.
    pub fn begin(&mut self, rendition: u16, map: Option<(u32, &[u8])>) -> io::Result<SegmentFile> {
        let folder = self.folder.join(rendition.to_string());
        let lane = match self.lanes.get_mut(&rendition) {
            Some(lane) => lane,
            None => {
                private_files::create_folder(&folder)?;
                let playlist = VodPlaylist::new(self.container);
                let lane = Lane::new(playlist);
                self.lanes.entry(rendition).or_insert(lane)
            }
        };
        if let Some((number, bytes)) = map.filter(|(number, _)| !lane.inits.contains(number)) {
            write_file(&folder, &init(number), bytes, self.sync)?;
            lane.inits.insert(number);
            self.about.bytes += bytes.len() as u64;
        }
        let path = folder.join(PART);
        let file = private_files::to_write().truncate(true).open(&path)?;
        Ok(SegmentFile { file, path, rendition })
    }

    /// Renames the file of a segment, and lists the segment. Returns its size. After an error the segment is a gap.
    pub fn commit(&mut self, segment: SegmentFile, from: Source, listed: VodSegment) -> io::Result<u64> {
        self.fill_before(segment.rendition, from);
        let done = self.name(&segment);
        self.list(segment.rendition, from, VodSegment { gap: done.is_err(), ..listed });
        done
    }

    fn name(&mut self, segment: &SegmentFile) -> io::Result<u64> {
        let lane = self.lanes.get(&segment.rendition).ok_or(io::ErrorKind::NotFound)?;
        if self.sync {
            segment.file.sync_data()?;
        }
        let bytes = segment.file.metadata()?.len();
        let file = lane.playlist.file(lane.playlist.next_number());
        fs::rename(&segment.path, segment.path.with_file_name(file))?;
        self.about.bytes += bytes;
        Ok(bytes)
    }

    /// Whether a segment was kept before, by an earlier process.
    pub fn had(&self, rendition: u16, from: Source) -> bool {
        let next = self.lanes.get(&rendition).and_then(|lane| lane.next);
        next.is_some_and(|next| next.id == from.id && from.sequence < next.sequence)
    }

    /// Whether a segment can still be added to its rendition. If the rendition has a gap at this number already, it cannot.
    pub fn has_place(&mut self, rendition: u16, from: Source) -> bool {
        let newest = self.about.segments;
        let goes_on = |rows: &Rows| rows.id == from.id && rows.number(from.sequence) <= i128::from(newest);
        if !self.rows.as_ref().is_some_and(goes_on) {
            let zero = i128::from(newest) - i128::from(from.sequence);
            self.rows = Some(Rows { id: from.id, zero, first: newest });
        }
        let Some(number) = self.number(from) else { return false };
        self.lanes.get(&rendition).is_none_or(|lane| lane.playlist.next_number() <= number)
    }

    /// The number of a segment in the recording.
    fn number(&self, from: Source) -> Option<u64> {
        let rows = self.rows.as_ref().filter(|rows| rows.id == from.id)?;
        u64::try_from(rows.number(from.sequence)).ok().filter(|number| *number >= rows.first)
    }

    /// Adds gaps to a rendition for the segments before this one that other renditions have.
    fn fill_before(&mut self, rendition: u16, from: Source) {
        let Some(number) = self.number(from) else { return };
        // The gaps already have the discontinuity of the source's beginning, unless the segment is the source's first one.
        let goes_on = self.fill(rendition, number) && self.rows.is_some_and(|rows| rows.first < number);
        if let Some(lane) = self.lanes.get_mut(&rendition).filter(|_| goes_on) {
            lane.next = Some(from);
        }
    }

    /// Fills a rendition with gaps up to a number. Returns whether gaps were added.
    fn fill(&mut self, rendition: u16, until: u64) -> bool {
        let Some(mut own) = self.lanes.remove(&rendition) else { return false };
        let is_short = own.playlist.next_number() < until;
        let other = self.lanes.values().find(|lane| lane.playlist.next_number() >= until);
        let other = other.filter(|_| is_short);
        if let Some(other) = other {
            own.playlist.fill(&other.playlist, until);
            own.dirty = true;
        }
        let filled = other.is_some();
        self.lanes.insert(rendition, own);
        filled
    }

    /// Fills renditions that are not among these with gaps, up to a number of segments before the end.
    pub fn fill_all_but(&mut self, present: &[Rendition], before_end: u64) {
        let until = self.about.segments.saturating_sub(before_end);
        let is_absent = |id: &u16| !present.iter().any(|own| own.id == *id);
        let ids: Vec<u16> = self.lanes.keys().copied().filter(|id| is_absent(id) && self.has(*id)).collect();
        for id in ids {
            self.fill(id, until);
        }
    }

    /// Lists a segment or a gap.
    pub fn list(&mut self, rendition: u16, from: Source, listed: VodSegment) {
        self.fill_before(rendition, from);
        let Some(lane) = self.lanes.get_mut(&rendition) else { return };
        let discontinuity = listed.discontinuity || lane.next != Some(from);
        lane.playlist.push(&VodSegment { discontinuity, ..listed });
        let next = Source { sequence: from.sequence + 1, ..from };
        lane.playlist.set_note(format!("{} {}", next.id, next.sequence));
        lane.next = Some(next);
        lane.dirty = true;
        self.about.segments = self.about.segments.max(lane.playlist.next_number());
        self.about.gaps += u64::from(listed.gap);
        self.about.seconds = self.duration_us() as f64 / 1e6;
    }

    /// Writes the playlists and the description that have changed.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut changed = false;
        for (id, lane) in self.lanes.iter_mut().filter(|(_, lane)| lane.dirty) {
            let folder = self.folder.join(id.to_string());
            write_file(&folder, PLAYLIST, lane.playlist.write().as_bytes(), self.sync)?;
            (lane.dirty, changed) = (false, true);
        }
        let kept: Vec<_> = self
            .about
            .renditions
            .iter()
            .filter(|own| self.has(own.id))
            .map(|own| (own.clone(), None))
            .collect();
        let index = multivariant_playlist(&kept, "");
        if !kept.is_empty() && index != self.index {
            write_file(&self.folder, INDEX, index.as_bytes(), self.sync)?;
            self.index = index;
        }
        if changed { self.write_about() } else { Ok(()) }
    }

    fn write_about(&self) -> io::Result<()> {
        write_file(&self.folder, ABOUT, &serde_json::to_vec(&self.about)?, self.sync)
    }
}

impl Source {
    fn parse(note: &str) -> Option<Self> {
        let (id, sequence) = note.split_once(' ')?;
        Some(Self { id: id.parse().ok()?, sequence: sequence.parse().ok()? })
    }
}

impl Rows {
    fn number(&self, sequence: u64) -> i128 {
        self.zero + i128::from(sequence)
    }

    /// The mapping of an earlier process, from the rendition with the most segments. The others may have a segment less.
    fn of(lanes: &BTreeMap<u16, Lane>) -> Option<Self> {
        let longest = lanes.values().max_by_key(|lane| lane.playlist.next_number())?;
        let next = longest.next?;
        let zero = i128::from(longest.playlist.next_number()) - i128::from(next.sequence);
        let own = Self { id: next.id, zero, first: 0 };
        let behind = lanes.values().filter(|lane| {
            let agrees = |next: Source| own.number(next.sequence) == i128::from(lane.playlist.next_number());
            lane.next.is_some_and(|next| next.id == own.id && agrees(next))
        });
        let first = behind.map(|lane| lane.playlist.next_number()).min()?;
        Some(Self { first, ..own })
    }
}

impl Lane {
    fn new(playlist: VodPlaylist) -> Self {
        Self { playlist, next: None, inits: BTreeSet::new(), dirty: false }
    }

    /// Reads the files of an earlier process.
    fn read(folder: &Path) -> io::Result<Self> {
        let mut inits = BTreeSet::new();
        for entry in fs::read_dir(folder)?.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("init-")?.strip_suffix(".mp4"));
            inits.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        let text = GivenFile::open(&folder.join(PLAYLIST))?.text(MAX_VOD_BYTES as u64)?;
        let playlist = VodPlaylist::read(&text).map_err(io::Error::other)?;
        let next = playlist.note().and_then(Source::parse);
        Ok(Self { next, inits, ..Self::new(playlist) })
    }
}

/// Makes the folder of a recording that begins in this second. Its name sorts after those of other recordings of the same second, of
/// which the oldest may be removed already.
fn new_folder(stream_folder: &Path, begin: &str) -> io::Result<(PathBuf, String)> {
    let same_second = names(stream_folder).into_iter().filter(|name| name.starts_with(begin));
    let newest = same_second.max().map(|newest| newest[begin.len()..].trim_start_matches('-').to_owned());
    let first = newest.map_or(1, |count| count.parse().unwrap_or(1) + 1);
    for count in first..=MAX_SAME_SECOND {
        let name = if count == 1 { begin.to_owned() } else { format!("{begin}-{count:03}") };
        let folder = stream_folder.join(&name);
        match private_files::create_new_folder(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| (folder, name)),
        }
    }
    Err(io::Error::other("too many recordings of the stream begin in one second"))
}

/// Reads the description of a recording.
pub fn read_about(path: &Path) -> io::Result<About> {
    let text = GivenFile::open(path)?.text(MAX_ABOUT_BYTES)?;
    serde_json::from_str(&text).map_err(io::Error::other)
}

/// Writes a file under another name, and renames it, so that it is complete or absent. An older file of this name is replaced.
fn write_file(folder: &Path, name: &str, bytes: &[u8], sync: bool) -> io::Result<()> {
    let other = folder.join(format!(".{name}"));
    let mut file = private_files::to_write().truncate(true).open(&other)?;
    io::Write::write_all(&mut file, bytes)?;
    if sync {
        file.sync_data()?;
    }
    fs::rename(&other, folder.join(name))
}
