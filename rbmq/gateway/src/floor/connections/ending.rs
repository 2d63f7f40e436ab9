//! How connections end.

use std::io;
use std::time::Instant;

use rustix::event::epoll::{self, EventFlags};
use tracing::debug;

use super::{Conn, Connections, LEFT, SweepLimits, Until, index};
use crate::protocol::{ConnId, Outlets};

impl Connections {
    /// The client sends nothing more: the connection ends after what is queued. What is blocked is executed first, and then the end is read again.
    pub(crate) fn on_end(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id).filter(|conn| conn.blocked.is_none()) {
            conn.has_ended = true;
            self.close(id, "the client left");
        }
    }

    /// A client that waits for news sends nothing more: its connection ends after the replies to what it has sent before.
    pub(crate) fn leave(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id) {
            conn.blocked = None;
        }
        self.on_end(id);
    }

    /// A client sends nothing more, as the kernel says. Where its commands cannot be executed yet, they have some time. Returns whether they wait.
    pub(crate) fn has_left(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.get_mut(id).filter(|conn| conn.blocked == Some(Until::Resumed)) else {
            return false;
        };
        conn.left.get_or_insert_with(Instant::now);
        true
    }

    /// Ends connections that have waited for too long: strangers that have said nothing of use, those whose client has left while its commands wait,
    /// and those that are closed and whose client reads nothing. Returns whether there are any such connections left.
    pub(crate) fn sweep(&mut self, now: Instant, limits: &SweepLimits) -> bool {
        let (mut over, mut left) = (Vec::new(), false);
        for (_, conn) in &self.conns {
            let since = |at: Instant| now.saturating_duration_since(at);
            match &conn.closing {
                // What the limits of the connection hold back is no fault of its client.
                Some((at, reason))
                    if since(conn.sends_since().map_or(*at, |since| since.max(*at))) >= limits.closing =>
                {
                    over.push((conn.id, reason.clone()));
                }
                _ if conn.place.is_leaving() => {
                    over.push((conn.id, "it made room for another connection".into()))
                }
                None if conn.blocked == Some(Until::Resumed)
                    && conn.left.is_some_and(|at| since(at) >= LEFT) =>
                {
                    over.push((conn.id, "the client left, and what it has sent cannot be executed".into()));
                }
                None if conn.place.is_known() => left |= conn.left.is_some(),
                None if since(conn.since) >= limits.stranger => {
                    over.push((conn.id, format!("it has said nothing of use for {:?}", limits.stranger)));
                }
                _ => left = true,
            }
        }
        for (id, reason) in over {
            let is_turned_away = |conn: &Conn| !conn.is_closing() && conn.left.is_none();
            self.counts.turned_away += u64::from(self.get(id).is_some_and(is_turned_away));
            self.end(id, &reason);
        }
        left
    }

    /// Ends a connection at once.
    pub(crate) fn end(&mut self, id: ConnId, reason: &str) {
        let Some(conn) = self.get_mut(id) else { return };
        conn.socket.end();
        let conn = self.conns.remove(index(id));
        self.pending -= usize::from(conn.is_pending);
        self.memory -= conn.charge;
        if !conn.lingers {
            debug!(peer = %conn.address, "disconnected: {reason}");
        }
        if conn.is_open {
            self.ended.push(id);
        }
    }

    /// Tells a client that nothing more comes. Its connection stays until it leaves, or the sweep ends it.
    pub(super) fn linger(&mut self, id: ConnId, reason: &str) {
        let Some(conn) = self.conns.get_mut(index(id)) else { return };
        conn.socket.end();
        debug!(peer = %conn.address, "disconnected: {reason}");
        (conn.lingers, conn.input) = (true, Vec::new());
        if std::mem::take(&mut conn.is_open) {
            self.ended.push(id);
        }
        let (data, interest) = (epoll::EventData::new_u64(id.0), EventFlags::IN | EventFlags::RDHUP);
        if epoll::modify(&self.epoll, conn.socket.stream(), data, interest).is_err() {
            self.end(id, reason);
        }
    }

    /// Throws away what a client has sent whose connection lingers. False: the connection does not.
    pub(crate) fn discard(&mut self, id: ConnId, buffer: &mut [u8]) -> bool {
        let Some(conn) = self.get_mut(id).filter(|conn| conn.lingers) else { return false };
        match conn.socket.read(buffer) {
            Ok(0) => self.end(id, "the client left"),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => self.end(id, "the client left"),
            _ => {}
        }
        true
    }
}
