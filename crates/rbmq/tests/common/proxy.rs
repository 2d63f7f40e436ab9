//! A proxy between clients and the broker whose connections can be cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Passes bytes both ways; [`Proxy::cut`] ends all connections, and refuses new ones until [`Proxy::restore`].
pub struct Proxy {
    pub addr: String,
    shared: Arc<Shared>,
}

struct Shared {
    open: Mutex<Vec<TcpStream>>,
    refusing: AtomicBool,
    stop: AtomicBool,
    passed: AtomicU64,
    connections: AtomicU64,
}

impl Proxy {
    pub fn to(broker: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("an address").to_string();
        let shared = Arc::new(Shared {
            open: Mutex::default(),
            refusing: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            passed: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        });
        let (accepting, broker) = (shared.clone(), broker.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.stop.load(Ordering::SeqCst) {
                    return;
                }
                if accepting.refusing.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&broker) else { continue };
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                pass(&accepting, &client, &server);
                pass(&accepting, &server, &client);
                accepting.open.lock().expect("no panic").extend([client, server]);
            }
        });
        Self { addr, shared }
    }

    /// Bytes that came through so far, both ways.
    pub fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::SeqCst)
    }

    /// Connections made so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    pub fn cut(&self) {
        self.shared.refusing.store(true, Ordering::SeqCst);
        for stream in self.shared.open.lock().expect("no panic").drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn restore(&self) {
        self.shared.refusing.store(false, Ordering::SeqCst);
    }
}

fn pass(shared: &Arc<Shared>, from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
    let shared = shared.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            shared.passed.fetch_add(n as u64, Ordering::SeqCst);
            if to.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the thread that accepts.
        if let Ok(addr) = self.addr.parse() {
            let _ = TcpStream::connect_timeout(&addr, Duration::from_secs(1));
        }
    }
}
