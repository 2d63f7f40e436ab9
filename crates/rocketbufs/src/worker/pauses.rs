//! When a thread that delivers may send by itself: after a pause, and not for each delivery of a stream.

use crate::types::Nanos;

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
    pub(super) fn pay(&self, now: Nanos, idle: Nanos) -> bool {
        self.until(now, idle) >= self.price(idle)
    }

    /// So much was given to the transport.
    pub(super) fn wrote(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// A send by a thread that delivered is over.
    pub(super) fn end(&mut self, (began, ended): (Nanos, Nanos), idle: Nanos) {
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
