//! Messages that a session has no room for.

use tracing::warn;

use crate::protocol::Cx;

use super::codec::reason;
use super::settings::Overflow;
use super::state::{Fault, Mqtt};

impl Mqtt {
    /// A message would have to wait, and the queue of its session is full, or all sessions hold too much. Nobody tells its publisher: the log does.
    pub(super) fn on_no_room(&mut self, slot: usize, is_full: bool, cx: &mut Cx<'_>) {
        let session = &self.sessions[slot];
        if let (true, Overflow::Disconnect, Some(link)) = (is_full, self.settings.overflow, &session.link) {
            self.doomed.push(link.conn);
        }
        if let Some(more) = self.full_lines.allow(cx.now) {
            let client = session.client_id();
            let (waiting, bytes) = (session.waiting(), session.queued_bytes);
            match is_full {
                true => warn!(
                    more,
                    "MQTT: a message is dropped: {waiting} wait already for the session of the client {client:?}, \
                     with {bytes} bytes (max_queued_messages)"
                ),
                false => warn!(
                    more,
                    "MQTT: a message for the session of the client {client:?} is dropped: all sessions hold too much"
                ),
            }
        }
        self.count_dropped(cx);
    }

    /// Disconnects clients whose queue was full.
    pub(super) fn fail_doomed(&mut self, cx: &mut Cx<'_>) {
        while let Some(conn) = self.doomed.pop() {
            self.fail(conn, Fault::new(reason::QUOTA, "too many messages wait for this client"), cx);
        }
    }
}
