//! A transport whose bytes go in frames of WebSocket.
//!
//! What is queued for a connection stays where it is: a frame's header goes before the ranges of the log of frames, in the same call.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::outbox::MAX_SLICES;
use super::transport::Transport;
use crate::websocket::{self, End, Reader};

/// The longest frame to a client. Clients may hold a frame back until all of it is there.
const MAX_FRAME_BYTES: usize = 64 << 10;

/// How often a socket is read for bytes that are not only WebSocket's own.
const MAX_READS: usize = 16;

/// Who may connect by WebSocket, and to what.
#[derive(Debug, Clone)]
pub(crate) struct Welcome {
    /// The protocol that clients have to offer.
    pub(crate) protocol: &'static str,
    /// The sites whose pages may connect.
    pub(crate) origins: Arc<[String]>,
}

/// A client has broken the rules, or is refused. The text is for the log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoWebSocket(String);

/// See the module.
#[derive(Debug)]
pub(crate) struct WebSocket {
    below: Transport,
    /// The request so far; none after it.
    request: Option<(Welcome, Vec<u8>)>,
    reader: Reader,
    /// Bytes of its own, which go first: an answer, a header, a pong.
    own: Vec<u8>,
    /// So many bytes of the protocol are missing to the end of the frame that was begun.
    left: usize,
    has_ended: bool,
    has_paused: bool,
}

impl WebSocket {
    pub(crate) fn new(below: Transport, welcome: Welcome) -> Self {
        let request = Some((welcome, Vec::new()));
        let reader = Reader::default();
        Self { below, request, reader, own: Vec::new(), left: 0, has_ended: false, has_paused: false }
    }

    pub(crate) fn below(&self) -> &Transport {
        &self.below
    }

    pub(crate) fn is_made(&self) -> bool {
        self.request.is_none()
    }

    /// Whether there may be more to read although less came than there was room for.
    pub(crate) fn may_have_more(&self) -> bool {
        self.below.may_have_more() || self.reader.end().is_some()
    }

    /// Whether the last read has ended so that others have their turn.
    pub(crate) fn has_paused(&self) -> bool {
        self.has_paused
    }

    /// As [`Transport::read`].
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.has_paused = false;
        let mut raw = 0;
        for _ in 0..MAX_READS {
            match self.reader.end() {
                // What is thrown away need not be right.
                _ if self.has_ended && self.request.is_some() => return self.below.read(buffer),
                Some(End::Fault(_)) if self.has_ended => return self.below.read(buffer),
                Some(End::Fault(fault)) => return Err(refused(fault.to_string())),
                Some(End::Closed(_)) => return Ok(0),
                None => {}
            }
            let count = self.below.read(buffer)?;
            if count == 0 {
                return Ok(0);
            }
            raw += count;
            let count = if self.request.is_some() { self.shake_hands(buffer, count)? } else { count };
            let count = self.reader.read(&mut buffer[..count]);
            // What the socket does not take now is sent with what follows.
            let _ = self.flush();
            if count > 0 {
                return Ok(count);
            }
            if raw >= buffer.len() {
                // Frames without content: the others have their turn.
                break;
            }
        }
        self.has_paused = true;
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Reads on in the request of the client. Returns how many bytes behind it are at the front of the buffer.
    fn shake_hands(&mut self, buffer: &mut [u8], count: usize) -> io::Result<usize> {
        let Some((welcome, request)) = &mut self.request else { return Ok(count) };
        let before = request.len();
        // A client sends nothing behind its request before it has the answer.
        let most = count.min(websocket::MAX_REQUEST_BYTES - before);
        request.extend_from_slice(&buffer[..most]);
        match websocket::answer(request, welcome.protocol, &welcome.origins) {
            Ok(None) => Ok(0),
            Ok(Some((answer, used))) => {
                self.own.extend_from_slice(&answer);
                self.request = None;
                let used = used - before;
                buffer.copy_within(used..count, 0);
                Ok(count - used)
            }
            Err(why) => {
                self.own.extend_from_slice(&why.answer);
                let _ = self.flush();
                Err(refused(why.why))
            }
        }
    }

    /// As [`Transport::write`].
    pub(crate) fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.left == 0 {
            self.flush()?;
            self.left = pieces.iter().map(|piece| piece.len()).sum::<usize>().min(MAX_FRAME_BYTES);
            websocket::header(&mut self.own, self.left);
        }
        let mut slices = [IoSlice::new(&[]); MAX_SLICES + 1];
        let (mut used, mut left) = (1, self.left);
        slices[0] = IoSlice::new(&self.own);
        for (slice, piece) in slices[1..].iter_mut().zip(pieces) {
            let most = piece.len().min(left);
            *slice = IoSlice::new(&piece[..most]);
            (used, left) = (used + 1, left - most);
        }
        let taken = self.below.write(&slices[..used])?;
        let of_own = taken.min(self.own.len());
        self.own.drain(..of_own);
        let taken = taken - of_own;
        self.left -= taken;
        if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// As [`Transport::flush`]. A pong goes between frames.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.drain()?;
        if self.left == 0 && !self.has_ended {
            // Only now: there is one pong at most, however many pings come from a client that reads nothing.
            let own = &mut self.own;
            self.reader.take_ping(|payload| websocket::pong(own, payload));
            self.drain()?;
        }
        self.own = Vec::new();
        self.below.flush()
    }

    fn drain(&mut self) -> io::Result<()> {
        while !self.own.is_empty() {
            match self.below.write(&[IoSlice::new(&self.own)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.own.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// As [`Transport::has_waiting`].
    pub(crate) fn has_waiting(&self) -> bool {
        let has_ping = self.left == 0 && self.reader.has_ping();
        !self.own.is_empty() || has_ping || self.below.has_waiting()
    }

    /// Tells the client that nothing more comes, and why.
    pub(crate) fn end(&mut self) {
        // In the middle of a frame there is no place for it.
        if self.request.is_none() && self.left == 0 && !self.has_ended {
            let code = match self.reader.end() {
                Some(End::Fault(fault)) => Some(fault.code()),
                Some(End::Closed(code)) => code,
                None => Some(1000),
            };
            websocket::close(&mut self.own, code);
        }
        self.has_ended = true;
        let _ = self.flush();
        self.below.end();
    }
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, NoWebSocket(why))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt;

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n\r\n";

    /// The client sends, and all of it is read.
    fn read(web: &mut WebSocket, client: &mut TcpStream, bytes: &[u8]) {
        client.write_all(bytes).expect("room");
        let (mut buffer, mut left) = (vec![0; 64 << 10], bytes.len());
        while left > 0 {
            left -= web.below.stream().peek(&mut buffer).unwrap_or(0);
            let error = web.read(&mut buffer).expect_err("it is nothing of the protocol");
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn a_client_that_pings_and_reads_nothing_takes_no_memory() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        client.set_nodelay(true).expect("a socket");
        let (stream, _) = listener.accept().expect("one has connected");
        stream.set_nonblocking(true).expect("a socket");
        sockopt::set_socket_send_buffer_size(&stream, 4096).expect("a socket");
        sockopt::set_socket_recv_buffer_size(&client, 4096).expect("a socket");
        let welcome = Welcome { protocol: "mqtt", origins: [].into() };
        let mut web = WebSocket::new(Transport::new(stream, None), welcome);
        let ping = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[b'p'; 125]].concat();
        read(&mut web, &mut client, REQUEST);
        assert!(web.is_made());
        let mut has_waited = false;
        for _ in 0..100 {
            while web.own.is_empty() && web.below.write(&[IoSlice::new(&[0; 1024])]).is_ok() {}
            read(&mut web, &mut client, &ping);
            assert!(web.own.len() < 2 * ping.len(), "{} bytes wait", web.own.len());
            has_waited |= web.has_waiting();
        }
        assert!(has_waited);
    }
}
