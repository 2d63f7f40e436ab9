//! All ways to publish and to receive topics of a space, against what the filters match.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use rbmq::wire::AttributesBuf;
use rbmq::{Publisher, Subscriber, TopicFilter, TopicName, TopicWriter};
use testkit::LONG;

use super::{broker, name, settled, subscriber};

const EACH: u32 = 300;

/// Publishes numbered records to topics in all ways that there are.
fn publish_in_all_ways(addr: &str, names: &[TopicName], who: u32) {
    let publisher = Publisher::connect(addr).unwrap();
    let mut topics: Vec<TopicWriter> =
        names.iter().map(|name| publisher.topic(name.as_str()).unwrap()).collect();
    let mut space = publisher.space("d/#").unwrap();
    let mut seed = who.wrapping_mul(7919) + 1;
    for which in 0..EACH {
        seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let at = (seed >> 16) as usize % names.len();
        let payload = [who.to_le_bytes(), which.to_le_bytes()].concat();
        let mut attributes = AttributesBuf::new();
        attributes.key(b"k").unwrap();
        match which % 6 {
            0 => _ = topics[at].publish(&payload).unwrap(),
            1 => {
                let mut batch = topics[at].batch(12).unwrap();
                assert!(batch.push(&payload) && !batch.push(b""));
                batch.deliver().unwrap();
            }
            2 => {
                let mut segment = topics[at].claim(9, None).unwrap();
                segment.bytes_mut()[..8].copy_from_slice(&payload);
                topics[at].publish_segment(segment, Some(8)).unwrap();
            }
            3 => _ = topics[at].publish_with(&attributes, &payload).unwrap(),
            4 => {
                let mut segment = topics[at].claim_with(&attributes, 8, None).unwrap();
                segment.bytes_mut().copy_from_slice(&payload);
                topics[at].publish_segment(segment, Some(8)).unwrap();
            }
            _ => _ = space.publish_to(&names[at], &attributes, &payload).unwrap(),
        }
    }
    space.close().unwrap();
    topics.into_iter().for_each(|topic| topic.close().unwrap());
}

/// What a subscriber has to get.
struct Checked<'a> {
    filters: Vec<TopicFilter>,
    last: BTreeMap<u32, u32>,
    /// The topic of each record, as subscribers have seen it.
    topics: &'a mut HashMap<(u32, u32), TopicName>,
}

impl Checked<'_> {
    fn take(&mut self, topic: &TopicName, bytes: &[u8]) {
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (who, which) = (number(0), number(4));
        assert!(self.filters.iter().any(|filter| filter.matches(topic)), "{topic}");
        assert!(self.last.insert(who, which).is_none_or(|before| before < which), "out of order");
        assert_eq!(*self.topics.entry((who, which)).or_insert_with(|| topic.clone()), *topic);
    }
}

/// What each subscriber gets is what its filters match, in the order of each publisher, whichever way the records are published and received.
#[test]
fn what_comes_is_what_the_filters_match() {
    let broker = broker();
    let addr = broker.addr();
    let filters: [&[&str]; 5] = [&["#"], &["d/+/1"], &["+/2/#", "d/1/1"], &["d/0"], &["d/#", "d/+/+"]];
    let mut subscribers: Vec<Subscriber> = filters.iter().map(|filters| subscriber(&addr, filters)).collect();
    subscribers.iter_mut().for_each(settled);
    let names = ["d/0", "d/0/0", "d/0/1", "d/1", "d/1/1", "d/1/2", "d/2", "d/2/1", "d/2/2/x"].map(name);
    std::thread::scope(|threads| {
        for who in 0..3 {
            let (addr, names) = (&addr, &names);
            threads.spawn(move || publish_in_all_ways(addr, names, who));
        }
    });
    let mut topics = HashMap::new();
    for (at, subscriber) in subscribers.iter_mut().enumerate() {
        let filters: Vec<TopicFilter> = filters[at].iter().map(|filter| filter.parse().unwrap()).collect();
        let wanted = |topic: &TopicName| filters.iter().any(|filter| filter.matches(topic));
        let count = match at {
            0 => 3 * EACH as usize,
            _ => topics.values().filter(|topic| wanted(topic)).count(),
        };
        let mut checked = Checked { filters, last: BTreeMap::new(), topics: &mut topics };
        let mut got = 0;
        while got < count {
            if at % 2 == 0 {
                let message = subscriber.recv_ref(Some(LONG)).unwrap().expect("a message");
                checked.take(message.topic, message.bytes);
                got += 1;
            } else {
                let batch = subscriber.next_batch(Some(LONG)).unwrap().expect("messages");
                for record in batch.records() {
                    checked.take(batch.topic(), record);
                    got += 1;
                }
            }
        }
        assert!(subscriber.recv(Some(Duration::ZERO)).unwrap().is_none());
    }
    assert_eq!(topics.len(), 3 * EACH as usize);
}
