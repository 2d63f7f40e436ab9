//! Connections to a peer's server, and the reader of their bytes.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    time::Duration,
};

use benchkit::pace::CALL_BYTES;

use super::message::{Next, Protocol};
use crate::{clients, error::BenchError};

/// The time within which a server answers the greeting.
const GREETING_WITHIN: Duration = Duration::from_secs(20);

/// A connection with the settings of all clients here.
///
/// # Errors
/// No server listens at the address.
pub fn connect(addr: &str, congestion: Option<&str>) -> io::Result<TcpStream> {
    let socket = clients::connect(addr, congestion)?;
    socket.set_read_timeout(Some(GREETING_WITHIN))?;
    Ok(socket)
}

/// The server that has a topic: of several, with commas between them, one after the other.
pub fn server_of(addrs: &str, topic: u8) -> &str {
    let servers = addrs.split(',').count();
    addrs.split(',').nth(usize::from(topic) % servers).unwrap_or(addrs)
}

/// Received and unused bytes, always from the start of the buffer.
pub struct Reader {
    buffer: Vec<u8>,
    filled: usize,
}

impl Reader {
    /// A small reader, for the greeting.
    pub fn small() -> Reader {
        Reader { buffer: vec![0; 64 << 10], filled: 0 }
    }

    /// For a stream of messages, of which at least `record_bytes` have to be together.
    pub fn for_messages(record_bytes: usize) -> Reader {
        Reader { buffer: vec![0; CALL_BYTES + 2 * record_bytes], filled: 0 }
    }

    /// Reads once. Returns false if no bytes came within the socket's time-out.
    ///
    /// # Errors
    /// The connection failed or ended.
    pub fn fill(&mut self, socket: &mut impl Read) -> io::Result<bool> {
        let room = &mut self.buffer[self.filled..];
        let offered = room.len().min(CALL_BYTES);
        match socket.read(&mut room[..offered]) {
            Ok(0) if offered == 0 => Err(io::Error::other("an item is larger than anything that was sent")),
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                self.filled += len;
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The unused bytes.
    pub fn data(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Forgets the first `len` bytes.
    pub fn used(&mut self, len: usize) {
        self.buffer.copy_within(len..self.filled, 0);
        self.filled -= len;
    }

    /// Waits for the next item, which must satisfy `right`, and removes it.
    ///
    /// # Errors
    /// The connection failed, no item came in time, or another item came.
    pub fn expect(
        &mut self,
        protocol: Protocol,
        socket: &mut TcpStream,
        right: impl Fn(&Next<'_>) -> bool,
    ) -> Result<(), BenchError> {
        loop {
            let (len, answer) = match protocol.next(self.data())? {
                Next::More => (0, None),
                next if !right(&next) => return Err(protocol.malformed(self.data())),
                Next::Message { len, .. } => (len, None),
                Next::Other { len, answer, .. } => (len, answer),
            };
            if len > 0 {
                self.used(len);
                socket.write_all(answer.unwrap_or_default())?;
                return Ok(());
            }
            self.fill_or_fail(socket)?;
        }
    }

    /// Reads exactly the next `len` bytes, and none after them.
    ///
    /// # Errors
    /// The connection failed, or the bytes did not come in time.
    pub fn exactly(&mut self, socket: &mut TcpStream, len: usize) -> Result<Vec<u8>, BenchError> {
        let mut bytes = vec![0; len];
        socket.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn fill_or_fail(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        if self.fill(socket)? { Ok(()) } else { Err(ErrorKind::TimedOut.into()) }
    }
}
