//! Settings of the ingest servers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ::settings::{millis, section};
use aws_lc_rs::{constant_time, digest};
use serde::{Deserialize, Serialize};

use crate::hook::HookSettings;
use crate::ladder::LadderRule;

/// Settings of the ingest servers: addresses, publishers' keys, limits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IngestSettings {
    /// The address for RTMP, as `0.0.0.0:1935`. Empty: none.
    pub rtmp: String,
    /// The address for RTMP over TLS. Empty: none. Needs `certificate` and `private_key`.
    pub rtmps: String,
    /// The address for HTTP PUT and POST. Empty: none.
    pub http: String,
    /// The address for HTTPS PUT and POST. Empty: none. Needs `certificate` and `private_key`.
    pub https: String,
    /// The file with the certificate chain (PEM).
    pub certificate: PathBuf,
    /// The file with the private key (PEM).
    pub private_key: PathBuf,
    /// Stream keys by the name of the stream; the key of `*` opens every stream. Without keys, users and a hook whoever connects may publish.
    pub keys: BTreeMap<String, String>,
    /// Users with passwords, by name.
    pub users: BTreeMap<String, User>,
    /// The addresses and networks of reverse proxies in front of `http` and `https`, whose field `X-Forwarded-For` says which address publishes.
    /// Default: none.
    pub proxies: Vec<String>,
    /// A web-hook that is asked before somebody publishes, after keys and users.
    pub hook: HookSettings,
    /// Whether a second publisher of a stream takes the first one's place. Default: false, the second one is refused.
    pub takeover: bool,
    /// The duration of segments in milliseconds, if key frames allow it. Default: 2000.
    #[serde(deserialize_with = "millis")]
    pub segment_ms: u32,
    /// The longest part in milliseconds. Default: 300. Small: low latency, more requests.
    #[serde(deserialize_with = "millis")]
    pub part_ms: u32,
    /// How long a stream waits for the return of its publisher, in milliseconds, before it ends. Default: 10,000.
    #[serde(deserialize_with = "millis")]
    pub linger_ms: u64,
    /// Streams that are renditions of one stream for viewers.
    pub ladders: Vec<LadderRule>,
    /// The names of streams, as viewers know them, whose files of MPEG-TS pass as they come, where `*` stands for any characters. Such a
    /// stream takes nothing else; it has no parts, so its latency is that of whole segments, no poster and no DASH manifest. Default: none.
    pub passthrough: Vec<String>,
    /// Limits.
    pub limits: IngestLimits,
}

/// A user who may publish.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// The hash of the password, as `rblive password` prints it: a PHC string of argon2id.
    pub password: String,
    /// The names of the streams that the user may publish, where `*` stands for any characters. Default: all.
    #[serde(default = "all")]
    pub streams: Vec<String>,
}

fn all() -> Vec<String> {
    vec!["*".to_owned()]
}

section! {
    /// How much encoders may send.
    "ingest.limits" IngestLimits {
        /// The most connections of all servers together. Default: 2000. Where all are taken, a connection that has not published yet makes
        /// room for a new one.
        connections: usize = 2000, range [at least 0];
        /// The most connections of one address. 0: three quarters of `connections`, so that others get in. Those of `proxies` may have all. Of
        /// an IPv6 address the first 64 bits count. Default: 0.
        connections_per_address: usize = 0, range [at least 0];
        /// The largest RTMP message or frame in bytes. Default: 8 MiB.
        message_bytes: usize = 8 << 20, "bytes", range [at least 0];
        /// The largest body of a request in bytes. Default: 64 MiB.
        body_bytes: usize = 64 << 20, "bytes", range [at least 0];
        /// The most bytes that a publisher may send in a second, as an average over ten. Default: 25,000,000 (200 Mbit/s).
        bytes_per_second: u64 = 25_000_000, "bytes", range [at least 0];
        /// How long a peer may send nothing, and how long an RTMP peer may take until it publishes, in milliseconds. Default: 15,000.
        idle_ms: u64 = 15_000, "ms", range [at least 0];
        /// Failed attempts to publish of one address, without a minute between them; others are refused for a minute then. Of an IPv6
        /// address the first 64 bits count. 0: no limit. Default: 20.
        failed_attempts: u32 = 20, range [at least 0];
    }
}

impl Default for IngestSettings {
    fn default() -> Self {
        Self {
            rtmp: String::new(),
            rtmps: String::new(),
            http: String::new(),
            https: String::new(),
            certificate: PathBuf::new(),
            private_key: PathBuf::new(),
            keys: BTreeMap::new(),
            users: BTreeMap::new(),
            proxies: Vec::new(),
            hook: HookSettings::default(),
            takeover: false,
            segment_ms: 2000,
            part_ms: 300,
            linger_ms: 10_000,
            ladders: Vec::new(),
            passthrough: Vec::new(),
            limits: IngestLimits::default(),
        }
    }
}

/// Without the keys, which do not belong into logs.
impl std::fmt::Debug for IngestSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses = [&self.rtmp, &self.rtmps, &self.http, &self.https];
        f.debug_struct("IngestSettings")
            .field("addresses", &addresses)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl IngestSettings {
    /// Whether this key opens this stream. The comparison takes as long for a wrong key as for the right one.
    pub(crate) fn opens(&self, stream: &str, key: Option<&str>) -> bool {
        let key = key.unwrap_or("").as_bytes();
        let mut open = false;
        for name in [stream, "*"] {
            open |= self.keys.get(name).is_some_and(|expected| same(expected.as_bytes(), key));
        }
        open
    }
}

/// Compares without stopping at the first difference.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    // Digests have one length, so that the comparison tells nothing of the lengths either.
    let digest = |bytes| digest::digest(&digest::SHA256, bytes);
    !a.is_empty() && constant_time::verify_slices_are_equal(digest(a).as_ref(), digest(b).as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_bytes_are_the_same() {
        assert!(same(b"a", b"a"));
        for (a, b) in [(&b""[..], &b""[..]), (b"a", b"b"), (b"a", b"aa"), (b"", b"a")] {
            assert!(!same(a, b));
        }
    }

    #[test]
    fn a_key_opens_its_stream_only() {
        let keys =
            [("a", "one"), ("*", "all"), ("b", "")].map(|(name, key)| (name.to_owned(), key.to_owned()));
        let settings = IngestSettings { keys: keys.into(), ..IngestSettings::default() };
        assert!(settings.opens("a", Some("one")) && settings.opens("c", Some("all")));
        for (stream, key) in
            [("a", Some("on")), ("a", None), ("b", Some("")), ("c", Some("one")), ("a", Some("onf"))]
        {
            assert!(!settings.opens(stream, key), "{stream} {key:?}");
        }
        assert!(!format!("{settings:?}").contains("one"));
    }
}
