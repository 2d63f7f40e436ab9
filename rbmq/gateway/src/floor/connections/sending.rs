//! Sending what is queued, and what the kernel watches meanwhile.

use std::io::{self, IoSlice};
use std::time::Instant;

use rustix::event::epoll::{self, EventFlags};

use super::super::frames::Frames;
use super::super::metering::Metering;
use super::super::outbox::MAX_SLICES;
use super::{Conn, ConnectionCounts, Connections, Until, index};
use crate::protocol::ConnId;

impl Connections {
    /// Something of a connection has changed: [`Connections::flush`] looks at it.
    pub(crate) fn mark(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id)
            && !conn.is_dirty
        {
            conn.is_dirty = true;
            self.dirty.push(id);
        }
    }

    /// Sends what is queued, as far as the sockets take it.
    pub(crate) fn flush(&mut self) {
        while let Some(id) = self.dirty.pop() {
            let Some(conn) = self.conns.get_mut(index(id)).filter(|conn| conn.id == id) else { continue };
            conn.is_dirty = false;
            let sent = send(conn, &self.frames, &mut self.counts);
            // Also if the socket is full of what was taken before.
            if let Some(at) = conn.metering.as_deref().and_then(Metering::send_at) {
                self.delayed.insert((at, id));
            }
            match sent {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => conn.is_full = true,
                Err(error) => {
                    self.end(id, &format!("cannot send: {error}"));
                    continue;
                }
            }
            self.settle(id);
        }
        if self.pending == 0 {
            self.oldest = u64::MAX;
            self.frames.rewind();
        }
    }

    /// Asks the kernel for what the connection waits for, or ends it.
    fn settle(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(index(id)) else { return };
        if std::mem::replace(&mut conn.is_pending, !conn.outbox.is_empty()) && conn.outbox.is_empty() {
            self.pending -= 1;
        }
        let is_empty = conn.outbox.is_empty() && !conn.socket.has_waiting();
        if conn.lingers {
            return self.count_memory(id);
        }
        if is_empty && (conn.is_full || conn.is_deep) {
            (conn.is_full, conn.is_deep) = (false, false);
            self.drained.push(id);
        }
        if is_empty && conn.blocked == Some(Until::Sent) {
            conn.blocked = None;
            self.resumed.push(id);
        }
        if is_empty && let Some((_, reason)) = &conn.closing {
            let reason = reason.clone();
            return if conn.has_ended { self.end(id, &reason) } else { self.linger(id, &reason) };
        }
        self.count_memory(id);
        self.watch(id, true);
    }

    /// While nothing is sent: the kernel tells only what is to be read, or it would tell the rest again and again.
    pub(crate) fn hold(&mut self) {
        for at in 0..self.dirty.len() {
            self.watch(self.dirty[at], false);
        }
    }

    fn watch(&mut self, id: ConnId, sends: bool) {
        let Some(conn) = self.get_mut(id).filter(|conn| !conn.lingers) else { return };
        let is_empty = conn.outbox.is_empty() && !conn.socket.has_waiting();
        let mut interest = EventFlags::RDHUP;
        interest.set(EventFlags::IN, conn.wants_input());
        let sends = sends && conn.metering.as_ref().is_none_or(|metering| metering.sends());
        interest.set(EventFlags::OUT, sends && !is_empty);
        let is_watched = match conn.blocked {
            Some(Until::News) => true,
            Some(Until::Resumed) => conn.left.is_none(),
            // A client that has left is noticed when something is sent to it.
            Some(Until::Sent) | None => conn.wants_input(),
        };
        if !is_watched {
            interest.remove(EventFlags::RDHUP);
        }
        if interest != conn.interest {
            conn.interest = interest;
            let data = epoll::EventData::new_u64(id.0);
            let stream = self.conns[index(id)].socket.stream();
            if let Err(error) = epoll::modify(&self.epoll, stream, data, interest) {
                self.end(id, &format!("cannot be watched: {error}"));
            }
        }
    }
}

/// Sends everything that is queued, or as much as the limits of the connection allow: until then the rest waits.
fn send(conn: &mut Conn, frames: &Frames, counts: &mut ConnectionCounts) -> io::Result<()> {
    conn.socket.flush()?;
    while !conn.outbox.is_empty() {
        let mut most = usize::MAX;
        if let Some(metering) = &mut conn.metering {
            match metering.may_send(conn.outbox.bytes(), Instant::now()) {
                Ok(bytes) => most = bytes,
                Err(_) => break,
            }
        }
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let used = conn.outbox.slices(frames, most, &mut slices);
        match conn.socket.write(&slices[..used]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                conn.outbox.sent(count);
                counts.sent_bytes += count as u64;
                if let Some(metering) = &mut conn.metering {
                    metering.sent(count);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    conn.socket.flush()
}
