//! Readers that follow the memory of a buffer's log, and are woken by whoever writes it.

use std::sync::Arc;

use rocketring::{PeerDoorbell, WatchKey};

use super::Buffer;
use crate::lock::lock;
use crate::state::{Command, InboundShared};

impl Buffer {
    /// Has a reader woken by whoever writes the memory of this buffer's log. False if there are too many.
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

    /// It is woken no more.
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

    /// The subscribers are others than before: perhaps the writer wakes this end again, or no longer.
    pub(crate) fn tell_who_follows(&self) {
        if let Some(inbound) =
            self.upstream().filter(|_| self.log().is_some_and(|log| log.ring.is_peer_written()))
        {
            tell_worker(&inbound);
        }
    }
}

/// Has the worker of a subscription's connection pass on who watches.
fn tell_worker(inbound: &Arc<InboundShared>) {
    let wire = lock(&inbound.state).wire;
    // Without a connection: when it goes on over another.
    if let Some((conn, _)) = wire
        && lock(&inbound.watchers).ask()
    {
        inbound.inner.workers[inbound.inner.worker_of(conn)].send(Command::PassWatchers(inbound.clone()));
    }
}
