//! Nodes in one process: chunks arrive whole, over shared memory and TCP, through trees, after restarts; and a reader that is
//! overtaken learns it.

use std::time::Duration;

use crate::common::{Cluster, Seen, WAIT, chunk_of, send};
use rblive::{ChunkError, NodeId, NodeRole, RsManager, Rule, StreamError, StreamEvent};
use rocketbufs::config::TransportKind;
use testkit::{own_addr, until};

/// A dissemination node and a delivery node.
fn pair(transport: TransportKind) -> (RsManager, RsManager, Seen) {
    let cluster = Cluster::new(&[NodeRole::Dissemination, NodeRole::Delivery], transport);
    let (delivery, seen) = cluster.receiver(2);
    (cluster.start(1), delivery, seen)
}

#[test]
fn chunks_arrive_over_every_transport() {
    for (transport, carrier) in [(TransportKind::Auto, "shm"), (TransportKind::Tcp, "tcp")] {
        let (ingest, delivery, seen) = pair(transport);
        let id = ingest.create_stream("live/camera").unwrap();
        assert_eq!(id.node(), 1);
        ingest.set_outbound(2, id).unwrap();
        seen.event(|event| matches!(event, StreamEvent::Began { name } if &**name == "live/camera"));
        for number in 0..20 {
            send(&ingest, id, number, 1000 + 37 * number as usize);
            let chunk = seen.chunk();
            assert_eq!(chunk.to_vec().unwrap(), chunk_of(number, 1000 + 37 * number as usize));
            delivery.data_consumed(id, chunk.size() as u64).unwrap();
        }
        assert_eq!(ingest.peers()[0].carrier, Some(carrier));
        let copied = delivery.inbound()[0].copied_bytes;
        assert_eq!(copied == 0, carrier == "shm", "{copied} bytes were copied");
        ingest.destroy_stream(id).unwrap();
        seen.event(|event| *event == StreamEvent::Ended);
        assert!(delivery.inbound().is_empty());
    }
}

#[test]
fn chunks_that_are_disseminated_newest_first_leave_together_and_in_order() {
    for transport in [TransportKind::Auto, TransportKind::Tcp] {
        let (ingest, _delivery, seen) = pair(transport);
        let id = ingest.create_stream("a").unwrap();
        ingest.set_outbound(2, id).unwrap();
        seen.event(|event| matches!(event, StreamEvent::Began { .. }));
        for turn in 0..10 {
            let sizes = [100, 2000, 60_000].map(|size| size + turn as usize);
            let chunks = [0, 1, 2].map(|at| {
                let mut chunk = ingest.allocate_chunk(id, sizes[at]).unwrap();
                chunk.bytes_mut().copy_from_slice(&chunk_of(turn * 3 + at as u64, sizes[at]));
                chunk
            });
            for chunk in chunks.into_iter().rev() {
                let size = chunk.size();
                ingest.disseminate_chunk(chunk, size, None).unwrap();
            }
            for (at, size) in sizes.into_iter().enumerate() {
                assert_eq!(seen.chunk().to_vec().unwrap(), chunk_of(turn * 3 + at as u64, size));
            }
        }
    }
}

#[test]
fn the_outbound_callback_has_the_context() {
    let (ingest, _delivery, seen) = pair(TransportKind::Auto);
    let (done, landed) = std::sync::mpsc::sync_channel(16);
    ingest.outbound_callback(move |id, context| done.send((id, context)).unwrap());
    let id = ingest.create_stream("a").unwrap();
    ingest.set_outbound(2, id).unwrap();
    seen.event(|event| matches!(event, StreamEvent::Began { .. }));
    send(&ingest, id, 0, 100);
    seen.chunk();
    let chunk = ingest.allocate_chunk(id, 100).unwrap();
    ingest.disseminate_chunk(chunk, 50, Some(7)).unwrap();
    assert_eq!(landed.recv_timeout(WAIT), Ok((id, 7)));
}

#[test]
fn a_stream_goes_to_a_node_and_is_taken_away_again() {
    let (ingest, _delivery, seen) = pair(TransportKind::Auto);
    let id = ingest.create_stream("a").unwrap();
    send(&ingest, id, 0, 500);
    for _ in 0..3 {
        ingest.set_outbound(2, id).unwrap();
        ingest.set_outbound(2, id).unwrap();
        assert_eq!(ingest.outbound()[0].nodes, [2]);
        // The content of the buffer comes too.
        assert_eq!(seen.chunk().to_vec().unwrap(), chunk_of(0, 500));
        assert!(ingest.remove_outbound(2, id).unwrap());
        assert!(!ingest.remove_outbound(2, id).unwrap());
        seen.event(|event| *event == StreamEvent::Ended);
    }
    assert!(matches!(ingest.set_outbound(9, id), Err(StreamError::NoSuchNode(9))));
    assert!(matches!(ingest.set_outbound(1, id), Err(StreamError::NoAddress(1))));
}

/// Nodes have a stream by a rule or by hand, and keep it with another buffer.
#[test]
fn a_stream_keeps_its_nodes_with_another_buffer() {
    let roles = [NodeRole::Dissemination, NodeRole::Delivery, NodeRole::Delivery];
    let cluster = Cluster::new(&roles, TransportKind::Tcp);
    let ingest = cluster.ruled(1, &[3]);
    let former = ingest.create_stream("a").unwrap();
    ingest.set_outbound(2, former).unwrap();
    assert!(ingest.remove_outbound(3, former).unwrap());
    let id = ingest.replace_stream(former, 1 << 20).unwrap();
    let now = ingest.outbound();
    assert_eq!(
        now.iter().map(|own| (own.id, &own.nodes[..])).collect::<Vec<_>>(),
        [(former, &[2][..]), (id, &[2])]
    );
    assert_eq!((&*now[1].name, now[1].capacity_bytes), ("a", 1 << 20));
    ingest.destroy_stream(former).unwrap();
    assert!(matches!(ingest.replace_stream(former, 1 << 20), Err(StreamError::NoSuchStream(_))));
}

/// The nodes of a map, as somebody finds them: each node knows itself alone at first.
#[test]
fn nodes_that_are_found_get_the_streams_of_the_rules() {
    let roles = [NodeRole::Dissemination, NodeRole::Delivery, NodeRole::Delivery];
    let cluster = Cluster::new(&roles, TransportKind::Tcp);
    let all = cluster.config.nodes.clone();
    let alone = |node: NodeId| {
        let mut config = cluster.config_of(node, &[]);
        config.nodes.retain(|own| own.id == node);
        config.finds_nodes = true;
        config
    };
    let mut config = alone(1);
    config.rules = vec![Rule { streams: "*".to_owned(), nodes: vec!["n*".to_owned()] }];
    let ingest = RsManager::new(config).unwrap();
    let deliver = |node: NodeId, address: &str| {
        let (mut config, mut seen) = (alone(node), None);
        config.nodes[0].address = address.to_owned();
        let manager = RsManager::prepared(config, |manager| seen = Some(Seen::of(manager))).unwrap();
        manager.set_found_nodes(all[..1].to_vec());
        (manager, seen.unwrap())
    };
    let id = ingest.create_stream("a").unwrap();
    send(&ingest, id, 0, 100);
    let (second, seen_by_second) = deliver(2, &all[1].address);
    ingest.set_found_nodes(all.clone());
    assert_eq!(seen_by_second.chunk().to_vec().unwrap(), chunk_of(0, 100), "it came before the node");
    let (third, seen_by_third) = deliver(3, &all[2].address);
    assert_eq!(seen_by_third.chunk().to_vec().unwrap(), chunk_of(0, 100));
    // Who keeps the list has lost sight of the nodes, and they have not gone.
    ingest.set_found_nodes(Vec::new());
    send(&ingest, id, 1, 100);
    for seen in [&seen_by_second, &seen_by_third] {
        assert_eq!(seen.chunk().to_vec().unwrap(), chunk_of(1, 100));
    }
    third.shutdown(WAIT);
    drop(third);
    until("the third is left", || {
        ingest.set_found_nodes(all[1..2].to_vec());
        ingest.outbound()[0].nodes == [2]
    });
    let mut moved = all.clone();
    moved[2].address = own_addr();
    let (_third, seen_by_third) = deliver(3, &moved[2].address);
    ingest.set_found_nodes(moved);
    send(&ingest, id, 2, 100);
    until("it has what is new", || seen_by_third.chunk().to_vec().unwrap() == chunk_of(2, 100));
    drop(second);
}

/// A node of the map without an address, and one that the map has lost, are no reason why others do not get a stream.
#[test]
fn a_found_node_that_cannot_get_a_stream_keeps_no_other_from_it() {
    let roles = [NodeRole::Dissemination, NodeRole::Delivery, NodeRole::Delivery, NodeRole::Dissemination];
    let cluster = Cluster::new(&roles, TransportKind::Tcp);
    let mut all = cluster.config.nodes.clone();
    all[1].address.clear();
    all[3].address.clear();
    let mut config = cluster.config_of(1, &[2, 3, 4]);
    config.nodes.truncate(1);
    (config.finds_nodes, config.streams.max_streams) = (true, 4);
    let ingest = RsManager::new(config).unwrap();
    let (_third, seen) = cluster.receiver(3);
    ingest.set_found_nodes(all);
    for _ in 0..8 {
        let id = ingest.create_stream("a").unwrap();
        assert_eq!(ingest.outbound()[0].nodes, [3]);
        ingest.destroy_stream(id).unwrap();
    }
    let former = ingest.create_stream("a").unwrap();
    send(&ingest, former, 0, 100);
    assert_eq!(seen.chunk().to_vec().unwrap(), chunk_of(0, 100));
    ingest.set_found_nodes(Vec::new());
    let id = ingest.replace_stream(former, 1 << 20).unwrap();
    send(&ingest, id, 1, 100);
    assert_eq!(seen.chunk().to_vec().unwrap(), chunk_of(1, 100));
}

#[test]
fn an_overtaken_reader_learns_it() {
    for transport in [TransportKind::Auto, TransportKind::Tcp] {
        let (ingest, _delivery, seen) = pair(transport);
        let id = ingest.create_stream("a").unwrap();
        ingest.set_outbound(2, id).unwrap();
        let size = ingest.config().streams.chunk_bytes as usize;
        send(&ingest, id, 0, size);
        let first = seen.chunk();
        assert!(first.check().is_ok());
        let kept = first.part(10..20);
        // Before sending: the writer goes on until the chunk is gone.
        for number in 1..20 {
            send(&ingest, id, number, size);
            seen.chunk();
        }
        assert!(first.check().is_err() && first.to_vec().is_err() && kept.check().is_err());
        #[allow(unsafe_code)]
        // SAFETY: nothing reads the slice.
        let lent = unsafe { first.lend::<()>(|_| panic!("the bytes are gone")) };
        assert!(lent.is_err());
        // During sending: the writer overtakes the reader in the middle of its work.
        send(&ingest, id, 20, size);
        let newest = seen.chunk();
        #[allow(unsafe_code)]
        // SAFETY: the bytes are only counted.
        let lent = unsafe {
            newest.lend(|bytes| {
                for number in 21..40 {
                    send(&ingest, id, number, size);
                    seen.chunk();
                }
                bytes.len()
            })
        };
        assert!(lent.is_err(), "the reader took overwritten bytes for whole");
    }
}

#[test]
fn a_tree_forwards_every_byte() {
    use NodeRole::{Delivery, Dissemination};
    let roles = [Dissemination, Dissemination, Dissemination, Delivery, Delivery, Delivery, Delivery];
    for transport in [TransportKind::Auto, TransportKind::Tcp] {
        let cluster = Cluster::new(&roles, transport);
        let leaves: Vec<_> = (4..=7).map(|node| cluster.receiver(node)).collect();
        let middle = [cluster.ruled(2, &[4, 5]), cluster.ruled(3, &[6, 7])];
        let root = cluster.ruled(1, &[2, 3]);
        let id = root.create_stream("a").unwrap();
        for (_, seen) in &leaves {
            seen.event(|event| matches!(event, StreamEvent::Began { .. }));
        }
        let mut sum = 0;
        for number in 0..50 {
            let size = 1 + 997 * number as usize;
            send(&root, id, number, size);
            sum = crc32c::crc32c_append(sum, &chunk_of(number, size));
            let mut sums = Vec::new();
            for (_, seen) in &leaves {
                let chunk = seen.chunk();
                assert_eq!((chunk.stream(), chunk.size()), (id, size));
                sums.push(crc32c::crc32c(&chunk.to_vec().unwrap()));
            }
            assert!(sums.iter().all(|leaf| *leaf == crc32c::crc32c(&chunk_of(number, size))));
        }
        assert_ne!(sum, 0);
        root.destroy_stream(id).unwrap();
        for (_, seen) in &leaves {
            seen.event(|event| *event == StreamEvent::Ended);
        }
        drop(middle);
    }
}

#[test]
fn a_node_of_both_roles_forwards_and_delivers() {
    let roles = [NodeRole::Dissemination, NodeRole::Both, NodeRole::Delivery];
    let cluster = Cluster::new(&roles, TransportKind::Auto);
    let (_leaf, leaf_seen) = cluster.receiver(3);
    let both = cluster.ruled(2, &[3]);
    let seen = Seen::of(&both);
    let root = cluster.ruled(1, &[2]);
    let id = root.create_stream("a").unwrap();
    send(&root, id, 0, 5000);
    for seen in [&seen, &leaf_seen] {
        assert_eq!(seen.chunk().to_vec().unwrap(), chunk_of(0, 5000));
    }
}

#[test]
fn a_delivery_node_that_comes_back_gets_its_streams() {
    let cluster = Cluster::new(&[NodeRole::Dissemination, NodeRole::Delivery], TransportKind::Auto);
    let ingest = cluster.ruled(1, &[2]);
    let id = ingest.create_stream("a").unwrap();
    for number in 0..3 {
        let (delivery, seen) = cluster.receiver(2);
        seen.event(|event| matches!(event, StreamEvent::Began { .. }));
        send(&ingest, id, number, 100);
        while seen.chunk().to_vec().unwrap() != chunk_of(number, 100) {}
        delivery.shutdown(Duration::ZERO);
    }
}

#[test]
fn an_ingest_node_that_comes_back_has_new_ids() {
    let cluster = Cluster::new(&[NodeRole::Dissemination, NodeRole::Delivery], TransportKind::Auto);
    let (delivery, seen) = cluster.receiver(2);
    let mut ids = Vec::new();
    for number in 0..3 {
        let ingest = cluster.ruled(1, &[2]);
        let id = ingest.create_stream("a").unwrap();
        seen.event(|event| matches!(event, StreamEvent::Began { .. }));
        send(&ingest, id, number, 100);
        assert_eq!(seen.chunk().to_vec().unwrap(), chunk_of(number, 100));
        ids.push(id);
        ingest.shutdown(Duration::ZERO);
        seen.event(|event| *event == StreamEvent::Interrupted);
        // The stream of the process before ends with the next one's connection, or when it does not return.
        if number == 2 {
            seen.event(|event| *event == StreamEvent::Ended);
        }
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert!(delivery.inbound().is_empty());
}

#[test]
fn mistakes_are_errors() {
    let (ingest, delivery, _seen) = pair(TransportKind::Auto);
    assert!(matches!(delivery.create_stream("a"), Err(StreamError::NotDisseminating)));
    assert!(matches!(ingest.create_stream("../a"), Err(StreamError::Name(_))));
    let id = ingest.create_stream("a").unwrap();
    let max = ingest.config().streams.chunk_bytes as usize;
    assert!(matches!(ingest.allocate_chunk(id, 0), Err(ChunkError::Empty)));
    assert!(matches!(ingest.allocate_chunk(id, max + 1), Err(ChunkError::TooLarge { .. })));
    let chunk = ingest.allocate_chunk(id, 10).unwrap();
    let Err(ChunkError::TooLong { chunk, .. }) = ingest.disseminate_chunk(chunk, 11, None) else { panic!() };
    ingest.disseminate_chunk(*chunk, 0, None).unwrap();
    let open = ingest.allocate_chunk(id, 10).unwrap();
    ingest.destroy_stream(id).unwrap();
    assert!(matches!(ingest.disseminate_chunk(open, 10, None), Err(ChunkError::Ended)));
    assert!(matches!(ingest.allocate_chunk(id, 10), Err(ChunkError::NoSuchStream(_))));
}
