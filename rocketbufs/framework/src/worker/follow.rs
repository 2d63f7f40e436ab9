//! Readers that follow rings which they map, and which the rings' writers wake.
//!
//! ```text
//!   publisher            broker                     subscriber
//!   ring ◀──────────────────────────── follows ───── its own ring over the same memory
//!    │ doorbells ◀── watch ── watch of a reader ◀─ watch ─┘
//!    └──────── rings, past the broker ─────────────▶ awake
//! ```
//!
//! A relay passes a reader's doorbell on to the ring's writer, as it passes the ring on to the reader. The
//! relay's own report to the reader comes late then and holds no news. The reader's credit may speak of data
//! that the relay has not seen yet.

use rocketnet::Transport;

use super::in_effects::IncomingSubscription;
use crate::ground::lock::lock;
use crate::ground::types::Policy;

impl<T: Transport> IncomingSubscription<'_, T> {
    /// Follows the sender's ring if it is mapped, and has readers downstream woken by the ring's writer too.
    pub(super) fn follow(&mut self) {
        let subscription = &self.sub.shared;
        if let Some(ring) = lock(&subscription.state).ring() {
            ring.resume_following();
        }
        // A sender that drops takes published data back.
        if subscription.options.policy == Policy::Block {
            lock(&subscription.watchers).lazily = false;
            let follows = self.io.transport.follow(self.line.id, self.wire, false);
            let busy_polls = self.io.inner.config.shm.busy_poll_us > 0;
            let looks = || subscription.rin.upgrade().is_some_and(|rin| rin.looks_in_calls());
            let looked_at = follows && (busy_polls || looks());
            lock(&subscription.state).sub.let_look(looked_at);
            self.pass_watchers();
        }
    }

    /// Lets application threads poll a followed ring, if they may. The application has received the event
    /// that it is subscribed.
    pub(super) fn let_look(&self) {
        let subscription = &self.sub.shared;
        let looked_at = lock(&subscription.state).sub.is_looked_at();
        if let Some(rin) = subscription.rin.upgrade().filter(|_| looked_at) {
            rin.poll_ring(subscription, self.io.shared.index);
        }
    }

    /// Reports upstream which readers to wake, and which no longer.
    pub(super) fn pass_watchers(&mut self) {
        let (subscription, conn, number) = (&self.sub.shared, self.line.id, self.line.shared.id);
        // While the writer wakes all subscribers directly, it need not wake this end for each delivery.
        let subscribers = subscription.spliced_to().map_or(0, |buffer| buffer.sub_count());
        let mut watchers = lock(&subscription.watchers);
        // Before the look: a later change asks again.
        watchers.answer();
        for gone in watchers.take_gone(number) {
            self.io.transport.drop_watcher(conn, self.wire, gone);
        }
        for (doorbell, passed) in watchers.not_passed(number) {
            let known = self.io.transport.pass_watcher(conn, self.wire, doorbell);
            *passed = known.map(|watcher| (number, watcher));
        }
        let lazily = subscribers > 0 && subscribers == watchers.passed();
        if lazily != std::mem::replace(&mut watchers.lazily, lazily) {
            self.io.transport.follow(conn, self.wire, lazily);
        }
        drop(watchers);
        self.io.mark_dirty(self.line);
    }
}
