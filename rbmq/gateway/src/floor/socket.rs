//! The socket of a connection: a transport, with or without WebSocket above.

use std::io::{self, IoSlice};
use std::net::TcpStream;

use super::transport::Transport;
use super::web_socket::{WebSocket, Welcome};

/// A socket that does not block.
#[derive(Debug)]
pub(crate) enum Socket {
    /// The bytes of the protocol as they are.
    Direct(Transport),
    /// In frames of WebSocket.
    Web(Box<WebSocket>),
}

impl Socket {
    /// A socket; the client begins with a request for WebSocket if there is a welcome for it.
    pub(crate) fn new(transport: Transport, welcome: Option<&Welcome>) -> Self {
        match welcome {
            None => Self::Direct(transport),
            Some(welcome) => Self::Web(Box::new(WebSocket::new(transport, welcome.clone()))),
        }
    }

    /// Whether the connection is made: whether the handshakes of TLS and WebSocket are over.
    pub(crate) fn is_made(&self) -> bool {
        match self {
            Self::Direct(transport) => transport.is_made(),
            Self::Web(web) => web.is_made(),
        }
    }

    /// Whether there may be more to read although less came than there was room for.
    pub(crate) fn may_have_more(&self) -> bool {
        match self {
            Self::Direct(transport) => transport.may_have_more(),
            Self::Web(web) => web.may_have_more(),
        }
    }

    /// Whether the last read has ended without a word of the kernel, which will not tell of the rest.
    pub(crate) fn has_paused(&self) -> bool {
        matches!(self, Self::Web(web) if web.has_paused())
    }

    /// The stream below.
    pub(crate) fn stream(&self) -> &TcpStream {
        self.transport().stream()
    }

    /// Reads what has arrived. 0: the client sends nothing more.
    ///
    /// # Errors
    /// As a read of a socket that does not block; or the client breaks the rules of TLS or WebSocket.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Direct(transport) => transport.read(buffer),
            Self::Web(web) => web.read(buffer),
        }
    }

    /// Writes some of the pieces. Returns the number of bytes that were taken.
    ///
    /// # Errors
    /// As a write to a socket that does not block.
    pub(crate) fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Direct(transport) => transport.write(pieces),
            Self::Web(web) => web.write(pieces),
        }
    }

    /// Writes bytes that wait, encrypted or of WebSocket's own.
    ///
    /// # Errors
    /// As a write to a socket that does not block.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Direct(transport) => transport.flush(),
            Self::Web(web) => web.flush(),
        }
    }

    /// Whether such bytes wait for the socket.
    pub(crate) fn has_waiting(&self) -> bool {
        match self {
            Self::Direct(transport) => transport.has_waiting(),
            Self::Web(web) => web.has_waiting(),
        }
    }

    /// The bytes that wait in it.
    pub(crate) fn memory(&self) -> usize {
        self.transport().memory()
    }

    /// Ends the stream in order: the client learns that everything was sent.
    pub(crate) fn end(&mut self) {
        match self {
            Self::Direct(transport) => transport.end(),
            Self::Web(web) => web.end(),
        }
    }

    /// The certificate that the client has shown, in DER; the handshake has checked it.
    pub(crate) fn certificate(&self) -> Option<&[u8]> {
        self.transport().certificate()
    }

    fn transport(&self) -> &Transport {
        match self {
            Self::Direct(transport) => transport,
            Self::Web(web) => web.below(),
        }
    }
}
