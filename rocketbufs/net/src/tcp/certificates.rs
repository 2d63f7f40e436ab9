//! The certificates of TLS, which can change while the process runs.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tls13::{Credentials, Handshake, LoadError, Reloadable};

use super::security::{ClientCertificates, TlsError, TlsSettings};

/// The name that both ends give their protocol (ALPN): the version is that of the stream's headers.
pub(super) const PROTOCOL: &[u8] = b"rocketbufs/1";

/// TLS of the connections of a process, whose workers share it. A clone is another handle.
///
/// ```no_run
/// use rocketnet::tcp::{Tls, TlsSettings};
/// let cert = |name: &str| Some(format!("/etc/rbmq/{name}.pem").into());
/// let tls = Tls::new(TlsSettings { cert: cert("server"), key: cert("server-key"), ..TlsSettings::default() })?;
/// tls.reload()?; // After the files changed.
/// # Ok::<(), rocketnet::tcp::TlsError>(())
/// ```
#[derive(Clone)]
pub struct Tls(Arc<Shared>);

struct Shared {
    settings: TlsSettings,
    current: Reloadable<Current>,
}

/// The settings of new connections.
#[derive(Clone)]
struct Current {
    server: Option<Arc<ServerConfig>>,
    /// Or why this process cannot connect: the system has no authorities, and none are configured.
    client: Result<Arc<ClientConfig>, String>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or used: see [`TlsError`].
    pub fn new(settings: TlsSettings) -> Result<Self, TlsError> {
        if let Some(name) = &settings.server_name {
            ServerName::try_from(name.as_str()).map_err(|_| TlsError::ServerName(name.clone()))?;
        }
        if !(1..=crate::slots::MAX_SLOTS).contains(&settings.max_handshakes) {
            return Err(TlsError::MaxHandshakes(settings.max_handshakes));
        }
        let files = settings.clone();
        let current = Reloadable::new(move || load(&files))?;
        Ok(Self(Arc::new(Shared { settings, current })))
    }

    /// Reads the files again. New connections use the new contents; established ones go on. After an error nothing changes.
    ///
    /// # Errors
    /// As for [`Tls::new`].
    pub fn reload(&self) -> Result<(), TlsError> {
        Ok(self.0.current.reload()?)
    }

    /// The settings.
    pub fn settings(&self) -> &TlsSettings {
        &self.0.settings
    }

    /// Whether there is a certificate, without which a listener cannot work.
    pub(super) fn can_listen(&self) -> bool {
        self.0.current.current().server.is_some()
    }

    /// The handshake of an incoming connection.
    pub(super) fn accept(&self) -> Result<Handshake, String> {
        let server = self.0.current.current().server.ok_or("there is no certificate (tls.cert)")?;
        Handshake::accept(server).map_err(|error| error.to_string())
    }

    /// The handshake with the server at an address.
    pub(super) fn connect(&self, addr: &str) -> Result<Handshake, String> {
        let name = match &self.0.settings.server_name {
            Some(name) => name.as_str(),
            None => host(addr),
        };
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| format!("no certificate can be for '{name}': set tls.server_name"))?;
        Handshake::connect(self.0.current.current().client?, name).map_err(|error| error.to_string())
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.0.settings).finish()
    }
}

/// Handles of the same certificates are equal.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tls {}

fn load(settings: &TlsSettings) -> Result<Current, LoadError> {
    let TlsSettings { cert, key, ca, crl, client_certificates, resumption, .. } = settings.clone();
    let client_certificates = match client_certificates {
        ClientCertificates::None => tls13::ClientCertificates::None,
        ClientCertificates::Optional => tls13::ClientCertificates::Optional,
        ClientCertificates::Require => tls13::ClientCertificates::Require,
    };
    let protocols = vec![PROTOCOL.to_vec()];
    let credentials = Credentials {
        cert,
        key,
        ca,
        crl,
        client_certificates,
        resumption,
        protocols,
        ..Credentials::default()
    };
    let client = match credentials.client() {
        Err(why @ LoadError::NoRoots(_)) => Err(why.to_string()),
        client => Ok(client?),
    };
    Ok(Current { server: credentials.server()?, client })
}

/// The host of `host:port`, without the brackets of an address of IPv6.
fn host(addr: &str) -> &str {
    let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.filter(|inner| inner.parse::<IpAddr>().is_ok()).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn the_host_of_an_address() {
        let cases =
            [("a.example:7", "a.example"), ("192.0.2.1:7", "192.0.2.1"), ("[2001:db8::1]:7", "2001:db8::1")];
        for (addr, expected) in cases {
            assert_eq!(host(addr), expected);
        }
    }
}
