//! MultiMQC: a service with datagrams from hostile clients.

use std::sync::Arc;

use multimqc::levels::{UserConfig, UserLevel};
use multimqc::wire::{Datagram, HEADER_BYTES, Kind, PULL_BYTES, PullRequest, Status};
use multimqc::{Epoch, Service, ServiceConfig, Stack, TopicId};

const TOPIC: TopicId = TopicId(1);

/// Feeds a service with datagrams. A datagram is preceded by two bytes with its length (little endian); the top bit sends it to the
/// ports of the plain form. No reply is longer than its request, each belongs to its pull, and the log grows by what was pushed.
pub fn multimqc_datagrams(data: &[u8]) {
    let config = UserConfig { capacity_bytes: 1 << 19, batch_bytes: 4096, max_topics: 1 };
    let level = UserLevel::new(config).expect("the configuration is good");
    let stack = Arc::new(Stack::new(vec![Arc::new(level)]).expect("a level"));
    stack.open(TOPIC, Epoch(5)).expect("a topic");
    let config =
        ServiceConfig { accept_batches: data.len() % 2 == 1, max_senders: 4, ..ServiceConfig::default() };
    let service = Service::new(Arc::clone(&stack), config);
    let (mut rest, mut batched, mut plain_reply) = (data, false, Vec::new());
    let mut pushed = 0;
    while let Some((&[low, high], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high & 0x7F])).min(after.len());
        let (datagram, after) = after.split_at(length);
        rest = after;
        if high >> 7 == 1 {
            service.push(TOPIC, std::iter::once(datagram));
            pushed += datagram.len() as u64;
            if service.pull(TOPIC, datagram, &mut plain_reply) {
                assert!(plain_reply.len() <= datagram.len(), "a reply is not longer than its request");
                let pull = PullRequest::parse(datagram).expect("only pulls are answered");
                assert_eq!(pull.encode(), datagram[..PULL_BYTES]);
                assert!(plain_reply.len() as u64 <= pull.length);
            }
            continue;
        }
        service.datagrams(std::iter::once(datagram), |_, reply| answered(datagram, reply));
        if let Ok(Datagram { header, body }) = Datagram::parse(datagram) {
            batched |= header.kind == Kind::Batch;
            if header.kind == Kind::Push && header.topic == TOPIC {
                pushed += body.len() as u64;
            }
        }
    }
    let head = stack.head(TOPIC).expect("the topic is open");
    assert!(head == pushed || batched, "the log has {head} bytes of {pushed}");
    assert!(service.report().senders.tracked <= 4);
}

/// A reply is a datagram of its own, and belongs to its request.
fn answered(request: &[u8], reply: &[u8]) {
    assert!(reply.len() <= request.len(), "a reply is not longer than its request");
    let asked = Datagram::parse(request).expect("only good datagrams are answered").header;
    let Datagram { header, body } = Datagram::parse(reply).expect("a reply follows the format");
    assert_eq!((asked.kind, header.kind), (Kind::Pull, Kind::Reply));
    assert_eq!(header.encode(), reply[..HEADER_BYTES]);
    assert_eq!((header.cookie, header.sequence, header.topic), (asked.cookie, asked.sequence, asked.topic));
    assert!(header.offset == asked.offset || header.status == Status::End);
    assert!(body.len() <= asked.length as usize);
}
