//! Messages for the console: the newest of a topic, and one that somebody publishes.
//!
//! The subscriber of a call comes through the gate, as those of gateways do: the console has decided about the rights of who asks. Its policy is
//! `drop`, so that no publisher waits for it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rbmq::{Publisher, SlowPolicy, StartFrom, Subscriber, TopicName};
use rbmq_broker::Gate;
use rbmq_broker::http::{LogEnds, MAX_SHOWN, Messages, ShownMessage};

/// The name of the subscribers and publishers.
const NAME: &str = "rbmq console";

/// How long the broker may have nothing to send, before there is nothing.
const QUIET: Duration = Duration::from_millis(500);

/// The most messages of all logs of a topic.
const MAX_MESSAGES: usize = 200;

/// How many bytes and deliveries of a kept topic are read for the newest messages.
const KEPT_BYTES: u64 = 1 << 20;
const KEPT_DELIVERIES: usize = 1_000;

/// Reads and publishes messages for the console.
pub(super) struct Desk {
    gate: Gate,
}

impl Desk {
    pub(super) fn new(gate: Gate) -> Self {
        Self { gate }
    }

    /// Where the newest messages begin, without a look at all that is on the disk.
    fn begin(&self, topic: &TopicName) -> Result<StartFrom, String> {
        let Some(mut log) = self.gate.kept_topics(|| {}).log(topic) else { return Ok(StartFrom::Oldest) };
        let end = log.end();
        let mut begin = end;
        for _ in 0..KEPT_DELIVERIES {
            match log.read_before(begin).map_err(|error| error.to_string())? {
                Some(batch) if end - begin < KEPT_BYTES => begin = batch.position(),
                _ => break,
            }
        }
        Ok(StartFrom::Position(begin))
    }
}

impl Messages for Desk {
    fn newest(
        &self,
        topic: &TopicName,
        most: usize,
        ends: &LogEnds,
        within: Duration,
    ) -> Result<Vec<ShownMessage>, String> {
        let deadline = Instant::now() + within;
        let begin = self.begin(topic)?;
        let subscriber = Subscriber::builder()
            .name(NAME)
            .config(self.gate.config())
            .slow(SlowPolicy::Drop { max_lag_bytes: None });
        let mut subscriber = subscriber.connect(self.gate.address()).map_err(|error| error.to_string())?;
        subscriber.subscribe_from(topic.as_str(), begin).map_err(|error| error.to_string())?;
        let mut missing: LogEnds = ends.iter().filter(|(_, end)| *end > 0).copied().collect();
        // Nobody knows which of two logs has the newer message.
        let of_each = most.min((MAX_MESSAGES / ends.len().max(1)).max(1));
        let mut newest: Vec<_> = ends.iter().map(|(log, _)| (*log, VecDeque::new())).collect();
        while !missing.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = subscriber.recv_ref(Some(left.min(QUIET))).map_err(|error| error.to_string())?;
            let Some(message) = message.filter(|_| !left.is_zero()) else { break };
            missing.retain(|(log, end)| *log != message.epoch.0 || message.end < *end);
            let Some((_, of_log)) = newest.iter_mut().find(|(log, _)| *log == message.epoch.0) else {
                continue;
            };
            let shown = message.bytes.get(..MAX_SHOWN).unwrap_or(message.bytes).to_vec();
            of_log.push_back(ShownMessage { end: message.end, bytes: shown, length: message.bytes.len() });
            if of_log.len() > of_each {
                of_log.pop_front();
            }
        }
        Ok(newest.into_iter().flat_map(|(_, of_log)| of_log).collect())
    }

    fn publish(&self, topic: &TopicName, message: &[u8], within: Duration) -> Result<(), String> {
        let publisher = Publisher::builder().name(NAME).config(self.gate.config());
        let publisher = publisher.connect(self.gate.address()).map_err(|error| error.to_string())?;
        let mut writer = publisher.topic(topic.as_str()).map_err(|error| error.to_string())?;
        writer.publish_timeout(message, Some(within)).map_err(|error| error.to_string())?;
        writer.close_timeout(Some(within)).map_err(|error| error.to_string())
    }
}
