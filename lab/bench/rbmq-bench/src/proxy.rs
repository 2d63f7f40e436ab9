//! A TCP proxy that can be cut: both sides of every connection end at once, and bytes in flight are lost, as if a cable were
//! pulled and both ends noticed.

use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// A listener that passes everything on.
pub struct Proxy {
    addr: String,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Forwards connections to `upstream`, until the process ends.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(upstream: &str) -> io::Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?.to_string();
        let sockets = Arc::new(Mutex::new(Vec::new()));
        let (known, upstream) = (Arc::clone(&sockets), upstream.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // Without a server upstream the client's connection ends, and the client tries again.
                let _ = join(client, &upstream, &known);
            }
        });
        Ok(Proxy { addr, sockets })
    }

    /// Where to connect.
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// Cuts every connection there is; new ones are passed on.
    pub fn cut(&self) {
        for socket in self.sockets.lock().expect("no holder panics").drain(..) {
            // Fails if it has ended already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn join(client: TcpStream, upstream: &str, known: &Mutex<Vec<TcpStream>>) -> io::Result<()> {
    let server = TcpStream::connect(upstream)?;
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
        known.lock().expect("no holder panics").push(socket.try_clone()?);
    }
    for (mut from, mut to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        thread::spawn(move || {
            // However it ends, both directions do.
            let _ = io::copy(&mut from, &mut to);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_cut_connection_can_be_made_again() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::start(&server.local_addr().unwrap().to_string()).unwrap();
        for _ in 0..2 {
            let mut client = TcpStream::connect(proxy.addr()).unwrap();
            client.write_all(b"x").unwrap();
            let (mut accepted, _) = server.accept().unwrap();
            accepted.read_exact(&mut [0]).unwrap();
            proxy.cut();
            assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
            assert!(matches!(accepted.read(&mut [0]), Ok(0) | Err(_)));
        }
    }
}
