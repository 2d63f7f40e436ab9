//! Incoming connections: which listener they belong to, and the refusal of connections beyond the limit.
//!
//! A refused connection gets BYE before it is closed, like every refused peer. Meanwhile it takes one of a
//! few slots beyond the limit, until it has gone or `session.close_linger_ms` have passed. When those slots
//! are taken too, further connections are cut off, and may miss their BYE: peers that send rubbish and never read what they are told
//! take no places from others.
//!
//! Before anybody is refused, a connection that never finished its handshake makes room, at the limit of connections and at that
//! of TLS handshakes: the oldest one of the host that has most of them. Peers that connect and say nothing do not lock the door.

use std::sync::{Arc, Weak};

use rocketnet::slots::MAX_SLOTS;
use rocketnet::{Accepted, Transport};

use super::connection::{Connection, Standing};
use super::reactor::Reactor;
use super::reactor_action::ReactorAction;
use super::worker_context::LinkPhase;
use crate::config::Config;
use crate::proto::CloseCode;
use crate::state::error::DownReason;
use crate::state::{Command, ConnShared, ForeignReason, ListenerShared, Phase};

/// Refused peers that may take their time to read BYE. A peer beyond them is cut off at once.
const REFUSALS: usize = 16;

/// Handshakes of TLS that the transport has room for when strangers begin to make room.
const SPARE_HANDSHAKES: usize = 16;

/// Connections that made room in a turn, and are gone only at its end: more than a transport accepts in a turn.
const PLACES_OF_A_TURN: usize = 128;

/// Returns the number of connections that a worker's transport takes, including refused ones.
pub(crate) fn transport_connections(config: &Config) -> usize {
    config.limits.max_connections.saturating_add(REFUSALS + PLACES_OF_A_TURN).min(MAX_SLOTS)
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
                let host = shared.peer_addr().parse().ok();
                let number = self.io.strangers.add(host, conn);
                self.add_link(conn, shared, Vec::new(), Some(listener), LinkPhase::Fresh);
                if let Some(link) = self.links.get_mut(&conn) {
                    link.standing = Standing::Stranger { host, number };
                }
                if let Some(why) = over {
                    self.close(conn, CloseCode::Limit, &why);
                }
            }
            Err(error) => {
                tracing::debug!(peer = shared.peer_addr(), %error, "a connection was not taken");
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
        let Some((_, stranger)) = self.io.strangers.pop() else { return over };
        let text = "it has not finished its handshake, and others wait to connect".to_owned();
        if let Some(mut connection) = self.connection(stranger) {
            connection.report_foreign(Some(ForeignReason::Limit), &text);
        }
        // A peer that says nothing does not wait for BYE.
        self.execute(stranger, ReactorAction::Down(DownReason::Local { code: CloseCode::Limit, text }));
        None
    }

    /// Returns whether the transport would refuse another TLS handshake, soon or now.
    fn are_handshakes_full(&self) -> bool {
        let tls = &self.io.inner.config.tls;
        let spare = SPARE_HANDSHAKES.min(tls.max_handshakes / 2);
        tls.mode == "require" && self.io.strangers.len() >= tls.max_handshakes - spare
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

impl<T: Transport> Connection<'_, T> {
    /// Whether a peer that is refused may take its time to read BYE.
    pub(super) fn begin_refusal(&mut self) -> bool {
        let has_room = self.io.refusals < REFUSALS;
        if has_room {
            self.io.refusals += 1;
            self.link.standing = Standing::Refused;
        }
        has_room
    }
}
