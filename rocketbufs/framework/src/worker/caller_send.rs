//! Sending from the application's own thread. A worker's reactor can be borrowed while the worker sleeps, which
//! also serves a thread that does all of the worker's work (`caller_runs`).
//!
//! ```text
//!   worker        look at everything (locked) ── sleep on the transport's descriptor (not locked) ── …
//!   application              deliver: mark ── reactor not in use? ── send (locked) ──▶ else wake the worker
//! ```
//!
//! A lone delivery leaves without waking a thread, which on an idle machine takes longer than sending. A
//! stream must not cost a system call for each delivery. A thread therefore sends only if nothing is queued,
//! and either there were pauses of `tcp.inline_idle_us` between the connection's last sends and little is
//! pending, or enough is pending to be worth a system call. Otherwise the worker sends, and further
//! deliveries join its next batch. If the worker finds that deliveries come one by one, each about that long
//! after the last, shorter pauses suffice ([`Pauses`](crate::proto::Pauses)). Sending does nothing that could run a callback, so no
//! callback runs inside a delivering call.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketnet::{Pollable, Transport};

use super::caller_runs::LOOK_PERIOD;
use super::connection::Connection;
use super::out_effects::OutgoingSubscription;
use super::reactor::Reactor;
use super::reactor_action::ReactorAction;
use super::worker_context::{LinkPhase, SubscriptionKey};
use crate::ground::lock::lock;
use crate::ground::types::{Nanos, WireId};
use crate::proto::CallerSend;
use crate::state::{BorrowedReactor, Sent, Worker, after};

/// Polls of followed rings between two turns that also ask the kernel.
const LOOKS_PER_TURN: u32 = 64;

impl<T: Transport + Send> BorrowedReactor for Reactor<T> {
    fn send_now(&mut self, slot: u32, clock: &dyn Fn() -> Nanos) -> Sent {
        let Some(SubscriptionKey { conn, wire }) = self.io.slots.only_out(slot) else { return Sent::Not };
        let Some(mut connection) = Connection::find(&mut self.io, &mut self.links, conn) else {
            return Sent::Not;
        };
        match connection.send_now(slot, wire, clock) {
            Ok(CallerSent::All) => Sent::All,
            Ok(CallerSent::Rest) => Sent::Not,
            Ok(CallerSent::Deferred) => {
                self.suppress_notify(slot);
                let asleep_until = self.io.shared.asleep_until.load(Ordering::Relaxed);
                // The worker is woken if it sleeps past the report's deadline.
                if self.io.deferred.due < asleep_until { Sent::Not } else { Sent::All }
            }
            Err(action) => {
                self.execute(conn, action);
                Sent::Not
            }
        }
    }

    fn turn_now(&mut self, now: Nanos) -> bool {
        let now = self.io.now.max(now);
        self.turn(now);
        !self.stopped
    }

    fn arrivals_wake_worker(&self) -> bool {
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

    fn attend(&mut self, rings: usize) -> bool {
        self.io.transport.attend(rings)
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
    pub(super) fn is_worth_polling(&self, now: Nanos) -> bool {
        self.is_busy(now) && self.io.transport.has_new_data().is_some()
    }

    /// Returns whether anything arrived less than `shm.busy_poll_us` ago.
    fn is_busy(&self, now: Nanos) -> bool {
        let budget = Nanos::from(self.io.inner.config.shm.busy_poll_us) * 1_000;
        now.saturating_sub(self.io.busy_at) < budget
    }
}

/// The outcome of a delivering thread's own send.
enum CallerSent {
    /// Everything is sent, or needs no sending before there is credit.
    All,
    /// The worker sends, or sends the rest.
    Rest,
    /// The receiver sees the data by itself: its report is deferred.
    Deferred,
}

impl<T: Transport> Connection<'_, T> {
    /// Sends the pending bytes of a buffer's only subscription, if one system call can do it.
    fn send_now(
        &mut self,
        slot: u32,
        wire: WireId,
        clock: &dyn Fn() -> Nanos,
    ) -> Result<CallerSent, ReactorAction> {
        let now = clock();
        let Some(mut outgoing) = self.out(wire) else { return Ok(CallerSent::Rest) };
        let follows = outgoing.line.phase == LinkPhase::Up && outgoing.out.can_wait();
        let decision = if follows { CallerSend::Later } else { outgoing.caller_send(now) };
        if decision == CallerSend::Not {
            return Ok(CallerSent::Rest);
        }
        // A later delivery marks the buffer again. An earlier one is seen when the head is loaded.
        outgoing.io.shared.pending.clear(slot);
        if follows {
            outgoing.io.now = outgoing.io.now.max(now);
            outgoing.report_later();
            return Ok(CallerSent::Deferred);
        }
        if decision == CallerSend::Later {
            return Ok(CallerSent::All);
        }
        // The clock was read before the lock was taken. The worker's time never goes back.
        outgoing.io.now = outgoing.io.now.max(now);
        outgoing.out.machine.queue();
        outgoing.line.ready.push_back(wire);
        self.write_some()?;
        let (left, idle) = (self.io.transport.flush(self.id()), self.io.inline_idle());
        let line = &mut self.link.line;
        // The end of the send counts: a thread that delivers again at once writes a stream, however long the
        // system call took.
        line.pauses.end(now..clock(), idle);
        if !left || !line.ready.is_empty() {
            // The transport reports the bytes that the kernel did not take. The rest belongs to the worker's next turn.
            // The mark makes it visible to checks for work.
            self.io.mark_dirty(line);
            self.io.shared.pending.mark(slot);
            return Ok(CallerSent::Rest);
        }
        if std::mem::take(&mut line.dirty) {
            self.io.dirty.retain(|dirty| *dirty != line.id);
        }
        Ok(CallerSent::All)
    }
}

impl<T: Transport> OutgoingSubscription<'_, T> {
    /// Returns whether the delivering thread sends.
    fn caller_send(&self, now: Nanos) -> CallerSend {
        let (line, out) = (&*self.line, &*self.out);
        let Some(log) = out.buffer.log() else { return CallerSend::Not };
        let nothing_waits = line.phase == LinkPhase::Up
            && !line.dirty
            && line.ready.is_empty()
            && line.app.is_empty()
            && !out.buffer.ended();
        let promises = self.io.transport.promises_to(line.id);
        // The whole queue is free, so nothing is queued.
        let empty = promises.ordered && self.io.transport.room(line.id) == promises.max_write_bytes;
        if !(nothing_waits && empty) {
            return CallerSend::Not;
        }
        let paused = line.pauses.pay(now, self.io.inline_idle());
        // The delivering thread also does the worker's work now and then, and so receives credit.
        out.machine.caller_send(&log.ring, paused, self.io.shared.token.is_parked())
    }
}

/// Runs a worker whose reactor can be borrowed. Like [`Reactor::run_once`], but the worker does not hold the
/// reactor while it sleeps. Returns false once the worker is done.
pub(crate) fn run_shared<T: Transport + Send>(
    reactor: &Mutex<Reactor<T>>,
    shared: &Worker,
    sleeps_on: &dyn Pollable,
    clock: &dyn Fn() -> Nanos,
) -> bool {
    let mut reactor_now = lock(reactor);
    let now = clock();
    let wait = if reactor_now.busy_polls(now) { Duration::ZERO } else { reactor_now.may_wait(now, true) };
    if !wait.is_zero() {
        // A thread that does the worker's work wakes the worker if there is an earlier deadline.
        shared.asleep_until.store(after(now, wait), Ordering::Relaxed);
        shared.token.sleep(reactor_now, || shared.has_work(), || sleeps_on.wait(wait));
        shared.asleep_until.store(0, Ordering::Relaxed);
        if !shared.token.woken() {
            shared.token.park(LOOK_PERIOD);
        }
        reactor_now = lock(reactor);
    }
    let goes_on = reactor_now.turn_now(clock());
    drop(reactor_now);
    if goes_on && shared.waiters.want() {
        shared.token.release(|| shared.has_work());
        shared.waiters.call();
        shared.token.park(LOOK_PERIOD);
    }
    goes_on
}
