//! Films that encoders push. They are encoded once for all tests that run at the same time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

/// The renditions of a film, with B frames and a key frame in each second.
pub struct Film {
    _folder: tempfile::TempDir,
    pub files: Vec<PathBuf>,
}

/// Where a film is while somebody uses it.
pub type Shelf = Mutex<Weak<Film>>;

/// How long a film is, in seconds: somebody takes `RBLIVE_SECONDS` of it, and the machine may be busy.
pub fn length() -> u32 {
    3 * super::seconds() + 90
}

/// The film of a shelf. `make` encodes it into a folder.
pub fn take(shelf: &Shelf, make: impl FnOnce(&Path) -> Vec<PathBuf>) -> Arc<Film> {
    let mut film = shelf.lock().unwrap();
    film.upgrade().unwrap_or_else(|| {
        let folder = tempfile::tempdir().unwrap();
        let files = make(folder.path());
        let made = Arc::new(Film { _folder: folder, files });
        *film = Arc::downgrade(&made);
        made
    })
}
