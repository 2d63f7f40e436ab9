//! Handshakes of TLS within a poll: their beginning, their limits and their failures.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::Shutdown;

use super::Tcp;
use super::conn::State;
use super::secure::Secure;
use crate::contract::{ConnId, Down, Event, TransportError};

/// How long a peer whose handshake failed has to read why. Bytes of the peer that are not read would cut it.
const FAILED_LINGER: Duration = Duration::from_secs(1);

impl Tcp {
    /// Whether there is a certificate, if a listener needs one.
    pub(super) fn check_certificate(&self) -> Result<(), TransportError> {
        if self.config.tls.as_ref().is_none_or(|tls| tls.can_listen()) {
            return Ok(());
        }
        let reason = "a listener with TLS needs a certificate and its key: set tls.cert and tls.key (rbmq keygen server makes both)";
        Err(TransportError::Config { field: "tls.cert", value: "(unset)".into(), reason: reason.into() })
    }

    /// TLS for an incoming connection, if it is on.
    pub(super) fn accept_secure(&self, peer: &str) -> Result<Option<Box<Secure>>, TransportError> {
        let Some(tls) = &self.config.tls else { return Ok(None) };
        let (open, max) = (self.handshakes, tls.settings().max_handshakes);
        if open >= max {
            return Err(TransportError::TooManyHandshakes { open, max });
        }
        let refused = |reason| TransportError::Address { addr: peer.to_owned(), reason };
        Secure::accept(tls).map(|secure| Some(Box::new(secure))).map_err(refused)
    }

    /// An incoming connection waits for its peer's handshake.
    pub(super) fn begin_shaking(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.counted = true;
        self.handshakes += 1;
        self.set_deadline(id, Some(self.config.connect_timeout));
    }

    /// An outgoing connection begins its handshake.
    pub(super) fn connect_secure(&mut self, id: ConnId, events: &mut Vec<Event>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let (State::Connecting { addr, .. }, Some(tls)) = (&conn.state, &self.config.tls) else { return };
        match Secure::connect(tls, addr) {
            Ok(secure) => {
                conn.secure = Some(Box::new(secure));
                self.shake(id, events);
            }
            Err(reason) => self.shake_failed(id, reason, events),
        }
    }

    /// Goes on with a handshake.
    pub(super) fn shake(&mut self, id: ConnId, events: &mut Vec<Event>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let (Some(secure), Some(socket)) = (&mut conn.secure, &conn.socket) else { return };
        if self.shakes_left == 0 {
            // The first bytes of an outgoing connection are not a kernel's event that comes again.
            return self.watch(id);
        }
        self.shakes_left -= 1;
        match secure.shake(socket.fd.as_fd(), &mut self.staging) {
            Ok(false) => self.watch(id),
            Ok(true) => {
                secure.take_rest(&mut conn.intake, socket.fd.as_fd());
                self.handshakes -= usize::from(std::mem::take(&mut conn.counted));
                if conn.has_more() && !std::mem::replace(&mut conn.listed, true) {
                    self.again.push(id);
                }
                self.established(id, events);
            }
            Err(reason) => self.shake_failed(id, reason, events),
        }
    }

    /// Ends a connection whose handshake failed. A client gets the time to read why.
    pub(super) fn shake_failed(&mut self, id: ConnId, reason: String, events: &mut Vec<Event>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let why = match &conn.state {
            State::Connecting { addr, .. } => {
                let down = Down::Tls(format!("{addr}: {reason}"));
                return self.fail(id, down, events);
            }
            State::Closing { why, .. } => why.clone(),
            State::Open | State::Down => Down::Tls(reason),
        };
        conn.secure = None;
        conn.out.kill();
        self.handshakes -= usize::from(std::mem::take(&mut conn.counted));
        conn.state = State::Closing { why, shut: true };
        if let Some(socket) = &conn.socket {
            // Fails only if the peer is gone already, which the next read reports.
            let _ = rustix::net::shutdown(&socket.fd, Shutdown::Write);
        }
        self.set_deadline(id, Some(FAILED_LINGER));
        self.watch(id);
    }
}
