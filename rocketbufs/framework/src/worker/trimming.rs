//! Releases the memory of rings at rest, when [`idle`](super::idle) says so.

use std::sync::Arc;

use rocketnet::Transport;
use rocketring::{Armed, Ring, RingReceiver, Trimmed};

use super::idle::{LOOKS_PER_TURN, Owner, TRIMS_PER_TURN};
use super::reactor::Reactor;
use super::worker_context::WorkerContext;
use crate::ground::lock::lock;
use crate::ground::types::Position;
use crate::state::SubscriptionShared;

/// A last delivery up to this size stays in memory, whatever the budget.
const LAST_DELIVERY_BYTES: u64 = 64 << 10;

impl<T: Transport> Reactor<T> {
    /// Checks the rings that are due. The rest is left for the next turn.
    pub(super) fn sweep(&mut self) {
        let mut trims = 0;
        for _ in 0..LOOKS_PER_TURN {
            if trims >= TRIMS_PER_TURN {
                break;
            }
            let Some(moving) = self.io.idle.take_due(self.io.now) else { break };
            let Some(owner) = moving.owner.upgrade() else { continue };
            let Some(ring) = owner.ring() else {
                self.io.idle.forget(owner.idle_state());
                continue;
            };
            let head = ring.head();
            if self.io.idle.still_moves(moving, head, self.io.now) {
                continue;
            }
            trims += 1;
            self.on_idle(&owner, &ring, head);
        }
        while trims < 2 * TRIMS_PER_TURN
            && let Some((place, owner)) = self.io.idle.next_to_reduce()
        {
            trims += 1;
            match owner.upgrade() {
                None => self.io.idle.gone(place),
                Some(owner) if owner.has_the_only_copy() => {}
                Some(owner) => {
                    let ring = owner.ring();
                    let left = ring.and_then(|ring| self.trim(&owner, &ring, last_delivery(&ring)));
                    self.io.idle.was_reduced(place, left.unwrap_or(0));
                }
            }
        }
    }

    fn on_idle(&mut self, owner: &Owner, ring: &Ring, head: Position) {
        self.io.idle.forget(owner.idle_state());
        // A ring that only the application reads has no history, since no subscriber joins it.
        let has_history = match owner {
            Owner::In(subscription) => {
                self.with(subscription.slot, |incoming| incoming.on_idle());
                subscription.is_spliced()
            }
            Owner::Out(buffer) if !buffer.idle_state.on_idle(ring, head) => {
                return self.io.idle.buffer_stirred(buffer.clone(), self.io.now);
            }
            Owner::Out(_) => true,
        };
        if ring.descriptor().is_some() {
            // Other processes map the memory, which cannot go back in parts.
            return;
        }
        let left = self.trim(owner, ring, if has_history { ring.retain() } else { 0 });
        if let Some(left) = left.filter(|left| *left > 0 && has_history) {
            self.io.idle.rests(owner, left);
        }
    }

    /// Returns how many bytes of memory the ring still has; `None` if this end cannot release them.
    fn trim(&mut self, owner: &Owner, ring: &Ring, keep: u64) -> Option<u64> {
        let Trimmed { left, held, .. } = match owner {
            Owner::In(subscription) => self.trim_receiver(subscription, keep)?,
            Owner::Out(_) => ring.trim(keep)?,
        };
        if held {
            let slowest = ring.slowest_hold();
            // Pairs with a hold that advances: either the advance is seen here, or the advancing thread sees
            // `hold_moved`.
            owner.idle_state().hold_moved.arm();
            if ring.slowest_hold() != slowest && owner.idle_state().hold_moved.disarm() == Armed::Yes {
                self.io.idle.look_soon(owner, self.io.now);
            }
        }
        Some(left)
    }

    fn trim_receiver(&mut self, subscription: &Arc<SubscriptionShared>, keep: u64) -> Option<Trimmed> {
        let mut state = lock(&subscription.state);
        if let Some(receiver) = state.memory.as_mut().and_then(|memory| memory.receiver.as_mut()) {
            return Some(receiver.trim(keep));
        }
        drop(state);
        self.with(subscription.slot, |incoming| incoming.trim(keep))?
    }
}

impl<T: Transport> WorkerContext<T> {
    /// Keeps the ring receiver of an ended log that subscribers downstream still read, so that the ring can
    /// release memory.
    pub(super) fn keep_receiver(
        &mut self,
        subscription: &Arc<SubscriptionShared>,
        receiver: Option<RingReceiver>,
    ) {
        let mut state = lock(&subscription.state);
        if !subscription.is_spliced() || state.sub.is_left() {
            return;
        }
        if let Some(memory) = &mut state.memory {
            memory.receiver = receiver;
            drop(state);
            self.idle.mark_busy(subscription, self.now);
        }
    }
}

/// Returns the bytes from the start of the last complete delivery to the end of the log's last one; 0 if that
/// is too much to keep in every ring.
fn last_delivery(ring: &Ring) -> u64 {
    let bytes = ring.last_delivery().map_or(0, |start| ring.boundary() - start);
    if bytes <= LAST_DELIVERY_BYTES { bytes } else { 0 }
}
