//! A will that is due and not on the bus yet.

use super::journal::entry::{Change, Life};
use super::kept::Kept;
use super::session::Held;
use super::will::OwnedWill;

/// A will that is due. Its session goes on without it, or has ended.
#[derive(Debug)]
pub(super) struct DueWill {
    /// Its number, which no session has.
    pub(super) serial: u64,
    /// The user, as in the keys of sessions: none of these has this one, since their client ids are not empty.
    pub(super) key: Box<str>,
    pub(super) will: OwnedWill,
    pub(super) _held: Held,
    pub(super) kept: Kept,
}

impl DueWill {
    /// Notes it, as a session that has ended.
    pub(super) fn note(&self, unix_ms: u64) {
        let life =
            Life { expiry_ms: Some(0), connected: false, ends_at: Some(unix_ms), will_at: Some(unix_ms) };
        self.kept.note_life(self.serial, Change::Lives { key: &self.key, life, last_id: 0 });
        self.kept.note_life(self.serial, Change::Will(self.will.testament()));
        self.kept.note_life(self.serial, Change::WillAt { at: unix_ms });
    }

    /// It is where it has to be.
    pub(super) fn note_end(&self) {
        self.kept.note_life(self.serial, Change::Ended);
    }
}

/// Whether a key of the journal is that of a will without a session.
pub(super) fn is_without_session(key: &str) -> bool {
    key.ends_with('\0')
}

/// The user in the key of a session.
pub(super) fn user_of(key: &str) -> &str {
    key.split('\0').next().unwrap_or_default()
}
