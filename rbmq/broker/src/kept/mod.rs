//! Kept topics (`keep = true`): merged topics whose log is on the disk too.
//!
//! ```text
//!   publishers ─▶ merger ─▶ log on disk ─▶ ring of the topic ──────────────▶ subscribers that are there
//!                             │                     ▲ goes on where the replay ends
//!                             │ └─▶ replay: a buffer for one subscriber ─────▶ subscribers that begin earlier, or were away
//!                             ▼     ▲ what the disk has no more
//!                          archive ─┘
//! ```
//!
//! The log has the positions and the name (epoch) of the ring, also after a restart of the broker. A delivery is appended to it
//! before a subscriber can see it.
//!
//! * `places`: how far the publishers were stored, without I/O;
//! * `store`: the log and the journal of a topic; `folder`: their folder, and the name in it;
//! * `scribe`: the thread that writes;
//! * `keeper`: the folder of all topics;
//! * `replay`: one subscriber that reads from the disk;
//! * `replays`: all of them, and their threads;
//! * `news`: what other parts of the process learn of appends;
//! * `clock`: times that do not go back;
//! * `archive`: the store behind the disk, as a contract; `archived`: a topic that has it; `archivist`: the thread that copies;
//!   `copied`: how far it came, in a file;
//! * `older`: the bytes that a replay reads from the archive;
//! * `trail`: how far the publishers are in the archive; `takeover`: how another broker goes on there; `takeovers`: its threads.

mod archive;
mod archived;
mod archivist;
mod clock;
mod copied;
mod error;
mod folder;
mod keeper;
mod news;
mod older;
mod places;
mod replay;
mod replays;
mod scribe;
mod store;
mod takeover;
mod takeovers;
mod trail;

pub use archive::{Archive, ArchiveError, ArchiveLog, ArchiveRead, ArchivedLog};
pub(crate) use archived::{ArchiveLoad, Archived};
pub(crate) use archivist::{ArchiveThread, Archives};
pub(crate) use clock::{Clock, batch_before};
pub use error::KeepError;
pub(crate) use folder::folder;
pub(crate) use keeper::{Keeper, KeptLoad, KeptLogs};
pub(crate) use news::Ear;
#[cfg(test)]
pub(crate) use news::News;
pub use news::Stored;
pub(crate) use places::Place;
pub(crate) use replay::ReplayRequest;
pub(crate) use replays::{ReplayThreads, Replays};
pub(crate) use scribe::{Scribe, Written};
pub(crate) use store::{Recovered, Store, StoreOptions};
pub(crate) use takeover::{Taken, Wanted};
pub(crate) use takeovers::{TakeOverHooks, TakeOverPlace, TakeOvers};
pub(crate) use trail::Trail;
