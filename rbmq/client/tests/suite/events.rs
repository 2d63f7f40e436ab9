//! The client library in applications with an event loop of their own, and changes of subscriptions.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rbmq::{
    Batch, Confirmation, DeferredBatch, Event, Notice, Observer, PublishError, Publisher, PublisherEvent,
    SlowPolicy, StartFrom, Subscriber, TopicOptions, TopicWriter,
};
use rbmq_broker::Broker;
use rocketbufs::config::TransportKind;
use rocketbufs::{Config, Conn, Context, Listener};
use testkit::{LONG, broker_with, own_addr, until};

use crate::event_loop::{NO_WAIT, is_readable, messages, wait_event, wait_publisher_event};

fn topic(broker: &Broker, name: &str) -> TopicWriter {
    Publisher::connect(&broker.addr()).unwrap().topic(name).unwrap()
}

#[test]
fn types_may_be_used_by_other_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<(Publisher, TopicWriter, Subscriber, Observer, Confirmation, DeferredBatch, Batch<'_>)>();
    sync::<(Publisher, Confirmation)>();
}

#[test]
fn an_event_loop_receives_messages_and_notices() {
    let broker = broker_with(|_| {});
    let mut subscriber = Subscriber::connect(&broker.addr()).unwrap();
    assert!(!is_readable(subscriber.pollable().unwrap(), Duration::ZERO));
    subscriber.subscribe("t").unwrap();
    let mut topic = topic(&broker, "t");
    wait_event(&mut subscriber, |event| matches!(event, Event::Notice(Notice::Joined { .. })).then_some(()));
    for n in 0..100_u32 {
        topic.publish(&n.to_le_bytes()).unwrap();
    }
    let mut received = Vec::new();
    while received.len() < 100 {
        received.extend(wait_event(&mut subscriber, messages));
    }
    assert!(received.into_iter().eq((0..100_u32).map(|n| n.to_le_bytes().to_vec())));
    assert!(subscriber.next_event(NO_WAIT).unwrap().is_none());
    assert!(!is_readable(subscriber.pollable().unwrap(), Duration::ZERO));
}

#[test]
fn a_publisher_that_must_not_wait_learns_when_there_is_room() {
    let broker = broker_with(|_| {});
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let mut topic = publisher.topic_with("t", TopicOptions::default().ring_bytes(64 << 10)).unwrap();
    let mut subscriber = Subscriber::builder().ring_bytes(64 << 10).connect(&broker.addr()).unwrap();
    subscriber.subscribe("t").unwrap();
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    assert_eq!(publisher.next_event(NO_WAIT), None);
    let record = [7; 1000];
    let mut published = 0;
    loop {
        match topic.publish_timeout(&record, NO_WAIT) {
            Ok(_) => published += 1,
            Err(PublishError::TimedOut { .. }) => {
                // The rings of the broker and of the subscriber may still take some.
                if !is_readable(publisher.pollable().unwrap(), Duration::from_millis(300)) {
                    break;
                }
                while publisher.next_event(NO_WAIT).is_some() {}
            }
            Err(other) => panic!("{other}"),
        }
    }
    for _ in 0..published {
        assert!(subscriber.recv(Some(LONG)).unwrap().is_some());
    }
    wait_publisher_event(&publisher, |event| matches!(event, PublisherEvent::Room { .. }));
    topic.publish_timeout(&record, NO_WAIT).unwrap();
}

#[test]
fn an_unsubscribed_topic_is_not_received() {
    let broker = broker_with(|_| {});
    let (mut a, mut b) = (topic(&broker, "a"), topic(&broker, "b"));
    let mut subscriber = Subscriber::connect(&broker.addr()).unwrap();
    subscriber.subscribe("a").unwrap();
    subscriber.subscribe("+").unwrap();
    [&a, &b].into_iter().for_each(|topic| topic.wait_subscribers(1, Some(LONG)).unwrap());
    // Another filter still matches both topics.
    subscriber.unsubscribe("a").unwrap();
    subscriber.unsubscribe("none").unwrap();
    a.publish(b"a1").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"a1");
    subscriber.subscribe("b").unwrap();
    subscriber.unsubscribe("+").unwrap();
    until("the subscription of a is over", || a.subscribers() == 0);
    a.publish(b"a2").unwrap();
    b.publish(b"b1").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"b1");
    // The broker does not announce the topic again, and need not.
    subscriber.subscribe_from("a", StartFrom::Oldest).unwrap();
    for expected in [b"a1", b"a2"] {
        assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, expected);
    }
    assert!(subscriber.unsubscribe("a/#/b").is_err());
}

#[test]
fn without_topics_there_is_nothing_to_wait_for() {
    let broker = broker_with(|_| {});
    let mut topics: Vec<_> = (0..20).map(|n| topic(&broker, &format!("t/{n}"))).collect();
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    subscriber.subscribe("t/+").unwrap();
    topics.iter().for_each(|topic| topic.wait_subscribers(1, Some(LONG)).unwrap());
    for topic in &mut topics {
        topic.publish(b"x").unwrap();
    }
    // A part of a batch is received.
    assert!(subscriber.recv(Some(LONG)).unwrap().is_some());
    subscriber.unsubscribe("t/+").unwrap();
    topics.iter().for_each(|topic| until("no subscriber is left", || topic.subscribers() == 0));
    assert_eq!(subscriber.recv(Some(Duration::from_millis(50))).unwrap(), None);
    assert!(!subscriber.ended(), "there is no topic that could have ended");
}

/// A message over shared memory comes to a thread that looks there itself, as a gateway's does, although the only worker of its context does nothing.
fn looks_itself(subscriber: &mut Subscriber, context: &Context, topic: &mut TopicWriter) {
    let (release, released) = sync_channel::<()>(1);
    let (tell, told) = sync_channel(1);
    let listener = Listener::bind(context, "127.0.0.1:0").unwrap();
    listener.set_conn_cb(move |_conn| {
        tell.send(()).unwrap();
        let _ = released.recv_timeout(2 * LONG);
    });
    let visitor = Context::new(Config::default()).unwrap();
    let _conn = Conn::connect_start(&visitor, &listener.local_addr(), b"keeps it busy").unwrap();
    told.recv_timeout(LONG).unwrap();
    topic.publish(b"looked").unwrap();
    let mut got = None;
    until("the thread looks itself", || {
        got = subscriber.recv(NO_WAIT).unwrap();
        got.is_some()
    });
    assert_eq!(got.unwrap().bytes, b"looked");
    drop(release);
}

/// Also beside the next broker process, with no word more of the thread before its subscriptions there.
#[test]
fn a_thread_looks_itself_at_the_next_broker_too() {
    let addr = own_addr();
    let local = Config { transport: TransportKind::Auto, ..Config::default() };
    let context = Context::new(local.clone()).unwrap();
    let mut subscriber: Option<Subscriber> = None;
    for _ in 0..2 {
        let broker = broker_with(|config| {
            config.broker.listen.clone_from(&addr);
            config.framework = local.clone();
        });
        let subscriber = match &mut subscriber {
            Some(subscriber) => {
                let back =
                    |event: Event<'_>| matches!(event, Event::Notice(Notice::Reconnected)).then_some(());
                wait_event(subscriber, back);
                subscriber
            }
            none => {
                let builder = Subscriber::builder().context(&context).slow(SlowPolicy::BlockIfAllowed);
                let subscriber = none.insert(builder.connect(&addr).unwrap());
                subscriber.attend(true);
                subscriber.subscribe("t").unwrap();
                subscriber
            }
        };
        let mut topic = topic(&broker, "t");
        topic.wait_subscribers(1, Some(LONG)).unwrap();
        topic.publish(b"first").unwrap();
        assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"first");
        looks_itself(subscriber, &context, &mut topic);
    }
}
