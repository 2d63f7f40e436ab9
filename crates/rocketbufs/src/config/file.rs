//! Reads a configuration file. What stands at its path may be anything by the time it is read again: nothing there
//! makes a program wait, or fills its memory.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use super::ConfigError;

/// The largest configuration file, in bytes.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// The text of a configuration file, for programs that read more than one part of it: what [`Config::load`] reads.
///
/// A pipe is read until its end only where it is one of the process's own (`/dev/stdin`, `/dev/fd/…`); that waits for
/// whoever writes to it. Nothing else is waited for.
///
/// [`Config::load`]: super::Config::load
///
/// # Errors
/// [`ConfigError::Read`]: there is no such file, it is a pipe or a folder, has more than [`MAX_FILE_BYTES`], or is no
/// UTF-8.
pub fn read_file(path: &Path) -> Result<String, ConfigError> {
    read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

fn read(path: &Path) -> io::Result<String> {
    let own = is_own_descriptor(path);
    // Opening a pipe waits for somebody who writes to it, and reading it does.
    let flags = if own { OFlags::empty() } else { OFlags::NONBLOCK };
    let file =
        File::from(open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | flags, Mode::empty())?);
    if !own && file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("it is a pipe; a configuration is read from a file"));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes, and is none")));
    }
    Ok(text)
}

/// Whether the path is that of something that the process was started with.
fn is_own_descriptor(path: &Path) -> bool {
    path == Path::new("/dev/stdin")
        || ["/dev/fd", "/proc/self/fd"].iter().any(|folder| path.starts_with(folder))
}
