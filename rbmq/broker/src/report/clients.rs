//! The clients of a broker, for the console.

use std::sync::Arc;

use access::Identity;
use rocketbufs::Conn;

use super::Report;
use crate::asks::{ClientRole, ClientRow, ClientsPage, MAX_CLIENTS};
use crate::sessions::Session;
use crate::subscribers::Subscriber;

/// Makes the row of a client, if the page has it.
type ClientMaker<'a> = Box<dyn FnOnce() -> ClientRow + 'a>;

impl Report<'_> {
    /// The clients behind a connection, by the numbers of their connections.
    pub(super) fn clients_page(&self, after: Option<u64>) -> ClientsPage {
        let sessions = self.tables.sessions.iter().map(Self::session_row);
        let subscribers = self.subscribers.iter().map(Self::subscriber_row);
        let observers = self.observers.iter().map(|(conn, name)| self.observer_row(conn, name));
        let is_behind = |conn: &u64| after.is_none_or(|after| *conn > after);
        // Only what the page has is copied.
        let all = sessions.chain(subscribers).chain(observers);
        let mut rows: Vec<(u64, ClientMaker<'_>)> = all.filter(|(conn, _)| is_behind(conn)).collect();
        let is_last = rows.len() <= MAX_CLIENTS;
        if !is_last {
            rows.select_nth_unstable_by_key(MAX_CLIENTS - 1, |(conn, _)| *conn);
            rows.truncate(MAX_CLIENTS);
        }
        rows.sort_unstable_by_key(|(conn, _)| *conn);
        let next = rows.last().map(|(conn, _)| *conn).filter(|_| !is_last);
        ClientsPage { rows: rows.into_iter().map(|(_, row)| row()).collect(), next }
    }

    fn session_row(session: &Session) -> (u64, ClientMaker<'_>) {
        let row = || {
            let role = match session.upstream {
                Some(_) => ClientRole::Broker,
                None if session.identity.is_own() => ClientRole::Gateway,
                None => ClientRole::Publisher,
            };
            let buffers = session.buffers() as u64;
            let row = client_row(role, &session.conn, &session.name, &session.identity);
            ClientRow { connected: !session.is_down(), buffers, ..row }
        };
        (session.conn.id(), Box::new(row))
    }

    fn subscriber_row(subscriber: &Subscriber) -> (u64, ClientMaker<'_>) {
        let row = || {
            let role = match subscriber.is_broker() {
                true => ClientRole::Broker,
                false if subscriber.identity.is_own() => ClientRole::Gateway,
                false => ClientRole::Subscriber,
            };
            client_row(role, &subscriber.conn, &subscriber.name, &subscriber.identity)
        };
        (subscriber.conn.id(), Box::new(row))
    }

    fn observer_row<'o>(&'o self, conn: &'o Conn, name: &'o str) -> (u64, ClientMaker<'o>) {
        let row = move || {
            let known = self.tables.admission.identity(conn.id());
            let identity = known.map_or_else(|| Arc::new(Identity::anonymous()), |(identity, _)| identity);
            client_row(ClientRole::Observer, conn, name, &identity)
        };
        (conn.id(), Box::new(row))
    }
}

fn client_row(role: ClientRole, conn: &Conn, name: &str, identity: &Identity) -> ClientRow {
    ClientRow {
        conn: conn.id(),
        role,
        name: name.to_owned(),
        address: conn.peer_addr(),
        user: identity.user.clone(),
        method: identity.method.as_str(),
        connected: true,
        buffers: 0,
    }
}
