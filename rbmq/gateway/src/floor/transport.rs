//! The transport of a connection: a socket of TCP, with or without TLS.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;

use rustls::ServerConnection;

/// A socket that does not block, with or without TLS.
#[derive(Debug)]
pub(crate) enum Transport {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS 1.2 or 1.3.
    Tls(Box<(ServerConnection, TcpStream)>),
}

/// Encrypted bytes that wait for the socket, at most.
const TLS_BUFFER_BYTES: usize = 256 << 10;

/// How often a socket is read for bytes that are not only TLS's own.
const MAX_RECORDS_READS: usize = 16;

impl Transport {
    /// A socket; the client begins a handshake if there is a session.
    pub(crate) fn new(stream: TcpStream, session: Option<ServerConnection>) -> Self {
        match session {
            None => Self::Plain(stream),
            Some(mut session) => {
                session.set_buffer_limit(Some(TLS_BUFFER_BYTES));
                Self::Tls(Box::new((session, stream)))
            }
        }
    }

    /// Whether the connection is made: with TLS, whether the handshake is over.
    pub(crate) fn is_made(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(tls) => !tls.0.is_handshaking(),
        }
    }

    /// Whether there may be more to read although less came than there was room for.
    pub(crate) fn may_have_more(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The stream below.
    pub(crate) fn stream(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(tls) => &tls.1,
        }
    }

    /// Reads what has arrived. 0: the client sends nothing more.
    ///
    /// # Errors
    /// As a read of a socket that does not block; or the client breaks the rules of TLS.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self::Tls(tls) = self else { return self.stream_mut().read(buffer) };
        let (session, stream) = tls.as_mut();
        for _ in 0..MAX_RECORDS_READS {
            match session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A client that leaves without a word of TLS is one that leaves.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            if session.read_tls(stream)? == 0 {
                return Ok(0);
            }
            if let Err(error) = session.process_new_packets() {
                // The alert tells the client what is wrong; whether it arrives is its own affair.
                let _ = session.write_tls(stream);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        // Records without content: the others have their turn.
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Writes some of the pieces. Returns the number of bytes that were taken.
    ///
    /// # Errors
    /// As a write to a socket that does not block.
    pub(crate) fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let Self::Tls(tls) = self else { return self.stream_mut().write_vectored(pieces) };
        let (session, _) = tls.as_mut();
        let taken = session.writer().write_vectored(pieces)?;
        match (self.flush(), taken) {
            (Err(error), 0) => Err(error),
            (Err(error), _) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            (Ok(()), 0) => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(taken),
        }
    }

    /// Writes encrypted bytes that wait.
    ///
    /// # Errors
    /// As a write to a socket that does not block.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Self::Tls(tls) = self else { return Ok(()) };
        let (session, stream) = tls.as_mut();
        while session.wants_write() {
            if session.write_tls(stream)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Whether encrypted bytes wait for the socket.
    pub(crate) fn has_waiting(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.0.wants_write())
    }

    /// Ends the stream in order: the client learns that everything was sent.
    pub(crate) fn end(&mut self) {
        if let Self::Tls(tls) = self {
            tls.0.send_close_notify();
            let _ = self.flush();
        }
        let _ = self.stream().shutdown(std::net::Shutdown::Write);
    }

    /// The certificate that the client has shown, in DER; the handshake has checked it.
    pub(crate) fn certificate(&self) -> Option<&[u8]> {
        let Self::Tls(tls) = self else { return None };
        tls.0.peer_certificates()?.first().map(AsRef::as_ref)
    }

    fn stream_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(tls) => &mut tls.1,
        }
    }
}
