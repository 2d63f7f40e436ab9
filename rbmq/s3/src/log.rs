//! A log in a bucket.
//!
//! ```text
//!   PREFIX/plant_a/EPOCH/00000000000000000000    begins where the one before ends, so a reader
//!                       /00000000000004194280    needs no list to go on, and two writers that
//!                       /00000000000008388560    have the same end want the same name
//! ```
//!
//! The first name is 0, wherever the disk begins then: two writers with the same log and other disks want the same first name too.

use std::ops::Range;
use std::sync::Arc;

use locks::Mutex;
use rbmq_broker::{ArchiveError, ArchiveLog, ArchiveRead, ArchivedLog};
use rbmq_wire::planted;
use rocketbufs::{Epoch, Position};
use tracing::warn;

use super::client::{Client, MAX_OBJECT_BYTES};
use super::object::{Damage, Header, Object, decode, encode, encoded_bytes};
use super::objects::Objects;
use super::page::{Page, name};

/// The most names of a list.
const PAGE: u32 = 1_000;

/// The most names of a list for the first one of them.
const NEXT: u32 = 100;

/// The most lists that one name is looked for with. Halving all positions takes fewer.
const MAX_LISTS: u32 = 100;

/// How far before a position its object is looked for first.
const STEP: u64 = 1 << 20;

/// What the logs of a bucket share.
pub(crate) struct Bucket {
    pub(crate) client: Client,
    pub(crate) objects: Objects,
    /// The random number of this process.
    pub(crate) writer: u128,
}

/// A log in a bucket.
pub(crate) struct S3Log {
    bucket: Arc<Bucket>,
    /// The beginning of the names, with a `/` at its end.
    folder: String,
    /// The same of the names of notes for ends.
    notes: String,
    epoch: Epoch,
    state: Mutex<State>,
}

struct State {
    kept: Range<Position>,
    /// The name of the next object: the end, or 0 for the first one.
    next: Position,
    /// The note of the last object.
    note: Vec<u8>,
}

/// An object that was asked for.
enum Found {
    Object(Arc<Object>),
    Missing,
    /// It is there, and is not what was written.
    Damaged(Damage),
}

fn stops() -> ArchiveError {
    ArchiveError::Down("the broker stops".into())
}

impl S3Log {
    /// Opens the log of a folder. Where there is none, it begins at `first`.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub(crate) fn open(
        bucket: &Arc<Bucket>,
        [folder, notes]: [String; 2],
        log: &ArchivedLog,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self, ArchiveError> {
        let ArchivedLog { epoch, first, .. } = *log;
        let state = Mutex::new(State { kept: first..first, next: 0, note: Vec::new() });
        let log = Self { bucket: bucket.clone(), folder, notes, epoch, state };
        let names = log.names_from(0)?;
        let Some(oldest) = names.positions.first().copied() else {
            return match names.others {
                0 => Ok(log),
                _ => Err(ArchiveError::Refused(format!("{} has objects of somebody else", log.folder))),
            };
        };
        // The disk has more than is not copied yet, so there are few objects behind its beginning.
        let last = log.name_at(Position::MAX, first, is_stopped)?.unwrap_or(oldest);
        if last < oldest {
            return Err(ArchiveError::Down(format!("the lists of {} contradict each other", log.folder)));
        }
        if is_stopped() {
            return Err(stops());
        }
        let newest = match log.get(last)? {
            Found::Object(object) => object,
            Found::Missing => {
                return Err(ArchiveError::Down(format!("the object {} was just removed", log.key(last))));
            }
            Found::Damaged(damage) => {
                let key = log.key(last);
                return Err(ArchiveError::Refused(format!(
                    "the last object, {key}, cannot be continued: {damage}"
                )));
            }
        };
        // What is before the bytes of the first object was never there.
        let begin = match oldest {
            _ if oldest == last => newest.header.begin,
            0 => match log.get(oldest)? {
                Found::Object(object) => object.header.begin,
                Found::Missing | Found::Damaged(_) => oldest,
            },
            _ => oldest,
        };
        let end = newest.range().end;
        *log.state.lock() = State { kept: begin.min(end)..end, next: end, note: newest.note().to_vec() };
        Ok(log)
    }

    fn key(&self, position: Position) -> String {
        format!("{}{}", self.folder, name(position))
    }

    /// The name of the note for the end.
    fn note_key(&self) -> String {
        format!("{}{}", self.notes, name(self.state.lock().kept.end))
    }

    /// Gets an object. What is damaged is got once more, since it may have been on the way.
    fn get(&self, position: Position) -> Result<Found, ArchiveError> {
        let mut damage = None;
        for _ in 0..2 {
            let Some(whole) = self.bucket.client.get(&self.key(position))? else { return Ok(Found::Missing) };
            match decode(whole, self.epoch, position) {
                Ok(object) => {
                    let object = Arc::new(object);
                    self.bucket.objects.put(object.clone());
                    return Ok(Found::Object(object));
                }
                Err(found) => damage = Some(found),
            }
        }
        Ok(damage.map_or(Found::Missing, Found::Damaged))
    }

    /// The next names at a position or behind. Some names of somebody else may be among them.
    fn names_from(&self, from: Position) -> Result<Page, ArchiveError> {
        self.bucket.client.list(&self.folder, from, NEXT)
    }

    /// The first name at a position or behind.
    fn next_name(&self, from: Position) -> Result<Option<Position>, ArchiveError> {
        let page = self.names_from(from)?;
        if page.positions.is_empty() && page.has_more {
            return Err(ArchiveError::Down(format!("{} has many objects of somebody else", self.folder)));
        }
        Ok(page.positions.first().copied())
    }

    /// The last name at a position or before. Lists go forwards only, so the place is found by halving, or soon if it is near `near`.
    fn name_at(
        &self,
        position: Position,
        near: Position,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Option<Position>, ArchiveError> {
        let (mut best, mut step) = (None::<Position>, STEP);
        // No name is from `none_from` up to the position.
        let mut none_from = position.saturating_add(1);
        let mut from = near.min(position).saturating_sub(step);
        for _ in 0..MAX_LISTS {
            if is_stopped() {
                return Err(stops());
            }
            let page = self.bucket.client.list(&self.folder, from, PAGE)?;
            let up_to = page.positions.partition_point(|at| *at <= position);
            match page.positions[..up_to].last().copied() {
                Some(last) => {
                    best = Some(last);
                    if up_to < page.positions.len() || !page.has_more {
                        return Ok(best);
                    }
                }
                None => none_from = from,
            }
            step = step.saturating_mul(16);
            from = match best {
                None if none_from == 0 => return Ok(None),
                None => none_from.saturating_sub(step),
                Some(last) if last.saturating_add(1) >= none_from => return Ok(best),
                Some(last) => (last + 1).saturating_add(step).min(last + 1 + (none_from - last - 1) / 2),
            };
        }
        Err(ArchiveError::Down(format!(
            "the lists of {} do not lead to the name {}",
            self.folder,
            name(position)
        )))
    }

    /// The object with a position, or the last one before it.
    fn find(&self, position: Position) -> Result<Found, ArchiveError> {
        let is_next = self.bucket.objects.ends_at(self.epoch, position);
        if is_next && let found @ (Found::Object(_) | Found::Damaged(_)) = self.get(position)? {
            return Ok(found);
        }
        match self.name_at(position, position, &|| false)? {
            Some(at) => self.get(at),
            None => Ok(Found::Missing),
        }
    }

    /// There is nothing at a position: the end of the hole, or of what was removed.
    fn beyond(&self, position: Position) -> Result<ArchiveRead, ArchiveError> {
        let next = self.next_name(position.saturating_add(1))?;
        let (oldest, mut state) = (self.next_name(0)?, self.state.lock());
        let kept = &mut state.kept;
        kept.start = oldest.unwrap_or(kept.end).clamp(kept.start, kept.end);
        if position < kept.start {
            return Ok(ArchiveRead::Removed { first: kept.start });
        }
        Ok(ArchiveRead::Hole { to: next.unwrap_or(kept.end).min(kept.end).max(position + 1) })
    }

    /// The name of the next object is taken.
    fn taken(&self, at: Position) -> Result<(), ArchiveError> {
        let key = self.key(at);
        match self.get(at)? {
            Found::Object(object) => {
                let end = object.range().end;
                let mut state = self.state.lock();
                let start = if at == 0 { object.header.begin } else { state.kept.start };
                *state = State { kept: start.min(end)..end, next: end, note: object.note().to_vec() };
                if object.header.writer == self.bucket.writer {
                    // The answer to an earlier call was lost.
                    return Ok(());
                }
                Err(ArchiveError::Down(format!("somebody else has written the object {key}")))
            }
            Found::Missing => Err(ArchiveError::Down(format!("the object {key} was there, and is removed"))),
            Found::Damaged(damage) => {
                Err(ArchiveError::Refused(format!("the object {key} is in the way: {damage}")))
            }
        }
    }
}

impl ArchiveLog for S3Log {
    fn kept(&self) -> Range<Position> {
        self.state.lock().kept.clone()
    }

    fn append(&self, position: Position, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.append_with(position, bytes, &[])
    }

    fn append_with(&self, position: Position, bytes: &[u8], note: &[u8]) -> Result<(), ArchiveError> {
        let State { kept: Range { end, .. }, next, .. } = *self.state.lock();
        let known = usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX).min(bytes.len());
        let (bytes, begin) = (&bytes[known..], position.max(end));
        if begin == end && bytes.is_empty() {
            return Ok(());
        }
        if (encoded_bytes(note) + bytes.len()) as u64 > MAX_OBJECT_BYTES {
            let len = bytes.len();
            return Err(ArchiveError::Refused(format!(
                "a delivery has {len} bytes, and an object at most {MAX_OBJECT_BYTES}"
            )));
        }
        let next = if begin > end && planted::is(planted::NO_ARCHIVE_FENCE) { begin } else { next };
        let header = Header { epoch: self.epoch, writer: self.bucket.writer, term: 0, position: next, begin };
        if !self.bucket.client.put_new(&self.key(next), &encode(&header, note, bytes))? {
            return self.taken(next);
        }
        let end = begin + bytes.len() as u64;
        let mut state = self.state.lock();
        (state.kept.end, state.next, state.note) = (end, end, note.to_vec());
        Ok(())
    }

    fn note(&self) -> Vec<u8> {
        self.state.lock().note.clone()
    }

    fn note_end(&self, note: &[u8]) -> Result<(), ArchiveError> {
        let key = self.note_key();
        // One that is there says the same of the publishers: the bytes before it are the same.
        self.bucket.client.put_new(&key, note).map(drop)
    }

    fn noted(&self) -> Result<Vec<u8>, ArchiveError> {
        let note = self.note();
        if !note.is_empty() || self.kept().is_empty() {
            return Ok(note);
        }
        Ok(self.bucket.client.get(&self.note_key())?.unwrap_or_default())
    }

    fn read(&self, position: Position, out: &mut [u8]) -> Result<ArchiveRead, ArchiveError> {
        let kept = self.kept();
        if position >= kept.end {
            return Ok(ArchiveRead::End);
        }
        if position < kept.start {
            return Ok(ArchiveRead::Removed { first: kept.start });
        }
        let found = match self.bucket.objects.get(self.epoch, position) {
            Some(object) => Found::Object(object),
            None => self.find(position)?,
        };
        match found {
            Found::Object(object) if object.range().contains(&position) => {
                let Some(at) = position.checked_sub(object.header.begin) else {
                    return Ok(ArchiveRead::Hole { to: object.header.begin });
                };
                let rest =
                    &object.bytes()[usize::try_from(at).unwrap_or(usize::MAX).min(object.bytes().len())..];
                let len = rest.len().min(out.len());
                out[..len].copy_from_slice(&rest[..len]);
                Ok(ArchiveRead::Bytes(len))
            }
            Found::Object(_) | Found::Missing => self.beyond(position),
            Found::Damaged(damage) => {
                let read = self.beyond(position)?;
                warn!("{}: an object with position {position} is skipped: {damage}", self.folder);
                Ok(read)
            }
        }
    }
}
