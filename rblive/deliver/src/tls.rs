//! TLS 1.3 of the server, with certificates that can change while it runs.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::settings::Tls;

/// Why TLS cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A PEM file cannot be read.
    #[error("{path}: {source}; it must hold PEM that this user may read")]
    File {
        /// The file.
        path: String,
        /// The fault.
        source: rustls::pki_types::pem::Error,
    },
    /// The certificate and the key do not work.
    #[error("the certificate or its key: {0}")]
    Certificate(#[from] rustls::Error),
    /// No certificate can be made.
    #[error("no certificate for these names: {0}")]
    SelfSigned(#[from] rcgen::Error),
}

/// The current TLS configuration.
#[derive(Debug)]
pub(crate) struct Certificates {
    from: Tls,
    current: RwLock<Option<Arc<ServerConfig>>>,
}

impl Certificates {
    pub fn load(from: Tls) -> Result<Self, TlsError> {
        let current = RwLock::new(config(&from)?);
        Ok(Self { from, current })
    }

    /// Reads files again. After an error the old certificate stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        if let Tls::Files { .. } = self.from {
            let new = config(&self.from)?;
            *self.current.write() = new;
        }
        Ok(())
    }

    /// `None` without TLS.
    pub fn current(&self) -> Option<Arc<ServerConfig>> {
        self.current.read().clone()
    }
}

fn config(from: &Tls) -> Result<Option<Arc<ServerConfig>>, TlsError> {
    let (chain, key) = match from {
        Tls::Off => return Ok(None),
        Tls::SelfSigned(names) => {
            let made = rcgen::generate_simple_self_signed(names.clone())?;
            let key = PrivateKeyDer::try_from(made.signing_key.serialize_der());
            (vec![made.cert.der().clone()], key.map_err(|error| rustls::Error::General(error.into()))?)
        }
        Tls::Files { certificates, key } => {
            let file = |path: &std::path::Path| {
                let path = path.display().to_string();
                move |source| TlsError::File { path, source }
            };
            let chain = CertificateDer::pem_file_iter(certificates)
                .and_then(|all| all.collect::<Result<Vec<_>, _>>());
            let key = PrivateKeyDer::from_pem_file(key).map_err(file(key))?;
            (chain.map_err(file(certificates))?, key)
        }
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    // Viewers keep the tickets, since a table of sessions would be too small for thousands of viewers. A new certificate ends the tickets.
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
    // Records are sealed by this crate, from the memory of rings.
    config.enable_secret_extraction = true;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}
