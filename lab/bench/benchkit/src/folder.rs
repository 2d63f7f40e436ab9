//! Folders of a measurement.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
};

use crate::sys;

/// A path among the temporary files that nothing else of this process has.
pub fn unused(name: &str) -> PathBuf {
    env::temp_dir().join(format!("{name}-{}-{}", process::id(), sys::unique_number()))
}

/// A folder that is removed with its handle.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a folder that is not there yet.
    ///
    /// # Errors
    /// A folder of this name is there, or none can be made.
    pub fn make(path: PathBuf) -> io::Result<Folder> {
        fs::create_dir(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Ok(Folder(path))
    }

    /// Makes a folder of this process in memory, where the system has such folders, and otherwise among the temporary files.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn in_memory(name: &str) -> io::Result<Folder> {
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() { memory } else { env::temp_dir() };
        let path = base.join(format!("{name}-{}", process::id()));
        // An earlier process with this id may have left one.
        let _ = fs::remove_dir_all(&path);
        Folder::make(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays is small, and is among the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
