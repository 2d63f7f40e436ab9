//! TLS of the server, with certificates that can change while it runs: 1.3, and 1.2 for older televisions, telephones and proxies.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tls13::{Credentials, LoadError, Reloadable, SettingNames, Versions};

use crate::settings::Settings;

/// How long viewers may resume a session. Tickets, since a table of sessions would have no room for thousands of them.
const RESUMPTION: Duration = Duration::from_secs(12 * 3600);

/// Records of 1.3 are sealed from the memory of rings. Those of 1.2 are copied before.
const VERSIONS: Versions = Versions::Tls12And13;

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

/// The names of a certificate that the server makes.
const SELF_SIGNED: [&str; 2] = ["localhost", "127.0.0.1"];

/// Reads files, or makes a certificate, which a reload does not change.
pub(crate) fn certificates(settings: &Settings) -> Result<Certificates, TlsError> {
    let mut credentials = Credentials {
        resumption: RESUMPTION,
        protocols: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        names: SettingNames { cert: "deliver.certificate", key: "deliver.private_key", ..SettingNames::TLS },
        ..Credentials::default()
    };
    let mut made = None;
    if settings.tls && settings.certificate.as_os_str().is_empty() {
        let own = rcgen::generate_simple_self_signed(SELF_SIGNED.map(str::to_owned))?;
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        made = Some(credentials.server_with(VERSIONS, vec![own.cert.der().clone()], key.into())?);
    } else if settings.tls {
        credentials.cert = Some(settings.certificate.clone());
        credentials.key = Some(settings.private_key.clone());
    }
    Reloadable::new(move || match &made {
        Some(made) => Ok(Some(made.clone())),
        None => Ok(credentials.server_of(VERSIONS)?),
    })
}
