//! TLS of the endpoint, with certificates that can change while it runs.

use std::sync::Arc;

use rocketbufs::config::TlsSettings;
use tls13::{Credentials, Reloadable, SettingNames};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use crate::HttpSettings;
use crate::config::EndpointFiles;

/// The protocol of the endpoint (ALPN). A client may also name none.
const PROTOCOL: &[u8] = b"http/1.1";

/// The settings of an endpoint with certificates of its own.
const OWN: SettingNames = SettingNames {
    cert: "http.cert",
    key: "http.key",
    ca: "http.ca",
    crl: "tls.crl",
    client_certificates: "http.client_certificates",
};

/// The certificates of an endpoint.
pub(super) struct Tls(Reloadable<Arc<ServerConfig>, String>);

impl Tls {
    /// Reads the files. None: the endpoint is not encrypted.
    ///
    /// # Errors
    /// The setting and the file that cannot be used.
    pub(super) fn open(http: &HttpSettings, transport: &TlsSettings) -> Result<Option<Self>, String> {
        if !http.is_encrypted(&transport.mode) {
            return Ok(None);
        }
        let credentials = credentials(http, transport);
        Reloadable::new(move || load(&credentials)).map(|read| Some(Self(read)))
    }

    /// Reads the files again, for new connections. After an error nothing changes.
    ///
    /// # Errors
    /// As for [`Tls::open`].
    pub(super) fn reload(&self) -> Result<(), String> {
        self.0.reload()
    }

    /// Makes the handshake with a client.
    ///
    /// # Errors
    /// The client speaks something else, left, or was refused.
    pub(super) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.0.current()).accept(stream).await
    }
}

/// The certificate that a client has shown, in DER. The handshake has checked it.
pub(super) fn certificate(stream: &TlsStream<TcpStream>) -> Option<Arc<[u8]>> {
    let (_, connection) = stream.get_ref();
    connection.peer_certificates()?.first().map(|certificate| Arc::from(certificate.as_ref()))
}

fn load(credentials: &Credentials) -> Result<Arc<ServerConfig>, String> {
    let config = credentials.server().map_err(|error| error.to_string())?;
    config.ok_or_else(|| {
        "the endpoint is encrypted and has no certificate: set http.cert and http.key, or tls.cert and tls.key (rbmq keygen makes \
         both), or http.tls = \"off\""
            .into()
    })
}

/// The files of the endpoint: its own, or those of the broker's connections.
pub(super) fn credentials(http: &HttpSettings, transport: &TlsSettings) -> Credentials {
    let files = EndpointFiles {
        cert: &http.cert,
        key: &http.key,
        ca: &http.ca,
        clients: http.client_certificates,
        names: OWN,
        protocols: &[PROTOCOL],
    };
    files.credentials(transport)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_those_of_the_connections_unless_the_endpoint_has_its_own() {
        let text = |text: &str| Some(text.to_owned());
        let transport =
            TlsSettings { cert: text("c"), key: text("k"), ca: text("a"), ..TlsSettings::default() };
        let mut http = HttpSettings::default();
        let shared = credentials(&http, &transport);
        assert_eq!(shared.cert.as_deref(), Some("c".as_ref()));
        assert_eq!((shared.names.cert, shared.names.ca), ("tls.cert", "tls.ca"));
        (http.cert, http.key) = ("own".into(), "own-key".into());
        let own = credentials(&http, &transport);
        assert_eq!((own.cert.as_deref(), own.ca.as_deref()), (Some("own".as_ref()), Some("a".as_ref())));
        assert_eq!((own.names.key, own.names.ca), ("http.key", "tls.ca"));
        http.ca = "others".into();
        let own = credentials(&http, &transport);
        assert_eq!((own.ca.as_deref(), own.names.ca), (Some("others".as_ref()), "http.ca"));
        http.key.clear();
        let error = credentials(&http, &transport).server().unwrap_err().to_string();
        assert!(error.contains("http.cert is set and http.key is not"), "{error}");
    }
}
