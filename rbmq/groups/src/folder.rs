//! The folders of journals: one is there as a whole, or not at all.
//!
//! ```text
//!   make      .new-NAME, written and synced ─▶ NAME
//!   replace   .new-NAME, written and synced;  NAME ─▶ .old-NAME;  .new-NAME ─▶ NAME;  .old-NAME is removed
//!   remove                                    NAME ─▶ .old-NAME;                      .old-NAME is removed
//! ```
//!
//! Whoever is killed in between leaves names with a dot, which [`repair`] takes to their end.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::group::Group;
use crate::journal::{Journal, JournalError};

const NEW: &str = ".new-";
const OLD: &str = ".old-";

/// Puts a journal that has a group and nothing else in the place of the one in a folder, which must not be open. After an error the folder has
/// what it had.
///
/// # Errors
/// The disk has not kept the new one.
pub fn replace(dir: &Path, group: &Group, epoch: u128) -> Result<(), JournalError> {
    let new = beside(dir, NEW)?;
    clear(&new)?;
    let (mut journal, _) = Journal::open(&new)?;
    journal.save(group, epoch)?;
    journal.sync()?;
    drop(journal);
    let old = beside(dir, OLD)?;
    clear(&old)?;
    if dir.exists() {
        fs::rename(dir, &old)?;
    }
    fs::rename(&new, dir)?;
    sync_above(dir)?;
    // What is left of it is removed the next time.
    let _ = clear(&old);
    Ok(())
}

/// Forgets the journal in a folder, which must not be open.
///
/// # Errors
/// The folder cannot be renamed.
pub fn remove(dir: &Path) -> Result<(), JournalError> {
    let old = beside(dir, OLD)?;
    clear(&old)?;
    fs::rename(dir, &old)?;
    sync_above(dir)?;
    let _ = clear(&old);
    Ok(())
}

/// Ends what a process has begun in a folder of journals and was killed.
///
/// # Errors
/// The folder cannot be read or changed.
pub fn repair(folder: &Path) -> Result<(), JournalError> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let names: Vec<String> =
        entries.iter().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    // A journal in the place of another, before the last step.
    for name in names.iter().filter_map(|name| name.strip_prefix(NEW)) {
        let [new, old] = [NEW, OLD].map(|prefix| folder.join(format!("{prefix}{name}")));
        if old.exists() && !folder.join(name).exists() {
            fs::rename(&new, folder.join(name))?;
        }
    }
    for name in names.iter().filter(|name| name.starts_with(NEW) || name.starts_with(OLD)) {
        clear(&folder.join(name))?;
    }
    Ok(())
}

fn beside(dir: &Path, prefix: &str) -> io::Result<PathBuf> {
    let name = dir.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| io::Error::other("the folder of a journal has no name"))?;
    Ok(dir.with_file_name(format!("{prefix}{name}")))
}

fn clear(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Makes the names in a folder durable.
fn sync_above(dir: &Path) -> io::Result<()> {
    dir.parent().map_or(Ok(()), |above| File::open(above)?.sync_all())
}
