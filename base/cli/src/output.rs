//! Texts on standard output.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use clap::Command;
use clap_complete::Shell;

use crate::closed;
use crate::failure::Failure;
use crate::stop;

/// The number of bytes that a writable pipe takes without blocking (PIPE_BUF of Linux). Descriptors stay blocking, since other processes may
/// share them.
pub(crate) const PIECE: usize = 4096;

/// How long a reader may take for a piece after a request to end.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// Standard output of the process.
pub(crate) fn file() -> io::Result<File> {
    closed::check_stdout()?;
    // Not `std::io::Stdout`, which searches for newlines, and writes the rest of a failed write again at the end.
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

/// Whether a write to the file may wait for a reader. A regular file takes everything, and large writes are best.
pub(crate) fn waits(file: &File) -> bool {
    !file.metadata().is_ok_and(|data| data.is_file())
}

/// The failure of a command that was asked to end while its output takes nothing.
pub(crate) fn unread(bytes: usize) -> Failure {
    Failure::Failed(format!("asked to end while the output has no reader: {bytes} bytes were not written"))
}

/// Writes a text, or bytes, to standard output, as [`Texts::print`].
///
/// # Errors
/// As [`Texts::print`].
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    Texts::open()?.print(text)
}

/// Standard output for texts that follow each other, from a thread without a [`Stop`](crate::Stop).
#[derive(Debug)]
pub struct Texts {
    file: File,
    /// Whether to poll before a write.
    waits: bool,
}

impl Texts {
    /// Standard output of the process.
    ///
    /// # Errors
    /// `Failed` if it is closed.
    pub fn open() -> Result<Self, Failure> {
        let file = file().map_err(|error| Failure::output(&error))?;
        Ok(Self { waits: waits(&file), file })
    }

    /// Writes a text, or bytes. Waits for the reader, until the command is asked to end.
    ///
    /// # Errors
    /// [`Failure::OutputClosed`] if the reader is gone; `Failed` if it takes nothing for a second after a request to end, or the output
    /// takes no more.
    pub fn print(&mut self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        let mut left = text.as_ref();
        let most = if self.waits { PIECE } else { usize::MAX };
        while !left.is_empty() {
            let (piece, rest) = left.split_at(left.len().min(most));
            if self.waits
                && !stop::wait_output(self.file.as_fd(), GRACE).map_err(|error| Failure::output(&error))?
            {
                return Err(unread(left.len()));
            }
            self.file.write_all(piece).map_err(|error| Failure::output(&error))?;
            left = rest;
        }
        Ok(())
    }
}

/// Prints the script by which a shell completes the arguments of this command.
///
/// # Errors
/// As [`print()`].
pub fn print_completions(shell: Shell, mut command: Command) -> Result<(), Failure> {
    let (mut script, name) = (Vec::new(), command.get_name().to_owned());
    clap_complete::generate(shell, &mut command, name, &mut script);
    print(script)
}
