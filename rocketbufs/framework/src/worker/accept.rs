//! Incoming connections: which listener they belong to, and the refusal of connections beyond the limit.
//!
//! A refused connection gets BYE before it is closed, like every refused peer. Meanwhile it takes one of a
//! few slots beyond the limit, until it has gone or `session.close_linger_ms` have passed. When those slots
//! are taken too, further connections are closed without BYE, which bounds the cost of a flood.
//!
//! Before anybody is refused, the oldest connection that never finished its handshake makes room, at the limit
//! of connections and at that of TLS handshakes: peers that connect and say nothing do not lock the door.

use std::sync::{Arc, Weak};

use rocketnet::slots::MAX_SLOTS;
use rocketnet::{Accepted, Transport};

use super::connection::Link;
use super::reactor::Reactor;
use super::reactor_action::ReactorAction;
use super::worker_context::LinkPhase;
use crate::config::Config;
use crate::proto::CloseCode;
use crate::state::error::DownReason;
use crate::state::{Command, ConnShared, ForeignReason, ListenerShared, Phase};

/// A worker's slots for connections that are only refused.
const PLACES_TO_REFUSE: usize = 16;

/// Returns the number of connections that a worker's transport takes, including refused ones.
pub(crate) fn transport_connections(config: &Config) -> usize {
    config.limits.max_connections.saturating_add(PLACES_TO_REFUSE).min(MAX_SLOTS)
}

impl<T: Transport> Reactor<T> {
    /// Handles a new connection that this worker is to own.
    pub(super) fn on_incoming(&mut self, accepted: Accepted) {
        let listener = self.listeners.iter().find(|(_, addr, _)| *addr == accepted.local);
        let Some((.., listener)) = listener else { return };
        let listener = listener.clone();
        let id = self.io.inner.new_conn();
        let conn = ConnShared::new(&self.io.inner, id, accepted.peer.clone());
        if self.io.inner.worker_of(id) == self.io.shared.index {
            self.adopt(conn, accepted, listener);
        } else {
            self.io.context.send(id, Command::Adopt { conn, accepted, listener });
        }
    }

    pub(super) fn adopt(
        &mut self,
        shared: Arc<ConnShared>,
        accepted: Accepted,
        listener: Weak<ListenerShared>,
    ) {
        let over = self.make_room();
        match self.io.transport.adopt(accepted) {
            Ok(conn) => {
                self.add_link(conn, shared, Vec::new(), Some(listener), LinkPhase::Fresh);
                self.unfinished.push_back(conn);
                if let Some(why) = over {
                    self.close(conn, CloseCode::Limit, &why);
                }
            }
            Err(error) => {
                tracing::warn!(peer = shared.peer_addr(), %error, "a connection was not taken");
                if let Some(listener) = listener.upgrade() {
                    listener.turned_away(&shared.peer_addr(), ForeignReason::Limit, &error.to_string());
                }
                shared.set_phase(Phase::Down(DownReason::NotStarted(error.to_string())));
            }
        }
    }

    /// Makes room for a connection, or returns why there is no room.
    fn make_room(&mut self) -> Option<String> {
        let over = self.one_too_many();
        if over.is_none() && !self.are_handshakes_full() {
            return None;
        }
        let is_fresh = |link: &Link| link.line.phase == LinkPhase::Fresh;
        while let Some(oldest) = self.unfinished.pop_front() {
            if self.links.get(&oldest).is_some_and(is_fresh) {
                let text = "it has not finished its handshake, and others wait to connect".to_owned();
                if let Some(mut connection) = self.connection(oldest) {
                    connection.report_foreign(Some(ForeignReason::Limit), &text);
                }
                // A peer that says nothing does not wait for BYE.
                self.execute(oldest, ReactorAction::Down(DownReason::Local { code: CloseCode::Limit, text }));
                return None;
            }
        }
        over
    }

    /// Returns whether the transport would refuse another TLS handshake, soon or now.
    fn are_handshakes_full(&mut self) -> bool {
        let tls = &self.io.inner.config.tls;
        let spare = PLACES_TO_REFUSE.min(tls.max_handshakes / 2);
        let most = if tls.mode == "require" { tls.max_handshakes - spare } else { usize::MAX };
        // The queue also has connections that have finished. Every so often it is looked through.
        if self.unfinished.len() < most.max(PLACES_TO_REFUSE).min(2 * self.links.len() + PLACES_TO_REFUSE) {
            return false;
        }
        let links = &self.links;
        self.unfinished
            .retain(|conn| links.get(conn).is_some_and(|link| link.line.phase == LinkPhase::Fresh));
        self.unfinished.len() >= most
    }

    /// Returns why there is no slot for a new connection, if there is none. Closing connections, which
    /// include refused ones, do not count.
    fn one_too_many(&self) -> Option<String> {
        let max = self.io.inner.config.limits.max_connections;
        if self.links.len() < max {
            return None;
        }
        let open = self.links.values().filter(|link| link.line.phase != LinkPhase::Closing).count();
        (open >= max)
            .then(|| format!("{open} connections are open; the limit (limits.max_connections) is {max}"))
    }
}
