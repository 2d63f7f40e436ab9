//! The filters that clients' channels and patterns need, and who waits for one of them to be in force.

use std::collections::HashMap;

use rbmq_wire::TopicFilter;

use crate::protocol::{Bus, ConnId};

#[derive(Debug, Default)]
struct Filter {
    /// The number of channels and patterns that need it.
    users: usize,
    is_in_force: bool,
    waiting: Vec<ConnId>,
}

/// See the module. The bus is asked once for each filter, however many clients need it.
#[derive(Debug, Default)]
pub(super) struct Filters(HashMap<TopicFilter, Filter>);

impl Filters {
    /// A channel or pattern needs the filter.
    pub(super) fn hold(&mut self, filter: &TopicFilter, bus: &mut dyn Bus) {
        let held = self.0.entry(filter.clone()).or_default();
        held.users += 1;
        if held.users == 1 {
            held.is_in_force = bus.subscribe(filter);
        }
    }

    /// It does not need it any more.
    pub(super) fn release(&mut self, filter: &TopicFilter, bus: &mut dyn Bus) {
        let Some(held) = self.0.get_mut(filter) else { return };
        held.users -= 1;
        if held.users == 0 {
            self.0.remove(filter);
            bus.unsubscribe(filter);
        }
    }

    /// Whether a client has to wait for the filter. It is then among those that [`Filters::on_subscribed`] returns.
    pub(super) fn wait(&mut self, filter: &TopicFilter, conn: ConnId) -> bool {
        match self.0.get_mut(filter) {
            Some(held) if !held.is_in_force => {
                held.waiting.push(conn);
                true
            }
            _ => false,
        }
    }

    /// The client waits for the filter no more.
    pub(super) fn wait_no_more(&mut self, filter: &TopicFilter, conn: ConnId) {
        if let Some(held) = self.0.get_mut(filter) {
            held.waiting.retain(|waiting| *waiting != conn);
        }
    }

    /// The filter is in force. Returns who has waited, once for each time.
    pub(super) fn on_subscribed(&mut self, filter: &TopicFilter) -> Vec<ConnId> {
        let Some(held) = self.0.get_mut(filter) else { return Vec::new() };
        held.is_in_force = true;
        std::mem::take(&mut held.waiting)
    }
}
