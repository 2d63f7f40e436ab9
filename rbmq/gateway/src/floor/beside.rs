//! The topics of a broker in another process.
//!
//! While the broker is away, the publisher's rings keep what it has not taken, and clients wait once they are full.

use std::time::{Duration, Instant};

use rbmq::{SpaceWriter, Subscriber, TopicWriter};
use rbmq_wire::TopicName;
use tracing::{info, warn};

use super::bus::Topics;
use super::confirms::Confirms;
use super::logs::LogNews;
use super::openings::{OPEN_TIMEOUT, options};
use crate::protocol::{Bus as _, PublishError, Ticket};

/// How long a gateway that stops waits for the broker to take what is published, and to confirm it before.
pub(super) const FINISH: Duration = Duration::from_secs(5);

/// How often a gateway that stops tries again to publish what clients have sent.
pub(super) const PUBLISH_RETRY: Duration = Duration::from_millis(5);

impl Topics {
    /// A topic that was opened may be in a space that is not known yet: then the space is open from now on. Returns whether it is so.
    pub(super) fn enter_space(&mut self, writer: &TopicWriter) -> bool {
        let Some(space) = writer.space() else { return false };
        if self.spaces.iter().any(|known| known.space().log() == space.log()) {
            // It was none of its topics when the space was opened. The writer of the topic leads into the same log.
            return false;
        }
        // The topic and the space share their log, which is open.
        let most = writer.max_delivery_bytes();
        match self.publisher.space_with(space.pattern().as_str(), options(most, OPEN_TIMEOUT)) {
            Ok(space) => {
                self.spaces.push(space);
                true
            }
            Err(error) => {
                warn!("a space of the broker cannot be opened: {error}");
                false
            }
        }
    }

    /// Whether a topic, or the log of a space, is open and takes messages.
    pub(super) fn is_open(&self, name: &TopicName) -> bool {
        let is_of = |space: &&SpaceWriter| space.space().log() == name || space.contains(name);
        let of_space = self.spaces.iter().find(is_of).map(SpaceWriter::has_ended);
        let has_ended = of_space.or_else(|| self.open.get(name).map(|open| open.way.writer.has_ended()));
        has_ended == Some(false)
    }

    /// Topics, and logs of spaces, that are open and take nothing more.
    pub(super) fn all_ended(&self) -> Vec<TopicName> {
        let spaces = self.spaces.iter().filter(|space| space.has_ended());
        let topics = self.open.iter().filter(|(_, open)| open.way.writer.has_ended());
        let spaces = spaces.map(|space| space.space().log().clone());
        spaces.chain(topics.map(|(topic, _)| topic.clone())).collect()
    }

    /// The broker has a space no more, whose log has this name. Its topics are opened one by one.
    pub(super) fn leave_space(&mut self, log: &TopicName, why: &str) {
        if self.confirms.is_some() {
            self.spaces.remove(log, why);
        }
    }

    /// Publishes a message that is told of when the broker has it.
    pub(super) fn append_beside(
        &mut self,
        topic: &TopicName,
        attributes: &[u8],
        payload: &[u8],
        ticket: Ticket,
    ) -> Result<(), PublishError> {
        self.publish(topic, attributes, payload)?;
        let of_space = self.spaces.iter().find(|space| space.contains(topic));
        let (log, end) = match of_space {
            Some(writer) => {
                // What is gathered is published as one delivery, behind everything else.
                let log = writer.log();
                (log.topic(), log.position() + log.pushed_bytes() as u64)
            }
            None => (topic, self.end_of(topic)),
        };
        if let Some(confirms) = &mut self.confirms {
            confirms.published(log, end, ticket);
        }
        Ok(())
    }

    /// Whether a broker that is there has yet to confirm messages.
    pub(super) fn awaits_broker(&self) -> bool {
        let awaits = self.confirms.as_ref().is_some_and(Confirms::is_waiting);
        awaits && self.publisher.is_connected()
    }

    /// What the broker has stored and confirmed since the last call.
    pub(crate) fn take_log_news(&mut self) -> Vec<LogNews> {
        let mut news = self.desk.take_news();
        if let Some(confirms) = &mut self.confirms {
            let (spaces, open) = (&self.spaces, &self.open);
            news.extend(confirms.take_news(|log| {
                let space = spaces.iter().find(|space| space.space().log() == log);
                space.map(SpaceWriter::log).or_else(|| open.get(log).map(|open| &open.way.writer))
            }));
        }
        news
    }

    /// The broker is away, or there again. One in this process never is.
    pub(super) fn tell_connection(&mut self, lost: Option<&str>) {
        let Some(confirms) = &mut self.confirms else { return };
        confirms.is_away = lost.is_some();
        match lost {
            Some(why) => {
                warn!(
                    "not ready: the broker is away ({why}); clients stay connected, and what they publish waits"
                );
            }
            None => info!("ready: the broker is there again"),
        }
    }

    /// Tells the publisher where the subscriber receives. Returns whether the call has to come again soon, as a broker that was away gets nothing
    /// before.
    pub(crate) fn note_receiving(&self, subscriber: &Subscriber) -> bool {
        let Some(confirms) = &self.confirms else { return false };
        confirms.receiving.set(subscriber.receives_from());
        confirms.is_away
    }

    /// The gateway receives nothing more. Otherwise publishers would wait for its place while it is kept.
    pub(crate) fn leave(&self, subscriber: &mut Subscriber) {
        for topics in self.always().chain(self.asked()) {
            let _ = subscriber.unsubscribe(topics);
        }
    }

    /// The gateway stops. Waits until a broker in another process has what was published, and keeps no place for this gateway.
    pub(crate) fn finish(&mut self, subscriber: &mut Subscriber) {
        let until = Instant::now() + FINISH;
        if let Some(confirms) = &self.confirms {
            confirms.receiving.end();
            self.leave(subscriber);
            // What finds no room in the rings finds it when the broker has taken what is there.
            while !self.is_flushed() && Instant::now() < until {
                self.flush();
                std::thread::sleep(PUBLISH_RETRY);
            }
        }
        if !self.is_flushed() {
            warn!("messages of clients are lost: the broker has had no room for them");
        }
        if self.confirms.is_none() {
            return;
        }
        let left = || Some(until.saturating_duration_since(Instant::now()));
        let spaces = self.spaces.iter().map(|space| space.flush(left()));
        let topics = self.open.values().map(|open| open.way.writer.flush(left()));
        if let Some(Err(error)) = spaces.chain(topics).find(Result::is_err) {
            warn!("messages of clients are lost: {error}");
        }
    }
}
