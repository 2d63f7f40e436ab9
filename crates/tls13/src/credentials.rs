//! Certificates and keys from files, checked before they are used: each error names the file and the remedy.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, InconsistentKeys, RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

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

/// The files of one end, and what it requires of the other end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// The own certificate, and behind it those that lead to its root (PEM). A listener needs it.
    pub cert: Option<PathBuf>,
    /// The key of the own certificate (PEM: PKCS#8, SEC1 or PKCS#1).
    pub key: Option<PathBuf>,
    /// The certificates of the authorities that are trusted (PEM). None: those of the system, for servers alone.
    pub ca: Option<PathBuf>,
    /// Whether a listener asks its clients for certificates.
    pub client_certificates: ClientCertificates,
    /// The protocol that both ends must name (ALPN).
    pub protocol: Vec<u8>,
}

/// Why certificates or keys cannot be used: the fault of whoever wrote the files or the configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file cannot be read.
    #[error("tls.{setting}: cannot read {path}: {source}")]
    Read {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("tls.{setting}: {path} holds no {wanted} in PEM{reason}")]
    Content {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: String,
        /// What it should hold.
        wanted: &'static str,
        /// The fault of the text, if it is PEM.
        reason: String,
    },
    /// A certificate or a key cannot be used.
    #[error("tls.{setting}: {path}: {reason}")]
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
        "tls.key: the key in {key} does not belong to the certificate in {cert}: name the key that was made with it, or make \
         both anew (rbmq keygen)"
    )]
    Mismatch {
        /// The file of the certificate.
        cert: String,
        /// The file of the key.
        key: String,
    },
    /// A certificate is not valid now.
    #[error(
        "tls.cert: the certificate of {subject} in {path} {fault}: replace it (rbmq keygen, or its authority) and reload, or set \
         this machine's clock"
    )]
    Dates {
        /// The file.
        path: String,
        /// The subject of the certificate.
        subject: String,
        /// Since when, or until when.
        fault: String,
    },
    /// One of two settings is unset that need each other.
    #[error("tls.{set} is set and tls.{unset} is not: {reason}")]
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

/// The content of a certificate, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The subject.
    pub subject: String,
    /// The authority that signed it.
    pub issuer: String,
    /// The names and addresses that it is for.
    pub names: Vec<String>,
    /// The last second of its validity, in seconds since 1970.
    pub valid_until: i64,
    /// The first second of its validity, in seconds since 1970.
    pub valid_from: i64,
    /// The same as text.
    pub valid_until_text: String,
    /// Whether it may sign other certificates.
    pub is_authority: bool,
}

impl CertificateFacts {
    /// The facts of a certificate in DER; the error says what is wrong with it.
    ///
    /// # Errors
    /// The content is no certificate.
    pub fn of(der: &[u8]) -> Result<Self, String> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        let names = parsed.subject_alternative_name().ok().flatten();
        let names = names.map_or(Vec::new(), |names| names.value.general_names.iter().map(name).collect());
        Ok(Self {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            names,
            valid_until: parsed.validity().not_after.timestamp(),
            valid_from: parsed.validity().not_before.timestamp(),
            valid_until_text: parsed.validity().not_after.to_string(),
            is_authority: parsed.is_ca(),
        })
    }

    /// Why it is not valid at a time; none if it is.
    pub fn fault_at(&self, seconds: i64) -> Option<String> {
        if seconds > self.valid_until {
            return Some(format!("has expired ({})", self.valid_until_text));
        }
        (seconds < self.valid_from).then(|| "is not valid yet".to_owned())
    }
}

fn name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
            (Ok(v4), _) => std::net::Ipv4Addr::from(v4).to_string(),
            (_, Ok(v6)) => std::net::Ipv6Addr::from(v6).to_string(),
            _ => name.to_string(),
        },
        other => other.to_string(),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, LoadError> {
    let mut bytes = Vec::new();
    let whole = File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes));
    match whole {
        Ok(_) => Ok(bytes),
        Err(source) => Err(LoadError::Read { setting, path: path.display().to_string(), source }),
    }
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
        if self.client_certificates != ClientCertificates::None && self.ca.is_none() {
            let reason = "the authority whose clients are accepted must be named";
            return Err(LoadError::Incomplete { set: "client_certificates", unset: "ca", reason });
        }
        let Some((cert, key, chain, private)) = self.own()? else { return Ok(None) };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(LoadError::Library)?;
        let builder = match self.client_verifier()? {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let config = builder.with_single_cert(chain, private);
        let mut config = config.map_err(|error| unusable(error, cert, key))?;
        config.alpn_protocols = vec![self.protocol.clone()];
        // Records are sealed by this crate, from the memory of rings.
        config.enable_secret_extraction = true;
        // Every connection shows its certificate again, so that a reload holds for all new ones.
        config.send_tls13_tickets = 0;
        Ok(Some(Arc::new(config)))
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
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(LoadError::Library)?
            .with_webpki_verifier(verifier.build().map_err(unusable_roots)?);
        let mut config = match self.own()? {
            None => builder.with_no_client_auth(),
            Some((cert, key, chain, private)) => {
                builder.with_client_auth_cert(chain, private).map_err(|error| unusable(error, cert, key))?
            }
        };
        config.alpn_protocols = vec![self.protocol.clone()];
        config.enable_secret_extraction = true;
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }

    fn client_verifier(&self) -> Result<Option<Arc<dyn ClientCertVerifier>>, LoadError> {
        if self.client_certificates == ClientCertificates::None {
            return Ok(None);
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()?), provider());
        let verifier = match self.client_certificates {
            ClientCertificates::Require => verifier,
            _ => verifier.allow_unauthenticated(),
        };
        Ok(Some(verifier.build().map_err(|error| self.unusable_ca(error.to_string()))?))
    }

    fn unusable_ca(&self, reason: String) -> LoadError {
        let path = self.ca.as_ref().map_or("the system's".to_owned(), |path| path.display().to_string());
        LoadError::Unusable { setting: "ca", path, reason }
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
        for cert in load_chain("ca", path)? {
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
            (Some(_), None) => return Err(incomplete("cert", "key")),
            (None, Some(_)) => return Err(incomplete("key", "cert")),
            (Some(cert), Some(key)) => (cert, key),
        };
        let chain = load_chain("cert", cert)?;
        for der in &chain {
            check_dates(cert, der)?;
        }
        Ok(Some((cert, key, chain, load_key("key", key)?)))
    }
}

/// Checks that a certificate is valid now.
fn check_dates(path: &Path, der: &CertificateDer<'_>) -> Result<(), LoadError> {
    let path = path.display().to_string();
    let facts = CertificateFacts::of(der).map_err(|reason| LoadError::Unusable {
        setting: "cert",
        path: path.clone(),
        reason,
    })?;
    match facts.fault_at(now()) {
        Some(fault) => Err(LoadError::Dates { path, subject: facts.subject, fault }),
        None => Ok(()),
    }
}

/// The seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs().try_into().unwrap_or(i64::MAX))
}

fn unusable(error: rustls::Error, cert: &Path, key: &Path) -> LoadError {
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => LoadError::Mismatch { cert, key },
        rustls::Error::InvalidCertificate(_) => {
            LoadError::Unusable { setting: "cert", path: cert, reason: error.to_string() }
        }
        error => LoadError::Unusable { setting: "key", path: key, reason: error.to_string() },
    }
}
