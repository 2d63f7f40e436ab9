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
use std::time::Instant;

use peers::LogLimiter;
use rbmq::{ConfirmError, ConfirmLevel, Confirmation, SpaceWriter, TopicWriter};
use rbmq_wire::TopicName;
use rocketbufs::Position;
use tracing::warn;

use super::logs::LogNews;
use super::openings::Receiving;
use crate::protocol::Ticket;

/// A writer that is asked how far its log is confirmed.
pub(super) trait Confirming {
    /// The position behind what was published.
    fn published(&self) -> Position;
    /// Begins a confirmation.
    fn begin(&self, position: Position, level: ConfirmLevel) -> Confirmation;
    /// What is confirmed.
    fn confirmed_to(&self, level: ConfirmLevel) -> Position;
}

impl Confirming for TopicWriter {
    fn published(&self) -> Position {
        self.position()
    }

    fn begin(&self, position: Position, level: ConfirmLevel) -> Confirmation {
        self.confirmation(position, level)
    }

    fn confirmed_to(&self, level: ConfirmLevel) -> Position {
        self.confirmed(level)
    }
}

impl Confirming for SpaceWriter {
    fn published(&self) -> Position {
        self.position()
    }

    fn begin(&self, position: Position, level: ConfirmLevel) -> Confirmation {
        self.confirmation(position, level)
    }

    fn confirmed_to(&self, level: ConfirmLevel) -> Position {
        self.confirmed(level)
    }
}

/// A message that is not confirmed.
struct Pending {
    /// The position behind it, once it is published.
    end: Position,
    ticket: Ticket,
}

/// The messages of a log, in order.
struct Waiting {
    level: ConfirmLevel,
    /// The broker has confirmed something at this level: it keeps the topic.
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
            let waiting = Waiting { level: ConfirmLevel::Stored, is_proven: false, asked, pending };
            self.logs.insert(log.clone(), waiting);
        }
        if let Some(waiting) = self.logs.get_mut(log) {
            waiting.pending.push_back(Pending { end, ticket });
        }
    }

    /// Whether messages of a log wait.
    pub(super) fn awaits(&self, log: &TopicName) -> bool {
        self.logs.get(log).is_some_and(|waiting| !waiting.pending.is_empty())
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
        writer: impl Fn(&TopicName) -> Option<&'w dyn Confirming>,
    ) -> Vec<LogNews> {
        let mut news = std::mem::take(&mut self.failed);
        for (log, waiting) in &mut self.logs {
            if !waiting.pending.is_empty()
                && let Some(writer) = writer(log)
            {
                while let Err(why) = waiting.advance(writer, &self.waker, &mut news) {
                    let Some(failed) = waiting.pending.pop_front() else { break };
                    if let Some(more) = self.lines.allow(Instant::now()) {
                        warn!(more, "a message of a client may be lost: {why}");
                    }
                    news.push(LogNews::Stored(failed.ticket, Err(why.to_string())));
                }
            }
        }
        news
    }
}

impl Waiting {
    /// Takes what the broker has confirmed, and asks for more. An error is about the first message.
    fn advance(
        &mut self,
        writer: &dyn Confirming,
        waker: &Waker,
        news: &mut Vec<LogNews>,
    ) -> Result<(), ConfirmError> {
        while let Some(first) = self.pending.front() {
            if first.end > writer.published() {
                // It is gathered with others, and not published yet.
                return Ok(());
            }
            let end = first.end;
            let asked = self.asked.get_or_insert_with(|| writer.begin(end, self.level));
            let Poll::Ready(answer) = Pin::new(asked).poll(&mut Context::from_waker(waker)) else {
                return Ok(());
            };
            self.asked = None;
            match answer {
                Ok(confirmed) => {
                    self.is_proven = true;
                    let to = confirmed.position.max(writer.confirmed_to(self.level));
                    let count = self.pending.iter().take_while(|pending| pending.end <= to).count();
                    let done = self.pending.drain(..count);
                    news.extend(done.map(|pending| LogNews::Stored(pending.ticket, Ok((0, 0)))));
                }
                Err(ConfirmError::NotStored { .. })
                    if self.level == ConfirmLevel::Stored && !self.is_proven =>
                {
                    self.level = ConfirmLevel::Accepted;
                }
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }
}
