//! Events of subscribers and publishers.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rocketbufs::event_queue::EventQueue;
use rocketbufs::{Epoch, Position};

use crate::ground::error::{Over, ReceiveError};
use crate::state::batch::Batch;
use crate::wire::{RefuseCode, TopicFilter, TopicName};

/// The result of [`Subscriber::next_event`](crate::Subscriber::next_event).
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'s> {
    /// Messages.
    Batch(Batch<'s>),
    /// Something else happened.
    Notice(Notice),
}

/// An event of a subscriber that is no message. Notices about a buffer are in order with its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// The subscription of a buffer is active. Its messages begin at `start`.
    Joined {
        /// The topic.
        topic: TopicName,
        /// The publisher's log.
        epoch: Epoch,
        /// The first position that will come.
        start: Position,
    },
    /// Messages are lost: this subscriber was too slow for its policy, or offline for too long. The log continues at `to`.
    Lost {
        /// The topic.
        topic: TopicName,
        /// The publisher's log.
        epoch: Epoch,
        /// The first lost position.
        from: Position,
        /// The first position after the loss.
        to: Position,
    },
    /// The publisher closed the topic. Its log is complete.
    Closed {
        /// The topic.
        topic: TopicName,
        /// The publisher's log.
        epoch: Epoch,
        /// The end of the log.
        end: Position,
    },
    /// The publisher died, or was offline for too long: messages that it had not sent are missing. Or this subscriber was offline for
    /// too long: the log ended in the meantime, and the broker does not have it any more. Messages after `end` may be missing.
    Gone {
        /// The topic.
        topic: TopicName,
        /// The publisher's log.
        epoch: Epoch,
        /// The end of the last complete delivery, or of what this subscriber has received.
        end: Position,
    },
    /// The broker that merges the topic was restarted, and the topic has another log. The new log contains everything that
    /// publishers kept. Messages that the former broker had accepted and this subscriber had not received may be missing
    /// from the new log. No broker knows how many.
    LogReplaced {
        /// The topic.
        topic: TopicName,
        /// The new log.
        epoch: Epoch,
    },
    /// The broker refused a request or ended a subscription.
    Refused {
        /// The topic; none if the refusal is about a request for several.
        topic: Option<TopicName>,
        /// The reason, for people.
        reason: String,
    },
    /// The broker limits an option (the hold time or the number of places, the lag, the block time-out) in this topic, and in
    /// other topics with the same rule. The text is for people.
    OptionClamped(String),
    /// The connection is lost. The client reconnects by itself.
    Disconnected(String),
    /// The connection is back.
    Reconnected,
}

/// A filter that the broker has refused. See [`Subscriber::take_refused`](crate::Subscriber::take_refused).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedFilter {
    /// The filter.
    pub filter: TopicFilter,
    /// Whether a limit or a quota is reached; otherwise the user has no right to the topic.
    pub is_limit: bool,
    /// The reason, for people.
    pub reason: String,
}

impl Notice {
    /// The error that this notice is for callers that take only messages.
    pub(crate) fn into_error(self) -> Option<ReceiveError> {
        match self {
            Self::Lost { topic, from, to, .. } => Some(ReceiveError::Lost { topic, from, to }),
            Self::Gone { topic, end, .. } => Some(ReceiveError::Gone { topic, end }),
            Self::Refused { topic, reason } => Some(ReceiveError::Refused { topic, reason }),
            // Usually nothing is missing from a new log.
            Self::LogReplaced { .. }
            | Self::Joined { .. }
            | Self::Closed { .. }
            | Self::OptionClamped(_)
            | Self::Disconnected(_)
            | Self::Reconnected => None,
        }
    }
}

/// An event of a publisher. See [`Publisher::next_event`](crate::Publisher::next_event).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublisherEvent {
    /// The connection is lost. The client reconnects by itself, and keeps what the broker has not accepted.
    Disconnected(String),
    /// The connection is back. The broker is asked to take the topics again.
    Reconnected,
    /// The broker refuses a topic, possibly after a reconnect.
    TopicRefused {
        /// The topic.
        topic: TopicName,
        /// The kind of the reason.
        code: RefuseCode,
        /// The reason, for people.
        reason: String,
    },
    /// The number of a topic's subscribers changed.
    Subscribers {
        /// The topic.
        topic: TopicName,
        /// The number of subscribers that have a place in the topic's buffer.
        count: u32,
    },
    /// A topic's buffer has room again, after a call that failed with
    /// [`PublishError::TimedOut`](crate::PublishError::TimedOut).
    Room {
        /// The topic.
        topic: TopicName,
    },
    /// The broker's disk takes nothing of a kept topic, since it is full or fails. The broker tries again every second. Until then
    /// nothing more of the topic reaches subscribers or is confirmed.
    DiskFailed {
        /// The topic.
        topic: TopicName,
        /// The reason, for people.
        reason: String,
    },
    /// The broker's disk works again.
    DiskRecovered {
        /// The topic.
        topic: TopicName,
    },
    /// Events before the next one were dropped, since the application did not take them.
    Missed {
        /// The number of events.
        events: u64,
    },
    /// The publisher was closed by another thread, or its context was shut down: no other event follows this one, which each
    /// further call returns.
    Ended {
        /// Whether the context was shut down.
        shut_down: bool,
        /// The reason, for people.
        reason: String,
    },
}

/// The most events that wait for the application.
const MAX_EVENTS: usize = 256;

/// The events of a publisher. They are collected from the moment at which the application first asks for them.
#[derive(Debug)]
pub(crate) struct PublisherEvents {
    wanted: AtomicBool,
    missed: AtomicU64,
    queue: EventQueue<PublisherEvent>,
    over: OnceLock<Over>,
}

impl Default for PublisherEvents {
    fn default() -> Self {
        let (wanted, missed) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { wanted, missed, queue: EventQueue::new(MAX_EVENTS), over: OnceLock::new() }
    }
}

impl PublisherEvents {
    /// Whether the application takes events. Relaxed: an event that coincides with the first request may be missing.
    pub(crate) fn are_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    pub(crate) fn push(&self, event: PublisherEvent) {
        if self.are_wanted() && self.queue.push_newest(event) {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn recv(&self, timeout: Option<Duration>) -> Option<PublisherEvent> {
        self.wanted.store(true, Ordering::Relaxed);
        match self.missed.swap(0, Ordering::Relaxed) {
            0 => self.queue.recv(timeout).or_else(|| self.end()),
            events => Some(PublisherEvent::Missed { events }),
        }
    }

    /// The last event is [`PublisherEvent::Ended`].
    pub(crate) fn close(&self, over: Over) {
        let _ = self.over.set(over);
        self.queue.close();
    }

    fn end(&self) -> Option<PublisherEvent> {
        let (shut_down, reason) = match self.over.get()? {
            Over::Closed => (false, "the publisher was closed"),
            Over::ShutDown => (true, "the context was shut down"),
        };
        Some(PublisherEvent::Ended { shut_down, reason: reason.to_owned() })
    }

    pub(crate) fn pollable(&self) -> io::Result<BorrowedFd<'_>> {
        self.wanted.store(true, Ordering::Relaxed);
        self.queue.pollable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_are_not_taken_are_counted() {
        let events = PublisherEvents::default();
        events.push(PublisherEvent::Reconnected);
        assert_eq!(
            events.recv(Some(Duration::ZERO)),
            None,
            "events are collected only after the first request"
        );
        (0..MAX_EVENTS + 2).for_each(|_| events.push(PublisherEvent::Reconnected));
        assert_eq!(events.recv(None), Some(PublisherEvent::Missed { events: 2 }));
        (0..MAX_EVENTS).for_each(|_| assert_eq!(events.recv(None), Some(PublisherEvent::Reconnected)));
        assert_eq!(events.recv(Some(Duration::ZERO)), None);
    }
}
