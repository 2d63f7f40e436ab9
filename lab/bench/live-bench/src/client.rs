//! A blocking client with TLS for the measurements of latency and ingest.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use rblive_load::AcceptAll;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::failure::Result;

/// A connection, with or without TLS.
pub trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// Connects to `host:port`.
pub fn connect(address: &str, tls: bool) -> Result<Box<dyn Wire>> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    if !tls {
        return Ok(Box::new(socket));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    // The peers are this bench's own.
    let verifier = Arc::new(AcceptAll::new(provider));
    let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    let name = ServerName::try_from(address.rsplit_once(':').ok_or("an address has a port")?.0.to_owned())?;
    Ok(Box::new(StreamOwned::new(ClientConnection::new(Arc::new(config), name)?, socket)))
}

/// HTTP/1.1 on a connection.
pub struct Http(BufReader<Box<dyn Wire>>);

impl Http {
    pub fn connect(address: &str, tls: bool) -> Result<Self> {
        Ok(Self(BufReader::with_capacity(16 << 10, connect(address, tls)?)))
    }

    /// Sends a POST with this body, and says when its last byte was handed over.
    pub fn post(&mut self, path: &str, body: &[u8]) -> Result<Instant> {
        let wire = self.0.get_mut();
        write!(wire, "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {}\r\n\r\n", body.len())?;
        wire.write_all(body)?;
        wire.flush()?;
        Ok(Instant::now())
    }

    pub fn get(&mut self, path: &str) -> Result<()> {
        let wire = self.0.get_mut();
        write!(wire, "GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n")?;
        Ok(wire.flush()?)
    }

    /// Reads an answer.
    pub fn answer(&mut self) -> Result<Answer> {
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err("the server closed the connection".into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest.get(..3).unwrap_or("").parse()?;
            } else if let Some(rest) = line.strip_prefix("content-length:") {
                length = rest.trim().parse()?;
            } else if line.is_empty() {
                break;
            }
        }
        if length > 0 {
            self.0.fill_buf()?;
        }
        let first = Instant::now();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(Answer { status, first, body })
    }
}

/// An answer.
pub struct Answer {
    pub status: u16,
    /// When the first byte of its content came.
    pub first: Instant,
    pub body: Vec<u8>,
}
