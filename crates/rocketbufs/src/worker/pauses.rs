//! When a delivering thread may send by itself: after a pause, and not for each delivery of a stream.

use crate::types::Nanos;

/// The most sends in a row that earlier pauses pay for: a thread that is late makes some sends at once.
const INLINE_IN_A_ROW: u64 = 4;
/// The same limit while small deliveries come one by one, and the part of a pause that each of their sends
/// costs. Sending takes longer than the time between such deliveries, so the sending thread is late and
/// pauses little.
const EVEN_IN_A_ROW: u64 = 32;
const EVEN_SHARE: u64 = 8;
/// Small deliveries come one by one if at least so many of at most so many bytes arrived over so many pauses,
/// at up to so many times the rate of one for each pause. A shorter observation would also match a stream
/// that has just waited for its receiver.
const EVEN_DELIVERIES: u64 = 8;
const EVEN_PAUSES: u64 = 1_000;
const EVEN_BYTES: u64 = 512;
const EVEN_FASTER: u64 = 2;

/// The pauses between sends on a connection that no send has used up. Each send uses one of
/// [`inline_idle_us`](crate::config::Tcp), or a part of it while small deliveries come one by one.
///
/// Only the worker's sends tell whether they do, since a thread that sends by itself is as slow as its sends.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    left: Nanos,
    /// When the last send ended.
    ended: Nanos,
    /// Whether small deliveries come one by one.
    even: bool,
    /// Bytes written since the last send.
    written: u64,
    /// Bytes of the last send by a delivering thread: about one delivery.
    lone: u64,
    /// The bytes that the worker sent, and the time over which they arrived.
    seen: (u64, Nanos),
}

impl Pauses {
    fn price(&self, idle: Nanos) -> Nanos {
        if self.even { idle / EVEN_SHARE } else { idle }
    }

    /// Returns the pause that a send at `now` may use.
    fn until(&self, now: Nanos, idle: Nanos) -> Nanos {
        let in_a_row = if self.even { EVEN_IN_A_ROW } else { INLINE_IN_A_ROW };
        let all = self.left.saturating_add(now.saturating_sub(self.ended));
        all.min(self.price(idle) * in_a_row)
    }

    /// Returns whether there was enough pause for a send at `now`.
    pub(super) fn pay(&self, now: Nanos, idle: Nanos) -> bool {
        self.until(now, idle) >= self.price(idle)
    }

    /// Records bytes that were given to the transport.
    pub(super) fn wrote(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// Ends a send by a delivering thread.
    pub(super) fn end(&mut self, (began, ended): (Nanos, Nanos), idle: Nanos) {
        self.left = self.until(began, idle).saturating_sub(self.price(idle));
        self.ended = ended;
        self.lone = std::mem::take(&mut self.written);
        self.even &= self.lone <= EVEN_BYTES;
    }

    /// Ends a send by the worker, in a turn that began at `now`.
    pub(super) fn end_of_worker(&mut self, now: Nanos, idle: Nanos) {
        self.left = self.until(now, idle).saturating_sub(self.price(idle));
        let since = now.saturating_sub(std::mem::replace(&mut self.ended, now));
        let written = std::mem::take(&mut self.written);
        if written == 0 || !(1..=EVEN_BYTES).contains(&self.lone) {
            return;
        }
        // One pause before a burst does not make deliveries come one by one.
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

    /// A delivering thread, and a worker that sends the rest some time after its first byte.
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

        /// Delivers so many times, each so long after the previous call returned.
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

        /// Delivers so many times at a rate. The time of sending delays the next delivery.
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
        // 50 us of pauses, however long the sends between them take.
        let most = INLINE_IN_A_ROW + 1_000 * 50 / IDLE;
        assert!(Both::rested().deliver(1_000, 50) <= most);
    }

    #[test]
    fn sends_after_a_pause_leave_at_once() {
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
