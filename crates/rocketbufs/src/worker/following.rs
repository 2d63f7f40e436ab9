//! Readers that follow rings which they map, and are woken by who writes them.
//!
//! ```text
//!   publisher            broker                     subscriber
//!   ring ◀──────────────────────────── follows ───── its own ring over the same memory
//!    │ doorbells ◀── watch ── watch of a reader ◀─ watch ─┘
//!    └──────── rings, past the broker ─────────────▶ awake
//! ```
//!
//! A broker hands a reader's doorbell on to where the ring is written, as it hands the ring on to the reader. What it tells the
//! reader itself is late then, and says nothing new; the reader's credit may speak of what the broker has not seen yet.

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
    /// Follows the sender's ring where that is mapped, and asks for readers behind this end to be woken there too.
    pub(super) fn follow(&mut self, conn: ConnId, wire: WireId, inbound: &Arc<InboundShared>) {
        if let Some(in_log) = &lock(&inbound.state).log {
            in_log.ring().resume_following();
        }
        // A sender that drops takes back what it has published.
        if inbound.options.policy == Policy::Block {
            lock(&inbound.watchers).lazily = false;
            let follows = self.io.transport.follow(conn, wire, false);
            lock(&inbound.state).looked_at = follows && self.io.inner.config.shm.busy_poll_us > 0;
            self.pass_watchers(inbound);
        }
    }

    /// From here on the application's threads look at a ring that is followed, if they may; it has heard that it is
    /// subscribed.
    pub(super) fn let_look(&self, inbound: &Arc<InboundShared>) {
        let looked_at = lock(&inbound.state).looked_at;
        if let Some(rin) = inbound.rin.upgrade().filter(|_| looked_at) {
            rin.look_at(inbound, self.io.shared.index);
        }
    }

    /// The peer, or a reader behind it, follows the ring of one of its subscriptions.
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

    /// Says upstream who is to be woken there, and who no longer is.
    pub(super) fn pass_watchers(&mut self, inbound: &InboundShared) {
        // Before the look: what changes from here on asks anew.
        lock(&inbound.watchers).answer();
        let Some((conn_number, wire)) = lock(&inbound.state).wire else { return };
        let Some(&conn) = self.by_number.get(&conn_number) else { return };
        // While all subscribers are woken past this end, it need not be for each of them.
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

    /// Peers that follow are told now what they were not.
    pub(super) fn report_all(&mut self) {
        self.io.report_at = Nanos::MAX;
        for (conn, wire) in std::mem::take(&mut self.io.unreported) {
            if let Some(mut turn) = self.out(conn, wire) {
                turn.report();
            }
        }
    }

    /// A buffer whose subscribers all follow has nothing to do here until they are told: deliveries need not mark it.
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

    /// The one subscription of a buffer follows, and need not be told now of what the calling thread delivered. None if it
    /// is not so; true if the worker must be woken, which sleeps longer than it may be left untold.
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
