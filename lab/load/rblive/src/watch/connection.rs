//! A viewer's connection: HTTP/1.1 by own code, HTTP/2 by hyper.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::Origin;
use super::answer::{Answer, Body, Head};
use super::fault::Fault;
use super::tls::Tls;

/// Memory of a thread for what arrives: many TLS records in one call.
const SCRATCH: usize = 256 << 10;
/// The bytes that the server may send over HTTP/2 before it waits for the viewer.
const WINDOW: u32 = 1 << 20;

thread_local! {
    static READ: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH]);
}

/// The version of HTTP that viewers speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Version {
    #[value(name = "1.1")]
    Http1,
    #[value(name = "2")]
    Http2,
}

impl Version {
    /// Its name in TLS.
    pub fn protocol(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// How viewers connect.
#[derive(Debug, Clone)]
pub struct Dialer {
    pub version: Version,
    pub tls: Arc<ClientConfig>,
    /// How long a connection or an answer may take.
    pub patience: Duration,
}

/// A connection to a server.
pub enum Connection {
    Http1(Box<Http1>),
    Http2(SendRequest<Empty<Bytes>>),
}

impl Dialer {
    /// Connects, TLS included.
    pub async fn connect(&self, origin: &Origin) -> Result<Connection, Fault> {
        let connecting = self.dial(origin);
        match tokio::time::timeout(self.patience, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(Fault::connection(format!("no connection to {origin} within {:?}", self.patience))),
        }
    }

    async fn dial(&self, origin: &Origin) -> Result<Connection, Fault> {
        let failed = |error: io::Error| Fault::connection(format!("no connection to {origin}: {error}"));
        let stream = TcpStream::connect((&origin.host[..], origin.port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        if self.version == Version::Http2 {
            return self.http2(origin, stream).await.map(Connection::Http2);
        }
        let tls = if origin.tls { Some(Tls::new(self.tls.clone(), &origin.host)?) } else { None };
        let mut connection = Http1 { stream, tls, partial: Vec::new() };
        connection.handshake().await?;
        Ok(Connection::Http1(Box::new(connection)))
    }

    async fn http2(&self, origin: &Origin, stream: TcpStream) -> Result<SendRequest<Empty<Bytes>>, Fault> {
        if !origin.tls {
            return speak(stream).await;
        }
        let name = ServerName::try_from(origin.host.clone()).map_err(Fault::connection)?;
        let connector = TlsConnector::from(self.tls.clone());
        let stream = connector.connect(name, stream).await.map_err(Fault::connection)?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(Fault::connection(format!("{origin} does not speak HTTP/2")));
        }
        speak(stream).await
    }
}

/// Begins HTTP/2. A task of its own moves the frames.
async fn speak<S>(stream: S) -> Result<SendRequest<Empty<Bytes>>, Fault>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    let (sender, driver) = builder.handshake(TokioIo::new(stream)).await.map_err(Fault::connection)?;
    // Its error is that of the request that waits for an answer.
    tokio::spawn(async move { drop(driver.await) });
    Ok(sender)
}

impl Connection {
    /// Fetches `target`. The answer's body goes to `body`.
    pub async fn get(
        &mut self,
        origin: &Origin,
        target: &str,
        cookie: Option<&str>,
        body: &mut Body,
        patience: Duration,
    ) -> Result<Head, Fault> {
        let fetching = async {
            match self {
                Self::Http1(connection) => connection.get(origin, target, cookie, body).await,
                Self::Http2(sender) => get2(sender, origin, target, cookie, body).await,
            }
        };
        match tokio::time::timeout(patience, fetching).await {
            Ok(answer) => answer,
            Err(_) => Err(Fault::connection(format!("no whole answer within {patience:?}"))),
        }
    }
}

async fn get2(
    sender: &mut SendRequest<Empty<Bytes>>,
    origin: &Origin,
    target: &str,
    cookie: Option<&str>,
    body: &mut Body,
) -> Result<Head, Fault> {
    let scheme = if origin.tls { "https" } else { "http" };
    let mut request = hyper::Request::get(format!("{scheme}://{origin}{target}"));
    if let Some(cookie) = cookie {
        request = request.header(hyper::header::COOKIE, cookie);
    }
    let request = request.body(Empty::new()).map_err(Fault::connection)?;
    sender.ready().await.map_err(Fault::connection)?;
    let mut response = sender.send_request(request).await.map_err(Fault::connection)?;
    let field = |name| response.headers().get(name).and_then(|own| own.to_str().ok()).map(str::to_owned);
    let cookie = field(hyper::header::SET_COOKIE);
    let head = Head {
        status: response.status().as_u16(),
        location: field(hyper::header::LOCATION),
        cookie: cookie.and_then(|own| own.split(';').next().map(str::to_owned)),
        keep: true,
    };
    while let Some(frame) = response.body_mut().frame().await {
        if let Ok(bytes) = frame.map_err(Fault::connection)?.into_data() {
            body.push(&bytes)?;
        }
    }
    Ok(head)
}

/// A connection that speaks HTTP/1.1.
pub struct Http1 {
    stream: TcpStream,
    tls: Option<Tls>,
    /// The beginning of a TLS record whose rest has not arrived.
    partial: Vec<u8>,
}

impl Http1 {
    async fn handshake(&mut self) -> Result<(), Fault> {
        while let Some(tls) = &mut self.tls {
            tls.take(&mut [], |_| Ok(()))?;
            self.flush().await?;
            if self.tls.as_ref().is_some_and(|tls| tls.ready) {
                return Ok(());
            }
            if !self.receive(|_| Ok(())).await? {
                return Err(Fault::connection("the server closed the connection within the TLS handshake"));
            }
        }
        Ok(())
    }

    async fn get(
        &mut self,
        origin: &Origin,
        target: &str,
        cookie: Option<&str>,
        body: &mut Body,
    ) -> Result<Head, Fault> {
        let cookie = cookie.map_or(String::new(), |own| format!("Cookie: {own}\r\n"));
        let request = format!("GET {target} HTTP/1.1\r\nHost: {origin}\r\n{cookie}\r\n");
        match &mut self.tls {
            Some(tls) => {
                tls.send(request.as_bytes())?;
                self.flush().await?;
            }
            None => write(&self.stream, request.as_bytes()).await?,
        }
        let mut answer = Answer::default();
        while !answer.is_done() {
            if !self.receive(|bytes| answer.push(bytes, body)).await? {
                answer.end()?;
            }
        }
        Ok(answer.head)
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let outgoing = std::mem::take(&mut tls.outgoing);
        write(&self.stream, &outgoing).await
    }

    /// Waits for bytes and passes them to `to`. False: the server has closed the connection.
    async fn receive(&mut self, mut to: impl FnMut(&[u8]) -> Result<(), Fault>) -> Result<bool, Fault> {
        loop {
            self.stream.readable().await.map_err(Fault::connection)?;
            match READ.with_borrow_mut(|memory| self.read(memory, &mut to)) {
                Ok(Some(open)) => {
                    self.flush().await?;
                    return Ok(open);
                }
                Ok(None) => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Reads the bytes that have arrived. `None`: none have.
    fn read(
        &mut self,
        memory: &mut [u8],
        to: &mut impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<Option<bool>, Fault> {
        let before = self.partial.len();
        memory[..before].copy_from_slice(&self.partial);
        let read = match self.stream.try_read(&mut memory[before..]) {
            Ok(0) => return Ok(Some(false)),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(Fault::connection(error)),
        };
        let arrived = &mut memory[..before + read];
        let Some(tls) = &mut self.tls else {
            to(arrived)?;
            return Ok(Some(true));
        };
        let taken = tls.take(arrived, to)?;
        self.partial.clear();
        if taken.bytes == arrived.len() {
            // A viewer between two segments needs no memory.
            self.partial = Vec::new();
        }
        self.partial.extend_from_slice(&arrived[taken.bytes..]);
        if self.partial.len() >= SCRATCH / 2 {
            return Err(Fault::connection("the server sends a TLS record without an end"));
        }
        Ok(Some(!taken.closed))
    }
}

async fn write(stream: &TcpStream, mut bytes: &[u8]) -> Result<(), Fault> {
    while !bytes.is_empty() {
        stream.writable().await.map_err(Fault::connection)?;
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(Fault::connection(error)),
        }
    }
    Ok(())
}
