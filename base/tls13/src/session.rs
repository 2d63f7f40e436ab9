//! TLS 1.3 after its handshake, without I/O: records of data, changes of keys, alerts.
//!
//! rustls makes the handshake and the keys. rustls also copies the bytes that it encrypts, so records are sealed here: from
//! where the bytes are, into the buffer of a socket.

use aws_lc_rs::error::Unspecified;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;

use super::out::Out;
use super::record::{Alert, Content, HEADER, Keys, MAX_PLAIN, MAX_SEALED};

/// Records without data that a peer may send one after the other: each costs work, and none is useful more than once.
const MAX_IDLE_RECORDS: u32 = 32;

/// The longest message of a handshake after the handshake: a ticket, whose length has two bytes in several places.
const MAX_MESSAGE: usize = 128 << 10;

/// The bytes before a message of the handshake: its type and its length.
const MESSAGE_HEADER: usize = 4;

const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
const USER_CANCELED: u8 = 90;

/// Why a connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The peer is told why ([`Session::end`]).
    #[error("the peer broke the rules of TLS ({0:?})")]
    Refused(Alert),
    /// The peer said that it cannot go on: the number of its alert (RFC 8446, 6).
    #[error("the peer ended the connection with the alert {0}")]
    Peer(u8),
}

impl From<Alert> for Failure {
    fn from(alert: Alert) -> Self {
        Self::Refused(alert)
    }
}

/// The derivation of the keys that follow the current ones, for both directions. Each call goes one step on.
pub trait Secrets: Send {
    /// The next keys for sending.
    ///
    /// # Errors
    /// They cannot be derived.
    fn next_sending(&mut self) -> Result<Keys, rustls::Error>;
    /// The next keys for receiving.
    ///
    /// # Errors
    /// They cannot be derived.
    fn next_receiving(&mut self) -> Result<Keys, rustls::Error>;
    /// Keeps a ticket of the server, the body of its message, for a later connection. Without a use for tickets: nothing.
    ///
    /// # Errors
    /// The bytes are no ticket.
    fn keep_ticket(&mut self, _: &[u8]) -> Result<(), rustls::Error> {
        Ok(())
    }
}

impl Secrets for KernelConnection<ServerConnectionData> {
    fn next_sending(&mut self) -> Result<Keys, rustls::Error> {
        let (sequence, secrets) = self.update_tx_secret()?;
        Keys::new(sequence, secrets)
    }

    fn next_receiving(&mut self) -> Result<Keys, rustls::Error> {
        let (sequence, secrets) = self.update_rx_secret()?;
        Keys::new(sequence, secrets)
    }
}

impl Secrets for KernelConnection<ClientConnectionData> {
    fn next_sending(&mut self) -> Result<Keys, rustls::Error> {
        let (sequence, secrets) = self.update_tx_secret()?;
        Keys::new(sequence, secrets)
    }

    fn next_receiving(&mut self) -> Result<Keys, rustls::Error> {
        let (sequence, secrets) = self.update_rx_secret()?;
        Keys::new(sequence, secrets)
    }

    fn keep_ticket(&mut self, body: &[u8]) -> Result<(), rustls::Error> {
        self.handle_new_session_ticket(body)
    }
}

/// The keys and the rules of a connection whose handshake is over.
pub struct Session {
    secrets: Box<dyn Secrets>,
    sending: Keys,
    receiving: Keys,
    /// The records that one key may seal.
    limit: u64,
    /// The peer is a server, which may send tickets.
    takes_tickets: bool,
    /// The beginning of a message of the handshake.
    message: Vec<u8>,
    /// The peer asked for new keys of this direction too.
    owes_update: bool,
    idle_records: u32,
    has_ended: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sent, received) = (self.sending.sequence(), self.receiving.sequence());
        f.debug_struct("Session").field("sent", &sent).field("received", &received).finish_non_exhaustive()
    }
}

impl Session {
    /// A connection with these keys, of which each may seal `limit` records. `takes_tickets`: the peer is a server.
    pub fn new(
        secrets: Box<dyn Secrets>,
        sending: Keys,
        receiving: Keys,
        limit: u64,
        takes_tickets: bool,
    ) -> Self {
        Self {
            secrets,
            sending,
            receiving,
            // The change of keys is a record too.
            limit: limit.saturating_sub(1).max(1),
            takes_tickets,
            message: Vec::new(),
            owes_update: false,
            idle_records: 0,
            has_ended: false,
        }
    }

    /// Lowers the number of records that one key may seal, for tests of changes of keys.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit.max(1);
    }

    /// Whether the peer has said that it sends nothing more.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Seals bytes into records behind what waits in `out`, which must have the room.
    ///
    /// # Errors
    /// The next keys cannot be derived.
    pub fn send(&mut self, content: Content, bytes: &[u8], out: &mut Out) -> Result<(), rustls::Error> {
        for part in bytes.chunks(MAX_PLAIN) {
            self.change_if_due(out)?;
            self.seal(content, part, out)?;
        }
        Ok(())
    }

    /// Seals one record of data behind what waits in `out`, which must have the room for a whole one: `fill` writes the data into
    /// at most [`MAX_PLAIN`] bytes of it and returns how much it wrote.
    ///
    /// # Errors
    /// The next keys cannot be derived.
    pub fn send_filled(
        &mut self,
        out: &mut Out,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<(), rustls::Error> {
        self.change_if_due(out)?;
        let room = out.room();
        let size = fill(&mut room[HEADER..HEADER + MAX_PLAIN]);
        let sealed = self.sending.seal_in_place(Content::Data, size, room);
        out.filled(sealed.map_err(|Unspecified| rustls::Error::EncryptError)?);
        Ok(())
    }

    fn seal(&mut self, content: Content, part: &[u8], out: &mut Out) -> Result<(), rustls::Error> {
        let sealed = self.sending.seal(content, part, out.room());
        out.filled(sealed.map_err(|Unspecified| rustls::Error::EncryptError)?);
        Ok(())
    }

    /// Changes the keys of this direction, if the peer asked for it or they have sealed enough.
    fn change_if_due(&mut self, out: &mut Out) -> Result<(), rustls::Error> {
        if self.owes_update || self.sending.sequence() >= self.limit {
            self.seal(Content::Handshake, &[KEY_UPDATE, 0, 0, 1, 0], out)?;
            self.sending = self.secrets.next_sending()?;
            self.owes_update = false;
        }
        Ok(())
    }

    /// Tells the peer that the connection ends, and why.
    ///
    /// # Errors
    /// The record cannot be sealed.
    pub fn end(&mut self, alert: Alert, out: &mut Out) -> Result<(), rustls::Error> {
        let level = if alert == Alert::CloseNotify { 1 } else { 2 };
        self.seal(Content::Alert, &[level, alert as u8], out)
    }

    /// Opens the whole records at the beginning of `bytes`, and appends their data to `plain`. Returns the length of these records.
    ///
    /// # Errors
    /// The peer broke the rules, or gave up.
    pub fn receive(&mut self, bytes: &mut [u8], plain: &mut Vec<u8>) -> Result<usize, Failure> {
        let mut used = 0;
        while let Some((size, data)) = self.open(&mut bytes[used..])? {
            plain.extend_from_slice(data);
            used += size;
        }
        Ok(used)
    }

    /// Opens the record at the beginning of `bytes` in place. Returns its length, and its data, which is empty for a record
    /// without any. None: the record is not whole yet, or the peer sends nothing more.
    ///
    /// # Errors
    /// The peer broke the rules, or gave up. Nothing can be opened after that.
    pub fn open<'a>(&mut self, bytes: &'a mut [u8]) -> Result<Option<(usize, &'a [u8])>, Failure> {
        let Some(&mut [kind, _, _, high, low]) = bytes.first_chunk_mut::<HEADER>() else { return Ok(None) };
        if self.has_ended {
            return Ok(None);
        }
        let size = usize::from(u16::from_be_bytes([high, low]));
        if kind != Content::Data as u8 {
            return Err(Alert::UnexpectedMessage.into());
        }
        if size > MAX_SEALED {
            return Err(Alert::RecordOverflow.into());
        }
        let Some(sealed) = bytes.get_mut(HEADER..HEADER + size) else { return Ok(None) };
        let (content, text) = self.receiving.open(sealed)?;
        if content == Content::Data as u8 && !text.is_empty() && self.message.is_empty() {
            self.idle_records = 0;
            return Ok(Some((HEADER + size, text)));
        }
        self.take(content, text)?;
        Ok(Some((HEADER + size, &[])))
    }

    /// Handles a record without data.
    fn take(&mut self, content: u8, text: &[u8]) -> Result<(), Failure> {
        self.idle_records += 1;
        if self.idle_records > MAX_IDLE_RECORDS {
            return Err(Alert::UnexpectedMessage.into());
        }
        match (content, text) {
            (22, [_, ..]) => self.take_handshake(text),
            // Nothing comes between the parts of a message.
            _ if !self.message.is_empty() => Err(Alert::UnexpectedMessage.into()),
            (23, _) => Ok(()),
            (21, [_, 0]) => {
                self.has_ended = true;
                Ok(())
            }
            (21, [_, USER_CANCELED]) => Ok(()),
            (21, [_, alert]) => Err(Failure::Peer(*alert)),
            (21, _) => Err(Alert::DecodeError.into()),
            _ => Err(Alert::UnexpectedMessage.into()),
        }
    }

    /// Handles messages of the handshake, which several records may carry, or several of which one record carries.
    fn take_handshake(&mut self, text: &[u8]) -> Result<(), Failure> {
        self.message.extend_from_slice(text);
        let mut message = std::mem::take(&mut self.message);
        let mut at = 0;
        while let Some(&[kind, high, middle, low]) = message[at..].first_chunk::<MESSAGE_HEADER>() {
            let size = u32::from_be_bytes([0, high, middle, low]) as usize;
            if size > MAX_MESSAGE {
                return Err(Alert::DecodeError.into());
            }
            // Before it is whole: a message that may not come does not wait for its end.
            let may_come = match kind {
                KEY_UPDATE => size == 1,
                NEW_SESSION_TICKET => self.takes_tickets,
                _ => false,
            };
            if !may_come {
                return Err(Alert::UnexpectedMessage.into());
            }
            let end = at + MESSAGE_HEADER + size;
            let Some(body) = message.get(at + MESSAGE_HEADER..end) else { break };
            match (kind, body) {
                // Nothing follows under the old keys.
                (KEY_UPDATE, [asks]) if end == message.len() => self.peer_updates(*asks)?,
                (NEW_SESSION_TICKET, _) => self.secrets.keep_ticket(body).map_err(|_| Alert::DecodeError)?,
                _ => return Err(Alert::UnexpectedMessage.into()),
            }
            at = end;
        }
        message.drain(..at);
        if !message.is_empty() {
            self.message = message;
        }
        Ok(())
    }

    fn peer_updates(&mut self, asks: u8) -> Result<(), Failure> {
        if asks > 1 {
            return Err(Alert::IllegalParameter.into());
        }
        self.receiving = self.secrets.next_receiving().map_err(|_| Alert::InternalError)?;
        self.owes_update |= asks == 1;
        Ok(())
    }
}
