//! The clients of a gateway: who each is, and what it may do.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use access::{Charge, Exceeded, Grants, Identity, Login, Operation, Peer, Resource, Source};

use crate::login::look_after;

/// The refusals of a client that are remembered, so that each is in the audit log once.
const REMEMBERED_REFUSALS: usize = 16;

/// A connection of a client.
pub(super) struct Client {
    id: u64,
    pub(super) address: Arc<str>,
    pub(super) peer: Peer,
    /// None: the client has not shown who it is.
    pub(super) logged_in: Option<LoggedIn>,
    waiting: Option<Waiting>,
    refused: VecDeque<(Operation, Box<str>)>,
    /// Its filters, and those with wildcards among them.
    filters: [u64; 2],
    /// Its bytes per second have limits.
    pub(super) is_metered: bool,
}

/// What is due for clients: at most one password and one login of each, however often it logs in.
#[derive(Default)]
pub(super) struct Due(BTreeSet<(Instant, u64, What)>);

/// What is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// A password must have been checked.
    Password,
    /// A login that ends by itself is looked at.
    Login,
}

/// Who a client is.
pub(super) struct LoggedIn {
    pub(super) login: Login,
    /// None: there are no rules, and the client may do everything.
    pub(super) grants: Option<Arc<Grants>>,
    charge: Charge,
    /// When it is looked at again, because it ends by itself.
    look_at: Option<Instant>,
}

/// A password that is being checked.
pub(super) struct Waiting {
    /// Identifies the attempt.
    attempt: u64,
    deadline: Instant,
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

impl Due {
    /// The instant of the first.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, ..)| *at)
    }

    /// Takes the first if it is due now.
    pub(super) fn take(&mut self, now: Instant) -> Option<(u64, What)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, client, what)| (client, what))
    }
}

impl Client {
    pub(super) fn new(id: u64, address: &str, certificate: Option<Arc<[u8]>>) -> Self {
        let peer = Peer { source: Source::of(address), certificate, uid: None };
        Self {
            id,
            address: address.into(),
            peer,
            logged_in: None,
            waiting: None,
            refused: VecDeque::new(),
            filters: [0; 2],
            is_metered: false,
        }
    }

    /// A password is being checked.
    pub(super) fn wait(&mut self, waiting: Waiting, due: &mut Due) {
        self.end_wait(due);
        due.0.insert((waiting.deadline, self.id, What::Password));
        self.waiting = Some(waiting);
    }

    /// Nobody waits for a password any more.
    pub(super) fn end_wait(&mut self, due: &mut Due) {
        if let Some(waiting) = self.waiting.take() {
            due.0.remove(&(waiting.deadline, self.id, What::Password));
        }
    }

    /// Whether an attempt is the one that the client waits for.
    pub(super) fn waits_for(&self, attempt: u64) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.attempt == attempt)
    }

    /// The client is let in.
    pub(super) fn enter(&mut self, login: Login, grants: Option<Arc<Grants>>, charge: Charge, due: &mut Due) {
        self.forget_login(due);
        self.forget_refusals();
        self.logged_in = Some(LoggedIn { login, grants, charge, look_at: None });
        self.plan_look(due);
    }

    /// The client is the same user as before, by another login. False: it is another one.
    pub(super) fn renew(&mut self, login: &Login, due: &mut Due) -> bool {
        let before = self.logged_in.as_mut().filter(|before| before.login.identity == login.identity);
        let Some(before) = before else { return false };
        before.login = login.clone();
        self.plan_look(due);
        true
    }

    /// The client has no rights any more, and gives its place in the quotas back.
    pub(super) fn forget_login(&mut self, due: &mut Due) {
        if let Some(at) = self.logged_in.take().and_then(|logged_in| logged_in.look_at) {
            due.0.remove(&(at, self.id, What::Login));
        }
    }

    /// Plans when the login is looked at again, instead of what was planned before.
    pub(super) fn plan_look(&mut self, due: &mut Due) {
        let Some(logged_in) = &mut self.logged_in else { return };
        if let Some(at) = logged_in.look_at.take() {
            due.0.remove(&(at, self.id, What::Login));
        }
        if let Some(end) = logged_in.login.expires {
            let at = Instant::now() + look_after(end, SystemTime::now());
            due.0.insert((at, self.id, What::Login));
            logged_in.look_at = Some(at);
        }
    }

    /// Its filters, as quotas count them.
    pub(super) fn filters(&self) -> [(Resource, u64); 2] {
        filters(self.filters)
    }

    /// The client has so many filters, and so many with wildcards among them, or asks for them: none may be beyond a quota if it asks.
    ///
    /// # Errors
    /// The quota, and nothing has changed.
    pub(super) fn set_filters(&mut self, count: [u64; 2], asks: bool) -> Result<(), Exceeded> {
        if let Some(logged_in) = &mut self.logged_in {
            match asks {
                true => logged_in.charge.set(&filters(count))?,
                false => logged_in.charge.set_anyway(&filters(count)),
            }
        }
        self.filters = count;
        Ok(())
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

    /// The client has other rights: its refusals are news again.
    pub(super) fn forget_refusals(&mut self) {
        self.refused.clear();
    }
}

fn filters([all, patterns]: [u64; 2]) -> [(Resource, u64); 2] {
    [(Resource::Subscriptions, all), (Resource::Patterns, patterns)]
}

/// Whether rights are the same.
pub(super) fn is_same(before: Option<&Arc<Grants>>, after: Option<&Arc<Grants>>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => before.is_same(after),
        (None, None) => true,
        _ => false,
    }
}
