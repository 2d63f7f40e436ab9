//! Viewers: TLS connections on a few threads, which take each part as soon as it is there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use commands::Failure;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::node::NAME;

/// How viewers ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Asking {
    /// Not at all: the bare loop sends what comes
    Nothing,
    /// For each segment, after a playlist that waits for it
    Segments,
    /// For each part, after a playlist that waits for it
    Parts,
}

/// The sums of all viewers so far.
#[derive(Debug, Default)]
pub struct Tally {
    pub connected: AtomicUsize,
    pub bytes: AtomicU64,
    pub requests: AtomicU64,
    pub failed: AtomicUsize,
    /// Parts that were written.
    pub produced: AtomicU64,
    pub stopped: AtomicBool,
}

impl Tally {
    /// Waits until so many viewers are connected.
    pub fn wait_connected(&self, viewers: usize) {
        while self.connected.load(Ordering::Relaxed) < viewers {
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The viewers that are started.
#[derive(Debug, Clone, Copy)]
pub struct Viewers {
    pub count: usize,
    pub threads: usize,
    pub asking: Asking,
    /// The parts of a segment.
    pub parts: u32,
}

/// Starts viewers on threads of their own.
pub fn start(
    addr: SocketAddr,
    config: &ClientConfig,
    viewers: Viewers,
    tally: &Arc<Tally>,
) -> Result<Vec<JoinHandle<()>>, Failure> {
    let Viewers { count, threads, asking, parts } = viewers;
    let config = Arc::new(config.clone());
    let mut all = Vec::new();
    for thread in 0..threads {
        let own = count / threads + usize::from(thread < count % threads);
        let (config, tally) = (config.clone(), tally.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = move || {
            runtime.block_on(async {
                let tasks: Vec<_> = (0..own)
                    .map(|_| tokio::spawn(viewer(addr, config.clone(), asking, parts, tally.clone())))
                    .collect();
                for task in tasks {
                    let failed = !matches!(task.await, Ok(Ok(())));
                    tally.failed.fetch_add(usize::from(failed), Ordering::Relaxed);
                }
            });
        };
        all.push(std::thread::Builder::new().name("viewers".into()).spawn(run)?);
    }
    Ok(all)
}

async fn viewer(
    addr: SocketAddr,
    config: Arc<ClientConfig>,
    asking: Asking,
    parts: u32,
    tally: Arc<Tally>,
) -> std::io::Result<()> {
    let socket = TcpStream::connect(addr).await?;
    socket.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").map_err(std::io::Error::other)?;
    let mut stream = TlsConnector::from(config).connect(name, socket).await?;
    tally.connected.fetch_add(1, Ordering::Relaxed);
    let mut buffer = vec![0; 32 << 10];
    if asking == Asking::Nothing {
        loop {
            let count = stream.read(&mut buffer).await?;
            if count == 0 || tally.stopped.load(Ordering::Relaxed) {
                return Ok(());
            }
            tally.bytes.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
    let parts = u64::from(parts);
    let mut next = tally.produced.load(Ordering::Relaxed).next_multiple_of(parts);
    while !tally.stopped.load(Ordering::Relaxed) {
        let (sequence, part) = (next / parts, next % parts);
        let (playlist, media) = match asking {
            Asking::Parts => {
                next += 1;
                (format!("media.m3u8?_HLS_msn={sequence}&_HLS_part={part}"), format!("{sequence}.{part}.m4s"))
            }
            _ => {
                next += parts;
                (format!("media.m3u8?_HLS_msn={sequence}"), format!("{sequence}.m4s"))
            }
        };
        get(&mut stream, &mut buffer, &playlist, &tally).await?;
        let bytes = get(&mut stream, &mut buffer, &media, &tally).await?;
        tally.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Asks, takes the whole answer, and returns the length of its body.
async fn get(
    stream: &mut TlsStream<TcpStream>,
    buffer: &mut [u8],
    path: &str,
    tally: &Tally,
) -> std::io::Result<usize> {
    let request =
        format!("GET /live/{NAME}/1/{path} HTTP/1.1\r\nhost: localhost\r\nuser-agent: live-bench\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut filled = 0;
    let (head, length) = loop {
        let count = stream.read(&mut buffer[filled..]).await?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        filled += count;
        if let Some(end) = buffer[..filled].windows(4).position(|own| own == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&buffer[..end]).into_owned();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            match length.and_then(|own| own.parse::<usize>().ok()) {
                Some(length) if text.starts_with("HTTP/1.1 200") => break (end + 4, length),
                _ => return Err(std::io::Error::other(format!("{path}: {text}"))),
            }
        }
    };
    let mut got = filled - head;
    while got < length {
        let count = stream.read(buffer).await?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        got += count;
    }
    tally.requests.fetch_add(1, Ordering::Relaxed);
    Ok(got)
}
