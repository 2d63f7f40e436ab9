//! Settings of a delivery server.

use std::path::PathBuf;
use std::time::Duration;

use ::settings::section;

section! {
    /// The web server for viewers.
    "deliver" Settings {
        /// The address to listen on. Port 0 takes any free port.
        listen: String = "127.0.0.1:8443".to_owned();
        /// Whether viewers speak TLS. Without it the server speaks plain HTTP/1.1, for a proxy in front that speaks TLS.
        tls: bool = true, range [true or false];
        /// The file with the certificate chain (PEM), the server's own certificate first. [`Server::reload`](crate::Server::reload) reads
        /// it again. Empty: a certificate that the server makes at its start, which players must be told to accept.
        certificate: PathBuf = PathBuf::new();
        /// The file with the private key (PEM).
        private_key: PathBuf = PathBuf::new();
        /// Threads that serve viewers. Each takes one core under load. 0: one for each core.
        threads: usize = 0, range [at least 0];
        /// The most connections. Where no place is free, a connection that has not asked for a stream yet makes room. Each takes a descriptor, the state of TLS and of a request, and at most 136 KiB more while its viewer is
        /// slower than its answer.
        max_connections: usize = 10_000, range [at least 0];
        /// The most connections of one address. 0: three quarters of `max_connections`, so that others get in. Those of `proxies` may have all.
        /// IPv6 addresses count by their first 64 bits, here and below.
        max_connections_per_address: usize = 0, range [at least 0];
        /// The requests per second of one address, for which a connection counts ten times; 0 is no limit. Two seconds' requests may come
        /// at once; what is more gets the status 429. A player asks once or twice for each part or segment.
        max_requests_per_address: u32 = 0, range [at least 0];
        /// The addresses and networks of reverse proxies, as `127.0.0.1` or `10.0.0.0/8`, whose field `X-Forwarded-For` says which address asks.
        /// Of others the field is ignored.
        proxies: Vec<String> = Vec::new();
        /// The most viewers of one stream; others get the status 503.
        max_viewers_per_stream: usize = 100_000, range [at least 0];
        /// The bytes per second that a viewer must take. A slower one is disconnected, after five seconds of grace.
        min_bytes_per_second: u64 = 10_000, "bytes", range [at least 0];
        /// How long a stream stays after its end, in its target durations: viewers who are behind take the rest, and learn of the end.
        keep_ended: u32 = 5, range [at least 0];
        /// How long a stream whose source is gone, and did not end it, waits for a return before it ends.
        linger_ms: u64 = 30_000, "ms", range [at least 0];
        /// The folders of recorders, whose recordings are played back below `/vod`.
        kept: Vec<PathBuf> = Vec::new();
        /// The key of viewers' tokens ([`token::sign`](crate::token::sign)). Empty: everybody may watch.
        token_key: String = String::new();
    }
}

/// How long a server waits. No configuration changes it.
#[derive(Debug, Clone)]
pub struct Patience {
    /// How long the TLS handshake and the head of a request may take.
    pub head: Duration,
    /// How long a connection may be without a request.
    pub idle: Duration,
    /// How long after its start the server answers requests for unknown streams with 503 instead of 404: the nodes that send them
    /// connect again, and players come back that do not try again after a 404.
    pub settle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { head: Duration::from_secs(10), idle: Duration::from_secs(60), settle: Duration::from_secs(10) }
    }
}

/// The time that a viewer has for a piece, whatever its rate.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

impl Settings {
    /// How long a viewer may take for so many bytes.
    pub(crate) fn time_for(&self, bytes: usize) -> Duration {
        GRACE + Duration::from_secs_f64(bytes as f64 / self.min_bytes_per_second.max(1) as f64)
    }

    /// The key of viewers' tokens, if there is one.
    pub(crate) fn token_key(&self) -> Option<&[u8]> {
        Some(self.token_key.as_bytes()).filter(|key| !key.is_empty())
    }
}
