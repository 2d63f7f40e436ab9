//! Readers that follow the memory of a buffer's log. The writer of the memory wakes them.

use std::sync::Arc;

use rocketring::{PeerDoorbell, WatchKey};

use super::Buffer;

impl Buffer {
    /// Registers a reader's doorbell with the writer of this log's memory. Returns false if there are too
    /// many.
    pub(crate) fn watch(&self, key: WatchKey, doorbell: Arc<PeerDoorbell>) -> bool {
        let Some(log) = self.log() else { return false };
        if !log.ring.is_peer_written() {
            return log.ring.watch(key, doorbell);
        }
        self.upstream().is_some_and(|source| source.watch(key, doorbell))
    }

    /// Removes a reader's doorbell.
    pub(crate) fn unwatch(&self, key: WatchKey) {
        let Some(log) = self.log() else { return };
        if !log.ring.is_peer_written() {
            return log.ring.unwatch(key);
        }
        if let Some(source) = self.upstream() {
            source.unwatch(key);
        }
    }

    /// Handles a change of subscribers, after which the writer may have to wake this end, or no longer.
    pub(crate) fn notify_upstream(&self) {
        let follows = self.log().is_some_and(|log| log.ring.is_peer_written());
        if let Some(source) = self.upstream().filter(|_| follows) {
            source.pass_watchers();
        }
    }
}
