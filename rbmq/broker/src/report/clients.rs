//! The clients of a broker, for the console.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use access::Identity;
use rocketbufs::Conn;
use tracing::info;

use super::Report;
use crate::asks::{ClientKey, ClientRole, ClientRow, ClientsPage, Disconnect, Disconnected};
use crate::names::display_name;
use crate::sessions::Session;
use crate::subscribers::Subscriber;

impl Report<'_> {
    /// At most `max` clients behind another one, in the order of the tables: publishers, subscribers, observers. The tables are sorted, so
    /// that a page costs what it has.
    pub(super) fn clients_page(&self, after: Option<ClientKey>, max: usize) -> ClientsPage {
        let (mut session, mut subscriber, mut observer) = (None, None, None);
        match after {
            Some(ClientKey::Session(key)) => session = Some(key),
            Some(ClientKey::Subscriber(conn)) => subscriber = Some(conn),
            Some(ClientKey::Observer(conn)) => observer = Some(conn),
            None => {}
        }
        let mut page = ClientsPage::default();
        // A table before the one of the last client was shown.
        if subscriber.is_none() && observer.is_none() {
            for (key, own) in self.tables.sessions.after(session) {
                if !page.add(max, ClientKey::Session(key), || session_row(own)) {
                    return page;
                }
            }
        }
        if observer.is_none() {
            for own in self.subscribers.after(subscriber) {
                if !page.add(max, ClientKey::Subscriber(own.conn.id()), || subscriber_row(own)) {
                    return page;
                }
            }
        }
        for (conn, name) in self.observers.after(observer) {
            if !page.add(max, ClientKey::Observer(conn.id()), || self.observer_row(conn, name)) {
                return page;
            }
        }
        page.next = None;
        page
    }

    /// Disconnects a client, unless the asker has given up.
    pub(super) fn disconnect(&self, disconnect: Disconnect) {
        let Disconnect { conn, why, record, is_settled, reply } = disconnect;
        if is_settled.swap(true, Ordering::Relaxed) {
            return;
        }
        let done = match self.client(conn) {
            None => Disconnected::NoClient,
            Some((_, row)) if row.role == ClientRole::Gateway => Disconnected::Gateway,
            Some((_, row)) if !record(&row) => Disconnected::NoLine,
            Some((conn, row)) => {
                info!("client {} at {} is disconnected: {why}", display_name(&row.name), row.address);
                conn.close(why);
                Disconnected::Done(row)
            }
        };
        let _ = reply.try_send(done);
    }

    /// The name and the user of the client of a connection.
    pub(crate) fn client_name(&self, conn: u64) -> Option<(String, String)> {
        self.client(conn).map(|(_, row)| (row.name, row.user))
    }

    /// The client of a connection that is up. Publishers are found by a look at all of them.
    fn client(&self, conn: u64) -> Option<(&Conn, ClientRow)> {
        if let Some(own) = self.subscribers.get(conn) {
            return Some((&own.conn, subscriber_row(own)));
        }
        if let Some((own, name)) = self.observers.get(conn) {
            return Some((own, self.observer_row(own, name)));
        }
        let mut sessions = self.tables.sessions.after(None).map(|(_, own)| own);
        let session = sessions.find(|own| own.conn.id() == conn && !own.is_down())?;
        Some((&session.conn, session_row(session)))
    }

    fn observer_row(&self, conn: &Conn, name: &str) -> ClientRow {
        let known = self.tables.admission.identity(conn.id());
        let identity = known.map_or_else(|| Arc::new(Identity::anonymous()), |(identity, _)| identity);
        client_row(ClientRole::Observer, conn, name, &identity)
    }
}

impl ClientsPage {
    /// Adds a client. Returns false if there is no room: `next` is the last one that had some.
    fn add(&mut self, max: usize, key: ClientKey, row: impl FnOnce() -> ClientRow) -> bool {
        let has_room = self.rows.len() < max;
        if has_room {
            self.rows.push(row());
            self.next = Some(key);
        }
        has_room
    }
}

fn session_row(session: &Session) -> ClientRow {
    let role = match session.upstream {
        Some(_) => ClientRole::Broker,
        None if session.identity.is_own() => ClientRole::Gateway,
        None => ClientRole::Publisher,
    };
    let row = client_row(role, &session.conn, &session.name, &session.identity);
    ClientRow { connected: !session.is_down(), buffers: session.buffers() as u64, ..row }
}

fn subscriber_row(subscriber: &Subscriber) -> ClientRow {
    let role = match subscriber.is_broker() {
        true => ClientRole::Broker,
        false if subscriber.identity.is_own() => ClientRole::Gateway,
        false => ClientRole::Subscriber,
    };
    client_row(role, &subscriber.conn, &subscriber.name, &subscriber.identity)
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
