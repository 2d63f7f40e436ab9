//! Subscriptions of this end on one connection: asking for them, ending and suspending them.

use std::sync::Arc;

use rocketnet::Transport;

use super::connection::{Connection, Link};
use super::ending::end_subscription;
use super::incoming::Incoming;
use crate::error::RefusedError;
use crate::lock::lock;
use crate::proto::{Ending, ReceiveError, RefuseCode};
use crate::state::{Command, SubscriptionShared};
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
        sub.inbound.settle();
    }

    pub(super) fn on_unsubscribed(&mut self, wire: WireId) -> Result<(), ReceiveError> {
        let leaving = self.link.ins.get(&wire).is_some_and(|sub| sub.machine.is_leaving());
        let sub = if leaving { self.link.ins.remove(&wire) } else { None }.ok_or(ReceiveError::InUse)?;
        let receiver = self.io.transport.unbind(self.id(), wire);
        if sub.machine.is_released() {
            sub.inbound.settle();
        }
        self.io.keep_receiver(&sub.inbound, receiver.filter(|_| !sub.machine.is_closed()));
        Ok(())
    }

    /// Suspends the subscriptions of a connection that is down. Their rings stay and can resume over another
    /// connection.
    pub(super) fn suspend_ins(&mut self) {
        let mut ins: Vec<_> = self.link.ins.drain().collect();
        ins.sort_unstable_by_key(|(wire, _)| *wire);
        for (wire, sub) in ins {
            let receiver = self.io.transport.unbind(self.id(), wire);
            // The ring receiver of a closed log was not bound.
            let receiver = receiver.filter(|_| !sub.machine.is_closed());
            if sub.machine.is_leaving() {
                // UNSUBSCRIBED has not arrived, and perhaps the last CREDIT has not either.
                if !lock(&sub.inbound.state).sub.is_unsettled() {
                    continue;
                }
                self.io.keep_receiver(&sub.inbound, receiver);
            } else {
                self.io.slots.remove(sub.inbound.slot);
                let calls = lock(&sub.inbound.state).suspend(receiver);
                self.io.idle.stirred(&sub.inbound, self.io.now);
                calls.run();
            }
            sub.inbound.drop_released_ring();
            self.resume_suspended(sub.inbound);
        }
    }

    /// Resumes a suspended subscription over the connection that the application has chosen meanwhile, or waits for one.
    fn resume_suspended(&mut self, inbound: Arc<SubscriptionShared>) {
        let resumed = lock(&inbound.state).sub.take_resume();
        match resumed {
            Some(next) => self.io.context.send(next, Command::Subscribe { conn: next, inbound }),
            None => self.io.begin_linger(&inbound),
        }
    }
}
