//! Tasks of tokio publish and subscribe: back-pressure, dropped calls and restarted brokers.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use rbmq::{
    AttributesBuf, ConfirmLevel, Event, Notice, PublishError, Publisher, PublisherEvent, ReceiveError,
    Subscriber, TopicOptions, TopicWriter,
};
use rbmq_broker::{Broker, BrokerConfig};
use testkit::own_addr;
use tokio_stream::StreamExt;

const LIMIT: Duration = Duration::from_secs(60);

fn broker_at(addr: &str) -> Broker {
    let mut config = BrokerConfig::default();
    config.broker.listen = addr.into();
    Broker::start(config).unwrap()
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LIMIT, test).await.expect("the test hangs") })
}

async fn subscriber(addr: &str, topic: &str) -> Subscriber {
    let mut subscriber = Subscriber::builder().until_ended(true).connect_async(addr).await.unwrap();
    subscriber.subscribe(topic).unwrap();
    subscriber
}

#[test]
fn attributes_come_with_their_messages() {
    let broker = broker_at("127.0.0.1:0");
    run(async {
        let mut subscriber = subscriber(&broker.addr(), "t").await;
        let mut topic =
            Publisher::connect_async(&broker.addr()).await.unwrap().topic_async("t").await.unwrap();
        topic.wait_subscribers_async(1).await.unwrap();
        let mut attributes = AttributesBuf::new();
        attributes.reply_to("answers").unwrap();
        topic.publish_with_async(&attributes, b"with").await.unwrap();
        topic.publish_with_async(rbmq::Attributes::EMPTY, b"none").await.unwrap();
        topic.close_async().await.unwrap();
        let message = subscriber.recv_ref_async().await.unwrap().unwrap();
        assert_eq!((message.bytes, message.attributes), (&b"with"[..], attributes.attributes()));
        let message = subscriber.into_stream().next().await.unwrap().unwrap();
        assert_eq!((message.bytes.as_slice(), message.attributes), (&b"none"[..], AttributesBuf::new()));
    });
}

/// A message for which the ring would grow waits for the answer of a broker, and gets it: here that the topic is refused.
#[test]
fn a_large_message_hears_that_the_topic_is_refused() {
    let (addr, large) = (own_addr(), vec![7; 4 << 20]);
    let broker = broker_at(&addr);
    run(async {
        let publisher = Publisher::connect_async(&addr).await.unwrap();
        let mut topic = publisher.topic_async("t").await.unwrap();
        publisher.next_event(Some(Duration::ZERO));
        drop(broker);
        while !matches!(publisher.next_event(Some(LIMIT)).unwrap(), PublisherEvent::Disconnected(_)) {}
        let mut publishing = pin!(topic.publish_async(&large));
        let first = poll_fn(|task| Poll::Ready(publishing.as_mut().poll(task))).await;
        assert!(first.is_pending(), "no broker answers");
        let mut config = BrokerConfig::default();
        (config.broker.listen, config.broker.max_ring_bytes) = (addr.clone(), 512 << 10);
        let _broker = Broker::start(config).unwrap();
        let error = publishing.await.unwrap_err();
        assert!(matches!(error, PublishError::Refused { .. }), "{error}");
    });
}

/// A slow subscriber holds back a publisher on the same thread, and nothing is lost.
#[test]
fn a_publisher_and_a_subscriber_share_a_thread() {
    let broker = broker_at(&own_addr());
    run(async {
        let mut subscriber = subscriber(&broker.addr(), "numbers").await;
        let publisher = Publisher::connect_async(&broker.addr()).await.unwrap();
        let options = TopicOptions::default().ring_bytes(1 << 16);
        let mut numbers = publisher.topic_with_async("numbers", options).await.unwrap();
        numbers.wait_subscribers_async(1).await.unwrap();
        let publishing = tokio::spawn(async move {
            for n in 0..10_000_u64 {
                if n % 100 == 0 {
                    let mut batch = numbers.batch_async(1 << 10).await.unwrap();
                    assert!(batch.push(&n.to_le_bytes()));
                    batch.deliver().unwrap();
                } else {
                    // Larger than the ring in all.
                    numbers.publish_async(&[&n.to_le_bytes()[..], &[0; 1000]].concat()).await.unwrap();
                }
            }
            numbers.close_async().await.unwrap();
        });
        let mut next = 0_u64;
        while let Some(message) = subscriber.recv_ref_async().await.unwrap() {
            assert_eq!(message.bytes[..8], next.to_le_bytes());
            next += 1;
            if next.is_multiple_of(1000) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        assert_eq!(next, 10_000);
        publishing.await.unwrap();
    });
}

/// Publishes 2,000 records, and drops calls while they wait.
async fn publish_with_dropped_calls(mut topic: TopicWriter) {
    let mut n = 0_u64;
    while n < 2_000 {
        let record = [&n.to_le_bytes()[..], &[0; 500]].concat();
        let limit = Duration::from_micros(n % 30);
        // A call that was dropped has published nothing.
        if let Ok(published) = tokio::time::timeout(limit, topic.publish_async(&record)).await {
            published.unwrap();
            n += 1;
        }
    }
    topic.close_async().await.unwrap();
}

/// Calls that are dropped at any moment neither lose nor repeat a message.
#[test]
fn dropped_calls_lose_nothing() {
    let broker = broker_at(&own_addr());
    run(async {
        let mut subscriber = subscriber(&broker.addr(), "t").await;
        let publisher = Publisher::connect_async(&broker.addr()).await.unwrap();
        let options = TopicOptions::default().ring_bytes(1 << 14);
        let mut topic = publisher.topic_with_async("t", options).await.unwrap();
        topic.wait_subscribers_async(1).await.unwrap();
        let publishing = tokio::spawn(publish_with_dropped_calls(topic));
        let (mut next, mut calls) = (0_u64, 0_u64);
        loop {
            calls += 1;
            let limit = Duration::from_micros(calls % 70);
            let received = match calls % 3 {
                0 => tokio::time::timeout(limit, subscriber.recv_async())
                    .await
                    .map(|got| got.unwrap().map(|message| vec![message.bytes[..8].to_vec()])),
                _ => tokio::time::timeout(limit, subscriber.next_batch_async()).await.map(|got| {
                    got.unwrap().map(|batch| batch.records().map(|record| record[..8].to_vec()).collect())
                }),
            };
            match received {
                Err(_) => {}
                Ok(None) => break,
                Ok(Some(records)) => {
                    for record in records {
                        assert_eq!(record, next.to_le_bytes());
                        next += 1;
                    }
                }
            }
            // A batch that was begun is read to its end before the next one is asked for.
            while calls % 3 == 0
                && let Ok(Some(message)) = subscriber.recv_ref(Some(Duration::ZERO))
            {
                assert_eq!(message.bytes[..8], next.to_le_bytes());
                next += 1;
            }
        }
        assert_eq!(next, 2_000);
        publishing.await.unwrap();
    });
}

/// A broker is replaced by another one: tasks wait, and continue.
#[test]
fn tasks_wait_for_the_next_broker() {
    let broker = broker_at(&own_addr());
    let addr = broker.addr();
    run(async move {
        let mut subscriber = Subscriber::connect_async(&addr).await.unwrap();
        subscriber.subscribe("t").unwrap();
        let publisher = Publisher::connect_async(&addr).await.unwrap();
        let mut topic = publisher.topic_async("t").await.unwrap();
        topic.wait_subscribers_async(1).await.unwrap();
        topic.publish_async(b"before").await.unwrap();
        assert_eq!(subscriber.recv_async().await.unwrap().unwrap().bytes, b"before");
        drop(broker);
        let restarted = tokio::task::spawn_blocking({
            let addr = addr.clone();
            move || {
                std::thread::sleep(Duration::from_millis(300));
                broker_at(&addr)
            }
        });
        loop {
            if let Event::Notice(Notice::Reconnected) = subscriber.next_event_async().await.unwrap() {
                break;
            }
        }
        let broker = restarted.await.unwrap();
        // The publisher may not have noticed yet that it lost the first broker, and its subscriber there.
        while broker.topics().iter().all(|topic| topic.subscribers == 0) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let end = topic.publish_async(b"after").await.unwrap();
        assert_eq!(subscriber.recv_async().await.unwrap().unwrap().bytes, b"after");
        // The last message of a batch is consumed with the next call.
        let confirmed = topic.confirmation(end, ConfirmLevel::Delivered).await.unwrap();
        assert_eq!((confirmed.position, confirmed.subscribers), (end, 1));
    });
}

/// The end of a topic that never had a publisher's message, which only the broker's last answer completes, ends a stream.
#[test]
fn the_last_answer_ends_a_stream() {
    let broker = broker_at(&own_addr());
    run(async {
        for _ in 0..20 {
            let subscriber = subscriber(&broker.addr(), "t").await;
            let publisher = Publisher::connect_async(&broker.addr()).await.unwrap();
            let mut topic = publisher.topic_async("t").await.unwrap();
            topic.wait_subscribers_async(1).await.unwrap();
            topic.close_async().await.unwrap();
            assert!(subscriber.into_stream().next().await.is_none());
        }
    });
}

/// A refusal and too large a record are errors; a publisher without enough subscribers waits.
#[test]
fn an_unpublishable_message_is_an_error() {
    let broker = broker_at(&own_addr());
    run(async {
        let publisher = Publisher::connect_async(&broker.addr()).await.unwrap();
        let options = TopicOptions::default().min_subscribers(1).ring_bytes(1 << 16);
        let mut topic = publisher.topic_with_async("t", options).await.unwrap();
        let waiting =
            tokio::time::timeout(Duration::from_millis(50), topic.publish_async(b"too early")).await;
        assert!(waiting.is_err(), "there is no subscriber");
        let mut subscriber = subscriber(&broker.addr(), "t").await;
        topic.publish_async(b"hello").await.unwrap();
        assert_eq!(subscriber.recv_async().await.unwrap().unwrap().bytes, b"hello");
        let error = topic.publish_async(&vec![0; (64 << 20) + 1]).await.unwrap_err();
        assert!(matches!(error, PublishError::TooLarge { .. }), "{error}");
        assert!(publisher.topic_async("not/a/#/topic").await.is_err());
        assert!(Subscriber::connect_async("127.0.0.1:1").await.is_err());
    });
}

/// A subscriber moves to another runtime when the former one is gone; outside of a runtime there is an error.
#[test]
fn a_subscriber_outlives_its_runtime() {
    let broker = broker_at(&own_addr());
    let mut subscriber = Subscriber::connect(&broker.addr()).unwrap();
    subscriber.subscribe("t").unwrap();
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let mut topic = publisher.topic("t").unwrap();
    topic.wait_subscribers(1, Some(LIMIT)).unwrap();
    for _ in 0..2 {
        let early =
            run(async { tokio::time::timeout(Duration::from_millis(10), subscriber.recv_async()).await });
        assert!(early.is_err());
        topic.publish(b"hello").unwrap();
        assert_eq!(run(subscriber.recv_async()).unwrap().unwrap().bytes, b"hello");
    }
    let mut outside = Subscriber::connect(&broker.addr()).unwrap();
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    let polled = std::pin::pin!(outside.recv_async()).poll(&mut task);
    assert!(matches!(polled, std::task::Poll::Ready(Err(ReceiveError::Runtime(_)))), "{polled:?}");
}
