//! Sending control messages to clients.

use std::time::Duration;

use rbmq_wire::Control;
use rocketbufs::Conn;
use rocketbufs::error::ControlError;

/// The time after which a full queue is tried again.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(5);

/// Sends a control message. A peer that reads too slowly for the queue of its connection is disconnected.
pub(super) fn send(conn: &Conn, message: &Control) {
    send_bytes(conn, &message.encode());
}

/// Sends an encoded control message, as [`send`].
pub(super) fn send_bytes(conn: &Conn, message: &[u8]) {
    match conn.send_control(message) {
        // The framework reports a lost connection with an event.
        Ok(()) | Err(ControlError::Down) => {}
        Err(error) => conn.close(&error.to_string()),
    }
}

/// Sends a message. Returns false if the queue has no room for it now.
pub(super) fn try_send(conn: &Conn, message: &Control) -> bool {
    match conn.send_control(&message.encode()) {
        // The framework reports a lost connection with an event.
        Ok(()) | Err(ControlError::Down) => {}
        Err(ControlError::Full { .. }) => return false,
        Err(error) => conn.close(&error.to_string()),
    }
    true
}
