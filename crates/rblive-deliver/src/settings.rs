//! Settings of a delivery server.

use std::path::PathBuf;
use std::time::Duration;

/// How a server proves its name to viewers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Tls {
    /// Plain HTTP/1.1, for a proxy in front that speaks TLS.
    Off,
    /// A certificate that the server makes for these names at its start. Players must be told to accept it.
    SelfSigned(Vec<String>),
    /// A certificate chain and a key in PEM files, which [`Server::reload`](crate::Server::reload) reads again.
    Files {
        /// The chain, the server's own certificate first.
        certificates: PathBuf,
        /// The private key.
        key: PathBuf,
    },
}

/// The settings of a delivery server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address to listen on. Port 0 takes any free port.
    pub listen: String,
    /// Certificates.
    pub tls: Tls,
    /// Threads that serve viewers. Each takes one core under load.
    pub threads: usize,
    /// The most connections. Each takes a descriptor, the state of TLS and of a request, and at most 256 KiB more while it sends.
    pub max_connections: usize,
    /// The most connections of one address. Viewers behind one proxy share an address.
    pub max_connections_per_address: usize,
    /// The most viewers of one stream; others get the status 503.
    pub max_viewers_per_stream: usize,
    /// How long the TLS handshake and the head of a request may take.
    pub head_timeout: Duration,
    /// How long a connection may be without a request.
    pub idle_timeout: Duration,
    /// The bytes per second that a viewer must take. A slower one is disconnected, after five seconds of grace.
    pub min_bytes_per_second: u64,
    /// How long a stream stays after its end, in its target durations: viewers who are behind take the rest, and learn of the end.
    pub keep_ended: u32,
    /// The key of viewers' tokens ([`token::sign`](crate::token::sign)); `None`: everybody may watch.
    pub token_key: Option<Vec<u8>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8443".into(),
            tls: Tls::SelfSigned(vec!["localhost".into(), "127.0.0.1".into()]),
            threads: std::thread::available_parallelism().map_or(1, Into::into),
            max_connections: 10_000,
            max_connections_per_address: 10_000,
            max_viewers_per_stream: 100_000,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            min_bytes_per_second: 10_000,
            keep_ended: 5,
            token_key: None,
        }
    }
}
