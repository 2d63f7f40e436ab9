//! The `[broker]` section.

use std::net::SocketAddr;
use std::time::Duration;

use settings::section;

use super::super::rules::{Rules, rounded};
use super::error::BrokerConfigError;
use super::ingest::{self, IngestSettings};
use super::upstream::{MAX_UPSTREAMS, UpstreamSettings};

section! {
    /// The `[broker]` section. Every field has a default; unknown names are refused.
    "broker" BrokerSettings {
        /// Address to listen on. Default `127.0.0.1:7411`. Without users (`users.file`), every client that reaches the address
        /// can publish and read everything.
        listen: String = "127.0.0.1:7411".into();
        /// Largest number of topics with a buffer. Default 10,000, at least 1. Too small: publishers are refused. A topic costs
        /// about 1 KiB besides the rings of its buffers.
        #[reloadable]
        max_topics: usize = 10_000, range [at least 1];
        /// Largest number of publishers that are connected, or disconnected for less than the linger time. Default 1,000, at
        /// least 1.
        #[reloadable]
        max_publishers: usize = 1_000, range [at least 1];
        /// Largest number of open buffers of one publisher. Default 1,024, at least 1. Too large: one publisher can use up all
        /// topics.
        #[reloadable]
        max_buffers_per_publisher: usize = 1_024, range [at least 1];
        /// Largest number of filters (names and patterns) of one subscriber. Default 10,000, at least 1. A filter costs about
        /// 500 bytes.
        #[reloadable]
        max_topics_per_subscriber: usize = 10_000, range [at least 1];
        /// Largest number of these filters with `+` or `#`. Default 1,000, at least 1. Too large: a new topic may have to be
        /// compared with all of them.
        #[reloadable]
        max_patterns_per_subscriber: usize = 1_000, range [at least 1];
        /// Largest number of connected observers (`rbmq top`). Default 16, at least 1. Too large: their requests can keep the
        /// broker's thread busy.
        #[reloadable]
        max_observers: usize = 16, range [at least 1];
        /// Largest number of waiting requests of one observer. Default 8, at least 1. An observer with more is disconnected. A
        /// request costs at most 16 KiB.
        max_observer_requests: usize = 8, range [at least 1];
        /// Smallest ring of a buffer, in bytes. Default 64 KiB. A publisher that asks for less gets this size. Small rings stop
        /// their publisher often.
        #[reloadable]
        min_ring_bytes: u64 = 64 << 10, "bytes", range [4096 to 1_099_511_627_776];
        /// Largest ring of a buffer, in bytes. Default 256 MiB, at least `min_ring_bytes` rounded up to a power of two. A
        /// publisher that asks for more is refused. The requested size is compared after it was rounded up to a power of two.
        /// `buffers.max_ring_bytes` limits the sum of all rings.
        #[reloadable]
        max_ring_bytes: u64 = 256 << 20, "bytes", range [4096 to 1_099_511_627_776];
        /// Largest message, in bytes. Default 64 MiB. A publisher need not announce it: the rings of the topic grow when such a message
        /// comes, here to twice its size, rounded up to a power of two, and at most to `max_ring_bytes`. A message whose ring would be larger is
        /// refused. All rings grow only up to three quarters of `buffers.max_ring_bytes`. Quotas on `ring_bytes` count what they grow by. The rings of
        /// spaces, and of kept topics with an archive, do not grow: messages have what fits into the ring that there is.
        #[reloadable]
        max_message_bytes: u64 = 64 << 20, "bytes", range [1 to 2_147_483_647];
        /// Time for which an ended topic stays readable, in milliseconds. Default 60,000. Too small: late subscribers find
        /// nothing. Too large: the memory of its ring is in use for this time.
        #[reloadable]
        closed_linger_ms: u64 = 60_000, "ms", range [at least 0];
        /// Other brokers whose topics this broker receives and forwards. Default none, at most 64.
        upstream: Vec<UpstreamSettings> = Vec::new();
        /// Messages that arrive over UDP at an interface and become messages of a topic (MultiMQC). Default none, at most 64.
        ingest: Vec<IngestSettings> = Vec::new();
        /// Time for which a stopping broker waits for its subscribers to receive everything, in milliseconds. Default 5,000.
        /// 0: the broker doesn't wait.
        #[reloadable]
        drain_timeout_ms: u64 = 5_000, "ms", range [at least 0];
        /// Ring of a merged topic (`ingest = "merge"`) whose rule has no `ring_bytes`, in bytes. Default 4 MiB, at least 64 KiB.
        /// The ring of one publisher has at most a quarter of this size. A subscriber needs half of it for the topic.
        #[reloadable]
        merge_ring_bytes: u64 = 4 << 20, "bytes", range [65_536 to 2_147_483_648];
        /// Ring for the arriving bytes of each publisher of a merged topic, in bytes. Default 32 KiB, at least 4 KiB. The ring
        /// becomes twice the publisher's largest delivery if that is more. Too small: publishers stop often. Too large: much
        /// memory for many publishers.
        #[reloadable]
        merge_publisher_ring_bytes: u64 = 32 << 10, "bytes", range [4096 to 2_147_483_648];
        /// Largest number of runs of a merged topic that some subscriber has not released. Default 65,536, at least 1. At the
        /// limit the topic's publishers wait. A run costs 24 bytes. Too small: slow subscribers of small messages stop the
        /// publishers early.
        #[reloadable]
        merge_table_entries: usize = 65_536, range [at least 1];
        /// Largest number of publishers of a merged topic: connected, ended less than `closed_linger_ms` ago, or gone and
        /// remembered. Default 10,000, at least 1. A publisher costs about 500 bytes besides its ring.
        #[reloadable]
        merge_max_publishers: usize = 10_000, range [at least 1];
        /// Folder for the topics that are kept on disk (`keep = true` in a rule). Default "": no topic can be kept. One broker uses a
        /// folder at a time.
        keep_dir: String = String::new();
        /// Time within which stored data of kept topics is on the disk, in milliseconds. Default 200, at least 1. A crash of the
        /// machine loses what was stored during this time, or the last 8 MiB; a crash of the broker loses nothing. Too small: the disk
        /// is synced very often. Too large: much can be lost. Publishers that wait for `synced` have it synced at once.
        keep_sync_ms: u64 = 200, "ms", range [1 to 3_600_000];
        /// Largest number of subscribers that read kept topics from the disk at the same time, counted for each topic; others wait for
        /// their turn. Default 256, at least 1. Each costs a ring of twice the topic's largest delivery (2 MiB with the default
        /// `merge_ring_bytes`).
        #[reloadable]
        max_replays: usize = 256, range [at least 1];
        /// Largest number of groups of workers (`rbmq sub --group`). Default 256, at least 1. Each costs about three descriptors, and the
        /// memory of its messages that are not done.
        max_groups: usize = 256, range [at least 1];
        /// Largest number of messages of a group that were read and are not done. Default 1,000,000, at least 1. Each costs at most 64
        /// bytes. Too small: workers wait where messages stay undone for long, or wait for others of their key.
        max_group_pending: usize = 1_000_000, range [1 to 10_000_000];
        /// Memory of the messages of all groups that were read and are not done, in bytes. Default 256 MiB, at least 1 MiB: 64 bytes for each,
        /// and for each key. Beyond it a group reads further only while it has less than 1,024. Too small: workers wait for others.
        max_group_pending_bytes: u64 = 256 << 20, "bytes", range [at least 1_048_576];
        /// Largest number of workers of all groups, and of consumers of each group of Redis. Default 1,024, at least 1. Each costs a ring, and about 30 bytes for each message that
        /// it has.
        max_group_workers: usize = 1024, range [at least 1];
        /// Rings of the workers of all groups together, in bytes. Default 1 GiB, at least 1 MiB. A ring has room for two of
        /// the topic's largest deliveries with their headers (4 MiB with the default `merge_ring_bytes`), and its memory is used when
        /// messages come. Too small: workers are refused until others go.
        max_group_ring_bytes: u64 = 1 << 30, "bytes", range [at least 1_048_576];
        /// Largest number of messages that a worker has at a time, whatever it asks for. Default 10,000, at least 1. Too small: fast workers
        /// wait. Too large: a worker that dies leaves many messages that come again late.
        max_group_credit: u32 = 10_000, range [at least 1];
        /// Rules of topics. The first rule whose pattern matches a topic applies. Default none, at most 1,000. A rule costs about
        /// 200 bytes, and one comparison for every new buffer.
        #[reloadable]
        topics: Rules = Rules::default();
    }
}

impl BrokerSettings {
    /// `closed_linger_ms` as a duration.
    pub fn closed_linger(&self) -> Duration {
        Duration::from_millis(self.closed_linger_ms)
    }

    /// `keep_sync_ms` as a duration.
    pub fn keep_sync(&self) -> Duration {
        Duration::from_millis(self.keep_sync_ms)
    }

    /// `drain_timeout_ms` as a duration.
    pub fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_timeout_ms)
    }

    pub(super) fn validate(&self) -> Result<(), BrokerConfigError> {
        let written = |name, address: &str| match is_address(address) {
            true => Ok(()),
            false => Err(BrokerConfigError::Word { name, value: address.to_owned(), expects: ADDRESS }),
        };
        written("broker.listen", &self.listen)?;
        self.upstream.iter().try_for_each(|up| written("broker.upstream.address", &up.address))?;
        let upstreams = self.upstream.len();
        if upstreams > MAX_UPSTREAMS {
            let (name, value, expects) = ("broker.upstream", upstreams as u64, "at most 64 entries");
            return Err(BrokerConfigError::Value { name, value, expects });
        }
        if rounded(self.min_ring_bytes) > self.max_ring_bytes {
            let (name, value) = ("broker.max_ring_bytes", self.max_ring_bytes);
            let expects = "min_ring_bytes, rounded up to a power of two, to 1099511627776 bytes";
            return Err(BrokerConfigError::Value { name, value, expects });
        }
        ingest::check(&self.ingest)?;
        if self.keep_dir.is_empty()
            && let Some(rule) = self.topics.iter().position(|rule| rule.keep)
        {
            let message = "keep = true needs a folder: set broker.keep_dir".to_owned();
            return Err(BrokerConfigError::Rule { rule, field: "keep", message });
        }
        self.topics.check(&(self.min_ring_bytes..=self.max_ring_bytes))
    }
}

/// The expected form of an address.
const ADDRESS: &str = "a host and a port; it is written host:port, 192.0.2.1:port or [2001:db8::1]:port";

/// Whether the text has the form of an address. The host is not looked up.
pub(super) fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Whether two sockets cannot listen on both addresses at once. Of host names only `localhost` is resolved.
pub(super) fn are_the_same(one: &str, other: &str) -> bool {
    let parse = |text: &str| text.replacen("localhost:", "127.0.0.1:", 1).parse::<SocketAddr>().ok();
    let (Some(one), Some(other)) = (parse(one), parse(other)) else { return false };
    let any = one.is_ipv4() == other.is_ipv4() && (one.ip().is_unspecified() || other.ip().is_unspecified());
    one.port() != 0 && one.port() == other.port() && (any || one.ip() == other.ip())
}
