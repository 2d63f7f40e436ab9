//! Readers that follow the memory of a buffer's log. The writer of the memory wakes them.

use std::sync::Arc;

use rocketring::{PeerDoorbell, WatchKey};

use super::Buffer;
use crate::lock::lock;
use crate::state::{Command, InboundShared};

impl Buffer {
    /// Registers a reader's doorbell with the writer of this log's memory. Returns false if there are too
    /// many.
    pub(crate) fn watch(&self, key: WatchKey, doorbell: Arc<PeerDoorbell>) -> bool {
        let Some(log) = self.log() else { return false };
        if !log.ring.is_peer_written() {
            return log.ring.watch(key, doorbell);
        }
        let Some(inbound) = self.upstream().filter(|inbound| lock(&inbound.watchers).add(key, doorbell))
        else {
            return false;
        };
        tell_worker(&inbound);
        true
    }

    /// Removes a reader's doorbell.
    pub(crate) fn unwatch(&self, key: WatchKey) {
        let Some(log) = self.log() else { return };
        if !log.ring.is_peer_written() {
            return log.ring.unwatch(key);
        }
        if let Some(inbound) = self.upstream() {
            lock(&inbound.watchers).remove(key);
            tell_worker(&inbound);
        }
    }

    /// Handles a change of subscribers, after which the writer may have to wake this end, or no longer.
    pub(crate) fn tell_who_follows(&self) {
        if let Some(inbound) =
            self.upstream().filter(|_| self.log().is_some_and(|log| log.ring.is_peer_written()))
        {
            tell_worker(&inbound);
        }
    }
}

/// Asks the worker of a subscription's connection to pass the watchers on.
fn tell_worker(inbound: &Arc<InboundShared>) {
    let wire = lock(&inbound.state).sub.wire();
    // Without a connection, the watchers are passed on at the resume.
    if let Some((conn, _)) = wire
        && lock(&inbound.watchers).ask()
    {
        inbound.inner.workers[inbound.inner.worker_of(conn)].send(Command::PassWatchers(inbound.clone()));
    }
}
