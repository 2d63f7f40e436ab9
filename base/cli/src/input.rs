//! The input of a command: standard input or a file. Reads end when the command is asked to end, and lines have a greatest length.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::closed;
use crate::failure::Failure;
use crate::stop::Stop;

/// The size of one read in bytes.
const READ_BYTES: usize = 256 << 10;

/// An input whose reads end when the command is asked to end.
pub struct Input {
    fd: OwnedFd,
    /// Whether to poll before a read. Regular files are always readable, and cannot be polled everywhere.
    waits: bool,
}

impl Input {
    /// Opens a file, or standard input for `-`. Does not wait for the writer of a pipe; [`read`](Self::read) does.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            closed::check_stdin()?;
            return Ok(Self { fd: io::stdin().as_fd().try_clone_to_owned()?, waits: true });
        }
        let how = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = File::from(open(path, how, Mode::empty())?);
        let waits = !file.metadata()?.is_file();
        Ok(Self { fd: file.into(), waits })
    }

    /// Reads available bytes into `buffer`: 0 at the end of the input; none if the command was asked to end.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&self, buffer: &mut [u8], stop: &Stop) -> io::Result<Option<usize>> {
        loop {
            if stop.asked() || (self.waits && !stop.wait_input(self.fd.as_fd())?) {
                return Ok(None);
            }
            match rustix::io::read(&self.fd, &mut *buffer) {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                other => return Ok(Some(other?)),
            }
        }
    }
}

impl Input {
    /// Hands each line to `take`, with its newline, which the last line may lack. Ends with the input, or when the command is asked to
    /// end.
    ///
    /// # Errors
    /// `Failed` if the input cannot be read, or a line has more than `max_line` bytes; and the errors of `take`.
    pub fn each_line(
        &self,
        max_line: usize,
        stop: &Stop,
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let cannot = |error| Failure::Failed(format!("cannot read the input: {error}"));
        let too_long = |number| Failure::Failed(format!("line {number} has more than {max_line} bytes"));
        let (mut lines, mut number) = (Lines::new(max_line), 1_u64);
        loop {
            let more = lines.fill(self, stop).map_err(cannot)?;
            for line in lines.complete().split_inclusive(|byte| *byte == b'\n') {
                if stop.asked() {
                    return Ok(());
                }
                if line.strip_suffix(b"\n").unwrap_or(line).len() > max_line {
                    return Err(too_long(number));
                }
                take(line)?;
                number += 1;
            }
            if lines.too_long() {
                return Err(too_long(number));
            }
            if !more {
                break;
            }
        }
        if lines.ended() && !lines.rest().is_empty() { take(lines.rest()) } else { Ok(()) }
    }
}

/// Splits an input into lines.
pub struct Lines {
    buffer: Vec<u8>,
    /// The number of bytes that were read.
    filled: usize,
    /// The number of those bytes that were returned.
    taken: usize,
    /// Everything below this offset was searched for newlines.
    searched: usize,
    max_line: usize,
    /// Whether the input was read to its end.
    ended: bool,
}

impl Lines {
    /// Lines of at most `max_line` bytes.
    pub fn new(max_line: usize) -> Self {
        Self { buffer: vec![0; READ_BYTES], filled: 0, taken: 0, searched: 0, max_line, ended: false }
    }

    /// Reads once. False if nothing more will come.
    ///
    /// # Errors
    /// The system's.
    pub fn fill(&mut self, input: &Input, stop: &Stop) -> io::Result<bool> {
        self.buffer.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.searched -= self.taken;
        self.taken = 0;
        if self.filled + READ_BYTES / 2 > self.buffer.len() && self.filled <= self.max_line {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        match input.read(&mut self.buffer[self.filled..], stop)? {
            None => Ok(false),
            Some(0) => {
                self.ended = true;
                Ok(false)
            }
            Some(n) => {
                self.filled += n;
                Ok(true)
            }
        }
    }

    /// Whether the input was read to its end. False if the command was asked to end before.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// The complete lines that were read and not returned yet, with their newlines.
    pub fn complete(&mut self) -> &[u8] {
        let last = self.buffer[self.searched..self.filled].iter().rposition(|b| *b == b'\n');
        self.searched = self.filled;
        match last {
            None => &[],
            Some(_) => {
                let from = self.taken;
                let end =
                    self.buffer[..self.filled].iter().rposition(|b| *b == b'\n').map_or(from, |at| at + 1);
                self.taken = end;
                &self.buffer[from..end]
            }
        }
    }

    /// Whether the last, incomplete line is too long already.
    pub fn too_long(&self) -> bool {
        self.filled - self.taken > self.max_line
    }

    /// The bytes after the last newline, at the end of the input.
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.taken..self.filled]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_without_a_writer_is_opened_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RWXU).unwrap();
        assert!(Input::open(&path).unwrap().waits);
    }
}
