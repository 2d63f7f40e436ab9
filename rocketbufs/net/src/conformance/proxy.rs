//! A TCP proxy that passes a stream on in small pieces, so that a receiver sees it cut at every byte.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rocketring::sync::{AtomicBool, Ordering};

use super::random::Random;

/// A listener in front of another one. Its threads end with the connections and when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Passes connections on to `target`; no write is larger than `max_write` and no read larger than a random size
    /// up to `max_read`. Both at least 1.
    pub fn new(target: SocketAddr, max_write: usize, max_read: usize) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let acceptor = thread::spawn(move || {
            for (seed, client) in listener.incoming().enumerate() {
                if flag.load(Ordering::Acquire) {
                    return;
                }
                if let (Ok(client), Ok(server)) = (client, TcpStream::connect(target)) {
                    join(client, server, max_write, max_read, seed as u64, &flag);
                }
            }
        });
        Ok(Self { address, stop, acceptor: Some(acceptor) })
    }

    /// Where to connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the acceptor, which then sees the flag.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn join(
    client: TcpStream,
    server: TcpStream,
    max_write: usize,
    max_read: usize,
    seed: u64,
    stop: &Arc<AtomicBool>,
) {
    for (from, to) in [(&client, &server), (&server, &client)] {
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
        let stop = stop.clone();
        thread::spawn(move || pass(from, to, max_write, max_read, Random::new(seed), &stop));
    }
}

/// Passes one direction on until it ends; the end is passed on, too.
fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    max_write: usize,
    max_read: usize,
    mut random: Random,
    stop: &AtomicBool,
) {
    let _ = to.set_nodelay(true);
    // So that a silent connection notices that the proxy is gone.
    let _ = from.set_read_timeout(Some(Duration::from_millis(50)));
    let mut buffer = vec![0; max_read];
    while !stop.load(Ordering::Acquire) {
        let wanted = 1 + random.below(max_read as u64) as usize;
        let n = match from.read(&mut buffer[..wanted]) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => {
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        };
        for piece in buffer[..n].chunks(max_write) {
            if to.write_all(piece).is_err() {
                let _ = from.shutdown(Shutdown::Both);
                return;
            }
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
