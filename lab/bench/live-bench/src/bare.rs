//! The bare loop: encrypts bytes that are in memory, and writes them. Nothing else could be less work for a server in user space.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

use crate::failure::Result;

/// Bytes that are encrypted and written at once: four TLS records, as in RBLive's server.
const PIECE: usize = 64 << 10;
/// Segments that are remembered.
const REMEMBERED: usize = 1000;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder whose files are served
    #[arg(long)]
    folder: PathBuf,
    /// Certificate and key (PEM)
    #[arg(long)]
    certificate: PathBuf,
    #[arg(long)]
    key: PathBuf,
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

/// Segments in memory. Playlists are read anew each time.
#[derive(Default)]
struct Memory(RefCell<HashMap<String, Rc<Vec<u8>>>>);

impl Memory {
    fn get(&self, folder: &Path, path: &str) -> Option<Rc<Vec<u8>>> {
        if let Some(bytes) = self.0.borrow().get(path) {
            return Some(bytes.clone());
        }
        let bytes = Rc::new(std::fs::read(folder.join(path)).ok()?);
        if !path.ends_with(".m3u8") {
            let mut all = self.0.borrow_mut();
            if all.len() >= REMEMBERED {
                all.clear();
            }
            all.insert(path.to_owned(), bytes.clone());
        }
        Some(bytes)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let chain: std::result::Result<Vec<_>, _> = CertificateDer::pem_file_iter(&args.certificate)?.collect();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
    let mut config =
        builder.with_no_client_auth().with_single_cert(chain?, PrivateKeyDer::from_pem_file(&args.key)?)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (memory, folder) = (Rc::new(Memory::default()), Rc::new(args.folder.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind(&args.listen).await?;
        println!("viewers at https://{}/", listener.local_addr()?);
        loop {
            let (socket, _) = listener.accept().await?;
            let (acceptor, memory, folder) = (acceptor.clone(), memory.clone(), folder.clone());
            tokio::task::spawn_local(async move {
                // A viewer that leaves ends its own connection only.
                let _ = serve(socket, acceptor, &memory, &folder).await;
            });
        }
    })
}

async fn serve(socket: TcpStream, acceptor: TlsAcceptor, memory: &Memory, folder: &Path) -> Result<()> {
    socket.set_nodelay(true)?;
    let mut stream = acceptor.accept(socket).await?;
    stream.get_mut().1.set_buffer_limit(Some(4 * PIECE));
    let mut head = Vec::new();
    loop {
        head.clear();
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        }
        let path = std::str::from_utf8(&head)?.split(' ').nth(1).unwrap_or("/").trim_start_matches('/');
        let found = memory.get(folder, path);
        let (status, bytes) = found.map_or((404, Rc::default()), |bytes| (200, bytes));
        write!(stream.get_mut().1.writer(), "HTTP/1.1 {status} \r\ncontent-length: {}\r\n\r\n", bytes.len())?;
        for piece in bytes.chunks(PIECE) {
            stream.get_mut().1.writer().write_all(piece)?;
            stream.flush().await?;
        }
        stream.flush().await?;
    }
}
