//! Streams over real RDMA devices (scripts/rdma-vm): chunks arrive whole, a reader that is overtaken learns it, and nodes prove who they
//! are although RDMA has no TLS. A program of its own, which is carried into a virtual machine.

#[allow(dead_code, reason = "the other program of tests uses the rest")]
#[path = "suite/common.rs"]
mod common;

use common::{Cluster, Seen, chunk_of, send};
use rblive::{NodeRole, RsId, RsManager, StreamEvent};
use rocketbufs::config::TransportKind;

/// A node on each of the two devices, with a token; none, with a printed line, without devices.
fn pair(folder: &std::path::Path) -> Option<(RsManager, RsId, RsManager, Seen)> {
    let Ok(addresses) = std::env::var("ROCKETBUFS_TEST_RDMA") else {
        println!("skipped: no RDMA devices to test with; scripts/rdma-vm has some");
        return None;
    };
    let token = common::token(folder, "a token");
    let device = addresses.split_whitespace().nth(1).expect("two addresses");
    let mut cluster = Cluster::new(&[NodeRole::Dissemination, NodeRole::Delivery], TransportKind::Rdma);
    let port = cluster.config.nodes[1].address.rsplit(':').next().unwrap().to_owned();
    cluster.config.nodes[1].address = format!("{device}:{port}");
    cluster.config.dissemination.token_file = token;
    let (delivery, seen) = cluster.receiver(2);
    let ingest = cluster.ruled(1, &[2]);
    let id = ingest.create_stream("camera").unwrap();
    seen.event(|event| matches!(event, StreamEvent::Began { .. }));
    Some((ingest, id, delivery, seen))
}

#[test]
fn chunks_arrive_whole() {
    let folder = tempfile::tempdir().unwrap();
    let Some((ingest, id, delivery, seen)) = pair(folder.path()) else { return };
    let most = ingest.config().streams.chunk_bytes as usize;
    for number in 0..200_u64 {
        let size = 1 + (number as usize * 7919) % most;
        send(&ingest, id, number, size);
        let chunk = seen.chunk();
        assert_eq!(chunk.to_vec().unwrap(), chunk_of(number, size), "chunk {number}");
        delivery.data_consumed(id, size as u64).unwrap();
    }
    assert_eq!(ingest.peers()[0].carrier, Some("rdma"));
    ingest.destroy_stream(id).unwrap();
    seen.event(|event| *event == StreamEvent::Ended);
}

#[test]
fn an_overtaken_reader_learns_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some((ingest, id, _delivery, seen)) = pair(folder.path()) else { return };
    let size = ingest.config().streams.chunk_bytes as usize;
    send(&ingest, id, 0, size);
    let first = seen.chunk();
    assert_eq!(first.to_vec().unwrap(), chunk_of(0, size));
    for number in 1..20 {
        send(&ingest, id, number, size);
        let chunk = seen.chunk();
        assert_eq!(chunk.to_vec().unwrap(), chunk_of(number, size), "chunk {number}");
    }
    assert!(first.check().is_err() && first.to_vec().is_err(), "its memory has newer chunks");
    // A writer that does not wait for anybody: what arrives is whole, or known to be lost.
    for number in 20..400 {
        send(&ingest, id, number, size);
    }
    send(&ingest, id, 400, 77);
    loop {
        let chunk = seen.chunk();
        if let Ok(bytes) = chunk.to_vec() {
            let is_one = (20..=400_u64)
                .filter(|number| number.wrapping_mul(131) as u8 == bytes[0])
                .any(|number| chunk_of(number, bytes.len()) == bytes);
            assert!(is_one, "{} bytes that nobody has written so", bytes.len());
            if bytes.len() == 77 {
                return;
            }
        } else if chunk.size() == 77 {
            panic!("nothing was written after the last chunk");
        }
    }
}
