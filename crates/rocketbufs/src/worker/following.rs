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

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rocketnet::{ConnId, Transport};
use rocketring::PeerDoorbell;

use super::io::LinkPhase;
use super::peer::OutSub;
use super::reactor::Reactor;
use crate::lock::lock;
use crate::state::InboundShared;
use crate::types::{Nanos, Policy, WireId};

impl<T: Transport> Reactor<T> {
    /// Follows the sender's ring if it is mapped, and has readers downstream woken by the ring's writer too.
    pub(super) fn follow(&mut self, conn: ConnId, wire: WireId, inbound: &Arc<InboundShared>) {
        if let Some(ring) = lock(&inbound.state).ring() {
            ring.resume_following();
        }
        // A sender that drops takes published data back.
        if inbound.options.policy == Policy::Block {
            lock(&inbound.watchers).lazily = false;
            let follows = self.io.transport.follow(conn, wire, false);
            lock(&inbound.state).sub.let_look(follows && self.io.inner.config.shm.busy_poll_us > 0);
            self.pass_watchers(inbound);
        }
    }

    /// Lets application threads poll a followed ring, if they may. The application has received the event
    /// that it is subscribed.
    pub(super) fn let_look(&self, inbound: &Arc<InboundShared>) {
        let looked_at = lock(&inbound.state).sub.is_looked_at();
        if let Some(rin) = inbound.rin.upgrade().filter(|_| looked_at) {
            rin.poll_ring(inbound, self.io.shared.index);
        }
    }

    /// Handles a doorbell of the peer, or of a reader downstream, for the ring of one of the peer's
    /// subscriptions.
    pub(super) fn on_watched(
        &mut self,
        conn: ConnId,
        wire: WireId,
        number: u32,
        doorbell: Option<Arc<PeerDoorbell>>,
    ) {
        if let Some(mut turn) = self.out(conn, wire) {
            turn.watch(number, doorbell);
        }
    }

    pub(super) fn on_unwatched(&mut self, conn: ConnId, wire: WireId, number: u32) {
        if let Some(mut turn) = self.out(conn, wire) {
            turn.unwatch(number);
        }
    }

    /// Reports upstream which readers to wake, and which no longer.
    pub(super) fn pass_watchers(&mut self, inbound: &InboundShared) {
        // Before the look: a later change asks again.
        lock(&inbound.watchers).answer();
        let Some((conn_number, wire)) = lock(&inbound.state).sub.wire() else { return };
        let Some(&conn) = self.by_number.get(&conn_number) else { return };
        // While the writer wakes all subscribers directly, it need not wake this end for each delivery.
        let subscribers = inbound.spliced_to().map_or(0, |buffer| buffer.sub_count());
        let mut watchers = lock(&inbound.watchers);
        for number in watchers.take_gone(conn_number) {
            self.io.transport.drop_watcher(conn, wire, number);
        }
        for (doorbell, passed) in watchers.not_passed(conn_number) {
            *passed =
                self.io.transport.pass_watcher(conn, wire, doorbell).map(|number| (conn_number, number));
        }
        let lazily = subscribers > 0 && subscribers == watchers.passed();
        if lazily != std::mem::replace(&mut watchers.lazily, lazily) {
            self.io.transport.follow(conn, wire, lazily);
        }
        drop(watchers);
        self.make_dirty(conn);
    }

    /// Sends deferred reports to peers that follow.
    pub(super) fn report_all(&mut self) {
        self.io.report_at = Nanos::MAX;
        for (conn, wire) in std::mem::take(&mut self.io.unreported) {
            if let Some(mut turn) = self.out(conn, wire) {
                turn.report();
            }
        }
    }

    /// Suppresses marks for a buffer whose subscribers all follow: no delivery needs this worker until the
    /// next report.
    pub(super) fn suppress_notify(&mut self, slot: u32) {
        let Some(used) = self.slots.get(&slot) else { return };
        let out = |(conn, wire): &(ConnId, WireId)| self.links.get(conn).and_then(|link| link.outs.get(wire));
        let Some(first) = used.outs.first().and_then(out).filter(|out| out.machine.is_unreported()) else {
            return;
        };
        let steps = used.outs.iter().map(|at| out(at).and_then(OutSub::unreported_to));
        let Some(least) = steps.min().flatten() else { return };
        first.buffer.suppress_notify(least, used.outs.len());
    }

    /// Defers the report of the calling thread's delivery if the buffer's only subscription follows. Returns
    /// `None` if it does not; true if the worker must be woken because it sleeps past the report's deadline.
    pub(super) fn leave_untold(&mut self, slot: u32, now: Nanos) -> Option<bool> {
        let (conn, wire) = self.only_out(slot)?;
        let link = self.links.get(&conn).filter(|link| link.line.phase == LinkPhase::Up)?;
        link.outs.get(&wire).filter(|out| out.can_wait())?;
        self.io.now = self.io.now.max(now);
        self.io.shared.pending.clear(slot);
        if let Some(mut turn) = self.out(conn, wire) {
            turn.report_later();
        }
        self.suppress_notify(slot);
        let asleep_until = self.io.shared.asleep_until.load(Ordering::Relaxed);
        Some(self.io.report_at < asleep_until)
    }
}
