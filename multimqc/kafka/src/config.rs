//! The configuration of the level.

use std::time::Duration;

use rdkafka::ClientConfig;

/// The settings of a [`KafkaLevel`](crate::KafkaLevel).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaConfig {
    /// Addresses of brokers, `HOST:PORT` with commas between them. A single broker that answers is enough.
    pub brokers: String,
    /// The prefix of the names of Kafka's topics; default `multimqc`. Topic 7 is `multimqc-00007`.
    pub prefix: String,
    /// How many brokers keep each record, for topics that the level makes; default 1.
    pub replicas: i32,
    /// The most bytes that Kafka keeps of each topic that the level makes, about; default 1 GiB, none for no limit. Kafka removes
    /// whole segments of its own.
    pub retention_bytes: Option<u64>,
    /// The size of Kafka's own segments, for topics that the level makes; default 64 MiB, at least 1 MiB.
    pub segment_bytes: u64,
    /// How long a write or a read waits for Kafka; default 5 s. The level below must keep what arrives meanwhile (equation 1).
    pub timeout: Duration,
    /// The most bytes of a record; default 900 KB. Kafka refuses more than 1 MiB if it is not told otherwise. A larger batch becomes
    /// several records.
    pub max_record_bytes: usize,
    /// How many topics the level takes; default 64. Each costs a consumer: two threads and about 1 MiB.
    pub max_topics: usize,
    /// How many positions a stack skips, as a hole, after a process that did not close the level; default 64 MiB. As many as the
    /// levels before this one hold: readers may have seen bytes that Kafka had not got yet, and their positions are not used again.
    /// Nothing is skipped where a level before this one has kept its window.
    pub restart_gap_bytes: u64,
    /// Further properties of librdkafka, such as `security.protocol`. They take precedence.
    pub properties: Vec<(String, String)>,
}

impl KafkaConfig {
    /// The defaults, with these brokers.
    pub fn new(brokers: impl Into<String>) -> KafkaConfig {
        KafkaConfig {
            brokers: brokers.into(),
            prefix: "multimqc".to_owned(),
            replicas: 1,
            retention_bytes: Some(1 << 30),
            segment_bytes: 64 << 20,
            timeout: Duration::from_secs(5),
            max_record_bytes: 900_000,
            max_topics: 64,
            restart_gap_bytes: 64 << 20,
            properties: Vec::new(),
        }
    }

    /// The settings that producers, consumers and the administration have in common.
    fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.brokers);
        client.set("client.id", "multimqc");
        // The client connects soon to a broker that has restarted.
        client.set("reconnect.backoff.ms", "50").set("reconnect.backoff.max.ms", "500");
        client.set("socket.timeout.ms", self.milliseconds().max(10).to_string());
        client
    }

    fn milliseconds(&self) -> u128 {
        self.timeout.as_millis().clamp(1, 900_000)
    }

    fn finish(&self, mut client: ClientConfig) -> ClientConfig {
        for (name, value) in &self.properties {
            client.set(name, value);
        }
        client
    }

    pub(crate) fn admin(&self) -> ClientConfig {
        self.finish(self.client())
    }

    pub(crate) fn producer(&self) -> ClientConfig {
        let mut client = self.client();
        // Idempotence keeps the order and prevents duplicates, even when the producer tries again by itself.
        client.set("enable.idempotence", "true").set("acks", "all").set("linger.ms", "0");
        client.set("message.timeout.ms", self.milliseconds().to_string());
        client.set("message.max.bytes", (self.max_record_bytes + 1024).to_string());
        self.finish(client)
    }

    pub(crate) fn consumer(&self) -> ClientConfig {
        let mut client = self.client();
        client.set("group.id", "multimqc").set("enable.auto.commit", "false");
        client.set("auto.offset.reset", "error").set("check.crcs", "true");
        client.set("fetch.wait.max.ms", "20").set("queued.max.messages.kbytes", "1024");
        // A full queue is checked again soon, because it has room for only a few records.
        client.set("fetch.queue.backoff.ms", "2");
        client.set("fetch.message.max.bytes", (self.max_record_bytes + 1024).to_string());
        self.finish(client)
    }
}
