//! The modes of files that others must not read.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The number of files in a folder and those below it.
///
/// # Panics
/// A file or a folder there is open to others than its user.
pub fn files_for_their_user(folder: &Path) -> usize {
    let (mut paths, mut files) = (vec![folder.to_owned()], 0);
    while let Some(path) = paths.pop() {
        let about = std::fs::metadata(&path).expect("a file");
        assert_eq!(about.permissions().mode() & 0o077, 0, "{}", path.display());
        if about.is_dir() {
            let inside = std::fs::read_dir(&path).expect("a folder");
            paths.extend(inside.map(|entry| entry.expect("a file").path()));
        } else {
            files += 1;
        }
    }
    files
}
