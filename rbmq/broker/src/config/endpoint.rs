//! The encryption of endpoints for other clients than those of RocketBufs: HTTP and gateways.

use serde::{Deserialize, Serialize};
use settings::by_serde;

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

by_serde!(EndpointTls, EndpointClients);
