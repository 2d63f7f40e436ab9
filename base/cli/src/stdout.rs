//! Standard output of a command that goes on: waits for its reader, and can be asked to end while the reader takes nothing.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::Failure;
use crate::output::{self, GRACE, PIECE, unread};
use crate::stop::Stop;

/// Standard output.
pub struct Stdout<'a> {
    file: File,
    /// Whether to poll before a write.
    waits: bool,
    stop: &'a Stop,
}

impl<'a> Stdout<'a> {
    /// Standard output of the process.
    ///
    /// # Errors
    /// `Failed` if it is closed.
    pub fn open(stop: &'a Stop) -> Result<Self, Failure> {
        let file = output::file().map_err(|error| Failure::output(&error))?;
        Ok(Self::new(file.into(), stop))
    }

    /// Another output.
    pub fn new(output: OwnedFd, stop: &'a Stop) -> Self {
        let file = File::from(output);
        Self { waits: output::waits(&file), file, stop }
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// [`Failure::OutputClosed`] if the reader is gone; `Failed` if it takes nothing for a second after a request to end, or the output
    /// takes no more.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if !self.waits {
            return self.file.write_all(bytes).map_err(|error| Failure::output(&error));
        }
        let mut written = 0;
        for piece in bytes.chunks(PIECE) {
            match self.stop.wait_output(self.file.as_fd(), GRACE) {
                Ok(true) => self.file.write_all(piece).map_err(|error| Failure::output(&error))?,
                Ok(false) => return Err(unread(bytes.len() - written)),
                Err(error) => return Err(Failure::output(&error)),
            }
            written += piece.len();
        }
        Ok(())
    }

    /// Whether the reader of the output has closed it. Only pipes and sockets report that.
    pub fn is_abandoned(&self) -> bool {
        let mut polled = [PollFd::new(&self.file, PollFlags::empty())];
        let looked = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        looked.is_ok() && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_closed_pipe_or_socket_is_detected() {
        let stop = Stop::install().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let (other, socket) = UnixStream::pair().unwrap();
        let outputs: [OwnedFd; 2] = [writer.into(), socket.into()];
        let outputs = outputs.map(|output| Stdout::new(output, &stop));
        assert!(!outputs.iter().any(Stdout::is_abandoned));
        drop((reader, other));
        assert!(outputs.iter().all(Stdout::is_abandoned));
    }
}
