//! The session of one connection: versions, whether the peer is alive, and when a delivering thread may send by itself: after a
//! pause, and not for each delivery of a stream.

use std::ops::{Range, RangeInclusive};

use super::message::{Hello, MIN_VERSION, VERSION};
use crate::ground::types::Nanos;

/// Returns the version that both ends speak, if there is one.
///
/// ```
/// use rocketbufs::proto::choose_version;
/// assert_eq!(choose_version(&(1..=3), &(2..=5)), Some(3));
/// assert_eq!(choose_version(&(1..=1), &(2..=5)), None);
/// ```
pub fn choose_version(ours: &RangeInclusive<u16>, theirs: &RangeInclusive<u16>) -> Option<u16> {
    let high = *ours.end().min(theirs.end());
    (ours.contains(&high) && theirs.contains(&high)).then_some(high)
}

/// The times of a session.
#[derive(Debug, Clone, Copy)]
pub struct SessionConfig {
    /// The interval at which this end sends something; 0: only when it has something to send.
    pub heartbeat: Nanos,
    /// The time for the peer's first message.
    pub handshake_timeout: Nanos,
    /// The longest silence of the peer, whatever heartbeat it announced. After a third of it this end sends
    /// PING. 0: no limit.
    pub max_silence: Nanos,
}

/// The action that a tick asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// Nothing to do.
    Quiet,
    /// Send a PING: nothing was sent for a heartbeat, or the peer was silent for a third of `max_silence`.
    Ping,
    /// The peer's first message did not arrive in time.
    HandshakeTimeout,
    /// The peer was silent for three of its heartbeats.
    Dead,
    /// The peer was silent for `max_silence`, and did not answer PING.
    Silent,
}

/// The state of one connection, as seen from one end.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    opened: Nanos,
    heard: Nanos,
    spoke: Nanos,
    /// When PING was sent to a silent peer. Void once anything arrives.
    asked: Nanos,
    /// The time of the last tick.
    ticked: Nanos,
    greeted: bool,
    peer_heartbeat: Nanos,
}

impl Session {
    /// Creates the session of a connection that came up at `now`.
    pub fn new(config: SessionConfig, now: Nanos) -> Self {
        Self {
            config,
            opened: now,
            heard: now,
            spoke: now,
            asked: now,
            ticked: now,
            greeted: false,
            peer_heartbeat: 0,
        }
    }

    /// Handles the peer's HELLO or WELCOME. Returns `None` if the ends have no version in common.
    pub fn on_hello(&mut self, hello: &Hello, now: Nanos) -> Option<u16> {
        let version = choose_version(&(MIN_VERSION..=VERSION), &(hello.min_version..=hello.max_version))?;
        self.greeted = true;
        self.heard = now;
        self.peer_heartbeat = Nanos::from(hello.heartbeat_ms) * 1_000_000;
        Some(version)
    }

    /// Records that something arrived.
    pub fn heard(&mut self, now: Nanos) {
        self.heard = now;
    }

    /// Records that something was sent.
    pub fn spoke(&mut self, now: Nanos) {
        self.spoke = now;
    }

    /// Returns whether the peer's first message has arrived.
    pub fn greeted(&self) -> bool {
        self.greeted
    }

    /// Checks the time-outs. A paused connection, which is not read, is never dead.
    pub fn tick(&mut self, now: Nanos, paused: bool) -> Tick {
        let since_tick = now.saturating_sub(std::mem::replace(&mut self.ticked, now));
        if !self.greeted {
            let late = now.saturating_sub(self.opened) >= self.config.handshake_timeout;
            return if late { Tick::HandshakeTimeout } else { Tick::Quiet };
        }
        if paused {
            self.heard = now;
        } else if self.peer_heartbeat > 0 && now.saturating_sub(self.heard) >= 3 * self.peer_heartbeat {
            return Tick::Dead;
        }
        if let Some(tick) = self.silence(now, since_tick) {
            return tick;
        }
        if self.config.heartbeat > 0 && now.saturating_sub(self.spoke) >= self.config.heartbeat {
            self.spoke = now;
            return Tick::Ping;
        }
        Tick::Quiet
    }

    /// Returns PING for a silent peer, or `Silent` when its time is over.
    fn silence(&mut self, now: Nanos, since_tick: Nanos) -> Option<Tick> {
        let patience = self.config.max_silence;
        let third = patience / 3;
        if patience == 0 || now.saturating_sub(self.heard) < third {
            return None;
        }
        // An end that was itself stopped may not have read the answer yet, and asks again.
        let asked = self.asked > self.heard && since_tick < third;
        if !asked {
            (self.asked, self.spoke) = (now, now);
            return Some(Tick::Ping);
        }
        (now.saturating_sub(self.asked) >= patience - third).then_some(Tick::Silent)
    }
}

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
/// `inline_idle_us`, or a part of it while small deliveries come one by one.
///
/// Only the worker's sends tell whether they do, since a thread that sends by itself is as slow as its sends.
#[derive(Debug, Default)]
pub struct Pauses {
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
    pub fn pay(&self, now: Nanos, idle: Nanos) -> bool {
        self.until(now, idle) >= self.price(idle)
    }

    /// Records bytes that were given to the transport.
    pub fn wrote(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// Returns the bytes that were given to the transport since the last send ended.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Ends a send by a delivering thread, which took this time.
    pub fn end(&mut self, send: Range<Nanos>, idle: Nanos) {
        self.left = self.until(send.start, idle).saturating_sub(self.price(idle));
        self.ended = send.end;
        self.lone = std::mem::take(&mut self.written);
        self.even &= self.lone <= EVEN_BYTES;
    }

    /// Ends a send by the worker, in a turn that began at `now`.
    pub fn end_of_worker(&mut self, now: Nanos, idle: Nanos) {
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

    const MS: Nanos = 1_000_000;

    /// A session with a patience of 300 ms whose peer announced this heartbeat at time 0.
    fn session(own_heartbeat_ms: Nanos, peer_heartbeat_ms: u32) -> Session {
        let config = SessionConfig {
            heartbeat: own_heartbeat_ms * MS,
            handshake_timeout: 1_000 * MS,
            max_silence: 300 * MS,
        };
        let mut session = Session::new(config, 0);
        let hello = Hello {
            min_version: VERSION,
            max_version: VERSION,
            capabilities: 0,
            instance: 1,
            heartbeat_ms: peer_heartbeat_ms,
            max_control_bytes: 65_536,
            hello: Vec::new(),
        };
        assert_eq!(session.on_hello(&hello, 0), Some(VERSION));
        session
    }

    /// Returns the ticks every 10 ms from `from` to `to` that are not `Quiet`, with their times.
    fn ticks(session: &mut Session, from: Nanos, to: Nanos, paused: bool) -> Vec<(Nanos, Tick)> {
        let at = (from..=to).step_by(10);
        let ticks = at.map(|ms| (ms, session.tick(ms * MS, paused)));
        ticks.filter(|(_, tick)| *tick != Tick::Quiet).collect()
    }

    #[test]
    fn a_silent_peer_is_asked_and_then_gone_whatever_the_peer_announced() {
        for announced in [0, 3_600_000] {
            let mut session = session(0, announced);
            assert_eq!(ticks(&mut session, 10, 300, false), [(100, Tick::Ping), (300, Tick::Silent)]);
        }
    }

    #[test]
    fn an_answering_peer_is_asked_again_and_stays() {
        let mut session = session(0, 0);
        assert_eq!(ticks(&mut session, 10, 290, false), [(100, Tick::Ping)]);
        session.heard(290 * MS);
        assert_eq!(ticks(&mut session, 300, 580, false), [(390, Tick::Ping)]);
        session.heard(580 * MS);
        assert_eq!(ticks(&mut session, 590, 880, false), [(680, Tick::Ping), (880, Tick::Silent)]);
    }

    #[test]
    fn a_shorter_heartbeat_goes_on_to_apply() {
        let mut session = session(0, 50);
        assert_eq!(ticks(&mut session, 10, 150, false), [(100, Tick::Ping), (150, Tick::Dead)]);
    }

    #[test]
    fn own_messages_are_no_question() {
        let mut session = session(30, 0);
        let said = ticks(&mut session, 10, 300, false);
        assert_eq!(said.last(), Some(&(300, Tick::Silent)));
        assert!(said.contains(&(100, Tick::Ping)), "{said:?}");
    }

    #[test]
    fn an_unread_peer_is_not_blamed() {
        let mut session = session(0, 0);
        assert_eq!(ticks(&mut session, 10, 5_000, true), []);
        assert_eq!(ticks(&mut session, 5_010, 5_290, false), [(5_100, Tick::Ping)]);
        // The same holds when this end stops reading after it asked.
        assert_eq!(ticks(&mut session, 5_290, 9_000, true), []);
        assert_eq!(ticks(&mut session, 9_010, 9_300, false), [(9_100, Tick::Ping), (9_300, Tick::Silent)]);
    }

    #[test]
    fn an_end_that_was_stopped_itself_asks_again() {
        let mut session = session(0, 0);
        assert_eq!(ticks(&mut session, 10, 150, false), [(100, Tick::Ping)]);
        assert_eq!(session.tick(10_000 * MS, false), Tick::Ping);
        assert_eq!(ticks(&mut session, 10_010, 10_200, false), [(10_200, Tick::Silent)]);
    }

    #[test]
    fn without_a_limit_no_peer_is_asked() {
        let mut session = session(0, 0);
        session.config.max_silence = 0;
        assert_eq!(ticks(&mut session, 10, 100_000, false), []);
    }
}

#[cfg(test)]
mod pauses {
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
                    self.pauses.end(self.now..self.now + SEND, IDLE);
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
