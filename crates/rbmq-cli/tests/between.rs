//! A subscriber between two publishers of its topic waits for the next one.

mod common;

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use common::LONG;
use common::inside::broker_with;
use common::proxy::Proxy;
use rbmq::{Item, Notice, Publisher, Subscriber};
use rbmq_broker::Broker;

fn broker() -> Broker {
    // How long a publisher without a connection is waited for.
    broker_with(|config| config.framework.session.linger_ms = 200)
}

/// How the first publisher of a topic goes.
#[derive(Debug, Clone, Copy)]
enum Goes {
    Closes,
    Dies,
}

/// A subscriber of a topic whose only publisher has gone.
fn after_the_first(addr: &str, goes: Goes) -> Subscriber {
    let proxy = Proxy::to(addr);
    let publisher = Publisher::connect(&proxy.addr).unwrap();
    let mut first = publisher.topic("news").unwrap();
    let mut subscriber = Subscriber::connect(addr).unwrap();
    subscriber.subscribe("news").unwrap();
    first.wait_subscribers(1, LONG).unwrap();
    first.publish(b"first").unwrap();
    assert_eq!(subscriber.recv(LONG).unwrap().unwrap().bytes, b"first");
    match goes {
        Goes::Closes => first.close().unwrap(),
        Goes::Dies => {
            // For the broker it is dead: it cannot come back.
            proxy.cut();
            let _stays = ManuallyDrop::new((first, publisher, proxy));
        }
    }
    subscriber
}

/// A second publisher that waits for its subscriber, as that one waits for its publisher.
fn publish_second(addr: String) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let publisher = Publisher::connect(&addr).unwrap();
        let mut second = publisher.topic("news").unwrap();
        second.wait_subscribers(1, LONG).unwrap();
        second.publish(b"second").unwrap();
        second.close().unwrap();
    })
}

#[test]
fn calls_that_wait_go_on_to_the_next_publisher() {
    for goes in [Goes::Closes, Goes::Dies] {
        let broker = broker();
        let mut subscriber = after_the_first(&broker.addr(), goes);
        let began = Instant::now();
        assert_eq!(subscriber.recv(Duration::from_millis(700)).unwrap(), None, "{goes:?}");
        assert!(began.elapsed() >= Duration::from_millis(700), "{goes:?}: it did not wait");
        let second = publish_second(broker.addr());
        assert_eq!(subscriber.recv(LONG).unwrap().unwrap().bytes, b"second", "{goes:?}");
        second.join().unwrap();
    }
}

#[test]
fn batches_references_and_the_iterator_wait_too() {
    let broker = broker();
    let mut subscriber = after_the_first(&broker.addr(), Goes::Closes);
    let second = publish_second(broker.addr());
    let batch = subscriber.next_batch(LONG).unwrap().expect("the second publisher's");
    assert_eq!(batch.records().collect::<Vec<_>>(), [b"second"]);
    drop(batch);
    second.join().unwrap();
    let second = publish_second(broker.addr());
    assert_eq!(subscriber.recv_ref(LONG).unwrap().unwrap().bytes, b"second");
    second.join().unwrap();
    let second = publish_second(broker.addr());
    assert_eq!(subscriber.into_iter().next().unwrap().unwrap().bytes, b"second");
    second.join().unwrap();
}

#[test]
fn ends_are_notices() {
    let broker = broker();
    let mut subscriber = after_the_first(&broker.addr(), Goes::Closes);
    loop {
        match subscriber.next(LONG).unwrap().expect("a notice") {
            Item::Notice(Notice::Closed { topic, .. }) => break assert_eq!(topic.as_str(), "news"),
            Item::Notice(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
