//! How a broker gets the log of a topic whose owner it has become: from its own disk, or from the archive, where the owner before has left it.
//!
//! ```text
//!   the map            ┌─ begin ──────────── what the owner before may write ──────────── limit ┐┌─ begin ── what this one may write ── limit ┐
//!   the owner before   disk ───────────────────────┤ end
//!                      archive ──────────┤ end ┊
//!   this one           archive           └────────────────────── hole ──────────────────────────┤ its disk and its ring begin here
//!                                        ▲ the object that the owner before would make next
//! ```
//!
//! **The map gives positions out** ([`LogClaim`]): an owner writes between two positions only, which the store of the map gives to the owner of the
//! topic in its term and to nobody else. So no position has two contents, whatever the owner before still does, whatever it has on its disk, and
//! whatever rules have removed from the archive. The name of the log is there too.
//!
//! **The archive fences.** The first object of the next owner takes the name of the next one of the owner before, which can write nothing more then.
//! If rules have removed all objects, no broker knows that name: an owner that has archived nothing for long looks at its claim before it confirms.
//!
//! A folder is made beside the others first, and takes the place of the topic's folder at the end. Its last file has a random number (`mark`), and the
//! claim has the same. A broker that is killed at any step goes on there: it finds its folder, and the claim and the object that are its own, and
//! makes none twice. A folder without the mark of the last claim is nobody's: it is half made, or somebody else has claimed the positions.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use locks::FileLock;
use private_files::GivenFile;
use rbmq_wire::TopicName;
use rocketbufs::{Epoch, Position};
use seglog::{OpenError, Options, Reader};
use tracing::{debug, info};

use super::super::cluster::{Cluster, LogClaim};
use super::archive::{Archive, ArchiveError, ArchiveLog, ArchivedLog};
use super::copied::{self, Copied};
use super::folder::folder;
use super::store::{Store, StoreOptions};
use super::trail::Note;

/// How far the disk may be before the archive, in bytes.
pub(crate) const MAX_AHEAD: u64 = 4 << 30;

/// The positions that an owner gets at a time. There are enough for a million owners, one after the other.
const CLAIMED: u64 = 1 << 44;

/// The folder of logs that went on elsewhere. No topic has a folder of this name.
const FORMER: &str = "+former";

/// The folder of logs that are being taken. No topic has a folder of this name.
const TAKEN: &str = "+taken";

/// The file that is made last in a folder, with the mark of its claim.
const MARK: &str = "claim";

/// The longest such file in bytes.
const MAX_MARK_BYTES: u64 = 64;

/// How the log of a topic begins at its new owner. Its folder is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The name of the log.
    pub(crate) epoch: Epoch,
    /// The end of the archive.
    pub(crate) archived: Position,
    /// How far this broker may write.
    pub(crate) limit: Position,
}

/// The log of a topic on the own disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OnDisk {
    epoch: Epoch,
    first: Position,
    end: Position,
}

/// What is to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) topic: TopicName,
    /// The term in which this broker has it.
    pub(crate) term: u64,
    /// The archive does not take what the disk has: it goes on behind that.
    pub(crate) is_refused: bool,
}

/// The map, the archive and the disk of a broker that takes topics.
pub(crate) struct Taker<'a> {
    pub(crate) map: &'a dyn Cluster,
    pub(crate) archive: &'a dyn Archive,
    pub(crate) cluster: &'a str,
    /// The folder of all topics.
    pub(crate) dir: &'a Path,
    /// A random number: a name for a log that has none, and the mark of a claim.
    pub(crate) new: Epoch,
    /// Why no more topic can be opened. None: it can.
    pub(crate) why_no_room: &'a dyn Fn() -> Option<String>,
    /// Is told of each step that is done: a test stops there.
    pub(crate) step: &'a dyn Fn(&'static str) -> Result<(), ArchiveError>,
}

/// A log that was made to take the place of the one on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Staged {
    log: OnDisk,
    /// That of the claim for which it was made.
    mark: u64,
}

/// The folders of a topic, and what is in them.
struct Folders {
    /// That of the topic.
    own: PathBuf,
    /// The one that is to take its place.
    next: PathBuf,
    local: Option<OnDisk>,
    staged: Option<Staged>,
    /// Nobody else has the log of the topic open.
    _lock: Option<FileLock>,
}

/// A log that goes on, and where.
struct Going<'a> {
    wanted: &'a Wanted,
    log: &'a dyn ArchiveLog,
    /// The range that the archive had when its note was read.
    kept: Range<Position>,
    note: Note,
    claim: LogClaim,
}

fn down(reason: impl ToString) -> ArchiveError {
    ArchiveError::Down(reason.to_string())
}

fn file_failed(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    move |error| down(format!("{}: {error}", path.display()))
}

/// The end of the positions of an owner that begins here, far behind: at least half of what an owner gets.
fn limit_behind(position: Position) -> Result<Position, ArchiveError> {
    let next = position.checked_add(CLAIMED / 2).map(|far| far / CLAIMED + 1);
    let end = next.and_then(|next| next.checked_mul(CLAIMED));
    end.ok_or_else(|| ArchiveError::Refused("its positions are used up".into()))
}

impl Taker<'_> {
    /// Takes a topic. `is_owner`: whether this broker still has it, in the same term.
    ///
    /// # Errors
    /// [`ArchiveError`]. The same call may succeed later.
    pub(crate) fn take(&self, wanted: &Wanted, is_owner: &dyn Fn() -> bool) -> Result<Taken, ArchiveError> {
        // Nothing is written for a topic that would not be opened.
        (self.why_no_room)().map_or(Ok(()), |reason| Err(down(reason)))?;
        let topic = &wanted.topic;
        let folders = Folders::open(self.dir, topic)?;
        let known = self.map.log_claim(topic).map_err(down)?;
        let (epoch, is_new) = self.name(topic, &folders, known.as_ref(), is_owner)?;
        let local = folders.local.filter(|log| log.epoch == epoch);
        let staged = folders.staged.filter(|staged| staged.log.epoch == epoch);
        let log = self.open(topic, epoch, local.map_or(0, |local| local.first), is_owner)?;
        let (kept, note) = (log.kept(), note_of(&*log, wanted, known.as_ref())?);
        let kept_end = kept.end;
        if !is_owner() {
            return Err(down("another broker has it now"));
        }
        let term = wanted.term;
        // Nobody else has gone on since.
        let is_current = |local: &OnDisk| {
            !wanted.is_refused
                && kept_end <= local.end
                && known.is_none_or(|known| (known.begin..known.limit).contains(&local.end))
        };
        let mut claim = LogClaim { epoch, begin: 0, limit: 0, term, mark: self.new.0 as u64, revision: 0 };
        if let Some(local) = local.filter(is_current) {
            claim.begin = known.map_or(local.first, |known| known.begin);
            claim.mark = known.map_or(claim.mark, |known| known.mark);
            let spent = local.end.saturating_add(CLAIMED / 2);
            let limit = known.map(|known| known.limit).filter(|limit| spent < *limit);
            claim.limit = limit.map_or_else(|| limit_behind(local.end), Ok)?;
            self.claim(topic, known, claim)?;
            return Ok(Taken { epoch, archived: kept_end, limit: claim.limit });
        }
        let seen = kept_end.max(local.map_or(0, |local| local.end));
        let is_staged = place(&mut claim, known, staged, is_new, seen)?;
        let going = Going { wanted, log: &*log, kept, note: Note { term, ..note }, claim };
        self.go_on(&going, known, &folders, is_staged, is_owner)?;
        Ok(Taken { epoch, archived: log.kept().end.max(claim.begin), limit: claim.limit })
    }

    /// The name of a topic's log, and whether it was made now. The map knows it. If it has lost that, the disk or the archive may say it.
    fn name(
        &self,
        topic: &TopicName,
        folders: &Folders,
        known: Option<&LogClaim>,
        is_owner: &dyn Fn() -> bool,
    ) -> Result<(Epoch, bool), ArchiveError> {
        if let Some(known) = known {
            return Ok((known.epoch, false));
        }
        let staged = folders.staged.map(|staged| staged.log);
        let candidate = folders.local.or(staged).map_or(self.new, |log| log.epoch);
        let is_new = folders.local.is_none() && staged.is_none_or(|log| log.end == 0);
        let named = self.archive.name_of(self.cluster, topic, candidate)?;
        (self.step)("named")?;
        // A name alone is no log: a broker may have stopped before it has made one, and what there was may have expired.
        if named == candidate || self.open(topic, named, 0, is_owner)?.kept().is_empty() {
            return Ok((candidate, is_new));
        }
        Ok((named, false))
    }

    fn open(
        &self,
        topic: &TopicName,
        epoch: Epoch,
        first: Position,
        is_owner: &dyn Fn() -> bool,
    ) -> Result<std::sync::Arc<dyn ArchiveLog>, ArchiveError> {
        self.archive.open(&ArchivedLog::new(topic.clone(), epoch, first), &|| !is_owner())
    }

    /// Has the map say what this broker may write.
    fn claim(&self, topic: &TopicName, known: Option<LogClaim>, claim: LogClaim) -> Result<(), ArchiveError> {
        let revision = known.map_or(0, |known| known.revision);
        let claim = LogClaim { revision, ..claim };
        if known == Some(claim) {
            return Ok(());
        }
        match self.map.claim_log(topic, &claim).map_err(down)? {
            true => (self.step)("claimed"),
            false => Err(down("another broker has it now, or the map has changed")),
        }
    }

    /// Goes on with a log elsewhere than this disk has left it.
    fn go_on(
        &self,
        going: &Going<'_>,
        known: Option<LogClaim>,
        folders: &Folders,
        is_staged: bool,
        is_owner: &dyn Fn() -> bool,
    ) -> Result<(), ArchiveError> {
        let Going { wanted: Wanted { topic, .. }, log, kept, note, claim } = going;
        let kept_end = kept.end;
        let begin = claim.begin;
        // What was made before is good if the archive has got no more since.
        if !is_staged || kept_end < begin {
            self.stage(&folders.next, going)?;
            (self.step)("staged")?;
        }
        self.claim(topic, known, *claim).inspect_err(|_| self.clear(&folders.next, topic, claim))?;
        if kept.is_empty() && begin > 0 {
            // The owner before may know objects that have expired, so its next object may have another name than the one here. That owner confirms
            // nothing that it archives after the claim, and all objects from before the claim are there now.
            let now = self.open(topic, claim.epoch, 0, is_owner)?.kept();
            if !now.is_empty() || now.end > kept_end {
                return Err(down(format!("the owner before has archived up to {} meanwhile", now.end)));
            }
        }
        if kept_end < begin {
            log.append_with(begin, &[], &note.clone().encode(begin))?;
            if log.kept().end != begin {
                return Err(down(format!("it ends at {} instead of {begin}", log.kept().end)));
            }
            (self.step)("fenced")?;
        }
        info!("topic '{topic}' goes on at {begin}, where its archive ended at {kept_end}");
        self.move_aside(folders, topic)?;
        fs::rename(&folders.next, &folders.own).map_err(file_failed(&folders.own))?;
        sync_folder(self.dir)?;
        (self.step)("moved")
    }

    /// Makes the folder of a log that begins here, with these publishers. What it has is on the disk before it has its mark.
    fn stage(&self, path: &Path, going: &Going<'_>) -> Result<(), ArchiveError> {
        let Going { wanted: Wanted { topic, .. }, note, claim, .. } = going;
        unmade(path)?;
        let options = StoreOptions {
            max_bytes: None,
            max_age: None,
            sync: Duration::from_secs(1),
            max_delivery: 0,
            max_publishers: usize::MAX,
            begin: Some((claim.epoch, claim.begin)),
            is_shared: true,
        };
        let (mut store, _) = Store::open(path, topic, &options).map_err(down)?;
        (self.step)("log made")?;
        store.go_on(note.next_number, note.places.clone()).map_err(down)?;
        drop(store);
        (self.step)("publishers made")?;
        let file = path.join(copied::FILE);
        let noted = Copied::open(&file).note(claim.begin..=claim.begin, note.missing_below);
        noted.map_err(file_failed(&file))?;
        for folder in [&path.join("log"), path] {
            sync_files(folder)?;
        }
        let (mark, new) = (path.join(MARK), path.join("claim.new"));
        private_files::write(&new, format!("{}\n", claim.mark).as_bytes()).map_err(file_failed(&new))?;
        File::open(&new).and_then(|file| file.sync_all()).map_err(file_failed(&new))?;
        (self.step)("mark made")?;
        fs::rename(&new, &mark).map_err(file_failed(&mark))?;
        sync_folder(path)
    }

    /// A claim has failed. Its folder is removed, unless the map may have taken the claim after all.
    fn clear(&self, path: &Path, topic: &TopicName, claim: &LogClaim) {
        let is_other =
            self.map.log_claim(topic).is_ok_and(|known| known.is_none_or(|it| it.mark != claim.mark));
        if is_other && let Err(error) = unmade(path) {
            // It has the mark of no claim, and is removed later.
            debug!("{error}");
        }
    }

    /// What the disk has is over: others have gone on, and what the archive does not have of it is told as lost. The newest such log with messages is
    /// kept.
    fn move_aside(&self, folders: &Folders, topic: &TopicName) -> Result<(), ArchiveError> {
        let path = &folders.own;
        if folders.local.is_none_or(|log| log.first == log.end) {
            remove(path)?;
            sync_folder(self.dir)?;
            return (self.step)("aside");
        }
        let former = self.dir.join(FORMER);
        private_files::create_folder(&former).map_err(file_failed(&former))?;
        let to = former.join(folder(topic));
        remove(&to)?;
        fs::rename(path, &to).map_err(file_failed(path))?;
        info!("topic '{topic}': what this broker had on its disk before is in {}", to.display());
        sync_folder(&former)?;
        sync_folder(self.dir)?;
        (self.step)("aside")
    }
}

/// Sets where a broker goes on whose disk is not where the log is, and what it may write. `seen`: the end of the archive, or of the own disk.
/// Returns whether its folder is made and claimed.
fn place(
    claim: &mut LogClaim,
    known: Option<LogClaim>,
    staged: Option<Staged>,
    is_new: bool,
    seen: Position,
) -> Result<bool, ArchiveError> {
    let is_own = |known: &LogClaim| {
        staged.is_some_and(|Staged { log, mark }| {
            mark == known.mark && log.first == known.begin && log.end == log.first
        })
    };
    if let Some(known) = known.filter(|known| is_own(known) && seen <= known.begin) {
        // This broker has stopped before it was done.
        (claim.begin, claim.limit, claim.mark) = (known.begin, known.limit, known.mark);
        return Ok(true);
    }
    claim.begin = match known {
        // Archive and disk end before the limit until the next claim is made: one that does not is newer than the map.
        Some(known) if seen < known.limit => known.limit,
        // Nobody has written yet, or nobody knows how far the disk was before the archive.
        None if is_new && seen == 0 => 0,
        _ => limit_behind(seen)?,
    };
    claim.limit = limit_behind(claim.begin)?;
    Ok(false)
}

/// The note of the last batch of an archive. One of a later term is that of an owner which this broker has not heard of, as the claim says too. Where the
/// claim is older than the note, the store of the map is: it was made anew, or restored.
fn note_of(log: &dyn ArchiveLog, wanted: &Wanted, known: Option<&LogClaim>) -> Result<Note, ArchiveError> {
    let note = Note::decode(&log.noted()?);
    let note = note.map_err(|error| {
        ArchiveError::Refused(format!("the note of its last batch makes no sense: {error}"))
    })?;
    if let Some(known) = known.filter(|known| known.term >= note.term && note.term > wanted.term) {
        let (other, term) = (known.term, wanted.term);
        return Err(down(format!("a broker has it in term {other}, and this one had it in term {term}")));
    }
    Ok(note)
}

impl Folders {
    fn open(dir: &Path, topic: &TopicName) -> Result<Self, ArchiveError> {
        let name = folder(topic);
        let (own, next) = (dir.join(&name), dir.join(TAKEN).join(&name));
        let lock = lock(&own.join("log"))?;
        let (local, mark) = (on_disk(&own)?, mark_of(&next));
        let staged = match mark {
            Some(mark) => on_disk(&next)?.map(|log| Staged { log, mark }),
            None => None,
        };
        Ok(Self { own, next, local, staged, _lock: lock })
    }
}

/// The mark of a folder that is whole.
fn mark_of(path: &Path) -> Option<u64> {
    let text = GivenFile::open(&path.join(MARK)).and_then(|file| file.text(MAX_MARK_BYTES)).ok()?;
    text.strip_suffix('\n')?.parse().ok()
}

/// Removes a folder that was to be taken, with its mark first: what is left of it is not whole.
fn unmade(path: &Path) -> Result<(), ArchiveError> {
    let mark = path.join(MARK);
    match fs::remove_file(&mark) {
        Ok(()) => sync_folder(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(file_failed(&mark)(error)),
    }
    remove(path)
}

/// Has the files of a folder on the disk, and their names.
fn sync_files(path: &Path) -> Result<(), ArchiveError> {
    for entry in fs::read_dir(path).map_err(file_failed(path))? {
        let file = entry.map_err(file_failed(path))?.path();
        if file.is_file() {
            File::open(&file).and_then(|file| file.sync_all()).map_err(file_failed(&file))?;
        }
    }
    sync_folder(path)
}

fn remove(path: &Path) -> Result<(), ArchiveError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_failed(path)(error)),
        _ => Ok(()),
    }
}

fn sync_folder(path: &Path) -> Result<(), ArchiveError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(file_failed(path))
}

/// Takes the lock of a log, so that nobody opens it meanwhile. A log that is open here still, as one that is being closed, is not moved.
fn lock(log: &Path) -> Result<Option<FileLock>, ArchiveError> {
    let path = log.join("lock");
    if !path.exists() {
        return Ok(None);
    }
    let file = private_files::to_write().truncate(false).open(&path).map_err(file_failed(&path))?;
    let lock = FileLock::try_exclusive(file).map_err(file_failed(&path))?;
    lock.map(Some).ok_or_else(|| down(format!("{} is open still", log.display())))
}

/// The log that is on the disk. None: there is none, or it was not made whole.
fn on_disk(path: &Path) -> Result<Option<OnDisk>, ArchiveError> {
    let log = path.join("log");
    if !log.exists() {
        return Ok(None);
    }
    match Reader::open(log, Options::default()) {
        Ok(reader) => {
            let epoch = Epoch(u128::from_le_bytes(reader.id()));
            Ok(Some(OnDisk { epoch, first: reader.first(), end: reader.end() }))
        }
        Err(OpenError::Missing(_)) => Ok(None),
        Err(error) => Err(down(error)),
    }
}

#[cfg(test)]
pub(super) mod tests;
