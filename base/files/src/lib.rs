//! Files that a process makes, and files that it is given.
//!
//! The files that it makes, such as messages and recordings of others, are for its user alone, whatever its umask is. A file that exists keeps its
//! mode, so that an administrator may open a folder to a group. What it is given, such as keys and configurations, makes it neither wait
//! for ever nor fill its memory: [`GivenFile`].

#![forbid(unsafe_code)]

mod given;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

pub use given::{GivenFile, with_patience};

/// The mode of new folders.
const FOLDER_MODE: u32 = 0o700;
/// The mode of new files.
const FILE_MODE: u32 = 0o600;

/// Makes a folder. An existing one is no error. Those above it are made as well, with the mode of the umask, since others may have folders
/// there.
///
/// # Errors
/// The error of the system.
pub fn create_folder(path: &Path) -> io::Result<()> {
    if let Some(above) = path.parent() {
        DirBuilder::new().recursive(true).create(above)?;
    }
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)
}

/// The same, and a machine that loses its power afterwards has the folder, and those above it that were made.
///
/// # Errors
/// The error of the system.
pub fn create_durable_folder(path: &Path) -> io::Result<()> {
    let is_named = |folder: &&Path| !folder.as_os_str().is_empty();
    let new: Vec<&Path> = path.ancestors().filter(is_named).take_while(|folder| !folder.is_dir()).collect();
    create_folder(path)?;
    for folder in new {
        let above = folder.parent().filter(is_named).unwrap_or(Path::new("."));
        File::open(above)?.sync_all()?;
    }
    Ok(())
}

/// Makes a folder that must not exist yet.
///
/// # Errors
/// The error of the system.
pub fn create_new_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).create(path)
}

/// Options to write a file, which is made if it does not exist.
pub fn to_write() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(FILE_MODE);
    options
}

/// Writes a whole file.
///
/// # Errors
/// The error of the system.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    to_write().truncate(true).open(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_made_is_for_its_user_and_what_exists_stays() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("new");
        let (inner, file) = (folder.join("a/b"), folder.join("a/b/file"));
        create_folder(&inner).unwrap();
        create_folder(&inner).unwrap();
        write(&file, b"one").unwrap();
        assert_eq!([&inner, &file].map(|path| mode(path)), [0o700, 0o600]);
        assert_ne!(mode(&folder), 0o700, "others may have folders there");

        fs::set_permissions(&inner, Permissions::from_mode(0o750)).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        create_folder(&inner).unwrap();
        write(&file, b"two").unwrap();
        write(&inner.join("new"), b"three").unwrap();
        assert_eq!([&inner, &file, &inner.join("new")].map(|path| mode(path)), [0o750, 0o640, 0o600]);
        assert!(create_new_folder(&inner).is_err(), "it exists");
    }
}
