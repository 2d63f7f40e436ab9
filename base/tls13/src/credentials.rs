//! Certificates and keys from files, checked before they are used: each error names the file and the remedy.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use private_files::GivenFile;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore, ServerConfig};

use super::facts::{CertificateFacts, RevocationFacts};
use super::tickets;

/// The servers whose sessions a client keeps.
const MAX_SERVERS: usize = 256;

/// The tickets that a server sends with each handshake. A client uses each once, and gets others with the connection that it resumes.
const TICKETS: usize = 2;

/// The largest file, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Whether a listener asks its clients for certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// Clients are not asked.
    #[default]
    None,
    /// A client may present one, which must then be valid.
    Optional,
    /// A client without a valid one is refused.
    Require,
}

/// The settings that an end's files come from, as errors name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingNames {
    /// Of the own certificate.
    pub cert: &'static str,
    /// Of its key.
    pub key: &'static str,
    /// Of the trusted authorities.
    pub ca: &'static str,
    /// Of the lists of revoked certificates.
    pub crl: &'static str,
    /// Of the demand for certificates of clients.
    pub client_certificates: &'static str,
}

impl SettingNames {
    /// The settings of the section `[tls]`.
    pub const TLS: Self = Self {
        cert: "tls.cert",
        key: "tls.key",
        ca: "tls.ca",
        crl: "tls.crl",
        client_certificates: "tls.client_certificates",
    };
}

impl Default for SettingNames {
    fn default() -> Self {
        Self::TLS
    }
}

/// The files of one end, and what it requires of the other end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// The own certificate, and behind it those that lead to its root (PEM). A listener needs it.
    pub cert: Option<PathBuf>,
    /// The key of the own certificate (PEM: PKCS#8, SEC1 or PKCS#1).
    pub key: Option<PathBuf>,
    /// The certificates of the authorities that are trusted (PEM). None: those of the system, for servers alone.
    pub ca: Option<PathBuf>,
    /// The lists of revoked certificates of these authorities (PEM). With them, every authority whose certificates are verified needs
    /// one that is in force.
    pub crl: Option<PathBuf>,
    /// Whether a listener asks its clients for certificates.
    pub client_certificates: ClientCertificates,
    /// How long after a handshake a client may resume it, without certificates. Zero: never.
    pub resumption: Duration,
    /// The protocols that an end names (ALPN), the preferred one first. A peer that names others alone is refused.
    pub protocols: Vec<Vec<u8>>,
    /// The settings that the files come from.
    pub names: SettingNames,
}

/// Why certificates or keys cannot be used: the fault of the files or of the configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file cannot be read.
    #[error("{setting}: cannot read {path}: {source}")]
    Read {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{setting}: {path} holds no {wanted} in PEM{reason}")]
    Content {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: String,
        /// The kind of content that the file should hold.
        wanted: &'static str,
        /// The fault of the text, if it is PEM.
        reason: String,
    },
    /// A certificate or a key cannot be used.
    #[error("{setting}: {path}: {reason}")]
    Unusable {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// The key is another certificate's.
    #[error(
        "{setting}: the key in {key} does not belong to the certificate in {cert}: name the key that was made with it, or make \
         both anew (rbmq keygen)"
    )]
    Mismatch {
        /// The setting that names the key.
        setting: &'static str,
        /// The file of the certificate.
        cert: String,
        /// The file of the key.
        key: String,
    },
    /// A certificate is not valid now.
    #[error(
        "{setting}: the certificate of {subject} in {path} {fault}: replace it (rbmq keygen, or its authority) and reload, or set \
         this machine's clock"
    )]
    Dates {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: String,
        /// The subject of the certificate.
        subject: String,
        /// Since when, or until when.
        fault: String,
    },
    /// A setting is unset that another one needs.
    #[error("{set} is set and {unset} is not: {reason}")]
    Incomplete {
        /// The setting that is set.
        set: &'static str,
        /// The setting that is missing.
        unset: &'static str,
        /// Why it is needed.
        reason: &'static str,
    },
    /// The system has no certificates of authorities.
    #[error(
        "tls.ca is unset, and this system has no trusted authorities{0}: set tls.ca to the authority's certificate"
    )]
    NoRoots(String),
    /// The library refused the whole configuration.
    #[error("TLS cannot be configured: {0}")]
    Library(rustls::Error),
}

/// The versions of TLS that a listener accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// TLS 1.3 alone.
    Tls13,
    /// TLS 1.2 too, for clients of other makers. Records of 1.2 are rustls' own affair: [`Records`](crate::Records) has both.
    #[cfg(feature = "tls12")]
    Tls12And13,
}

impl Versions {
    fn accepted(self) -> Vec<&'static rustls::SupportedProtocolVersion> {
        match self {
            Self::Tls13 => vec![&rustls::version::TLS13],
            #[cfg(feature = "tls12")]
            Self::Tls12And13 => vec![&rustls::version::TLS13, &rustls::version::TLS12],
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, LoadError> {
    let bytes = GivenFile::open(path).and_then(|file| file.bytes(MAX_FILE));
    bytes.map_err(|source| LoadError::Read { setting, path: path.display().to_string(), source })
}

/// The certificates of a PEM file, at least one.
///
/// # Errors
/// [`LoadError::Read`], [`LoadError::Content`].
pub fn load_chain(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let bytes = read(setting, path)?;
    let content = |reason| LoadError::Content {
        setting,
        path: path.display().to_string(),
        wanted: "certificate",
        reason,
    };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|error| content(format!(" ({error})")))?;
    if all.is_empty() { Err(content(String::new())) } else { Ok(all) }
}

/// The lists of revoked certificates of a PEM file, at least one.
///
/// # Errors
/// [`LoadError::Read`], [`LoadError::Content`].
pub fn load_revoked(
    setting: &'static str,
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, LoadError> {
    let bytes = read(setting, path)?;
    let wanted = "list of revoked certificates";
    let content = |reason| LoadError::Content { setting, path: path.display().to_string(), wanted, reason };
    let all: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|error| content(format!(" ({error})")))?;
    if all.is_empty() { Err(content(String::new())) } else { Ok(all) }
}

/// The key of a PEM file.
///
/// # Errors
/// [`LoadError::Read`], [`LoadError::Content`].
pub fn load_key(setting: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, LoadError> {
    let bytes = read(setting, path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| LoadError::Content {
        setting,
        path: path.display().to_string(),
        wanted: "private key",
        reason: format!(" ({error})"),
    })
}

impl Credentials {
    /// The configuration of a listener; none without a certificate.
    ///
    /// # Errors
    /// The files, or their combination.
    pub fn server(&self) -> Result<Option<Arc<ServerConfig>>, LoadError> {
        self.server_of(Versions::Tls13)
    }

    /// The same for these versions.
    ///
    /// # Errors
    /// As for [`Credentials::server`].
    pub fn server_of(&self, versions: Versions) -> Result<Option<Arc<ServerConfig>>, LoadError> {
        if self.client_certificates != ClientCertificates::None && self.ca.is_none() {
            let reason = "the authority whose clients are accepted must be named";
            let SettingNames { client_certificates: set, ca: unset, .. } = self.names;
            return Err(LoadError::Incomplete { set, unset, reason });
        }
        let Some((cert, key, chain, private)) = self.own()? else { return Ok(None) };
        self.listener(versions, chain, private, |error| self.unusable(error, cert, key)).map(Some)
    }

    /// The configuration of a listener whose certificate comes from no file.
    ///
    /// # Errors
    /// The other files, or a key that does not belong to the certificate.
    pub fn server_with(
        &self,
        versions: Versions,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<ServerConfig>, LoadError> {
        self.listener(versions, chain, key, LoadError::Library)
    }

    fn listener(
        &self,
        versions: Versions,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        unusable: impl FnOnce(rustls::Error) -> LoadError,
    ) -> Result<Arc<ServerConfig>, LoadError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&versions.accepted())
            .map_err(LoadError::Library)?;
        let builder = match self.client_verifier()? {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
        config.alpn_protocols = self.protocols.clone();
        // Records are sealed by this crate, from the memory of rings.
        config.enable_secret_extraction = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        if let Some(ticketer) = tickets::ticketer(self.resumption).map_err(LoadError::Library)? {
            (config.ticketer, config.send_tls13_tickets) = (ticketer, TICKETS);
        }
        Ok(Arc::new(config))
    }

    /// The configuration of a connecting end.
    ///
    /// # Errors
    /// The files, or their combination.
    pub fn client(&self) -> Result<Arc<ClientConfig>, LoadError> {
        let roots = self.roots()?;
        let unusable_roots =
            |error: rustls::client::VerifierBuilderError| self.unusable_ca(error.to_string());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
        let verifier = match self.revoked()? {
            None => verifier,
            Some(lists) => verifier.with_crls(lists).enforce_revocation_expiration(),
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(LoadError::Library)?
            .with_webpki_verifier(verifier.build().map_err(unusable_roots)?);
        let mut config = match self.own()? {
            None => builder.with_no_client_auth(),
            Some((cert, key, chain, private)) => builder
                .with_client_auth_cert(chain, private)
                .map_err(|error| self.unusable(error, cert, key))?,
        };
        config.alpn_protocols = self.protocols.clone();
        config.enable_secret_extraction = true;
        config.resumption = match self.resumption.is_zero() {
            true => Resumption::disabled(),
            false => Resumption::in_memory_sessions(MAX_SERVERS),
        };
        Ok(Arc::new(config))
    }

    fn client_verifier(&self) -> Result<Option<Arc<dyn ClientCertVerifier>>, LoadError> {
        if self.client_certificates == ClientCertificates::None {
            return Ok(None);
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()?), provider());
        let verifier = match self.revoked()? {
            None => verifier,
            Some(lists) => verifier.with_crls(lists).enforce_revocation_expiration(),
        };
        let verifier = match self.client_certificates {
            ClientCertificates::Require => verifier,
            _ => verifier.allow_unauthenticated(),
        };
        Ok(Some(verifier.build().map_err(|error| self.unusable_ca(error.to_string()))?))
    }

    fn unusable_ca(&self, reason: String) -> LoadError {
        let path = self.ca.as_ref().map_or("the system's".to_owned(), |path| path.display().to_string());
        LoadError::Unusable { setting: self.names.ca, path, reason }
    }

    /// The lists of revoked certificates, each in force.
    fn revoked(&self) -> Result<Option<Vec<CertificateRevocationListDer<'static>>>, LoadError> {
        let Some(path) = &self.crl else { return Ok(None) };
        if self.ca.is_none() {
            let reason = "the authority that signed the list must be named";
            let SettingNames { crl: set, ca: unset, .. } = self.names;
            return Err(LoadError::Incomplete { set, unset, reason });
        }
        let lists = load_revoked(self.names.crl, path)?;
        for list in &lists {
            let unusable = |reason| LoadError::Unusable {
                setting: self.names.crl,
                path: path.display().to_string(),
                reason,
            };
            let facts = RevocationFacts::of(list).map_err(unusable)?;
            if let Some(fault) = facts.fault_at(now()) {
                return Err(unusable(format!(
                    "the list of {} {fault}: make it anew (rbmq keygen revoke, or its authority) and reload",
                    facts.issuer
                )));
            }
        }
        Ok(Some(lists))
    }

    /// The trusted authorities.
    fn roots(&self) -> Result<RootCertStore, LoadError> {
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.ca else {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(found.certs);
            let why = found.errors.first().map_or(String::new(), |error| format!(" ({error})"));
            return if added > 0 { Ok(roots) } else { Err(LoadError::NoRoots(why)) };
        };
        for cert in load_chain(self.names.ca, path)? {
            roots.add(cert).map_err(|error| self.unusable_ca(error.to_string()))?;
        }
        Ok(roots)
    }

    /// The own certificate and key, and their files.
    #[allow(clippy::type_complexity, reason = "two files and their content")]
    fn own(
        &self,
    ) -> Result<Option<(&Path, &Path, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, LoadError> {
        let incomplete = |set, unset| LoadError::Incomplete {
            set,
            unset,
            reason: "a certificate is used with the key that was made with it",
        };
        let (cert, key) = match (&self.cert, &self.key) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(incomplete(self.names.cert, self.names.key)),
            (None, Some(_)) => return Err(incomplete(self.names.key, self.names.cert)),
            (Some(cert), Some(key)) => (cert, key),
        };
        let chain = load_chain(self.names.cert, cert)?;
        for der in &chain {
            check_dates(self.names.cert, cert, der)?;
        }
        Ok(Some((cert, key, chain, load_key(self.names.key, key)?)))
    }

    fn unusable(&self, error: rustls::Error, cert: &Path, key: &Path) -> LoadError {
        let (cert, key) = (cert.display().to_string(), key.display().to_string());
        match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                LoadError::Mismatch { setting: self.names.key, cert, key }
            }
            rustls::Error::InvalidCertificate(_) => {
                LoadError::Unusable { setting: self.names.cert, path: cert, reason: error.to_string() }
            }
            error => LoadError::Unusable { setting: self.names.key, path: key, reason: error.to_string() },
        }
    }
}

/// Checks that a certificate is valid now.
fn check_dates(setting: &'static str, path: &Path, der: &CertificateDer<'_>) -> Result<(), LoadError> {
    let path = path.display().to_string();
    let facts = CertificateFacts::of(der).map_err(|reason| LoadError::Unusable {
        setting,
        path: path.clone(),
        reason,
    })?;
    match facts.fault_at(now()) {
        Some(fault) => Err(LoadError::Dates { setting, path, subject: facts.subject, fault }),
        None => Ok(()),
    }
}

/// The seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs().try_into().unwrap_or(i64::MAX))
}
