//! Connections that come: whose they are, and what becomes of one that is one too many.
//!
//! It is told so before it is closed, as everybody who is refused: it takes one of a few places beyond the limit, until it
//! has gone or `session.close_linger_ms` have passed. With those taken too it is closed without a word, as there must be an
//! end to what a flood takes.

use std::sync::{Arc, Weak};

use rocketnet::slots::MAX_SLOTS;
use rocketnet::{Accepted, Transport};

use super::io::LinkPhase;
use super::reactor::Reactor;
use crate::config::Config;
use crate::error::DownReason;
use crate::proto::CloseCode;
use crate::state::{Command, ConnShared, ForeignReason, ListenerShared, Phase};

/// SubscriberTable of a worker for connections that are only told that there is none for them.
const PLACES_TO_REFUSE: usize = 16;

/// How many connections a worker's transport takes, those included that are refused.
pub(crate) fn transport_connections(config: &Config) -> usize {
    config.limits.max_connections.saturating_add(PLACES_TO_REFUSE).min(MAX_SLOTS)
}

impl<T: Transport> Reactor<T> {
    /// A peer connected: a worker's turn to own it.
    pub(super) fn on_incoming(&mut self, accepted: Accepted) {
        let listener = self.listeners.iter().find(|(_, addr, _)| *addr == accepted.local);
        let Some((.., listener)) = listener else { return };
        let listener = listener.clone();
        let (id, worker) = self.io.inner.place_conn();
        let conn = ConnShared::new(&self.io.inner, id, worker, accepted.peer.clone());
        if worker == self.io.shared.index {
            self.adopt(conn, accepted, listener);
        } else {
            conn.send(Command::Adopt { conn: conn.clone(), accepted, listener });
        }
    }

    pub(super) fn adopt(
        &mut self,
        shared: Arc<ConnShared>,
        accepted: Accepted,
        listener: Weak<ListenerShared>,
    ) {
        let over = self.one_too_many();
        match self.io.transport.adopt(accepted) {
            Ok(conn) => {
                self.add_link(conn, shared, Vec::new(), Some(listener), LinkPhase::Fresh);
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

    /// Why there is no place for a connection that comes, if there is none. Those that are closing have said all that they
    /// will, and those that were refused are among them.
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
