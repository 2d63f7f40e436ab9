//! Sending from the application's own thread, and what that needs: a core that can be borrowed while its worker sleeps,
//! which also serves a thread that does all of the worker's work (`crate::drive`).
//!
//! ```text
//!   worker        look at everything (locked) ── sleep on the transport's descriptor (not locked) ── …
//!   application              deliver: mark ── nobody in there? ── send (locked) ──▶ else wake the worker
//! ```
//!
//! A lone delivery leaves without waking a thread, which on an idle machine takes longer than sending it. A stream must
//! not become a system call for each delivery: a thread sends itself only if nothing is queued, and either there were
//! pauses of `tcp.inline_idle_us` between the connection's last sends and little is pending, or so much is pending that it
//! is worth a system call; otherwise the worker does, and what is delivered meanwhile is its next batch. Where the worker
//! finds that deliveries come one by one, each about that long after the last, shorter pauses will do ([`Pauses`]). Sending
//! does nothing that could end in a callback: none runs inside a call that delivers.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketnet::{ConnId, Pollable, Transport};

use super::{Core, LinkPhase};
use crate::drive::LOOK_PERIOD;
use crate::lock::lock;
use crate::state::{Inline, Sent, WorkerShared, after};
use crate::types::{Nanos, WireId};

/// More than this is a batch: a thread that has so much to say says more soon, and the worker sends it meanwhile.
const SMALL_PAYLOAD_BYTES: u64 = 16 << 10;
/// From here on a system call costs little beside what it moves, and it moves it out of the cache of the thread that
/// wrote it: another core would have to fetch it.
const BATCH_BYTES: u64 = 48 << 10;

/// Sends in a row that pauses before them may pay for: who is late sends some at once.
const INLINE_IN_A_ROW: u64 = 4;
/// The same where small deliveries come one by one, and what part of a pause each of their sends costs: sending takes longer
/// than they are apart, so that who sends them is late and pauses little.
const EVEN_IN_A_ROW: u64 = 32;
const EVEN_SHARE: u64 = 8;
/// They do if so many of at most so many bytes, over so many pauses, were that many times as fast as one for each pause, or
/// slower. Less would be what a stream looks like that has just waited for its receiver.
const EVEN_DELIVERIES: u64 = 8;
const EVEN_PAUSES: u64 = 1_000;
const EVEN_BYTES: u64 = 512;
const EVEN_FASTER: u64 = 2;

/// Looks at followed rings between two turns that ask the kernel too.
const LOOKS_PER_TURN: u32 = 64;

impl<T: Transport + Send> Inline for Core<T> {
    fn send_now(&mut self, slot: u32, clock: &dyn Fn() -> Nanos) -> Sent {
        let now = clock();
        if let Some(wakes) = self.leave_untold(slot, now) {
            return if wakes { Sent::Not } else { Sent::All };
        }
        let Some((conn, wire)) = self.only_out(slot) else { return Sent::Not };
        match self.may_send_now(conn, wire, now) {
            May::Not => return Sent::Not,
            May::Later => {
                self.shared.pending.clear(slot);
                return Sent::All;
            }
            May::Now => {}
        }
        // The clock was read before the lock was had; it never goes back.
        self.now = self.now.max(now);
        // From here on a delivery marks the buffer again, and what was marked before is seen by the look at its head.
        self.shared.pending.clear(slot);
        if let Some(link) = self.links.get_mut(&conn)
            && let Some(out) = link.outs.get_mut(&wire)
        {
            out.queued = true;
            link.ready.push_back(wire);
        }
        self.write_some(conn);
        let left = self.transport.flush(conn);
        let idle = self.inline_idle();
        let Some(link) = self.links.get_mut(&conn) else { return Sent::Not };
        // Its end: who delivers the next at once makes a stream, however long a system call takes here.
        link.pauses.end((now, clock()), idle);
        if !left || !link.ready.is_empty() {
            // What the kernel did not take it tells the worker; the rest is the worker's next turn. Marked again, so that
            // whoever looks whether there is work sees it.
            self.make_dirty(conn);
            self.shared.pending.mark(slot);
            return Sent::Not;
        }
        if std::mem::take(&mut link.dirty) {
            self.dirty.retain(|dirty| *dirty != conn);
        }
        Sent::All
    }

    fn turn_now(&mut self, now: Nanos) -> bool {
        let now = self.now.max(now);
        self.turn(now);
        !self.stopped
    }

    fn hears_all_asleep(&self) -> bool {
        self.transport.has_new_data().is_none()
    }

    fn busy_polls(&self, now: Nanos) -> bool {
        if !self.is_busy(now) {
            return false;
        }
        for _ in 0..LOOKS_PER_TURN {
            match self.transport.has_new_data() {
                None => return false,
                Some(false) if !self.shared.has_work() => std::hint::spin_loop(),
                Some(_) => break,
            }
        }
        true
    }

    fn may_wait(&self, now: Nanos, sleeps: bool) -> Duration {
        if !self.dirty.is_empty() {
            return Duration::ZERO;
        }
        let until_tick = Duration::from_nanos(self.next_tick().saturating_sub(now));
        self.transport.poll_within(sleeps).map_or(until_tick, |within| within.min(until_tick))
    }
}

impl<T: Transport> Core<T> {
    /// Whether others may look until the next turn. Where nothing is followed only a turn hears of what comes.
    pub(super) fn has_something_to_look_at(&self, now: Nanos) -> bool {
        self.is_busy(now) && self.transport.has_new_data().is_some()
    }

    /// Whether something came less than `shm.busy_poll_us` ago.
    fn is_busy(&self, now: Nanos) -> bool {
        let budget = Nanos::from(self.inner.config.shm.busy_poll_us) * 1_000;
        now.saturating_sub(self.busy_at) < budget
    }

    /// The one subscription of a buffer, where it has no other news.
    pub(super) fn only_out(&self, slot: u32) -> Option<(ConnId, WireId)> {
        let used = self.slots.get(&slot)?;
        match &used.outs[..] {
            [only] if used.inbound.is_none() => Some(*only),
            _ => None,
        }
    }

    pub(super) fn inline_idle(&self) -> Nanos {
        Nanos::from(self.inner.config.tcp.inline_idle_us) * 1_000
    }

    fn may_send_now(&self, conn: ConnId, wire: WireId, now: Nanos) -> May {
        let Some(link) = self.links.get(&conn) else { return May::Not };
        let Some(out) = link.outs.get(&wire) else { return May::Not };
        let Some(log) = out.buffer.log() else { return May::Not };
        let quiet =
            link.phase == LinkPhase::Up && !link.dirty && link.ready.is_empty() && link.app.is_empty();
        let lone = link.pauses.pay(now, self.inline_idle());
        let promises = self.transport.promises_to(conn);
        // The whole queue is free: nothing waits in it.
        let empty = promises.ordered && self.transport.room(conn) == promises.max_write_bytes;
        if !(quiet && empty && !out.queued && !out.buffer.ended() && !out.outbound.too_far_behind(&log.ring))
        {
            return May::Not;
        }
        // Whoever delivers does all of the worker's work now and then, and hears of credit.
        let hears = self.shared.token.is_parked();
        match out.outbound.pending_in_order(&log.ring) {
            Some((0, true)) if hears => May::Later,
            // What else may go goes, as little as that is: a receiver with a small ring gives no credit for less.
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
    /// Nothing may go before there is credit, with which the rest goes.
    Later,
    /// It is the worker's.
    Not,
}

/// Pauses between sends on a connection, as far as no send has used them up: each takes one of
/// [`inline_idle_us`](crate::config::Tcp), or a part of it while small deliveries come one by one.
///
/// Whether they do is seen while the worker sends: a thread that sends itself is as slow as its sends.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    left: Nanos,
    /// When the last send ended.
    ended: Nanos,
    /// Deliveries come one by one.
    even: bool,
    /// Bytes that were written since the last send.
    written: u64,
    /// Bytes of the last send from a thread that delivered: about one delivery.
    lone: u64,
    /// How much the worker sent, and how long it came for.
    seen: (u64, Nanos),
}

impl Pauses {
    fn price(&self, idle: Nanos) -> Nanos {
        if self.even { idle / EVEN_SHARE } else { idle }
    }

    /// What a send may use that begins now.
    fn until(&self, now: Nanos, idle: Nanos) -> Nanos {
        let in_a_row = if self.even { EVEN_IN_A_ROW } else { INLINE_IN_A_ROW };
        let all = self.left.saturating_add(now.saturating_sub(self.ended));
        all.min(self.price(idle) * in_a_row)
    }

    /// Whether there was pause enough for a send that begins now.
    fn pay(&self, now: Nanos, idle: Nanos) -> bool {
        self.until(now, idle) >= self.price(idle)
    }

    /// So much was given to the transport.
    pub(super) fn wrote(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// A send by a thread that delivered is over.
    fn end(&mut self, (began, ended): (Nanos, Nanos), idle: Nanos) {
        self.left = self.until(began, idle).saturating_sub(self.price(idle));
        self.ended = ended;
        self.lone = std::mem::take(&mut self.written);
        self.even &= self.lone <= EVEN_BYTES;
    }

    /// A send by the worker is over, in a turn that began then.
    pub(super) fn end_of_worker(&mut self, now: Nanos, idle: Nanos) {
        self.left = self.until(now, idle).saturating_sub(self.price(idle));
        let since = now.saturating_sub(std::mem::replace(&mut self.ended, now));
        let written = std::mem::take(&mut self.written);
        if written == 0 || !(1..=EVEN_BYTES).contains(&self.lone) {
            return;
        }
        // A pause before a burst does not make it one by one.
        let (bytes, time) = (self.seen.0 + written, self.seen.1 + since.min(idle * EVEN_DELIVERIES));
        self.seen = (bytes, time);
        if bytes >= EVEN_DELIVERIES * self.lone && time >= EVEN_PAUSES * idle {
            self.even = u128::from(bytes) * u128::from(idle)
                <= u128::from(EVEN_FASTER) * u128::from(time) * u128::from(self.lone);
            self.left = if self.even { self.price(idle) * EVEN_IN_A_ROW } else { 0 };
            self.seen = (0, 0);
        }
    }
}

/// A worker's life where its core can be borrowed: as [`Core::run_once`], but asleep it does not hold the core.
/// False once it is over.
pub(crate) fn run_shared<T: Transport + Send>(
    core: &Mutex<Core<T>>,
    shared: &WorkerShared,
    sleeps_on: &dyn Pollable,
    clock: &dyn Fn() -> Nanos,
) -> bool {
    let mut core_now = lock(core);
    let now = clock();
    let wait = if core_now.busy_polls(now) { Duration::ZERO } else { core_now.may_wait(now, true) };
    if !wait.is_zero() {
        // Who does its work meanwhile calls it if something is to be done before.
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

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Nanos = 5_000;
    const SEND: Nanos = 6_000;
    const BYTES: u64 = 38;

    /// A thread that delivers, and a worker that sends what it does not so long after the first of it.
    struct Both {
        pauses: Pauses,
        now: Nanos,
        pending: u64,
        due: Nanos,
        sent: u64,
    }

    impl Both {
        fn rested() -> Self {
            Self { pauses: Pauses::default(), now: 1_000_000, pending: 0, due: 0, sent: 0 }
        }

        /// So many deliveries, each so long after the call before returned.
        fn deliver(&mut self, deliveries: u64, after: Nanos) -> u64 {
            const WAKE_UP: Nanos = 15_000;
            let before = self.sent;
            for _ in 0..deliveries {
                self.now += after;
                if self.pending > 0 && self.due <= self.now {
                    self.pauses.wrote(std::mem::take(&mut self.pending));
                    self.pauses.end_of_worker(self.now, IDLE);
                }
                if self.pending == 0 && self.pauses.pay(self.now, IDLE) {
                    self.pauses.wrote(BYTES);
                    self.pauses.end((self.now, self.now + SEND), IDLE);
                    (self.now, self.sent) = (self.now + SEND, self.sent + 1);
                } else {
                    self.due = if self.pending == 0 { self.now + WAKE_UP } else { self.due };
                    self.pending += BYTES;
                }
            }
            self.sent - before
        }

        /// So many deliveries at a rate; who delivers is late by what sending took.
        fn at_rate(&mut self, deliveries: u64, period: Nanos) -> u64 {
            let (began, before) = (self.now, self.sent);
            for n in 0..deliveries {
                let pause = (began + n * period).saturating_sub(self.now);
                self.deliver(1, pause.max(100));
            }
            self.sent - before
        }
    }

    #[test]
    fn a_stream_is_not_a_system_call_for_each_delivery() {
        // 50 us of pauses, however long the sends between take.
        let most = INLINE_IN_A_ROW + 1_000 * 50 / IDLE;
        assert!(Both::rested().deliver(1_000, 50) <= most);
    }

    #[test]
    fn those_with_a_pause_before_them_are_sent_at_once() {
        assert_eq!(Both::rested().deliver(1_000, IDLE), 1_000);
    }

    #[test]
    fn some_in_a_row_are_paid_for_by_the_pause_before() {
        assert_eq!(Both::rested().deliver(10, 0), INLINE_IN_A_ROW);
    }

    #[test]
    fn deliveries_one_by_one_leave_at_once_although_sending_is_slower() {
        let mut both = Both::rested();
        both.at_rate(100, IDLE);
        let sent = both.at_rate(10_000, IDLE);
        assert!(sent > 6_000, "{sent} of 10000");
    }

    #[test]
    fn bursts_are_for_the_worker_after_the_first() {
        let mut both = Both::rested();
        let sent: u64 = (0..100)
            .map(|_| {
                both.now += 1_000_000;
                both.deliver(100, 50)
            })
            .sum();
        assert!(sent <= 100 * (INLINE_IN_A_ROW + 1), "{sent} of 10000");
    }

    #[test]
    fn a_stream_after_deliveries_one_by_one_is_for_the_worker() {
        let mut both = Both::rested();
        both.at_rate(1_000, IDLE);
        let sent = both.deliver(10_000, 50);
        assert!(sent <= EVEN_IN_A_ROW + 10_000 * 50 / IDLE, "{sent}");
    }
}
