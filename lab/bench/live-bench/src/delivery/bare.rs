//! The bare loop: one thread that encrypts each part for each connection, from the same memory, and writes it. The loop
//! reads no request, has no playlists and no limits.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use commands::Failure;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustls::{ServerConfig, ServerConnection};

use super::records::{OVERHEAD, PLAIN, Sealer};

/// Bytes that are encrypted and written at once.
const PIECE: usize = 128 << 10;

struct Viewer {
    socket: TcpStream,
    sealer: Sealer,
    /// The part that is being sent, and how much of it is sealed.
    part: Option<(Arc<Vec<u8>>, usize)>,
    /// Sealed bytes that the socket did not take.
    rest: Vec<u8>,
}

/// The loop, as long as `parts` exists.
pub struct Bare {
    pub address: SocketAddr,
    pub parts: SyncSender<Arc<Vec<u8>>>,
}

impl Bare {
    /// Starts the loop for `count` viewers.
    pub fn start(config: ServerConfig, count: usize) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (parts, receiver) = sync_channel(4);
        std::thread::Builder::new().name("bare".into()).spawn(move || {
            if let Err(Failure::Failed(why)) = serve(&listener, &Arc::new(config), count, &receiver) {
                eprintln!("the bare loop ended: {why}");
            }
        })?;
        Ok(Self { address, parts })
    }
}

fn serve(
    listener: &TcpListener,
    config: &Arc<ServerConfig>,
    count: usize,
    parts: &Receiver<Arc<Vec<u8>>>,
) -> Result<(), Failure> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut viewers = Vec::with_capacity(count);
    for index in 0..count {
        let viewer = accept(listener, config.clone())?;
        let events = epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&epoll, &viewer.socket, epoll::EventData::new_u64(index as u64), events)?;
        viewers.push(viewer);
    }
    let mut scratch = vec![0; PIECE + PIECE / PLAIN * OVERHEAD];
    let mut waiting = 0;
    loop {
        let part = match (waiting, parts.try_recv()) {
            (_, Ok(part)) => Some(part),
            (0, _) => match parts.recv_timeout(Duration::from_secs(60)) {
                Ok(part) => Some(part),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => None,
            },
            _ => None,
        };
        if let Some(part) = part {
            for viewer in &mut viewers {
                if viewer.part.is_some() {
                    return Err(Failure::Failed("a viewer is behind by a part".into()));
                }
                viewer.part = Some((part.clone(), 0));
                waiting += usize::from(!viewer.send(&mut scratch)?);
            }
        }
        if waiting > 0 {
            let mut events = Vec::with_capacity(256);
            let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            epoll::wait(&epoll, spare_capacity(&mut events), Some(&moment))?;
            for event in events {
                let viewer = &mut viewers[event.data.u64() as usize];
                if viewer.part.is_some() {
                    waiting -= usize::from(viewer.send(&mut scratch)?);
                }
            }
        }
    }
}

fn accept(listener: &TcpListener, config: Arc<ServerConfig>) -> Result<Viewer, Failure> {
    let (mut socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    let mut tls = ServerConnection::new(config)?;
    while tls.is_handshaking() || tls.wants_write() {
        tls.complete_io(&mut socket)?;
    }
    socket.set_nonblocking(true)?;
    let (sequence, secrets) = tls.dangerous_extract_secrets()?.tx;
    Ok(Viewer { socket, sealer: Sealer::new(sequence, secrets)?, part: None, rest: Vec::new() })
}

impl Viewer {
    /// Sends as much as the socket takes. Returns whether the part is sent.
    fn send(&mut self, scratch: &mut [u8]) -> Result<bool, Failure> {
        let Some((part, mut at)) = self.part.take() else { return Ok(true) };
        loop {
            while !self.rest.is_empty() {
                match self.socket.write(&self.rest) {
                    Ok(count) => drop(self.rest.drain(..count)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.part = Some((part, at));
                        return Ok(false);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            if at == part.len() {
                self.rest = Vec::new();
                return Ok(true);
            }
            let to = part.len().min(at + PIECE);
            let size = self.sealer.seal(&part[at..to], scratch)?;
            at = to;
            let written = match self.socket.write(&scratch[..size]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                written => written?,
            };
            self.rest.extend_from_slice(&scratch[written..size]);
        }
    }
}
