//! The state of a node as JSON.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rblive::RsManager;
use rblive_ingest::{Encoder, Ingest};
use serde_json::{Value, json};

/// The streams that the node sends and receives, its nodes, its encoders, and the address of its page for viewers.
pub fn of(rs: &RsManager, ingest: Option<&Ingest>, viewers: Option<&str>) -> Value {
    let sends: Vec<_> = rs
        .outbound()
        .into_iter()
        .map(|stream| {
            json!({ "id": stream.id.to_string(), "name": &*stream.name, "created_here": stream.created_here,
            "nodes": stream.nodes, "chunks": stream.chunks, "bytes": stream.bytes, "age_ms": ms(stream.age),
            "capacity_bytes": stream.capacity_bytes })
        })
        .collect();
    let receives: Vec<_> = rs.inbound().into_iter().map(|stream| {
        json!({ "id": stream.id.to_string(), "name": &*stream.name, "from": stream.from,
            "connected": stream.connected, "chunks": stream.chunks, "bytes": stream.bytes, "age_ms": ms(stream.age),
            "lost_bytes": stream.lost_bytes })
    }).collect();
    let peers: Vec<_> = rs.peers().into_iter().map(|peer| {
        json!({ "node": peer.node, "name": peer.name, "connected": peer.connected, "carrier": peer.carrier })
    }).collect();
    let nodes: Vec<_> = rs.config().nodes.iter().map(|node| {
        json!({ "id": node.id, "name": node.name, "disseminates": node.role.disseminates(), "delivers": node.role.delivers(),
            "takes_streams": !node.address.is_empty() })
    }).collect();
    let node = rs.node();
    json!({ "node": { "id": node.id, "name": node.name, "disseminates": node.role.disseminates(),
            "delivers": node.role.delivers() },
        "sends": sends, "receives": receives, "peers": peers, "nodes": nodes, "ring_bytes": rs.memory_in_use(),
        "encoders": ingest.map(encoders), "viewers": viewers })
}

fn ms(age: Option<Duration>) -> Option<u64> {
    age.map(|age| age.as_millis() as u64)
}

fn unix_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// An encoder that publishes.
fn encoder(own: &Encoder) -> Value {
    let codecs: Vec<_> = own.media.codecs.split(',').filter(|name| !name.is_empty()).collect();
    json!({ "number": own.number, "stream": own.name, "rendition_of": own.rendition_of, "user": own.user,
        "address": own.address.to_string(), "protocol": own.protocol, "since_unix_ms": unix_ms(own.since), "codecs": codecs,
        "width": own.media.video.map(|video| video.width), "height": own.media.video.map(|video| video.height),
        "key_frames_ms": ms(own.key_frames), "bits_per_second": own.media.bandwidth })
}

/// The encoders: those that publish, what they do wrong, and those that were refused or failed lately.
pub fn encoders(ingest: &Ingest) -> Value {
    let (counters, addresses) = (ingest.counters(), ingest.addresses());
    let publishing: Vec<_> = ingest.encoders().iter().map(encoder).collect();
    let [publishers, refused, failed, bytes] =
        [&counters.publishers, &counters.refused, &counters.failed, &counters.bytes]
            .map(|own| own.load(Ordering::Relaxed));
    let remarks = counters.remarks.list().into_iter();
    let remarks: Vec<_> =
        remarks.map(|(stream, kind, text)| json!({ "stream": stream, "kind": kind, "text": text })).collect();
    let failures = counters.failures.list().into_iter().map(|own| {
        json!({ "unix_ms": unix_ms(own.at), "address": own.address.to_canonical().to_string(), "protocol": own.protocol,
            "reason": own.reason, "times": own.times })
    });
    let ports = |address: Option<SocketAddr>| address.map(|own| own.port());
    json!({ "publishing": publishing, "publishers": publishers, "refused": refused, "failed": failed, "bytes": bytes, "remarks": remarks,
        "failures": failures.collect::<Vec<_>>(),
        "ports": { "rtmp": ports(addresses.rtmp), "rtmps": ports(addresses.rtmps), "http": ports(addresses.http),
            "https": ports(addresses.https) } })
}
