//! What the broker in another process has confirmed of the gateway's messages.
//!
//! ```text
//!   append ─▶ publisher's ring ══════▶ broker ─▶ its memory, or the file of a kept topic
//!             end of the message, ticket             │
//!             ticket ◀── confirmation of the log, up to a position
//! ```
//!
//! One confirmation waits for each log, for its first message; the answer says how far the log is confirmed, and is for all messages before that.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use peers::LogLimiter;
use rbmq::{ConfirmError, ConfirmLevel, Confirmation, TopicWriter};
use rbmq_wire::TopicName;
use rocketbufs::Position;
use tracing::warn;

use super::logs::LogNews;
use super::openings::Receiving;
use crate::protocol::Ticket;

/// How long the broker is not asked again for the file of a topic that it does not keep.
const UNKEPT: Duration = Duration::from_secs(60);

/// A message that is not confirmed.
struct Pending {
    /// The position behind it, once it is published.
    end: Position,
    ticket: Ticket,
}

/// The messages of a log, in order.
struct Waiting {
    /// Until when the broker is not asked whether it has stored messages, as it has said that it does not keep the topic. None: it is asked.
    unkept_until: Option<Instant>,
    /// The broker has stored something since: it keeps the topic.
    is_proven: bool,
    asked: Option<Confirmation>,
    pending: VecDeque<Pending>,
}

/// The messages that wait for the broker. Logs go by the name of their topic, or of the log of a space.
pub(crate) struct Confirms {
    pub(super) receiving: Receiving,
    /// The publisher has no broker, or waits for the subscriber.
    pub(super) is_away: bool,
    waker: Waker,
    logs: HashMap<TopicName, Waiting>,
    /// Messages that are not confirmed any more.
    failed: Vec<LogNews>,
    lines: LogLimiter,
}

impl Confirms {
    /// The waker is for the thread that takes the news.
    pub(super) fn new(waker: Waker, receiving: Receiving) -> Self {
        let (logs, failed, lines) = (HashMap::new(), Vec::new(), LogLimiter::default());
        Self { receiving, is_away: false, waker, logs, failed, lines }
    }

    /// A message was published to a log, or will be, and ends at this position.
    pub(super) fn published(&mut self, log: &TopicName, end: Position, ticket: Ticket) {
        if !self.logs.contains_key(log) {
            let (asked, pending) = (None, VecDeque::new());
            // A topic that is not kept says so.
            let waiting = Waiting { unkept_until: None, is_proven: false, asked, pending };
            self.logs.insert(log.clone(), waiting);
        }
        if let Some(waiting) = self.logs.get_mut(log) {
            waiting.pending.push_back(Pending { end, ticket });
        }
    }

    /// The broker is there again. Its rules may be others now.
    pub(super) fn ask_anew(&mut self) {
        self.logs.values_mut().for_each(|waiting| waiting.unkept_until = None);
    }

    /// Whether messages of a log wait.
    pub(super) fn awaits(&self, log: &TopicName) -> bool {
        self.logs.get(log).is_some_and(|waiting| !waiting.pending.is_empty())
    }

    /// Whether messages of any log wait.
    pub(super) fn is_waiting(&self) -> bool {
        self.logs.values().any(|waiting| !waiting.pending.is_empty())
    }

    /// A log is closed, or refused: nobody confirms what waits.
    pub(super) fn closed(&mut self, log: &TopicName, why: &str) {
        let Some(waiting) = self.logs.remove(log) else { return };
        let failed = waiting.pending.into_iter();
        self.failed.extend(failed.map(|pending| LogNews::Stored(pending.ticket, Err(why.to_owned()))));
    }

    /// What has happened since the last call. `writer` finds the writer of a log.
    pub(super) fn take_news<'w>(
        &mut self,
        writer: impl Fn(&TopicName) -> Option<&'w TopicWriter>,
    ) -> Vec<LogNews> {
        let mut news = std::mem::take(&mut self.failed);
        for (log, waiting) in &mut self.logs {
            if !waiting.pending.is_empty()
                && let Some(writer) = writer(log)
            {
                while let Err(why) = waiting.advance(writer, &self.waker, &mut news) {
                    let count = waiting.lost_by(&why, writer);
                    if let Some(more) = self.lines.allow(Instant::now()) {
                        warn!(more, "messages of clients may be lost: {why}");
                    }
                    let lost = waiting.pending.drain(..count);
                    news.extend(lost.map(|lost| LogNews::Stored(lost.ticket, Err(why.to_string()))));
                }
            }
        }
        news
    }
}

impl Waiting {
    /// What the broker is asked for.
    fn level(&mut self) -> ConfirmLevel {
        if self.unkept_until.is_some_and(|until| until <= Instant::now()) {
            self.unkept_until = None;
        }
        match self.unkept_until {
            Some(_) => ConfirmLevel::Accepted,
            None => ConfirmLevel::Stored,
        }
    }

    /// Takes what the broker has confirmed, and asks for more. An error is about the first message, and perhaps about others.
    fn advance(
        &mut self,
        writer: &TopicWriter,
        waker: &Waker,
        news: &mut Vec<LogNews>,
    ) -> Result<(), ConfirmError> {
        while let Some(first) = self.pending.front() {
            if first.end > writer.position() {
                // It is gathered with others, and not published yet.
                return Ok(());
            }
            let (end, level) = (first.end, self.level());
            let asked = self.asked.get_or_insert_with(|| writer.confirmation(end, level));
            let Poll::Ready(answer) = Pin::new(asked).poll(&mut Context::from_waker(waker)) else {
                return Ok(());
            };
            self.asked = None;
            match answer {
                Ok(confirmed) => {
                    self.is_proven |= confirmed.level == ConfirmLevel::Stored;
                    let to = confirmed.position.max(writer.confirmed(confirmed.level));
                    let count = self.pending.iter().take_while(|pending| pending.end <= to).count();
                    let done = self.pending.drain(..count);
                    news.extend(done.map(|pending| LogNews::Stored(pending.ticket, Ok((0, 0)))));
                }
                Err(why) if self.is_unkept(&why) => self.unkept_until = Some(Instant::now() + UNKEPT),
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Whether an error says that the topic is not kept. What was in the file of a topic that was kept before may be lost with it.
    fn is_unkept(&mut self, why: &ConfirmError) -> bool {
        matches!(why, ConfirmError::NotStored { lost: false, .. }) && !std::mem::take(&mut self.is_proven)
    }

    /// How many of the first messages an error is about. The others can be confirmed.
    fn lost_by(&self, why: &ConfirmError, writer: &TopicWriter) -> usize {
        match why {
            ConfirmError::Lost { level, to, .. } | ConfirmError::TooFew { level, to, .. } => {
                writer.accept_lost(*level);
                self.pending.iter().take_while(|pending| pending.end <= *to).count()
            }
            ConfirmError::NotStored { .. } => self.pending.len(),
            _ => 1.min(self.pending.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_disk_has_lost_is_not_taken_for_a_topic_without_a_disk() {
        let not_stored = |lost| {
            let (topic, reason) = ("t".parse().expect("a name"), String::new());
            ConfirmError::NotStored { topic, level: ConfirmLevel::Stored, confirmed: 0, lost, reason }
        };
        let (asked, pending) = (None, VecDeque::new());
        let mut waiting = Waiting { unkept_until: None, is_proven: false, asked, pending };
        assert!(!waiting.is_unkept(&not_stored(true)), "before anything was stored, too");
        assert!(waiting.is_unkept(&not_stored(false)));
        waiting.is_proven = true;
        assert!(
            !waiting.is_unkept(&not_stored(false)),
            "an older broker, or other rules: it was kept before"
        );
        assert!(waiting.is_unkept(&not_stored(false)));
    }
}
