//! TLS of a viewer's connection, in memory that all connections of a thread share.
//!
//! A load generator must need less of the processor than the server that it measures. Arriving bytes are read into one large piece of
//! memory of the thread and decrypted there; a connection keeps only the unfinished record at its end.

use std::path::Path;
use std::sync::Arc;

use rblive_load::AcceptAll;
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, RootCertStore};

use super::fault::Fault;

/// The configuration of all connections. Without `ca`, every certificate is accepted.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub fn config(ca: Option<&Path>, protocol: &[u8]) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = match ca {
        None => {
            let verifier = Arc::new(AcceptAll::new(provider));
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
        Some(file) => builder.with_root_certificates(roots(file)?).with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    // Each viewer stands for a new player, which has no session to resume.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn roots(file: &Path) -> Result<RootCertStore, String> {
    let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| fault(&error))? {
        let added = certificate.map(|own| roots.add(own)).map_err(|error| fault(&error))?;
        added.map_err(|error| fault(&error))?;
    }
    if roots.is_empty() { Err(fault(&"there is no certificate in this file")) } else { Ok(roots) }
}

/// The client's end of a TLS connection, without a socket.
pub struct Tls {
    session: UnbufferedClientConnection,
    /// Encrypted bytes for the socket.
    pub outgoing: Vec<u8>,
    /// Whether the handshake is done.
    pub ready: bool,
}

/// The result of [`Tls::take`].
pub struct Taken {
    /// The bytes that were used; the rest is kept until more has arrived.
    pub bytes: usize,
    /// Whether the server has ended the connection in order.
    pub closed: bool,
}

impl Tls {
    pub fn new(config: Arc<ClientConfig>, host: &str) -> Result<Self, Fault> {
        let name = ServerName::try_from(host.to_owned()).map_err(Fault::connection)?;
        let session = UnbufferedClientConnection::new(config, name).map_err(Fault::connection)?;
        Ok(Self { session, outgoing: Vec::new(), ready: false })
    }

    /// Takes what has arrived, and gives the decrypted bytes to `to`.
    pub fn take(
        &mut self,
        incoming: &mut [u8],
        mut to: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<Taken, Fault> {
        let mut taken = Taken { bytes: 0, closed: false };
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.session.process_tls_records(&mut incoming[taken.bytes..]);
            let mut waits = false;
            match state.map_err(Fault::connection)? {
                ConnectionState::ReadTraffic(mut records) => {
                    while let Some(record) = records.next_record() {
                        let record = record.map_err(Fault::connection)?;
                        discard += record.discard;
                        to(record.payload)?;
                    }
                }
                ConnectionState::EncodeTlsData(mut data) => encode(&mut self.outgoing, |space| {
                    data.encode(space).map_err(|error| match error {
                        EncodeError::InsufficientSize(size) => Err(size.required_size),
                        error => Ok(Fault::connection(error)),
                    })
                })?,
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed | ConnectionState::Closed => (taken.closed, waits) = (true, true),
                ConnectionState::BlockedHandshake => waits = true,
                ConnectionState::WriteTraffic(_) => (self.ready, waits) = (true, true),
                other => return Err(Fault::connection(format!("unexpected state of TLS: {other:?}"))),
            }
            taken.bytes += discard;
            if waits {
                return Ok(taken);
            }
        }
    }

    /// Encrypts a request.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        match self.session.process_tls_records(&mut []).state.map_err(Fault::connection)? {
            ConnectionState::WriteTraffic(mut traffic) => encode(&mut self.outgoing, |space| {
                traffic.encrypt(bytes, space).map_err(|error| match error {
                    EncryptError::InsufficientSize(size) => Err(size.required_size),
                    error => Ok(Fault::connection(error)),
                })
            }),
            _ => Err(Fault::connection("the server has closed the connection")),
        }
    }
}

/// Appends what `write` writes into the space that it gets. The inner error asks for more space.
fn encode(
    to: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Result<Fault, usize>>,
) -> Result<(), Fault> {
    let (begin, mut space) = (to.len(), 1 << 10);
    loop {
        to.resize(begin + space, 0);
        match write(&mut to[begin..]) {
            Ok(written) => {
                to.truncate(begin + written);
                return Ok(());
            }
            Err(Err(required)) if required > space => space = required,
            Err(Err(_)) => return Err(Fault::connection("TLS asks for no space")),
            Err(Ok(fault)) => return Err(fault),
        }
    }
}
