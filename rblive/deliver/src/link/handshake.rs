//! The handshake of TLS on a socket.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use tls13::Handshake;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::connection::Link;

/// Bytes that are read at once: most first messages of clients fit.
const READ: usize = 2 << 10;

/// Makes the handshake. Returns the connection, and whether it is one of HTTP/2.
pub(crate) async fn accept(mut socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<(Link, bool)> {
    let mut own = Handshake::accept(config).map_err(io::Error::other)?;
    let mut got = Vec::with_capacity(READ);
    loop {
        let advanced = own.advance();
        // After a failure these bytes have its reason, for the client.
        let written = socket.write_all(own.waiting()).await;
        own.written(own.waiting().len());
        if advanced.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
            written?;
            break;
        }
        written?;
        got.clear();
        if socket.read_buf(&mut got).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        own.take(&got);
    }
    let established = own.finish_any().map_err(io::Error::other)?;
    let http2 = established.protocol.as_deref() == Some(b"h2");
    Ok((Link::secured(socket, established.session, established.rest), http2))
}
