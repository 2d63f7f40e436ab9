//! The session of one connection: versions, and whether the peer is alive.

use super::message::{Hello, MIN_VERSION, VERSION};
use crate::types::Nanos;

/// Returns the version that both ends speak, if there is one.
///
/// ```
/// use rocketbufs::proto::choose_version;
/// assert_eq!(choose_version((1, 3), (2, 5)), Some(3));
/// assert_eq!(choose_version((1, 1), (2, 5)), None);
/// ```
pub fn choose_version(ours: (u16, u16), theirs: (u16, u16)) -> Option<u16> {
    let (low, high) = (ours.0.max(theirs.0), ours.1.min(theirs.1));
    (low <= high && theirs.0 <= theirs.1).then_some(high)
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

/// What to do at a tick.
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
        let version = choose_version((MIN_VERSION, VERSION), (hello.min_version, hello.max_version))?;
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
