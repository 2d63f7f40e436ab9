//! Reads a configuration file. Its path can lead to anything when it is read again. Therefore no file makes a program wait, or fills
//! its memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use super::ConfigError;

/// The largest configuration file, in bytes.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// Reads the text of a configuration file.
///
/// A pipe of the process's own (`/dev/stdin`, `/dev/fd/…`) is read until its end, which waits for its writer. Nothing else makes the
/// call wait.
///
/// # Errors
/// [`ConfigError::Read`]: the file does not exist, is a pipe or a directory, has more than [`MAX_FILE_BYTES`], or is not UTF-8.
pub fn read_file(path: &Path) -> Result<String, ConfigError> {
    read_file_with_mode(path).map(|(text, _)| text)
}

/// As [`read_file`], with the mode of the file that was read: for programs whose configuration may have secrets.
///
/// # Errors
/// As [`read_file`].
pub fn read_file_with_mode(path: &Path) -> Result<(String, u32), ConfigError> {
    read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

fn read(path: &Path) -> io::Result<(String, u32)> {
    let own = is_own_descriptor(path);
    // Opening a pipe waits for a writer, and so does reading from it.
    let flags = if own { OFlags::empty() } else { OFlags::NONBLOCK };
    let file =
        File::from(open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | flags, Mode::empty())?);
    let about = file.metadata()?;
    if !own && about.file_type().is_fifo() {
        return Err(io::Error::other("a pipe is not accepted as a configuration file"));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("a configuration file has at most {MAX_FILE_BYTES} bytes")));
    }
    Ok((text, about.mode()))
}

/// Whether the path leads to a descriptor that the process inherited.
fn is_own_descriptor(path: &Path) -> bool {
    path == Path::new("/dev/stdin")
        || ["/dev/fd", "/proc/self/fd"].iter().any(|folder| path.starts_with(folder))
}
