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
    /// The most connections. Each takes a descriptor, the state of TLS and of a request, and at most 136 KiB more while its viewer is
    /// slower than its answer.
    pub max_connections: usize,
    /// The most connections of one address. Viewers behind one proxy share an address. IPv6 addresses count by their first 64 bits, here and
    /// below.
    pub max_connections_per_address: usize,
    /// The requests per second of one address, for which a connection counts ten times; 0 is no limit. Two seconds' requests may come at
    /// once; what is more gets the status 429. A player asks once or twice for each part or segment; viewers behind one proxy share
    /// an address.
    pub max_requests_per_address: u32,
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
    /// How long a stream whose source is gone, and did not end it, waits for a return before it ends.
    pub linger: Duration,
    /// How long after its start the server answers requests for unknown streams with 503 instead of 404: the nodes that send them
    /// connect again, and players come back that do not try again after a 404.
    pub settle: Duration,
    /// The folders of recorders, whose recordings are played back below `/vod`.
    pub kept: Vec<PathBuf>,
    /// The key of viewers' tokens ([`token::sign`](crate::token::sign)); `None`: everybody may watch.
    pub token_key: Option<Vec<u8>>,
}

/// The time that a viewer has for a piece, whatever its rate.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

impl Settings {
    /// How long a viewer may take for so many bytes.
    pub(crate) fn time_for(&self, bytes: usize) -> Duration {
        GRACE + Duration::from_secs_f64(bytes as f64 / self.min_bytes_per_second.max(1) as f64)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8443".into(),
            tls: Tls::SelfSigned(vec!["localhost".into(), "127.0.0.1".into()]),
            threads: std::thread::available_parallelism().map_or(1, Into::into),
            max_connections: 10_000,
            max_connections_per_address: 10_000,
            max_requests_per_address: 0,
            max_viewers_per_stream: 100_000,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            min_bytes_per_second: 10_000,
            keep_ended: 5,
            linger: Duration::from_secs(30),
            settle: Duration::from_secs(10),
            kept: Vec::new(),
            token_key: None,
        }
    }
}
