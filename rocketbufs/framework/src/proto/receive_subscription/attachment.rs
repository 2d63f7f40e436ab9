//! One subscription of this end on one connection: from SUBSCRIBE to UNSUBSCRIBED.
//!
//! ```text
//!   SUBSCRIBE ──▶ asked ── SUBSCRIBED ──▶ answered ── UNSUBSCRIBE ──▶ leaving ── UNSUBSCRIBED ──▶ gone
//!                   └──────────── UNSUBSCRIBE or REFUSED ──────────────▲
//! ```
//!
//! A closed log resumes to report released bytes, and to learn that the sender knows. Its sender repeats the end, perhaps
//! after an empty transfer.

use crate::ground::types::{Epoch, Position};
use crate::proto::End;

/// A subscription on one connection, see the module.
#[derive(Debug)]
pub struct Attachment {
    answered: bool,
    /// The position at which the subscription resumed, if it did not begin over this connection.
    resumed_at: Option<Position>,
    /// Whether the log moves to another ring.
    moves: bool,
    /// Whether the log was closed before: the subscription only reports released bytes.
    closed: bool,
    /// Whether the end has arrived over this connection.
    ended: bool,
    /// Whether UNSUBSCRIBE was sent. Data that still arrives lands in a ring without a reader.
    leaving: bool,
    /// Whether UNSUBSCRIBE was sent because everything was released.
    released: bool,
}

/// The reaction to SUBSCRIBED.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The log begins.
    Begin,
    /// The log continues.
    Resume,
    /// The writer has another log.
    Restarted,
    /// UNSUBSCRIBE was sent before.
    Left,
}

/// The end of the received part of a log.
#[derive(Debug, Clone, Copy)]
pub struct LogEnd {
    /// The end of the last complete delivery.
    pub boundary: Position,
    /// Whether the ring is the writer's own, in which this end may see more than it was sent.
    pub peer_written: bool,
}

/// Why a message about a subscription of this end is invalid, which is the fault of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The receiver has no subscription of this id.
    #[error("SUBSCRIBED for an id that was not asked for")]
    NotAsked,
    /// The second answer to one SUBSCRIBE.
    #[error("SUBSCRIBED twice")]
    SubscribedTwice,
    /// A resume at another position.
    #[error("SUBSCRIBED with another position than was asked for")]
    OtherPosition,
    /// Data or an end after the end.
    #[error("a log goes on after its end was told")]
    AfterEnd,
    /// An end where no delivery ends.
    #[error("the log ends where its data does not")]
    EndsElsewhere,
    /// A hole of less than no bytes.
    #[error("LOST ends before it begins")]
    LostEndsEarly,
    /// A hole that the log cannot have.
    #[error("LOST goes backwards, beyond all positions, or comes for an id without data")]
    LostElsewhere,
    /// The answer to a RECALL that was not sent.
    #[error("RECALLED for a grant that was not called back")]
    NoGrant,
    /// The answer to a RECALL that was not sent, or with a larger grant.
    #[error("RECALLED unasked, or for more than was granted")]
    RecalledMore,
    /// The answer to an UNSUBSCRIBE that was not sent.
    #[error("UNSUBSCRIBED for an id that is in use")]
    InUse,
}

impl Attachment {
    /// Creates the attachment of a subscription for which SUBSCRIBE is sent.
    pub(super) fn new(resumed_at: Option<Position>, moves: bool) -> Self {
        Self {
            answered: false,
            resumed_at,
            moves,
            closed: false,
            ended: false,
            leaving: false,
            released: false,
        }
    }

    /// Creates the attachment of a log that was closed at `end`.
    pub(super) fn of_closed(end: Position) -> Self {
        Self { closed: true, ..Self::new(Some(end), false) }
    }

    /// Returns whether SUBSCRIBED has arrived.
    pub fn is_answered(&self) -> bool {
        self.answered
    }

    /// Returns whether UNSUBSCRIBE was sent.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Returns whether the subscription is accepted and was not left.
    pub fn is_live(&self) -> bool {
        self.answered && !self.leaving
    }

    /// Returns the position at which the subscription resumed, if it did not begin over this connection.
    pub fn resumed_at(&self) -> Option<Position> {
        self.resumed_at
    }

    /// Returns whether the log was closed before this connection.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns whether the log moves to another ring.
    pub fn moves(&self) -> bool {
        self.moves
    }

    /// Handles SUBSCRIBED for a log that begins or continues at `start`. `known`: the epoch of the present
    /// log.
    ///
    /// # Errors
    /// The sender may not answer that.
    pub fn on_subscribed(
        &mut self,
        known: Option<Epoch>,
        epoch: Epoch,
        start: Position,
    ) -> Result<Answer, ReceiveError> {
        if std::mem::replace(&mut self.answered, true) {
            return Err(ReceiveError::SubscribedTwice);
        }
        match known {
            _ if self.leaving => Ok(Answer::Left),
            None => Ok(Answer::Begin),
            Some(known) if known != epoch => Ok(Answer::Restarted),
            Some(_) if Some(start) == self.resumed_at => Ok(Answer::Resume),
            Some(_) => Err(ReceiveError::OtherPosition),
        }
    }

    /// Handles data or a hole. Returns whether it is for the application or the subscribers downstream.
    ///
    /// # Errors
    /// The log has ended.
    pub fn takes_data(&self) -> Result<bool, ReceiveError> {
        match self.leaving {
            true => Ok(false),
            false if self.ended => Err(ReceiveError::AfterEnd),
            // The transfer before a repeated end is empty: the connection has a ring without room.
            false => Ok(!self.closed),
        }
    }

    /// Handles CLOSED or GONE. Returns the end of the log here; `None` if it is known or not of interest.
    ///
    /// # Errors
    /// The log cannot end there.
    pub fn on_end(&mut self, end: End, received: Option<LogEnd>) -> Result<Option<End>, ReceiveError> {
        if !self.takes_data()? {
            self.ended = true;
            return Ok(None);
        }
        self.ended = true;
        self.end_here(end, received).map(Some)
    }

    fn end_here(&self, end: End, received: Option<LogEnd>) -> Result<End, ReceiveError> {
        let Some(LogEnd { boundary, peer_written }) = received else {
            return Err(ReceiveError::EndsElsewhere);
        };
        if boundary == end.position() {
            return Ok(end);
        }
        // A reader of the writer's own ring may have more than the relay ever received.
        let saw_more = peer_written && boundary > end.position();
        // A restarted relay ends below the end that its predecessor forwarded, or inside a delivery. The new relay knows no
        // delivery that began before the resume.
        let resumed_later = self.resumed_at.is_some_and(|at| boundary.max(end.position()) <= at);
        if saw_more || resumed_later { Ok(End::Gone(boundary)) } else { Err(ReceiveError::EndsElsewhere) }
    }

    /// Records that every receiver has released all of the log. UNSUBSCRIBE follows the CREDIT that says so.
    pub fn release(&mut self) {
        self.released = true;
    }

    /// Returns whether UNSUBSCRIBED acknowledges that everything was released.
    pub fn is_released(&self) -> bool {
        self.released
    }

    /// Records that UNSUBSCRIBE is sent. Returns false if it was sent before.
    pub fn leave(&mut self) -> bool {
        !std::mem::replace(&mut self.leaving, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch(7);

    fn resumed(at: Option<Position>) -> Attachment {
        Attachment::new(at, false)
    }

    #[test]
    fn an_answer_is_that_of_the_log_that_was_asked_for() {
        let cases = [
            (None, None, (EPOCH, 5), Ok(Answer::Begin)),
            (Some(5), Some(EPOCH), (EPOCH, 5), Ok(Answer::Resume)),
            (Some(5), Some(EPOCH), (EPOCH, 6), Err(ReceiveError::OtherPosition)),
            (Some(5), Some(EPOCH), (Epoch(8), 6), Ok(Answer::Restarted)),
        ];
        for (at, known, (epoch, start), answer) in cases {
            let mut attachment = resumed(at);
            assert_eq!(attachment.on_subscribed(known, epoch, start), answer);
            assert_eq!(attachment.on_subscribed(known, epoch, start), Err(ReceiveError::SubscribedTwice));
        }
    }

    #[test]
    fn an_answer_after_unsubscribe_begins_nothing() {
        let mut attachment = resumed(Some(5));
        assert!(attachment.leave() && !attachment.leave());
        assert_eq!(attachment.on_subscribed(Some(EPOCH), EPOCH, 6), Ok(Answer::Left));
        assert!(attachment.is_answered() && !attachment.is_live());
    }

    #[test]
    fn a_log_ends_where_its_data_does() {
        let end = |boundary, peer_written| Some(LogEnd { boundary, peer_written });
        let (closed, gone, wrong) =
            (|at| Ok(End::Closed(at)), |at| Ok(End::Gone(at)), Err(ReceiveError::EndsElsewhere));
        let cases = [
            (None, None, wrong),
            (None, end(10, false), closed(10)),
            (None, end(9, false), wrong),
            (None, end(12, false), wrong),
            // The ring is the writer's own.
            (None, end(12, true), gone(12)),
            (None, end(9, true), wrong),
            // The relay was restarted.
            (Some(12), end(12, false), gone(12)),
            (Some(12), end(8, false), gone(8)),
            (Some(9), end(8, false), wrong),
            (Some(12), end(13, false), wrong),
        ];
        for (at, received, here) in cases {
            assert_eq!(resumed(at).end_here(End::Closed(10), received), here, "{at:?} {received:?}");
        }
    }
}
