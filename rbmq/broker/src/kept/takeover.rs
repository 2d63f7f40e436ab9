//! How a broker gets the log of a topic whose owner it has become: from its own disk, or from the archive, where the owner before has left it.
//!
//! ```text
//!   the owner before   disk ───────────────────────┤ end      positions that somebody may have read
//!                      archive ──────────┤ end ┊
//!   this one           archive           └──────── hole ─────────────┤ start: its disk and its ring begin here
//!                                        ▲ the object that the owner before would make next
//! ```
//!
//! The hole is longer than the archive may be behind the disk ([`MAX_AHEAD`]), so no position has two contents, whatever the owner before still
//! does. Its first object takes the name of the next one of the owner before, which can write nothing more then: that is the fence.

use std::fs;
use std::path::{Path, PathBuf};

use rbmq_wire::TopicName;
use rocketbufs::{Epoch, Position};
use seglog::{OpenError, Options, Reader};
use tracing::info;

use super::archive::{Archive, ArchiveError, ArchivedLog};
use super::folder::folder;
use super::trail::Note;

/// How far the disk may be before the archive, in bytes.
pub(crate) const MAX_AHEAD: u64 = 4 << 30;

/// The positions that are left out by a broker that goes on in the archive. A machine that stops leaves some out, too.
const LEFT_OUT: u64 = 4 * MAX_AHEAD;

/// The folder of logs that went on elsewhere. No topic has a folder of this name.
const FORMER: &str = "+former";

/// How the log of a topic begins at its new owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The name of the log.
    pub(crate) epoch: Epoch,
    /// Where it goes on, with the publishers there. None: the disk has it.
    pub(crate) from: Option<(Position, Note)>,
    /// The end of the archive. Whoever goes on there leaves positions out from here on.
    pub(crate) archived: Position,
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
}

/// The archive and the disk of a broker that takes topics.
pub(crate) struct Taker<'a> {
    pub(crate) archive: &'a dyn Archive,
    pub(crate) cluster: &'a str,
    /// The folder of all topics.
    pub(crate) dir: &'a Path,
    /// A name for a log that has none.
    pub(crate) new: Epoch,
}

fn down(reason: String) -> ArchiveError {
    ArchiveError::Down(reason)
}

impl Taker<'_> {
    /// Takes a topic. `is_owner`: whether this broker still has it, in the same term.
    ///
    /// # Errors
    /// [`ArchiveError`]. The same call may succeed later.
    pub(crate) fn take(&self, wanted: &Wanted, is_owner: &dyn Fn() -> bool) -> Result<Taken, ArchiveError> {
        let Wanted { topic, term } = wanted;
        let path = self.dir.join(folder(topic));
        let local = on_disk(&path).map_err(|error| down(error.to_string()))?;
        let candidate = local.map_or(self.new, |local| local.epoch);
        let epoch = self.archive.name_of(self.cluster, topic, candidate)?;
        let is_new = local.is_none() && epoch == candidate;
        let local = local.filter(|local| local.epoch == epoch);
        if is_new {
            return Ok(Taken { epoch, from: Some((0, Note::default())), archived: 0 });
        }
        let first = local.map_or(0, |local| local.first);
        let log = self.archive.open(&ArchivedLog::new(topic.clone(), epoch, first), &|| !is_owner())?;
        let (kept, note) = (log.kept(), Note::decode(&log.note()));
        let note = note.map_err(|error| {
            ArchiveError::Refused(format!("the note of its last batch makes no sense: {error}"))
        })?;
        if note.term > *term {
            return Err(down(format!(
                "a broker has it in term {}, and this one had it in term {term}",
                note.term
            )));
        }
        // Nobody else has gone on since.
        if local.is_some_and(|local| kept.end <= local.end) {
            return Ok(Taken { epoch, from: None, archived: kept.end });
        }
        let start = kept
            .end
            .checked_add(LEFT_OUT)
            .ok_or_else(|| ArchiveError::Refused("its positions are used up".into()))?;
        if !is_owner() {
            return Err(down("another broker has it now".into()));
        }
        let own = Note { term: *term, ..note };
        log.append_with(start, &[], &own.clone().encode(start))?;
        if log.kept().end != start {
            return Err(down(format!("it ends at {} instead of {start}", log.kept().end)));
        }
        info!("topic '{topic}' goes on at {start}, where its archive ended at {}", kept.end);
        self.move_aside(&path, topic).map_err(|error| down(format!("{}: {error}", path.display())))?;
        Ok(Taken { epoch, from: Some((start, own)), archived: start })
    }

    /// What the disk has is over: others have gone on, and what the archive does not have of it is told as lost. The newest such log is kept.
    fn move_aside(&self, path: &Path, topic: &TopicName) -> std::io::Result<()> {
        if !path.exists() {
            return Ok(());
        }
        let former = self.dir.join(FORMER);
        private_files::create_folder(&former)?;
        let to: PathBuf = former.join(folder(topic));
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        fs::rename(path, &to)?;
        info!("topic '{topic}': what this broker had on its disk before is in {}", to.display());
        fs::File::open(self.dir)?.sync_all()
    }
}

/// The log that is on the disk. None: there is none.
fn on_disk(path: &Path) -> Result<Option<OnDisk>, OpenError> {
    let log = path.join("log");
    if !log.exists() {
        return Ok(None);
    }
    let reader = Reader::open(log, Options::default())?;
    let epoch = Epoch(u128::from_le_bytes(reader.id()));
    Ok(Some(OnDisk { epoch, first: reader.first(), end: reader.end() }))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ops::Range;
    use std::sync::Arc;

    use locks::Mutex;
    use seglog::Log;

    use super::super::archive::{ArchiveLog, ArchiveRead};
    use super::*;

    #[derive(Default)]
    struct Bucket {
        names: Mutex<HashMap<TopicName, Epoch>>,
        logs: Mutex<HashMap<Epoch, Arc<Kept>>>,
    }

    struct Kept(Mutex<(Range<Position>, Vec<u8>)>);

    impl Archive for Bucket {
        fn open(&self, log: &ArchivedLog, _: &dyn Fn() -> bool) -> Result<Arc<dyn ArchiveLog>, ArchiveError> {
            let new = || Arc::new(Kept(Mutex::new((log.first..log.first, Vec::new()))));
            Ok(self.logs.lock().entry(log.epoch).or_insert_with(new).clone())
        }

        fn name_of(&self, _: &str, topic: &TopicName, new: Epoch) -> Result<Epoch, ArchiveError> {
            Ok(*self.names.lock().entry(topic.clone()).or_insert(new))
        }
    }

    impl ArchiveLog for Kept {
        fn kept(&self) -> Range<Position> {
            self.0.lock().0.clone()
        }

        fn append(&self, position: Position, bytes: &[u8]) -> Result<(), ArchiveError> {
            self.append_with(position, bytes, &[])
        }

        fn append_with(&self, position: Position, bytes: &[u8], note: &[u8]) -> Result<(), ArchiveError> {
            let mut kept = self.0.lock();
            kept.0.end = position + bytes.len() as u64;
            kept.1 = note.to_vec();
            Ok(())
        }

        fn note(&self) -> Vec<u8> {
            self.0.lock().1.clone()
        }

        fn read(&self, _: Position, _: &mut [u8]) -> Result<ArchiveRead, ArchiveError> {
            Ok(ArchiveRead::End)
        }
    }

    fn topic() -> TopicName {
        "k/a".parse().unwrap()
    }

    impl Bucket {
        fn take(&self, dir: &Path, term: u64, is_owner: bool) -> Result<Taken, ArchiveError> {
            let taker = Taker { archive: self, cluster: "c", dir, new: Epoch(u128::from(term)) };
            taker.take(&Wanted { topic: topic(), term }, &|| is_owner)
        }

        fn log(&self) -> Arc<Kept> {
            self.logs.lock()[&Epoch(1)].clone()
        }
    }

    /// A disk with a log up to a position.
    fn write(dir: &Path, epoch: u128, end: Position) -> PathBuf {
        let path = dir.join(folder(&topic()));
        fs::create_dir_all(&path).unwrap();
        let options = Options::default().log_id(Some(epoch.to_le_bytes()));
        let mut log = Log::open(path.join("log"), options).unwrap();
        log.append(&vec![7; end as usize]).unwrap();
        log.close().unwrap();
        path
    }

    #[test]
    fn the_first_owner_begins_and_the_next_one_goes_on_behind_all_that_was_read() {
        let (bucket, dirs) = (Bucket::default(), [(); 3].map(|()| tempfile::tempdir().unwrap()));
        let [first, next, third] = dirs.each_ref().map(tempfile::TempDir::path);
        assert_eq!(
            bucket.take(first, 1, true),
            Ok(Taken { epoch: Epoch(1), from: Some((0, Note::default())), archived: 0 })
        );
        let path = write(first, 1, 500);
        // Nothing is archived yet, or not all.
        let on_disk_up_to = |archived| Ok(Taken { epoch: Epoch(1), from: None, archived });
        assert_eq!(bucket.take(first, 1, true), on_disk_up_to(0));
        let note = Note { term: 1, missing_below: 3, next_number: 9, places: Vec::new() };
        bucket.log().append_with(0, &[7; 400], &note.clone().encode(400)).unwrap();
        assert_eq!(bucket.take(first, 1, true), on_disk_up_to(400));

        assert!(bucket.take(next, 2, false).is_err(), "it is none any more");
        assert_eq!(bucket.log().kept(), 0..400);
        let start = 400 + LEFT_OUT;
        let taken =
            Taken { epoch: Epoch(1), from: Some((start, Note { term: 2, ..note.clone() })), archived: start };
        assert_eq!(bucket.take(next, 2, true), Ok(taken));
        assert_eq!((bucket.log().kept(), Note::decode(&bucket.log().note()).unwrap().term), (0..start, 2));

        // What the first one has on its disk is over, and kept.
        let early = bucket.take(first, 1, true).unwrap_err();
        assert!(early.to_string().contains("in term 2"), "{early}");
        let Ok(Taken { from: Some((third_start, _)), .. }) = bucket.take(first, 3, true) else {
            panic!("it has it")
        };
        assert_eq!(third_start, start + LEFT_OUT);
        let former = first.join(FORMER).join(folder(&topic()));
        assert!(!path.exists() && former.join("log").exists());
        // The newer one takes its place.
        write(first, 1, 600);
        bucket.take(first, 4, true).unwrap();
        assert_eq!(on_disk(&former).unwrap().map(|log| log.end), Some(600));
        // A disk with another log, as of a broker that was alone.
        write(third, 77, 600);
        let taken = bucket.take(third, 5, true).unwrap();
        assert!(taken.epoch == Epoch(1) && taken.from.is_some());
        assert!(third.join(FORMER).exists());
    }

    #[test]
    fn a_log_of_before_the_cluster_goes_on() {
        let (bucket, dir) = (Bucket::default(), tempfile::tempdir().unwrap());
        write(dir.path(), 1, 500);
        assert_eq!(bucket.take(dir.path(), 1, true), Ok(Taken { epoch: Epoch(1), from: None, archived: 0 }));
        bucket.log().append_with(0, &[7; 100], b"no note").unwrap();
        assert!(matches!(bucket.take(dir.path(), 1, true), Err(ArchiveError::Refused(_))));
    }
}
