//! The metrics in Prometheus' text format. The names of streams need no escapes.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use etcd::PresenceStatus;
use peers::PlaceCounts;
use rblive::RsManager;
use rblive_ingest::IngestCounters;
use rblive_record::RecordCounters;

/// The page.
pub fn page(rs: &RsManager, ingest: Option<&IngestCounters>) -> String {
    let mut page = String::new();
    sent(&mut page, rs);
    received(&mut page, rs);
    if let Some(counters) = ingest {
        encoders(&mut page, counters);
    }
    head(
        &mut page,
        "rblive_refused_nodes_total",
        "counter",
        "Connections to the address for nodes that were refused.",
    );
    let _ = writeln!(page, "rblive_refused_nodes_total {}", rs.refused_connections());
    let peers = rs.peers();
    head(&mut page, "rblive_peer_up", "gauge", "Whether the connection to a node is up.");
    for peer in &peers {
        let _ = writeln!(page, "rblive_peer_up{{node=\"{}\"}} {}", peer.node, u8::from(peer.connected));
    }
    head(&mut page, "rblive_ring_bytes", "gauge", "The capacities of all buffers in bytes.");
    let _ = writeln!(page, "rblive_ring_bytes {}", rs.memory_in_use());
    page
}

fn sent(page: &mut String, rs: &RsManager) {
    let streams = rs.outbound();
    head(page, "rblive_sent_streams", "gauge", "Streams that this node sends.");
    let _ = writeln!(page, "rblive_sent_streams {}", streams.len());
    let created: Vec<_> = streams.iter().filter(|stream| stream.created_here).collect();
    let labelled =
        |stream: &&rblive::OutboundInfo| format!("stream=\"{}\",id=\"{}\"", stream.name, stream.id);
    let rows = |value: fn(&rblive::OutboundInfo) -> u64| {
        created.iter().map(|stream| (labelled(stream), value(stream))).collect()
    };
    family(page, "rblive_sent_chunks_total", "Chunks disseminated.", rows(|stream| stream.chunks));
    family(page, "rblive_sent_bytes_total", "Bytes of disseminated chunks.", rows(|stream| stream.bytes));
    let ages = created.iter().filter_map(|stream| Some((labelled(stream), stream.age?))).collect();
    ages_of(page, "rblive_sent_age_seconds", ages);
}

fn received(page: &mut String, rs: &RsManager) {
    let streams = rs.inbound();
    head(page, "rblive_received_streams", "gauge", "Streams that this node receives.");
    let _ = writeln!(page, "rblive_received_streams {}", streams.len());
    let labelled = |stream: &rblive::InboundInfo| {
        format!("stream=\"{}\",id=\"{}\",from=\"{}\"", stream.name, stream.id, stream.from)
    };
    let rows = |value: fn(&rblive::InboundInfo) -> u64| {
        streams.iter().map(|stream| (labelled(stream), value(stream))).collect()
    };
    family(page, "rblive_received_chunks_total", "Chunks received.", rows(|stream| stream.chunks));
    family(page, "rblive_received_bytes_total", "Bytes of received chunks.", rows(|stream| stream.bytes));
    let lost = "Bytes that were overwritten before they arrived.";
    family(page, "rblive_lost_bytes_total", lost, rows(|stream| stream.lost_bytes));
    let returned = "Bytes that the application has returned.";
    family(page, "rblive_returned_bytes_total", returned, rows(|stream| stream.returned_bytes));
    let ages = streams.iter().filter_map(|stream| Some((labelled(stream), stream.age?))).collect();
    ages_of(page, "rblive_received_age_seconds", ages);
}

fn encoders(page: &mut String, counters: &IngestCounters) {
    for (name, help, counter) in [
        ("rblive_ingest_connections_total", "Connections of encoders.", &counters.connections),
        ("rblive_ingest_turned_away_total", "Connections beyond the limit.", &counters.turned_away),
        (
            "rblive_ingest_made_room_total",
            "Connections without a publisher that were closed to make room for others.",
            &counters.made_room,
        ),
        ("rblive_ingest_publishers_total", "Publishers that were accepted.", &counters.publishers),
        (
            "rblive_ingest_refused_total",
            "Publishers that were refused, and pages of other web sites that wanted to publish.",
            &counters.refused,
        ),
        (
            "rblive_ingest_failed_total",
            "Publishers whose input was damaged, too much, or stopped.",
            &counters.failed,
        ),
        (
            "rblive_ingest_oversized_total",
            "Parts and files that are larger than the buffers allow.",
            &counters.oversized,
        ),
        ("rblive_ingest_bytes_total", "Bytes of media that came in.", &counters.bytes),
    ] {
        head(page, name, "counter", help);
        let _ = writeln!(page, "{name} {}", counter.load(Ordering::Relaxed));
    }
    let rows = counters.remarks.counts().into_iter().map(|(kind, count)| (format!("kind=\"{kind}\""), count));
    let help = "What encoders did wrong, and was mended as far as possible.";
    family(page, "rblive_ingest_remarks_total", help, rows.collect());
}

/// Adds the metrics of the control page.
pub fn control(page: &mut String, [wrong_tokens, foreign_pages]: [u64; 2], places: PlaceCounts) {
    for (name, help, value) in [
        ("wrong_tokens", "Calls with a wrong token, or too soon after several of them.", wrong_tokens),
        ("foreign_pages", "Calls that a browser may have sent for another web site.", foreign_pages),
        ("turned_away", "Connections to this endpoint beyond the limit.", places.turned_away),
        (
            "made_room",
            "Connections without a call that were closed to make room for others.",
            places.made_room,
        ),
    ] {
        let name = format!("rblive_control_{name}_total");
        head(page, &name, "counter", help);
        let _ = writeln!(page, "{name} {value}");
    }
}

/// Adds the metrics of a recorder.
pub fn recorder(page: &mut String, counters: &RecordCounters) {
    for (name, kind, help, counter) in [
        ("segments_total", "counter", "Segments that were kept.", &counters.segments),
        ("bytes_total", "counter", "Bytes of kept segments.", &counters.bytes),
        ("gaps_total", "counter", "Segments that are gaps of a recording.", &counters.gaps),
        (
            "overtaken_total",
            "counter",
            "Chunks that were overwritten before they were kept.",
            &counters.overtaken,
        ),
        ("write_errors_total", "counter", "Errors of the disk.", &counters.write_errors),
        ("over_limit_total", "counter", "Segments for which max_bytes left no room.", &counters.over_limit),
        ("recordings_total", "counter", "Recordings that were begun or continued.", &counters.recordings),
        ("removed_total", "counter", "Recordings that were removed.", &counters.removed),
        ("kept_bytes", "gauge", "Bytes of all recordings.", &counters.kept_bytes),
        ("streams", "gauge", "Streams that are being kept.", &counters.streams),
        ("waiting_chunks", "gauge", "Chunks that wait to be written.", &counters.waiting),
    ] {
        let name = format!("rblive_record_{name}");
        head(page, &name, kind, help);
        let _ = writeln!(page, "{name} {}", counter.load(Ordering::Relaxed));
    }
}

/// Adds the metrics of a member of a cluster.
pub fn cluster(page: &mut String, status: &PresenceStatus, nodes: usize) {
    for (name, kind, help, value) in [
        ("nodes", "gauge", "Nodes of the cluster, as far as this one knows.", nodes as u64),
        (
            "degraded",
            "gauge",
            "Whether something does not work in the cluster.",
            status.degraded.is_some().into(),
        ),
        ("etcd_errors_total", "counter", "Calls of etcd that have failed.", status.errors),
    ] {
        let name = format!("rblive_cluster_{name}");
        head(page, &name, kind, help);
        let _ = writeln!(page, "{name} {value}");
    }
}

/// A counter with a row for each set of labels.
fn family(page: &mut String, name: &str, help: &str, rows: Vec<(String, u64)>) {
    head(page, name, "counter", help);
    for (labels, value) in rows {
        let _ = writeln!(page, "{name}{{{labels}}} {value}");
    }
}

/// The time since the newest chunk, with a row for each stream that has one.
fn ages_of(page: &mut String, name: &str, rows: Vec<(String, Duration)>) {
    head(page, name, "gauge", "Seconds since the newest chunk.");
    for (labels, age) in rows {
        let _ = writeln!(page, "{name}{{{labels}}} {:.3}", age.as_secs_f64());
    }
}

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
