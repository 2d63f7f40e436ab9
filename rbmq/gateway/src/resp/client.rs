//! What is known of a client.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use super::parse::Parser;
use super::routes::Kind;
use super::streams::{Append, Reading};
use crate::protocol::{ConnId, FilterCount};

/// What the next command of a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing.
    No,
    /// Its password is being checked.
    Check,
    /// Its password was checked, and is right or not.
    Checked(bool),
    /// So many filters are not in force yet.
    Filters(usize),
    /// One of them is refused, with this error.
    NotSubscribed(&'static str),
    /// A stream has not grown, which it reads.
    News,
    /// A part of a stream is read from the disk.
    Disk,
}

/// Which replies the client wants (`CLIENT REPLY`).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Muted {
    /// None.
    pub(super) is_off: bool,
    /// Not the next one.
    pub(super) skips: bool,
    /// Not the one after this.
    pub(super) skips_next: bool,
}

/// Commands between `MULTI` and `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    /// The commands as the client sent them.
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
    /// A command was refused: nothing will be executed.
    pub(super) is_broken: bool,
    /// How far the execution is, if it has to wait in the middle.
    pub(super) progress: Option<Progress>,
}

impl Transaction {
    /// The bytes that it takes.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len() + self.progress.as_ref().map_or(0, |progress| progress.replies.len())
    }
}

/// How far a transaction is executed.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The bytes of the commands that are executed.
    pub(super) at: usize,
    /// What they have cost.
    pub(super) cost: usize,
    /// Their replies.
    pub(super) replies: Vec<u8>,
}

/// A client. See the module.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) conn: ConnId,
    /// What `CLIENT ID` says.
    pub(super) id: u64,
    pub(super) address: Box<str>,
    pub(super) opened: Instant,
    pub(super) used: Instant,
    pub(super) parser: Parser,
    pub(super) is_resp3: bool,
    /// Whether it may send commands: it has logged in, or nobody has to.
    pub(super) is_in: bool,
    pub(super) name: Box<str>,
    pub(super) library: Box<str>,
    pub(super) library_version: Box<str>,
    pub(super) muted: Muted,
    /// The numbers of the entries that it has subscribed to, by kind.
    pub(super) subscribed: [BTreeSet<u32>; 3],
    /// Entries that it is about to subscribe to: the reply comes when all of them are in force.
    pub(super) coming: Vec<(Kind, u32)>,
    pub(super) wait: Wait,
    /// How often its command has waited for the disk.
    pub(super) fetches: u32,
    pub(super) transaction: Option<Box<Transaction>>,
    /// Whether a transaction is being executed now.
    pub(super) is_in_exec: bool,
    /// Entries whose replies it has not got yet.
    pub(super) appends: VecDeque<Append>,
    /// What it waits for.
    pub(super) reading: Option<Box<Reading>>,
    /// The last command, for `CLIENT LIST`.
    pub(super) command: &'static str,
    /// Why the connection ends, after what is queued.
    pub(super) closing: Option<&'static str>,
}

impl Client {
    pub(super) fn new(conn: ConnId, id: u64, address: &str, is_in: bool, now: Instant) -> Self {
        Self {
            conn,
            id,
            address: address.into(),
            opened: now,
            used: now,
            parser: Parser::default(),
            is_resp3: false,
            is_in,
            name: "".into(),
            library: "".into(),
            library_version: "".into(),
            muted: Muted::default(),
            subscribed: Default::default(),
            coming: Vec::new(),
            wait: Wait::No,
            fetches: 0,
            transaction: None,
            is_in_exec: false,
            appends: VecDeque::new(),
            reading: None,
            command: "NULL",
            closing: None,
        }
    }

    /// The number of its channels, patterns or shard channels.
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.subscribed[kind as usize].len()
    }

    /// The number of all its subscriptions.
    pub(super) fn filter_count(&self) -> FilterCount {
        let all = self.subscribed.iter().map(BTreeSet::len).sum();
        FilterCount { all, patterns: self.count(Kind::Pattern) }
    }

    /// The number that replies to its subscriptions of a kind have: shard channels are counted on their own.
    pub(super) fn count_told(&self, kind: Kind) -> usize {
        match kind {
            Kind::Shard => self.count(Kind::Shard),
            Kind::Channel | Kind::Pattern => self.count(Kind::Channel) + self.count(Kind::Pattern),
        }
    }

    pub(super) fn is_subscribed(&self) -> bool {
        self.subscribed.iter().any(|numbers| !numbers.is_empty())
    }

    /// Whether only few commands are allowed: a client of RESP2 could not tell replies from messages.
    pub(super) fn is_restricted(&self) -> bool {
        !self.is_resp3 && self.is_subscribed()
    }

    /// Whether it is in the middle of `EXEC`.
    pub(super) fn is_executing(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.progress.is_some())
    }

    pub(super) fn is_muted(&self) -> bool {
        self.muted.is_off || self.muted.skips
    }

    /// Whether a command is executed at once.
    pub(super) fn is_plain(&self) -> bool {
        self.is_in && self.transaction.is_none() && self.appends.is_empty() && !self.is_restricted()
    }
}

/// What a client publishes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Post<'a> {
    pub(super) channel: &'a [u8],
    pub(super) payload: &'a [u8],
    /// By `SPUBLISH`.
    pub(super) is_sharded: bool,
}
