//! What the journal has of a session: its changes, or its will alone.

use super::journal::Notes;
use super::journal::entry::{Change, Entry};

/// What the journal has of a session.
#[derive(Debug, Clone)]
pub(super) enum Kept {
    /// Nothing: it ends with its connection, or there is no journal.
    Nothing,
    /// That it lives, and its will: it ends with its connection, and its client may lose that as the gateway dies.
    Will(Notes),
    /// All changes.
    All(Notes),
}

impl Kept {
    /// Notes a change of the session with this number.
    pub(super) fn note<'a>(&self, serial: u64, change: impl FnOnce(&Notes) -> Option<Change<'a>>) {
        if let Self::All(notes) = self
            && let Some(change) = change(notes)
        {
            notes.put(Entry::Of { serial, change });
        }
    }

    /// Notes a change of its life or its will.
    pub(super) fn note_life(&self, serial: u64, change: Change<'_>) {
        if let Self::Will(notes) | Self::All(notes) = self {
            notes.put(Entry::Of { serial, change });
        }
    }
}
