//! One subscription of a peer, and the execution of its effects.
//!
//! The machine ([`PeerSubscription`]) decides. An [`OutgoingSubscription`] has what executing the decisions needs: the
//! connection, the transport and the buffer, found with one look-up. Effects that end the subscription or its
//! connection are left to the reactor ([`ReactorAction`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rocketnet::{NotWritten, SourceRange, Transport};
use rocketring::{PeerDoorbell, Ring};

use super::reactor_action::{Outcome, ReactorAction};
use super::worker_context::{LinkPhase, SendState, SubscriptionKey, WorkerContext};
use crate::ground::planted;
use crate::ground::types::{Position, WireId};
use crate::proto::{Credit, End, Enqueue, LagAction, Message, PeerSubscription, Step};
use crate::state::events::OutEvent;
use crate::state::{Buffer, SubscriptionStatus};

/// The PING after an end has this bit and the wire id. Other PINGs carry the time, which does not reach this
/// bit.
const END_HEARD: u64 = 1 << 63;

/// A subscription of the peer to a buffer of this process.
pub(super) struct OutgoingEntry {
    pub(super) buffer: Arc<Buffer>,
    pub(super) machine: PeerSubscription,
    /// The state that other threads see.
    pub(super) status: Arc<SubscriptionStatus>,
    pub(super) hold_ms: u32,
}

/// A subscription with everything that executing its effects needs, see [the module](self).
pub(super) struct OutgoingSubscription<'a, T: Transport> {
    pub(super) io: &'a mut WorkerContext<T>,
    pub(super) line: &'a mut SendState,
    pub(super) wire: WireId,
    pub(super) out: &'a mut OutgoingEntry,
}

/// Returns the wire id from a PONG that answers the PING after an end.
pub(super) fn wire_of_pong(token: u64) -> Option<WireId> {
    (token & END_HEARD != 0).then_some((token & !END_HEARD) as WireId)
}

impl OutgoingEntry {
    fn ring(&self) -> Option<&Ring> {
        self.buffer.log().map(|log| &log.ring)
    }

    /// Returns whether the receiver needs messages at once, even if it sees all data by itself.
    fn is_waited_for(&self) -> bool {
        self.buffer.ended() || self.buffer.is_waited_for()
    }

    /// Returns whether the receiver sees all data by itself and no call waits for it.
    pub(super) fn can_wait(&self) -> bool {
        self.ring().is_some_and(|ring| self.machine.sees_all(ring)) && !self.is_waited_for()
    }

    /// Returns the position up to which deliveries need no report now: the receiver follows, and an earlier
    /// report is already deferred.
    pub(super) fn unreported_to(&self) -> Option<Position> {
        self.ring().filter(|_| self.machine.is_unreported()).and_then(|ring| self.machine.follows_to(ring))
    }
}

impl<T: Transport> OutgoingSubscription<'_, T> {
    /// Handles news of the buffer: applies the policy, and gives the subscription a turn.
    pub(super) fn on_news(&mut self) -> Outcome {
        let Some(ring) = self.out.ring() else { return Ok(()) };
        self.out.buffer.times.note(self.io.now, ring);
        match self.out.machine.lag_action(ring) {
            None => {}
            Some(LagAction::Skip) => self.skip(),
            Some(LagAction::Disconnect { lag }) => {
                return Err(ReactorAction::TooSlow { wire: self.wire, lag, rule: "policy disconnect" });
            }
        }
        if let Some(credit) = self.out.machine.take_deferred_credit() {
            self.on_credit(&credit)?;
        }
        self.enqueue();
        Ok(())
    }

    /// Gives the subscription a turn, or defers the report of data that its receiver sees by itself.
    pub(super) fn enqueue(&mut self) {
        if self.line.phase != LinkPhase::Up {
            return;
        }
        let OutgoingEntry { buffer, machine, .. } = &mut *self.out;
        let Some(log) = buffer.log() else { return };
        match machine.enqueue(&log.ring, buffer.ended() || buffer.is_waited_for()) {
            Enqueue::Later => self.io.deferred.report(self.key(), self.io.now),
            Enqueue::Unreported => {}
            Enqueue::Queue => self.queue(),
            Enqueue::Queued => self.io.mark_dirty(self.line),
        }
        self.io.mark_busy();
    }

    fn key(&self) -> SubscriptionKey {
        SubscriptionKey { conn: self.line.id, wire: self.wire }
    }

    /// Queues the subscription among those of its connection that have something to send.
    fn queue(&mut self) {
        self.line.ready.push_back(self.wire);
        self.io.mark_dirty(self.line);
    }

    /// Defers the report to a receiver that sees the data by itself.
    pub(super) fn report_later(&mut self) {
        if self.out.machine.defer_report() {
            self.io.deferred.report(self.key(), self.io.now);
        }
    }

    /// Sends the deferred report.
    pub(super) fn report(&mut self) {
        // A later delivery marks the buffer again, or the load of the head below sees it.
        self.out.buffer.resume_notify();
        let head = self.out.ring().map_or(0, Ring::head);
        if self.out.machine.report(head) {
            self.queue();
        }
    }

    /// Executes `drop`: copies data that is partly sent. The subscription holds nothing below any more.
    fn skip(&mut self) {
        if !planted::is(planted::NOT_DETACHED) {
            self.io.transport.detach(self.line.id, self.wire);
        }
        let lost = {
            let OutgoingEntry { buffer, machine, .. } = &mut *self.out;
            buffer.log().and_then(|log| machine.skip(&log.ring))
        };
        self.publish();
        if let Some((from, to)) = lost {
            self.report_lost(from, to);
        }
        self.out.buffer.on_progress();
        self.out.buffer.report_landed_contexts();
    }

    fn publish(&self) {
        self.out.buffer.publish(&self.out.status, self.out.machine.cursor());
    }

    fn report_lost(&mut self, from: Position, to: Position) {
        if planted::is(planted::LOST_NOT_TOLD) {
            return;
        }
        self.io.send(self.line, &Message::Lost { wire: self.wire, from, to });
        if let Some(rout) = self.out.buffer.out.upgrade() {
            let (conn, bid, policy) = (self.line.shared.id, self.out.buffer.bid, self.out.status.policy);
            rout.report(OutEvent::Dropped { conn, bid, from, to, policy });
        }
    }

    /// Takes the subscription's turn to send at most `room` bytes. Returns whether anything was sent.
    // Part of the loop over the subscriptions, also since there are two versions of the loop: a tenth of a transfer's instructions.
    #[inline(always)]
    pub(super) fn take(&mut self, room: u64, ordered: bool) -> Result<bool, ReactorAction> {
        let OutgoingEntry { buffer, machine, .. } = &mut *self.out;
        machine.dequeue();
        let Some(log) = buffer.log() else { return Ok(false) };
        match machine.take_turn(&log.ring, || buffer.end(), room, ordered) {
            None => Ok(false),
            Some(Step::Idle) => {
                self.ask();
                Ok(false)
            }
            Some(Step::Write { from, to, more }) => {
                let mapped = machine.cursor().config().maps.is_some();
                let source = SourceRange { ring: log.ring.clone(), from, to, mapped };
                let written = self.io.transport.write(self.line.id, self.wire, source, more);
                self.after_write(from, to, written)
            }
            Some(Step::Lost { from, to }) => {
                self.publish();
                self.report_lost(from, to);
                self.out.buffer.on_progress();
                self.enqueue();
                Ok(true)
            }
            Some(Step::Grown(max_delivery)) => {
                self.io.send(self.line, &Message::Grown { wire: self.wire, max_delivery });
                self.enqueue();
                Ok(true)
            }
            Some(Step::Outgrown(max_delivery)) => {
                Err(ReactorAction::Outgrown { wire: self.wire, max_delivery })
            }
            Some(Step::End(end)) => {
                self.report_end(end);
                Ok(true)
            }
        }
    }

    fn after_write(
        &mut self,
        from: Position,
        to: Position,
        written: Result<(), NotWritten>,
    ) -> Result<bool, ReactorAction> {
        self.out.machine.queue();
        self.line.ready.push_back(self.wire);
        match written {
            Ok(()) => {
                self.out.status.show_sent(from, to, self.io.now);
                self.out.machine.on_written();
                self.line.pauses.wrote(to - from);
                self.line.session.spoke(self.io.now);
                if self.out.buffer.is_waited_for() {
                    // A waiting call must not depend on there being nothing more to send.
                    self.ask();
                }
            }
            Err(NotWritten::Overwritten) => self.out.machine.on_overwritten(),
            // `room` promised space, so the transport broke its contract.
            Err(NotWritten::QueueFull) => {
                return Err(ReactorAction::protocol("the transport took no write where it had room"));
            }
        }
        Ok(true)
    }

    fn report_end(&mut self, end: End) {
        let wire = self.wire;
        let message = match end {
            End::Closed(end) => Message::Closed { wire, end },
            End::Gone(end) => Message::Gone { wire, end },
        };
        self.io.send(self.line, &message);
        // PONG proves that the peer has received the end. Draining waits for that.
        self.io.send(self.line, &Message::Ping(END_HEARD | u64::from(wire)));
        self.ask();
    }

    /// Handles the PONG after an end: the receiver has received the end.
    pub(super) fn on_end_heard(&mut self) {
        if self.out.machine.cursor().ended() {
            self.out.status.heard_end.store(true, Ordering::Release);
            self.out.buffer.on_progress();
        }
    }

    /// Asks the receiver for confirmations that a call waits for, and for credit if the receiver gives it on
    /// demand.
    fn ask(&mut self) {
        let OutgoingEntry { buffer, machine, .. } = &mut *self.out;
        let (wanted, all) = buffer.wanted(machine.cursor().levels());
        let questions = machine.questions(wanted, all, buffer.log().map(|log| &log.ring));
        for wanted in questions.into_iter().flatten() {
            self.io.send(self.line, &Message::Ask { wire: self.wire, wanted });
        }
    }

    pub(super) fn on_recall(&mut self) {
        let at = self.out.machine.on_recall();
        self.io.send(self.line, &Message::Recalled { wire: self.wire, at });
        // There may be data for which to ask again.
        self.enqueue();
    }

    pub(super) fn on_credit(&mut self, credit: &Credit) -> Outcome {
        let OutgoingEntry { buffer, machine, .. } = &mut *self.out;
        let (log, spliced) = (buffer.log().map(|log| &log.ring), buffer.source.is_some());
        machine.on_credit(credit, log, spliced, self.io.now).map_err(ReactorAction::protocol)?;
        self.moved_on();
        Ok(())
    }

    /// Returns the slot of the subscription that the buffer is spliced from, if receivers downstream have
    /// departed with this CREDIT.
    pub(super) fn upstream_of_departed(&self, credit: &Credit) -> Option<u32> {
        let departed = credit.coverage.left > self.out.machine.cursor().coverage().told.left;
        if departed { self.out.buffer.upstream().map(|source| source.slot()) } else { None }
    }

    pub(super) fn on_landed(&mut self, position: Position) {
        let OutgoingEntry { buffer, machine, .. } = &mut *self.out;
        machine.on_landed(position, buffer.log().map(|log| &log.ring), self.io.now);
        self.moved_on();
    }

    /// Handles moved positions: releases the hold, and checks whether more can be sent.
    fn moved_on(&mut self) {
        self.publish();
        let (levels, coverage) = (self.out.machine.cursor().levels(), self.out.status.count());
        let buffer = &self.out.buffer;
        buffer.on_progress();
        if let Some(rout) = buffer.out.upgrade() {
            rout.report_subscriber_progress(buffer, self.line.shared.id, levels, coverage);
            rout.report_landed_contexts(buffer);
        }
        self.enqueue();
        let buffer = &self.out.buffer;
        if buffer.source.is_some() && buffer.drained() {
            buffer.reap();
        }
    }

    /// Adds the doorbell of the peer, or of a reader downstream, that follows the ring. The worker rings the doorbell when
    /// the ring has new data.
    pub(super) fn watch(&mut self, number: u32, doorbell: Option<Arc<PeerDoorbell>>) {
        if !self.out.machine.may_be_watched() {
            return;
        }
        let key = (self.line.shared.id, self.wire, number);
        match doorbell {
            Some(doorbell) => {
                if !self.out.buffer.watch(key, doorbell) {
                    return;
                }
            }
            None => self.out.buffer.unwatch(key),
        }
        // Prepared here and not in the first delivery, since it may take some milliseconds.
        rocketring::barrier::prepare();
        self.out.machine.watch(number);
    }

    pub(super) fn unwatch(&mut self, number: u32) {
        if self.out.machine.unwatch(number) {
            self.out.buffer.unwatch((self.line.shared.id, self.wire, number));
        }
    }
}
