//! A kept topic against a plain list: whatever publishers, subscribers and brokers do, each subscriber gets each message of each
//! publisher once and in order, from where it began.
//!
//! A case draws the sizes of rings, the pace of two publishers and of three subscribers, where these leave and come back with their
//! positions, and when the broker is dropped and started again.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rbmq::{
    ConfirmLevel, Event, Notice, Publisher, ReceiveError, SlowPolicy, StartFrom, Subscriber, TopicOptions,
};
use rbmq_broker::{Broker, BrokerConfig, Rule};
use rocketbufs::{Epoch, Position};
use testkit::own_addr;

/// The time for events that must come. The machine may be loaded.
const LONG: Duration = Duration::from_secs(60);

/// Messages of each publisher.
const EACH: usize = 1_500;

const PUBLISHERS: usize = 2;

#[derive(Debug, Clone)]
struct Reader {
    ring_bytes: u64,
    /// Pauses after this many messages, in milliseconds.
    pause: (usize, u64),
    /// The reader leaves after so many messages and comes back at its positions.
    leaves_after: usize,
}

#[derive(Debug, Clone)]
struct Case {
    ring_bytes: u64,
    message_bytes: usize,
    /// The pauses of the publishers, in milliseconds, after 100 messages each.
    paces: [u64; PUBLISHERS],
    readers: Vec<Reader>,
    /// When the broker is restarted, in milliseconds after the start.
    restarts: Vec<u64>,
}

fn case() -> impl Strategy<Value = Case> {
    let reader =
        (14u32..18, 50usize..400, 0u64..15, 200usize..2_500).prop_map(|(ring, every, pause, leaves)| {
            Reader { ring_bytes: 1 << ring, pause: (every, pause), leaves_after: leaves }
        });
    let readers = proptest::collection::vec(reader, 3);
    let restarts = proptest::collection::vec(50u64..600, 0..3);
    (16u32..19, 20usize..400, any::<[bool; PUBLISHERS]>(), readers, restarts).prop_map(
        |(ring, message_bytes, slow, readers, restarts)| Case {
            ring_bytes: 1 << ring,
            message_bytes,
            paces: slow.map(|slow| if slow { 20 } else { 1 }),
            readers,
            restarts,
        },
    )
}

fn broker(dir: &Path, case: &Case, listen: &str) -> Broker {
    let mut rule = Rule::new("#".parse().unwrap());
    rule.keep = true;
    rule.ring_bytes = Some(case.ring_bytes);
    let mut config = BrokerConfig::default();
    config.broker.listen = listen.into();
    config.broker.keep_dir = dir.to_str().unwrap().into();
    config.broker.topics = vec![rule].into();
    Broker::start(config).unwrap()
}

fn publish(addr: &str, publisher: usize, pace: u64, message_bytes: usize) {
    let options = TopicOptions::default().ring_bytes(16 << 10);
    let mut writer = until_it_runs(|| {
        let publisher = Publisher::connect(addr).map_err(|error| error.to_string())?;
        publisher.topic_with("t", options.clone()).map_err(|error| error.to_string())
    });
    for number in 0..EACH {
        let text = format!("{publisher} {number} {}", ".".repeat(message_bytes));
        writer.publish_timeout(text.as_bytes(), Some(LONG)).unwrap();
        if number % 100 == 0 {
            std::thread::sleep(Duration::from_millis(pace));
        }
    }
    writer.confirm(writer.position(), ConfirmLevel::Accepted, Some(LONG)).unwrap();
}

/// Calls a broker that is perhaps just being restarted, until it answers.
fn until_it_runs<T, E: std::fmt::Display>(mut call: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        match call() {
            Ok(done) => return done,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn connect(addr: &str, ring_bytes: u64, from: StartFrom) -> Subscriber {
    let slow = SlowPolicy::BlockFor { timeout: None };
    let builder = Subscriber::builder().slow(slow).ring_bytes(ring_bytes);
    let mut subscriber = until_it_runs(|| builder.clone().connect(addr));
    subscriber.subscribe_from("t", from).unwrap();
    subscriber
}

/// Reads everything, and checks it against the publishers' lists.
fn read(addr: &str, reader: &Reader) {
    let connect = |from| connect(addr, reader.ring_bytes, from);
    let mut subscriber = connect(StartFrom::Oldest);
    let mut next = [0; PUBLISHERS];
    let mut positions: HashMap<Epoch, Position> = HashMap::new();
    let (mut count, mut leave_at) = (0, reader.leaves_after);
    while next.iter().any(|next| *next < EACH) {
        match subscriber.next_event(Some(LONG)).unwrap().expect("an event") {
            Event::Batch(batch) => {
                for record in batch.checked_records() {
                    let text = std::str::from_utf8(record.unwrap()).unwrap();
                    let mut words = text.split(' ');
                    let mut number = || words.next().unwrap().parse::<usize>().unwrap();
                    let (publisher, number) = (number(), number());
                    assert_eq!(number, next[publisher], "of publisher {publisher}");
                    next[publisher] += 1;
                    count += 1;
                }
                positions.insert(batch.epoch(), batch.end());
            }
            Event::Notice(
                notice @ (Notice::Lost { .. } | Notice::LogReplaced { .. } | Notice::Gone { .. }),
            ) => {
                panic!("{notice:?} at {next:?}")
            }
            Event::Notice(_) => {}
            other => panic!("{other:?}"),
        }
        if count % reader.pause.0 == 0 {
            std::thread::sleep(Duration::from_millis(reader.pause.1));
        }
        if count >= leave_at {
            leave_at += reader.leaves_after.max(500);
            drop(subscriber);
            subscriber = connect(StartFrom::Positions(positions.clone().into_iter().collect()));
        }
    }
    assert_eq!(positions.len(), 1, "the topic has one log");
    // Nothing comes twice behind the end.
    match subscriber.recv(Some(Duration::from_millis(10))) {
        Ok(None) | Err(ReceiveError::Gone { .. }) => {}
        other => panic!("{other:?}"),
    }
}

fn play(case: &Case) {
    let dir = tempfile::tempdir().unwrap();
    let mut broker = Some(broker(dir.path(), case, &own_addr()));
    let addr = broker.as_ref().unwrap().addr();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (publisher, pace) in case.paces.into_iter().enumerate() {
            let addr = &addr;
            threads.push(scope.spawn(move || publish(addr, publisher, pace, case.message_bytes)));
        }
        for reader in &case.readers {
            let addr = &addr;
            threads.push(scope.spawn(move || read(addr, reader)));
        }
        for pause in &case.restarts {
            std::thread::sleep(Duration::from_millis(*pause));
            drop(broker.take());
            broker = Some(self::broker(dir.path(), case, &addr));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, max_shrink_iters: 0, ..ProptestConfig::default() })]

    // Four cases side by side, because they wait more than they compute.
    #[test]
    fn every_subscriber_has_the_list(cases in proptest::collection::vec(case(), 4)) {
        std::thread::scope(|scope| {
            for case in &cases {
                scope.spawn(|| play(case));
            }
        });
    }
}
