//! Merged topics (`ingest = "merge"`): many publishers share the one ring of a topic.
//!
//! ```text
//!  publisher A ─▶ small ring ┐  complete deliveries,    ┌──────────────────────┐
//!  publisher B ─▶ small ring ┼─ copied once, as runs ─▶ │ the topic's one ring │ ──▶ subscribers: one ring each
//!  publisher C ─▶ small ring ┘  of "number, bytes"      └──────────────────────┘
//! ```
//!
//! A topic with 1,000 spliced publishers needs 1,000 rings at each subscriber; a merged topic needs one. The price is a copy at
//! the broker, and a merged log with positions and an epoch of the broker.
//!
//! * `publishers`: the part of the broker: the states of the publishers;
//! * `opening`: how topics are opened, and publishers accepted;
//! * `moving`: topics that go to another member of a cluster; `leaving`: their publishers, without I/O;
//! * `sharing`: topics whose log goes on in the archive at their next member; `shared`: what is known of them;
//! * `members`: the table of the merged topics and their publishers, without I/O;
//! * `topic`: a merged topic as the threads share it: the work of its owner, the wake-ups;
//! * `mailbox`: the events that threads leave for the owner, and who that is;
//! * `local`: publishers of the broker's own process;
//! * `log`: the rings of publishers and the log, as the framework and the disk have them;
//! * `index`: the ways of the workers to the topics;
//! * `merger`: the order of the copies, and confirmations, without I/O;
//! * `disk`: the questions of publishers of a kept topic about the disk, without I/O;
//! * `table`: the origin of the bytes of the merged log, for confirmations.

mod disk;
mod index;
mod leaving;
mod local;
mod log;
mod mailbox;
mod members;
mod merger;
mod moving;
mod opening;
mod publishers;
mod shared;
mod sharing;
mod table;
#[cfg(test)]
mod tests;
mod topic;

pub(crate) use index::MergeIndex;
pub(super) use index::MergedIn;
pub(crate) use local::LocalAsk;
pub use local::{LocalPublisher, NotTaken};
pub(super) use opening::check_form;
pub(super) use publishers::MergedTopics;
pub(crate) use table::TableLoad;
