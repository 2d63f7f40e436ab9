//! TLS of a connection: its handshake, then its records.
//!
//! A connection that waits for its client has keys, and no buffers but those that rustls keeps for TLS 1.2: a record is opened in the buffer that its
//! socket was read into, and sealed in one of the thread. What stays is the beginning of a record, what the socket does not take of one, and what was
//! opened beyond the room of a reader.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use tls13::{Handshake, Out, Records};

/// How often a socket is read for bytes that are not only TLS's own.
const MAX_READS: usize = 16;

/// Bytes of a handshake that are read at once.
const SHAKE_BYTES: usize = 4 << 10;

/// The room in which records are opened, at least: a whole one, and what may follow the handshake.
const ROOM: usize = 32 << 10;

enum State {
    Handshake(Box<Handshake>),
    Records(Records),
    /// The client has broken the rules, or its handshake has.
    Failed,
}

/// A socket with TLS. See the module.
pub(crate) struct Secure {
    stream: TcpStream,
    state: State,
    /// The beginning of a record.
    partial: Vec<u8>,
    /// Data for which the reader had no room.
    opened: Vec<u8>,
    /// Encrypted bytes that the socket has not taken.
    sealed: Vec<u8>,
    /// The certificate of the client.
    certificate: Option<Arc<[u8]>>,
    /// The socket had less than there was room for.
    is_drained: bool,
    has_closed: bool,
}

impl std::fmt::Debug for Secure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secure").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Secure {
    /// The client begins.
    pub(crate) fn new(stream: TcpStream, handshake: Handshake) -> Self {
        Self {
            stream,
            state: State::Handshake(Box::new(handshake)),
            partial: Vec::new(),
            opened: Vec::new(),
            sealed: Vec::new(),
            certificate: None,
            is_drained: false,
            has_closed: false,
        }
    }

    /// The stream below.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether the handshake is over.
    pub(crate) fn is_made(&self) -> bool {
        matches!(self.state, State::Records(_))
    }

    /// The certificate that the client has shown.
    pub(crate) fn certificate(&self) -> Option<&[u8]> {
        self.certificate.as_deref()
    }

    /// The bytes that its buffers take.
    pub(crate) fn memory(&self) -> usize {
        let handshake = if let State::Handshake(handshake) = &self.state { handshake.memory() } else { 0 };
        handshake + self.partial.capacity() + self.opened.capacity() + self.sealed.capacity()
    }

    /// Whether encrypted bytes wait for the socket.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.sealed.is_empty()
    }

    /// Whether there may be more to read although less came than there was room for.
    pub(crate) fn may_have_more(&self) -> bool {
        !self.is_drained || !self.opened.is_empty() || self.has_ended() || self.is_broken()
    }

    fn has_ended(&self) -> bool {
        matches!(&self.state, State::Records(records) if records.has_ended())
    }

    fn is_broken(&self) -> bool {
        matches!(&self.state, State::Records(records) if records.is_broken())
    }
}

/// Receiving.
impl Secure {
    /// As [`Transport::read`](super::transport::Transport::read).
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.opened.is_empty() {
            let have = self.partial.len();
            if buffer.len() >= have + ROOM {
                let most = buffer.len();
                return self.read_in(buffer, most);
            }
            let mut room = vec![0; ROOM.max(have + buffer.len())];
            let count = self.read_in(&mut room, buffer.len())?;
            self.opened.extend_from_slice(&room[..count]);
        }
        let count = self.opened.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.opened[..count]);
        self.opened.drain(..count);
        release(&mut self.opened);
        Ok(count)
    }

    /// Reads at most so many bytes, and opens them in `room`. Returns how much data is at its front.
    fn read_in(&mut self, room: &mut [u8], most: usize) -> io::Result<usize> {
        for _ in 0..MAX_READS {
            if self.has_ended() || matches!(self.state, State::Failed) {
                return Ok(0);
            }
            if self.is_broken() {
                return self.open(room, 0);
            }
            let have = self.partial.len();
            let shakes = !self.is_made();
            let most = if shakes { SHAKE_BYTES } else { most.min(room.len() - have) };
            let count = self.stream.read(&mut room[have..have + most])?;
            if count == 0 {
                return Ok(0);
            }
            self.is_drained = count < most;
            let filled = if shakes {
                self.shake(&room[..count])?;
                self.partial.len()
            } else {
                have + count
            };
            room[..self.partial.len()].copy_from_slice(&self.partial);
            let count = self.open(room, filled)?;
            if count > 0 {
                return Ok(count);
            }
        }
        // Records without content: the others have their turn.
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Opens the first bytes of `room`, and keeps what is no whole record. Returns how much data is at the front of `room`.
    fn open(&mut self, room: &mut [u8], filled: usize) -> io::Result<usize> {
        let State::Records(records) = &mut self.state else { return Ok(0) };
        let mut out = Out::take();
        let opened = records.open(&mut room[..filled], &mut out);
        // What follows the end, or a record that breaks the rules, is never opened.
        let is_last = records.has_ended() || records.is_broken();
        let written = self.write_sealed(out.waiting());
        let (used, count) = match opened {
            Ok(opened) => opened,
            Err(broken) => {
                // The alert tells the client what is wrong; whether it arrives is its own affair.
                self.state = State::Failed;
                return Err(io::Error::new(io::ErrorKind::InvalidData, broken));
            }
        };
        self.partial = if is_last { Vec::new() } else { room[used..filled].to_vec() };
        written.map(|()| count)
    }

    /// Goes on with the handshake. What has arrived behind it is the beginning of records.
    fn shake(&mut self, bytes: &[u8]) -> io::Result<()> {
        let State::Handshake(handshake) = &mut self.state else { return Ok(()) };
        handshake.take(bytes);
        let advanced = handshake.advance();
        let waiting = handshake.waiting().to_vec();
        handshake.written(waiting.len());
        let written = self.write_sealed(&waiting);
        match advanced {
            Ok(false) => written,
            Ok(true) => written.and_then(|()| self.establish()),
            Err(error) => {
                // Here too, whether the alert arrives is the client's own affair.
                self.state = State::Failed;
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }

    fn establish(&mut self) -> io::Result<()> {
        let State::Handshake(handshake) = std::mem::replace(&mut self.state, State::Failed) else {
            return Ok(());
        };
        let established = handshake.finish_any().map_err(io::Error::other)?;
        (self.partial, self.certificate) = (established.rest, established.certificate);
        self.state = State::Records(established.session);
        Ok(())
    }
}

/// Sending.
impl Secure {
    /// As [`Transport::write`](super::transport::Transport::write), at most one record: what the socket does not take of it stays, also if the client
    /// reads nothing any more.
    pub(crate) fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush()?;
        let State::Records(records) = &mut self.state else { return Err(io::ErrorKind::WouldBlock.into()) };
        let mut out = Out::take();
        let taken = records.seal(pieces, &mut out).map_err(io::Error::other)?;
        self.write_sealed(out.waiting())?;
        Ok(taken)
    }

    /// Writes encrypted bytes that wait.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.sealed.is_empty() {
            match self.stream.write(&self.sealed) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.sealed.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            release(&mut self.sealed);
        }
        Ok(())
    }

    /// Tells the client that nothing more follows.
    pub(crate) fn end(&mut self) {
        if let State::Records(records) = &mut self.state
            && !std::mem::replace(&mut self.has_closed, true)
        {
            let mut out = Out::take();
            // If it fails, the client sees a stream that was cut.
            let _ = records.end(&mut out).map(|()| self.write_sealed(out.waiting()));
        }
    }

    /// Writes encrypted bytes, and keeps what the socket does not take.
    fn write_sealed(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut left = bytes;
        while !left.is_empty() && self.sealed.is_empty() {
            match self.stream.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sealed.extend_from_slice(left);
        Ok(())
    }
}

/// A connection that waits has no buffer.
fn release(buffer: &mut Vec<u8>) {
    if buffer.is_empty() {
        *buffer = Vec::new();
    }
}

#[cfg(test)]
mod tests;
