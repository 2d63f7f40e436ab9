//! What a member knows of the map, in a file beside its logs: a broker that starts while etcd is away goes on with it.
//!
//! The file is a line with the hash of what follows, and the keys as etcd had them. A file that is not whole, or of another version, is told and
//! not used: then the broker waits for etcd, as without a file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::etcd::{KeyValue, Snapshot};
use super::keys::hash;

const VERSION: u64 = 1;
/// The largest file that is read.
const MAX_BYTES: u64 = 256 << 20;

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
        self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

fn line_of(body: &str) -> String {
    format!("{:016x}", hash(body.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
