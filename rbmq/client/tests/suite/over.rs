//! What belongs to a publisher or a context ends with it: no call takes anything or waits afterwards.

use std::thread;
use std::time::Duration;

use rbmq::{
    ConfirmError, ConfirmLevel, PublishError, Publisher, PublisherEvent, PublisherWaitError, ReceiveError,
    SubscribeTopicError, Subscriber, TopicOpenError, TopicOptions, TopicWriter,
};
use rocketbufs::{Config, Context};
use testkit::{LONG, broker_with, until};

/// Publishes without a limit of time until the topic takes no more.
fn publish_until_refused(mut writer: TopicWriter) -> PublishError {
    loop {
        if let Err(error) = writer.publish(&[7; 1000]) {
            return error;
        }
    }
}

#[test]
fn a_closed_publisher_takes_nothing_and_lets_nobody_wait() {
    let broker = broker_with(|_| {});
    let mut subscriber = Subscriber::connect(&broker.addr()).unwrap();
    subscriber.subscribe("c").unwrap();
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let mut writer = publisher.topic("c").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    writer.publish(b"before").unwrap();
    writer.flush(Some(LONG)).unwrap();
    let waits = publisher.topic_with("w", TopicOptions::default().min_subscribers(1)).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| publish_until_refused(waits));
        let events = scope.spawn(|| {
            loop {
                match publisher.next_event(None) {
                    Some(PublisherEvent::Ended { shut_down: false, reason }) => return reason,
                    event => assert!(event.is_some(), "a wait without a limit"),
                }
            }
        });
        let claimed = writer.claim(10, Some(LONG)).unwrap();
        publisher.close_timeout(Some(LONG));
        let refused = writer.publish_segment(claimed, Some(10)).expect_err("the publisher is closed");
        assert_eq!(refused.error, PublishError::Closed);
        drop(refused);
        assert_eq!(waits.join().unwrap(), PublishError::Closed);
        assert_eq!(events.join().unwrap(), "the publisher was closed");
    });
    let position = writer.position();
    assert_eq!(writer.publish(b"after"), Err(PublishError::Closed));
    assert_eq!(writer.publish_timeout(b"after", Some(Duration::ZERO)), Err(PublishError::Closed));
    assert!(matches!(writer.batch(100).map(|_| ()), Err(PublishError::Closed)));
    assert_eq!(writer.position(), position, "nothing was taken");
    assert!(matches!(writer.flush(None), Err(PublisherWaitError::Closed { .. })));
    assert!(matches!(writer.wait_subscribers(9, None), Err(PublisherWaitError::Closed { .. })));
    assert!(matches!(publisher.topic("d"), Err(TopicOpenError::Closed { .. })));
    let confirmed = writer.confirm(position, ConfirmLevel::Consumed, None);
    assert!(confirmed.is_ok() || matches!(confirmed, Err(ConfirmError::Closed { .. })), "{confirmed:?}");
    assert!(matches!(writer.close(), Err(PublisherWaitError::Closed { .. })));
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"before");
}

/// All waits of a publisher and a subscriber whose broker is there, or away.
fn shut_down(broker_is_there: bool) {
    let broker = broker_with(|_| {});
    let context = Context::new(Config::default()).unwrap();
    let mut subscriber = Subscriber::builder().context(&context).connect(&broker.addr()).unwrap();
    subscriber.subscribe("nothing").unwrap();
    let publisher = Publisher::builder().context(&context).connect(&broker.addr()).unwrap();
    let topic = |name| publisher.topic_with(name, TopicOptions::default().min_subscribers(1)).unwrap();
    let (publishes, asks, mut last) = (topic("publishes"), topic("asks"), publisher.topic("last").unwrap());
    let end = last.publish(b"not consumed by anybody").unwrap();
    if !broker_is_there {
        drop(broker);
        until("the broker is away", || !publisher.is_connected() && !subscriber.is_connected());
    }
    thread::scope(|scope| {
        let receives = scope.spawn(|| subscriber.recv(None).unwrap_err());
        let publishes = scope.spawn(|| publish_until_refused(publishes));
        let waits = scope.spawn(|| asks.wait_subscribers(9, None).unwrap_err());
        let opens = (!broker_is_there).then(|| {
            let options = TopicOptions::default().open_timeout(None);
            let flushes = scope.spawn(|| last.flush(None).unwrap_err());
            let opens = scope.spawn(|| publisher.topic_with("new", options).map(drop).unwrap_err());
            (flushes, opens)
        });
        let events = scope.spawn(|| {
            loop {
                match publisher.next_event(None) {
                    Some(PublisherEvent::Ended { shut_down: true, reason }) => return reason,
                    event => assert!(event.is_some(), "a wait without a limit"),
                }
            }
        });
        context.shutdown(Duration::ZERO);
        let received = receives.join().unwrap();
        assert_eq!(received, ReceiveError::ShutDown);
        assert!(received.is_final() && received.to_string() == "the context was shut down");
        assert_eq!(publishes.join().unwrap(), PublishError::ShutDown);
        assert!(matches!(waits.join().unwrap(), PublisherWaitError::ShutDown { .. }));
        assert_eq!(events.join().unwrap(), "the context was shut down");
        if let Some((flushes, opens)) = opens {
            assert!(matches!(flushes.join().unwrap(), PublisherWaitError::ShutDown { .. }));
            assert!(matches!(opens.join().unwrap(), TopicOpenError::ShutDown { .. }));
        }
    });
    assert_eq!(last.publish(b"after"), Err(PublishError::ShutDown));
    let confirmed = last.confirm(end, ConfirmLevel::Consumed, None);
    assert!(confirmed.is_ok() || matches!(confirmed, Err(ConfirmError::ShutDown { .. })), "{confirmed:?}");
    assert_eq!(subscriber.subscribe("x"), Err(SubscribeTopicError::ShutDown));
    assert_eq!(subscriber.recv(Some(Duration::ZERO)).unwrap_err(), ReceiveError::ShutDown);
    assert!(!publisher.is_connected() && !subscriber.is_connected());
}

#[test]
fn after_a_shutdown_no_call_waits() {
    shut_down(true);
}

#[test]
fn after_a_shutdown_nobody_waits_for_a_broker_that_is_away() {
    shut_down(false);
}
