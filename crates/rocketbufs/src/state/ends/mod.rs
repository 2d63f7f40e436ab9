//! The ends of connections, and the commands of the application's handles.

mod command;
mod conn;
mod listener;
mod polled_rings;
mod rin;
mod rout;

pub(crate) use command::{Command, Parked, Role};
pub(crate) use conn::{ConnShared, ConnState, Phase};
pub(crate) use listener::ListenerShared;
pub use listener::{ForeignConnection, ForeignReason};
pub(crate) use polled_rings::{MOST_RINGS, PolledRings};
pub(crate) use rin::{Queue, RInShared};
pub(crate) use rout::{ROutShared, tell_subscriber_progress};
