//! Standard output as `sub` writes it: it waits for whoever reads, and can be asked to end while nobody does.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::failure::Failure;
use super::stop::Stop;

/// What a pipe takes at once where it says that it takes something (PIPE_BUF of Linux). The descriptor itself waits: it may
/// be others' too.
const PIECE: usize = 4096;

/// How long whoever reads may take for a piece once the command was asked to end.
const GRACE: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Stdout<'a> {
    /// Not as the library has it, which looks for ends of lines.
    file: File,
    /// A regular file takes everything, and its writes are best large.
    waits: bool,
    stop: &'a Stop,
}

impl<'a> Stdout<'a> {
    pub(super) fn new(output: OwnedFd, stop: &'a Stop) -> Self {
        let file = File::from(output);
        let waits = !file.metadata().is_ok_and(|data| data.is_file());
        Self { file, waits, stop }
    }

    /// Writes all of it.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if !self.waits {
            return self.file.write_all(bytes).map_err(|error| Failure::output(&error));
        }
        let mut written = 0;
        for piece in bytes.chunks(PIECE) {
            match self.stop.wait_output(self.file.as_fd(), GRACE) {
                Ok(true) => self.file.write_all(piece).map_err(|error| Failure::output(&error))?,
                Ok(false) => {
                    let left = bytes.len() - written;
                    return Err(Failure::Failed(format!(
                        "asked to end while nobody reads the output: {left} bytes that were received are not written"
                    )));
                }
                Err(error) => return Err(Failure::output(&error)),
            }
            written += piece.len();
        }
        Ok(())
    }

    /// Whether whoever read the output has gone away. Only a pipe or a socket can tell.
    pub(super) fn is_abandoned(&self) -> bool {
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
    fn whoever_read_from_a_pipe_or_a_socket_is_known_to_have_gone_away() {
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
