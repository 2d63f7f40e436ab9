//! Rates and ages of the last minutes of a node, for the plots of the control page.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use locks::Mutex;
use rblive::{RsId, RsManager};
use serde_json::{Value, json};

/// The time between two samples.
pub const EVERY: Duration = Duration::from_secs(2);
/// The most samples: ten minutes. Each takes 48 bytes.
const MOST: usize = 300;

/// A sample of rates and ages.
#[derive(Debug, Clone, Copy)]
struct Sample {
    unix_ms: u64,
    /// Bytes per second that became chunks here, that left for other nodes, and that arrived from other nodes.
    made: u64,
    sent: u64,
    received: u64,
    streams: usize,
    /// The age of the newest chunk of the stream that waits longest, in milliseconds.
    age_ms: u64,
}

/// Samples of a node.
#[derive(Default)]
pub struct History(Mutex<State>);

#[derive(Default)]
struct State {
    samples: VecDeque<Sample>,
    last: Option<Instant>,
    /// The bytes of each stream at the last sample, sent and received.
    sent: HashMap<RsId, u64>,
    received: HashMap<RsId, u64>,
}

impl History {
    /// Takes a sample.
    pub fn sample(&self, rs: &RsManager) {
        let (outbound, inbound) = (rs.outbound(), rs.inbound());
        let mut state = self.0.lock();
        let now = Instant::now();
        let since = state.last.replace(now).map(|last| now - last);
        let (mut made, mut sent, mut received) = (0, 0, 0);
        let own = rs.node().id;
        for stream in &outbound {
            let bytes = grown(&state.sent, stream.id, stream.bytes);
            made += bytes;
            // A node that delivers gets its own streams in place.
            sent += bytes * stream.nodes.iter().filter(|node| **node != own).count() as u64;
        }
        for stream in &inbound {
            received += if stream.from == own { 0 } else { grown(&state.received, stream.id, stream.bytes) };
        }
        state.sent = outbound.iter().map(|stream| (stream.id, stream.bytes)).collect();
        state.received = inbound.iter().map(|stream| (stream.id, stream.bytes)).collect();
        // Without an earlier sample there is no rate.
        let Some(since) = since else { return };
        let rate = |bytes: u64| (bytes as f64 / since.as_secs_f64()) as u64;
        let ages = outbound.iter().filter_map(|stream| stream.age);
        let age = ages.chain(inbound.iter().filter_map(|stream| stream.age)).max();
        let sample = Sample {
            unix_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            made: rate(made),
            sent: rate(sent),
            received: rate(received),
            streams: state
                .sent
                .keys()
                .chain(state.received.keys())
                .collect::<std::collections::HashSet<_>>()
                .len(),
            age_ms: age.map_or(0, |age| age.as_millis() as u64),
        };
        if state.samples.len() == MOST {
            state.samples.pop_front();
        }
        state.samples.push_back(sample);
    }

    /// The samples after a time, oldest first, as JSON.
    pub fn since(&self, unix_ms: u64) -> Value {
        let state = self.0.lock();
        let samples: Vec<_> = state.samples.iter().filter(|sample| sample.unix_ms > unix_ms).map(|sample| {
            json!({ "unix_ms": sample.unix_ms, "made": sample.made, "sent": sample.sent, "received": sample.received,
                "streams": sample.streams, "age_ms": sample.age_ms })
        }).collect();
        json!({ "every_ms": EVERY.as_millis() as u64, "samples": samples })
    }
}

/// How much a stream has grown since the last sample.
fn grown(before: &HashMap<RsId, u64>, id: RsId, bytes: u64) -> u64 {
    bytes.saturating_sub(before.get(&id).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use rblive::{Config, Node, NodeRole};

    use super::*;

    #[test]
    fn samples_have_rates_and_old_ones_go() {
        let rs = RsManager::new(Config::default()).unwrap();
        let id = rs.create_stream("a").unwrap();
        let history = History::default();
        history.sample(&rs);
        assert_eq!(history.since(0)["samples"].as_array().unwrap().len(), 0, "no rate yet");
        let chunk = rs.allocate_chunk(id, 1000).unwrap();
        rs.disseminate_chunk(chunk, 1000, None).unwrap();
        for _ in 0..=MOST {
            history.sample(&rs);
        }
        let all = history.since(0);
        let samples = all["samples"].as_array().unwrap();
        assert_eq!(samples.len(), MOST);
        assert_eq!(samples[0]["streams"], 1);
        let newest = samples[MOST - 1]["unix_ms"].as_u64().unwrap();
        assert_eq!(history.since(newest)["samples"].as_array().unwrap().len(), 0);
    }

    #[test]
    fn a_rate_counts_what_came_since_the_last_sample_once_for_each_node() {
        let mut config = Config::default();
        config.node.clone_from(&config.nodes[0].name);
        let (name, address) = ("other".to_owned(), "127.0.0.1:1".to_owned());
        config.nodes.push(Node { name, id: 9, role: NodeRole::Delivery, address });
        let rs = RsManager::new(config).unwrap();
        let id = rs.create_stream("a").unwrap();
        // The node itself is no other one.
        for node in [9, rs.node().id] {
            rs.set_outbound(node, id).unwrap();
        }
        let history = History::default();
        history.sample(&rs);
        let chunk = rs.allocate_chunk(id, 1 << 16).unwrap();
        rs.disseminate_chunk(chunk, 1 << 16, None).unwrap();
        while rs.inbound().iter().all(|stream| stream.bytes == 0) {
            std::thread::sleep(Duration::from_millis(5));
        }
        history.sample(&rs);
        let sample = history.since(0)["samples"][0].clone();
        assert!(sample["made"].as_u64().unwrap() > 0);
        assert_eq!((&sample["made"], &sample["received"]), (&sample["sent"], &json!(0)));
        history.sample(&rs);
        assert_eq!(history.since(0)["samples"][1]["made"], 0, "nothing came since");
    }
}
