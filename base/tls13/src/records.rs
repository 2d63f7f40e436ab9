//! The records of a listener's connection of either version: those of TLS 1.3 are sealed here, and those of TLS 1.2 by rustls.

use std::ops::Deref;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncryptError, UnbufferedStatus};

use super::handshake::{Established, Handshake, Side, encode, server_session};
use super::out::Out;
use super::record::{Alert, Content, HEADER, MAX_PLAIN, MAX_SEALED, OVERHEAD};
use super::session::{Failure, Session};

/// The room for a record of any length and what may come with it: a change of keys, an alert.
const RECORD_ROOM: usize = MAX_PLAIN + 4 * OVERHEAD;

/// A record that TLS 1.2 has within a handshake only.
const CHANGE_OF_CIPHERS: [u8; 6] = [20, 3, 3, 0, 1, 1];

/// Why a connection of either version cannot go on.
#[derive(Debug, Clone, thiserror::Error)]
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
pub struct Records {
    kind: Kind,
    /// Why nothing more can be opened.
    broken: Option<Broken>,
}

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
        self.establish(|tls| {
            let kind = match tls {
                Side::Server(tls) if tls.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_2) => {
                    Kind::Old(Old { tls, has_ended: false })
                }
                Side::Server(tls) => Kind::New(Box::new(server_session(*tls)?)),
                Side::Client(_) => return Err(rustls::Error::General("it is the side of a client".into())),
            };
            Ok(Records { kind, broken: None })
        })
    }
}

impl Records {
    /// The connection of TLS 1.3, whose records are sealed from where the bytes are. `None`: it is one of TLS 1.2.
    pub fn session(&mut self) -> Option<&mut Session> {
        match &mut self.kind {
            Kind::New(session) => Some(session),
            Kind::Old(_) => None,
        }
    }

    /// Seals bytes into records behind what waits in `out`, which must have the room.
    ///
    /// # Errors
    /// The keys have sealed as much as they may, and there are no others.
    pub fn send(&mut self, bytes: &[u8], out: &mut Out) -> Result<(), Broken> {
        match &mut self.kind {
            Kind::New(session) => session.send(Content::Data, bytes, out)?,
            Kind::Old(old) => {
                for record in bytes.chunks(MAX_PLAIN) {
                    old.write(out, |tls, room| tls.encrypt(record, room))?;
                }
            }
        }
        Ok(())
    }

    /// Whether the peer has said that it sends nothing more.
    pub fn has_ended(&self) -> bool {
        match &self.kind {
            Kind::New(session) => session.has_ended(),
            Kind::Old(old) => old.has_ended,
        }
    }

    /// Whether the next [`Records::open`] fails.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Opens the whole records at the beginning of `bytes`, whose data is then there instead. Returns the length of these records, and
    /// of their data. `out` must have the room for an answer.
    ///
    /// # Errors
    /// The peer broke the rules, which `out` tells it, or gave up. Data before that is returned first ([`Records::is_broken`]), and
    /// nothing can be opened after it.
    pub fn open(&mut self, bytes: &mut [u8], out: &mut Out) -> Result<(usize, usize), Broken> {
        let (mut used, mut plain) = (0, 0);
        while self.broken.is_none() {
            let opened = match &mut self.kind {
                Kind::New(session) => {
                    let opened = session.open(&mut bytes[used..]);
                    opened.map(|found| found.map(|(size, data)| (size, data.len()))).map_err(Broken::from)
                }
                Kind::Old(old) => old.open(&mut bytes[used..], out),
            };
            match opened {
                Ok(Some((size, data))) => {
                    // The data of a record lies where the record was, behind its header.
                    let begin = used + HEADER;
                    bytes.copy_within(begin..begin + data, plain);
                    (used, plain) = (used + size, plain + data);
                }
                Ok(None) => break,
                Err(broken) => self.fail(broken, out),
            }
        }
        match &self.broken {
            Some(broken) if plain == 0 => Err(broken.clone()),
            _ => Ok((used, plain)),
        }
    }

    fn fail(&mut self, broken: Broken, out: &mut Out) {
        match (&mut self.kind, &broken) {
            // Without the alert the connection ends all the same.
            (Kind::New(session), Broken::Session(Failure::Refused(alert))) => drop(session.end(*alert, out)),
            (Kind::New(_), _) => {}
            (Kind::Old(old), _) => old.tell(out),
        }
        self.broken = Some(broken);
    }

    /// Seals the first bytes of the pieces, in order, into one record behind what waits in `out`, if it has the room. Returns how many
    /// were taken.
    ///
    /// # Errors
    /// The keys have sealed as much as they may, and there are no others.
    pub fn seal(&mut self, pieces: &[impl Deref<Target = [u8]>], out: &mut Out) -> Result<usize, Broken> {
        let mut left = Left { pieces: pieces.iter(), current: &[] };
        if out.room().len() < RECORD_ROOM || !left.has_more() {
            return Ok(0);
        }
        Ok(match &mut self.kind {
            Kind::New(session) => seal(session, &mut left, out)?,
            Kind::Old(old) => old.seal(&mut left, out)?,
        })
    }

    /// Tells the peer that nothing more follows.
    ///
    /// # Errors
    /// The record cannot be sealed.
    pub fn end(&mut self, out: &mut Out) -> Result<(), Broken> {
        match &mut self.kind {
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

/// Seals one record.
fn seal<P: Deref<Target = [u8]>>(
    session: &mut Session,
    left: &mut Left<'_, P>,
    out: &mut Out,
) -> Result<usize, rustls::Error> {
    if let Some((record, _)) = left.current.split_at_checked(MAX_PLAIN) {
        // A whole one, encrypted from where it is.
        session.send(Content::Data, record, out)?;
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
///
/// rustls is shown one whole record at a time, and none of the handshake: it keeps parts of such messages, and panics if the next call, be it for sending,
/// does not show the same bytes again. A renegotiation ends the connection.
struct Old {
    tls: Box<UnbufferedServerConnection>,
    has_ended: bool,
}

impl Old {
    /// As [`Session::open`], and where the data is too, behind the room of a header. Returns its length.
    fn open(&mut self, bytes: &mut [u8], out: &mut Out) -> Result<Option<(usize, usize)>, Broken> {
        if self.has_ended {
            return Ok(None);
        }
        let whole = whole(bytes);
        if whole.is_err() {
            // rustls tells the peer if it is shown a record that it refuses and does not keep.
            let _ = self.tls.process_tls_records(&mut CHANGE_OF_CIPHERS.clone());
        }
        let Some(size) = whole? else { return Ok(None) };
        let (mut used, mut plain) = (0, Vec::new());
        while used < size {
            let UnbufferedStatus { mut discard, state } =
                self.tls.process_tls_records(&mut bytes[used..size]);
            match state? {
                ConnectionState::ReadTraffic(mut records) => {
                    while let Some(record) = records.next_record() {
                        let record = record?;
                        plain.extend_from_slice(record.payload);
                        discard += record.discard;
                    }
                }
                ConnectionState::EncodeTlsData(record) => put(record, out)?,
                ConnectionState::TransmitTlsData(waiting) => waiting.done(),
                ConnectionState::PeerClosed => self.has_ended = true,
                ConnectionState::WriteTraffic(_) if discard > 0 => {}
                _ => return Err(rustls::Error::General("nothing can be received any more".into()).into()),
            }
            used += discard;
        }
        // Sealed bytes are more than their data.
        bytes[HEADER..HEADER + plain.len()].copy_from_slice(&plain);
        Ok(Some((size, plain.len())))
    }

    /// Tells the peer what rustls says of its fault.
    fn tell(&mut self, out: &mut Out) {
        if let Ok(ConnectionState::EncodeTlsData(record)) = self.tls.process_tls_records(&mut []).state {
            // Without the alert the connection ends all the same.
            let _ = put(record, out);
        }
    }

    /// Seals one record.
    fn seal<P: Deref<Target = [u8]>>(
        &mut self,
        left: &mut Left<'_, P>,
        out: &mut Out,
    ) -> Result<usize, rustls::Error> {
        let mut gathered = Vec::new();
        let record = match left.current.split_at_checked(MAX_PLAIN) {
            Some((record, _)) => record,
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

/// The length of the record at the front, header included, if it is whole.
fn whole(bytes: &[u8]) -> Result<Option<usize>, Failure> {
    let Some(&[kind, _, _, high, low]) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let size = usize::from(u16::from_be_bytes([high, low]));
    if (kind != Content::Data as u8 && kind != Content::Alert as u8) || size > MAX_SEALED {
        return Err(Alert::UnexpectedMessage.into());
    }
    Ok(Some(HEADER + size).filter(|whole| *whole <= bytes.len()))
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
