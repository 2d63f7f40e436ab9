//! Rings of subscriptions that grow, because larger deliveries follow than those for which they were made.
//!
//! ```text
//!   writer      its ring grows, and then a larger delivery is in it
//!   sender      GROWN, before the first byte beyond the deliveries that the receiver knows of
//!   receiver    its ring grows: the next CREDIT grants more          or: REFUSED here, with the reason
//!   relay       its ring is the one of its own buffer, whose subscriptions are told in the same way
//! ```

use rocketnet::Transport;
use rocketring::{GrowError, Ring, RingConfig, RingReceiver};

use super::in_effects::{IncomingSubscription, Received};
use super::in_linger::end_subscription;
use crate::ground::lock::lock;
use crate::proto::{Ending, GROWS, Message, ReceiveLog, RefuseCode, RefusedError};
use crate::state::{SubscriptionShared, SubscriptionState};

impl<T: Transport> IncomingSubscription<'_, T> {
    /// Larger deliveries follow.
    pub(super) fn on_grown(&mut self, max_delivery: u64) -> Received {
        if !self.sub.machine.takes_data()? {
            return Ok(());
        }
        let state = lock(&self.sub.shared.state);
        let ring = state.ring().filter(|_| !has_room(&state, max_delivery)).cloned();
        drop(state);
        let Some(ring) = ring else { return Ok(()) };
        match self.grow(&ring, max_delivery) {
            Ok(()) => self.send_credit(),
            Err(error) => self.refuse_growth(error),
        }
        Ok(())
    }

    /// Ends the subscription, which keeps its place: with more memory it goes on there.
    pub(super) fn refuse_growth(&mut self, error: RefusedError) {
        end_subscription(&self.sub.shared, Ending::Refused(error));
        // A peer without GROWN knows one way to leave.
        if self.line.shared.peer_capabilities() & GROWS == 0 {
            return self.leave();
        }
        let wire = self.wire;
        self.leave_by(&Message::Refused { wire, code: RefuseCode::RingTooSmall, a: 0, b: 0 });
    }

    fn grow(&mut self, ring: &Ring, max_delivery: u64) -> Result<(), RefusedError> {
        self.leave_budget_for(max_delivery)?;
        if ring.capacity() > 0 {
            let (conn, wire) = (self.line.id, self.wire);
            return self.with_memory(ring, max_delivery, |this| {
                let grown = this.io.transport.grow(conn, wire, &this.io.inner.pool, max_delivery);
                grown.unwrap_or(Err(GrowError::Fixed))
            });
        }
        let receiver = self.own_ring(ring, max_delivery)?;
        receiver.into_iter().for_each(|receiver| self.io.transport.bind(self.line.id, self.wire, receiver));
        Ok(())
    }

    /// Makes room for deliveries that became larger while there was no connection. Returns the ring receiver to bind.
    pub(super) fn grow_at_resume(
        &mut self,
        mut receiver: RingReceiver,
        max_delivery: u64,
    ) -> Result<Option<RingReceiver>, RefusedError> {
        if has_room(&lock(&self.sub.shared.state), max_delivery) {
            return Ok(Some(receiver));
        }
        self.leave_budget_for(max_delivery)?;
        if receiver.ring().capacity() == 0 {
            return self.own_ring(receiver.ring(), max_delivery);
        }
        let ring = receiver.ring().clone();
        self.with_memory(&ring, max_delivery, |this| receiver.grow(&this.io.inner.pool, max_delivery))?;
        Ok(Some(receiver))
    }

    /// Lets a ring grow if the application lets it have the memory.
    fn with_memory(
        &mut self,
        ring: &Ring,
        max_delivery: u64,
        grow: impl FnOnce(&mut Self) -> Result<(), GrowError>,
    ) -> Result<(), RefusedError> {
        self.check(ring.memory_bytes().saturating_add(ring.bytes_to_grow(max_delivery)))?;
        let grown = grow(self);
        // Its memory is no more than that.
        self.check(ring.memory_bytes())?;
        grown.map_err(refused)
    }

    fn check(&self, bytes: u64) -> Result<(), RefusedError> {
        self.sub.shared.options.growth_check.as_ref().map_or(Ok(()), |check| check.ask(bytes))
    }

    /// Checks whether there may be such a ring. The share of a budget would be too small.
    fn leave_budget_for(&mut self, max_delivery: u64) -> Result<(), RefusedError> {
        may_grow(&self.sub.shared, max_delivery)?;
        let left = lock(&self.sub.shared.state).leave_budget();
        // Without the lock: others may get its share.
        drop(left);
        Ok(())
    }

    /// A ring in the place of one without memory, which took nothing but holes. The application may not know of them yet.
    fn own_ring(&self, place: &Ring, max_delivery: u64) -> Result<Option<RingReceiver>, RefusedError> {
        let head = place.head();
        let start = place.slowest_hold().map_or(head, |held| held.min(head));
        let config = RingConfig {
            capacity_bytes: max_delivery.saturating_mul(2),
            retain_bytes: Some(0),
            max_delivery_bytes: Some(max_delivery),
            flow_control: true,
            start,
        };
        self.check(config.capacity_bytes.checked_next_power_of_two().unwrap_or(u64::MAX))?;
        let ring = self.io.inner.pool.ring_beside_others(config)?;
        if self.sub.shared.options.own_memory {
            ring.ensure_plain();
        }
        let mut receiver = ring.receiver();
        if let Some(memory) = &mut lock(&self.sub.shared.state).memory {
            memory.move_to(ring, start, None);
        }
        receiver.iter_mut().for_each(|receiver| _ = receiver.skip(head));
        Ok(receiver)
    }
}

/// Whether deliveries of this size fit into the ring that a subscription has, or gets from its budget.
fn has_room(state: &SubscriptionState, max_delivery: u64) -> bool {
    match state.sub.log().and_then(ReceiveLog::allocation) {
        Some(allocation) => allocation.max_delivery() >= max_delivery,
        None => state.ring().is_none_or(|ring| ring.max_delivery() >= max_delivery),
    }
}

/// Checks whether the ring of a subscription may grow for deliveries of this size.
fn may_grow(subscription: &SubscriptionShared, max_delivery: u64) -> Result<(), RefusedError> {
    let (most, needed) = (subscription.options.max_capacity_bytes(), max_delivery.saturating_mul(2));
    let needed = needed.checked_next_power_of_two().unwrap_or(u64::MAX);
    if needed > most {
        return Err(RefusedError::Outgrown { most, max_delivery, needed });
    }
    Ok(())
}

fn refused(error: GrowError) -> RefusedError {
    match error {
        GrowError::Pool(error) => error.into(),
        other => RefusedError::Memory(other.to_string()),
    }
}
