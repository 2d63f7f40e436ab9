//! RBMQ's client library in `rbmq-bench libraries`, as its own README uses it: default settings, one `publish` per message,
//! one `recv_ref` per message received.

use std::{
    future::Future,
    io,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use benchkit::library::{self, End, Library};
use rbmq::{Subscriber, TopicWriter};

use crate::error::BenchError;

/// How long processes wait for each other at the start.
const SET_UP_WITHIN: Duration = Duration::from_secs(15);

struct Rbmq;

struct PublisherEnd {
    writer: TopicWriter,
    // Its connection ends when it is dropped.
    _publisher: rbmq::Publisher,
}

struct SubscriberEnd(Subscriber);

/// Runs one end until the harness ends it.
///
/// # Errors
/// The broker is gone, or delivered something else than was published.
pub fn run(end: &End) -> Result<(), BenchError> {
    // The library blocks its callers, so that no future here is ever pending.
    match pin!(library::run(&Rbmq, end)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Ok(result?),
        Poll::Pending => Err(io::Error::other("a blocking library returned without a result").into()),
    }
}

impl Library for Rbmq {
    type Publisher = PublisherEnd;
    type Subscriber = SubscriberEnd;

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    async fn publisher(&self, end: &End, topic: &str) -> io::Result<PublisherEnd> {
        let publisher = rbmq::Publisher::connect(&end.addr).map_err(io::Error::other)?;
        let writer = publisher.topic(topic).map_err(io::Error::other)?;
        writer.wait_subscribers(end.subscribers, Some(SET_UP_WITHIN)).map_err(io::Error::other)?;
        Ok(PublisherEnd { writer, _publisher: publisher })
    }

    async fn subscriber(&self, end: &End, topic: &str) -> io::Result<SubscriberEnd> {
        let mut subscriber = Subscriber::connect(&end.addr).map_err(io::Error::other)?;
        subscriber.subscribe(topic).map_err(io::Error::other)?;
        Ok(SubscriberEnd(subscriber))
    }
}

impl library::Publisher for PublisherEnd {
    async fn publish(&mut self, message: &[u8]) -> io::Result<()> {
        self.writer.publish(message).map(drop).map_err(io::Error::other)
    }
}

impl library::Subscriber for SubscriberEnd {
    async fn receive<R>(&mut self, each: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        loop {
            if let Some(message) = self.0.recv_ref(None).map_err(io::Error::other)? {
                return Ok(each(message.bytes));
            }
        }
    }
}
