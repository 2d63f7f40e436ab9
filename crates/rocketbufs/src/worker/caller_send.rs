//! Sending from the application's own thread. A worker's core can be borrowed while the worker sleeps, which
//! also serves a thread that does all of the worker's work (`caller_runs`).
//!
//! ```text
//!   worker        look at everything (locked) ── sleep on the transport's descriptor (not locked) ── …
//!   application              deliver: mark ── core not in use? ── send (locked) ──▶ else wake the worker
//! ```
//!
//! A lone delivery leaves without waking a thread, which on an idle machine takes longer than sending. A
//! stream must not cost a system call for each delivery. A thread therefore sends only if nothing is queued,
//! and either there were pauses of `tcp.inline_idle_us` between the connection's last sends and little is
//! pending, or enough is pending to be worth a system call. Otherwise the worker sends, and further
//! deliveries join its next batch. If the worker finds that deliveries come one by one, each about that long
//! after the last, shorter pauses suffice ([`Pauses`]). Sending does nothing that could run a callback, so no
//! callback runs inside a delivering call.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketnet::{ConnId, Pollable, Transport};

use super::caller_runs::LOOK_PERIOD;
use super::io::LinkPhase;
use super::reactor::Reactor;
use crate::lock::lock;
use crate::state::{Inline, Sent, Worker, after};
use crate::types::{Nanos, WireId};

/// More than this is a batch. A thread that writes so much soon writes more, and the worker sends meanwhile.
const SMALL_PAYLOAD_BYTES: u64 = 16 << 10;
/// From this size on a system call is cheap compared to moving the bytes. The calling thread moves them out
/// of its own cache, from which another core would have to fetch them.
const BATCH_BYTES: u64 = 48 << 10;

/// Polls of followed rings between two turns that also ask the kernel.
const LOOKS_PER_TURN: u32 = 64;

impl<T: Transport + Send> Inline for Reactor<T> {
    fn send_now(&mut self, slot: u32, clock: &dyn Fn() -> Nanos) -> Sent {
        let now = clock();
        if let Some(wakes) = self.leave_untold(slot, now) {
            return if wakes { Sent::Not } else { Sent::All };
        }
        let Some((conn, wire)) = self.slots.only_out(slot) else { return Sent::Not };
        match self.may_send_now(conn, wire, now) {
            May::Not => return Sent::Not,
            May::Later => {
                self.io.shared.pending.clear(slot);
                return Sent::All;
            }
            May::Now => {}
        }
        // The clock was read before the lock was taken. The worker's time never goes back.
        self.io.now = self.io.now.max(now);
        // A later delivery marks the buffer again. An earlier one is seen when the head is loaded.
        self.io.shared.pending.clear(slot);
        if let Some(turn) = self.out(conn, wire) {
            turn.out.machine.queue();
            turn.line.ready.push_back(wire);
        }
        self.write_some(conn);
        let left = self.io.transport.flush(conn);
        let idle = self.inline_idle();
        let Some(link) = self.links.get_mut(&conn) else { return Sent::Not };
        // The end of the send counts: a thread that delivers again at once writes a stream, however long the
        // system call took.
        link.line.pauses.end((now, clock()), idle);
        if !left || !link.line.ready.is_empty() {
            // The transport reports what the kernel did not take. The rest belongs to the worker's next turn.
            // The mark makes it visible to checks for work.
            self.make_dirty(conn);
            self.io.shared.pending.mark(slot);
            return Sent::Not;
        }
        if std::mem::take(&mut link.line.dirty) {
            self.io.dirty.retain(|dirty| *dirty != conn);
        }
        Sent::All
    }

    fn turn_now(&mut self, now: Nanos) -> bool {
        let now = self.io.now.max(now);
        self.turn(now);
        !self.stopped
    }

    fn hears_all_asleep(&self) -> bool {
        self.io.transport.has_new_data().is_none()
    }

    fn busy_polls(&self, now: Nanos) -> bool {
        if !self.is_busy(now) {
            return false;
        }
        for _ in 0..LOOKS_PER_TURN {
            match self.io.transport.has_new_data() {
                None => return false,
                Some(false) if !self.io.shared.has_work() => std::hint::spin_loop(),
                Some(_) => break,
            }
        }
        true
    }

    fn may_wait(&self, now: Nanos, sleeps: bool) -> Duration {
        if !self.io.dirty.is_empty() {
            return Duration::ZERO;
        }
        let until_tick = Duration::from_nanos(self.next_tick().saturating_sub(now));
        self.io.transport.poll_within(sleeps).map_or(until_tick, |within| within.min(until_tick))
    }
}

impl<T: Transport> Reactor<T> {
    /// Returns whether other threads may poll until the next turn. Without followed rings only a turn finds
    /// what arrived.
    pub(super) fn has_something_to_look_at(&self, now: Nanos) -> bool {
        self.is_busy(now) && self.io.transport.has_new_data().is_some()
    }

    /// Returns whether anything arrived less than `shm.busy_poll_us` ago.
    fn is_busy(&self, now: Nanos) -> bool {
        let budget = Nanos::from(self.io.inner.config.shm.busy_poll_us) * 1_000;
        now.saturating_sub(self.io.busy_at) < budget
    }

    pub(super) fn inline_idle(&self) -> Nanos {
        Nanos::from(self.io.inner.config.tcp.inline_idle_us) * 1_000
    }

    fn may_send_now(&self, conn: ConnId, wire: WireId, now: Nanos) -> May {
        let Some(link) = self.links.get(&conn) else { return May::Not };
        let Some(out) = link.outs.get(&wire) else { return May::Not };
        let Some(log) = out.buffer.log() else { return May::Not };
        let quiet = link.line.phase == LinkPhase::Up
            && !link.line.dirty
            && link.line.ready.is_empty()
            && link.line.app.is_empty();
        let lone = link.line.pauses.pay(now, self.inline_idle());
        let promises = self.io.transport.promises_to(conn);
        // The whole queue is free, so nothing is queued.
        let empty = promises.ordered && self.io.transport.room(conn) == promises.max_write_bytes;
        let plain = !out.machine.is_queued() && out.machine.lag_action(&log.ring).is_none();
        if !(quiet && empty && plain && !out.buffer.ended()) {
            return May::Not;
        }
        // The delivering thread also does the worker's work now and then, and so receives credit.
        let hears = self.io.shared.token.is_parked();
        match out.machine.cursor().pending_in_order(&log.ring) {
            Some((0, true)) if hears => May::Later,
            // Data within the grant is sent however little it is, since a receiver with a small ring
            // gives no credit for less.
            Some((_, true)) if hears => May::Now,
            Some((_, true)) => May::Not,
            Some((BATCH_BYTES.., _)) => May::Now,
            Some((1..=SMALL_PAYLOAD_BYTES, _)) if lone => May::Now,
            _ => May::Not,
        }
    }
}

/// Whether a thread that has delivered sends.
enum May {
    Now,
    /// Nothing may leave before there is credit. The rest leaves with it.
    Later,
    /// The worker sends.
    Not,
}

/// Runs a worker whose core can be borrowed. Like [`Reactor::run_once`], but the worker does not hold the
/// core while it sleeps. Returns false once the worker is done.
pub(crate) fn run_shared<T: Transport + Send>(
    core: &Mutex<Reactor<T>>,
    shared: &Worker,
    sleeps_on: &dyn Pollable,
    clock: &dyn Fn() -> Nanos,
) -> bool {
    let mut core_now = lock(core);
    let now = clock();
    let wait = if core_now.busy_polls(now) { Duration::ZERO } else { core_now.may_wait(now, true) };
    if !wait.is_zero() {
        // A thread that does the worker's work wakes the worker if there is an earlier deadline.
        shared.asleep_until.store(after(now, wait), Ordering::Relaxed);
        shared.token.sleep(core_now, || shared.has_work(), || sleeps_on.wait(wait));
        shared.asleep_until.store(0, Ordering::Relaxed);
        if !shared.token.woken() {
            shared.token.park(LOOK_PERIOD);
        }
        core_now = lock(core);
    }
    let goes_on = core_now.turn_now(clock());
    drop(core_now);
    if goes_on && shared.waiters.want() {
        shared.token.release(|| shared.has_work());
        shared.waiters.tell();
        shared.token.park(LOOK_PERIOD);
    }
    goes_on
}
