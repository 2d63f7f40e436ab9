//! What the machine is told when it is made.

use std::time::{Duration, Instant, SystemTime};

/// What happens to a message for a session whose queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// The new message is dropped.
    DropNewest,
    /// A client that is connected is disconnected with 0x97. Without a client, the new message is dropped.
    Disconnect,
}

/// Limits. A client can make the gateway hold no more than they allow.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The largest payload, in bytes. Packets may be larger by 64 KiB of topic and properties.
    pub(crate) max_message_bytes: usize,
    /// Most sessions, with and without a client. Each takes about 500 bytes and what it waits for. For one more, the session ends that is without
    /// a client for the longest time. If all have clients, one that outlives its connection gets 0x97, and others are bounded by connections.
    pub(crate) max_sessions: usize,
    /// Most bytes of all sessions: their filters, wills, and messages that wait or are not acknowledged. A message counts for each session. Beyond,
    /// messages that would have to wait are dropped, the largest session without a client ends, and for a new session the oldest one.
    pub(crate) max_session_bytes: usize,
    /// How long a session lives without a client, at most. Sessions of 3.1.1 without «clean session» live that long.
    pub(crate) max_session_expiry: Duration,
    /// Most subscriptions of a session. One more gets 0x97.
    pub(crate) max_subscriptions: usize,
    /// Most messages that wait for a session, without retained messages for a new subscription.
    pub(crate) max_queued_messages: usize,
    /// Most bytes of these messages. A message that waits for several sessions counts for each, and is in memory once.
    pub(crate) max_queued_bytes: usize,
    /// What happens beyond.
    pub(crate) overflow: Overflow,
    /// Most messages of QoS 1 and 2 that a client has not acknowledged; a smaller Receive Maximum of the client counts instead. Their bytes are
    /// bounded as those that wait are.
    pub(crate) max_inflight: u16,
    /// Most messages of QoS 2 that a client has not released: the Receive Maximum of the gateway.
    pub(crate) receive_maximum: u16,
    /// The highest topic alias of a client. Each costs a pointer and a name.
    pub(crate) topic_alias_maximum: u16,
    /// Most retained messages.
    pub(crate) max_retained: usize,
    /// Most bytes of retained messages.
    pub(crate) max_retained_bytes: usize,
    /// How long a client may take for its CONNECT.
    pub(crate) connect_timeout: Duration,
    /// How often the topics of `$SYS` are published.
    pub(crate) sys_interval: Duration,
    /// The time of the day in ms since 1970, as it is now: people and NTP set the clock of the machine. None: it is not set.
    pub(crate) wall_clock: Option<fn() -> u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_message_bytes: 1 << 20,
            max_sessions: 100_000,
            max_session_bytes: 256 << 20,
            max_session_expiry: Duration::from_secs(24 * 3600),
            max_subscriptions: 1000,
            max_queued_messages: 1000,
            max_queued_bytes: 16 << 20,
            overflow: Overflow::DropNewest,
            max_inflight: 100,
            receive_maximum: 1000,
            topic_alias_maximum: 100,
            max_retained: 100_000,
            max_retained_bytes: 256 << 20,
            connect_timeout: Duration::from_secs(10),
            sys_interval: Duration::from_secs(10),
            wall_clock: None,
        }
    }
}

/// The room that a packet has for its topic and properties, beside the payload.
const PACKET_ROOM: usize = 64 << 10;
/// The largest payload, whatever the settings say: a packet has 256 MiB at most, with all its properties.
pub(super) const MAX_MESSAGE: usize = 128 << 20;
/// The largest packet before CONNECT: a stranger makes the gateway hold no more.
pub(super) const MAX_FIRST_PACKET: usize = 64 << 10;
/// A connection that has so many bytes queued gets nothing more of QoS 1 and 2, which wait in the session.
pub(super) const MAX_UNSENT: u64 = 256 << 10;
/// Payloads from this size are framed once for all connections whose heads differ. Smaller ones are copied with their heads.
pub(super) const SHARED_PAYLOAD: usize = 512;
/// The time between two searches for the largest session.
pub(super) const RELIEF_EVERY: Duration = Duration::from_secs(1);
/// A SUBSCRIBE is executed in pieces: the search for its retained messages looks at about so many entries in each.
pub(super) const MAX_WALK: usize = 10_000;
/// Most levels of a filter with wildcards: each is a path that every message may follow.
pub(super) const MAX_WILD_LEVELS: usize = 32;
/// Most members of a group that shares subscriptions: for a message, all of them may be looked at.
pub(super) const MAX_MEMBERS: usize = 1000;
/// The longest client id.
pub(super) const MAX_CLIENT_ID: usize = 1024;
/// How often the clock of the machine is looked at, and the ms by which it has to differ.
pub(super) const CLOCK_EVERY: Duration = Duration::from_secs(10);
pub(super) const CLOCK_STEP_MS: u64 = 2000;
/// The longest time between two looks at what waits.
pub(super) const LOOK: Duration = Duration::from_secs(1);

impl Settings {
    /// The largest packet of a client that is connected.
    pub(super) fn max_packet(&self) -> usize {
        self.max_message_bytes + PACKET_ROOM
    }
}

/// The time of the day in ms since 1970, as the machine has it.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

/// The present time of the day, from a time that does not jump.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// A moment.
    pub(crate) at: Instant,
    /// The same moment, in ms since 1970.
    pub(crate) unix_ms: u64,
}

impl Clock {
    /// The clock of this system.
    pub(crate) fn now() -> Self {
        Self { at: Instant::now(), unix_ms: unix_ms() }
    }

    pub(super) fn unix_ms(&self, now: Instant) -> u64 {
        let later = now.saturating_duration_since(self.at).as_millis();
        self.unix_ms.saturating_add(later.try_into().unwrap_or(u64::MAX))
    }
}
