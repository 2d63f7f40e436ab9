//! The transport of a connection: a socket of TCP, with or without TLS.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;

use tls13::Handshake;

use super::secure::Secure;

/// A socket that does not block, with or without TLS.
#[derive(Debug)]
pub(crate) enum Transport {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS 1.2 or 1.3.
    Tls(Box<Secure>),
}

impl Transport {
    /// A socket; the client begins with this handshake if there is one.
    pub(crate) fn new(stream: TcpStream, handshake: Option<Handshake>) -> Self {
        match handshake {
            None => Self::Plain(stream),
            Some(handshake) => Self::Tls(Box::new(Secure::new(stream, handshake))),
        }
    }

    /// Whether the connection is made: with TLS, whether the handshake is over.
    pub(crate) fn is_made(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(tls) => tls.is_made(),
        }
    }

    /// Whether there may be more to read although less came than there was room for.
    pub(crate) fn may_have_more(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.may_have_more())
    }

    /// The stream below.
    pub(crate) fn stream(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(tls) => tls.stream(),
        }
    }

    /// Reads what has arrived. 0: the client sends nothing more.
    ///
    /// # Errors
    /// As a read of a socket that does not block; or the client breaks the rules of TLS.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }

    /// Writes some of the pieces. Returns the number of bytes that were taken.
    ///
    /// # Errors
    /// As a write to a socket that does not block.
    pub(crate) fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write_vectored(pieces),
            Self::Tls(tls) => tls.write(pieces),
        }
    }

    /// Writes encrypted bytes that wait.
    ///
    /// # Errors
    /// As a write to a socket that does not block.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) => tls.flush(),
        }
    }

    /// Whether encrypted bytes wait for the socket.
    pub(crate) fn has_waiting(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.has_waiting())
    }

    /// The bytes that wait in it, encrypted or not.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(tls) => tls.memory(),
        }
    }

    /// Ends the stream in order: the client learns that everything was sent.
    pub(crate) fn end(&mut self) {
        if let Self::Tls(tls) = self {
            tls.end();
        }
        let _ = self.stream().shutdown(std::net::Shutdown::Write);
    }

    /// The certificate that the client has shown, in DER; the handshake has checked it.
    pub(crate) fn certificate(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => tls.certificate(),
        }
    }
}
