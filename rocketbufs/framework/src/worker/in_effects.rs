//! One subscription of this end, and the execution of its effects.
//!
//! The machines ([`ReceiveSubscription`](crate::proto::ReceiveSubscription) and [`Attachment`]) decide. An
//! [`IncomingSubscription`] has what executing the decisions needs: the connection, the transport and the subscription,
//! found with one look-up. Its methods return an error if the peer broke the protocol; the reactor closes the
//! connection then.

use std::sync::Arc;

use rocketnet::{Offered, Transport};
use rocketring::{Ring, Trimmed};

use super::in_linger::end_subscription;
use super::rate_limit_state::Metered;
use super::worker_context::{SendState, WorkerContext};
use crate::ground::lock::lock;
use crate::ground::planted;
use crate::ground::types::{Position, WireId};
use crate::proto::{Attachment, End, Ending, LogEnd, Message, ReceiveError};
use crate::state::{Buffer, SubscriptionShared, downstream_of};

/// A subscription of this process at the peer.
pub(super) struct IncomingEntry {
    pub(super) shared: Arc<SubscriptionShared>,
    pub(super) machine: Attachment,
    /// The sender's ring to be mapped, if it arrived before SUBSCRIBED.
    pub(super) offered: Option<Offered>,
    pub(super) metered: Metered,
}

impl IncomingEntry {
    pub(super) fn new(shared: Arc<SubscriptionShared>, machine: Attachment) -> Self {
        Self { shared, machine, offered: None, metered: Metered::default() }
    }
}

/// A subscription with everything that executing its effects needs, see [the module](self).
pub(super) struct IncomingSubscription<'a, T: Transport> {
    pub(super) io: &'a mut WorkerContext<T>,
    pub(super) line: &'a mut SendState,
    pub(super) wire: WireId,
    pub(super) sub: &'a mut IncomingEntry,
}

/// The result of a message: an error closes the connection.
pub(super) type Received = Result<(), ReceiveError>;

impl<T: Transport> IncomingSubscription<'_, T> {
    /// Handles data that landed.
    pub(super) fn on_arrived(&mut self) -> Received {
        if self.sub.machine.takes_data()? {
            self.news();
        }
        Ok(())
    }

    /// Handles data that this end found in mapped memory. The data stays valid after the log's end arrived,
    /// so an ended subscription is not an error.
    pub(super) fn on_followed(&mut self) -> Received {
        if self.sub.machine.takes_data() == Ok(true) {
            self.news();
        }
        Ok(())
    }

    /// Handles news of the buffer: releases by the application, and progress downstream.
    pub(super) fn on_pending(&mut self) {
        let subscription = &self.sub.shared;
        self.io.idle.on_pending(subscription, self.io.now);
        if let (true, Some(rin)) = (subscription.is_spliced(), subscription.rin.upgrade()) {
            // Data from before the splice is held for an application that is no longer told of it.
            rin.on_news(subscription);
        }
        self.give_credit();
    }

    /// Reports progress to the subscribers downstream, the application, and the sender.
    pub(super) fn news(&mut self) {
        let subscription = &self.sub.shared;
        self.io.idle.mark_busy(subscription, self.io.now);
        let spliced = subscription.spliced_to();
        if let Some(buffer) = &spliced {
            if let Some(log) = buffer.log() {
                buffer.times.note(self.io.now, &log.ring);
            }
            buffer.notify();
        }
        if let Some(rin) = subscription.rin.upgrade() {
            rin.on_news(subscription);
        }
        self.give_credit_of(spliced);
    }

    /// Sends CREDIT if it is due, and leaves a subscription whose log has ended and is consumed.
    pub(super) fn give_credit(&mut self) {
        let spliced = self.sub.shared.spliced_to();
        self.give_credit_of(spliced);
    }

    fn give_credit_of(&mut self, spliced: Option<Arc<Buffer>>) {
        self.lend();
        // A resuming subscription waits for SUBSCRIBED: the sender may have another log by now. CREDIT
        // follows that answer in any case.
        if !self.sub.machine.is_answered() {
            return;
        }
        let Some(limit) = self.grant_limit() else { return };
        if self.owes_credit(limit) {
            return self.send_credit();
        }
        let downstream = spliced.map(|buffer| downstream_of(&buffer));
        let subscription = &self.sub.shared;
        let mut state = lock(&subscription.state);
        if state.sub.wire_on(self.line.shared.id) != Some(self.wire) {
            return;
        }
        let Some((due, finished)) = state.next_credit(downstream.as_ref(), limit) else { return };
        drop(state);
        if let Some(credit) = due {
            self.io.send(self.line, &Message::Credit { wire: self.wire, credit });
        }
        if finished {
            if let Some(rin) = subscription.rin.upgrade() {
                rin.forget_if_over(subscription);
            }
            // The application may not have received the end yet. The wire id is no longer needed.
            self.sub.machine.release();
            self.leave();
        }
    }

    /// Sends CREDIT, whether it is due or not.
    pub(super) fn send_credit(&mut self) {
        let Some(limit) = self.grant_limit() else { return };
        let downstream = self.sub.shared.downstream();
        let Some(credit) = lock(&self.sub.shared.state).tell(downstream.as_ref(), limit) else { return };
        self.sub.metered.credited();
        self.io.send(self.line, &Message::Credit { wire: self.wire, credit });
    }

    /// Sends CREDIT unless the sender has switched to another log or has lost part of this one.
    pub(super) fn send_last_credit(&mut self) {
        let reports = lock(&self.sub.shared.state).sub.reports_last_credit();
        if reports {
            self.send_credit();
        }
    }

    /// Sends CREDIT, whether it is due or not, if the downstream receivers confirm more than the last one
    /// did.
    pub(super) fn forward_confirmations(&mut self) {
        let downstream = self.sub.shared.downstream();
        let state = lock(&self.sub.shared.state);
        let (log, now) = (state.sub.log(), state.credit_now(downstream.as_ref()));
        let more = log.zip(now).is_some_and(|(log, now)| log.credit().confirms_more(&now));
        drop(state);
        if more && self.sub.machine.is_answered() {
            self.send_last_credit();
        }
    }

    /// Handles a ring that comes to rest: sends CREDIT if anything moved since the last one, and returns an
    /// unneeded ring to the budget.
    pub(super) fn on_idle(&mut self) {
        let downstream = self.sub.shared.downstream();
        let mut state = lock(&self.sub.shared.state);
        state.catch_up();
        let (log, now) = (state.sub.log(), state.credit_now(downstream.as_ref()));
        let moved = log.zip(now).is_some_and(|(log, now)| log.credit().is_further(&now));
        drop(state);
        if !self.sub.machine.is_live() {
            return;
        }
        if moved {
            self.send_credit();
        }
        self.rest_allocation();
    }

    /// Releases memory of the ring, except for `keep` bytes of history.
    pub(super) fn trim(&mut self, keep: u64) -> Option<Trimmed> {
        self.io.transport.trim(self.line.id, self.wire, keep)
    }

    pub(super) fn on_ask(&mut self, wanted: [Position; 3]) -> Received {
        if planted::is(planted::ASK_IGNORED) {
            return Ok(());
        }
        if let Some(log) = lock(&self.sub.shared.state).sub.log_mut() {
            log.on_ask(wanted);
        }
        self.sub.shared.want_confirmed(wanted);
        self.give_credit();
        Ok(())
    }

    pub(super) fn on_lost(&mut self, from: Position, to: Position) -> Received {
        if !self.sub.machine.takes_data()? {
            return Ok(());
        }
        if from > to {
            return Err(ReceiveError::LostEndsEarly);
        }
        let head = |sub: &IncomingEntry| lock(&sub.shared.state).ring().map_or(0, Ring::head);
        let before = head(self.sub);
        let skipped = self.io.transport.skip(self.line.id, self.wire, to);
        self.sub.metered.skipped(before, head(self.sub));
        let mut state = lock(&self.sub.shared.state);
        let known = state.parts().is_some_and(|(log, memory)| log.on_lost(to, skipped, memory.ring()));
        drop(state);
        if !known {
            return Err(ReceiveError::LostElsewhere);
        }
        self.news();
        Ok(())
    }

    pub(super) fn on_end(&mut self, end: End) -> Received {
        let received = lock(&self.sub.shared.state)
            .ring()
            .map(|ring| LogEnd { boundary: ring.stop_following(), peer_written: ring.is_peer_written() });
        if let Some(end) = self.sub.machine.on_end(end, received)? {
            end_subscription(&self.sub.shared, Ending::End(end));
            self.give_credit();
        }
        Ok(())
    }

    /// Ends the subscription before its log does.
    pub(super) fn end_and_leave(&mut self, ending: Ending) {
        end_subscription(&self.sub.shared, ending);
        self.leave();
    }

    /// Sends UNSUBSCRIBE. The wire id stays bound until UNSUBSCRIBED arrives.
    pub(super) fn leave(&mut self) {
        self.leave_by(&Message::Unsubscribe(self.wire));
    }

    /// As [`IncomingSubscription::leave`], with a message that UNSUBSCRIBED answers.
    pub(super) fn leave_by(&mut self, message: &Message) {
        if self.sub.machine.is_leaving() {
            return;
        }
        if self.sub.machine.is_answered() {
            self.send_last_credit();
        }
        self.sub.machine.leave();
        self.sub.shared.detach();
        self.io.slots.remove(self.sub.shared.slot);
        self.io.send(self.line, message);
    }
}
