//! One connection: versions, and whether the peer is alive.

use super::message::{Hello, MIN_VERSION, VERSION};
use crate::types::Nanos;

/// The version that both ends speak, or none.
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

/// What a session must know.
#[derive(Debug, Clone, Copy)]
pub struct SessionConfig {
    /// How often this end says something; 0: only when it has something to say.
    pub heartbeat: Nanos,
    /// How long the other end has for its first message.
    pub handshake_timeout: Nanos,
}

/// What a look at the clock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// Nothing to do.
    Quiet,
    /// Send a PING: nothing was sent for a heartbeat.
    Ping,
    /// The peer did not say its first message in time.
    HandshakeTimeout,
    /// The peer was silent for three of its heartbeats.
    Dead,
}

/// The life of one connection, as seen from one end.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    opened: Nanos,
    heard: Nanos,
    spoke: Nanos,
    greeted: bool,
    peer_heartbeat: Nanos,
}

impl Session {
    /// A connection that came up at `now`.
    pub fn new(config: SessionConfig, now: Nanos) -> Self {
        Self { config, opened: now, heard: now, spoke: now, greeted: false, peer_heartbeat: 0 }
    }

    /// The peer's HELLO or WELCOME arrived. None if it speaks no version that this end speaks.
    pub fn on_hello(&mut self, hello: &Hello, now: Nanos) -> Option<u16> {
        let version = choose_version((MIN_VERSION, VERSION), (hello.min_version, hello.max_version))?;
        self.greeted = true;
        self.heard = now;
        self.peer_heartbeat = Nanos::from(hello.heartbeat_ms) * 1_000_000;
        Some(version)
    }

    /// Anything arrived.
    pub fn heard(&mut self, now: Nanos) {
        self.heard = now;
    }

    /// Anything was sent.
    pub fn spoke(&mut self, now: Nanos) {
        self.spoke = now;
    }

    /// Whether the first message of the peer was seen.
    pub fn greeted(&self) -> bool {
        self.greeted
    }

    /// A look at the clock. A connection that is paused (nobody reads it) is not called dead.
    pub fn tick(&mut self, now: Nanos, paused: bool) -> Tick {
        if !self.greeted {
            let late = now.saturating_sub(self.opened) >= self.config.handshake_timeout;
            return if late { Tick::HandshakeTimeout } else { Tick::Quiet };
        }
        if paused {
            self.heard = now;
        } else if self.peer_heartbeat > 0 && now.saturating_sub(self.heard) >= 3 * self.peer_heartbeat {
            return Tick::Dead;
        }
        if self.config.heartbeat > 0 && now.saturating_sub(self.spoke) >= self.config.heartbeat {
            self.spoke = now;
            return Tick::Ping;
        }
        Tick::Quiet
    }
}
