//! Subscriptions of this end on one connection: asking for them, ending and suspending them.

use rocketnet::Transport;

use super::connection::{Connection, Link};
use super::ending::end_subscription;
use super::incoming::Incoming;
use crate::error::RefusedError;
use crate::lock::lock;
use crate::proto::{Ending, ReceiveError, RefuseCode};
use crate::state::Command;
use crate::types::WireId;

impl<T: Transport> Connection<'_, T> {
    /// Reports the final positions of every subscription. A peer that asked for confirmations, or that holds
    /// the position of a durable subscription, has no other way to learn them.
    pub(super) fn send_last_credits(&mut self) {
        let Link { line, ins, .. } = &mut *self.link;
        for (&wire, sub) in ins.iter_mut().filter(|(_, sub)| sub.machine.is_live()) {
            Incoming { io: self.io, line, wire, sub }.send_last_credit();
        }
    }

    pub(super) fn on_refused(&mut self, wire: WireId, (code, a, b): (RefuseCode, u64, u64)) {
        // REFUSED may cross UNSUBSCRIBE. UNSUBSCRIBED still arrives then and frees the wire id.
        if self.link.ins.get(&wire).is_some_and(|sub| sub.machine.is_leaving()) {
            return;
        }
        let Some(sub) = self.link.ins.remove(&wire) else { return };
        self.io.transport.unbind(self.id(), wire);
        sub.inbound.detach();
        self.io.slots.remove(sub.inbound.slot);
        end_subscription(&sub.inbound, Ending::Refused(RefusedError::Peer { code, a, b }));
    }

    pub(super) fn on_unsubscribed(&mut self, wire: WireId) -> Result<(), ReceiveError> {
        let leaving = self.link.ins.get(&wire).is_some_and(|sub| sub.machine.is_leaving());
        let sub = if leaving { self.link.ins.remove(&wire) } else { None }.ok_or(ReceiveError::InUse)?;
        let receiver = self.io.transport.unbind(self.id(), wire);
        self.io.keep_receiver(&sub.inbound, receiver);
        Ok(())
    }

    /// Suspends the subscriptions of a connection that is down. Their rings stay and can resume over another
    /// connection.
    pub(super) fn suspend_ins(&mut self) {
        let mut ins: Vec<_> = self.link.ins.drain().collect();
        ins.sort_unstable_by_key(|(wire, _)| *wire);
        for (wire, sub) in ins {
            let receiver = self.io.transport.unbind(self.id(), wire);
            if sub.machine.is_leaving() {
                continue;
            }
            let inbound = sub.inbound;
            self.io.slots.remove(inbound.slot);
            let mut state = lock(&inbound.state);
            let calls = state.suspend(receiver);
            self.io.idle.stirred(&inbound, self.io.now);
            let resumed = state.sub.take_resume();
            drop(state);
            calls.run();
            if let Some(next) = resumed {
                self.io.context.send(next, Command::Subscribe { conn: next, inbound });
            } else {
                self.io.begin_linger(&inbound);
            }
        }
    }
}
