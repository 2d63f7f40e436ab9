//! TLS 1.3 of one connection: its handshake, then its records.
//!
//! ```text
//!   rings, queue ──▶ sealed straight from the ring ──▶ Out (128 KiB) ──▶ socket
//!   socket ──▶ staging buffer ──▶ opened in place ──▶ rings, events
//! ```
//!
//! A connection holds a buffer for sending only while its peer does not read, and for receiving only the part of a record that has
//! arrived. Bytes that were sealed left the queue: their ring is free.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::SendFlags;
use tls13::{Alert, Content, Failure, Handshake, MAX_PLAIN, OVERHEAD, Out, Session};

use super::certificates::{PROTOCOL, Tls};
use super::explain;
use super::receive::{Intake, Progress, Turn};
use super::send::Outgoing;
use super::spares::Spares;
use super::sys::Part;
use crate::contract::Down;

/// Bytes of a handshake that are read at once.
const SHAKE_BYTES: usize = 4 << 10;
/// The most reads of a handshake in one poll.
const SHAKE_READS: usize = 4;
/// The room for a record of any length, a change of keys before it and an alert behind it.
const RECORD_ROOM: usize = MAX_PLAIN + 4 * OVERHEAD;

enum State {
    Handshake(Box<Handshake>),
    Session(Box<Session>),
    /// The handshake has failed.
    Failed,
}

/// TLS of one connection.
pub(super) struct Secure {
    state: State,
    server: bool,
    /// Sealed records that the kernel did not take yet.
    out: Option<Out>,
    /// The beginning of a record that has not arrived completely.
    partial: Vec<u8>,
    /// The verified certificate of the peer.
    certificate: Option<Arc<[u8]>>,
    /// The peer was told that nothing more follows.
    has_closed: bool,
    /// Why a record could not be opened behind others that wait for a poll.
    failed: Option<Down>,
}

/// The handshake of both sides.
impl Secure {
    /// The server's side of a new connection. The error says why there is none.
    pub fn accept(tls: &Tls) -> Result<Self, String> {
        Ok(Self::new(tls.accept()?, true))
    }

    /// The client's side of a connection to this address. The error says why there is none.
    pub fn connect(tls: &Tls, addr: &str) -> Result<Self, String> {
        Ok(Self::new(tls.connect(addr)?, false))
    }

    fn new(handshake: Handshake, server: bool) -> Self {
        let state = State::Handshake(Box::new(handshake));
        let (partial, has_closed) = (Vec::new(), false);
        Self { state, server, out: None, partial, certificate: None, has_closed, failed: None }
    }

    pub fn is_handshaking(&self) -> bool {
        !matches!(self.state, State::Session(_))
    }

    /// Whether the handshake waits for the kernel to take bytes.
    pub fn has_to_write(&self) -> bool {
        matches!(&self.state, State::Handshake(own) if !own.waiting().is_empty())
    }

    pub fn certificate(&self) -> Option<Arc<[u8]>> {
        self.certificate.clone()
    }

    /// Goes on with the handshake. True once it is complete. The error names the fault, and the peer was told its part of it.
    pub fn shake(&mut self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<bool, String> {
        for reads in 0.. {
            let State::Handshake(own) = &mut self.state else { return Ok(true) };
            let advanced = own.advance();
            let written = write_handshake(own, fd);
            if advanced.map_err(|error| explain::handshake(&error, self.server))? {
                return if written? { self.establish(fd).map(|()| true) } else { Ok(false) };
            }
            // The bytes that were read are handled before another poll, which comes only with more of them.
            if !written? || reads == SHAKE_READS {
                return Ok(false);
            }
            let size = SHAKE_BYTES.min(buffer.len());
            match rustix::io::read(fd, &mut buffer[..size]) {
                Ok(0) => return Err(CLOSED.into()),
                Ok(count) => own.take(&buffer[..count]),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(format!("{CLOSED} ({error})")),
            }
        }
        Ok(false)
    }

    fn establish(&mut self, fd: BorrowedFd<'_>) -> Result<(), String> {
        let State::Handshake(own) = std::mem::replace(&mut self.state, State::Failed) else { return Ok(()) };
        let mut established = own.finish().map_err(|error| error.to_string())?;
        // rustls refuses a peer that names other protocols, and takes none at all for any.
        if established.protocol.as_deref() != Some(PROTOCOL) {
            let mut out = Out::take();
            // The peer may be gone; the connection ends in any case.
            let _ = established
                .session
                .end(Alert::NoApplicationProtocol, &mut out)
                .map(|()| write(fd, out.waiting()));
            return Err(explain::WRONG_PROTOCOL.into());
        }
        self.partial = established.rest;
        self.certificate = established.certificate;
        self.state = State::Session(Box::new(established.session));
        Ok(())
    }
}

const CLOSED: &str = "the peer closed the connection within the handshake: it may be a listener without TLS, or not a RocketBufs peer";

/// Writes the pending bytes of the handshake. False if the kernel takes no more now.
fn write_handshake(own: &mut Handshake, fd: BorrowedFd<'_>) -> Result<bool, String> {
    while !own.waiting().is_empty() {
        match write(fd, own.waiting()) {
            Ok(0) => return Ok(false),
            Ok(count) => own.written(count),
            Err(error) => return Err(format!("{CLOSED} ({error})")),
        }
    }
    Ok(true)
}

/// Writes bytes, and returns how many the kernel took; 0 if it takes none now.
fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match rustix::net::send(fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            sent => return sent.map_err(io::Error::from),
        }
    }
}

/// Sending.
impl Secure {
    /// Seals and sends the queue until nothing is left or the kernel takes no more. True if nothing is left.
    pub fn flush(
        &mut self,
        queue: &mut Outgoing,
        fd: BorrowedFd<'_>,
        spares: &mut Spares,
    ) -> io::Result<bool> {
        loop {
            if !self.write_sealed(fd)? {
                queue.block();
                return Ok(false);
            }
            let State::Session(session) = &mut self.state else { return Ok(queue.is_empty()) };
            if queue.is_empty() {
                queue.unblock();
                return Ok(true);
            }
            let out = self.out.get_or_insert_with(Out::take);
            let taken = seal(queue.parts(), session, out).map_err(io::Error::other)?;
            queue.took(taken, spares);
        }
    }

    /// Writes sealed records. False if the kernel takes no more now.
    fn write_sealed(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        while let Some(out) = &mut self.out {
            if out.is_empty() {
                self.out = None;
                break;
            }
            let offered = out.waiting().len();
            let taken = write(fd, out.waiting())?;
            out.written(taken);
            if taken < offered {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tells the peer that nothing more follows. True once the kernel took that.
    pub fn close(&mut self, queue: &mut Outgoing, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let State::Session(session) = &mut self.state else { return Ok(true) };
        if !std::mem::replace(&mut self.has_closed, true) {
            let out = self.out.get_or_insert_with(Out::take);
            session.end(Alert::CloseNotify, out).map_err(io::Error::other)?;
        }
        let all = self.write_sealed(fd)?;
        if !all {
            queue.block();
        }
        Ok(all)
    }
}

/// Seals parts in order until the buffer is full. Returns how many bytes of them it took.
fn seal<'a>(
    mut parts: impl Iterator<Item = Part<'a>>,
    session: &mut Session,
    out: &mut Out,
) -> Result<usize, rustls::Error> {
    let mut current = parts.next();
    let mut taken = 0;
    while let Some(part) = &mut current
        && out.room().len() >= RECORD_ROOM
    {
        if let Some(bytes) = part.stable(MAX_PLAIN) {
            // A whole record, encrypted from where it is.
            session.send(Content::Data, bytes, out)?;
            taken += MAX_PLAIN;
            part.skip(MAX_PLAIN);
        } else {
            session.send_filled(out, |room| {
                let count = gather(&mut current, &mut parts, room);
                taken += count;
                count
            })?;
        }
        while current.as_ref().is_some_and(|part| part.len() == 0) {
            current = parts.next();
        }
    }
    Ok(taken)
}

/// Copies the next bytes of parts, as many as there are and as fit. Returns how many.
fn gather<'a>(
    current: &mut Option<Part<'a>>,
    parts: &mut impl Iterator<Item = Part<'a>>,
    room: &mut [u8],
) -> usize {
    let mut count = 0;
    while let Some(part) = current
        && count < room.len()
    {
        let size = part.len().min(room.len() - count);
        part.copy_to(&mut room[count..count + size]);
        part.skip(size);
        count += size;
        if part.len() == 0 {
            *current = parts.next();
        }
    }
    count
}

/// Receiving.
impl Secure {
    /// Whether nothing more is read: the peer has said that it sends nothing more, or a record could not be opened.
    pub fn has_ended(&self) -> bool {
        self.failed.is_some() || matches!(&self.state, State::Session(session) if session.has_ended())
    }

    /// Opens the records that arrived together with the end of the handshake. A later poll handles them, and then the failure of the record
    /// behind them: what ends a connection takes nothing from what came before, however much arrives at once.
    pub fn take_rest(&mut self, intake: &mut Intake, fd: BorrowedFd<'_>) {
        let mut rest = std::mem::take(&mut self.partial);
        let opened = self.open(&mut rest, fd, |data| {
            intake.carry(data);
            Ok(())
        });
        match opened {
            Ok(used) => {
                rest.drain(..used);
                self.partial = rest;
            }
            Err(down) => self.failed = Some(down),
        }
    }

    /// Reads once from the socket, and opens the whole records. Only while [`Intake::waits`] is false.
    pub fn read(
        &mut self,
        intake: &mut Intake,
        fd: BorrowedFd<'_>,
        staging: &mut [u8],
        turn: &mut Turn<'_>,
    ) -> Result<Progress, Down> {
        if let Some(down) = &self.failed {
            return Err(down.clone());
        }
        if self.has_ended() {
            return Err(intake.end_of_stream());
        }
        let have = self.partial.len();
        let (held, free) = staging.split_at_mut(have);
        let wanted = free.len();
        let count = match rustix::io::read(fd, free) {
            Ok(0) => return Err(Down::Broken(CUT.into())),
            Ok(count) => count,
            Err(Errno::INTR) => return Ok(Progress::Read(0)),
            Err(Errno::AGAIN) => return Ok(Progress::Drained),
            Err(error) => return Err(Down::Broken(io::Error::from(error).to_string())),
        };
        held.copy_from_slice(&self.partial);
        let filled = &mut staging[..have + count];
        let used = self.open(filled, fd, |data| intake.take(data, turn))?;
        self.partial.clear();
        self.partial.extend_from_slice(&filled[used..]);
        if self.partial.is_empty() {
            // A connection that waits has no buffer.
            self.partial = Vec::new();
        }
        if self.has_ended() && !intake.waits() {
            return Err(intake.end_of_stream());
        }
        Ok(if count < wanted { Progress::Drained } else { Progress::Read(count) })
    }

    /// Opens the whole records at the beginning of `bytes`, and returns their length.
    fn open(
        &mut self,
        bytes: &mut [u8],
        fd: BorrowedFd<'_>,
        mut take: impl FnMut(&[u8]) -> Result<(), Down>,
    ) -> Result<usize, Down> {
        let State::Session(session) = &mut self.state else { return Ok(0) };
        let mut used = 0;
        loop {
            match session.open(&mut bytes[used..]) {
                Ok(None) => return Ok(used),
                Ok(Some((size, data))) => {
                    used += size;
                    if !data.is_empty() {
                        take(data)?;
                    }
                }
                Err(failure) => return Err(self.refuse(failure, fd)),
            }
        }
    }

    /// Tells the peer its fault, as far as the kernel takes it at once.
    fn refuse(&mut self, failure: Failure, fd: BorrowedFd<'_>) -> Down {
        match (failure, &mut self.state) {
            (Failure::Peer(alert), _) => Down::Tls(explain::alert_received(alert)),
            (Failure::Refused(alert), State::Session(session)) => {
                let out = self.out.get_or_insert_with(Out::take);
                // The peer may be gone; the connection ends in any case.
                let _ = session.end(alert, out).map(|()| self.write_sealed(fd));
                Down::Tls(format!("{failure}: its bytes were changed on the way, or it is out of step"))
            }
            (failure, _) => Down::Tls(failure.to_string()),
        }
    }
}

const CUT: &str =
    "the stream was cut: it ended without the peer's close_notify, so that bytes may be missing";
