//! Observers: their view of a real broker, and the end of misbehaving ones.

use std::time::Duration;

use rbmq::wire::{Control, Hello, Observe, Role};
use rbmq::{
    BlockReason, BufferStage, Framing, Observer, Publisher, SlowPolicy, StartFrom, Subscriber, TopicDetail,
    TopicFilter, TopicOptions, TopicWriter,
};
use rbmq_broker::{Broker, Ingest};
use rocketbufs::{Config, Conn, Context, Policy, RIn};
use testkit::{LONG, broker_with, rule, until};

fn topic(broker: &Broker, name: &str) -> TopicWriter {
    let publisher = Publisher::builder().name("camera").connect(&broker.addr()).unwrap();
    let options = TopicOptions::default().ring_bytes(64 << 10);
    publisher.topic_with(name, options).unwrap()
}

fn detail(observer: &mut Observer, name: &str) -> TopicDetail {
    observer.topic(&name.parse().unwrap()).unwrap()
}

#[test]
fn an_empty_broker() {
    let broker = broker_with(|_| {});
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    let summary = observer.summary().unwrap();
    assert_eq!((summary.publishers, summary.subscribers, summary.observers), (0, 0, 1));
    assert_eq!((summary.topics, summary.buffers, summary.ring_bytes), (0, 0, 0));
    assert_eq!(summary.version, env!("CARGO_PKG_VERSION"));
    assert!(observer.topics(None).unwrap().is_empty());
    assert!(detail(&mut observer, "none").buffers.is_empty());
}

#[test]
fn slow_subscribers_and_blocked_publishers_are_visible() {
    let broker = broker_with(|_| {});
    let mut writer = topic(&broker, "t");
    let slow = Subscriber::builder().until_ended(true).name("slow").ring_bytes(64 << 10);
    // However long this takes.
    let slow = slow.slow(SlowPolicy::BlockFor { timeout: None });
    let mut slow = slow.connect(&broker.addr()).unwrap();
    slow.subscribe("t").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    let mut seen = None;
    // No subscriber reads: the rings become full, and the publisher has to wait.
    until("the slow one holds the writer", || {
        let _ = writer.publish_timeout(&[7; 1000], Some(Duration::ZERO));
        let all = observer.topics(None).unwrap();
        let holds = all[0].slowest.as_ref().is_some_and(|slowest| slowest.blocks_publisher);
        seen = holds.then(|| all[0].clone());
        holds
    });
    let row = seen.unwrap();
    assert_eq!((row.topic.as_str(), row.publishers, row.subscribers, row.ring_bytes), ("t", 1, 1, 64 << 10));
    assert_eq!(row.slowest.unwrap().name, "slow");
    assert!(row.max_lag_bytes > 0 && row.received_bytes > row.delivered_bytes);

    let topic = detail(&mut observer, "t");
    let [buffer] = &topic.buffers[..] else { panic!("{topic:?}") };
    let [sub] = &buffer.subscriptions[..] else { panic!("{topic:?}") };
    let stats = &buffer.buffer;
    assert_eq!((stats.publisher.as_str(), stats.connected, stats.stage), ("camera", true, BufferStage::Live));
    assert!(stats.tail <= stats.boundary && stats.boundary <= stats.head && stats.head <= stats.horizon);
    assert_eq!((stats.capacity_bytes, stats.retain_bytes), (64 << 10, 32 << 10));
    assert_eq!(
        (sub.client.as_str(), sub.policy, sub.offline, sub.consumed),
        ("slow", Policy::Block, false, 0)
    );
    assert!(sub.sent >= sub.landed && sub.retains_from == Some(sub.landed));
    assert_eq!(sub.lag_bytes(stats.head), stats.head - sub.landed);
    // Once it reads, all of it comes.
    until("nothing is held", || {
        while slow.recv(Some(Duration::ZERO)).unwrap().is_some() {}
        observer.topics(None).unwrap()[0].slowest.as_ref().is_none_or(|s| !s.blocks_publisher)
    });
}

#[test]
fn losses_of_a_dropping_subscriber_are_visible() {
    let broker = broker_with(|_| {});
    let mut writer = topic(&broker, "t");
    let lossy = Subscriber::builder()
        .until_ended(true)
        .name("lossy")
        .slow(SlowPolicy::Drop { max_lag_bytes: None })
        .ring_bytes(64 << 10);
    let mut lossy = lossy.connect(&broker.addr()).unwrap();
    lossy.subscribe("t").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    for _ in 0..1000 {
        writer.publish(&[7; 1000]).unwrap();
    }
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    until("the subscriber lost data", || observer.topics(None).unwrap()[0].dropped_bytes > 0);
    let sub = &detail(&mut observer, "t").buffers[0].subscriptions[0];
    assert!(sub.dropped_bytes > 0 && sub.policy == Policy::Drop);
    drop(lossy);
    // Lost bytes still count after the subscriber that lost them has left.
    until("the subscriber is gone", || observer.topics(None).unwrap()[0].subscribers == 0);
    assert!(observer.topics(None).unwrap()[0].dropped_bytes > 0);
    assert!(observer.summary().unwrap().dropped_bytes > 0);
}

#[test]
fn offline_durable_subscriptions_are_visible() {
    let broker = broker_with(|_| {});
    let mut writer = topic(&broker, "t");
    let named = Subscriber::builder().until_ended(true).durable("attic", LONG).connect(&broker.addr());
    let mut named = named.unwrap();
    named.subscribe_from("t", StartFrom::Oldest).unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    named.close_timeout(Some(LONG));
    writer.publish(b"unseen").unwrap();
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    until("the subscriber is away", || observer.topics(None).unwrap()[0].offline == 1);
    until("the subscriber is behind", || observer.topics(None).unwrap()[0].max_lag_bytes == 10);
    let slowest = observer.topics(None).unwrap()[0].slowest.clone().unwrap();
    assert_eq!((slowest.name.as_str(), slowest.offline), ("attic", true));
    let topic = detail(&mut observer, "t");
    assert_eq!(topic.buffers[0].buffer.offline, 1);
    let sub = &topic.buffers[0].subscriptions[0];
    assert!(sub.offline && sub.expires_in_ms > 0 && sub.expires_in_ms <= LONG.as_millis() as u64);
    assert_eq!((sub.name.as_str(), sub.landed, sub.retains_from), ("attic", 0, Some(0)));
}

#[test]
fn many_topics_are_listed_in_pages_and_filtered() {
    let broker = broker_with(|_| {});
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    // Long names: a page holds few of them.
    let long = "x".repeat(200);
    let names: Vec<String> = (0..200).map(|n| format!("{}/{n:03}/{long}", ["a", "b"][n % 2])).collect();
    let _open: Vec<TopicWriter> = names.iter().map(|name| publisher.topic(name).unwrap()).collect();
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    let mut sorted = names.clone();
    sorted.sort();
    let seen = |rows: Vec<rbmq::TopicStats>| rows.iter().map(|row| row.topic.to_string()).collect::<Vec<_>>();
    assert_eq!(seen(observer.topics(None).unwrap()), sorted);
    let filter: TopicFilter = "a/#".parse().unwrap();
    sorted.retain(|name| name.starts_with("a/"));
    assert_eq!(seen(observer.topics(Some(&filter)).unwrap()), sorted);
    let one: TopicFilter = names[7].parse().unwrap();
    assert_eq!(seen(observer.topics(Some(&one)).unwrap()), names[7..8]);
    assert!(observer.topics(Some(&"c".parse().unwrap())).unwrap().is_empty());
}

#[test]
fn many_subscriptions_are_listed_in_pages_the_slowest_first() {
    let broker = broker_with(|_| {});
    let mut writer = topic(&broker, "t");
    let ctx = Context::new(Config::default()).unwrap();
    let name = |n: usize| format!("{n:03}{}", "n".repeat(200));
    let subscribers: Vec<Subscriber> = (0..60)
        .map(|n| {
            let builder =
                Subscriber::builder().until_ended(true).context(&ctx).name(&name(n)).ring_bytes(32 << 10);
            let mut subscriber = builder.connect(&broker.addr()).unwrap();
            subscriber.subscribe("t").unwrap();
            subscriber
        })
        .collect();
    writer.wait_subscribers(60, Some(LONG)).unwrap();
    writer.publish(b"x").unwrap();
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    let subs = detail(&mut observer, "t").buffers.remove(0).subscriptions;
    let mut names: Vec<String> = subs.iter().map(|sub| sub.client.clone()).collect();
    names.sort();
    assert!(names.iter().eq((0..60).map(name).collect::<Vec<_>>().iter()));
    assert!(subs.is_sorted_by_key(|sub| sub.landed));
    drop(subscribers);
}

/// An observer without manners.
fn raw_observer(ctx: &Context, broker: &Broker) -> (Conn, RIn) {
    let hello = Hello { role: Role::Observer, client: 1, name: "rude".into() };
    let conn = Conn::connect_start(ctx, &broker.addr(), &hello.encode()).unwrap();
    let rin = RIn::new(&conn);
    conn.wait_up(Some(LONG)).unwrap();
    (conn, rin)
}

/// Why the broker ended it, and that the others did not notice.
fn ended(conn: &Conn, others: &mut Observer) -> String {
    let why = conn.wait_down(Some(LONG)).unwrap().expect("the peer is disconnected");
    others.summary().unwrap();
    why.to_string()
}

#[test]
fn garbage_and_foreign_messages_end_only_the_observer() {
    let broker = broker_with(|_| {});
    let mut good = Observer::connect(&broker.addr()).unwrap();
    let ctx = Context::new(Config::default()).unwrap();
    let answer = Observe::TopicsPage { request: 1, rows: Vec::new(), next: None }.encode();
    let control = Control::Topics { filters: vec!["t".parse().unwrap()] }.encode();
    let large = vec![0x30; 17 << 10];
    let cases: [(&[u8], &str); 6] = [
        (b"", "ends 1 bytes too early"),
        (b"\x3f\0\0\0\0", "is no valid type of message"),
        (b"\x31\0\0\0\0\x02#a\0", "a whole level"),
        (&answer, "only brokers send"),
        (&control, "is no valid type of message"),
        (&large, "bytes too many"),
    ];
    for (message, expected) in cases {
        let (conn, _rin) = raw_observer(&ctx, &broker);
        conn.send_control(message).unwrap();
        let why = ended(&conn, &mut good);
        assert!(why.contains(expected), "{message:?}: {why}");
    }
    until("the bad observers are gone", || good.summary().unwrap().observers == 1);
}

#[test]
fn a_flood_of_requests_ends_only_the_observer() {
    let broker = broker_with(|config| config.broker.max_observer_requests = 3);
    let mut good = Observer::connect(&broker.addr()).unwrap();
    let ctx = Context::new(Config::default()).unwrap();
    let (conn, _rin) = raw_observer(&ctx, &broker);
    // Requests come faster than the broker can answer on any machine.
    let request = Observe::GetTopics { request: 1, filter: None, after: None }.encode();
    while conn.down_reason().is_none() {
        let _ = conn.send_control(&request);
    }
    let why = ended(&conn, &mut good);
    assert!(why.contains("broker.max_observer_requests") || why.contains("too slow"), "{why}");
}

#[test]
fn observers_are_counted_and_get_no_data() {
    let broker = broker_with(|config| config.broker.max_observers = 2);
    let mut writer = topic(&broker, "t");
    let mut good = Observer::connect(&broker.addr()).unwrap();
    let ctx = Context::new(Config::default()).unwrap();
    let (conn, rin) = raw_observer(&ctx, &broker);
    let refused = Observer::connect(&broker.addr()).unwrap_err().to_string();
    assert!(
        refused.contains("the broker has 2 observers; its limit (broker.max_observers) is 2"),
        "{refused}"
    );
    // The observer's rIn finds no buffer with any id.
    let bid = detail(&mut good, "t").buffers[0].buffer.bid;
    rin.subscribe(bid, 64 << 10).unwrap();
    writer.publish(b"secret").unwrap();
    assert!(matches!(rin.recv(Some(LONG)).unwrap(), Some(rocketbufs::InEvent::Refused { .. })));
    conn.close("done");
    until("its place is free", || Observer::connect(&broker.addr()).is_ok());
}

#[test]
fn an_observer_with_small_messages_gets_more_pages() {
    let broker = broker_with(|_| {});
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let topics: Vec<_> = (0..100).map(|n| publisher.topic(&format!("t/{n}")).unwrap()).collect();
    let mut config = Config::default();
    config.limits.max_control_bytes = 2048;
    let mut observer = Observer::builder().name("small").config(config).connect(&broker.addr()).unwrap();
    assert_eq!(observer.topics(None).unwrap().len(), topics.len());
}

#[test]
fn a_lost_broker_is_reported() {
    let broker = broker_with(|_| {});
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    broker.stop();
    assert!(matches!(observer.summary(), Err(rbmq::ObserveError::Down(_))));
}

#[test]
fn a_merged_topic_has_one_ring_for_all_its_publishers() {
    let broker = broker_with(|config| {
        config.broker.topics = vec![rule("tiny/#", |rule| rule.ingest = Ingest::Merge)].into();
    });
    let mut writers = [topic(&broker, "tiny/t"), topic(&broker, "tiny/t")];
    for writer in &mut writers {
        writer.publish(b"x").unwrap();
    }
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    until("both are in its ring", || {
        let topic = detail(&mut observer, "tiny/t");
        let [buffer] = &topic.buffers[..] else { panic!("{topic:?}") };
        assert_eq!(
            (buffer.buffer.framing, buffer.buffer.publisher.as_str()),
            (Framing::Merged, "2 merged: camera, camera")
        );
        // A run for each: its header of 8 bytes, and a record of 5.
        buffer.buffer.boundary == 2 * (8 + 5)
    });
}

#[test]
fn a_full_merge_table_blocks_its_publishers() {
    let broker = broker_with(|config| {
        config.broker.topics = vec![rule("t", |rule| rule.ingest = Ingest::Merge)].into();
        config.broker.merge_table_entries = 8;
    });
    let mut writer = topic(&broker, "t");
    let mut reader = Subscriber::builder().until_ended(true).name("dash").connect(&broker.addr()).unwrap();
    reader.subscribe("t").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    assert_eq!(observer.topics(None).unwrap()[0].blocked_by, None);
    // Everything comes into its memory, and nothing of it is given back.
    until("the table is full", || {
        let _ = writer.publish_timeout(b"x", Some(Duration::ZERO));
        let _ = writer.flush(Some(Duration::from_millis(1)));
        observer.topics(None).unwrap()[0].blocked_by == Some(BlockReason::MergeTableFull)
    });
    let stats = detail(&mut observer, "t").buffers[0].buffer.clone();
    assert_eq!((stats.table_entries, stats.max_table_entries), (8, 8));
    assert_eq!((stats.blocked_by(), stats.min_subscribers), (Some(BlockReason::MergeTableFull), 0));
    // With everything given back the table is empty, whether or not anything more comes.
    until("the table is empty", || {
        while reader.recv(Some(Duration::ZERO)).unwrap().is_some() {}
        detail(&mut observer, "t").buffers[0].buffer.table_entries == 0
    });
    assert_eq!(observer.topics(None).unwrap()[0].blocked_by, None);
}

#[test]
fn min_subscribers_blocks_a_publisher() {
    let broker = broker_with(|_| {});
    let options = TopicOptions::default().min_subscribers(2).ring_bytes(64 << 10);
    let mut writer = Publisher::connect(&broker.addr()).unwrap().topic_with("t", options).unwrap();
    let reader = || {
        let mut reader = Subscriber::builder()
            .until_ended(true)
            .slow(SlowPolicy::Drop { max_lag_bytes: None })
            .connect(&broker.addr())
            .unwrap();
        reader.subscribe("t").unwrap();
        reader
    };
    let (first, _second) = (reader(), reader());
    writer.wait_subscribers(2, Some(LONG)).unwrap();
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    until("both count", || detail(&mut observer, "t").buffers[0].buffer.receivers == 2);
    assert_eq!(observer.topics(None).unwrap()[0].blocked_by, None);
    let at = writer.publish(b"for two").unwrap();
    drop(first);
    until("a receiver counts", || detail(&mut observer, "t").buffers[0].buffer.receivers == 1);
    let stats = detail(&mut observer, "t").buffers[0].buffer.clone();
    assert_eq!((stats.min_subscribers, stats.blocked_by()), (2, Some(BlockReason::TooFewSubscribers)));
    assert!(stats.retained_from.is_some_and(|kept| kept <= at), "{stats:?}");
    assert_eq!(observer.topics(None).unwrap()[0].blocked_by, Some(BlockReason::TooFewSubscribers));
}
