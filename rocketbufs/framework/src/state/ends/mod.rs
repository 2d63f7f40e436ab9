//! The ends of connections with their callbacks and queues, and the commands of the application's handles to the
//! workers.

mod command;
mod conn;
mod context;
mod listener;
mod polled_rings;
mod rin;
mod rout;

pub(crate) use command::{Command, Role, Worker};
pub(crate) use conn::{ConnShared, ConnState, Phase};
pub(crate) use context::ContextShared;
pub(crate) use listener::ListenerShared;
pub use listener::{ForeignConnection, ForeignReason};
pub(crate) use polled_rings::{Looks, MOST_RINGS, PolledRings};
pub(crate) use rin::{Queue, RInShared};
pub(crate) use rout::ROutShared;
