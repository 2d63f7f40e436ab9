//! Two nodes, a server, and a plain client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rblive::content::{Container, Description, Flags, Header, Kind, Rendition, Video};
use rblive::{Config, Node, NodeRole, RsId, RsManager, Rule, StreamEvent};
use rblive_deliver::{Catalog, Patience, Server, Settings, Setup};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use testkit::{own_addr, until};

/// How long a test waits for something that must come.
pub const WAIT: Duration = Duration::from_secs(60);

/// A certificate in files, and the client that trusts it.
pub struct Files(pub tempfile::TempDir);

impl Files {
    pub fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.renew();
        files
    }

    /// Writes a new certificate.
    pub fn renew(&self) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(self.0.path().join("chain.pem"), made.cert.pem()).unwrap();
        std::fs::write(self.0.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    }

    pub fn settings(&self) -> Settings {
        let [certificate, private_key] = ["chain.pem", "key.pem"].map(|name| self.0.path().join(name));
        Settings { certificate, private_key, ..patient() }
    }

    /// The certificate of this moment.
    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let file = self.0.path().join("chain.pem");
        roots.add(rustls::pki_types::CertificateDer::from_pem_file(file).unwrap()).unwrap();
        roots
    }

    /// A client that trusts the certificate of this moment.
    pub fn client(&self, alpn: &[u8]) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(self.roots()).with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        config
    }
}

/// Settings with which no viewer is too slow: a viewer of a test takes nothing while its writer goes on, however long that takes.
pub fn patient() -> Settings {
    Settings { min_bytes_per_second: 1, ..Settings::default() }
}

pub struct Lab {
    pub server: Server,
    pub id: RsId,
    pub catalog: Arc<Catalog>,
    /// The initialisation segment.
    pub init: Vec<u8>,
    ingest: RsManager,
    delivery: RsManager,
}

pub const NAME: &str = "cam/1";

impl Lab {
    pub fn plain() -> Self {
        Self::new(Settings { tls: false, ..Settings::default() }, 256 << 10, 5)
    }

    pub fn new(settings: Settings, chunk_bytes: u64, chunks: u64) -> Self {
        let patience = Patience { settle: Duration::ZERO, ..Patience::default() };
        Self::with(settings, patience, chunk_bytes, chunks)
    }

    pub fn with(settings: Settings, patience: Patience, chunk_bytes: u64, chunks: u64) -> Self {
        Self::with_setup(settings, Setup { patience, ..Setup::default() }, chunk_bytes, chunks)
    }

    pub fn with_setup(settings: Settings, setup: Setup, chunk_bytes: u64, chunks: u64) -> Self {
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
        config.streams.chunk_bytes = chunk_bytes;
        config.streams.chunks = chunks;
        let manager = |name: &str, rules: Vec<Rule>| {
            RsManager::new(Config { node: name.into(), rules, ..config.clone() }).unwrap()
        };
        let catalog = Arc::new(Catalog::default());
        let delivery = manager("out", Vec::new());
        let to = catalog.clone();
        delivery.inbound_callback(move |chunk| to.take(chunk));
        let to = catalog.clone();
        delivery.stream_callback(move |id, event| {
            if event == StreamEvent::Ended {
                to.end(id);
            }
        });
        let ingest = manager("in", vec![Rule { streams: "*".into(), nodes: vec!["out".into()] }]);
        let settings = Settings { listen: "127.0.0.1:0".into(), threads: 2, ..settings };
        let server = Server::start_as(settings, catalog.clone(), setup).unwrap();
        let id = ingest.create_stream(NAME).unwrap();
        let lab = Self { server, id, catalog, init: b"init".to_vec(), ingest, delivery };
        until("the nodes are connected", || lab.ingest.peers().iter().all(|peer| peer.connected));
        lab
    }

    /// Creates another stream, whose name and description are the same, and writes to it from now on.
    pub fn start_over(&mut self) -> RsId {
        std::mem::replace(&mut self.id, self.ingest.create_stream(NAME).unwrap())
    }

    /// Whether the delivery node receives the stream.
    pub fn received(&self, id: RsId) -> bool {
        self.delivery.inbound().iter().any(|stream| stream.id == id)
    }

    /// Ends the stream in order, as ingest does.
    pub fn end(&self) {
        self.write(Header::new(Kind::End), b"");
        self.ingest.destroy_stream(self.id).unwrap();
    }

    /// The source is gone, and has not ended the stream.
    pub fn lose(&self) {
        self.ingest.destroy_stream(self.id).unwrap();
        until("the stream is gone", || !self.received(self.id));
    }

    /// Writes a chunk.
    pub fn write(&self, header: Header, payload: &[u8]) {
        let header = Header { payload_bytes: payload.len() as u32, ..header };
        let mut chunk = self.ingest.allocate_chunk(self.id, 64 + payload.len()).unwrap();
        chunk.bytes_mut()[..64].copy_from_slice(&header.encode());
        chunk.bytes_mut()[64..].copy_from_slice(payload);
        self.ingest.disseminate_chunk(chunk, 64 + payload.len(), None).unwrap();
    }

    /// Writes the description and the initialisation segment.
    pub fn describe(&self) {
        self.describe_renditions(&[1]);
    }

    /// Describes these renditions, writes their initialisation segments, and waits until players find the stream.
    pub fn describe_renditions(&self, ids: &[u16]) {
        let rendition = |id: &u16| {
            let (width, height) = (640 / u32::from(*id), 360 / u32::from(*id));
            let video = Some(Video { width, height, frames_per_1000_s: 25_000 });
            Rendition { id: *id, codecs: "avc1.64001f".into(), bandwidth: 1_000_000, video, audio: None }
        };
        let description = Description {
            name: NAME.into(),
            container: Container::Cmaf,
            target_duration_us: 1_000_000,
            part_target_us: Some(500_000),
            renditions: ids.iter().map(rendition).collect(),
        };
        self.write(Header::new(Kind::Description), &description.to_json().unwrap());
        for id in ids {
            self.write(Header { rendition: *id, ..Header::new(Kind::Init) }, &self.init);
        }
        until("the stream is described", || self.catalog.statuses().iter().any(|stream| stream.name == NAME));
    }

    /// Writes a part; each segment has two.
    pub fn part(&self, sequence: u64, part: u32, bytes: usize) {
        self.part_of(1, 0, sequence, part, bytes);
    }

    /// Writes a part of a rendition and a timeline.
    pub fn part_of(&self, rendition: u16, timeline: u64, sequence: u64, part: u32, bytes: usize) {
        let place = if part == 0 { Flags::FIRST_PART | Flags::INDEPENDENT } else { Flags::LAST_PART };
        let start_us = sequence * 1_000_000 + u64::from(part) * 500_000;
        // Renditions arrive one after the other.
        let produced_us = start_us + u64::from(rendition) * 70_000;
        let header = Header {
            flags: place,
            rendition,
            sequence,
            part,
            duration_us: 500_000,
            start_us,
            discontinuities: timeline,
            produced_ns: 1_760_000_000_000_000_000 + produced_us * 1000,
            ..Header::new(Kind::Media)
        };
        self.write(header, &media(sequence, part, bytes));
    }

    /// Writes segments, as ingest does: description and initialisation segment before each.
    pub fn segments(&self, numbers: std::ops::Range<u64>, bytes: usize) {
        for number in numbers {
            self.describe();
            self.part(number, 0, bytes);
            self.part(number, 1, bytes);
        }
    }

    /// Waits until the playlist has this text, and returns the playlist.
    pub fn playlist_with(&self, text: &str, get: impl Fn(&str) -> Got) -> String {
        let until = Instant::now() + WAIT;
        loop {
            let got = get("/live/cam/1/1/media.m3u8");
            let list = String::from_utf8(got.body).unwrap();
            if got.status == 200 && list.contains(text) {
                return list;
            }
            assert!(Instant::now() < until, "the playlist has {text}: {} {list}", got.status);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn get(&self, path: &str) -> Got {
        request(self.server.addr(), &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
    }
}

/// The bytes of a part.
pub fn media(sequence: u64, part: u32, bytes: usize) -> Vec<u8> {
    let seed = (sequence * 2 + u64::from(part)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..bytes as u64).map(|at| ((at.wrapping_mul(seed | 1)) >> 13) as u8).collect()
}

/// An answer.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// Whether the answer has as many bytes as it said.
    pub whole: bool,
}

impl Got {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")))
    }

    pub fn read(mut from: impl Read) -> Self {
        let mut bytes = Vec::new();
        let clean = from.read_to_end(&mut bytes).is_ok();
        let end = bytes.windows(4).position(|own| own == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        let body = bytes.split_off(end);
        let head = String::from_utf8_lossy(&bytes).into_owned();
        let status = head.split(' ').nth(1).and_then(|own| own.parse().ok()).unwrap_or(0);
        let mut got = Self { status, head, body, whole: false };
        let length = got.field("content-length").and_then(|own| own.parse::<usize>().ok());
        got.whole = clean && length.is_none_or(|length| length == got.body.len());
        got
    }
}

pub fn request(addr: SocketAddr, text: &str) -> Got {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    // The server may have answered and closed before it got everything.
    let _ = stream.write_all(text.as_bytes());
    Got::read(stream)
}

/// A TLS connection with HTTP/1.1.
pub fn tls(addr: SocketAddr, config: ClientConfig) -> StreamOwned<ClientConnection, TcpStream> {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}
