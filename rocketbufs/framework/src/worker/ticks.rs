//! The work that is due because time passed. A tick checks everything a few times in each heartbeat, and never while
//! there is nothing to check.

use std::collections::HashMap;
use std::sync::Weak;

use rocketnet::Transport;

use super::reactor::Reactor;
use crate::ground::lock::lock;
use crate::ground::types::Nanos;
use crate::state::BufferOwner;
use crate::state::events::OutEvent;

/// Practically never: the worker sleeps until there is an event.
const IDLE: Nanos = 3_600_000_000_000;

impl<T: Transport> Reactor<T> {
    pub(super) fn tick(&mut self) {
        let mut conns: Vec<_> = self.links.keys().copied().collect();
        conns.sort_unstable();
        let checks = std::mem::take(&mut self.io.fast_ticks);
        let mut hurry = false;
        let mut slowest = HashMap::new();
        for conn in conns {
            self.at(conn, |connection| connection.tick());
            if checks {
                self.at(conn, |connection| {
                    let (holds, stalled) = connection.tick_outs(&mut slowest);
                    hurry |= holds;
                    stalled
                });
            }
        }
        // Without news, only time shows how long a subscription holds others up.
        self.io.fast_ticks |= hurry;
        let mut next = self.io.now + self.interval(hurry);
        if let Some(at) = self.io.lingering.tick(self.io.now) {
            next = next.min(at);
        }
        if self.io.shared.index == 0
            && let Some(at) = self.tick_held()
        {
            next = next.min(at);
        }
        if let Some(at) = self.stop_at {
            self.stopped |= at <= self.io.now;
            next = next.min(at);
        }
        self.io.next_tick = next;
        // Everything that the tick queued leaves now.
        self.take_news();
        self.pump_all();
    }

    /// Returns the time until the next check of the connections.
    fn interval(&self, hurry: bool) -> Nanos {
        if self.links.is_empty() { IDLE } else { self.io.interval(hurry) }
    }

    /// Drops durable cursors that have expired. Returns when the next one expires.
    fn tick_held(&mut self) -> Option<Nanos> {
        let now = self.io.now;
        let mut next: Option<Nanos> = None;
        lock(&self.io.context.routs).retain(|out| out.strong_count() > 0);
        let outs: Vec<_> = lock(&self.io.context.routs).iter().filter_map(Weak::upgrade).collect();
        for out in outs {
            if !out.durable_slots.any_offline() {
                continue;
            }
            for buffer in out.all_buffers() {
                let (gone, at) = buffer.drop_held(|_, held| held.until > now);
                next = [next, at].into_iter().flatten().min();
                if gone > 0 {
                    out.durable_slots.expired(gone);
                    buffer.on_progress();
                    buffer.report_landed_contexts();
                    out.report(OutEvent::DurableExpired { bid: buffer.bid });
                    out.reap(&buffer);
                }
            }
        }
        next
    }
}
