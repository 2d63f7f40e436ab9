//! The settings of TLS, and the errors of its files. They exist in builds without TLS too.

use std::path::PathBuf;
use std::time::Duration;

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

/// The settings of TLS: files, and what is required of peers.
///
/// ```
/// use rocketnet::tcp::TlsSettings;
/// let settings = TlsSettings { ca: Some("/etc/rbmq/ca.pem".into()), ..TlsSettings::default() };
/// assert!(settings.cert.is_none() && settings.max_handshakes == 1_000);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The own certificate (PEM), behind it those that lead to its authority. A listener needs one; a connecting end presents it if
    /// it is asked. Default none.
    pub cert: Option<PathBuf>,
    /// The key of the own certificate (PEM). Default none.
    pub key: Option<PathBuf>,
    /// The certificates of the trusted authorities (PEM). Default none: those of the system, which are only for connecting.
    pub ca: Option<PathBuf>,
    /// The lists of revoked certificates of the authorities in `ca` (PEM). Default none: no certificate is revoked.
    pub crl: Option<PathBuf>,
    /// Whether a listener asks its clients for certificates of `ca`. Default [`ClientCertificates::None`].
    pub client_certificates: ClientCertificates,
    /// The name or address that a server's certificate must be for. Default none: the host of the address that is connected to.
    pub server_name: Option<String>,
    /// How long after a handshake it may be resumed, with neither certificates nor signatures. Default an hour. Zero: never.
    pub resumption: Duration,
    /// The most handshakes of incoming connections that may be unfinished at once, in one worker. Default 1,000, from 1 to
    /// 1,048,576. A connection beyond is closed. Each costs up to 100 KiB while its peer sends a message in parts.
    pub max_handshakes: usize,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            cert: None,
            key: None,
            ca: None,
            crl: None,
            client_certificates: ClientCertificates::None,
            server_name: None,
            resumption: Duration::from_secs(3600),
            max_handshakes: 1_000,
        }
    }
}

/// Why TLS cannot be set up. The configuration or its files are at fault, and the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file, or the combination of several.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Credentials(#[from] tls13::LoadError),
    /// A name that no certificate can be for.
    #[error("tls.server_name = {0}: it must be the name or the address of a host, without a port")]
    ServerName(String),
    /// `max_handshakes` is outside its range.
    #[error("tls.max_handshakes = {0}: it must be 1 to 1048576")]
    MaxHandshakes(usize),
    /// This program was built without TLS.
    #[error("this program was built without TLS: build it with the feature `tls`, or set tls.mode = \"off\"")]
    NotBuilt,
}
