//! The encryption of endpoints for other clients than those of RocketBufs: HTTP and gateways.

#[cfg(feature = "tls")]
use std::path::PathBuf;
#[cfg(feature = "tls")]
use std::time::Duration;

#[cfg(feature = "tls")]
use rocketbufs::config::TlsSettings;
use serde::{Deserialize, Serialize};
use settings::by_serde;
#[cfg(feature = "tls")]
use tls13::{ClientCertificates, Credentials, SettingNames};

/// Whether an endpoint is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum EndpointTls {
    /// As the broker's own connections: `tls.mode` decides.
    #[default]
    Auto,
    /// Nothing is encrypted.
    Off,
    /// Every connection is encrypted.
    Require,
}

impl EndpointTls {
    /// Whether the endpoint is encrypted, beside connections whose setting `tls.mode` is `mode`.
    pub(crate) fn is_encrypted(self, mode: &str) -> bool {
        match self {
            Self::Auto => mode == "require",
            Self::Off => false,
            Self::Require => true,
        }
    }
}

/// Whether an endpoint asks its clients for certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum EndpointClients {
    /// Clients are not asked.
    #[default]
    None,
    /// A client may present one, which must then be valid.
    Optional,
    /// A client without a valid one is refused.
    Require,
}

/// What the console in a browser may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum EndpointConsole {
    /// There is no console.
    Off,
    /// It shows the broker, and changes nothing.
    #[default]
    Read,
    /// Users publish messages too, where their rights allow it, and administrators disconnect clients and reload the configuration.
    Write,
}

by_serde!(EndpointTls, EndpointClients, EndpointConsole);

/// The files of an endpoint of its own, and the names of their settings. An empty path is none.
#[cfg(feature = "tls")]
pub(crate) struct EndpointFiles<'a> {
    pub(crate) cert: &'a str,
    pub(crate) key: &'a str,
    pub(crate) ca: &'a str,
    pub(crate) clients: EndpointClients,
    pub(crate) names: SettingNames,
    /// The protocols that the endpoint names in a handshake (ALPN). A client may also name none.
    pub(crate) protocols: &'a [&'a [u8]],
}

#[cfg(feature = "tls")]
impl EndpointFiles<'_> {
    /// The files that are in force: those of the endpoint, or those of the broker's connections.
    pub(crate) fn credentials(&self, transport: &TlsSettings) -> Credentials {
        let own = |path: &str| (!path.is_empty()).then(|| PathBuf::from(path));
        let shared = |path: &Option<String>| path.as_ref().map(PathBuf::from);
        let (cert, key, mut names) = match (own(self.cert), own(self.key)) {
            (None, None) => (shared(&transport.cert), shared(&transport.key), SettingNames::TLS),
            (cert, key) => (cert, key, self.names),
        };
        let ca = own(self.ca);
        names.ca = if ca.is_some() { self.names.ca } else { SettingNames::TLS.ca };
        names.client_certificates = self.names.client_certificates;
        Credentials {
            cert,
            key,
            // The lists are those of the authorities in tls.ca.
            crl: if ca.is_none() { shared(&transport.crl) } else { None },
            ca: ca.or_else(|| shared(&transport.ca)),
            resumption: Duration::from_secs(u64::from(transport.resumption_s)),
            client_certificates: match self.clients {
                EndpointClients::None => ClientCertificates::None,
                EndpointClients::Optional => ClientCertificates::Optional,
                EndpointClients::Require => ClientCertificates::Require,
            },
            protocols: self.protocols.iter().map(|protocol| protocol.to_vec()).collect(),
            names,
        }
    }
}
