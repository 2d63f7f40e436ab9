//! TLS 1.3 of the server, with certificates that can change while it runs.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tls13::{Credentials, LoadError, Reloadable, SettingNames};

use crate::settings::Tls;

/// How long viewers may resume a session. Tickets, since a table of sessions would have no room for thousands of them.
const RESUMPTION: Duration = Duration::from_secs(12 * 3600);

/// Why TLS cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The files of the certificate and its key.
    #[error(transparent)]
    Files(#[from] LoadError),
    /// No certificate can be made.
    #[error("no certificate for these names: {0}")]
    SelfSigned(#[from] rcgen::Error),
}

/// The current TLS configuration; `None` without TLS.
pub(crate) type Certificates = Reloadable<Option<Arc<ServerConfig>>, TlsError>;

/// Reads files, or makes a certificate, which a reload does not change.
pub(crate) fn certificates(from: Tls) -> Result<Certificates, TlsError> {
    let mut credentials = Credentials {
        resumption: RESUMPTION,
        protocols: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        names: SettingNames { cert: "deliver.certificate", key: "deliver.private_key", ..SettingNames::TLS },
        ..Credentials::default()
    };
    let made = match from {
        Tls::Off => None,
        Tls::SelfSigned(names) => {
            let made = rcgen::generate_simple_self_signed(names)?;
            let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
            Some(credentials.server_with(vec![made.cert.der().clone()], key.into())?)
        }
        Tls::Files { certificates, key } => {
            (credentials.cert, credentials.key) = (Some(certificates), Some(key));
            None
        }
    };
    Reloadable::new(move || match &made {
        Some(made) => Ok(Some(made.clone())),
        None => Ok(credentials.server()?),
    })
}
