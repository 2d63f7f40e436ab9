//! The connections that were given no page yet: silent ones, slow ones, and those without the token.
//!
//! Any host that reaches the endpoint can open connections up to their limit. So a new connection may end the oldest of these, and a client
//! that shows its token at once always gets in.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use locks::Mutex;
use tokio::task::AbortHandle;

/// The connections, by a number that grows with their age.
#[derive(Default)]
pub(super) struct UnauthenticatedConnections {
    next: AtomicU64,
    tasks: Mutex<BTreeMap<u64, AbortHandle>>,
}

impl UnauthenticatedConnections {
    /// Returns the number of the next connection.
    pub(super) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a connection and its task.
    pub(super) fn add(&self, number: u64, task: AbortHandle) {
        self.tasks.lock().insert(number, task);
    }

    /// The connection was given a page, or has ended.
    pub(super) fn forget(&self, number: u64) {
        self.tasks.lock().remove(&number);
    }

    /// Ends the oldest connection. Returns false if there is none.
    pub(super) fn end_oldest(&self) -> bool {
        let oldest = self.tasks.lock().pop_first();
        oldest.inspect(|(_, task)| task.abort()).is_some()
    }
}
