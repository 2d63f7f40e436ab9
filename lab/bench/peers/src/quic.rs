//! QUIC datagrams with quinn: encrypted, congestion-controlled, not retransmitted.

use std::{io, net::SocketAddr, ops::Deref, sync::Arc, time::Duration};

use benchkit::{
    ends::{End, Role},
    exchange::{self, Link},
};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig,
};
use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
};
use socket2::SockRef;
use tokio::runtime::{Builder, Runtime};

/// More than the outstanding messages: a full buffer drops the oldest datagram.
const BUFFER: usize = 8 << 20;
/// The receive buffer of CMQ's and of the plain sockets.
const RECEIVE_BUFFER: usize = 4 << 20;
const NAME: &str = "peer";

/// An end of a connection, made on first use: the driver has to wait for the answerer.
pub struct Datagrams {
    runtime: Runtime,
    endpoint: Endpoint,
    connection: Option<Connection>,
}

fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config.datagram_receive_buffer_size(Some(BUFFER)).datagram_send_buffer_size(BUFFER);
    config.max_idle_timeout(None);
    Arc::new(config)
}

fn server() -> io::Result<ServerConfig> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(io::Error::other)?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .map_err(io::Error::other)?;
    let tls = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
    let mut config = ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(transport());
    Ok(config)
}

fn client() -> io::Result<ClientConfig> {
    let tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAny))
        .with_no_client_auth();
    let tls = QuicClientConfig::try_from(tls).map_err(io::Error::other)?;
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(transport());
    Ok(config)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Datagrams {
    /// The answerer accepts, the driver connects.
    pub fn open(end: &End) -> io::Result<Datagrams> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let entered = runtime.enter();
        let (endpoint, connection) = match end.role {
            Role::Answer => (endpoint(end.bind, Some(server()?))?, None),
            Role::Drive => {
                let endpoint = endpoint(end.bind, None)?;
                let connection = runtime.block_on(connect(&endpoint, end.to))?;
                (endpoint, Some(connection))
            }
        };
        drop(entered);
        Ok(Datagrams { runtime, endpoint, connection })
    }

    /// The runtime, and the connection once there is one. The answerer waits for it.
    pub fn connection(&mut self, wait: Duration) -> io::Result<(&Runtime, Option<&Connection>)> {
        if self.connection.is_none() {
            self.next(wait)?;
        }
        Ok((&self.runtime, self.connection.as_ref()))
    }

    /// The next message. The answerer accepts the connection first.
    fn next(&mut self, wait: Duration) -> io::Result<Option<impl Deref<Target = [u8]> + use<>>> {
        let Some(connection) = &self.connection else {
            let accepted = self.runtime.block_on(async {
                let incoming = tokio::time::timeout(wait, self.endpoint.accept()).await.ok()??;
                Some(incoming.await)
            });
            self.connection = accepted.transpose().map_err(io::Error::other)?;
            return Ok(None);
        };
        let read =
            self.runtime.block_on(async { tokio::time::timeout(wait, connection.read_datagram()).await });
        read.ok().transpose().map_err(io::Error::other)
    }
}

/// An endpoint with the receive buffer of all sockets here.
fn endpoint(bind: SocketAddr, server: Option<ServerConfig>) -> io::Result<Endpoint> {
    let socket = std::net::UdpSocket::bind(bind)?;
    SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER)?;
    Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(TokioRuntime))
}

async fn connect(endpoint: &Endpoint, to: SocketAddr) -> io::Result<Connection> {
    let connecting = endpoint.connect_with(client()?, to, NAME).map_err(io::Error::other)?;
    connecting.await.map_err(io::Error::other)
}

impl Link for Datagrams {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let Some(connection) = &self.connection else { return Ok(()) };
        connection.send_datagram(message.to_vec().into()).map_err(io::Error::other)
    }

    fn receive(&mut self, into: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        let message = self.next(wait)?;
        Ok(message.map(|message| {
            into[..message.len()].copy_from_slice(&message);
            message.len()
        }))
    }

    fn receive_number(&mut self, _: &mut [u8], wait: Duration) -> io::Result<Option<Option<u32>>> {
        Ok(self.next(wait)?.map(|message| exchange::number(&message)))
    }
}

/// Accepts every certificate: both ends belong to the bench.
#[derive(Debug)]
struct AcceptAny;

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
