//! What happens because time passed. One look at everything a few times in a heartbeat, and never while there is
//! nothing to look at.

use std::collections::HashMap;
use std::sync::Weak;

use rocketnet::Transport;

use super::Core;
use crate::events::OutEvent;
use crate::lock::lock;
use crate::types::Nanos;

/// How often connections are looked at, unless their heartbeat is shorter than four times this, or the silence that
/// they are allowed than twelve times.
const TICK: Nanos = 250_000_000;
/// As good as never: the worker sleeps until something happens.
const IDLE: Nanos = 3_600_000_000_000;

impl<T: Transport> Core<T> {
    pub(super) fn tick(&mut self) {
        let mut conns: Vec<_> = self.links.keys().copied().collect();
        conns.sort_unstable();
        let looks = std::mem::take(&mut self.stirring);
        let mut hurry = false;
        let mut slowest = HashMap::new();
        for conn in conns {
            self.tick_link(conn);
            hurry |= looks && self.tick_outs(conn, &mut slowest);
        }
        // Where somebody holds others, time passes without news.
        self.stirring |= hurry;
        let mut next = self.now + self.interval(hurry);
        if let Some(at) = self.tick_suspended() {
            next = next.min(at);
        }
        if self.shared.index == 0
            && let Some(at) = self.tick_held()
        {
            next = next.min(at);
        }
        if let Some(at) = self.stop_at {
            self.stopped |= at <= self.now;
            next = next.min(at);
        }
        self.next_tick = next;
        // What the tick queued leaves now.
        self.take_news();
        self.pump_all();
    }

    /// A subscription has news. Only news can make others wait for it: until then none is looked at.
    pub(super) fn stirred(&mut self) {
        if !std::mem::replace(&mut self.stirring, true) {
            self.next_tick = self.next_tick.min(self.now + self.interval(true));
        }
    }

    pub(super) fn interval(&self, hurry: bool) -> Nanos {
        if self.links.is_empty() {
            return IDLE;
        }
        let session = &self.inner.config.session;
        // A peer that says nothing is asked after a third of what it may be silent.
        let looks = [(session.heartbeat_ms, 4), (session.max_silence_ms, 12)];
        let looks = looks.into_iter().filter(|(ms, _)| *ms > 0);
        let calm = looks.map(|(ms, parts)| (Nanos::from(ms) * 1_000_000 / parts).max(1_000_000)).min();
        calm.unwrap_or(4 * TICK).min(if hurry { TICK } else { 4 * TICK })
    }

    /// Places of named subscriptions that nobody came back for. Returns when the next one ends.
    fn tick_held(&mut self) -> Option<Nanos> {
        let now = self.now;
        let mut next: Option<Nanos> = None;
        lock(&self.inner.routs).retain(|out| out.strong_count() > 0);
        let outs: Vec<_> = lock(&self.inner.routs).iter().filter_map(Weak::upgrade).collect();
        for out in outs {
            if !out.kept.any_away() {
                continue;
            }
            for buffer in out.all_buffers() {
                let (gone, at) = buffer.drop_held(|held| held.until > now);
                next = [next, at].into_iter().flatten().min();
                if gone > 0 {
                    out.kept.expired(gone);
                    buffer.on_progress();
                    Self::data_out(&buffer);
                    out.tell(OutEvent::PlaceOver { bid: buffer.bid });
                    out.reap(&buffer);
                }
            }
        }
        next
    }
}
