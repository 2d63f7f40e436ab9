//! Subscriptions that share a budget: their rings come and go with the data.

use std::sync::{Arc, Weak};

use rocketnet::Transport;
use rocketring::{PoolError, Ring, RingConfig};

use super::in_effects::{IncomingSubscription, Received};
use crate::ground::lock::lock;
use crate::ground::types::Position;
use crate::proto::{AllocationStep, CreditAllocation, Ending, Message, ReceiveLog, Share, Subscribed};
use crate::state::error::RefusedError;
use crate::state::{ContextInner, Member, Membership, SubscriptionShared, page_bytes};

/// Returns the credit allocation of an accepted subscription that has a budget, and its membership. `None`
/// without a budget, or without flow control, where nothing is granted.
pub(super) fn allocation(
    subscription: &Arc<SubscriptionShared>,
    subscribed: &Subscribed,
) -> Result<Option<(CreditAllocation, Membership)>, RefusedError> {
    let Some(budget) = subscription.options.budget.as_ref().filter(|_| subscribed.flow_control) else {
        return Ok(None);
    };
    let (bytes, max_delivery) = (budget.bytes(), subscribed.max_delivery);
    let twice = max_delivery.saturating_mul(2).max(page_bytes());
    let least = twice.checked_next_power_of_two().unwrap_or(u64::MAX);
    // Such a subscription has a ring of its own, if it may.
    if least > bytes && subscription.options.max_size_bytes.is_some_and(|most| least <= most) {
        return Ok(None);
    }
    if least > bytes {
        return Err(RefusedError::Budget { budget: bytes, max_delivery, least });
    }
    // The largest ring for which the budget has room.
    let most = 1 << bytes.ilog2();
    let full = subscription.options.capacity_bytes().next_power_of_two().clamp(least, most);
    let member = budget.join(Arc::downgrade(subscription) as Weak<dyn Member>);
    Ok(Some((CreditAllocation::new(subscribed.start, least, full), member)))
}

impl<T: Transport> IncomingSubscription<'_, T> {
    /// Updates a subscription of a budget: takes, frees or recalls its ring.
    pub(super) fn lend(&mut self) {
        if self.sub.shared.options.budget.is_none() {
            return;
        }
        // A freed ring may be followed by another one.
        for _ in 0..2 {
            if !self.sub.machine.is_live() || self.sub.machine.is_closed() {
                return;
            }
            let mut state = lock(&self.sub.shared.state);
            if state.sub.wire().is_none() {
                return;
            }
            let (step, calls) = state.allocation_step();
            drop(state);
            calls.run();
            if !self.take_allocation_step(step) {
                return;
            }
        }
    }

    /// Executes one step. Returns whether there may be another.
    fn take_allocation_step(&mut self, step: AllocationStep) -> bool {
        match step {
            AllocationStep::Nothing => {}
            AllocationStep::Recall => {
                let mut state = lock(&self.sub.shared.state);
                if let Some(allocation) = state.sub.log_mut().and_then(ReceiveLog::allocation_mut) {
                    allocation.recall();
                }
                drop(state);
                self.io.send(self.line, &Message::Recall(self.wire));
            }
            AllocationStep::Release => {
                self.swap_ring(None);
                return true;
            }
            AllocationStep::Take(need) => {
                let (share, calls) = lock(&self.sub.shared.state).take_share(need);
                calls.run();
                if let Some(share) = share {
                    self.swap_ring(Some(share));
                    // The ring comes to rest even if nothing arrives.
                    self.io.idle.mark_busy(&self.sub.shared, self.io.now);
                }
            }
        }
        false
    }

    /// Returns an unneeded ring to the budget when nothing arrived for a while.
    pub(super) fn rest_allocation(&mut self) {
        if !self.sub.machine.is_closed() {
            let step = lock(&self.sub.shared.state).allocation_at_rest();
            self.take_allocation_step(step);
        }
    }

    pub(super) fn on_recalled(&mut self, at: Position) -> Received {
        if self.sub.machine.is_leaving() {
            return Ok(());
        }
        let mut state = lock(&self.sub.shared.state);
        if self.sub.shared.options.budget.is_some()
            && let Some(log) = state.sub.log_mut().filter(|log| log.allocation().is_none())
        {
            // It has left the budget meanwhile, and grants the rest again.
            log.take_back(at);
            drop(state);
            self.send_credit();
            return Ok(());
        }
        state.sub.on_recalled(at)?;
        let step = state.allocation_at_rest();
        drop(state);
        if step == AllocationStep::Release {
            self.swap_ring(None);
        }
        self.give_credit();
        Ok(())
    }

    /// Replaces the subscription's ring, by one of its share or by one without memory.
    fn swap_ring(&mut self, share: Option<Share>) {
        let mut state = lock(&self.sub.shared.state);
        let Some(head) = state.ring().map(Ring::head) else { return };
        let ring = match share {
            None => Ok(Ring::unbacked(head)),
            Some(share) => {
                ring_of(&self.io.inner, share, state.sub.log().and_then(ReceiveLog::allocation), head)
            }
        };
        let ring = match ring {
            Ok(ring) => ring,
            Err(error) => {
                drop(state);
                return self.end_and_leave(Ending::Refused(error.into()));
            }
        };
        if self.sub.shared.options.own_memory {
            ring.ensure_plain();
        }
        let (receiver, calls) = state.swap_ring(ring, share);
        if let Some(receiver) = receiver {
            self.io.transport.bind(self.line.id, self.wire, receiver);
        }
        drop(state);
        calls.run();
    }
}

fn ring_of(
    inner: &ContextInner,
    share: Share,
    allocation: Option<&CreditAllocation>,
    start: Position,
) -> Result<Ring, PoolError> {
    let max_delivery = allocation.map_or(share.bytes, CreditAllocation::max_delivery).min(share.bytes / 2);
    inner.pool.ring(RingConfig {
        capacity_bytes: share.bytes,
        retain_bytes: Some(0),
        max_delivery_bytes: Some(max_delivery),
        flow_control: true,
        start,
    })
}
