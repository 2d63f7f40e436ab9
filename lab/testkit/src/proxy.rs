//! A proxy between clients and the broker whose connections can be cut, or lost silently.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Passes bytes both ways; [`Proxy::cut`] ends all connections, and refuses new ones until [`Proxy::restore`]. Bytes under way are lost, as
/// if a cable were pulled and both ends noticed.
pub struct Proxy {
    /// Where clients connect.
    pub addr: String,
    shared: Arc<Shared>,
}

struct Shared {
    open: Mutex<Vec<TcpStream>>,
    refusing: AtomicBool,
    /// Nothing is passed, not even that an end closed.
    silent: AtomicBool,
    stop: AtomicBool,
    passed: AtomicU64,
    connections: AtomicU64,
    /// Bytes of clients after which no more of them are passed.
    stalls_after: AtomicU64,
    from_clients: AtomicU64,
    /// Bytes of clients are not passed on later connections.
    last_served: AtomicU64,
    /// Bytes of a client on such a connection are held back.
    holds: AtomicBool,
}

impl Proxy {
    /// Starts a proxy to this address, on a free port of the loopback.
    ///
    /// # Panics
    /// There is no free port.
    pub fn to(broker: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("an address").to_string();
        let shared = Arc::new(Shared {
            open: Mutex::default(),
            refusing: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            passed: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            stalls_after: AtomicU64::new(u64::MAX),
            from_clients: AtomicU64::new(0),
            last_served: AtomicU64::new(u64::MAX),
            holds: AtomicBool::new(false),
        });
        let (accepting, broker) = (shared.clone(), broker.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.stop.load(Ordering::Acquire) {
                    return;
                }
                if accepting.refusing.load(Ordering::Acquire) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&broker) else { continue };
                if accepting.opens(&client, &server) {
                    let number = accepting.connections.fetch_add(1, Ordering::AcqRel) + 1;
                    pass(&accepting, &client, &server, Some(number));
                    pass(&accepting, &server, &client, None);
                }
            }
        });
        Self { addr, shared }
    }

    /// The forwarded bytes so far, in both directions.
    pub fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::Acquire)
    }

    /// Connections made so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Acquire)
    }

    /// Ends all connections, and refuses new ones.
    pub fn cut(&self) {
        let mut open = self.shared.open.lock().expect("no panic");
        self.shared.refusing.store(true, Ordering::Release);
        end(&mut open);
    }

    /// Ends all connections that there are. New ones are passed on.
    pub fn interrupt(&self) {
        end(&mut self.shared.open.lock().expect("no panic"));
    }

    /// As where a machine vanishes: from now on nothing is passed on any connection, none is closed, and new ones are
    /// refused.
    pub fn vanish(&self) {
        self.shared.refusing.store(true, Ordering::Release);
        self.shared.silent.store(true, Ordering::Release);
    }

    /// Passes `bytes` more from clients and holds the rest back, until [`Proxy::go_on`].
    pub fn stall_after(&self, bytes: u64) {
        let passed = self.shared.from_clients.load(Ordering::Acquire);
        self.shared.stalls_after.store(passed + bytes, Ordering::Release);
    }

    /// Holds back all that clients send on connections after the first `connections`, until [`Proxy::go_on`].
    pub fn stall_beyond(&self, connections: u64) {
        self.shared.last_served.store(connections, Ordering::Release);
    }

    /// Passes what is held back, and everything from now on.
    pub fn go_on(&self) {
        self.shared.last_served.store(u64::MAX, Ordering::Release);
        self.shared.holds.store(false, Ordering::Release);
        self.shared.stalls_after.store(u64::MAX, Ordering::Release);
    }

    /// Whether something is held back.
    pub fn is_stalled(&self) -> bool {
        self.shared.holds.load(Ordering::Acquire)
            || self.shared.from_clients.load(Ordering::Acquire)
                >= self.shared.stalls_after.load(Ordering::Acquire)
    }

    /// Accepts connections again.
    pub fn restore(&self) {
        self.shared.refusing.store(false, Ordering::Release);
    }
}

fn end(open: &mut Vec<TcpStream>) {
    for stream in open.drain(..) {
        // The stream may be closed already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Passes the bytes of a client on the connection of this number, or those of the server.
fn pass(shared: &Arc<Shared>, from: &TcpStream, to: &TcpStream, of_client: Option<u64>) {
    let (mut from, mut to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
    // Fails if the connection has ended already.
    let _ = to.set_nodelay(true);
    let shared = shared.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        'open: while let Ok(n @ 1..) = from.read(&mut buffer) {
            let mut rest = &buffer[..n];
            shared.wait_while_silent();
            while !rest.is_empty() {
                let now = of_client.map_or(rest.len(), |number| shared.may_pass(number, rest.len()));
                if now == 0 {
                    if shared.refusing.load(Ordering::Acquire) {
                        break 'open;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                shared.passed.fetch_add(now as u64, Ordering::AcqRel);
                if to.write_all(&rest[..now]).is_err() {
                    break 'open;
                }
                rest = &rest[now..];
            }
        }
        shared.wait_while_silent();
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

impl Shared {
    /// Registers a connection, which can be cut from then on, before it forwards bytes. False if the proxy refuses connections.
    fn opens(&self, client: &TcpStream, server: &TcpStream) -> bool {
        let mut open = self.open.lock().expect("no panic");
        let opens = !self.refusing.load(Ordering::Acquire);
        if opens {
            open.extend([client, server].map(|socket| socket.try_clone().expect("a socket")));
        }
        opens
    }

    fn wait_while_silent(&self) {
        while self.silent.load(Ordering::Acquire) && !self.stop.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How many of `bytes` of a client may be passed now; they count as passed.
    fn may_pass(&self, connection: u64, bytes: usize) -> usize {
        if connection > self.last_served.load(Ordering::Acquire) {
            self.holds.store(true, Ordering::Release);
            return 0;
        }
        let left = self
            .stalls_after
            .load(Ordering::Acquire)
            .saturating_sub(self.from_clients.load(Ordering::Acquire));
        let now = (bytes as u64).min(left);
        self.from_clients.fetch_add(now, Ordering::AcqRel);
        now as usize
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.cut();
        // Wakes the thread that accepts.
        if let Ok(addr) = self.addr.parse() {
            let _ = TcpStream::connect_timeout(&addr, Duration::from_secs(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_connection_can_be_made_again() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::to(&server.local_addr().unwrap().to_string());
        for _ in 0..2 {
            let mut client = TcpStream::connect(&proxy.addr).unwrap();
            client.write_all(b"x").unwrap();
            let (mut accepted, _) = server.accept().unwrap();
            accepted.read_exact(&mut [0]).unwrap();
            proxy.interrupt();
            assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
            assert!(matches!(accepted.read(&mut [0]), Ok(0) | Err(_)));
        }
    }
}
