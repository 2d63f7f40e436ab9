//! Questions of this process about the broker's tables: those of observers, and who its clients are.
//!
//! ```text
//!   HTTP endpoint ── Ask, with a place for the answer ──▶ inbox ──▶ broker's thread ── a page ──▶ HTTP endpoint
//! ```
//!
//! As for an observer, an answer is a bounded part of the tables, and has the position of the next one. Other events are handled in between.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use rbmq_wire::Observe;
use serde::Serialize;

use super::session_key::SessionKey;

/// The most clients of a page.
pub(crate) const MAX_CLIENTS: usize = 512;

/// A question, and who is told the answer. Whoever has given up is not told.
pub(crate) enum Ask {
    /// As an observer asks.
    Observe { message: Observe, reply: SyncSender<Answered<Observe>> },
    /// The clients behind this one.
    Clients { after: Option<ClientKey>, reply: SyncSender<Answered<ClientsPage>> },
    /// Disconnect a client.
    Disconnect(Box<Disconnect>),
}

/// Writes the line of the audit log about a client that is going to be disconnected. False: the log has no room.
pub(crate) type Record = Box<dyn FnOnce(&ClientRow) -> bool + Send>;

/// The disconnection of a client, for which an administrator has asked.
pub(crate) struct Disconnect {
    /// The number of its connection.
    pub(crate) conn: u64,
    /// The reason that the client is told.
    pub(crate) why: &'static str,
    /// Called before the client is disconnected. False: the client stays.
    pub(crate) record: Record,
    /// Set by the first of two: the broker's thread, which then disconnects the client, or the asker that has given up; the client stays then.
    pub(crate) is_settled: Arc<AtomicBool>,
    pub(crate) reply: SyncSender<Disconnected>,
}

/// The outcome of the wish to disconnect a client.
#[derive(Debug)]
pub(crate) enum Disconnected {
    /// The client is disconnected.
    Done(ClientRow),
    /// No client has this connection, or it is down.
    NoClient,
    /// The client is a gateway of this process.
    Gateway,
    /// The audit log has no room for the line, and nothing is done.
    NoLine,
}

/// An answer, and how long the broker's thread worked on it.
#[derive(Debug)]
pub(crate) struct Answered<T> {
    pub(crate) answer: T,
    pub(crate) work: Duration,
}

/// Where a client is in the broker's tables. Pages are in this order, so that each costs what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientKey {
    Session(SessionKey),
    Subscriber(u64),
    Observer(u64),
}

/// Some of the clients.
#[derive(Debug, Default)]
pub(crate) struct ClientsPage {
    pub(crate) rows: Vec<ClientRow>,
    /// The last client of the page. None: this is the last page.
    pub(crate) next: Option<ClientKey>,
}

/// The part of a client in the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClientRole {
    Publisher,
    Subscriber,
    Observer,
    /// Another broker, at either end.
    Broker,
    /// A gateway of this process, for clients of other systems.
    Gateway,
}

/// A client.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ClientRow {
    /// The number of its connection.
    pub(crate) conn: u64,
    pub(crate) role: ClientRole,
    /// The name that it gives itself; may be empty.
    pub(crate) name: String,
    pub(crate) address: String,
    /// Empty on a broker without users.
    pub(crate) user: String,
    /// How the user was shown.
    pub(crate) method: &'static str,
    /// False: a publisher that may come back.
    pub(crate) connected: bool,
    /// The buffers that it publishes.
    pub(crate) buffers: u64,
}
