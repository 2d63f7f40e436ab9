//! A client of TLS byte by byte: rustls, with whatever it should do wrong.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

use testkit::LONG;

/// An encrypted connection.
pub type Secure = StreamOwned<ClientConnection, TcpStream>;

/// The certificates of a PEM file.
pub fn chain(path: &Path) -> Vec<CertificateDer<'static>> {
    let all = CertificateDer::pem_file_iter(path).expect("a file");
    all.collect::<Result<_, _>>().expect("certificates")
}

/// The settings of a client that trusts the authority in a file; `own`: the files of its certificate and key.
pub fn config(ca: &Path, own: Option<(&Path, &Path)>, protocols: &[&[u8]]) -> ClientConfig {
    config_of(&rustls::version::TLS13, ca, own, protocols)
}

/// The same for this version of TLS.
pub fn config_of(
    version: &'static SupportedProtocolVersion,
    ca: &Path,
    own: Option<(&Path, &Path)>,
    protocols: &[&[u8]],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for cert in chain(ca) {
        roots.add(cert).expect("a certificate");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_protocol_versions(&[version]).expect("a version");
    let config = config.with_webpki_verifier(verifier.build().expect("a verifier"));
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let key = PrivateKeyDer::from_pem_file(key).expect("a key");
            config.with_client_auth_cert(chain(cert), key).expect("a certificate")
        }
    };
    config.enable_secret_extraction = true;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    config
}

/// Connects to an address, for a certificate of 127.0.0.1, and makes the handshake.
pub fn connect(config: ClientConfig, addr: &str) -> io::Result<Secure> {
    let mut socket = TcpStream::connect(addr)?;
    socket.set_read_timeout(Some(LONG))?;
    socket.set_write_timeout(Some(LONG))?;
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    let mut tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(tls, socket))
}
