//! Reads a configuration file. Its path can lead to anything when it is read again. Therefore no file makes a program wait, or fills
//! its memory.

use std::io;
use std::path::Path;

use private_files::GivenFile;

use super::ConfigError;

/// The largest configuration file, in bytes.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// Reads the text of a configuration file.
///
/// [`GivenFile`] says which pipes are read.
///
/// # Errors
/// [`ConfigError::Read`]: the file does not exist, is a directory or a pipe that nobody writes to, has more than [`MAX_FILE_BYTES`], or is not UTF-8.
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
    let file = GivenFile::open(path)?;
    let mode = file.mode();
    Ok((file.text(MAX_FILE_BYTES)?, mode))
}
