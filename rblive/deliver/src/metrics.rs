//! The metrics in the text format of Prometheus.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use rblive_webrtc::Hub;

use crate::catalog::Catalog;
use crate::counters::Counters;
use crate::elsewhere::Elsewhere;

/// A label with its value, and the number.
type Value = (Option<(&'static str, String)>, u64);

/// A metric of one scrape.
#[derive(Debug)]
struct Metric {
    name: &'static str,
    help: &'static str,
    /// Whether the metric only grows.
    counts: bool,
    values: Vec<Value>,
}

/// The values of one scrape.
#[derive(Debug, Default)]
struct Scrape(Vec<Metric>);

/// Returns the metrics of a server.
///
/// # Errors
/// None in practice: the text is written into memory.
pub(crate) fn text(
    catalog: &Catalog,
    counters: &Counters,
    elsewhere: Option<&Elsewhere>,
    peers: Option<&Hub>,
) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    let mut scrape = Scrape::take(catalog, counters);
    if let Some(elsewhere) = elsewhere {
        scrape.cluster(elsewhere);
    }
    if let Some(peers) = peers {
        scrape.peers(peers.counters());
    }
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

impl Scrape {
    fn take(catalog: &Catalog, counters: &Counters) -> Self {
        let mut own = Self::default();
        let version = vec![(Some(("version", env!("CARGO_PKG_VERSION").to_owned())), 1)];
        own.add("rblive_build_info", "The version of the server", false, version);
        own.server(counters);
        own.streams(catalog);
        own
    }

    fn add(&mut self, name: &'static str, help: &'static str, counts: bool, values: Vec<Value>) {
        self.0.push(Metric { name, help, counts, values });
    }

    fn server(&mut self, counters: &Counters) {
        let classes = (1..).map(|class| Some(("class", format!("{class}xx"))));
        let requests = classes.zip(counters.requests.iter().map(get)).collect();
        self.add("rblive_requests", "Requests by the class of their status", true, requests);
        self.add("rblive_open_connections", "Open connections", false, vec![(None, get(&counters.open))]);
        for (name, help, counter) in [
            ("rblive_connections", "Accepted connections", &counters.connections),
            ("rblive_refused_connections", "Connections beyond a limit", &counters.refused),
            (
                "rblive_made_room_connections",
                "Connections that had asked for nothing and were closed to make room for others",
                &counters.made_room,
            ),
            ("rblive_failed_handshakes", "TLS handshakes that failed", &counters.handshakes_failed),
            (
                "rblive_slow_viewers",
                "Viewers that were disconnected because they were slow",
                &counters.too_slow,
            ),
            (
                "rblive_flooding_clients",
                "Clients of HTTP/2 that were disconnected because they sent too many frames",
                &counters.floods,
            ),
            (
                "rblive_overtaken_responses",
                "Responses that ended because new data took the place of what was being sent",
                &counters.overtaken,
            ),
            ("rblive_media_bytes", "Bytes of media that were sent", &counters.media_bytes),
        ] {
            self.add(name, help, true, vec![(None, get(counter))]);
        }
    }

    fn cluster(&mut self, elsewhere: &Elsewhere) {
        let (name, help) =
            ("rblive_redirected_requests", "Requests for playlists that were sent to other nodes");
        self.add(name, help, true, vec![(None, elsewhere.redirected())]);
        let is_draining = vec![(None, u64::from(elsewhere.is_draining()))];
        self.add("rblive_draining", "Whether the node is drained", false, is_draining);
    }

    fn peers(&mut self, own: &rblive_webrtc::Counters) {
        let viewers = vec![(None, get(&own.viewers))];
        self.add("rblive_webrtc_viewers", "Viewers that are connected by WebRTC", false, viewers);
        for (name, help, counter) in [
            ("rblive_webrtc_answered_offers", "Offers of viewers that were answered", &own.answered),
            ("rblive_webrtc_refused_offers", "Offers that were refused", &own.refused),
            (
                "rblive_webrtc_never_connected",
                "Viewers that never connected after their answer",
                &own.never_connected,
            ),
            (
                "rblive_webrtc_silent_viewers",
                "Viewers that were disconnected because they fell silent",
                &own.silent,
            ),
            ("rblive_webrtc_failed_viewers", "Viewers whose connection failed", &own.failed),
            (
                "rblive_webrtc_dropped_frames",
                "Frames that a viewer did not get, since it waited for a key frame",
                &own.dropped_frames,
            ),
            ("rblive_webrtc_key_frames_asked", "Requests of viewers for a key frame", &own.key_frames_asked),
            ("rblive_webrtc_strange_datagrams", "Datagrams of nobody who watches", &own.strange_datagrams),
            (
                "rblive_webrtc_unsent_datagrams",
                "Datagrams that the system did not take",
                &own.unsent_datagrams,
            ),
            ("rblive_webrtc_bytes", "Bytes that were sent to viewers by WebRTC", &own.bytes),
        ] {
            self.add(name, help, true, vec![(None, get(counter))]);
        }
    }

    fn streams(&mut self, catalog: &Catalog) {
        let help = "Chunks that were overwritten before they were read, or that are invalid";
        self.add("rblive_refused_chunks", help, true, vec![(None, get(&catalog.refused_chunks))]);
        let streams = catalog.streams();
        self.add("rblive_streams", "Streams", false, vec![(None, streams.len() as u64)]);
        let label = |name: &str| Some(("stream", name.to_owned()));
        let viewers =
            streams.iter().map(|own| (label(&own.name), own.viewers.load(Ordering::Relaxed) as u64));
        self.add("rblive_stream_viewers", "Connections that watch the stream", false, viewers.collect());
        let received = streams.iter().map(|own| (label(&own.name), get(&own.received))).collect();
        self.add("rblive_stream_received_bytes", "Bytes of the stream that arrived", true, received);
        let delivered = streams.iter().map(|own| (label(&own.name), get(&own.delivered))).collect();
        self.add("rblive_stream_delivered_bytes", "Bytes of the stream that were sent", true, delivered);
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Metric { name, help, counts, values } in &self.0 {
            let counts = *counts;
            let kind = if counts { MetricType::Counter } else { MetricType::Gauge };
            let mut to = encoder.encode_descriptor(name, help, None, kind)?;
            if let [(None, value)] = values.as_slice() {
                put(to, counts, *value)?;
                continue;
            }
            for (label, value) in values {
                let labels: Vec<(&str, &str)> =
                    label.iter().map(|(name, own)| (*name, own.as_str())).collect();
                put(to.encode_family(&labels)?, counts, *value)?;
            }
        }
        Ok(())
    }
}

fn put(to: MetricEncoder<'_>, counts: bool, value: u64) -> fmt::Result {
    if counts {
        ConstCounter::new(value).encode(to)
    } else {
        ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(to)
    }
}
