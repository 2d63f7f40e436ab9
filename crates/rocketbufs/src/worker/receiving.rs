//! Subscriptions of this end on the worker's connections: finding one, and ending or suspending it.

use std::sync::Arc;

use rocketnet::{ConnId, Transport};

use super::incoming::{Handled, Incoming, end_subscription};
use super::reactor::{Link, Reactor};
use super::slots::SlotUse;
use crate::error::RefusedError;
use crate::lock::lock;
use crate::proto::{CloseCode, Ending, ReceiveError, RefuseCode, Subscribed};
use crate::state::{Command, InboundShared, Role, Upstream};
use crate::types::{Bid, WireId};

impl<T: Transport> Reactor<T> {
    /// Returns a subscription of this end, with everything that executing its effects needs.
    pub(super) fn incoming(&mut self, conn: ConnId, wire: WireId) -> Option<Incoming<'_, T>> {
        let Link { line, ins, .. } = self.links.get_mut(&conn)?;
        let sub = ins.get_mut(&wire)?;
        Some(Incoming { io: &mut self.io, idle: &mut self.idle, slots: &mut self.slots, line, wire, sub })
    }

    /// Returns the subscription of this end with this slot, if one of the worker's connections carries it.
    pub(super) fn incoming_of(&mut self, slot: u32) -> Option<Incoming<'_, T>> {
        match self.slots.get(slot) {
            Some(&SlotUse::In((conn, wire))) => self.incoming(conn, wire),
            _ => None,
        }
    }

    /// Handles a message about a subscription of this end, and closes the connection if the message is
    /// invalid. A message about an unknown id is ignored.
    pub(super) fn receive(
        &mut self,
        conn: ConnId,
        wire: WireId,
        handle: impl FnOnce(&mut Incoming<'_, T>) -> Handled,
    ) {
        let Some(mut turn) = self.incoming(conn, wire) else { return };
        if let Err(error) = handle(&mut turn) {
            self.close(conn, CloseCode::Protocol, &error.to_string());
        }
    }

    pub(super) fn on_subscribed(&mut self, conn: ConnId, subscribed: &Subscribed) {
        let handled = match self.incoming(conn, subscribed.wire) {
            Some(mut turn) => turn.on_subscribed(subscribed),
            None => Err(ReceiveError::NotAsked),
        };
        if let Err(error) = handled {
            self.close(conn, CloseCode::Protocol, &error.to_string());
        }
    }

    /// Forwards confirmations of downstream receivers to the sender of a buffer's data, if this worker has
    /// the connection.
    pub(super) fn tell_upstream(&mut self, source: &dyn Upstream) {
        if let Some(mut turn) = self.incoming_of(source.slot()) {
            turn.tell_on();
        }
    }

    /// Reports the final positions of every subscription. A peer that asked for confirmations, or that holds
    /// the position of a durable subscription, has no other way to learn them.
    pub(super) fn tell_last_credits(&mut self, conn: ConnId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let Link { line, ins, .. } = link;
        for (&wire, sub) in ins.iter_mut().filter(|(_, sub)| sub.machine.is_live()) {
            let (io, idle, slots) = (&mut self.io, &mut self.idle, &mut self.slots);
            Incoming { io, idle, slots, line, wire, sub }.tell_last_credit();
        }
    }

    pub(super) fn on_refused(&mut self, conn: ConnId, wire: WireId, code: RefuseCode, a: u64, b: u64) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        if link.ins.get(&wire).is_some_and(|in_sub| in_sub.machine.is_leaving()) {
            // REFUSED crossed UNSUBSCRIBE. UNSUBSCRIBED still arrives and frees the wire id.
            return;
        }
        let Some(in_sub) = link.ins.remove(&wire) else { return };
        self.io.transport.unbind(conn, wire);
        in_sub.inbound.detach();
        self.slots.remove(in_sub.inbound.slot);
        let error = RefusedError::Peer { code, a, b };
        end_subscription(&in_sub.inbound, Ending::Refused(error));
    }

    pub(super) fn unsubscribe(&mut self, number: u64, inbound: &Arc<InboundShared>) {
        let wire = inbound.end(number);
        self.lingering.forget(inbound);
        self.idle.forget(&inbound.rest);
        if let Some(wire) = wire {
            self.leave(number, wire);
        }
    }

    /// Leaves a subscription of this connection.
    pub(super) fn leave(&mut self, number: u64, wire: WireId) {
        if let Some(&conn) = self.by_number.get(&number)
            && let Some(mut turn) = self.incoming(conn, wire)
        {
            turn.leave();
        }
    }

    /// Resumes a subscription for which the application has released its data.
    pub(super) fn resume(&mut self, number: u64, bid: Bid) {
        let link = self.by_number.get(&number).and_then(|conn| self.links.get(conn));
        let Some(Role::In(rin)) = link.and_then(|link| link.role.as_ref()) else { return };
        if let Some(inbound) = rin.inbound(bid) {
            self.subscribe(number, inbound);
        }
    }

    pub(super) fn on_unsubscribed(&mut self, conn: ConnId, wire: WireId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        match link.ins.get(&wire) {
            Some(in_sub) if in_sub.machine.is_leaving() => {
                let gone = link.ins.remove(&wire);
                let receiver = self.io.transport.unbind(conn, wire);
                self.keep_receiver(gone.map(|in_sub| in_sub.inbound), receiver);
            }
            _ => self.close(conn, CloseCode::Protocol, &ReceiveError::InUse.to_string()),
        }
    }

    /// Suspends the subscriptions of a connection that is down. Their rings stay and can resume over another
    /// connection.
    pub(super) fn suspend_ins(&mut self, conn: ConnId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let mut ins: Vec<_> = link.ins.drain().collect();
        ins.sort_unstable_by_key(|(wire, _)| *wire);
        for (wire, in_sub) in ins {
            let receiver = self.io.transport.unbind(conn, wire);
            if in_sub.machine.is_leaving() {
                continue;
            }
            let inbound = in_sub.inbound;
            self.slots.remove(inbound.slot);
            let mut state = lock(&inbound.state);
            let calls = state.suspend(receiver);
            self.idle.stirred(&inbound, self.io.now);
            let resumed = state.sub.take_resume();
            drop(state);
            calls.run();
            if let Some(next) = resumed {
                self.io.context.send(next, Command::Subscribe { conn: next, inbound });
            } else {
                self.begin_linger(&inbound);
            }
        }
    }

    /// Starts the linger time of a subscription that lost its connection, or that had none yet.
    pub(super) fn begin_linger(&mut self, inbound: &Arc<InboundShared>) {
        if let Some(gone_at) = self.lingering.begin(inbound, self.io.now) {
            self.io.next_tick = self.io.next_tick.min(gone_at);
        }
    }
}
