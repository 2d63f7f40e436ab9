//! The records of a listener's connection of either version: those of TLS 1.3 are sealed here, and those of TLS 1.2 by rustls.

use std::ops::Deref;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncryptError, UnbufferedStatus};

use super::handshake::{Established, Handshake, Side, encode, server_session};
use super::out::Out;
use super::record::{Alert, Content, HEADER, MAX_PLAIN, OVERHEAD};
use super::session::{Failure, Session};

/// The room for a record of any length and what may come with it: a change of keys, an alert.
const RECORD_ROOM: usize = MAX_PLAIN + 4 * OVERHEAD;

/// Why a connection of either version cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// A connection of TLS 1.3.
    #[error(transparent)]
    Session(#[from] Failure),
    /// rustls says why.
    #[error(transparent)]
    Library(#[from] rustls::Error),
}

/// The keys and the rules of a connection of either version whose handshake is over.
#[derive(Debug)]
pub struct Records(Kind);

enum Kind {
    New(Box<Session>),
    Old(Old),
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::New(_) => "TLS 1.3",
            Self::Old(_) => "TLS 1.2",
        })
    }
}

impl Handshake {
    /// A listener's connection of either version, once [`Handshake::advance`] was true.
    ///
    /// # Errors
    /// The handshake is not complete, or is that of a client.
    pub fn finish_any(self) -> Result<Established<Records>, rustls::Error> {
        self.establish(|tls| match tls {
            Side::Server(tls) if tls.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_2) => {
                Ok(Records(Kind::Old(Old { tls, has_ended: false })))
            }
            Side::Server(tls) => Ok(Records(Kind::New(Box::new(server_session(*tls)?)))),
            Side::Client(_) => Err(rustls::Error::General("it is the side of a client".into())),
        })
    }
}

impl Records {
    /// Whether the peer has said that it sends nothing more.
    pub fn has_ended(&self) -> bool {
        match &self.0 {
            Kind::New(session) => session.has_ended(),
            Kind::Old(old) => old.has_ended,
        }
    }

    /// Opens the whole records at the beginning of `bytes`, whose data is then there instead. Returns the length of these records, and
    /// of their data. `out` must have the room for an answer.
    ///
    /// # Errors
    /// The peer broke the rules, which `out` tells it, or gave up. Nothing can be opened after that.
    pub fn open(&mut self, bytes: &mut [u8], out: &mut Out) -> Result<(usize, usize), Broken> {
        match &mut self.0 {
            Kind::New(session) => open(session, bytes).map_err(|failure| {
                if let Failure::Refused(alert) = failure {
                    // Without the alert the connection ends all the same.
                    let _ = session.end(alert, out);
                }
                failure.into()
            }),
            Kind::Old(old) => Ok(old.open(bytes, out)?),
        }
    }

    /// Seals pieces, in order, behind what waits in `out`, until there is no room for more. Returns how many of their bytes were taken.
    ///
    /// # Errors
    /// The keys have sealed as much as they may, and there are no others.
    pub fn seal(&mut self, pieces: &[impl Deref<Target = [u8]>], out: &mut Out) -> Result<usize, Broken> {
        let mut left = Left { pieces: pieces.iter(), current: &[] };
        let mut taken = 0;
        while out.room().len() >= RECORD_ROOM && left.has_more() {
            taken += match &mut self.0 {
                Kind::New(session) => seal(session, &mut left, out)?,
                Kind::Old(old) => old.seal(&mut left, out)?,
            };
        }
        Ok(taken)
    }

    /// Tells the peer that nothing more follows.
    ///
    /// # Errors
    /// The record cannot be sealed.
    pub fn end(&mut self, out: &mut Out) -> Result<(), Broken> {
        match &mut self.0 {
            Kind::New(session) => session.end(Alert::CloseNotify, out)?,
            Kind::Old(old) => old.end(out)?,
        }
        Ok(())
    }
}

/// The bytes that are not sealed yet.
struct Left<'a, P> {
    pieces: std::slice::Iter<'a, P>,
    current: &'a [u8],
}

impl<P: Deref<Target = [u8]>> Left<'_, P> {
    fn has_more(&mut self) -> bool {
        while self.current.is_empty() {
            let Some(next) = self.pieces.next() else { return false };
            self.current = next;
        }
        true
    }

    /// Copies the next bytes, as many as there are and as fit. Returns how many.
    fn gather(&mut self, room: &mut [u8]) -> usize {
        let mut count = 0;
        while count < room.len() && self.has_more() {
            let (now, later) = self.current.split_at(self.current.len().min(room.len() - count));
            room[count..count + now.len()].copy_from_slice(now);
            (self.current, count) = (later, count + now.len());
        }
        count
    }
}

fn open(session: &mut Session, bytes: &mut [u8]) -> Result<(usize, usize), Failure> {
    let (mut used, mut plain) = (0, 0);
    while let Some((size, data)) = session.open(&mut bytes[used..])? {
        // It was opened where it was.
        let (begin, len) = (used + HEADER, data.len());
        bytes.copy_within(begin..begin + len, plain);
        (used, plain) = (used + size, plain + len);
    }
    Ok((used, plain))
}

/// Seals one record.
fn seal<P: Deref<Target = [u8]>>(
    session: &mut Session,
    left: &mut Left<'_, P>,
    out: &mut Out,
) -> Result<usize, rustls::Error> {
    if let Some((record, later)) = left.current.split_at_checked(MAX_PLAIN) {
        // A whole one, encrypted from where it is.
        session.send(Content::Data, record, out)?;
        left.current = later;
        return Ok(MAX_PLAIN);
    }
    let mut count = 0;
    session.send_filled(out, |room| {
        count = left.gather(room);
        count
    })?;
    Ok(count)
}

/// A connection of TLS 1.2.
struct Old {
    tls: Box<UnbufferedServerConnection>,
    has_ended: bool,
}

impl Old {
    fn open(&mut self, bytes: &mut [u8], out: &mut Out) -> Result<(usize, usize), rustls::Error> {
        let (mut used, mut plain) = (0, Vec::new());
        loop {
            let UnbufferedStatus { mut discard, state } = self.tls.process_tls_records(&mut bytes[used..]);
            let goes_on = match state {
                Ok(ConnectionState::ReadTraffic(mut records)) => {
                    while let Some(record) = records.next_record() {
                        let record = record?;
                        plain.extend_from_slice(record.payload);
                        discard += record.discard;
                    }
                    true
                }
                Ok(ConnectionState::EncodeTlsData(record)) => put(record, out).map(|()| true)?,
                Ok(ConnectionState::TransmitTlsData(waiting)) => {
                    waiting.done();
                    true
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.has_ended = true;
                    true
                }
                Ok(_) => false,
                Err(error) => return Err(self.refuse(error, out)),
            };
            used += discard;
            if !goes_on {
                // Sealed bytes are more than their data.
                bytes[..plain.len()].copy_from_slice(&plain);
                return Ok((used, plain.len()));
            }
        }
    }

    /// Tells the peer what rustls says of its fault.
    fn refuse(&mut self, error: rustls::Error, out: &mut Out) -> rustls::Error {
        if let Ok(ConnectionState::EncodeTlsData(record)) = self.tls.process_tls_records(&mut []).state {
            // Without the alert the connection ends all the same.
            let _ = put(record, out);
        }
        error
    }

    /// Seals one record.
    fn seal<P: Deref<Target = [u8]>>(
        &mut self,
        left: &mut Left<'_, P>,
        out: &mut Out,
    ) -> Result<usize, rustls::Error> {
        let mut gathered = Vec::new();
        let record = match left.current.split_at_checked(MAX_PLAIN) {
            Some((record, later)) => {
                left.current = later;
                record
            }
            None => {
                gathered.resize(MAX_PLAIN, 0);
                let count = left.gather(&mut gathered);
                &gathered[..count]
            }
        };
        self.write(out, |tls, room| tls.encrypt(record, room))?;
        Ok(record.len())
    }

    fn end(&mut self, out: &mut Out) -> Result<(), rustls::Error> {
        self.write(out, |tls, room| tls.queue_close_notify(room))
    }

    fn write(
        &mut self,
        out: &mut Out,
        seal: impl FnOnce(&mut Traffic<'_>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<(), rustls::Error> {
        loop {
            match self.tls.process_tls_records(&mut []).state? {
                ConnectionState::EncodeTlsData(record) => put(record, out)?,
                ConnectionState::TransmitTlsData(waiting) => waiting.done(),
                ConnectionState::PeerClosed => self.has_ended = true,
                ConnectionState::WriteTraffic(mut tls) => {
                    let sealed = seal(&mut tls, out.room());
                    out.filled(sealed.map_err(|error| rustls::Error::General(error.to_string()))?);
                    return Ok(());
                }
                _ => return Err(rustls::Error::General("nothing can be sent any more".into())),
            }
        }
    }
}

type Traffic<'a> = rustls::unbuffered::WriteTraffic<'a, rustls::server::ServerConnectionData>;
type Record<'a> = rustls::unbuffered::EncodeTlsData<'a, rustls::server::ServerConnectionData>;

fn put(record: Record<'_>, out: &mut Out) -> Result<(), rustls::Error> {
    let mut bytes = Vec::new();
    encode(record, &mut bytes)?;
    let room = out.room().get_mut(..bytes.len());
    room.ok_or(rustls::Error::EncryptError)?.copy_from_slice(&bytes);
    out.filled(bytes.len());
    Ok(())
}
