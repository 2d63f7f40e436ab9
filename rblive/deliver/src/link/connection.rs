//! The socket of a viewer, and the buffers on the way to it and from it.

use std::io;
use std::time::Duration;

use rblive::ChunkRef;
use tls13::{Out, Records};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::in_place;

/// Bytes that are read at once. A viewer's requests are small.
const READ: usize = 4 << 10;

/// A viewer's connection. A connection that waits for its viewer has no buffers.
#[derive(Debug)]
pub(crate) struct Link {
    pub(super) socket: TcpStream,
    pub(super) session: Option<Box<Records>>,
    /// The bytes that wait for the socket.
    pub(super) out: Option<Out>,
    /// The beginning of a record.
    incoming: Vec<u8>,
    /// Data that was opened and not read.
    pub(super) plain: Vec<u8>,
    /// Bytes that the client sent.
    pub(super) received: u64,
    /// Bytes that the client may send.
    pub(super) allowed: u64,
    /// Bytes that the socket took.
    pub(super) written: u64,
    has_closed: bool,
}

impl Link {
    pub fn plain(socket: TcpStream) -> Self {
        Self {
            socket,
            session: None,
            out: None,
            incoming: Vec::new(),
            plain: Vec::new(),
            received: 0,
            allowed: u64::MAX,
            written: 0,
            has_closed: false,
        }
    }

    pub(super) fn secured(socket: TcpStream, session: Records, incoming: Vec<u8>) -> Self {
        Self { session: Some(Box::new(session)), incoming, ..Self::plain(socket) }
    }

    /// Appends the bytes that the client sent. 0: the client sends no more.
    pub async fn read(&mut self, to: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            if let Some(count) = self.try_read(to)? {
                return Ok(count);
            }
            self.socket.readable().await?;
        }
    }

    /// As [`Link::read`], without waiting. `None`: no bytes have arrived yet.
    pub(super) fn try_read(&mut self, to: &mut Vec<u8>) -> io::Result<Option<usize>> {
        let before = to.len();
        to.append(&mut std::mem::take(&mut self.plain));
        self.open(to)?;
        while to.len() == before {
            if self.received > self.allowed {
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
            if self.session.as_ref().is_some_and(|session| session.has_ended()) {
                return Ok(Some(0));
            }
            let from = if self.session.is_some() { &mut self.incoming } else { &mut *to };
            from.reserve(READ);
            match self.socket.try_read_buf(from) {
                Ok(0) => return Ok(Some(0)),
                Ok(count) => self.received += count as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    release(from);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
            self.open(to)?;
        }
        Ok(Some(to.len() - before))
    }

    /// Decrypts the complete records that have arrived.
    fn open(&mut self, to: &mut Vec<u8>) -> io::Result<()> {
        let Some(session) = self.session.as_mut().filter(|_| !self.incoming.is_empty()) else {
            return Ok(());
        };
        let out = self.out.get_or_insert_with(Out::take);
        let opened = session.open(&mut self.incoming, out);
        if let Ok((used, plain)) = opened {
            to.extend_from_slice(&self.incoming[..plain]);
            self.incoming.drain(..used);
            release(&mut self.incoming);
        }
        // What the client is told of an error. It may be gone.
        let told = self.try_flush();
        match opened {
            Ok(_) => told.map(drop),
            Err(failure) => {
                self.has_closed = true;
                Err(io::Error::new(io::ErrorKind::InvalidData, failure))
            }
        }
    }

    /// Buffers bytes, at most [`PIECE`] and the head of an answer between two flushes.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let out = self.out.get_or_insert_with(Out::take);
        match &mut self.session {
            Some(session) => session.send(bytes, out).map_err(io::Error::other),
            None => {
                out.room()[..bytes.len()].copy_from_slice(bytes);
                out.filled(bytes.len());
                Ok(())
            }
        }
    }

    /// Buffers a piece of a ring, at most [`PIECE`] between two flushes. With TLS 1.3 the piece is encrypted straight from the ring, otherwise
    /// it is copied. Success means that the piece was not overwritten meanwhile.
    ///
    /// # Errors
    /// The piece was overwritten. The connection must be closed with [`Link::abort`].
    pub fn put_ring(&mut self, piece: &ChunkRef) -> io::Result<()> {
        let out = self.out.get_or_insert_with(Out::take);
        match &mut self.session {
            Some(records) => match records.session() {
                Some(session) => in_place::seal(session, piece, out),
                None => {
                    let copy = piece.to_vec().map_err(io::Error::other)?;
                    records.send(&copy, out).map_err(io::Error::other)
                }
            },
            None => {
                piece.copy_to(0, &mut out.room()[..piece.size()]).map_err(io::Error::other)?;
                out.filled(piece.size());
                Ok(())
            }
        }
    }

    /// Writes the buffered bytes that the socket takes at once. Returns whether all are written.
    pub fn try_flush(&mut self) -> io::Result<bool> {
        while let Some(out) = &mut self.out {
            if out.is_empty() {
                self.out = None;
                break;
            }
            match self.socket.try_write(out.waiting()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    out.written(count);
                    self.written += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Writes the buffered bytes.
    ///
    /// # Errors
    /// `TimedOut`: the client did not take it within `limit`.
    pub async fn flush(&mut self, limit: Duration) -> io::Result<()> {
        if self.try_flush()? {
            return Ok(());
        }
        let all = async {
            loop {
                self.socket.writable().await?;
                if self.try_flush()? {
                    return Ok(());
                }
            }
        };
        timeout(limit, all).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// Announces the end of the connection to the client, once.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let Some(session) = self.session.as_mut().filter(|_| !self.has_closed) else { return Ok(()) };
        self.has_closed = true;
        session.end(self.out.get_or_insert_with(Out::take)).map_err(io::Error::other)
    }

    /// Closes the connection in order.
    pub async fn close(mut self, limit: Duration) -> io::Result<()> {
        self.end()?;
        self.flush(limit).await?;
        self.socket.shutdown().await
    }

    /// Closes the connection so that the client sees an error. The buffered bytes are dropped.
    pub fn abort(&mut self) {
        self.out = None;
        // If it fails, the client sees a response that is shorter than announced.
        let _ = self.socket.set_zero_linger();
    }
}

/// Frees the memory of an empty buffer, so that a waiting connection has none.
fn release(buffer: &mut Vec<u8>) {
    if buffer.is_empty() {
        *buffer = Vec::new();
    }
}
