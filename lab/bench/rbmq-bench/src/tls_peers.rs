//! The processes of `rbmq-bench tls` that are not RBMQ's: a relay and clients with rustls.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use benchkit::{
    control::Control,
    credit::{Credit, Grants},
    pace::CALL_BYTES,
};
use clap::{Args, ValueEnum};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig, ServerConnection,
    StreamOwned,
    client::Resumption,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::TLS13,
};
use serde::Serialize;

use crate::{
    clients::{self, LOOK},
    error::BenchError,
    pattern::{Cursor, Pattern},
    peers::{Peer, topic_name},
    rbmq_peers::failed,
    relay::{PUBLISHER, SUBSCRIBER},
    systems::System,
};

/// The name of RocketBufs' protocol in a handshake; a server without names ignores it.
const ALPN: &[u8] = b"rocketbufs/1";

/// A client of the relay or of Redis.
#[derive(Debug, Args)]
pub struct End {
    /// The system in the middle
    #[arg(long, value_enum)]
    system: System,
    /// publisher or subscriber
    #[arg(long)]
    role: String,
    /// Address of the relay or of Redis
    #[arg(long)]
    addr: String,
    /// Bytes of a message
    #[arg(long)]
    size: usize,
    /// How many subscribers there are
    #[arg(long)]
    subscribers: u32,
    /// The number of this subscriber
    #[arg(long)]
    number: u32,
    /// The folder of the certificates
    #[arg(long)]
    certificates: PathBuf,
    /// The folder through which subscribers of Redis report their progress to the publisher
    #[arg(long)]
    folder: PathBuf,
}

/// The relay in the middle.
#[derive(Debug, Args)]
pub struct Relay {
    /// The folder of the certificates
    #[arg(long)]
    certificates: PathBuf,
    /// How many subscribers come
    #[arg(long)]
    subscribers: u32,
}

type Client = StreamOwned<ClientConnection, TcpStream>;
type Server = StreamOwned<ServerConnection, TcpStream>;

/// The configuration of all servers with rustls.
///
/// # Errors
/// A file is missing or wrong.
pub fn server_config(certificates: &Path) -> Result<Arc<ServerConfig>, BenchError> {
    let chain = vec![CertificateDer::from_pem_file(certificates.join("server.pem")).map_err(failed)?];
    let key = PrivateKeyDer::from_pem_file(certificates.join("server-key.pem")).map_err(failed)?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_protocol_versions(&[&TLS13]).map_err(failed)?.with_no_client_auth();
    Ok(Arc::new(config.with_single_cert(chain, key).map_err(failed)?))
}

/// Connects with TLS.
#[derive(Debug)]
pub struct Dialler(Arc<ClientConfig>);

/// The kind of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shake {
    /// With certificates
    Full,
    /// With a ticket of an earlier one
    Resumed,
}

impl Dialler {
    /// For servers with these certificates.
    ///
    /// # Errors
    /// The certificate of the authority is missing or wrong.
    pub fn new(certificates: &Path) -> Result<Self, BenchError> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(certificates.join("ca.pem")).map_err(failed)?;
        roots.add(ca).map_err(failed)?;
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = config.with_protocol_versions(&[&TLS13]).map_err(failed)?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// The same, with handshakes of this kind. The first one to a server is always full.
    #[must_use]
    pub fn of(&self, shake: Shake) -> Self {
        let mut config = ClientConfig::clone(&self.0);
        if shake == Shake::Resumed {
            config.resumption = Resumption::in_memory_sessions(1);
        }
        Self(Arc::new(config))
    }

    fn connect(&self, addr: &str, protocols: &[&[u8]]) -> Result<Client, BenchError> {
        let mut config = self.0.clone();
        if !protocols.is_empty() {
            Arc::make_mut(&mut config).alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        }
        let name = ServerName::try_from("127.0.0.1").map_err(failed)?;
        let conn = ClientConnection::new(config, name).map_err(failed)?;
        Ok(StreamOwned::new(conn, clients::connect(addr, None)?))
    }

    /// Does one handshake, and leaves. Returns whether it was a full one.
    ///
    /// # Errors
    /// The handshake failed.
    pub fn shake_hands(&self, addr: &str) -> Result<Shake, BenchError> {
        let mut stream = self.connect(addr, &[ALPN])?;
        while stream.conn.is_handshaking() || stream.conn.wants_write() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        stream.conn.send_close_notify();
        stream.flush()?;
        // The server has read the end of the handshake once it answers with the end of the connection. Its tickets come before.
        stream.sock.shutdown(Shutdown::Write)?;
        while matches!(stream.conn.read_tls(&mut stream.sock), Ok(len) if len > 0) {
            stream.conn.process_new_packets().map_err(failed)?;
        }
        Ok(match stream.conn.handshake_kind() {
            Some(HandshakeKind::Resumed) => Shake::Resumed,
            _ => Shake::Full,
        })
    }
}

/// Runs the relay: reads what the publisher sent, and writes it to each subscriber.
///
/// # Errors
/// A client failed.
pub fn relay(args: &Relay) -> Result<(), BenchError> {
    let control = Control::start();
    let config = server_config(&args.certificates)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    control.ready(&listener.local_addr()?.to_string());
    let mut subscribers: Vec<Server> = Vec::new();
    let mut publisher = loop {
        let (socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).map_err(failed)?, socket);
        // All waiting bytes are encrypted at once, and written at once.
        stream.conn.set_buffer_limit(None);
        let mut role = [0];
        stream.read_exact(&mut role)?;
        match role[0] {
            SUBSCRIBER => {
                stream.write_all(&[SUBSCRIBER])?;
                subscribers.push(stream);
            }
            PUBLISHER if subscribers.len() == args.subscribers as usize => break stream,
            role => return Err(BenchError::Stranger { role }),
        }
    };
    let mut buffer = vec![0; CALL_BYTES];
    loop {
        let len = match read_available(&mut publisher, &mut buffer)? {
            // The harness ends this process.
            0 => loop {
                std::thread::park();
            },
            len => len,
        };
        for subscriber in &mut subscribers {
            subscriber.write_all(&buffer[..len])?;
        }
    }
}

/// Waits for bytes, and takes all that are decrypted, as far as there is room. 0 at the end.
fn read_available(stream: &mut Server, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = match stream.read(buffer) {
        // The publisher was ended by the harness.
        Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => 0,
        read => read?,
    };
    while len > 0 && len < buffer.len() {
        match stream.conn.reader().read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Runs a client.
///
/// # Errors
/// The connection failed, or a byte was wrong.
pub fn client(args: &End) -> Result<(), BenchError> {
    let control = Control::start();
    let mut stream = Dialler::new(&args.certificates)?.connect(&args.addr, &[])?;
    let peer = Peer::of(args.system);
    match args.role.as_str() {
        "publisher" => publish(&control, args, &mut stream, peer),
        _ => subscribe(&control, args, &mut stream, peer),
    }
}

fn publish(control: &Control, args: &End, stream: &mut Client, peer: Option<Peer>) -> Result<(), BenchError> {
    let pattern = match peer {
        None => Pattern::new(0, args.size),
        Some(peer) => {
            let (prefix, suffix) = peer.around(0, args.size);
            Pattern::framed(0, args.size, prefix, suffix)
        }
    };
    let record = pattern.record_bytes();
    let mut credit = None;
    if peer.is_some() {
        credit = Some(Credit::open(&args.folder, 0, args.subscribers, record)?);
        // Nothing comes back then.
        stream.write_all(b"CLIENT REPLY OFF\r\n")?;
    } else {
        stream.write_all(&[PUBLISHER])?;
    }
    control.ready("");
    control.wait_for_go();
    let mut cursor = Cursor::new(&pattern);
    let mut buffer = vec![0; (CALL_BYTES / record).max(1) * record];
    let mut messages = 0;
    while !control.stopped() {
        let due = match &mut credit {
            None => u64::MAX,
            Some(credit) => credit.wait(messages)?,
        };
        let due = usize::try_from(due).unwrap_or(usize::MAX).min(buffer.len() / record);
        let batch = &mut buffer[..due * record];
        messages += cursor.fill(batch);
        stream.write_all(batch)?;
        control.set_messages(messages);
    }
    stream.flush()?;
    control.finish(&[messages])
}

fn subscribe(
    control: &Control,
    args: &End,
    stream: &mut Client,
    peer: Option<Peer>,
) -> Result<(), BenchError> {
    let mut grants = None;
    let pattern = match peer.and_then(|peer| peer.delivered_around(0, args.size)) {
        None => {
            stream.write_all(&[SUBSCRIBER])?;
            stream.read_exact(&mut [0])?;
            Pattern::new(0, args.size)
        }
        Some((prefix, suffix)) => {
            let topic = topic_name(0);
            stream.write_all(format!("SUBSCRIBE {topic}\r\n").as_bytes())?;
            let answer = format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{topic}\r\n:1\r\n", topic.len());
            stream.read_exact(&mut vec![0; answer.len()])?;
            let pattern = Pattern::framed(0, args.size, prefix, suffix);
            grants = Some(Grants::open(&args.folder, 0, args.number, pattern.record_bytes())?);
            pattern
        }
    };
    stream.sock.set_read_timeout(Some(LOOK))?;
    control.ready("");
    let (mut cursor, mut messages) = (Cursor::new(&pattern), 0);
    let mut buffer = vec![0; CALL_BYTES];
    let mut last_arrival = Instant::now();
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(len) => {
                let Some(records) = cursor.check(&buffer[..len]) else {
                    return Err(BenchError::WrongByte { topic: 0, after_messages: messages });
                };
                messages += records;
                last_arrival = Instant::now();
                control.set_messages(messages);
                if let Some(grants) = &mut grants {
                    grants.received(messages)?;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
        control.end_if_over(last_arrival, || vec![messages])?;
    }
}
