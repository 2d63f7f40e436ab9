//! Publishers for the users of the console.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use locks::Mutex;
use rbmq::{
    ConfirmLevel, Login, PublishError, Publisher, TopicName, TopicOpenError, TopicOptions, TopicWriter,
};
use rbmq_broker::Gate;
use rbmq_broker::http::{ConsolePublisher, NotPublished, Publishing};
use rocketbufs::Context;

/// The name of the publishers.
const NAME: &str = "rbmq console";

/// The most topics that a publisher has open. The one that it has used the longest ago is closed for another one.
const MAX_TOPICS: usize = 8;

/// The time that the broker may take to let a publisher in, in milliseconds.
const CONNECT_MS: u32 = 3_000;

/// The ring of a topic: it has room for a few of the largest messages.
const RING_BYTES: u64 = 512 << 10;

/// Opens publishers at the broker's own listener.
pub(super) struct Desk {
    gate: Gate,
    /// The thread and the memory of all of them, once somebody publishes.
    context: Mutex<Option<Context>>,
}

impl Desk {
    pub(super) fn new(gate: Gate) -> Self {
        Self { gate, context: Mutex::new(None) }
    }

    fn context(&self) -> Result<Context, String> {
        let mut context = self.context.lock();
        if let Some(context) = &*context {
            return Ok(context.clone());
        }
        let mut config = self.gate.config();
        config.session.connect_timeout_ms = config.session.connect_timeout_ms.min(CONNECT_MS);
        let made = Context::new(config).map_err(|error| error.to_string())?;
        Ok(context.insert(made).clone())
    }
}

impl Publishing for Desk {
    fn connect(&self, token: &str) -> Result<Box<dyn ConsolePublisher>, String> {
        let builder =
            Publisher::builder().name(NAME).context(&self.context()?).login(Login::default().token(token));
        let publisher = builder.connect(self.gate.address()).map_err(|error| error.to_string())?;
        Ok(Box::new(OfUser { publisher, topics: VecDeque::new() }))
    }
}

/// The publisher of a user, and its topics, the one that was used last at the end.
struct OfUser {
    publisher: Publisher,
    topics: VecDeque<TopicWriter>,
}

impl OfUser {
    /// The writer of a topic, which is open then.
    fn open(&mut self, topic: &TopicName, end: Instant) -> Result<&mut TopicWriter, NotPublished> {
        let left = || Some(end.saturating_duration_since(Instant::now()));
        let known = self.topics.iter().position(|writer| writer.topic() == topic && !writer.has_ended());
        let writer = match known.and_then(|at| self.topics.remove(at)) {
            Some(writer) => writer,
            None => {
                let options = TopicOptions::default().ring_bytes(RING_BYTES).open_timeout(left());
                let opened = self.publisher.topic_with(topic.as_str(), options);
                opened.map_err(|error| match error {
                    TopicOpenError::TimedOut { .. }
                    | TopicOpenError::Buffer { .. }
                    | TopicOpenError::Closed { .. } => NotPublished::Unavailable(error.to_string()),
                    refused => NotPublished::Refused(refused.to_string()),
                })?
            }
        };
        self.topics.push_back(writer);
        if self.topics.len() > MAX_TOPICS
            && let Some(oldest) = self.topics.pop_front()
        {
            // The broker has everything of it, or its publisher was dropped.
            let _ = oldest.close_timeout(left());
        }
        self.topics.back_mut().ok_or_else(|| NotPublished::Unavailable("no topic is open".to_owned()))
    }
}

impl ConsolePublisher for OfUser {
    fn is_connected(&self) -> bool {
        self.publisher.is_connected()
    }

    fn publish(
        &mut self,
        topic: &TopicName,
        message: &[u8],
        is_kept: bool,
        within: Duration,
    ) -> Result<(), NotPublished> {
        let end = Instant::now() + within;
        let left = || Some(end.saturating_duration_since(Instant::now()));
        let writer = self.open(topic, end)?;
        let published = writer.publish_timeout(message, left());
        let position = published.map_err(|error| match error {
            PublishError::TimedOut { .. }
            | PublishError::Closed
            | PublishError::ShutDown
            | PublishError::Buffer(_) => NotPublished::Unavailable(error.to_string()),
            refused => NotPublished::Refused(refused.to_string()),
        })?;
        let level = if is_kept { ConfirmLevel::Stored } else { ConfirmLevel::Accepted };
        let confirmed = writer.confirm(position, level, left());
        confirmed.map(|_| ()).map_err(|error| NotPublished::Unconfirmed(error.to_string()))
    }
}
