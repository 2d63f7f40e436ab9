//! The handshake of TLS, by rustls, for either side and without I/O.
//!
//! ```text
//!   received bytes ──▶ take ──▶ advance ──▶ waiting ──▶ to be written
//!                                  └ done ──▶ finish ──▶ Session, and what followed the handshake
//! ```
//!
//! rustls gets one record after the other, so that it opens none that follows the handshake.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{ClientConfig, ExtractedSecrets, ServerConfig, SupportedCipherSuite};

use super::record::{HEADER, Keys, MAX_SEALED};
use super::session::{Secrets, Session};

/// The bytes of unfinished messages that a peer may send. rustls refuses messages of more than 64 KiB.
const MAX_INCOMING: usize = 96 << 10;

/// The most steps after a failure: the parts of an answer that was begun, and the alert.
const MAX_LAST_STEPS: usize = 8;

pub(super) enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// The work that follows a step.
enum Next {
    Step,
    Read,
}

/// A handshake with what it has read and not used, and what is not written yet.
pub struct Handshake {
    tls: Side,
    incoming: Vec<u8>,
    /// How much of it rustls has seen: whole records.
    shown: usize,
    outgoing: Vec<u8>,
    /// Why the handshake cannot be completed.
    failed: Option<rustls::Error>,
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshake").field("failed", &self.failed).finish_non_exhaustive()
    }
}

/// A connection after its handshake.
#[derive(Debug)]
pub struct Established<S = Session> {
    /// Its keys.
    pub session: S,
    /// The bytes that were received behind the handshake: the beginning of the records to open.
    pub rest: Vec<u8>,
    /// The protocol that both ends agreed on (ALPN).
    pub protocol: Option<Vec<u8>>,
    /// The verified certificate of the peer (DER).
    pub certificate: Option<Arc<[u8]>>,
}

impl Handshake {
    /// The side of the server.
    ///
    /// # Errors
    /// The configuration does not allow TLS 1.3 with keys that are handed out.
    pub fn accept(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self::of(Side::Server(Box::new(UnbufferedServerConnection::new(config)?))))
    }

    /// The side of the client, which expects a certificate for this name.
    ///
    /// # Errors
    /// As [`Handshake::accept`].
    pub fn connect(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, rustls::Error> {
        Ok(Self::of(Side::Client(Box::new(UnbufferedClientConnection::new(config, name)?))))
    }

    fn of(tls: Side) -> Self {
        Self { tls, incoming: Vec::new(), shown: 0, outgoing: Vec::new(), failed: None }
    }

    /// Takes received bytes.
    pub fn take(&mut self, bytes: &[u8]) {
        self.incoming.extend_from_slice(bytes);
    }

    /// The bytes to write.
    pub fn waiting(&self) -> &[u8] {
        &self.outgoing
    }

    /// Notes that the first `count` bytes to write were written.
    pub fn written(&mut self, count: usize) {
        self.outgoing.drain(..count);
    }

    /// The bytes that its buffers take.
    pub fn memory(&self) -> usize {
        self.incoming.capacity() + self.outgoing.capacity()
    }

    /// Goes on as far as possible with what was received. True if the handshake is complete: [`Handshake::finish`] follows once
    /// nothing waits to be written.
    ///
    /// # Errors
    /// The handshake failed. An alert that waits to be written tells the peer why.
    pub fn advance(&mut self) -> Result<bool, rustls::Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        loop {
            match self.step() {
                Ok(Next::Step) => {}
                Err(error) => return Err(self.fail(error)),
                Ok(Next::Read) if !self.is_handshaking() && self.shown > 0 => {
                    return Err(rustls::Error::General("its handshake goes on behind the end".into()));
                }
                Ok(Next::Read) if !self.is_handshaking() => return Ok(true),
                Ok(Next::Read) if self.show_next() => {}
                Ok(Next::Read) if self.incoming.len() >= MAX_INCOMING => {
                    return Err(rustls::Error::General("its handshake is too long".into()));
                }
                Ok(Next::Read) => return Ok(false),
            }
        }
    }

    /// Gets what rustls has to send before the end: the alert for the peer.
    fn fail(&mut self, error: rustls::Error) -> rustls::Error {
        use rustls::Error;
        let steps = match error {
            Error::AlertReceived(_) => 0,
            // The alert is all there is, and rustls must not look at a record a second time that is none.
            Error::InvalidMessage(_)
            | Error::DecryptError
            | Error::PeerSentOversizedRecord
            | Error::PeerMisbehaved(_) => 1,
            _ => MAX_LAST_STEPS,
        };
        for _ in 0..steps {
            if !matches!(self.step(), Ok(Next::Step)) {
                break;
            }
        }
        self.failed.get_or_insert(error).clone()
    }

    fn is_handshaking(&self) -> bool {
        match &self.tls {
            Side::Server(tls) => tls.is_handshaking(),
            Side::Client(tls) => tls.is_handshaking(),
        }
    }

    /// Shows rustls one more record. False if none is whole.
    fn show_next(&mut self) -> bool {
        let rest = &self.incoming[self.shown..];
        let Some(&[kind, major, _, high, low]) = rest.first_chunk::<HEADER>() else {
            // A peer that speaks something else may say it in few bytes.
            let foreign = self.shown == 0 && rest.first().is_some_and(|kind| !(20..=23).contains(kind));
            self.shown += if foreign { rest.len() } else { 0 };
            return foreign;
        };
        let size = HEADER + usize::from(u16::from_be_bytes([high, low]));
        let is_record = (20..=23).contains(&kind) && major == 3 && size <= HEADER + MAX_SEALED;
        if is_record && size > rest.len() {
            return false;
        }
        // rustls says what is wrong with anything else.
        self.shown += if is_record { size } else { rest.len() };
        true
    }

    fn step(&mut self) -> Result<Next, rustls::Error> {
        let (bytes, out) = (&mut self.incoming[..self.shown], &mut self.outgoing);
        let (discard, next) = match &mut self.tls {
            Side::Server(tls) => after(tls.process_tls_records(bytes), out),
            Side::Client(tls) => after(tls.process_tls_records(bytes), out),
        };
        self.incoming.drain(..discard);
        self.shown -= discard;
        next
    }

    /// The connection, once [`Handshake::advance`] was true.
    ///
    /// # Errors
    /// The handshake is not complete, or its keys are not of TLS 1.3.
    pub fn finish(self) -> Result<Established, rustls::Error> {
        self.establish(|tls| match tls {
            Side::Server(tls) => server_session(*tls),
            Side::Client(tls) => {
                let (secrets, kernel) = tls.dangerous_into_kernel_connection()?;
                session(secrets, kernel.negotiated_cipher_suite(), Box::new(kernel), true)
            }
        })
    }

    pub(super) fn establish<S>(
        self,
        session: impl FnOnce(Side) -> Result<S, rustls::Error>,
    ) -> Result<Established<S>, rustls::Error> {
        let (protocol, certificate) = match &self.tls {
            Side::Server(tls) => (tls.alpn_protocol(), tls.peer_certificates()),
            Side::Client(tls) => (tls.alpn_protocol(), tls.peer_certificates()),
        };
        let protocol = protocol.map(<[u8]>::to_vec);
        let certificate = certificate.and_then(|chain| chain.first()).map(|der| Arc::from(der.as_ref()));
        let session = session(self.tls)?;
        Ok(Established { session, rest: self.incoming, protocol, certificate })
    }
}

pub(super) fn server_session(tls: UnbufferedServerConnection) -> Result<Session, rustls::Error> {
    let (secrets, kernel) = tls.dangerous_into_kernel_connection()?;
    session(secrets, kernel.negotiated_cipher_suite(), Box::new(kernel), false)
}

fn session(
    secrets: ExtractedSecrets,
    suite: SupportedCipherSuite,
    next: Box<dyn Secrets>,
    takes_tickets: bool,
) -> Result<Session, rustls::Error> {
    let Some(suite) = suite.tls13() else {
        return Err(rustls::Error::General("records of TLS 1.2 are not sealed here".into()));
    };
    let keys = |(sequence, secrets)| Keys::new(sequence, secrets);
    let (sending, receiving) = (keys(secrets.tx)?, keys(secrets.rx)?);
    Ok(Session::new(next, sending, receiving, suite.common.confidentiality_limit, takes_tickets))
}

/// Does what rustls asks for. Returns how many bytes it has used, and what comes next.
fn after<D>(status: UnbufferedStatus<'_, '_, D>, out: &mut Vec<u8>) -> (usize, Result<Next, rustls::Error>) {
    let UnbufferedStatus { discard, state } = status;
    let next = match state {
        Ok(ConnectionState::EncodeTlsData(record)) => encode(record, out).map(|()| Next::Step),
        // The bytes are in `out`, in order before whatever comes later.
        Ok(ConnectionState::TransmitTlsData(waiting)) => {
            waiting.done();
            Ok(Next::Step)
        }
        Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => Ok(Next::Read),
        Ok(_) => Err(rustls::Error::General("it ended within the handshake".into())),
        Err(error) => Err(error),
    };
    (discard, next)
}

pub(super) fn encode<D>(mut record: EncodeTlsData<'_, D>, to: &mut Vec<u8>) -> Result<(), rustls::Error> {
    let refused = |error: EncodeError| rustls::Error::General(error.to_string());
    let at = to.len();
    let size = match record.encode(&mut []) {
        Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => required_size,
        other => return other.map(drop).map_err(refused),
    };
    to.resize(at + size, 0);
    record.encode(&mut to[at..]).map(drop).map_err(refused)
}
