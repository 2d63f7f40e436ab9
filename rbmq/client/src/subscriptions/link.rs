//! The connection of a subscriber, as far as its subscriptions depend on it.

use std::collections::VecDeque;

use crate::ground::error::ReceiveError;
use crate::wire::{Control, TopicFilter};

/// The connection. A connection that replaces a lost one may be up before the application's thread learns of the loss.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// The connection over which the latest requests were sent, and those that the broker has not answered, in their order: the filter of those
    /// that have one only.
    unanswered: (u64, VecDeque<Option<TopicFilter>>),
    /// How many broker processes followed the first one.
    pub(super) broker: u64,
    /// A connection leads to another broker process: the application's thread moves to it.
    moves: bool,
    /// How many losses the application knows of, less the connections that replaced lost ones.
    missing: i64,
    /// Whether the application knows that the connection is lost, and not yet that it is back.
    disconnected: bool,
    /// Why nothing more comes. No further connection follows.
    over: Option<ReceiveError>,
}

impl Link {
    /// Requests are sent.
    pub(super) fn on_requests(&mut self, conn: u64, requests: &[Control]) {
        if self.unanswered.0 != conn {
            self.unanswered = (conn, VecDeque::new());
        }
        self.unanswered.1.extend(requests.iter().map(|request| match request {
            Control::Topics { filters } if filters.len() == 1 => filters.first().cloned(),
            _ => None,
        }));
    }

    /// The filter of the request that the broker answers next, if it has one only.
    pub(super) fn asked_first(&self, conn: u64) -> Option<&TopicFilter> {
        let first = self.unanswered.1.front().filter(|_| self.unanswered.0 == conn)?;
        first.as_ref()
    }

    /// The broker answered a request. Returns whether it has answered all of them.
    pub(super) fn on_answer(&mut self, conn: u64) -> bool {
        if self.unanswered.0 != conn {
            return false;
        }
        self.unanswered.1.pop_front();
        self.is_answered()
    }

    /// Whether the broker has announced all existing buffers of all filters.
    pub(super) fn is_answered(&self) -> bool {
        self.unanswered.1.is_empty()
    }

    /// The application learns of a loss. Returns false if it knows of an earlier one, and not yet that the connection was back.
    pub(super) fn on_lost(&mut self) -> bool {
        self.missing += 1;
        !std::mem::replace(&mut self.disconnected, true)
    }

    /// A connection replaces a lost one.
    pub(super) fn on_replaced(&mut self, same_broker: bool) {
        self.missing -= 1;
        self.moves |= !same_broker;
    }

    /// The application's thread takes the connection to another broker process. What happens to that one from now on is new.
    pub(super) fn on_leaving(&mut self) {
        (self.moves, self.missing, self.disconnected) = (false, 0, false);
    }

    /// The application's thread has moved to the connection.
    pub(super) fn on_moved(&mut self) {
        self.broker += 1;
    }

    /// The first reason stays.
    pub(super) fn on_over(&mut self, why: ReceiveError) {
        self.over.get_or_insert(why);
    }

    /// Whether the connection is back, and the application does not know. At the same broker process, the subscriptions have
    /// resumed by themselves.
    pub(super) fn take_resumed(&mut self) -> bool {
        let resumed = self.disconnected && !self.moves && self.missing <= 0;
        self.disconnected &= !resumed;
        resumed
    }

    pub(super) fn is_disconnected(&self) -> bool {
        self.disconnected
    }

    /// Whether nothing can come before there is a connection.
    pub(super) fn is_waiting(&self) -> bool {
        !self.moves && self.over.is_none() && self.missing > 0
    }

    /// Whether the application's thread has something to do.
    pub(super) fn has_news(&self) -> bool {
        self.moves || self.over.is_some()
    }

    pub(super) fn over(&self) -> Option<&ReceiveError> {
        self.over.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connection to which the application's thread moves is lost and replaced before the move.
    #[test]
    fn a_connection_that_is_replaced_during_the_move_is_not_waited_for() {
        let mut link = Link::default();
        link.on_lost();
        link.on_replaced(false);
        link.on_leaving();
        link.on_replaced(false);
        link.on_moved();
        link.on_lost();
        assert!(!link.is_waiting() && link.has_news());
        link.on_leaving();
        link.on_moved();
        assert!(!link.is_waiting() && !link.has_news() && !link.is_disconnected());
    }
}
