//! What a member knows of the map, in a file beside its logs: a broker that starts while etcd is away goes on with it.
//!
//! The file is a line with the hash of what follows, and the keys as etcd had them. A file that is not whole, or of another version, is told and
//! not used: then the broker waits for etcd, as without a file. A file that cannot be replaced is removed, since it tells what is over.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use locks::{Condvar, Mutex};
use serde_json::{Value, json};
use tracing::warn;

use super::keys::hash;
use etcd::{KeyValue, Snapshot};

const VERSION: u64 = 1;
/// The largest file that is read.
const MAX_BYTES: u64 = 256 << 20;
/// When a file is written again that could not be.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long the end of a member waits for its disk.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The file of a member.
pub(crate) struct Memo {
    path: PathBuf,
    /// Whose it is: a file that was copied from another member says nothing about this one.
    owner: String,
}

impl Memo {
    pub(crate) fn new(path: &Path, owner: String) -> Self {
        Self { path: path.to_owned(), owner }
    }

    /// What was written last. None: there is no file.
    ///
    /// # Errors
    /// It cannot be read, or makes no sense.
    pub(crate) fn read(&self) -> Result<Option<Snapshot>, String> {
        let text = match private_files::GivenFile::open(&self.path).and_then(|file| file.text(MAX_BYTES)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let (sum, body) = text.split_once('\n').ok_or("it is not whole")?;
        if sum != line_of(body) {
            return Err("it is damaged".into());
        }
        let value: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
        if value["version"] != VERSION || value["owner"] != self.owner.as_str() {
            return Err("it is of another version or of another member".into());
        }
        let keys = value["keys"].as_array().ok_or("it has no keys")?.iter().map(|pair| {
            let text = |n: usize| pair[n].as_str().map(str::to_owned);
            let (key, value) = (text(0)?, text(1)?.into_bytes());
            Some(KeyValue { key, value, created: 0, modified: 0, lease: 0 })
        });
        let keys = keys.collect::<Option<Vec<_>>>().ok_or("a key makes no sense")?;
        Ok(Some(Snapshot { revision: 0, keys }))
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// Those of the system. The file is the old one, or the new one.
    pub(crate) fn write(&self, snapshot: &Snapshot) -> io::Result<()> {
        let pair = |kv: &KeyValue| json!([kv.key, String::from_utf8_lossy(&kv.value)]);
        let keys: Vec<Value> = snapshot.keys.iter().map(pair).collect();
        let body = json!({ "version": VERSION, "owner": self.owner, "keys": keys }).to_string();
        let new = self.path.with_extension("new");
        let mut file = private_files::to_write().truncate(true).open(&new)?;
        file.write_all(format!("{}\n{body}", line_of(&body)).as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        self.sync_folder()
    }

    /// Removes the file, if there is one.
    pub(crate) fn forget(&self) {
        let removed = match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            removed => removed.and_then(|()| self.sync_folder()),
        };
        if let Err(error) = removed {
            warn!("{} tells what is over; remove it: {error}", self.path.display());
        }
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

/// Has a thread write the newest map: a disk that stalls delays nobody who asks etcd. When it is dropped, what it was given is in the file, or
/// the disk does not answer.
pub(crate) struct Keeper(Arc<Desk>);

#[derive(Default)]
struct Desk {
    task: Mutex<Task>,
    bell: Condvar,
}

#[derive(Default)]
struct Task {
    /// What is to be in the file; without a map there is to be none.
    newest: Option<Option<Snapshot>>,
    is_over: bool,
    has_ended: bool,
}

impl Keeper {
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(memo: Memo) -> io::Result<Self> {
        let desk = Arc::<Desk>::default();
        let keeper = Self(desk.clone());
        threads::spawn("rbmq-map", move || {
            desk.work(&memo);
            desk.task.lock().has_ended = true;
            desk.bell.notify_all();
        })?;
        Ok(keeper)
    }

    /// From now on the file is to have this map; without one there is to be no file.
    pub(crate) fn keep(&self, map: Option<Snapshot>) {
        self.0.task.lock().newest = Some(map);
        self.0.bell.notify_all();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let mut task = self.0.task.lock();
        task.is_over = true;
        self.0.bell.notify_all();
        self.0.bell.wait_while_for(&mut task, |task| !task.has_ended, END_TIMEOUT);
    }
}

impl Desk {
    fn work(&self, memo: &Memo) {
        loop {
            let mut task = self.task.lock();
            self.bell.wait_while(&mut task, |task| task.newest.is_none() && !task.is_over);
            let Some(newest) = task.newest.take() else { return };
            drop(task);
            let Some(Err(error)) = newest.as_ref().map(|snapshot| memo.write(snapshot)) else {
                if newest.is_none() {
                    memo.forget();
                }
                continue;
            };
            warn!("the next process will not know the map before etcd says it: {error}");
            memo.forget();
            let mut task = self.task.lock();
            let waits = |task: &mut Task| task.newest.is_none() && !task.is_over;
            self.bell.wait_while_for(&mut task, waits, RETRY_AFTER);
            if !task.is_over {
                task.newest.get_or_insert(newest);
            }
        }
    }
}

fn line_of(body: &str) -> String {
    format!("{:016x}", hash(body.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_replaced_is_removed_and_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map");
        let keeper = Keeper::start(Memo::new(&path, "c/m".into())).unwrap();
        keeper.keep(Some(Snapshot::default()));
        testkit::until("it is written", || path.exists());
        let in_the_way = path.with_extension("new");
        fs::create_dir(&in_the_way).unwrap();
        keeper.keep(Some(Snapshot::default()));
        testkit::until("it is removed", || !path.exists());
        fs::remove_dir(&in_the_way).unwrap();
        testkit::until("it is written again", || path.exists());
        keeper.keep(None);
        drop(keeper);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_not_whole_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map");
        let memo = Memo::new(&path, "c/m".into());
        assert_eq!(memo.read(), Ok(None));
        let kv = |key: &str, value: &[u8]| KeyValue {
            key: key.into(),
            value: value.into(),
            created: 0,
            modified: 0,
            lease: 0,
        };
        let keys = vec![kv("/rbmq/c/map/g", br#"{"owner":"m","term":3}"#), kv("/rbmq/c/\u{e9}", b"")];
        let snapshot = Snapshot { revision: 0, keys };
        memo.write(&Snapshot::default()).unwrap();
        memo.write(&snapshot).unwrap();
        assert_eq!(memo.read(), Ok(Some(snapshot)));
        assert!(Memo::new(&path, "c/n".into()).read().unwrap_err().contains("another member"));
        let bytes = fs::read(&path).unwrap();
        for end in 0..bytes.len() {
            fs::write(&path, &bytes[..end]).unwrap();
            assert!(memo.read().is_err(), "{end}");
        }
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            fs::write(&path, other).unwrap();
            assert!(memo.read().is_err(), "{at}");
        }
    }
}
