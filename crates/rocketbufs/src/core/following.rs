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

use super::{Core, LinkPhase, OutSub};
use crate::lock::lock;
use crate::proto::Credit;
use crate::state::{Buffer, Command, InboundShared};
use crate::types::{Nanos, Policy, Position, WireId};

/// So late is told, at the latest, who follows.
const UNTOLD: Nanos = 10_000_000;
/// The number of the peer's own doorbell; others are those of readers behind it.
const ITS_OWN: u32 = 0;

/// What is known of a peer that follows the ring of its subscription.
#[derive(Default)]
pub(super) struct Follows {
    /// Readers that are woken when there is news, by their numbers on this connection.
    pub(super) watchers: Vec<u32>,
    /// What it told of what was not seen here yet.
    early: Option<Credit>,
    /// There may be news that it was not told.
    untold: bool,
}

impl<T: Transport> Core<T> {
    /// Follows the sender's ring where that is mapped, and asks for readers behind this end to be woken there too.
    pub(super) fn follow(&mut self, conn: ConnId, wire: WireId, inbound: &Arc<InboundShared>) {
        if let Some(in_log) = &lock(&inbound.state).log {
            in_log.ring().resume_following();
        }
        // A sender that drops takes back what it has published.
        if inbound.options.policy == Policy::Block {
            lock(&inbound.watchers).lazily = false;
            let follows = self.transport.follow(conn, wire, false);
            lock(&inbound.state).looked_at = follows && self.inner.config.shm.busy_poll_us > 0;
            self.pass_watchers(inbound);
        }
    }

    /// From here on the application's threads look at a ring that is followed, if they may; it has heard that it is
    /// subscribed.
    pub(super) fn let_look(&self, inbound: &Arc<InboundShared>) {
        let looked_at = lock(&inbound.state).looked_at;
        if let Some(rin) = inbound.rin.upgrade().filter(|_| looked_at) {
            rin.look_at(inbound, self.shared.index);
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
        let Some(link) = self.links.get_mut(&conn) else { return };
        let (key, Some(out)) = ((link.shared.id, wire, number), link.outs.get_mut(&wire)) else { return };
        let config = out.outbound.config();
        if config.maps.is_none() || config.policy != Policy::Block {
            return;
        }
        match doorbell {
            Some(doorbell) => {
                if !out.buffer.watch(key, doorbell) {
                    return;
                }
            }
            None => out.buffer.unwatch(key),
        }
        // Not when a delivery looks: it may take some milliseconds.
        rocketring::barrier::prepare();
        if !out.follows.watchers.contains(&number) {
            out.follows.watchers.push(number);
        }
    }

    pub(super) fn on_unwatched(&mut self, conn: ConnId, wire: WireId, number: u32) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let (key, Some(out)) = ((link.shared.id, wire, number), link.outs.get_mut(&wire)) else { return };
        if let Some(at) = out.follows.watchers.iter().position(|known| *known == number) {
            out.follows.watchers.swap_remove(at);
            out.buffer.unwatch(key);
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
            self.transport.drop_watcher(conn, wire, number);
        }
        for (doorbell, passed) in watchers.not_passed(conn_number) {
            *passed = self.transport.pass_watcher(conn, wire, doorbell).map(|number| (conn_number, number));
        }
        let lazily = subscribers > 0 && subscribers == watchers.passed();
        if lazily != std::mem::replace(&mut watchers.lazily, lazily) {
            self.transport.follow(conn, wire, lazily);
        }
        drop(watchers);
        self.make_dirty(conn);
    }

    /// It is told of this after a while: it sees by itself what there is, and whatever became of its doorbell is never later
    /// than that.
    pub(super) fn tell_later(&mut self, conn: ConnId, wire: WireId) {
        let Some(out) = self.links.get_mut(&conn).and_then(|link| link.outs.get_mut(&wire)) else { return };
        if !std::mem::replace(&mut out.follows.untold, true) {
            self.untold.push((conn, wire));
            self.tell_at = self.tell_at.min(self.now.saturating_add(UNTOLD));
        }
    }

    /// Those who follow are told now.
    pub(super) fn tell_all(&mut self) {
        self.tell_at = Nanos::MAX;
        for (conn, wire) in std::mem::take(&mut self.untold) {
            self.tell_now(conn, wire);
        }
    }

    fn tell_now(&mut self, conn: ConnId, wire: WireId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let Some(out) = link.outs.get_mut(&wire) else { return };
        out.follows.untold = false;
        // From here on a delivery marks the buffer again, or is seen by the look at its head.
        out.buffer.resume_notify();
        let head = out.buffer.log().map_or(0, |log| log.ring.head());
        if head > out.outbound.sent() && !std::mem::replace(&mut out.queued, true) {
            link.ready.push_back(wire);
            self.make_dirty(conn);
        }
    }

    /// A buffer whose subscribers all follow has nothing to do here until they are told: deliveries need not say that there
    /// is news.
    pub(super) fn suppress_notify(&mut self, slot: u32) {
        let Some(used) = self.slots.get(&slot) else { return };
        let untold = |(conn, wire): &(ConnId, WireId)| {
            let out = self.links.get(conn).and_then(|link| link.outs.get(wire));
            out.filter(|out| out.follows.untold)
        };
        let Some(buffer) = used.outs.first().and_then(untold).map(|out| &out.buffer) else { return };
        let steps = used.outs.iter().map(|out| untold(out).and_then(OutSub::follows_to));
        let Some(least) = steps.min().flatten() else { return };
        buffer.suppress_notify(least, used.outs.len());
    }

    /// The one subscription of a buffer follows, and need not be told now of what the calling thread delivered. None if it
    /// is not so; true if the worker must be woken, which sleeps longer than it may be left untold.
    pub(super) fn leave_untold(&mut self, slot: u32, now: Nanos) -> Option<bool> {
        let (conn, wire) = self.only_out(slot)?;
        let link = self.links.get(&conn).filter(|link| link.phase == LinkPhase::Up)?;
        link.outs.get(&wire).filter(|out| out.can_wait())?;
        self.now = self.now.max(now);
        self.shared.pending.clear(slot);
        self.tell_later(conn, wire);
        self.suppress_notify(slot);
        let asleep_until = self.shared.asleep_until.load(Ordering::Relaxed);
        Some(self.tell_at < asleep_until)
    }

    /// CREDIT of a peer that follows can speak of what it was not sent, and of what this end has not seen yet: as much of it
    /// as is known to be true. The rest waits until that has come. Nothing known waits with it: this end gives back by it,
    /// and is perhaps not sent what the rest waits for before it does.
    pub(super) fn seen_of(&mut self, conn: ConnId, wire: WireId, credit: &Credit) -> Credit {
        let Some(out) = self.links.get_mut(&conn).and_then(|link| link.outs.get_mut(&wire)) else {
            return *credit;
        };
        out.follows.early = None;
        if credit.landed <= out.outbound.sent() || !out.follows.watchers.contains(&ITS_OWN) {
            return *credit;
        }
        let Some(log) = out.buffer.log() else { return *credit };
        if credit.landed <= log.ring.head() {
            out.outbound.followed_to(credit.landed, credit.landed);
            return *credit;
        }
        if out.buffer.source.is_none() {
            return *credit;
        }
        out.follows.early = Some(*credit);
        // In this order: a delivery that ends here meanwhile is told once more.
        let boundary = log.ring.boundary();
        out.outbound.followed_to(log.ring.head(), boundary);
        credit.up_to(out.outbound.sent())
    }

    /// The buffer has news: perhaps what a peer's credit waited for.
    pub(super) fn look_at_early(&mut self, conn: ConnId, wire: WireId) {
        let out = self.links.get_mut(&conn).and_then(|link| link.outs.get_mut(&wire));
        if let Some(credit) = out.and_then(|out| out.follows.early.take()) {
            self.on_credit(conn, wire, &credit);
        }
    }
}

impl OutSub {
    /// How far it sees by itself what there is: not beyond its grant, and no more at a time than one that hands on what it
    /// has may take without being told where deliveries end ([`Ring::set_relayed`](rocketring::Ring::set_relayed)).
    fn follows_to(&self) -> Option<Position> {
        let ring = &self.buffer.log()?.ring;
        let step = self.outbound.sent().saturating_add(ring.max_delivery());
        self.follows.watchers.contains(&ITS_OWN).then(|| step.min(self.outbound.grant()))
    }

    /// Whether it sees by itself what there is, and nobody waits for it to say how far it is.
    pub(super) fn can_wait(&self) -> bool {
        let sees =
            |to| self.buffer.log().is_some_and(|log| log.ring.head() <= to && !log.ring.writer_waits());
        self.follows_to().is_some_and(sees) && !self.buffer.ended() && !self.buffer.is_waited_for()
    }
}

impl Buffer {
    /// Has a reader woken by whoever writes the memory of this buffer's log. False if there are too many.
    pub(crate) fn watch(&self, key: rocketring::WatchKey, doorbell: Arc<PeerDoorbell>) -> bool {
        let Some(log) = self.log() else { return false };
        if !log.ring.is_peer_written() {
            return log.ring.watch(key, doorbell);
        }
        let Some(inbound) = self.upstream().filter(|inbound| lock(&inbound.watchers).add(key, doorbell))
        else {
            return false;
        };
        tell_worker(&inbound);
        true
    }

    /// It is woken no more.
    pub(crate) fn unwatch(&self, key: rocketring::WatchKey) {
        let Some(log) = self.log() else { return };
        if !log.ring.is_peer_written() {
            return log.ring.unwatch(key);
        }
        if let Some(inbound) = self.upstream() {
            lock(&inbound.watchers).remove(key);
            tell_worker(&inbound);
        }
    }

    /// The subscribers are others than before: perhaps the writer wakes this end again, or no longer.
    pub(crate) fn tell_who_follows(&self) {
        if let Some(inbound) =
            self.upstream().filter(|_| self.log().is_some_and(|log| log.ring.is_peer_written()))
        {
            tell_worker(&inbound);
        }
    }
}

/// Has the worker of a subscription's connection pass on who watches.
fn tell_worker(inbound: &Arc<InboundShared>) {
    let wire = lock(&inbound.state).wire;
    // Without a connection: when it goes on over another.
    if let Some((conn, _)) = wire
        && lock(&inbound.watchers).ask()
    {
        inbound.inner.workers[inbound.inner.worker_of(conn)].send(Command::PassWatchers(inbound.clone()));
    }
}
