//! The certificate of rtmps and https, which may change while the servers run.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// The files, and what was read from them.
pub(crate) struct Certificates {
    chain: PathBuf,
    key: PathBuf,
    current: RwLock<TlsAcceptor>,
}

impl Certificates {
    /// Reads the files. The error names the one that cannot be used.
    pub(crate) fn load(chain: PathBuf, key: PathBuf) -> Result<Self, String> {
        let current = RwLock::new(acceptor(&chain, &key)?);
        Ok(Self { chain, key, current })
    }

    /// Reads the files again. After an error what was read before stays.
    pub(crate) fn reload(&self) -> Result<(), String> {
        let new = acceptor(&self.chain, &self.key)?;
        *self.current.write() = new;
        Ok(())
    }

    pub(crate) fn current(&self) -> TlsAcceptor {
        self.current.read().clone()
    }
}

fn acceptor(certificate: &std::path::Path, key: &std::path::Path) -> Result<TlsAcceptor, String> {
    let failed =
        |path: &std::path::Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let chain = CertificateDer::pem_file_iter(certificate).and_then(|all| all.collect::<Result<Vec<_>, _>>());
    let chain = chain.map_err(|error| failed(certificate, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, &error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    // RTMPS encoders are often old, and have TLS 1.2.
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| failed(certificate, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
