//! Sessions in a file: a line for each, and a last line with their number.
//!
//! ```text
//!   00c5a1… 0
//!   7fe019… 81920
//!   2 sessions
//! ```

use std::io;
use std::path::Path;

use private_files::GivenFile;

use crate::sessions::{Session, Sessions};

/// The name of an unknown session, which is equal to no other. A damaged file counts as this session, so its log is equal to no other
/// log.
const UNKNOWN: u64 = 0;
/// The largest file in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The sessions in a file. Empty if there is no file.
pub(super) fn load(path: &Path) -> io::Result<Sessions> {
    match GivenFile::open(path).and_then(|file| file.bytes(MAX_FILE_BYTES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Sessions::default()),
        Err(error) => Err(error),
        Ok(bytes) => {
            let sessions = std::str::from_utf8(&bytes).ok().and_then(parse);
            Ok(sessions.unwrap_or_else(|| Sessions::new([Session { id: UNKNOWN, start: 0 }])))
        }
    }
}

fn parse(text: &str) -> Option<Sessions> {
    let text = text.strip_suffix(" sessions\n")?;
    let (lines, count) = text.rsplit_once('\n').unwrap_or(("", text));
    let session = |line: &str| {
        let (id, start) = line.split_once(' ')?;
        Some(Session { id: u64::from_str_radix(id, 16).ok()?, start: start.parse().ok()? })
    };
    let sessions: Vec<Session> = lines.lines().map(session).collect::<Option<_>>()?;
    (count.parse() == Ok(sessions.len())).then(|| Sessions::new(sessions))
}

/// Writes sessions to a file, in one step. They survive the process, but need not survive a crash of the machine: the other levels with
/// sessions are rings in the kernel, which end with it. A file that a crash has damaged counts as an unknown session.
pub(super) fn store(path: &Path, sessions: &Sessions) -> io::Result<()> {
    let mut text = String::new();
    for Session { id, start } in sessions.list() {
        text += &format!("{id:016x} {start}\n");
    }
    text += &format!("{} sessions\n", sessions.list().len());
    let new = path.with_extension("sessions-new");
    private_files::write(&new, text.as_bytes())?;
    std::fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_survive_and_damage_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("topic-00007.sessions");
        assert_eq!(load(&path).expect("no file"), Sessions::default());
        for count in [0, 1, 3] {
            let sessions =
                Sessions::new((1..=count).map(|id| Session { id: id << 60 | id, start: id * 1000 }));
            store(&path, &sessions).expect("it is stored");
            assert_eq!(load(&path).expect("a file"), sessions);
        }
        let whole = std::fs::read(&path).expect("a file");
        let unknown = Sessions::new([Session { id: UNKNOWN, start: 0 }]);
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).expect("a file");
            assert_eq!(load(&path).expect("a file"), unknown, "cut at {length}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing else is left");
    }
}
