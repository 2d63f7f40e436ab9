//! An ingest node and a delivery node in this process, with one stream, and the certificate of its server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use commands::Failure;
use rblive::content::{Container, Description, Flags, Header, Kind, Rendition, Video};
use rblive::{Config, Node, NodeRole, RsId, RsManager, Rule, StreamEvent};
use rblive_deliver::{Catalog, Server, Settings};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use testkit::own_addr;

/// A certificate for `localhost`, in files.
pub struct Certificate {
    folder: tempfile::TempDir,
    chain: CertificateDer<'static>,
}

impl Certificate {
    pub fn new() -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
        std::fs::write(folder.path().join("chain.pem"), made.cert.pem())?;
        std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem())?;
        Ok(Self { folder, chain: made.cert.der().clone() })
    }

    pub fn client(&self) -> Result<ClientConfig, Failure> {
        let mut roots = RootCertStore::empty();
        roots.add(self.chain.clone())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots);
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// The server of the bare loop: its keys are taken out.
    pub fn server(&self) -> Result<ServerConfig, Failure> {
        let key = PrivateKeyDer::from_pem_file(self.folder.path().join("key.pem"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth();
        let mut config = builder.with_single_cert(vec![self.chain.clone()], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.enable_secret_extraction = true;
        Ok(config)
    }
}

/// The stream: how large its parts are, and when they come.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    pub part_bytes: usize,
    pub part: Duration,
    pub parts: u32,
}

/// Both nodes.
pub struct Nodes {
    pub server: Server,
    ingest: RsManager,
    _delivery: RsManager,
    id: RsId,
    stream: Stream,
    bytes: Vec<u8>,
}

pub const NAME: &str = "bench";

fn settings(certificate: &Certificate, threads: usize) -> Settings {
    let path = |name| certificate.folder.path().join(name);
    Settings {
        listen: "127.0.0.1:0".into(),
        certificate: path("chain.pem"),
        private_key: path("key.pem"),
        threads,
        max_connections: 20_000,
        max_connections_per_address: 20_000,
        ..Settings::default()
    }
}

impl Nodes {
    pub fn start(certificate: &Certificate, threads: usize, stream: Stream) -> Result<Self, Failure> {
        let address = own_addr();
        let node = |name: &str, id, role, address: &str| Node {
            name: name.into(),
            id,
            role,
            address: address.into(),
        };
        let mut config = Config {
            nodes: vec![
                node("in", 1, NodeRole::Dissemination, ""),
                node("out", 2, NodeRole::Delivery, &address),
            ],
            ..Config::default()
        };
        config.streams.chunk_bytes = (stream.part_bytes + 64).max(64 << 10) as u64;
        config.streams.chunks = u64::from(stream.parts) * 6;
        let manager =
            |name: &str, rules| RsManager::new(Config { node: name.into(), rules, ..config.clone() });
        let catalog = Arc::new(Catalog::default());
        let delivery = manager("out", Vec::new())?;
        let to = catalog.clone();
        delivery.inbound_callback(move |chunk| to.take(chunk));
        let to = catalog.clone();
        delivery.stream_callback(move |id, event| {
            if event == StreamEvent::Ended {
                to.end(id);
            }
        });
        let ingest = manager("in", vec![Rule { streams: "*".into(), nodes: vec!["out".into()] }])?;
        let server = Server::start(settings(certificate, threads), catalog)?;
        let id = ingest.create_stream(NAME)?;
        let until = Instant::now() + Duration::from_secs(30);
        while ingest.peers().iter().any(|peer| !peer.connected) {
            if Instant::now() > until {
                return Err(Failure::Failed("the nodes are not connected".into()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let bytes = (0..stream.part_bytes).map(|at| at as u8).collect();
        Ok(Self { server, ingest, _delivery: delivery, id, stream, bytes })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.addr()
    }

    fn write(&self, header: Header, payload: &[u8]) -> Result<(), Failure> {
        let header = Header { payload_bytes: payload.len() as u32, ..header };
        let mut chunk = self.ingest.allocate_chunk(self.id, 64 + payload.len())?;
        chunk.bytes_mut()[..64].copy_from_slice(&header.encode());
        chunk.bytes_mut()[64..].copy_from_slice(payload);
        self.ingest.disseminate_chunk(chunk, 64 + payload.len(), None)?;
        Ok(())
    }

    fn describe(&self) -> Result<(), Failure> {
        let part_us = self.stream.part.as_micros() as u64;
        let video = Some(Video { width: 1920, height: 1080, frames_per_1000_s: 25_000 });
        let rendition =
            Rendition { id: 1, codecs: "avc1.64001f".into(), bandwidth: 4_000_000, video, audio: None };
        let description = Description {
            name: NAME.into(),
            container: Container::Cmaf,
            target_duration_us: part_us * u64::from(self.stream.parts),
            part_target_us: Some(part_us),
            renditions: vec![rendition],
        };
        self.write(Header::new(Kind::Description), &description.to_json()?)?;
        self.write(Header { rendition: 1, ..Header::new(Kind::Init) }, b"init")
    }

    /// Writes a part, numbered from 0.
    pub fn part(&self, number: u64) -> Result<(), Failure> {
        let (parts, part_us) = (u64::from(self.stream.parts), self.stream.part.as_micros() as u64);
        let (sequence, part) = (number / parts, (number % parts) as u32);
        let mut flags = Flags::INDEPENDENT;
        if part == 0 {
            self.describe()?;
            flags = flags | Flags::FIRST_PART;
        }
        if u64::from(part) + 1 == parts {
            flags = flags | Flags::LAST_PART;
        }
        let header = Header {
            flags,
            rendition: 1,
            sequence,
            part,
            duration_us: part_us as u32,
            start_us: number * part_us,
            produced_ns: 1_760_000_000_000_000_000 + number * part_us * 1000,
            ..Header::new(Kind::Media)
        };
        self.write(header, &self.bytes)
    }
}
