//! The clients of a gateway: who each is, and what it may do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use access::{Charge, Grants, Identity, Login, Operation, Peer, Source};

/// The refusals of a client that are remembered, so that each is in the audit log once.
const REMEMBERED_REFUSALS: usize = 16;

/// A connection of a client.
pub(super) struct Client {
    pub(super) address: Arc<str>,
    pub(super) peer: Peer,
    /// None: the client has not shown who it is.
    pub(super) logged_in: Option<LoggedIn>,
    pub(super) waiting: Option<Waiting>,
    refused: VecDeque<(Operation, Box<str>)>,
}

/// Who a client is.
pub(super) struct LoggedIn {
    pub(super) login: Login,
    /// None: there are no rules, and the client may do everything.
    pub(super) grants: Option<Arc<Grants>>,
    #[allow(dead_code, reason = "its drop gives the quota back")]
    pub(super) charge: Charge,
}

/// A password that is being checked.
pub(super) struct Waiting {
    /// Identifies the attempt.
    pub(super) attempt: u64,
    pub(super) deadline: Instant,
    left: Arc<AtomicBool>,
}

impl Waiting {
    /// An attempt that has just begun, and whether nobody waits for it any more.
    pub(super) fn begin(attempt: u64, deadline: Instant) -> (Self, Arc<AtomicBool>) {
        let left = Arc::new(AtomicBool::new(false));
        (Self { attempt, deadline, left: left.clone() }, left)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.left.store(true, Ordering::Relaxed);
    }
}

impl Client {
    pub(super) fn new(address: &str, certificate: Option<Arc<[u8]>>) -> Self {
        let peer = Peer { source: Source::of(address), certificate, uid: None };
        Self { address: address.into(), peer, logged_in: None, waiting: None, refused: VecDeque::new() }
    }

    pub(super) fn identity(&self) -> Option<&Arc<Identity>> {
        self.logged_in.as_ref().map(|logged_in| &logged_in.login.identity)
    }

    /// Whether the client may do something. A client that has not shown who it is may do nothing.
    pub(super) fn may(&self, may: impl FnOnce(&Grants) -> bool) -> bool {
        let Some(LoggedIn { grants, .. }) = &self.logged_in else { return false };
        grants.as_ref().is_none_or(|grants| may(grants))
    }

    /// Whether a refusal is new, and not one of the last.
    pub(super) fn is_news(&mut self, operation: Operation, topic: &str) -> bool {
        if self.refused.iter().any(|(of, before)| *of == operation && **before == *topic) {
            return false;
        }
        if self.refused.len() == REMEMBERED_REFUSALS {
            self.refused.pop_front();
        }
        self.refused.push_back((operation, topic.into()));
        true
    }

    /// The client has other rights, so that its refusals are news again.
    pub(super) fn forget_refusals(&mut self) {
        self.refused.clear();
    }
}

/// Whether rights are the same.
pub(super) fn is_same(before: Option<&Arc<Grants>>, after: Option<&Arc<Grants>>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => before.is_same(after),
        (None, None) => true,
        _ => false,
    }
}
