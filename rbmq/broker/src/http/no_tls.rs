//! The place of TLS of the endpoint in a build without it: there is none.

use std::convert::Infallible;
use std::sync::Arc;

use rocketbufs::config::TlsSettings;
use tokio::net::TcpStream;

use crate::HttpSettings;

/// The certificates of an endpoint: none in this build.
pub(super) struct Tls(Infallible);

impl Tls {
    /// Fails if the endpoint should be encrypted.
    ///
    /// # Errors
    /// This build has no TLS.
    pub(super) fn open(http: &HttpSettings, transport: &TlsSettings) -> Result<Option<Self>, String> {
        match http.is_encrypted(&transport.mode) {
            false => Ok(None),
            true => Err("this program was built without TLS: build it with the feature `https`, or set http.tls = \"off\"".into()),
        }
    }

    pub(super) fn reload(&self) -> Result<(), String> {
        match self.0 {}
    }

    pub(super) async fn accept(&self, _: TcpStream) -> std::io::Result<TcpStream> {
        match self.0 {}
    }
}

/// The certificate of a client: none without TLS.
pub(super) fn certificate(_: &TcpStream) -> Option<Arc<[u8]>> {
    None
}
